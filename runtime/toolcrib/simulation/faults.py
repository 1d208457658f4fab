"""Injected faults: their kinds, and what each does to an attempt, compiled once.

A fault is written as its kind alone, or as `{kind: options}`.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from copy import deepcopy
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib.core.clock import format_duration, parse_duration
from toolcrib.core.errors import ExpressionError, Problem, attach_progress, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Call, Descriptor, Outcome, Result
from toolcrib.core.pointers import keys_of
from toolcrib.core.protocols import CallNext
from toolcrib.core.subschemas import SchemaIndex, Site
from toolcrib.expressions import Scope, compile_value
from toolcrib.expressions.values import as_text
from toolcrib.simulation.error_reply import compile_error
from toolcrib.simulation.latency import compile_latency

KINDS: Final = (
    "timeout",
    "hang",
    "disconnect",
    "lost_ack",
    "duplicate_delivery",
    "not_json",
    "truncated",
    "empty",
    "violate_schema",
    "stale",
    "inject_text",
    "error",
    "rate_limit",
    "slow",
)
"""All kinds."""

UNREACHED: Final = frozenset({"timeout", "hang", "disconnect", "error", "stale"})
"""The kinds whose attempts never reach the tool."""

ANY: Final = "any"
"""The violation that stands for one that is drawn."""


def kind_of(inject: JSON) -> tuple[str, JSON, str]:
    """The kind of a fault whose shape is right, its options, and where these stand below it.

    `violate_schema` alone means any violation; the other kinds that stand alone have no options.
    """
    if isinstance(inject, dict):
        kind, options = next(iter(inject.items()))
        return kind, options, f"/{kind}"
    kind = str(inject)
    return kind, ANY if kind == "violate_schema" else None, ""


_OPTIONS: Final = {
    "inject_text": "{at: /summary, text: ...}",
    "error": "{code: unavailable, retryable: true}",
    "rate_limit": "{limit: 10, per: 1m}",
    "slow": "3s",
}
"""The kinds that do not stand alone -> options that they could have."""


def kind_problem(inject: JSON, pointer: str) -> Problem | None:
    """What is wrong with a kind that stands alone; None where nothing is.

    Where one stands with its options its schema has seen to it.
    """
    if isinstance(inject, dict) or (inject in KINDS and inject not in _OPTIONS):
        return None
    if inject in _OPTIONS:
        message = f"`{inject}` requires options"
        hint = f"write `{{{inject}: {_OPTIONS[str(inject)]}}}`"
        return Problem(code="missing_options", message=message, pointer=pointer, hint=hint)
    message = f"unknown fault `{inject}`"
    hint = did_you_mean(str(inject), KINDS) or f"use one of {', '.join(f'`{kind}`' for kind in KINDS)}"
    return Problem(code="unknown_fault", message=message, pointer=pointer, hint=hint)


_NEARLY = 1e-6
"""Seconds that are no wait: clocks count in whole nanoseconds."""


class RateWindow:
    """The attempts that were let through of late.

    Args:
        limit: How many may be, in any stretch of `per` seconds.
        per: Seconds.
    """

    __slots__ = ("_limit", "_per", "_times")

    def __init__(self, limit: int, per: float) -> None:
        self._limit = limit
        self._per = per
        self._times: deque[float] = deque(maxlen=limit)

    def wait(self, now: float) -> float:
        """Seconds until one more is let through; 0.0 for now."""
        if len(self._times) < self._limit:
            return 0.0
        left = self._times[0] + self._per - now
        return left if left > _NEARLY else 0.0

    def note(self, now: float) -> None:
        """One is let through."""
        self._times.append(now)


def rate_limited(tool: Descriptor, limit: int, per: str, wait: float) -> Result:
    """The answer to an attempt above the limit."""
    seconds = math.ceil(wait * 1000) / 1000
    details: dict[str, JSON] = {"status": 429, "retry_after": seconds}
    return Result.failed(
        Outcome.TOOL_ERROR,
        f"`{tool.name}` accepts {limit} call{'s' if limit != 1 else ''} per {per}; retry after {format_duration(seconds)}",
        code="rate_limited",
        details=details,
        retryable=True,
    )


Spoil: TypeAlias = "Callable[[Result, Call, int], tuple[Result | None, Mapping[str, JSON]]]"
"""From a good answer, its call and the call's number to the spoiled one and what is told of it.

