"""Layer `arguments`: defaults, repairs, and the check against the input schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.middleware.masking import masked
from toolcrib.model import JSON, Call, Descriptor, Outcome, Result, Schema
from toolcrib.protocols import CallNext, Middleware
from toolcrib.subschemas import once_for_each
from toolcrib.validation import SUBCLASS, Fault, Validator, as_json, compile_defaults, json_fault, unshared

if TYPE_CHECKING:
    from toolcrib.coercion import Repair

DEPTH = 64
"""How deep arguments may be nested."""


class Door(NamedTuple):
    """What every call of a tool passes first; its schema is compiled.

    Attributes:
        fill: Fills in the defaults; None where there are none.
        judge: Whether the schema accepts arguments that are JSON and have their defaults.
        passed: The arguments with their defaults; None where they are not good as they are.
        mended: For a call that did not pass: the repaired call and its repairs, or the result that refuses it.
    """

    fill: Callable[[JSON], JSON] | None
    judge: Callable[[JSON], bool]
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
    judge = validator.judge

    def passed(given: JSON) -> dict[str, JSON] | None:
        fault = json_fault(given, depth=DEPTH)
        if fault is not None:
            if fault.keyword != SUBCLASS:
                return None
            given = unshared(given, DEPTH)
        filled = given if fill is None else fill(given)
        return filled if isinstance(filled, dict) and judge(filled) else None

    def mended(call: Call) -> tuple[Call, list[JSON]] | Result:
        given, fault = as_json(call.arguments, depth=DEPTH)
        if fault is not None:
            return refused(tool, [masked(fault, validator)])
        filled = given if fill is None else fill(given)
        repaired, repairs = _repaired(tool, validator, filled)
        if not repairs:
            return refused(tool, _left_over(tool, validator, filled))
        filled = repaired if fill is None else fill(repaired)
        if not isinstance(filled, dict) or not judge(filled):
            return refused(tool, validator.faults(filled))
        shown: list[JSON] = [_shown(repair) for repair in repairs]
        return call.with_arguments(filled), shown

    return Door(fill, judge, passed, mended)


def layer(tool: Descriptor) -> Middleware:
    """The layer of a tool."""
    _fill, _judge, passed, mended = door(tool)

    async def arguments(call: Call, call_next: CallNext) -> Result:
        good = passed(call.arguments)
        if good is not None:
            return await call_next(call if good is call.arguments else call.with_arguments(good))
        mending = mended(call)
        if isinstance(mending, Result):
            return mending
        repaired, repairs = mending
        result = await call_next(repaired)
        return result.with_meta(repairs=repairs)

    return arguments


def _repaired(tool: Descriptor, validator: Validator, given: JSON) -> tuple[JSON, Sequence[Repair]]:
    if tool.coerce == "off":
        return given, ()
    from toolcrib.coercion import coerce  # noqa: PLC0415 -- most arguments are good as they are

    return coerce(tool.input_schema, validator, given, tool.coerce)


def _left_over(tool: Descriptor, validator: Validator, given: JSON) -> Sequence[Fault]:
    """What a caller has to mend: not what is repaired anyway."""
    if tool.coerce == "off":
        return validator.faults(given)
    from toolcrib.coercion import beyond_repair  # noqa: PLC0415 -- as above

    return beyond_repair(validator, given, tool.coerce)


def _shown(repair: Repair) -> dict[str, JSON]:
    return {"pointer": repair.pointer, "kind": repair.kind, "before": repair.before, "after": repair.after}


def refused(tool: Descriptor, faults: Sequence[Fault]) -> Result:
    """The result of a call whose arguments do not fit: one compact line a fault, for the model to act on."""
    lines = [fault.for_model() for fault in faults] or ["arguments must be an object"]
    details: dict[str, Any] = {"violations": [_fault(fault) for fault in faults]}
    message = f"invalid arguments for `{tool.name}`:\n" + "\n".join(lines)
    return Result.failed(Outcome.INVALID_ARGUMENTS, message, details=details)


def _fault(fault: Fault) -> dict[str, JSON]:
    return {
        "pointer": fault.pointer,
        "keyword": fault.keyword,
        "expected": fault.expected,
        "got": fault.got,
        "hint": fault.hint,
    }
