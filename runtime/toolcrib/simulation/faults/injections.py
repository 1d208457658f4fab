"""What a fault does to an attempt, compiled once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeAlias

from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import Problem, attach_progress
from toolcrib.core.model import JSON, NOTHING, Call, Descriptor, Outcome, Result
from toolcrib.core.protocols import CallNext
from toolcrib.simulation.error_reply import compile_error
from toolcrib.simulation.faults.corruption import Spoil, Spoiling, compile_text, compile_violation, emptied
from toolcrib.simulation.faults.kinds import UNREACHED, kind_of, misnamed
from toolcrib.simulation.faults.rate_windows import Window, refused
from toolcrib.simulation.latency import compile_latency

Scope: TypeAlias = Mapping[str, JSON]

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


class Ended(NamedTuple):
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
    happen: Callable[[Attempt], Awaitable[Ended]]
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


class Subject(NamedTuple):
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
    problem = misnamed(inject, pointer)
    if problem is not None:
        problems.append(problem)
        inject = "disconnect"  # what stands in the place of what is refused
    kind, options, below = kind_of(inject)
    where = pointer + below
    return _COMPILERS[kind](
        Subject(kind, options, where, tool, names, problems, key or f"{tool.name} {where}")
    )


def _injection(
    subject: Subject, happen: Callable[[Attempt], Awaitable[Ended]], names: frozenset[str] = frozenset()
) -> Injection:
    kind = subject.kind
    reaches = kind not in UNREACHED
    blocks = not reaches or kind == "rate_limit"
    return Injection(kind, reaches, blocks, kind in _CERTAIN, names, happen)


_CERTAIN = frozenset({"timeout", "hang", "disconnect", "rate_limit", "slow"})
"""Kinds that need nothing of the tool, and no expression that could fail."""


def _waiting(subject: Subject, *, ends: bool) -> Injection:
    """Longer than the deadline allows, or for ever. Where nobody has set a deadline, the tool's timeout is one."""

    async def happen(attempt: Attempt) -> Ended:
        call = attempt.call
        clock = call.context.session.clock
        bounded = call.deadline is not None
        left = call.deadline - clock.monotonic() if call.deadline is not None else call.tool.timeout
        await _sleep(attempt, math.inf if bounded and not ends else left + _LATER, subject.kind)
        message = f"`{call.tool.name}` did not answer in time"
        return Ended(Result.failed(Outcome.TIMEOUT, message, retryable=True))

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


def _disconnect(subject: Subject) -> Injection:
    message = f"`{subject.tool.name}`: the connection broke off before the call arrived"

    async def happen(_attempt: Attempt) -> Ended:
        return Ended(Result.failed(Outcome.TRANSPORT_ERROR, message, code="disconnected", retryable=True))

    return _injection(subject, happen)


ANSWERED = frozenset({Outcome.OK, Outcome.TOOL_ERROR, Outcome.INVALID_RESULT})
"""How calls end that the tool has answered, so that there is something to lose."""


def _lost(subject: Subject, called: str, what: str) -> Injection:
    """The tool acts, and what it answers never arrives whole."""
    name = subject.tool.name

    async def happen(attempt: Attempt) -> Ended:
        result = await attempt.call_next(attempt.call)
        if result.outcome not in ANSWERED:
            return Ended(result, happened=False)
        if attempt.repeatable:
            lost = Result.failed(Outcome.TRANSPORT_ERROR, f"`{name}`: {what}", code=called, retryable=True)
        else:
            message = f"`{name}`: {what}; the call was sent, so it may have acted"
            lost = Result.failed(
                Outcome.UNKNOWN_OUTCOME, message, code=called, details={"may_have_acted": True}
            )
        return Ended(lost)

    return _injection(subject, happen)


def _duplicate(subject: Subject) -> Injection:
    async def happen(attempt: Attempt) -> Ended:
        first = await attempt.call_next(attempt.call)
        if first.outcome not in ANSWERED:
            return Ended(first, happened=False)
        second = await attempt.call_next(attempt.call)
        # What is wrong with a mock is told wherever it shows.
        told = second if second.outcome is Outcome.INTERNAL else first
        return Ended(told, facts={"second": second.outcome.value})

    return _injection(subject, happen)