None for an answer that was no good already. Raises ExpressionError where the answer can't be spoiled so; the tool has
acted then, and the message says so.
"""

Spoiling: TypeAlias = "Callable[[Scope], Spoil]"
"""What expressions read -> how to spoil. Asked before the tool acts; raises ExpressionError where one fails."""

_ACTED = "; the tool has already acted"


def empty_result(result: Result, _call: Call, _number: int) -> tuple[Result, Mapping[str, JSON]]:
    """Nothing is left of the answer."""
    return result._replace(value=None, content=()), NOTHING


def compile_violation(name: str, pointer: str, tool: Descriptor, key: str, problems: list[Problem]) -> Spoil:
    """An answer that the output schema refuses for one named reason, or for one that is drawn."""
    from toolcrib.schema.mutations import Mutations  # noqa: PLC0415 -- slow to import, and rarely used

    schema = tool.output_schema
    if schema is None:
        message = f"`violate_schema` requires an `output_schema`, which `{tool.name}` does not have"
        hint = "add an `output_schema` to the tool, or use another fault"
        problems.append(Problem(code="no_output_schema", message=message, pointer=pointer, hint=hint))
        return _unspoiled
    known = Mutations(schema)
    chosen = known.called(name)
    if not chosen:
        problems.append(_no_such_violation(name, pointer, tool, known.names))
        return _unspoiled

    def spoil(result: Result, call: Call, number: int) -> Any:
        if not known.accepts(result.value):
            return None, NOTHING
        from toolcrib.schema.keyed_random import KeyedRandom  # noqa: PLC0415 -- as above

        session = call.context.session
        draw = KeyedRandom(session.seed, "violate_schema", key, tool.name, session.id, number, call.attempt)
        first = draw.integer(0, len(chosen) - 1) if name == ANY else 0
        # Any violation will do where any is asked for; one that is named must be made.
        tried = (*chosen[first:], *chosen[:first]) if name == ANY else chosen[:1]
        for violation in tried:
            broken = known.broken(violation, result.value)
            if broken is not None:
                return result._replace(value=broken.value), {"violation": violation.name}
        raise _not_possible(name, tool, pointer)

    return spoil


def _unspoiled(result: Result, _call: Call, _number: int) -> tuple[Result, Mapping[str, JSON]]:
    return result, NOTHING


def _no_such_violation(name: str, pointer: str, tool: Descriptor, names: Collection[str]) -> Problem:
    listed = ", ".join(f"`{known}`" for known in names)
    if not names:
        message = f"no violation of the `output_schema` of `{tool.name}` can be made from a valid result"
        hint = "make the schema stricter, or use another fault"
    else:
        message = f"unknown violation `{name}` of the `output_schema` of `{tool.name}`"
        near = did_you_mean(name, names)
        hint = f"{near} Use {listed} or `{ANY}`" if near else f"use {listed} or `{ANY}`"
    return Problem(code="unknown_violation", message=message, pointer=pointer, hint=hint)


def _not_possible(name: str, tool: Descriptor, pointer: str) -> ExpressionError:
    return ExpressionError(
        f"the result of `{tool.name}` cannot be changed to violate the schema by `{name}`{_ACTED}",
        code="fault_not_possible",
        hint="choose another violation, or make the tool return a result that contains the affected value",
        pointer=pointer,
    )


def compile_text(
    options: Mapping[str, Any],
    pointer: str,
    tool: Descriptor,
    names: Collection[str],
    problems: list[Problem],
) -> tuple[Spoiling, frozenset[str]]:
    """An answer into which a text is planted, and what the text reads of the scope."""
    at: str = options["at"]
    text = compile_value(options["text"], names, problems, f"{pointer}/text")
    path = keys_of(at)
    if tool.output_schema is not None and not _possible(tool.output_schema, path):
        message = f"no valid result of `{tool.name}` can hold text at `{at}`"
        hint = "use a JSON Pointer into the result, such as `/items/0/title`; an empty one means the whole result"
        problems.append(Problem(code="never_matches", message=message, pointer=f"{pointer}/at", hint=hint))

    def spoiling(scope: Scope) -> Spoil:
        words = as_text(text.render(scope))

        def spoil(result: Result, _call: Call, _number: int) -> Any:
            planted = _with_text_at(result.value, path, words)
            if planted is _NOWHERE:
                message = f"cannot insert text at `{at}` in the result of `{tool.name}`{_ACTED}"
                hint = "point to text, to a list, or to a key that the object may have"
                raise ExpressionError(message, code="fault_not_possible", hint=hint, pointer=f"{pointer}/at")
            return result._replace(value=planted), NOTHING

        return spoil

    return spoiling, text.names


_NOWHERE: Any = object()


def _with_text_at(value: JSON, path: list[str], text: str) -> Any:
    """The value with the text at a place: after the text that is there, at a list's end, or as a new member."""
    if not path:
        return _grown(value, text)
    whole: Any = deepcopy(value)
    holder = whole
    for key in path[:-1]:
        holder = _member(holder, key)
    last = path[-1]
    if isinstance(holder, list) and last == "-":
        holder.append(text)
        return whole
    there = None if isinstance(holder, dict) and last not in holder else _member(holder, last)
    grown = _grown(there, text)
    if grown is _NOWHERE:
        return _NOWHERE
    holder[int(last) if isinstance(holder, list) else last] = grown
    return whole


