"""Layer `faults`: injects the faults that a scenario configures. It is the innermost layer, in every mode."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import deepcopy
from typing import Any, NamedTuple

from toolcrib.core.call_progress import progress_of, record_progress
from toolcrib.core.errors import DocumentError, ExpressionError, Problem
from toolcrib.core.model import JSON, Call, Descriptor, InjectedFault, Outcome, Result
from toolcrib.core.protocols import BoundTool, CallNext
from toolcrib.core.text import canonical
from toolcrib.engine.middleware.layer import LayerContext
from toolcrib.expressions.compiler import key_of_hidden_name
from toolcrib.simulation.fault_history import (
    READY,
    FaultAttempt,
    FaultRecord,
    fired,
    record_of,
    records_of,
    why_not_due,
)
from toolcrib.simulation.fault_triggers import (
    Condition,
    Trigger,
    compile_fault_scope,
    compile_trigger,
    fault_variables,
)
from toolcrib.simulation.faults import Attempt, Injection, compile_injection
from toolcrib.simulation.store import call_counter_of, rows_by_collection, state_by_machine, store_of

__all__ = ["FailingTool", "fired", "layer", "why_not_due", "with_faults"]


class CompiledFault(NamedTuple):
    """A fault, compiled for one tool.

    Attributes:
        fault: The fault as written.
        trigger: When it is due.
        injection: What it does.
    """

    fault: InjectedFault
    trigger: Trigger
    injection: Injection


class FailingTool:
    """A bound tool with injected faults. It counts as reaching out and as waiting, whatever its mode.

    Attributes:
        waits: True.
        origin: Origin that its calls share with those of other tools.
        repeatable: Whether a failed attempt may be repeated without a second effect.
        timeout: Timeout of a call in seconds; None for that of the descriptor.
        faults: The faults; the first one that is due happens.
    """

    waits = True

    def __init__(self, tool: Descriptor, bound: BoundTool, faults: tuple[CompiledFault, ...]) -> None:
        said = tool.annotations.idempotent or tool.annotations.read_only
        self.origin: str = getattr(bound, "origin", f"{tool.mode}:{tool.name}")
        self.repeatable: bool = getattr(bound, "repeatable", said)
        self.timeout: float | None = getattr(bound, "timeout", None)
        self.faults = faults
        self.execute = bound.execute
        self._bound = bound
        self._answer_before: Callable[[Call], Result] | None = None
        # The answer of a mock that does not read the store cannot depend on an earlier version of the store.
        if getattr(bound, "keeps", False):
            self._answer_before = getattr(bound, "answer_before", None)
        read = (part.names for entry in faults for part in (entry.trigger, entry.injection))
        self._scope = compile_fault_scope(frozenset[str]().union(*read), _kept)

    def explain(self, call: Call) -> JSON | Result:
        """Explain the call, and for each fault whether it is due and why not."""
        plan = self._bound.explain(call)
        if isinstance(plan, Result) or not isinstance(plan, dict):
            return plan
        number = call_counter_of(call.context.session, call.tool.name).calls + 1
        told: list[JSON] = [self._explained(entry, call, number) for entry in self.faults]
        return {**plan, "faults": told}

    def _explained(self, entry: CompiledFault, call: Call, number: int) -> JSON:
        known = records_of(call.context.session).get(entry.fault.name)
        record = FaultRecord(entry.trigger) if known is None else known
        try:
            why: list[JSON] = [*record.why_not_now(self.unmet(entry, call, number), number)]
        except ExpressionError as error:
            why = [f"cannot evaluate the fault: {error.message}"]
        return {"name": entry.fault.name, "kind": entry.injection.kind, "due": not why, "because": why}

    def unmet(self, entry: CompiledFault, call: Call, number: int) -> list[Condition]:
        """Return the conditions of a fault that an attempt does not meet.

        Raises:
            ExpressionError: An expression of the fault failed.
        """
        unmet = entry.trigger.unmet(call, number, self._scope(call, number))
        return unmet if entry.injection.ready(call, self._earlier) else [*unmet, READY]

    def attempt(self, call: Call, call_next: CallNext, number: int) -> Attempt:
        """Build the attempt that a fault is applied to."""
        scope = self._scope(call, number)
        return Attempt(call, call_next, scope, number, self.repeatable, self._earlier)

    def _earlier(self, call: Call) -> Result | None:
        """The answer before the last change of the store, or an earlier answer to equal arguments."""
        session, fixture = call.context.session, call.tool.fixture
        if self._answer_before is not None and (fixture.collections or fixture.machines):
            return None if store_of(session).before(fixture) is None else self._answer_before(call)
        known = session.slot(_memory(call), dict[str, Result]).get(canonical(call.arguments))
        return None if known is None else _copied(known)


def with_faults(tool: Descriptor, bound: BoundTool) -> FailingTool:
    """Compile the faults of a descriptor and wrap its bound tool.

    Raises:
        DocumentError: A fault has an error. Loading reports these earlier.
    """
    problems: list[Problem] = []
    names = fault_variables(tool)
    compiled = tuple(
        CompiledFault(
            fault,
            compile_trigger(fault.when, f"{fault.pointer}/when", names, problems, key=fault.name, tool=tool),
            compile_injection(fault.inject, f"{fault.pointer}/inject", tool, names, problems, key=fault.name),
        )
        for fault in tool.faults
    )
    if any(problem.severity == "error" for problem in problems):
        raise DocumentError(problems)
    return FailingTool(tool, bound, compiled)


def layer(context: LayerContext, call_next: CallNext) -> CallNext | None:
    """Build the layer of a tool; None if it has no faults."""
    bound = context.bound
    if not isinstance(bound, FailingTool) or not bound.faults:
        return None
    around = _Layer(bound)

    async def faults(call: Call) -> Result:
        return await around.pass_through(call, call_next)

    return faults


class _DueFaults(NamedTuple):
    """The faults of an attempt.

    Attributes:
        due: The faults that are due, with their records in the session.
        limits: Injections that count the attempts that they let pass.
        broken: The first fault that could not be evaluated, and the error.
    """

    due: list[tuple[CompiledFault, FaultRecord]]
    limits: list[Injection]
    broken: tuple[InjectedFault, ExpressionError] | None = None


class _Layer:
    """The faults of one tool."""

    def __init__(self, bound: FailingTool) -> None:
        self._bound = bound
        self._faults = bound.faults
        self._remembers = any(entry.injection.kind == "stale" for entry in bound.faults)

    async def pass_through(self, call: Call, call_next: CallNext) -> Result:
        """Make one attempt, and apply the first fault that is due, if any."""
        number = call_counter_of(call.context.session, call.tool.name).of(call)
        if self._remembers:
            call_next = self._remembering(call_next)
        due, limits, broken = self._judged(call, number)
        if broken is not None:
            fault, error = broken
            seen = FaultAttempt(
                call.tool.name, number, call.attempt, f"`{fault.name}` could not be evaluated"
            )
            for _entry, record in due:
                record.misses(seen)
            return _broken(call, fault, error)
        if not due or not due[0][0].injection.blocks:
            for injection in limits:
                injection.passed(call)
        return await self._happening(call, call_next, number, due) if due else await call_next(call)

    def _judged(self, call: Call, number: int) -> _DueFaults:
        """Evaluate every fault, so that each one can report later why it did not happen."""
        session = call.context.session
        elapsed = session.clock.monotonic() - session.began
        judged = _DueFaults([], [])
        for entry in self._faults:
            record = record_of(session, entry.fault.name, entry.trigger)
            try:
                unmet = self._bound.unmet(entry, call, number)
            except ExpressionError as error:
                record.misses(FaultAttempt(call.tool.name, number, call.attempt, error.message, due=False))
                if judged.broken is None:
                    judged = judged._replace(broken=(entry.fault, error))
                continue
            if record.arrived(number, call.attempt, unmet, elapsed):
                judged.due.append((entry, record))
            if all(condition is READY for condition in unmet):
                judged.limits.append(entry.injection)
        return judged

    async def _happening(
        self, call: Call, call_next: CallNext, number: int, due: list[tuple[CompiledFault, FaultRecord]]
    ) -> Result:
        (entry, record), *others = due
        fault, injection = entry.fault, entry.injection
        seen = FaultAttempt(call.tool.name, number, call.attempt)
        for _entry, other in others:
            other.misses(seen._replace(instead=f"`{fault.name}` came first"))
        also: list[JSON] = [other.fault.name for other, _record in others]
        told: dict[str, JSON] = {"name": fault.name, "kind": injection.kind, "also_due": also}
        # Recorded before the attempt: a cancelled call would otherwise leave no trace of the fault.
        if injection.certain:
            record.happens(seen)
        try:
            ended = await injection.happen(self._bound.attempt(call, call_next, number))
        except asyncio.CancelledError:
            given = progress_of(call.id)
            if not injection.certain:
                record.misses(seen._replace(instead="the call was cancelled before the tool answered"))
            elif not given.reached:
                record_progress(call.id, attempts=given.attempts, reached=False, meta={"fault": told})
            raise
        except ExpressionError as error:
            record.misses(seen._replace(instead=f"it failed: {error.message}"))
            return _broken(call, fault, error)
        if not ended.happened:
            why = f"the tool itself ended with `{ended.result.outcome}`, so there is no answer to alter"
            record.misses(seen._replace(instead=why))
            return ended.result
        if not injection.certain:
            record.happens(seen)
        return ended.result.with_meta(fault={**told, **ended.facts})

    def _remembering(self, call_next: CallNext) -> CallNext:
        """Keep the answers of the tool, for a `stale` fault of a later attempt."""

        async def remembered(call: Call) -> Result:
            result = await call_next(call)
            if result.outcome is Outcome.OK:
                answers = call.context.session.slot(_memory(call), dict[str, Result])
                answers[canonical(call.arguments)] = _copied(result)
            return result

        return remembered


def _copied(result: Result) -> Result:
    """Copy the value of a result, because callers may modify the value that they get."""
    return result._replace(value=deepcopy(result.value))


def _memory(call: Call) -> str:
    return f"answers of {call.tool.name}"


def _kept(call: Call, name: str) -> JSON:
    """The state of the session's mocks, as expressions read it."""
    store = store_of(call.context.session)
    fixture, collection = call.tool.fixture, key_of_hidden_name("store", name)
    read: Any
    if collection:
        read = store.held(fixture.collections[collection])
    else:
        read = (
            rows_by_collection(fixture, store.version)
            if name == "store"
            else state_by_machine(fixture, store.version)
        )
    kept: JSON = read
    return kept


def _broken(call: Call, fault: InjectedFault, error: ExpressionError) -> Result:
    # An error in the fault itself must not look like an answer of the tool, which a model would act on.
    place = fault.origin.place(error.pointer or fault.pointer)
    return Result.failure(
        Outcome.INTERNAL,
        f"the fault `{fault.name}` of `{call.tool.name}` failed at {place}: {error.message}",
        code="fault_failed",
        details={"at": place, "hint": error.hint, "cause": error.code},
    )
