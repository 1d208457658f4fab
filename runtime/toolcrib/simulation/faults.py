"""Compile injected faults: the kinds, and what each does to an attempt.

A fault is written as its kind alone, or as `{kind: options}`.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from copy import deepcopy
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib.core.call_progress import record_progress
from toolcrib.core.clock import format_duration, parse_duration
from toolcrib.core.errors import ExpressionError, Problem, did_you_mean
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
"""All kinds of faults."""

UNREACHED: Final = frozenset({"timeout", "hang", "disconnect", "error", "stale"})
"""The kinds whose attempts never reach the tool."""

ANY: Final = "any"
"""The option of `violate_schema` that draws a violation at random."""


def kind_of(inject: JSON) -> tuple[str, JSON, str]:
    """The kind of a valid fault, its options, and the pointer of the options below the fault.

    `violate_schema` without options means any violation.
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
"""The kinds that require options -> an example of options."""


def kind_problem(inject: JSON, pointer: str) -> Problem | None:
    """The problem of a fault that is written as its kind alone; None if there is none."""
    # `{kind: options}` has already been checked by the JSON Schema.
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
"""A wait in seconds that counts as none. Clocks have a finite resolution, and sums of floats are inexact."""


class RateWindow:
    """A sliding window of the attempts that were let through.

    Args:
        limit: The number of attempts in any `per` seconds.
        per: The length of the window in seconds.
    """

    __slots__ = ("_limit", "_per", "_times")

    def __init__(self, limit: int, per: float) -> None:
        self._limit = limit
        self._per = per
        # Only the latest `limit` times matter: the oldest of them decides when the next attempt may pass.
        self._times: deque[float] = deque(maxlen=limit)

    def wait(self, now: float) -> float:
        """Seconds until the next attempt may pass; 0.0 if it may pass now."""
        if len(self._times) < self._limit:
            return 0.0
        left = self._times[0] + self._per - now
        return left if left > _NEARLY else 0.0

    def note(self, now: float) -> None:
        """Record an attempt that passed."""
        self._times.append(now)


def rate_limited(tool: Descriptor, limit: int, per: str, wait: float) -> Result:
    """The result of an attempt above the limit."""
    # Rounded up, so that a client that waits exactly this long is not refused again.
    seconds = math.ceil(wait * 1000) / 1000
    details: dict[str, JSON] = {"status": 429, "retry_after": seconds}
    return Result.failure(
        Outcome.TOOL_ERROR,
        f"`{tool.name}` accepts {limit} call{'s' if limit != 1 else ''} per {per}; retry after {format_duration(seconds)}",
        code="rate_limited",
        details=details,
        retryable=True,
    )


Spoil: TypeAlias = "Callable[[Result, Call, int], tuple[Result | None, Mapping[str, JSON]]]"
"""Corrupts a successful result of a call with a number. Returns the corrupted result and facts for `meta.fault`.

The result is None if the original was already invalid. Raises ExpressionError if the result cannot be
corrupted in this way; the message says that the tool has already acted.
"""

Spoiling: TypeAlias = "Callable[[Scope], Spoil]"
"""Creates a `Spoil` from a scope, before the tool acts; raises ExpressionError if an expression fails."""

_ACTED = "; the tool has already acted"


def empty_result(result: Result, _call: Call, _number: int) -> tuple[Result, Mapping[str, JSON]]:
    """The result without value and content."""
    return result._replace(value=None, content=()), NOTHING


def compile_violation(name: str, pointer: str, tool: Descriptor, key: str, problems: list[Problem]) -> Spoil:
    """Compile `violate_schema`: a result that violates the output schema in a named or a random way."""
    # Deferred: slow to import, and rarely used.
    from toolcrib.schema.mutations import Mutations  # noqa: PLC0415

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
        from toolcrib.schema.keyed_random import KeyedRandom  # noqa: PLC0415

        session = call.context.session
        draw = KeyedRandom(session.seed, "violate_schema", key, tool.name, session.id, number, call.attempt)
        # Drawn per attempt, so that a retry may meet another violation.
        first = draw.integer(0, len(chosen) - 1) if name == ANY else 0
        # With `any` the first violation that this value permits is used; a named one must be possible.
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
    """Compile `inject_text`: a result with an inserted text. Also returns the names that the text reads."""
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
    """The value with the text appended at a path: to a text, to a list, or as a new member."""
    if not path:
        return _grown(value, text)
    # Copied, because the result may be cached or stored by the tool.
    whole: Any = deepcopy(value)
    holder = whole
    for key in path[:-1]:
        holder = _member(holder, key)
    last = path[-1]
    # RFC 6901 section 4: `-` is the position after the last item.
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
    """Whether a valid value may have text at the path. True if the schema leaves it open."""
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
    # `_grown` appends to a string or list, and replaces null.
    return _of_type(sites, "string", "array", "null")


