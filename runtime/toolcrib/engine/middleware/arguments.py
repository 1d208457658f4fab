"""Layer `arguments`: defaults, repairs, and the check against the input schema."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.core.clock import run_in_thread
from toolcrib.core.model import JSON, Call, Descriptor, Outcome, Result, Schema
from toolcrib.core.protocols import CallNext, Middleware
from toolcrib.core.subschemas import once_for_each
from toolcrib.core.text import format_size
from toolcrib.engine.middleware.call_failures import untried
from toolcrib.engine.middleware.fault_redaction import masked
from toolcrib.schema.validation import Validator, Violation, ViolationReport, as_json, compile_defaults
from toolcrib.schema.validation.json_values import excess, is_large, room_for, weigh
from toolcrib.schema.validation.validator import MOST

if TYPE_CHECKING:
    from toolcrib.schema.coercion import Repair

DEPTH = 64
"""How deep arguments may be nested."""


class Door(NamedTuple):
    """What every call of a tool passes first; its schema is compiled.

    Attributes:
        fill: Fills in the defaults; None where there are none.
        judge: Whether the schema accepts arguments that are JSON and have their defaults.
        room: What arguments may weigh that are judged at once.
        passed: The arguments with their defaults; None where they are not small, or not good as they are.
        mended: For a call that did not pass: the call with good arguments, and the repairs that it took, or the
            result that refuses it. Where the arguments are large it takes long, and belongs in a thread.
    """

    fill: Callable[[JSON], JSON] | None
    judge: Callable[[JSON], bool]
    room: int
    passed: Callable[[JSON], dict[str, JSON] | None]
    mended: Callable[[Call], tuple[Call, list[JSON]] | Result]


@once_for_each
def _compiled(schema: Schema | None) -> tuple[Validator, Callable[[JSON], JSON] | None]:
    """A schema and its defaults; a tool that is mocked in many scenarios keeps its schema."""
    wanted = True if schema is None else schema
    return Validator(wanted), compile_defaults(wanted)


def door(tool: Descriptor) -> Door:
    """The door of a tool."""
    validator, fill = _compiled(tool.input_schema)
    judge, room = validator.judge, room_for(tool.limits.input_size)

    def passed(given: JSON) -> dict[str, JSON] | None:
        if weigh(given, DEPTH, room) < 0:
            return None
        filled = given if fill is None else fill(given)
        return filled if isinstance(filled, dict) and judge(filled) else None

    def mended(call: Call) -> tuple[Call, list[JSON]] | Result:
        given: JSON = call.arguments
        too_much = excess(given, DEPTH, tool.limits.input_size)
        fault = None
        if too_much is None:  # it is not plain JSON: it may have objects and lists of subclasses
            given, fault = as_json(given, depth=DEPTH)
            too_much = excess(given, DEPTH, tool.limits.input_size) if fault is None else None
        if too_much:
            return _too_large(tool, too_much)
        if fault is not None:
            return refused(tool, ViolationReport([masked(fault, validator)]))
        filled = given if fill is None else fill(given)
        report = ViolationReport([]) if judge(filled) else validator.explain(filled)
        if report.faults and tool.coerce != "off" and tool.input_schema is not False:
            from toolcrib.schema.coercion import repair  # noqa: PLC0415 -- most arguments are good as they are

            repaired, repairs, report = repair(validator, filled, tool.coerce, report)
            filled = repaired if fill is None else fill(repaired)
            if repairs and not judge(filled):
                report = validator.explain(filled)
        else:
            repairs = []
        if report.faults or not isinstance(filled, dict):
            return refused(tool, report)
        shown: list[JSON] = [_shown(each) for each in repairs]
        return call.with_arguments(filled), shown

    return Door(fill, judge, room, passed, mended)


def layer(tool: Descriptor) -> Middleware:
    """The layer of a tool."""
    entrance = door(tool)
    passed, mended = entrance.passed, entrance.mended

    async def arguments(call: Call, call_next: CallNext) -> Result:
        good = passed(call.arguments)
        if good is not None:
            return await call_next(call if good is call.arguments else call.with_arguments(good))
        if is_large(call.arguments, DEPTH):
            mending = await run_in_thread(call.context.session.clock, partial(mended, call))
        else:
            mending = mended(call)
        if isinstance(mending, Result):
            return mending
        prepared, repairs = mending
        result = await call_next(prepared)
        return result.with_meta(repairs=repairs) if repairs else result

    return arguments


def _shown(repair: Repair) -> dict[str, JSON]:
    return {"pointer": repair.pointer, "kind": repair.kind, "before": repair.before, "after": repair.after}


def _too_large(tool: Descriptor, too_much: str) -> Result:
    limit = format_size(tool.limits.input_size)
    return untried(
        Result.failed(
            Outcome.LIMIT_EXCEEDED,
            f"the arguments of `{tool.name}` are too large: {too_much}, and `limits.input_size` is {limit}; send less",
            code="arguments_too_large",
            details={"limit": tool.limits.input_size},
        )
    )


def refused(tool: Descriptor, report: ViolationReport) -> Result:
    """The result of a call whose arguments do not fit: one compact line a fault, for the model to act on."""
    shown = report.faults[:MOST]
    lines = [fault.for_model() for fault in shown] or ["arguments must be an object"]
    details: dict[str, Any] = {"violations": [_fault(fault) for fault in shown], **report.counts()}
    message = f"invalid arguments for `{tool.name}`:\n" + "\n".join([*lines, *report.unshown()])
    return Result.failed(Outcome.INVALID_ARGUMENTS, message, details=details)


def _fault(fault: Violation) -> dict[str, JSON]:
    return {
        "pointer": fault.pointer,
        "keyword": fault.keyword,
        "expected": fault.expected,
        "got": fault.got,
        "hint": fault.hint,
    }
