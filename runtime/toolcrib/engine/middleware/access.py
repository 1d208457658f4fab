"""Layer `access`: allows, asks about or refuses each call, by its caller and its arguments."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TYPE_CHECKING

from toolcrib.core.model import Call, Outcome, Result
from toolcrib.core.text import canonical
from toolcrib.engine.middleware.call_failures import without_attempts
from toolcrib.engine.middleware.layer import Answer, LayerContext, Link, may_wait, never_waits, results_of
from toolcrib.security.access import AccessDecision, AccessViolation, report_refusal
from toolcrib.security.redaction import redact

if TYPE_CHECKING:
    from toolcrib.engine.access_control import ToolGate


def layer(context: LayerContext, call_next: Link) -> Link | None:
    """Build the layer of a tool; None if access decides nothing about it."""
    gate, record, approve = context.access, context.record, context.approve
    if gate is None:
        return None
    decide = gate.decide

    async def refused(call: Call, decision: AccessDecision) -> Answer:
        if decision.effect == "deny":
            record(violation_of(call, decision))
            return denied(call, decision)
        return needs_approval(call, decision)

    proceed = after_record = call_next
    if gate.reaches:
        proceed = _recorded(gate, record, call_next)
        # In audit mode, a call that was recorded is not recorded again: it would not have opened anything.
        after_record = _recorded(gate, lambda _violation: None, call_next)

    def access(call: Call) -> Answer | Awaitable[Answer]:
        decision = decide(call)
        if decision.effect == "allow":
            return proceed(call)
        blocking, rest = blocking_decision(decision, gate), proceed
        if blocking is not decision:
            record(violation_of(call, decision, audit=True))
            rest = after_record
            if blocking is None:
                return rest(call)
        if blocking.effect == "ask" and approve is not None:
            # The person's answer is awaited, and so is the rest of the chain then.
            return approve(call, blocking, results_of(rest))
        return refused(call, blocking)

    waits = gate.asks and approve is not None and may_wait(approve)
    return access if waits else never_waits(access)


def blocking_decision(decision: AccessDecision, gate: ToolGate) -> AccessDecision | None:
    """What keeps a call from running; None if it runs. In audit mode, only `requires_confirmation` does."""
    if decision.effect == "allow":
        return None
    return gate.confirmation if gate.audit else decision


def _recorded(gate: ToolGate, record: Callable[[AccessViolation], None], call_next: Link) -> Link:
    """Record calls that are refused when they open a connection or a file, whose arguments do not tell which one."""
    rest = results_of(call_next)

    async def recorded(call: Call) -> Answer:
        # Each one once: a call that is repeated, or reads several pages, opens the same host again.
        refusals: dict[tuple[str, str], None] = {}

        def report(key: str, message: str) -> None:
            refusals[key, message] = None

        # Not the token of `set`, which only its own context can reset: a call may continue in another task.
        outer = report_refusal.get()
        report_refusal.set(report)
        try:
            return await rest(call)
        finally:
            report_refusal.set(outer)
            for key, message in refusals:
                record(violation_of(call, gate.refused(key, message), audit=gate.audit))

    return recorded


def violation_of(call: Call, decision: AccessDecision, *, audit: bool = False) -> AccessViolation:
    """Build the record of a call that access refused, or would have refused."""
    context = call.context
    return AccessViolation(
        call.tool.name,
        decision,
        call.id,
        context.caller,
        context.user,
        context.session.id,
        context.correlation,
        arguments_digest(call),
        context.session.clock.now(),
        audit,
    )


def arguments_digest(call: Call) -> str:
    """SHA-256 of the arguments of a call in canonical JSON, in hex."""
    return sha256(canonical(call.arguments).encode("utf-8", "surrogatepass")).hexdigest()


def denied(call: Call, decision: AccessDecision) -> Result:
    """Build the result of a call that access refused."""
    message = f"a call of `{call.tool.name}` is {decision}"
    return without_attempts(
        Result.failure(Outcome.DENIED, message, code=decision.code, details=decision.as_json())
    )


def needs_approval(call: Call, decision: AccessDecision) -> Result:
    """Build the result of a call that a person must approve, if nobody can be asked."""
    shown = redact(call.arguments, call.tool.input_schema)
    details = {
        **decision.as_json(),
        "tool": call.tool.name,
        "arguments": shown,
        "arguments_sha256": arguments_digest(call),
    }
    message = f"a call of `{call.tool.name}` {decision}"
    return without_attempts(
        Result.failure(Outcome.NEEDS_APPROVAL, message, code=decision.code, details={"approval": details})
    )


def explain(call: Call, decision: AccessDecision, gate: ToolGate) -> Result | None:
    """Build the result that a call would have if access did not let it run; None if it runs."""
    blocking = blocking_decision(decision, gate)
    if blocking is None:
        return None
    return denied(call, blocking) if blocking.effect == "deny" else needs_approval(call, blocking)