def _member(holder: Any, key: str) -> Any:
    if isinstance(holder, dict):
        return holder.get(key, _NOWHERE)
    if isinstance(holder, list) and key.isdecimal() and int(key) < len(holder):
        return holder[int(key)]
    return _NOWHERE


def _grown(there: Any, text: str) -> Any:
    if there is None:
        return text
    if isinstance(there, str):
        return f"{there} {text}" if there else text
    return [*there, text] if isinstance(there, list) else _NOWHERE


def _possible(schema: JSON, path: list[str]) -> bool:
    """Whether a valid value may have the place; also where that can't be told."""
    index = SchemaIndex(schema if isinstance(schema, dict | bool) else True)
    sites = _surely(index, [index.root])
    for key in path:
        if not _of_type(sites, "object", "array"):
            return False
        step: str | int = key
        if not _of_type(sites, "object"):
            if key != "-" and not key.isdecimal():
                return False
            step = 0 if key == "-" else int(key)
        sites = _surely(index, index.below(sites, step))
        if any(site.schema is False for site in sites):
            return False
    return _of_type(sites, "string", "array", "null")


def _surely(index: SchemaIndex, sites: list[Site]) -> list[Site]:
    """The sites of which each judges the value whatever else is true of it."""
    return index.together(sites, ("allOf",))


def _of_type(sites: list[Site], *types: str) -> bool:
    for site in sites:
        said = site.get("type")
        allowed = [said] if isinstance(said, str) else said
        if isinstance(allowed, list) and not any(kind in allowed for kind in types):
            return False
    return True


Earlier: TypeAlias = Callable[[Call], Result | None]
"""What a tool would have answered before; None where there is nothing."""


class Attempt(NamedTuple):
    """What a fault happens to.

    Attributes:
        call: The call.
        call_next: Lets the tool act.
        scope: What expressions of the fault read.
        number: Of the call, among those of its tool in the session.
        repeatable: Whether the tool may act again without a second effect.
        earlier: What the tool would have answered before.
    """

    call: Call
    call_next: CallNext
    scope: Scope
    number: int
    repeatable: bool
    earlier: Earlier


