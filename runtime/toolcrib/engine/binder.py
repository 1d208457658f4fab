"""Bind tools: build the binding of a mode and the layers around it from a descriptor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from toolcrib.core.clock import format_duration
from toolcrib.core.errors import DocumentError, NotReady
from toolcrib.core.limit_reports import limit_details
from toolcrib.core.model import NO_ESTIMATE, Descriptor, Outcome
from toolcrib.core.protocols import BoundTool, Clock, Executor, Middleware
from toolcrib.engine.middleware import build_chain
from toolcrib.engine.middleware.events import Observers
from toolcrib.engine.middleware.layer import (
    Approve,
    LayerContext,
    SharedState,
    effective_timeout,
    reaches_out,
)
from toolcrib.engine.session import BoundChain, Unavailable
from toolcrib.engine.telemetry import NO_TELEMETRY, Telemetry
from toolcrib.executors import Executors

if TYPE_CHECKING:
    import logging

    from toolcrib.engine.access_control import ToolGate
    from toolcrib.engine.call_journal import Journal
    from toolcrib.engine.statistics import ToolObservations
    from toolcrib.loading.budgets import Budget
    from toolcrib.loading.limit_rules import LimitRule
    from toolcrib.registry.catalog import HiddenReason
    from toolcrib.security.access import AccessViolation
    from toolcrib.security.redaction import Redactor


class Binder:
    """Binds the tools of one runtime.

    Args:
        executors: The modes.
        middleware: Layers around every call, outermost first.
        observers: Receive the events of every call.
        equip: Gives an executor the parts of the runtime that it needs, before it binds.
        unmet: Returns which requirement of a tool is not met in this environment; empty if none is missing.
        gate: Compiles the access rules about a tool; None if there are none.
        record: Records a call that access refused.
        approve: Asks a person about a call; None if nobody can be asked.
        check: Raises Untrusted if the needs of a tool are not trusted. Called for every tool that is not
            contained.
        approve: Holds a call that needs approval.
        budgets: Returns the budgets that count a tool.
        limit_rules: Returns the rules of `limits.rules` that may limit calls of a tool.
        telemetry: Returns what is recorded of calls.
        secrets: Returns the secrets that were looked up so far; None if there are none.
        journal: Returns the journal of the runtime; None if there is none.

    Attributes:
        keyed: Whether chains look for idempotency keys.
    """

    def __init__(
        self,
        executors: Executors,
        middleware: Sequence[Middleware],
        observers: Observers,
        *,
        equip: Callable[[Executor], None],
        check: Callable[[Descriptor], None],
        unmet: Callable[[Descriptor], str],
        gate: Callable[[Descriptor], ToolGate | None],
        record: Callable[[AccessViolation], None],
        approve: Approve | None = None,
        budgets: Callable[[Descriptor], Sequence[Budget]] = lambda _tool: (),
        limit_rules: Callable[[Descriptor], Sequence[LimitRule]] = lambda _tool: (),
        telemetry: Callable[[], Telemetry] = lambda: NO_TELEMETRY,
        secrets: Callable[[], Redactor | None] = lambda: None,
        journal: Callable[[], Journal | None] = lambda: None,
    ) -> None:
        self.keyed = False
        self._executors = executors
        self._middleware = middleware
        self._observers = observers
        self._equip = equip
        self._check = check
        self._unmet = unmet
        self._gate = gate
        self._record = record
        self._approve = approve
        self._budgets = budgets
        self._limit_rules = limit_rules
        self._telemetry = telemetry
        self._secrets = secrets
        self._journal = journal
        self._shared = SharedState()

    def observations_of(self, tool: str, clock: Clock) -> ToolObservations:
        """What was observed in the calls of a tool on a clock."""
        from toolcrib.engine.statistics import observations_of  # noqa: PLC0415 -- few programs ask for estimates

        return observations_of(self._shared, tool, clock)

    def forget_observations(self) -> None:
        """Forget what was observed in the calls of all tools."""
        from toolcrib.engine.statistics import OBSERVATIONS  # noqa: PLC0415 -- as above

        self._shared.forget(OBSERVATIONS)

    def chain(self, tool: Descriptor) -> BoundChain:
        """Build the chain of a tool; if the tool cannot be bound, every call fails with the reason."""
        reason = self.missing(tool)
        executor = self._executors.get(tool.mode) if tool.mode is not None and not reason else None
        if executor is None:
            return self.unable(tool, Unavailable(reason))
        reason = self._unmet(tool)
        if reason:
            # Not lasting: what is missing may be there at the next call.
            return self.unable(tool, Unavailable(reason, code="unmet_requirement"), lasting=False)
        try:
            # Before `equip` and `bind`: an untrusted tool must not reach third-party code or secrets.
            if not self._executors.is_contained(tool.mode or ""):
                self._check(tool)
            self._equip(executor)
            bound = executor.bind(tool)
            tool = getattr(bound, "tool", tool)
            if tool.faults:
                bound = _faulted(tool, bound)
            refused = over_estimate(tool, bound)
            if refused is not None:
                return self.unable(tool, refused)
        except NotReady as error:
            # Not lasting: the secret or server may be there at the next call.
            outcome = Outcome.DENIED if error.denied else Outcome.UNAVAILABLE
            return self.unable(tool, Unavailable(str(error), code=error.code, outcome=outcome), lasting=False)
        except DocumentError as error:
            return self.unable(tool, _not_bound(tool, str(error)))
        except Exception as error:  # noqa: BLE001 -- a mode may be third-party code
            # Only the type is shown: the text of the exception may contain secrets.
            _log().error("a bug in mode `%s` while binding `%s`", tool.mode, tool.name, exc_info=error)
            return self.unable(
                tool, _not_bound(tool, f"{type(error).__name__}; the traceback is in the `toolcrib` log")
            )
        return self._bound(tool, bound)

    def denied(self, tool: Descriptor) -> BoundChain:
        """Build the chain of a tool that access denies a caller: it refuses calls without binding the tool."""
        bound = Unavailable(f"`{tool.name}` is denied", outcome=Outcome.DENIED)
        # Not lasting: other callers may call it.
        return self._bound(tool, bound)._replace(lasting=False)

    def _bound(self, tool: Descriptor, bound: BoundTool) -> BoundChain:
        context, rules = self._context(tool, bound), self._limit_rules(tool)
        if rules:
            context = context._replace(
                limit_rules=[rule for rule in rules if not rule.is_personal],
                limits_of_callers=frozenset(key for rule in rules if rule.is_personal for key in rule.limits),
            )
        chain = BoundChain(tool, bound, *build_chain(context), access=context.access, context=context)
        if len(context.limit_rules) == len(rules):
            return chain
        from toolcrib.engine.caller_limits import CallerChains  # noqa: PLC0415 -- few rules name callers

        return CallerChains(chain, context, rules, self.unable).chain

    def in_mode(self, tool: Descriptor, mode: str) -> BoundTool:
        """Bind a tool in another of its modes, without layers; an `Unavailable` if that is not possible."""
        # Without faults: those of a scenario apply to the call as a whole, not to the inner binding.
        return self.chain(tool._replace(mode=mode, faults=())).bound

    def _context(self, tool: Descriptor, bound: BoundTool) -> LayerContext:
        return LayerContext(
            tool,
            bound,
            self._shared,
            self._middleware,
            self._observers,
            self._gate(tool),
            self._record,
            self._approve,
            budgets=self._budgets(tool),
            telemetry=self._telemetry(),
            secrets=self._secrets,
            journal=self._journal_of(tool, bound),
            keyed=self.keyed,
        )

    def _journal_of(self, tool: Descriptor, bound: BoundTool) -> Journal | None:
        """The journal that records the calls of a tool: those that leave the process, or all if it records mocks, too."""
        if isinstance(bound, Unavailable):
            return None
        journal = self._journal()
        outside = not self._executors.is_contained(tool.mode or "") or reaches_out(bound)
        return journal if journal is not None and (outside or journal.mocks) else None

    def of_hidden(self, tool: Descriptor, hidden: HiddenReason) -> BoundChain:
        """Build the chain of a tool that is not offered: every call fails with the reason."""
        return self.unable(tool, Unavailable(hidden.message, code=hidden.code, place=hidden.place))

    def unable(self, tool: Descriptor, bound: Unavailable, *, lasting: bool = True) -> BoundChain:
        """Build the chain of a tool that cannot run, with only the outer layers, which observe calls."""
        chain = build_chain(self._context(tool, bound), outer=True)
        return BoundChain(tool, bound, *chain, lasting=lasting)

    def missing(self, tool: Descriptor) -> str:
        """Why a tool cannot be bound in its mode, and how to fix it; empty if it can."""
        if tool.mode is None:
            blocks = " or ".join(f"`{mode}:`" for mode in self._executors.modes)
            return f"`{tool.name}` is unbound: add a {blocks} block to {tool.origin.place()}"
        if tool.mode not in tool.bindings:
            there = ", ".join(f"`{mode}`" for mode in tool.bindings) or "none"
            return (
                f"`{tool.name}` has no `{tool.mode}:` block ({tool.origin.place()}); its modes are: {there}"
            )
        missing = self._executors.missing(tool.mode)
        return f"mode `{tool.mode}` of `{tool.name}` {missing}" if missing else ""


def over_estimate(
    tool: Descriptor, bound: BoundTool | None = None, rules: Sequence[LimitRule] = ()
) -> Unavailable | None:
    """What refuses the calls of a tool whose declared estimate exceeds one of its limits; None for another tool.

    Args:
        tool: The tool.
        bound: Its binding, which may have a timeout of its own.
        rules: The rules that limit its calls.
    """
    if tool.estimate == NO_ESTIMATE:
        return None
    from toolcrib.loading.tool_requirements import (  # noqa: PLC0415 -- few tools declare an estimate
        over_output_size,
        over_timeout,
    )

    timeout = effective_timeout(tool, bound, rules)
    fault = over_timeout(tool, timeout)
    limit: str | int = format_duration(timeout)
    name, estimate = "timeout", tool.estimate.duration
    if fault is None:
        fault = over_output_size(tool)
        name, limit, estimate = "output_size", tool.limits.output_size, tool.estimate.output
    if fault is None:
        return None
    return Unavailable(
        "; ".join(fault),
        code="estimate_exceeds_limit",
        outcome=Outcome.LIMIT_EXCEEDED,
        details={**limit_details(tool, name, limit, estimate), "source": "declared"},
    )


def _faulted(tool: Descriptor, bound: BoundTool) -> BoundTool:
    from toolcrib.engine.middleware.faults import with_faults  # noqa: PLC0415 -- only scenarios inject faults

    return with_faults(tool, bound)


def _not_bound(tool: Descriptor, why: str) -> Unavailable:
    return Unavailable(f"cannot bind `{tool.name}` in mode `{tool.mode}`: {why}", code="not_bound")


def _log() -> logging.Logger:
    import logging  # noqa: PLC0415 -- not needed unless there is something to log

    return logging.getLogger("toolcrib")
