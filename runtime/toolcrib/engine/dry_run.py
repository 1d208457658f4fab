"""Dry runs: what a call would do, every reason why it would fail, and what should be known before it is made."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from toolcrib.core.clock import format_duration
from toolcrib.core.limit_reports import place_of_limit
from toolcrib.core.model import JSON, Call, Result
from toolcrib.core.text import format_size
from toolcrib.engine.access_control import ToolGate, principal_of
from toolcrib.engine.middleware import circuit_breaker
from toolcrib.engine.middleware.access import blocking_decision, explain
from toolcrib.engine.middleware.arguments import DEPTH, ArgumentCheck
from toolcrib.engine.middleware.budget import judged_budgets
from toolcrib.engine.middleware.estimate import refused_by_estimate
from toolcrib.engine.middleware.layer import LayerContext, has_own_limits, is_limited, off_loop
from toolcrib.engine.middleware.limits import LimiterUse, limiters_of, refused_now
from toolcrib.engine.session import BoundChain, Unavailable
from toolcrib.engine.statistics import CallEstimate, Statistics, estimate_of, observations_of
from toolcrib.schema.validation.json_values import is_large
from toolcrib.security.redaction import redact

_OF_CALLS: Final = (
    "output_size",
    "output_items",
    "memory",
    "cpu_time",
    "open_files",
    "written_bytes",
    "processes",
)
"""Limits of a single call that are only measured when it is made."""

_NEAR: Final = 0.8
"""Share of a limit from which on an estimate is reported as close to it."""


async def dry_run(chain: BoundChain, call: Call, statistics: Statistics) -> Result:
    """Explain a call instead of making it; see `Session.dry_run`.

    Args:
        chain: The chain of its tool.
        call: The call.
        statistics: The calls that have ended.
    """
    if chain.chain_of is not None:
        chain = chain.chain_of(call.context)
        call = call._replace(tool=chain.tool)
    report = _Report(chain, call)
    plan = await report.checked(statistics)
    # The key exists also if it is empty: programs look at it.
    meta: dict[str, JSON] = {
        "errors": [_error(each) for each in report.errors],
        "warnings": [*report.warnings],
        **report.meta,
    }
    if report.errors:
        first = report.errors[0]
        return first._replace(meta={**first.meta, **meta})
    shown = redact(report.call.arguments, call.tool.input_schema)
    value: dict[str, JSON] = {"tool": call.tool.name, "mode": call.tool.mode, "arguments": shown}
    if "access" in report.meta:
        value["access"] = report.meta["access"]
    return Result.success({**value, "plan": plan, "repairs": report.repairs}, meta=meta)


def _error(result: Result) -> JSON:
    error = result.error
    assert error is not None  # noqa: S101 -- only failures are collected
    return {"outcome": result.outcome.value, **error.as_json()}


class _Report:
    """What is known about a call before it is made.

    Attributes:
        call: The call, with defaults and repairs once its arguments were checked.
        repairs: The repairs.
        errors: The results with which the call would end, the one that it would end with first.
        warnings: What else should be known.
        meta: What access, limits and budgets decide, and the estimate.
    """

    def __init__(self, chain: BoundChain, call: Call) -> None:
        self.call = call
        self.repairs: list[JSON] = []
        self.errors: list[Result] = []
        self.warnings: list[str] = []
        self.meta: dict[str, JSON] = {}
        self._chain = chain

    async def checked(self, statistics: Statistics) -> JSON:
        """Check everything, in the order of the layers; returns the plan of the mode."""
        chain, context = self._chain, self._chain.context
        bound = chain.bound
        self.warnings += _warnings_of_tool(self.call)
        # Such a tool has only the layers that observe calls, unless access has to decide as well.
        if isinstance(bound, Unavailable) and chain.access is None:
            self.errors.append(await bound.execute(self.call))
        valid = await self._check_arguments()
        if chain.access is not None:
            self._check_access(chain.access, valid=valid)
            if isinstance(bound, Unavailable):
                return None
        if context is None or isinstance(bound, Unavailable):
            return None
        self._check_estimate(context, statistics)
        self._check_limits(context)
        if valid:
            self._check_budgets(context)
            plan = bound.explain(self.call)
            if not isinstance(plan, Result):
                return plan
            self.errors.append(plan)
        return None

    async def _check_arguments(self) -> bool:
        check = partial(ArgumentCheck(self.call.tool, self._chain.bound).repaired, self.call)
        checked = await off_loop(self.call, check) if is_large(self.call.arguments, DEPTH) else check()
        if isinstance(checked, Result):
            self.errors.append(checked)
            return False
        self.call, self.repairs = checked
        return True

    def _check_access(self, gate: ToolGate, *, valid: bool) -> None:
        # Without valid arguments, only what holds for all arguments is known.
        decision = gate.decide(self.call) if valid else gate.decide_for(principal_of(self.call.context))
        if decision is None:
            return
        self.meta["access"] = decision.as_json()
        refused = None if decision.effect == "allow" else explain(self.call, decision, gate)
        if refused is not None:
            self.errors.append(refused)
        elif blocking_decision(decision, gate) is not decision and decision.effect != "allow":
            self.warnings.append(f"access only records it (audit): {decision}")

    def _check_estimate(self, context: LayerContext, statistics: Statistics) -> None:
        tool, clock = context.tool, self.call.context.session.clock
        seen = observations_of(context.shared, tool.name, clock)
        expected = estimate_of(tool, statistics, seen)
        timeout = context.timeout
        self.meta["estimate"] = expected.as_json()
        if context.bound.waits:
            refused = refused_by_estimate(context, seen, timeout)
            if refused is not None:
                self.errors.append(refused)
            else:
                self.warnings += _close_to(expected, timeout, tool.limits.output_size)

    def _check_limits(self, context: LayerContext) -> None:
        call, clock = self.call, self.call.context.session.clock
        now = clock.monotonic()
        timeout = context.timeout
        listed: list[JSON] = [*_limits_of_calls(call, timeout)]
        if is_limited(context):
            uses = limiters_of(context)(call)
            listed += [each for use in uses for each in use.state(now)]
            refused = refused_now(call.with_deadline(now + timeout), uses, now)
            if refused is not None:
                self.errors.append(refused)
            else:
                self.warnings += _waits(uses, now)
        self.meta["limits"] = listed
        if has_own_limits(context):
            refused = circuit_breaker.refused_now(context, call)
            if refused is not None:
                self.errors.append(refused)

    def _check_budgets(self, context: LayerContext) -> None:
        decisions: list[JSON] = []
        for decision, refused in judged_budgets(context, self.call):
            decisions.append(decision)
            if refused is not None:
                self.errors.append(refused)
        if decisions:
            self.meta["budgets"] = decisions


def _warnings_of_tool(call: Call) -> Iterator[str]:
    tool = call.tool
    if tool.deprecated:
        use = f": {tool.deprecated}" if isinstance(tool.deprecated, str) else ""
        yield f"`{tool.name}` is deprecated{use}"
    if tool.experimental:
        yield f"`{tool.name}` is experimental and may change"
    if tool.origin.stale:
        yield f"{tool.origin.place()} has errors, so its last valid version is called: {tool.origin.stale}"


def _close_to(expected: CallEstimate, timeout: float, most: int) -> Iterator[str]:
    duration, output = expected.duration, expected.output
    if duration.value is not None and duration.value >= _NEAR * timeout:
        took = format_duration(round(duration.value, 3))
        yield f"a call takes about {took} ({duration.source}), and its timeout is {format_duration(timeout)}"
    if output.value is not None and output.value >= _NEAR * most:
        size = f"{int(output.value):,} bytes"
        yield f"a result has about {size} ({output.source}), and `limits.output_size` is {format_size(most)}"


def _limits_of_calls(call: Call, timeout: float) -> Iterator[dict[str, JSON]]:
    tool, limits = call.tool, call.tool.limits
    values: dict[str, Any] = {"timeout": format_duration(timeout), "input_size": limits.input_size}
    values |= {name: getattr(limits, name) for name in _OF_CALLS}
    for name, value in values.items():
        if value is not None:
            place = place_of_limit(tool, name)
            yield {"limit": name, "value": value, **({"at": place} if place else {})}


def _waits(uses: list[LimiterUse], now: float) -> Iterator[str]:
    for use in uses:
        delay = use.limiter.delay(use.bounds.rate, now, use.limiter.waiting)
        if delay:
            yield f"the call would wait {format_duration(round(delay, 3))} for the rate limit of {use.phrase}"
        elif not use.limiter.is_open(use.bounds, now):
            running = use.limiter.inside
            yield f"the call would wait for one of {running} running calls of {use.phrase}"
