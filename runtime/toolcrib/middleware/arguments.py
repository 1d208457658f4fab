"""Layer `arguments`: defaults, repairs, and the check against the input schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolcrib.coercion import Repair, beyond_repair, coerce
from toolcrib.middleware.masking import masked
from toolcrib.model import JSON, Call, Descriptor, Outcome, Result
from toolcrib.protocols import CallNext, Middleware
from toolcrib.validation import Fault, Validator, compile_defaults, json_fault

DEPTH = 64
"""How deep arguments may be nested."""


def layer(tool: Descriptor) -> Middleware:
    """The layer of a tool, its schema compiled."""
    validator = Validator(tool.input_schema)
    judge = validator.judge
    fill = compile_defaults(tool.input_schema)

    async def arguments(call: Call, call_next: CallNext) -> Result:
        given: JSON = call.arguments
        fault = json_fault(given, depth=DEPTH)
        if fault is not None:
            return refused(tool, [masked(fault, validator)])
        filled = fill(given) if fill is not None else given
        if isinstance(filled, dict) and judge(filled):
            return await call_next(call if filled is given else call._replace(arguments=filled))
        repaired, repairs = _repaired(tool, validator, filled)
        if not repairs:
            return refused(tool, _left_over(tool, validator, filled))
        filled = fill(repaired) if fill is not None else repaired
        if not isinstance(filled, dict) or not judge(filled):
            return refused(tool, validator.faults(filled))
        result = await call_next(call._replace(arguments=filled))
        return result.with_meta(repairs=[_shown(repair) for repair in repairs])

    return arguments


def _repaired(tool: Descriptor, validator: Validator, given: JSON) -> tuple[JSON, Sequence[Repair]]:
    if tool.coerce == "off":
        return given, ()
    return coerce(tool.input_schema, validator, given, tool.coerce)


def _left_over(tool: Descriptor, validator: Validator, given: JSON) -> Sequence[Fault]:
    """What a caller has to mend: not what is repaired anyway."""
    if tool.coerce == "off":
        return validator.faults(given)
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