def _surely(index: SchemaIndex, sites: list[Site]) -> list[Site]:
    """The subschemas that certainly apply to the value. Those of `anyOf` and the like may not apply."""
    return index.together(sites, ("allOf",))


def _of_type(sites: list[Site], *types: str) -> bool:
    for site in sites:
        said = site.get("type")
        allowed = [said] if isinstance(said, str) else said
        if isinstance(allowed, list) and not any(kind in allowed for kind in types):
            return False
    return True


Earlier: TypeAlias = Callable[[Call], Result | None]
"""Returns the result that the tool would have had earlier; None if there is none."""


class Attempt(NamedTuple):
    """An attempt to which a fault happens.

    Attributes:
        call: The call.
        call_next: Calls the tool.
        scope: The variables of the fault's expressions.
        number: The number of the call, among those of its tool in the session.
        repeatable: Whether the tool may be called again without a second effect.
        earlier: Returns the earlier result of the tool, for `stale`.
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
        result: The result.
        happened: Whether the fault happened. It does not if the tool returned nothing that it could corrupt.
        facts: Additional members of `meta.fault`.
    """

    result: Result
    happened: bool = True
    facts: Mapping[str, JSON] = NOTHING


class Injection(NamedTuple):
    """A compiled fault.

    Attributes:
        kind: One of `KINDS`.
        reaches: Whether the tool may be called, and thus act.
        blocks: Whether an attempt to which it happens never reaches the tool.
        certain: Whether it always happens when it is due.
        names: The names of the scope that it reads.
        happen: Applies the fault to an attempt; raises ExpressionError if it is not possible.
        ready: Whether it can happen to a call now. Changes nothing.
        passed: Records that a call reaches the tool.
        counts: Whether it depends on earlier calls of the session.
    """

    kind: str
    reaches: bool
    blocks: bool
    certain: bool
    names: frozenset[str]
    happen: Callable[[Attempt], Awaitable[AttemptOutcome]]
    ready: Callable[[Call, Earlier], bool] = lambda _call, _earlier: True
    passed: Callable[[Call], None] = lambda _call: None
    counts: bool = False

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
        """Apply the fault to an attempt. If it happens, the result has `meta.fault.kind`.

        Args:
            call: The call.
            call_next: Calls the tool.
            scope: The variables of expressions, at least those in `names`.
            number: The number of the call, among those of its tool in the session; a key of random draws.
            repeatable: Whether the tool may be called again without a second effect. Default: by its
                annotations.
            earlier: Returns the earlier result of the tool, for `stale`.

        Raises:
            ExpressionError: An expression failed, or the result cannot be corrupted in this way.
        """
        if repeatable is None:
            repeatable = call.tool.annotations.read_only or call.tool.annotations.idempotent
        ended = await self.happen(Attempt(call, call_next, scope, number, repeatable, earlier))
        if not ended.happened:
            return ended.result
        return ended.result.with_meta(fault={"kind": self.kind, **ended.facts})


class FaultContext(NamedTuple):
    """What a fault is compiled with.

    Attributes:
        kind: The kind of the fault.
        options: Its options, as written.
        pointer: JSON Pointer of the options.
        tool: The tool.
        names: The names that its expressions may read.
        problems: Receives every problem.
        key: Identifies the fault in a session.
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
    """Compile a fault that its schema has accepted.

    Args:
        inject: A kind, or `{kind: options}`.
        pointer: JSON Pointer of the fault in its document.
        tool: The tool that it happens to.
        names: The names that its expressions may read.
        problems: Receives every problem. If there is one, the returned fault must not be used.
        key: Identifies the fault in a session, for counters and draws. Default: the tool and the pointer.
    """
    problem = kind_problem(inject, pointer)
    if problem is not None:
        problems.append(problem)
        # A placeholder, so that the rest of the document can still be compiled.
        inject = "disconnect"
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
"""The kinds that depend neither on the tool's result nor on an expression that could fail."""


