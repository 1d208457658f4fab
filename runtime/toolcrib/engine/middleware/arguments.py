"""Layer `arguments`: defaults, repairs, and the check against the input schema."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from toolcrib.core.limit_reports import limit_details, limit_phrase
from toolcrib.core.model import ANSWERS, JSON, Call, Descriptor, Outcome, Result, Schema, as_result
from toolcrib.core.protocols import BoundTool
from toolcrib.core.subschemas import cached_per_schema
from toolcrib.core.text import format_size
from toolcrib.engine.middleware.call_failures import mask_violation, without_attempts
from toolcrib.engine.middleware.layer import Answer, LayerContext, Link, never_waits, off_loop
from toolcrib.schema.validation import Validator, Violation, ViolationReport, as_json, compile_defaults
from toolcrib.schema.validation.json_values import (
    WITHIN,
    ExcessSize,
    budget_for_bytes,
    is_large,
    measure_excess,
    remaining_budget,
)
from toolcrib.schema.validation.validator import MOST

if TYPE_CHECKING:
    from toolcrib.schema.coercion import Repair

DEPTH = 64
"""Maximum nesting depth of arguments."""


@cached_per_schema
def _compiled(schema: Schema | None) -> tuple[Validator, Callable[[JSON], JSON] | None]:
    # Cached: a tool that many scenarios mock is bound anew in each, with the same schema.
    wanted = True if schema is None else schema
    return Validator(wanted), compile_defaults(wanted)


class ArgumentCheck:
    """Checks and repairs the arguments of one tool with its compiled schema.

    Attributes:
        fill: Adds the defaults; None if the schema has none.
        sends: Whether the tool gets the defaults; it does not if it applies those of its schema itself.
        judge: Whether the schema accepts arguments that are JSON and have their defaults.
    """

    __slots__ = ("_validator", "fill", "judge", "sends")

    def __init__(self, tool: Descriptor, bound: BoundTool | None = None) -> None:
        self._validator, self.fill = _compiled(tool.input_schema)
        self.sends = self.fill is not None and not getattr(bound, "own_defaults", False)
        self.judge = self._validator.judge

    def repaired(self, call: Call) -> tuple[Call, list[JSON]] | Result:
        """Return the call with valid arguments and the repairs made, or the result that refuses the call.

        Large arguments take long, so run this in a thread then.
        """
        tool, validator = call.tool, self._validator
        given: JSON = call.arguments
        too_much = measure_excess(given, DEPTH, tool.limits.input_size)
        fault = None
        if too_much is None:  # not plain JSON, such as subclasses of dict and list
            given, fault = as_json(given, depth=DEPTH)
            too_much = measure_excess(given, DEPTH, tool.limits.input_size) if fault is None else None
        if too_much is not None and too_much is not WITHIN:
            return _too_large(tool, too_much)
        if fault is not None:
            return invalid_arguments(tool, ViolationReport([mask_violation(fault, validator)]))
        accepted = self._accepted(given)
        if accepted is not None:
            return call.with_arguments(accepted), []
        filled = self.fill(given) if self.fill is not None and self.sends else given
        report = left = validator.explain(filled)
        if tool.coerce != "off" and tool.input_schema is not False:
            from toolcrib.schema.coercion import repair  # noqa: PLC0415 -- most arguments are valid

            # The second time without defaults: one of them may be what is wrong.
            for start in [filled] if filled is given else [filled, given]:
                found = report if start is filled else validator.explain(start)
                repaired = repair(validator, start, tool.coerce, found)
                accepted = self._accepted(repaired.value) if repaired.repairs else None
                if accepted is not None:
                    shown: list[JSON] = [_shown(each) for each in repaired.repairs]
                    return call.with_arguments(accepted), shown
                left = repaired.left if start is filled else left
        return invalid_arguments(tool, left)

    def _accepted(self, given: JSON) -> dict[str, JSON] | None:
        """The arguments for the tool, with or without defaults; None if the schema accepts neither."""
        if not isinstance(given, dict):
            return None
        filled = given if self.fill is None else self.fill(given)
        if isinstance(filled, dict) and self.judge(filled):
            return filled if self.sends else given
        # Defaults may contradict each other or an argument, as under `oneOf`. They never make a valid call invalid.
        return given if filled is not given and self.judge(given) else None


def layer(context: LayerContext, call_next: Link) -> Link:
    """Build the layer of a tool."""
    check = ArgumentCheck(context.tool, context.bound)
    fill, judge = check.fill if check.sends else None, check.judge
    room = budget_for_bytes(context.tool.limits.input_size)

    @never_waits
    def arguments(call: Call) -> Answer | Awaitable[Answer]:
        # Almost all arguments are small and valid. Returning what the next layer returns saves a coroutine, which is
        # measurable in a mocked call.
        given: JSON = call.arguments
        if remaining_budget(given, DEPTH, room) >= 0:
            filled = given if fill is None else fill(given)
            if type(filled) is dict and judge(filled):
                return call_next(call if filled is given else call.with_arguments(filled))
        return repairing(call)

    async def repairing(call: Call) -> Answer:
        repair = partial(check.repaired, call)
        repaired = await off_loop(call, repair) if is_large(call.arguments, DEPTH) else repair()
        if isinstance(repaired, Result):
            return repaired
        prepared, repairs = repaired
        answer = call_next(prepared)
        if not isinstance(answer, ANSWERS):
            answer = await answer
        return as_result(answer).with_meta(repairs=repairs) if repairs else answer

    return arguments


def _shown(repair: Repair) -> dict[str, JSON]:
    return {"pointer": repair.pointer, "kind": repair.kind, "before": repair.before, "after": repair.after}


def _too_large(tool: Descriptor, too_much: ExcessSize) -> Result:
    most = tool.limits.input_size
    limit = limit_phrase(tool, "input_size", format_size(most))
    return without_attempts(
        Result.failure(
            Outcome.LIMIT_EXCEEDED,
            f"the arguments of `{tool.name}` are too large: {too_much.text}, and {limit}; send less",
            code="arguments_too_large",
            details=limit_details(tool, "input_size", most, too_much.measured),
        )
    )


def invalid_arguments(tool: Descriptor, report: ViolationReport) -> Result:
    """Build the result of a call with invalid arguments: one line per violation, for the model to act on."""
    shown = report.faults[:MOST]
    lines = [fault.for_model() for fault in shown] or ["arguments must be an object"]
    details: dict[str, Any] = {"violations": [_fault(fault) for fault in shown], **report.counts()}
    message = f"invalid arguments for `{tool.name}`:\n" + "\n".join([*lines, *report.unshown()])
    return Result.failure(Outcome.INVALID_ARGUMENTS, message, details=details)


def _fault(fault: Violation) -> dict[str, JSON]:
    return {
        "pointer": fault.pointer,
        "keyword": fault.keyword,
        "expected": fault.expected,
        "got": fault.got,
        "hint": fault.hint,
    }
