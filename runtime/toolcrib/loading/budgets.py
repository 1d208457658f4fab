"""Budgets of a project: what the calls of some tools may spend together. Parse, check and compile them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from decimal import Decimal
from fnmatch import fnmatchcase
from math import isfinite
from typing import Any, Final, NamedTuple

from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import ExpressionError, Problem
from toolcrib.core.model import JSON, NOTHING, Descriptor, Estimate
from toolcrib.core.pointers import pointer_step
from toolcrib.core.subschemas import described_names, may_name_elsewhere
from toolcrib.expressions import Rendering, compile_value
from toolcrib.loading.access import check_condition
from toolcrib.loading.descriptors import check_tool_globs
from toolcrib.registry.catalog import card_of, fits_conditions
from toolcrib.registry.registry import Registry
from toolcrib.security.access import AccessDecision

REACHED: Final = "budget_reached"
"""Error code of a call that would exceed a budget."""

PERIODS: Final = ("run", "session", "user", "caller")
"""The values of `per` that are not a duration."""

PERSONAL: Final = frozenset({"caller", "user"})
"""Conditions that depend on who makes a call."""

DIGITS: Final = 400
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,3})?")


class Budget(NamedTuple):
    """A cap on what the calls of some tools spend together.

    Attributes:
        name: Name of the budget.
        tools: Globs of the tools that it counts.
        conditions: Further conditions of the calls that it counts, as in rules of `access`.
        amount: The amount of a call, from `args` and `estimate`.
        actual: The amount that a call has spent, from `args` and `result`; None for the reserved amount.
        per: What shares the budget: `run`, `session`, `user`, `caller`, or `time`.
        seconds: Length of the period if `per` is `time`; else 0.
        most: The cap.
        asks: Whether a call that would exceed it needs approval; otherwise it is refused.
        place: Where the budget is configured.
        written: `per` as written.
        in_cost: Whether its amounts are costs: `amount` is `"{{ estimate.cost }}"`.
    """

    name: str
    tools: tuple[str, ...]
    amount: Rendering
    actual: Rendering | None
    per: str
    seconds: float
    most: Decimal
    asks: bool
    place: str
    written: str
    conditions: Mapping[str, JSON] = NOTHING
    in_cost: bool = False

    def counts(self, tool: Descriptor) -> bool:
        """Whether the budget counts calls of a tool."""
        named = any(fnmatchcase(tool.name, glob) for glob in self.tools)
        return named and (not self.conditions or fits_conditions(card_of(tool), self.conditions))


def compile_budgets(settings: Mapping[str, Mapping[str, Any]]) -> tuple[Budget, ...]:
    """Compile the budgets of a project, which loading has checked."""
    budgets = []
    for name, said in settings.items():
        per = said.get("per", "run")
        timed = per not in PERIODS
        actual = said.get("actual")
        budgets.append(
            Budget(
                name=name,
                tools=tuple(said["tools"]),
                amount=compile_value(said["amount"], AMOUNT_NAMES, []),
                actual=None if actual is None else compile_value(actual, ACTUAL_NAMES, []),
                per="time" if timed else per,
                seconds=parse_duration(per) if timed else 0.0,
                most=parse_amount(said["most"]),
                asks=said.get("on_reach", "deny") == "ask",
                place=said.get("at", ""),
                written=per,
                conditions=said.get("for", NOTHING),
                in_cost=_COST.fullmatch(str(said["amount"])) is not None,
            )
        )
    return tuple(budgets)


_COST: Final = re.compile(r"\{\{\s*estimate\.cost\s*\}\}")

AMOUNT_NAMES: Final[Mapping[str, Collection[str] | None]] = {"args": None, "estimate": Estimate._fields}
"""Names that the expressions of `amount` may read -> their keys, if these are known."""

ACTUAL_NAMES: Final[Mapping[str, Collection[str] | None]] = {"args": None, "result": None}
"""Likewise for `actual`."""


def parse_amount(value: JSON) -> Decimal:
    """Convert a JSON number, or a text with a number, to an exact decimal.

    Raises:
        ValueError: It is not a finite number of at least 0, or has more than 400 digits before or after the point.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value):
        number = Decimal(value)
    elif isinstance(value, float) and isfinite(value):
        number = Decimal(repr(value))  # `0.1` is a tenth, not the binary fraction next to it
    elif isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**DIGITS:
        number = Decimal(value)
    else:
        raise ValueError(f"expected a finite number, got {_described(value)}")
    if number < 0:
        raise ValueError(f"expected a number of at least 0, got {_described(value)}")
    if abs(number.adjusted()) > DIGITS:
        raise ValueError(f"expected a number with at most {DIGITS} digits")
    return number