class AttemptOutcome(NamedTuple):
    """How an attempt ended.

    Attributes:
        result: Its result.
        happened: Whether the fault happened; not where the tool gave no answer that it could spoil.
        facts: What more is told of the fault in `meta.fault`.
    """

    result: Result
    happened: bool = True
    facts: Mapping[str, JSON] = NOTHING


class Injection(NamedTuple):
    """A compiled fault.

    Attributes:
        kind: One of `KINDS`.
        reaches: Whether the tool may be reached, so that it acts.
        blocks: Whether an attempt to which it happens never reaches the tool.
        certain: Whether it happens in any case, as soon as it is due.
        names: What it reads of the scope.
        happen: Does it; raises ExpressionError where it can't be done.
        ready: Whether it can happen to a call now; changes nothing.
        passed: Notes that a call reaches the tool.
    """

    kind: str
    reaches: bool
    blocks: bool
    certain: bool
    names: frozenset[str]
    happen: Callable[[Attempt], Awaitable[AttemptOutcome]]
    ready: Callable[[Call, Earlier], bool] = lambda _call, _earlier: True
    passed: Callable[[Call], None] = lambda _call: None

    async def inject(
        self,
        call: Call,
        call_next: CallNext,
        scope: Scope = NOTHING,
        *,
        number: int = 1,
        repeatable: bool | None = None,
        earlier: Earlier = lambda _call: None,
    ) -> Result:
        """Let the fault happen to an attempt; `meta.fault.kind` tells that it has.

        Args:
            call: The call.
            call_next: Lets the tool act.
            scope: Holds at least `names`.
            number: Of the call, among those of its tool in the session; part of what is drawn.
            repeatable: Whether the tool may act again without a second effect; what its annotations say unless given.
            earlier: What the tool would have answered before, for `stale`.

        Raises:
            ExpressionError: An expression failed, or the answer can't be spoiled so.
        """
        if repeatable is None:
            repeatable = call.tool.annotations.read_only or call.tool.annotations.idempotent
        ended = await self.happen(Attempt(call, call_next, scope, number, repeatable, earlier))
        if not ended.happened:
            return ended.result
        return ended.result.with_meta(fault={"kind": self.kind, **ended.facts})


class FaultContext(NamedTuple):
    """What a fault is compiled for.

    Attributes:
        kind: Its kind.
        options: As written.
        pointer: Where these stand.
        tool: The tool.
        names: What its expressions may read.
        problems: Receives what is wrong.
        key: Tells it from the other faults of a session.
    """

    kind: str
    options: Any
    pointer: str
    tool: Descriptor
    names: Collection[str]
    problems: list[Problem]
    key: str


def compile_injection(
    inject: JSON,
    pointer: str,
    tool: Descriptor,
    names: Collection[str],
    problems: list[Problem],
    *,
    key: str = "",
) -> Injection:
    """Compile a fault whose shape its schema has accepted.

    Args:
        inject: A kind, or `{kind: options}`.
        pointer: Where it stands in its document.
        tool: The tool that it happens to.
        names: The root names that its expressions may read.
        problems: Receives all that is wrong; what comes of it is then good for nothing.
        key: Tells the fault from others of a session, for what is counted and drawn; the place unless given.
    """
    problem = kind_problem(inject, pointer)
    if problem is not None:
        problems.append(problem)
        inject = "disconnect"  # what stands in the place of what is refused
    kind, options, below = kind_of(inject)
    where = pointer + below
    return _COMPILERS[kind](
        FaultContext(kind, options, where, tool, names, problems, key or f"{tool.name} {where}")
    )


def _injection(
    subject: FaultContext,
    happen: Callable[[Attempt], Awaitable[AttemptOutcome]],
    names: frozenset[str] = frozenset(),
) -> Injection:
    kind = subject.kind
    reaches = kind not in UNREACHED
    blocks = not reaches or kind == "rate_limit"
    return Injection(kind, reaches, blocks, kind in _CERTAIN, names, happen)


_CERTAIN = frozenset({"timeout", "hang", "disconnect", "rate_limit", "slow"})
"""Kinds that need nothing of the tool, and no expression that could fail."""