def _waiting(subject: FaultContext, *, ends: bool) -> Injection:
    """Wait until just after the deadline (`timeout`), or forever (`hang`)."""

    async def happen(attempt: Attempt) -> AttemptOutcome:
        call = attempt.call
        clock = call.context.session.clock
        bounded = call.deadline is not None
        # Without a deadline nothing would ever end a hang, so the tool's own timeout does.
        left = call.deadline - clock.monotonic() if call.deadline is not None else call.tool.timeout
        await _sleep(attempt, math.inf if bounded and not ends else left + _LATER, subject.kind)
        message = f"`{call.tool.name}` did not respond in time"
        return AttemptOutcome(Result.failure(Outcome.TIMEOUT, message, retryable=True))

    return _injection(subject, happen)


_LATER = 0.001
"""How long after the deadline a late reply arrives, in seconds. The deadline layer must notice first."""


async def _sleep(attempt: Attempt, seconds: float, kind: str) -> None:
    """Wait before the tool is reached. A cancellation reports that it was not, so the call may be repeated."""
    try:
        await attempt.call.context.session.clock.sleep(seconds)
    except asyncio.CancelledError:
        record_progress(attempt.call.id, attempts=1, reached=False, meta={"fault": {"kind": kind}})
        raise


def _disconnect(subject: FaultContext) -> Injection:
    message = f"`{subject.tool.name}`: the connection was lost before the call arrived"

    async def happen(_attempt: Attempt) -> AttemptOutcome:
        return AttemptOutcome(
            Result.failure(Outcome.TRANSPORT_ERROR, message, code="disconnected", retryable=True)
        )

    return _injection(subject, happen)


ANSWERED = frozenset({Outcome.OK, Outcome.TOOL_ERROR, Outcome.INVALID_RESULT})
"""The outcomes of calls that the tool has answered, so that there is a reply to lose."""


def _lost(subject: FaultContext, called: str, what: str) -> Injection:
    """The tool acts, but its reply does not arrive completely."""
    name = subject.tool.name

    async def happen(attempt: Attempt) -> AttemptOutcome:
        result = await attempt.call_next(attempt.call)
        if result.outcome not in ANSWERED:
            return AttemptOutcome(result, happened=False)
        # The caller cannot know whether the tool has acted, exactly as with a real connection that breaks.
        if attempt.repeatable:
            lost = Result.failure(Outcome.TRANSPORT_ERROR, f"`{name}`: {what}", code=called, retryable=True)
        else:
            message = f"`{name}`: {what}; the call was sent, so it may have acted"
            lost = Result.failure(
                Outcome.UNKNOWN_OUTCOME, message, code=called, details={"may_have_acted": True}
            )
        return AttemptOutcome(lost)

    return _injection(subject, happen)


def _duplicate(subject: FaultContext) -> Injection:
    async def happen(attempt: Attempt) -> AttemptOutcome:
        first = await attempt.call_next(attempt.call)
        if first.outcome not in ANSWERED:
            return AttemptOutcome(first, happened=False)
        # The first result counts, as for a client that ignores the reply to a duplicate.
        second = await attempt.call_next(attempt.call)
        # An error of the mock itself must be reported, also if only the second delivery shows it.
        told = second if second.outcome is Outcome.INTERNAL else first
        return AttemptOutcome(told, facts={"second": second.outcome.value})

    return _injection(subject, happen)


def _not_json(subject: FaultContext) -> Injection:
    message = f"the reply of `{subject.tool.name}` is not valid JSON: unterminated string"

    async def happen(attempt: Attempt) -> AttemptOutcome:
        result = await attempt.call_next(attempt.call)
        if result.outcome not in ANSWERED:
            return AttemptOutcome(result, happened=False)
        return AttemptOutcome(Result.failure(Outcome.INVALID_RESULT, message, code="not_json"))

    return _injection(subject, happen)


def _spoiled(subject: FaultContext, spoiling: Spoiling, names: frozenset[str] = frozenset()) -> Injection:
    """The tool acts, and a successful result is corrupted. Failures are passed on unchanged."""

    async def happen(attempt: Attempt) -> AttemptOutcome:
        # Evaluated first: an expression that fails must fail before the tool acts.
        spoil: Spoil = spoiling(attempt.scope)
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
    # Per session and fault: sessions that run in parallel must not share a limit.
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
    return injection._replace(ready=lambda call, _earlier: wait(call) > 0, passed=passed, counts=True)


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