def _described(value: JSON) -> str:
    if isinstance(value, int | float):
        return str(value)[:40]
    # A text may be a secret.
    return "a text" if isinstance(value, str) else "null" if value is None else "a list or an object"


def budget_permission(name: str) -> frozenset[str]:
    """The permission to exceed a budget."""
    return frozenset({f"budget:{name}"})


def reached_decision(budget: Budget, reason: str) -> AccessDecision:
    """What asks for approval of a call that would exceed a budget."""
    return AccessDecision("ask", REACHED, f"budget {budget.name}", budget.place, reason, "medium")


OFF: Final = "off"
"""Written for a budget in a profile: the budget of the project does not apply."""


def check_budgets(said: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    """The problems of `budgets` that the schema cannot find; `pointer` is that of the enclosing object."""
    for name, budget in said.get("budgets", {}).items():
        at = f"{pointer}/budgets/{pointer_step(name)}"
        if budget == OFF:
            continue
        yield from check_tool_globs(budget.get("tools", ()), f"{at}/tools")
        for key, condition in budget.get("for", {}).items():
            yield from check_condition(key, condition, f"{at}/for/{key}")
        for key, names in (("amount", AMOUNT_NAMES), ("actual", ACTUAL_NAMES)):
            if key in budget:
                yield from _check_expression(budget[key], names, f"{at}/{key}")
        yield from _check_number(budget.get("most"), f"{at}/most")
        per = budget.get("per", "run")
        if per not in PERIODS and parse_duration(per) == 0:
            hint = f"write a duration such as `1d`, or {', '.join(f'`{each}`' for each in PERIODS)}"
            yield Problem(
                code="out_of_range", message="`per` must be longer than 0s", pointer=f"{at}/per", hint=hint
            )


def check_arguments(name: str, said: Mapping[str, Any], registry: Registry) -> Problem | None:
    """A warning if the amount of a budget needs an argument that some of its tools do not declare.

    Args:
        name: Name of the budget.
        said: The budget as configured.
        registry: All tools.
    """
    amount = compile_value(said["amount"], AMOUNT_NAMES, [])
    try:
        amount.render({"args": {}, "estimate": dict.fromkeys(Estimate._fields, 0)})
    except ExpressionError:
        pass
    else:
        # It reads arguments as `args['amount'] | default(0)`, or none.
        return None
    denied: list[str] = []
    faults: dict[tuple[str, ...], list[Problem]] = {}
    counted = (
        tool
        for tool in registry
        if any(fnmatchcase(tool, glob) for glob in said["tools"])
        and fits_conditions(registry.cards[tool], said.get("for", {}))
    )
    for tool in counted:
        descriptor = registry[tool]
        schema = descriptor.input_schema
        if "input_schema" not in descriptor.origin.written or may_name_elsewhere(schema):
            continue
        known = tuple(described_names(schema))
        if known not in faults:
            faults[known] = []
            compile_value(said["amount"], {**AMOUNT_NAMES, "args": known}, faults[known])
        if faults[known]:
            denied.append(tool)
    if not denied:
        return None
    [fault, *_] = faults[tuple(described_names(registry[denied[0]].input_schema))]
    more = f" and {len(denied) - 1} more" if len(denied) > 1 else ""
    message = f"the budget `{name}` denies calls of `{denied[0]}`{more}: {fault.message}"
    hint = fault.hint or "write `args['name'] | default(0)` for tools without the argument"
    return fault._replace(message=message, hint=hint, severity="warning", pointer="/amount")


def _check_expression(
    written: JSON, names: Mapping[str, Collection[str] | None], pointer: str
) -> Iterator[Problem]:
    problems: list[Problem] = []
    value = compile_value(written, names, problems, pointer)
    yield from problems
    if not problems and value.constant:
        yield from _check_number(value.render({}), pointer)


def _check_number(value: JSON, pointer: str) -> Iterator[Problem]:
    if value is None:
        return
    try:
        parse_amount(value)
    except ValueError as error:
        hint = 'write a number of at least 0, or an expression such as `"{{ args.amount }}"`'
        yield Problem(code="wrong_amount", message=f"invalid amount: {error}", pointer=pointer, hint=hint)