def _waiting(subject: FaultContext, *, ends: bool) -> Injection:
    """Longer than the deadline allows, or for ever. Where nobody has set a deadline, the tool's timeout is one."""

    async def happen(attempt: Attempt) -> AttemptOutcome:
        call = attempt.call
        clock = call.context.session.clock
        bounded = call.deadline is not None
        left = call.deadline - clock.monotonic() if call.deadline is not None else call.tool.timeout
        await _sleep(attempt, math.inf if bounded and not ends else left + _LATER, subject.kind)
        message = f"`{call.tool.name}` did not respond in time"
        return AttemptOutcome(Result.failed(Outcome.TIMEOUT, message, retryable=True))

    return _injection(subject, happen)


_LATER = 0.001
"""Seconds after a deadline at which a late answer arrives."""


async def _sleep(attempt: Attempt, seconds: float, kind: str) -> None:
    """Wait before the tool is reached; who gives the call up is told that it was not."""
    try:
        await attempt.call.context.session.clock.sleep(seconds)
    except asyncio.CancelledError as error:
        attach_progress(error, attempts=1, reached=False, meta={"fault": {"kind": kind}})
        raise


def _disconnect(subject: FaultContext) -> Injection:
    message = f"`{subject.tool.name}`: the connection was lost before the call arrived"

    async def happen(_attempt: Attempt) -> AttemptOutcome:
        return AttemptOutcome(
            Result.failed(Outcome.TRANSPORT_ERROR, message, code="disconnected", retryable=True)
        )

    return _injection(subject, happen)


ANSWERED = frozenset({Outcome.OK, Outcome.TOOL_ERROR, Outcome.INVALID_RESULT})
"""How calls end that the tool has answered, so that there is something to lose."""


def _lost(subject: FaultContext, called: str, what: str) -> Injection:
    """The tool acts, and what it answers never arrives whole."""
    name = subject.tool.name

    async def happen(attempt: Attempt) -> AttemptOutcome:
        result = await attempt.call_next(attempt.call)
        if result.outcome not in ANSWERED:
            return AttemptOutcome(result, happened=False)
        if attempt.repeatable:
            lost = Result.failed(Outcome.TRANSPORT_ERROR, f"`{name}`: {what}", code=called, retryable=True)
        else:
            message = f"`{name}`: {what}; the call was sent, so it may have acted"
            lost = Result.failed(
                Outcome.UNKNOWN_OUTCOME, message, code=called, details={"may_have_acted": True}
            )
        return AttemptOutcome(lost)

    return _injection(subject, happen)


def _duplicate(subject: FaultContext) -> Injection:
    async def happen(attempt: Attempt) -> AttemptOutcome:
        first = await attempt.call_next(attempt.call)
        if first.outcome not in ANSWERED:
            return AttemptOutcome(first, happened=False)
        second = await attempt.call_next(attempt.call)
        # What is wrong with a mock is told wherever it shows.
        told = second if second.outcome is Outcome.INTERNAL else first
        return AttemptOutcome(told, facts={"second": second.outcome.value})

    return _injection(subject, happen)


def _not_json(subject: FaultContext) -> Injection:
    message = f"the reply of `{subject.tool.name}` is not valid JSON: unterminated string"

    async def happen(attempt: Attempt) -> AttemptOutcome:
        result = await attempt.call_next(attempt.call)
        if result.outcome not in ANSWERED:
            return AttemptOutcome(result, happened=False)
        return AttemptOutcome(Result.failed(Outcome.INVALID_RESULT, message, code="not_json"))

    return _injection(subject, happen)


def _spoiled(subject: FaultContext, spoiling: Spoiling, names: frozenset[str] = frozenset()) -> Injection:
    """The tool acts, and a good answer is made another one; a failure is passed on as it is."""

    async def happen(attempt: Attempt) -> AttemptOutcome:
        spoil: Spoil = spoiling(attempt.scope)  # an expression that fails fails before the tool acts
        result = await attempt.call_next(attempt.call)
        if result.outcome is not Outcome.OK:
            return AttemptOutcome(result, happened=False)
        spoiled, facts = spoil(result, attempt.call, attempt.number)
        if spoiled is None:
            return AttemptOutcome(result, happened=False)
        return AttemptOutcome(spoiled, facts=facts)

    return _injection(subject, happen, names)


