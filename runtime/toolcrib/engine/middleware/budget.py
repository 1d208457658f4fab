"""Layer `budget`: caps what the calls of some tools spend together.

The amount of a call is reserved before the call, so that two concurrent calls never both take the last of a budget.
Afterwards the reservation is settled with the actual amount, given back if the call did not act, and kept if that is
unknown. Amounts are exact decimals.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final

from toolcrib.core.call_progress import progress_of
from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON, NOTHING, Call, CallContext, Descriptor, Outcome, Result
from toolcrib.core.protocols import CallNext
from toolcrib.engine.access_control import is_of_caller
from toolcrib.engine.middleware.call_failures import attempts_of, without_attempts
from toolcrib.engine.middleware.layer import LayerContext, SharedState, never_waits
from toolcrib.engine.statistics import observations_of
from toolcrib.loading.budgets import DIGITS, PERSONAL, REACHED, Budget, budget_permission, parse_amount

# Enough digits for sums of all numbers that `parse_amount` accepts, so that no sum is ever rounded.
_EXACT: Final = Context(prec=4 * DIGITS, Emax=999_999, Emin=-999_999)


_LARGEST_COST: Final = Decimal(10) ** 30
"""Larger amounts are not observed, since the histogram of costs cannot hold them."""

_PLAIN: Final = 28
"""Digits before or after the point up to which messages write an amount without an exponent."""


class Reservation:
    """An amount that a call has reserved.

    Attributes:
        amount: The amount.
        at: Time of the reservation, in seconds of the clock.
        counted: Whether the account still counts it.
    """

    __slots__ = ("amount", "at", "counted")

    def __init__(self, amount: Decimal, at: float) -> None:
        self.amount = amount
        self.at = at
        self.counted = True


class BudgetAccount:
    """What was spent and reserved of one budget by those who share it. The caller holds the lock of the runtime."""

    def __init__(self) -> None:
        self._total = Decimal(0)
        self._recent: deque[Reservation] = deque()

    def total(self, budget: Budget, now: float) -> Decimal:
        """The amount spent and reserved, in the current period if the budget has one."""
        while self._recent and self._recent[0].at <= now - budget.seconds:
            past = self._recent.popleft()
            if past.counted:
                past.counted = False
                self._total = _EXACT.subtract(self._total, past.amount)
        return self._total

    def reserve(self, budget: Budget, amount: Decimal, now: float) -> Reservation:
        """Reserve an amount, even beyond the cap."""
        reservation = Reservation(amount, now)
        self._total = _EXACT.add(self._total, amount)
        if budget.seconds and amount:
            self._recent.append(reservation)
        return reservation

    def settle(self, reservation: Reservation, amount: Decimal) -> None:
        """Replace a reserved amount by the actual one; 0 gives it back."""
        if reservation.counted:
            self._total = _EXACT.add(_EXACT.subtract(self._total, reservation.amount), amount)
            reservation.amount = amount


def layer(context: LayerContext, call_next: CallNext) -> CallNext:
    """Build the layer of a tool."""
    shared, tool, all_budgets = context.shared, context.tool, context.budgets
    personal = any(not PERSONAL.isdisjoint(each.conditions) for each in all_budgets)
    estimate: dict[str, JSON] = _estimate_of(tool)

    @never_waits
    async def budget(call: Call) -> Result:
        budgets = budgets_of(call.context, all_budgets) if personal else all_budgets
        amounts: list[Decimal] = []
        for each in budgets:
            try:
                amounts.append(
                    parse_amount(each.amount.render({"args": call.arguments, "estimate": estimate}))
                )
            except (ValueError, ExpressionError) as error:
                return _refused(call, each, str(error).partition("\n")[0])
        held = _reserve(call, shared, budgets, amounts)
        if isinstance(held, Result):
            return held
        try:
            result = await call_next(call)
        # BaseException: a cancelled call must give back what it did not spend, too.
        except BaseException:
            reached = progress_of(call.id)
            if not (reached.attempts and reached.reached):
                _give_back(shared, held)
            raise
        if result.outcome is Outcome.OK:
            _settle(call, shared, budgets, held, result)
        elif not may_have_spent(result):
            _give_back(shared, held)
        return result

    return budget


def budgets_of(context: CallContext, budgets: Sequence[Budget]) -> Sequence[Budget]:
    """The budgets that count the calls of a caller and user."""
    return [budget for budget in budgets if is_of_caller(budget.conditions, context)]


def judged_budgets(context: LayerContext, call: Call) -> Iterator[tuple[dict[str, JSON], Result | None]]:
    """What each budget decides about a call, and the result of the call if it refuses it; nothing is reserved."""
    shared, clock, estimate = context.shared, call.context.session.clock, _estimate_of(context.tool)
    for budget in budgets_of(call.context, context.budgets):
        decided: dict[str, JSON] = {"budget": budget.name, "at": budget.place, "per": budget.written}
        try:
            amount = parse_amount(budget.amount.render({"args": call.arguments, "estimate": estimate}))
        except (ValueError, ExpressionError) as error:
            yield {**decided, "effect": "deny"}, _refused(call, budget, str(error).partition("\n")[0])
            continue
        account = _account(call, shared, budget)
        with shared.lock:
            total = account.total(budget, clock.monotonic())
        over = amount and _EXACT.add(total, amount) > budget.most
        refused = None
        if over and budget_permission(budget.name).isdisjoint(call.context.grants):
            refused = _reached(call, budget, amount, total)
        left = max(_EXACT.subtract(budget.most, total), Decimal(0))
        amounts: dict[str, JSON] = {"amount": _text(amount), "left": _text(left), "most": _text(budget.most)}
        effect = "allow" if refused is None else "ask" if budget.asks else "deny"
        yield {**decided, **amounts, "effect": effect}, refused


def _estimate_of(tool: Descriptor) -> dict[str, JSON]:
    return {key: value for key, value in tool.estimate._asdict().items() if value is not None}


_Held = list[tuple[BudgetAccount, Reservation]]


def _reserve(
    call: Call, shared: SharedState, budgets: Sequence[Budget], amounts: Sequence[Decimal]
) -> _Held | Result:
    """Reserve all amounts, or none; the result of the call if one of them exceeds its budget."""
    context = call.context
    clock = context.session.clock
    accounts = [_account(call, shared, each) for each in budgets]
    with shared.lock:
        now = clock.monotonic()
        for each, account, amount in zip(budgets, accounts, amounts, strict=True):
            total = account.total(each, now)
            # An amount of 0 spends nothing, even if other calls have exceeded the budget.
            over = amount and _EXACT.add(total, amount) > each.most
            if over and budget_permission(each.name).isdisjoint(context.grants):
                return _reached(call, each, amount, total)
        return [
            (account, account.reserve(each, amount, now))
            for each, account, amount in zip(budgets, accounts, amounts, strict=True)
        ]


def _account(call: Call, shared: SharedState, budget: Budget) -> BudgetAccount:
    context = call.context
    key = f"budget {budget.name}"
    if budget.per == "session":
        return context.session.slot(key, BudgetAccount)
    if budget.per in {"user", "caller"}:
        key += f" of {budget.per} {context.user if budget.per == 'user' else context.caller}"
    return shared.slot(key, BudgetAccount, context.session.clock)


def may_have_spent(result: Result) -> bool:
    """Whether a call that failed may have acted."""
    details: Mapping[str, Any] = NOTHING if result.error is None else result.error.details
    if details.get("may_have_acted"):
        return True
    if attempts_of(result) == 0 or result.outcome is Outcome.UNMATCHED_MOCK:
        return False
    if result.outcome is Outcome.TOOL_ERROR:
        # The tool has reported that it failed. A server that fails with 5xx may have acted before.
        status = details.get("status")
        return isinstance(status, int) and status >= 500
    return True


def _give_back(shared: SharedState, held: _Held) -> None:
    with shared.lock:
        for account, reservation in held:
            account.settle(reservation, Decimal(0))


def _settle(call: Call, shared: SharedState, budgets: Sequence[Budget], held: _Held, result: Result) -> None:
    """Replace the reserved amounts by those that the result reports."""
    for each, (account, reservation) in zip(budgets, held, strict=True):
        if each.actual is None:
            continue
        try:
            actual = parse_amount(each.actual.render({"args": call.arguments, "result": result.value}))
        except (ValueError, ExpressionError) as error:
            # The call has acted, so its reserved amount counts.
            _log_unknown(call, each, error)
            continue
        with shared.lock:
            account.settle(reservation, actual)
            if each.in_cost and actual < _LARGEST_COST:
                observations_of(shared, call.tool.name, call.context.session.clock).cost.add(float(actual))


def _log_unknown(call: Call, budget: Budget, error: Exception) -> None:
    import logging  # noqa: PLC0415 -- not needed unless there is something to log

    logging.getLogger("toolcrib").warning(
        "`actual` of the budget `%s` has no amount for a call of `%s`, so its reserved amount counts: %s",
        budget.name,
        call.tool.name,
        str(error).partition("\n")[0],
    )


def _refused(call: Call, budget: Budget, why: str) -> Result:
    message = (
        f"`{call.tool.name}` was not called: the amount for the budget `{budget.name}` is invalid: {why}"
    )
    details: dict[str, JSON] = {"budget": budget.name, "at": budget.place}
    return without_attempts(Result.failure(Outcome.DENIED, message, code="invalid_amount", details=details))


def _reached(call: Call, budget: Budget, amount: Decimal, total: Decimal) -> Result:
    left = max(_EXACT.subtract(budget.most, total), Decimal(0))
    reason = (
        f"it spends {_text(amount)}, and {_text(left)} of {_text(budget.most)} is left (per {budget.written})"
    )
    details: dict[str, JSON] = {
        "budget": budget.name,
        "amount": _text(amount),
        "left": _text(left),
        "most": _text(budget.most),
        "per": budget.written,
        "at": budget.place,
        "reason": reason,
    }
    message = f"`{call.tool.name}` would exceed the budget `{budget.name}`: {reason}"
    outcome = Outcome.NEEDS_APPROVAL if budget.asks else Outcome.LIMIT_EXCEEDED
    return without_attempts(Result.failure(outcome, message, code=REACHED, details=details))


def _text(amount: Decimal) -> str:
    # Not `normalize()` alone, which writes 200 as `2E+2`.
    plain = abs(amount.adjusted()) < _PLAIN
    return f"{amount.normalize():f}" if plain else str(amount.normalize())
