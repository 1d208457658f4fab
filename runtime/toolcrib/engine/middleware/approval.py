"""Layer `approval`: asks a person to let a call exceed a budget (`on_reach: ask`)."""

from __future__ import annotations

from toolcrib.core.model import Call, Outcome, Result, as_result
from toolcrib.core.protocols import CallNext
from toolcrib.engine.middleware.layer import LayerContext
from toolcrib.loading.budgets import REACHED, budget_permission, reached_decision


def layer(context: LayerContext, call_next: CallNext) -> CallNext | None:
    """Build the layer of a tool; None if nobody can approve."""
    approve = context.approve
    if approve is None:
        return None
    budgets = {budget.name: budget for budget in context.budgets}

    async def approval(call: Call) -> Result:
        result = await call_next(call)
        error = result.error
        if result.outcome is not Outcome.NEEDS_APPROVAL or error is None or error.code != REACHED:
            return result
        budget = budgets[str(error.details["budget"])]

        async def beyond(approved: Call) -> Result:
            given = approved.context.grants | budget_permission(budget.name)
            # The same layer again: the call may exceed another budget, too.
            return await approval(approved._replace(context=approved.context._replace(grants=given)))

        return as_result(await approve(call, reached_decision(budget, str(error.details["reason"])), beyond))

    return approval
