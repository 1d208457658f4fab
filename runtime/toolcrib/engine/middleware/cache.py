"""Layer `cache`: reuses fresh answers of read-only tools (a private cache as in RFC 9111)."""

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
"""Key of `meta` in which a bound tool reports how long its answer is fresh."""

MOST_BYTES = 64 * 1024 * 1024
"""Maximum bytes of the answers of one tool in one session; a single answer may use an eighth of it."""


def layer(context: LayerContext, call_next: CallNext) -> CallNext | None:
    """Build the layer of a tool; None if nothing is cached."""
    tool = context.tool
    most = tool.limits.cache
    if not tool.annotations.read_only or not most:
        return None
    # A new identity for each binding: after a reload, the tool may call another server.
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
            # The executor sends the validators, such as `If-None-Match`, and may get 304 (RFC 9111, section
            # 4.3).
            call = call._replace(kept=StaleAnswer(answer.result(), answer.validators))
        result, freshness = _taken_out(await call_next(call))
        if result.outcome is Outcome.OK and (freshness is not None or answer is not None):
            kept = _answer(result, freshness, answer, session.clock.monotonic())
            answers.put(_name(call), kept, most)
        return result

    return cache


def _name(call: Call) -> tuple[str, str]:
    # `Vary` needs no extra key: all headers of a request follow from the arguments and the user.
    return call.context.user, canonical(call.arguments)


class CachedAnswer(NamedTuple):
    """A cached answer.

    Attributes:
        packed: Value, content, meta and raw value, serialized so that no caller can modify them.
        lifetime: Freshness lifetime in seconds (RFC 9111, section 4.2.1).
        age: Age in seconds when it arrived.
        since: Time of arrival on the session's clock.
        validators: Maps request headers to values that revalidate the answer.
    """

    packed: bytes
    lifetime: float
    age: float
    since: float
    validators: Mapping[str, str]

    def result(self) -> Result:
        """Unpack the answer into a new result."""
        # marshal is the fastest way to copy JSON. It is unsafe only for untrusted bytes.
        value, content, meta, raw_value = marshal.loads(self.packed)  # noqa: S302 -- packed by `_packed`
        parts = tuple(Content(*part) for part in content)
        return Result.success(value, content=parts, meta=meta or NOTHING)._replace(raw_value=raw_value)


class AnswerCache:
    """The cached answers of one tool in one session; the least recently used ones are evicted first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], CachedAnswer] = OrderedDict()
        self._bytes = 0
        self._binding: object = None

    def __len__(self) -> int:
        return len(self._kept)

    def belong_to(self, binding: object) -> None:
        """Drop the answers of another binding of the tool, which may have called another server."""
        if self._binding is not binding:
            self._kept.clear()
            self._bytes = 0
            self._binding = binding

    def find(self, name: tuple[str, str]) -> CachedAnswer | None:
        """Return the answer of a key and mark it as recently used."""
        answer = self._kept.get(name)
        if answer is not None:
            self._kept.move_to_end(name)
        return answer

    def put(self, name: tuple[str, str], answer: CachedAnswer | None, most: int) -> None:
        """Replace the answer of a key, or remove it if `answer` is None; at most `most` answers are kept."""
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
    """Split a result into the result without its freshness, and the freshness."""
    if FRESHNESS not in result.meta:
        return result, None
    meta = dict(result.meta)
    freshness = meta.pop(FRESHNESS)
    return result._replace(meta=meta or NOTHING), freshness


def _answer(result: Result, freshness: Any, before: CachedAnswer | None, now: float) -> CachedAnswer | None:
    """Build the cache entry of a result; None if it must not be cached."""
    if freshness is None:
        return None
    lifetime, validators = freshness["lifetime"], freshness["validators"]
    if lifetime is None:  # a 304 response without a new lifetime: the old one stays valid
        lifetime = 0.0 if before is None else before.lifetime
    if not validators and lifetime <= freshness["age"]:
        return None
    packed = _packed(result)
    return None if packed is None else CachedAnswer(packed, lifetime, freshness["age"], now, validators)


def _packed(result: Result) -> bytes | None:
    parts = [tuple(part) for part in result.content]
    try:
        packed = marshal.dumps((result.value, parts, dict(result.meta), result.raw_value))
    except ValueError:  # marshal cannot serialize every raw value
        return None
    return packed if len(packed) <= MOST_BYTES // 8 else None
