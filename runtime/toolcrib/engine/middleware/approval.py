"""Layer `approval`: asks a person to let a call exceed a budget (`on_reach: ask`), or to let a program continue.

A program of PromptKit may answer that a call is `pending`. Once a person has approved the call, the program is asked
again, and told so.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolcrib.core.model import JSON, Call, Outcome, Result, as_result
from toolcrib.core.protocols import CallNext
from toolcrib.engine.middleware.layer import LayerContext
from toolcrib.loading.budgets import REACHED, budget_permission, reached_decision
from toolcrib.security.access import AccessDecision
from toolcrib.security.approvals import PENDING, approval_permission


def layer(context: LayerContext, call_next: CallNext) -> CallNext | None:
    """Build the layer of a tool; None if nobody can approve."""
    approve = context.approve
    if approve is None:
        return None
    budgets = {budget.name: budget for budget in context.budgets}
    permission = approval_permission(context.tool.name)

    async def approval(call: Call) -> Result:
        result = await call_next(call)
        error = result.error
        if result.outcome is not Outcome.NEEDS_APPROVAL or error is None:
            return result
        if error.code == REACHED:
            budget = budgets[str(error.details["budget"])]
            decision = reached_decision(budget, str(error.details["reason"]))
            granted = budget_permission(budget.name)
        elif error.code == PENDING:
            if not permission.isdisjoint(call.context.grants):
                # Asking again would go on forever with a program that does not read `approved`.
                message = f"{result.message}; it was approved, and is still pending"
                told = Result.failure(Outcome.TOOL_ERROR, message, code=PENDING, details=error.details)
                return told._replace(usage=result.usage)
            decision = AccessDecision("ask", PENDING, "", "", _reason(error.details), "medium")
            granted = permission
        else:
            return result

        async def beyond(approved: Call) -> Result:
            given = approved.context.grants | granted
            # The same layer again: the call may exceed another budget, or be pending, too.
            return await approval(approved._replace(context=approved.context._replace(grants=given)))

        answer = as_result(await approve(call, decision, beyond))
        if answer.error is not None and answer.error.code == PENDING:
            details = {**error.details, **answer.error.details}
            answer = answer._replace(error=answer.error._replace(details=details))
        return answer

    return approval


def _reason(details: Mapping[str, JSON]) -> str:
    """Why a program asks, as it reported."""
    said = details.get(PENDING)
    told = (said.get("message") or said.get("reason")) if isinstance(said, dict) else None
    return told if isinstance(told, str) else ""