def _not_json(subject: Subject) -> Injection:
    message = f"the answer of `{subject.tool.name}` is no JSON: it ends in the middle of a text"

    async def happen(attempt: Attempt) -> Ended:
        result = await attempt.call_next(attempt.call)
        if result.outcome not in ANSWERED:
            return Ended(result, happened=False)
        return Ended(Result.failed(Outcome.INVALID_RESULT, message, code="not_json"))

    return _injection(subject, happen)


def _spoiled(subject: Subject, spoiling: Spoiling, names: frozenset[str] = frozenset()) -> Injection:
    """The tool acts, and a good answer is made another one; a failure is passed on as it is."""

    async def happen(attempt: Attempt) -> Ended:
        spoil: Spoil = spoiling(attempt.scope)  # an expression that fails fails before the tool acts
        result = await attempt.call_next(attempt.call)
        if result.outcome is not Outcome.OK:
            return Ended(result, happened=False)
        spoiled, facts = spoil(result, attempt.call, attempt.number)
        if spoiled is None:
            return Ended(result, happened=False)
        return Ended(spoiled, facts=facts)

    return _injection(subject, happen, names)


def _violating(subject: Subject) -> Injection:
    tool, key, pointer = subject.tool, subject.key, subject.pointer
    spoil = compile_violation(str(subject.options), pointer, tool, key, subject.problems)
    return _spoiled(subject, lambda _scope: spoil)


def _planted(subject: Subject) -> Injection:
    spoiling, names = compile_text(
        subject.options, subject.pointer, subject.tool, subject.names, subject.problems
    )
    return _spoiled(subject, spoiling, names)


def _stale(subject: Subject) -> Injection:
    async def happen(attempt: Attempt) -> Ended:
        result = attempt.earlier(attempt.call)
        if result is None:
            return Ended(await attempt.call_next(attempt.call), happened=False)
        return Ended(result)

    injection = _injection(subject, happen)
    return injection._replace(ready=lambda call, earlier: earlier(call) is not None)


def _error(subject: Subject) -> Injection:
    failing = compile_error(subject.options, subject.pointer, subject.names, subject.problems)

    async def happen(attempt: Attempt) -> Ended:
        return Ended(failing.answer(attempt.scope))

    return _injection(subject, happen, failing.names)


def _rate_limit(subject: Subject) -> Injection:
    limit, per = subject.options["limit"], parse_duration(subject.options["per"])
    if not per:
        message = "`per` is no time at all, so any number of calls would be within the limit"
        hint = "write the time in which so many calls may arrive, such as `1m`"
        subject.problems.append(
            Problem(code="out_of_range", message=message, pointer=f"{subject.pointer}/per", hint=hint)
        )
    slot = f"fault window {subject.key}"

    def wait(call: Call) -> float:
        session = call.context.session
        return session.slot(slot, lambda: Window(limit, per)).wait(session.clock.monotonic())

    def passed(call: Call) -> None:
        session = call.context.session
        session.slot(slot, lambda: Window(limit, per)).note(session.clock.monotonic())

    async def happen(attempt: Attempt) -> Ended:
        seconds = wait(attempt.call)
        if seconds:
            return Ended(refused(attempt.call.tool, limit, subject.options["per"], seconds))
        passed(attempt.call)
        return Ended(await attempt.call_next(attempt.call), happened=False)

    injection = _injection(subject, happen)
    return injection._replace(ready=lambda call, _earlier: wait(call) > 0, passed=passed)


def _slow(subject: Subject) -> Injection:
    latency = compile_latency(
        subject.options, subject.pointer, subject.problems, purpose=f"fault {subject.key}"
    )

    async def happen(attempt: Attempt) -> Ended:
        if latency is not None:
            await _sleep(attempt, latency(attempt.call, attempt.number), subject.kind)
        return Ended(await attempt.call_next(attempt.call))

    return _injection(subject, happen)


_COMPILERS: dict[str, Callable[[Subject], Injection]] = {
    "timeout": lambda subject: _waiting(subject, ends=True),
    "hang": lambda subject: _waiting(subject, ends=False),
    "disconnect": _disconnect,
    "lost_ack": lambda subject: _lost(subject, "reply_lost", "the reply was lost"),
    "duplicate_delivery": _duplicate,
    "not_json": _not_json,
    "truncated": lambda subject: _lost(subject, "truncated", "the reply broke off in the middle"),
    "empty": lambda subject: _spoiled(subject, lambda _scope: emptied),
    "violate_schema": _violating,
    "stale": _stale,
    "inject_text": _planted,
    "error": _error,
    "rate_limit": _rate_limit,
    "slow": _slow,
}
