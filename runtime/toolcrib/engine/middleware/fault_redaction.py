"""What may be told of a value, by a fault or beside a result: JSON, and nothing that is secret."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from toolcrib.core.model import NOTHING, Result
from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import Path
from toolcrib.schema.validation import Validator, Violation, as_dict, as_json
from toolcrib.schema.validation.json_values import DEPTH
from toolcrib.schema.validation.violations import plain_scalar, show
from toolcrib.security.redaction import HIDDEN, Redactor


def masked(fault: Violation, validator: Validator) -> Violation:
    """The fault of a value that is no JSON, without what stands there if the place is secret."""
    return fault._replace(got=HIDDEN) if validator.secrets.hides(fault.path, ...) else fault


def without(seen: Redactor, faults: Sequence[Violation], value: object) -> list[Violation]:
    """The faults of a value without the secrets that were seen before, e.g. in the arguments of the call."""
    return [_without(seen, fault, value) for fault in faults]


def _without(seen: Redactor, fault: Violation, value: object) -> Violation:
    path = tuple(seen.hide_in_text(key) if isinstance(key, str) else key for key in fault.path)
    there = _at(value, fault.path)
    # What is there is judged whole: the text of a fault may be shortened within the secret.
    shown = seen.hide_in(there)  # type: ignore[arg-type]
    hidden = shown is not there and shown != there  # NaN is not equal to itself
    if path != fault.path or (hidden and fault.got == show(there)):
        return fault._replace(path=path, pointer=pointer_to(path), got=HIDDEN, hint="")
    return fault._replace(got=seen.hide_in_text(fault.got), hint=seen.hide_in_text(fault.hint))


def _at(value: Any, path: Path) -> object:
    for key in path:  # with the methods of `dict` and `list`: those of a subclass may do anything
        if issubclass(type(value), dict):
            value = dict.get(value, key)
        elif issubclass(type(value), list) and isinstance(key, int):
            value = list.__getitem__(value, key)
        else:
            value = None
    value = plain_scalar(value)
    return value if type(value) in (str, int, float, bool) else None


def as_reported(result: Result) -> tuple[Result, Violation | None]:
    """The result with plain JSON as `meta` and as `details` of its error, and what keeps them from being JSON."""
    told: dict[str, Any] = {}
    error = result.error
    if result.meta is not NOTHING:
        told["meta"] = as_dict(result.meta)
    if error is not None and error.details is not NOTHING:
        told["details"] = as_dict(error.details)
    plain: Any
    plain, fault = as_json(told, depth=DEPTH)
    if fault is not None or plain is told:
        return result, fault
    if error is not None:
        error = error._replace(details=plain.get("details", NOTHING))
    return result._replace(meta=plain.get("meta", NOTHING), error=error), None