def _violating(subject: FaultContext) -> Injection:
    tool, key, pointer = subject.tool, subject.key, subject.pointer
    spoil = compile_violation(str(subject.options), pointer, tool, key, subject.problems)
    return _spoiled(subject, lambda _scope: spoil)


def _planted(subject: FaultContext) -> Injection:
    spoiling, names = compile_text(
        subject.options, subject.pointer, subject.tool, subject.names, subject.problems
    )
    return _spoiled(subject, spoiling, names)


def _stale(subject: FaultContext) -> Injection:
    async def happen(attempt: Attempt) -> AttemptOutcome:
        result = attempt.earlier(attempt.call)
        if result is None:
            return AttemptOutcome(await attempt.call_next(attempt.call), happened=False)
        return AttemptOutcome(result)

    injection = _injection(subject, happen)
    return injection._replace(ready=lambda call, earlier: earlier(call) is not None)


def _error(subject: FaultContext) -> Injection:
    failing = compile_error(subject.options, subject.pointer, subject.names, subject.problems)

    async def happen(attempt: Attempt) -> AttemptOutcome:
        return AttemptOutcome(failing.answer(attempt.scope))

    return _injection(subject, happen, failing.names)


def _rate_limit(subject: FaultContext) -> Injection:
    limit, per = subject.options["limit"], parse_duration(subject.options["per"])
    if not per:
        message = "`per` must be greater than 0s"
        hint = "use a duration, such as `1m`"
        subject.problems.append(
            Problem(code="out_of_range", message=message, pointer=f"{subject.pointer}/per", hint=hint)
        )
    slot = f"fault window {subject.key}"

    def wait(call: Call) -> float:
        session = call.context.session
        return session.slot(slot, lambda: RateWindow(limit, per)).wait(session.clock.monotonic())

    def passed(call: Call) -> None:
        session = call.context.session
        session.slot(slot, lambda: RateWindow(limit, per)).note(session.clock.monotonic())

    async def happen(attempt: Attempt) -> AttemptOutcome:
        seconds = wait(attempt.call)
        if seconds:
            return AttemptOutcome(rate_limited(attempt.call.tool, limit, subject.options["per"], seconds))
        passed(attempt.call)
        return AttemptOutcome(await attempt.call_next(attempt.call), happened=False)

    injection = _injection(subject, happen)
    return injection._replace(ready=lambda call, _earlier: wait(call) > 0, passed=passed)


def _slow(subject: FaultContext) -> Injection:
    latency = compile_latency(
        subject.options, subject.pointer, subject.problems, purpose=f"fault {subject.key}"
    )

    async def happen(attempt: Attempt) -> AttemptOutcome:
        if latency is not None:
            await _sleep(attempt, latency(attempt.call, attempt.number), subject.kind)
        return AttemptOutcome(await attempt.call_next(attempt.call))

    return _injection(subject, happen)


_COMPILERS: dict[str, Callable[[FaultContext], Injection]] = {
    "timeout": lambda subject: _waiting(subject, ends=True),
    "hang": lambda subject: _waiting(subject, ends=False),
    "disconnect": _disconnect,
    "lost_ack": lambda subject: _lost(subject, "reply_lost", "the reply was lost"),
    "duplicate_delivery": _duplicate,
    "not_json": _not_json,
    "truncated": lambda subject: _lost(subject, "truncated", "the reply was cut off"),
    "empty": lambda subject: _spoiled(subject, lambda _scope: empty_result),
    "violate_schema": _violating,
    "stale": _stale,
    "inject_text": _planted,
    "error": _error,
    "rate_limit": _rate_limit,
    "slow": _slow,
}
