"""Layer `cache`: answers again what an answer of before still says, for tools that only read (RFC 9111, private)."""

from __future__ import annotations

import marshal
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from toolcrib.core.model import NOTHING, Call, Content, Outcome, Result, StaleAnswer
from toolcrib.core.protocols import CallNext
from toolcrib.core.text import canonical
from toolcrib.engine.middleware.call_failures import without_attempts
from toolcrib.engine.middleware.layer import LayerContext, never_waits

FRESHNESS = "freshness"
"""The key of `meta` in which a bound tool says how long its answer holds."""

MOST_BYTES = 64 * 1024 * 1024
"""Size of all answers of a tool that one session keeps; one answer may have an eighth of it."""


def layer(context: LayerContext, call_next: CallNext) -> CallNext | None:
    """The layer of a tool; None where nothing is kept."""
    tool = context.tool
    most = tool.limits.cache
    if not tool.annotations.read_only or not most:
        return None
    key, binding = f"cache of {tool.name}", object()

    @never_waits
    async def cache(call: Call) -> Result:
        session = call.context.session
        answers = session.slot(key, AnswerCache)
        answers.belong_to(binding)
        answer = answers.find(_name(call)) if answers else None
        if answer is not None:
            age = answer.age + session.clock.monotonic() - answer.since
            if age < answer.lifetime:
                return without_attempts(answer.result().with_meta(cache={"age": round(age, 3)}))
            call = call._replace(kept=StaleAnswer(answer.result(), answer.validators))
        result, freshness = _taken_out(await call_next(call))
        if result.outcome is Outcome.OK and (freshness is not None or answer is not None):
            kept = _answer(result, freshness, answer, session.clock.monotonic())
            answers.put(_name(call), kept, most)
        return result

    return cache


def _name(call: Call) -> tuple[str, str]:
    """An answer is a function of these: what `Vary` names follows from the arguments and from who calls."""
    return call.context.user, canonical(call.arguments)


class CachedAnswer(NamedTuple):
    """An answer that is kept.

    Attributes:
        packed: Value, content, meta and raw value, so that nobody can change them.
        lifetime: Seconds for which it was fresh from its origin.
        age: Seconds that it was old when it came.
        since: When it came, on the session's clock.
        validators: Request header -> value that asks whether it still holds.
    """

    packed: bytes
    lifetime: float
    age: float
    since: float
    validators: Mapping[str, str]

    def result(self) -> Result:
        """The answer as a result of its own."""
        value, content, meta, raw_value = marshal.loads(self.packed)  # noqa: S302 -- we packed it
        parts = tuple(Content(*part) for part in content)
        return Result.ok(value, content=parts, meta=meta or NOTHING)._replace(raw_value=raw_value)


class AnswerCache:
    """The answers of one tool that a session keeps; those that were used longest ago go first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], CachedAnswer] = OrderedDict()
        self._bytes = 0
        self._binding: object = None

    def __len__(self) -> int:
        return len(self._kept)

    def belong_to(self, binding: object) -> None:
        """Forget the answers of another binding of the tool: it may ask somebody else."""
        if self._binding is not binding:
            self._kept.clear()
            self._bytes = 0
            self._binding = binding

    def find(self, name: tuple[str, str]) -> CachedAnswer | None:
        """The answer of a name, as used now."""
        answer = self._kept.get(name)
        if answer is not None:
            self._kept.move_to_end(name)
        return answer

    def put(self, name: tuple[str, str], answer: CachedAnswer | None, most: int) -> None:
        """Put an answer, or none, in place of what is there; `most` are kept."""
        gone = self._kept.pop(name, None)
        self._bytes -= len(gone.packed) if gone is not None else 0
        if answer is None:
            return
        self._kept[name] = answer
        self._bytes += len(answer.packed)
        while len(self._kept) > most or self._bytes > MOST_BYTES:
            _name, oldest = self._kept.popitem(last=False)
            self._bytes -= len(oldest.packed)


def _taken_out(result: Result) -> tuple[Result, Any]:
    """The result without what it says of its freshness, and that."""
    if FRESHNESS not in result.meta:
        return result, None
    meta = dict(result.meta)
    freshness = meta.pop(FRESHNESS)
    return result._replace(meta=meta or NOTHING), freshness


def _answer(result: Result, freshness: Any, before: CachedAnswer | None, now: float) -> CachedAnswer | None:
    """What is kept of a result; None for nothing."""
    if freshness is None:
        return None
    lifetime, validators = freshness["lifetime"], freshness["validators"]
    if lifetime is None:  # the answer of before still holds, and nothing new is said of it
        lifetime = 0.0 if before is None else before.lifetime
    if not validators and lifetime <= freshness["age"]:
        return None
    packed = _packed(result)
    return None if packed is None else CachedAnswer(packed, lifetime, freshness["age"], now, validators)


def _packed(result: Result) -> bytes | None:
    parts = [tuple(part) for part in result.content]
    try:
        packed = marshal.dumps((result.value, parts, dict(result.meta), result.raw_value))
    except ValueError:  # a raw value may be anything
        return None
    return packed if len(packed) <= MOST_BYTES // 8 else None
