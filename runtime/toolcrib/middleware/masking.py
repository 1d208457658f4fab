"""What may be told of a value, by a fault or beside a result: JSON, and nothing that is secret."""

from __future__ import annotations

from collections.abc import Sequence

from toolcrib.model import NOTHING, Result
from toolcrib.pointers import pointer_to
from toolcrib.secrets import HIDDEN, SeenSecrets
from toolcrib.subschemas import Path
from toolcrib.validation import Fault, Validator, json_fault
from toolcrib.validation.faults import show
from toolcrib.validation.sizes import DEPTH


def masked(fault: Fault, validator: Validator) -> Fault:
    """The fault of a value that is no JSON, without what stands there if the place is secret."""
    return fault._replace(got=HIDDEN) if validator.secrets.hides(fault.path, ...) else fault


def without(seen: SeenSecrets, faults: Sequence[Fault], value: object) -> list[Fault]:
    """The faults of a value without the secrets that were seen before, e.g. in the arguments of the call."""
    return [_without(seen, fault, value) for fault in faults]


def _without(seen: SeenSecrets, fault: Fault, value: object) -> Fault:
    path = tuple(seen.hide_in_text(key) if isinstance(key, str) else key for key in fault.path)
    there = _at(value, fault.path)
    # What is there is judged whole: the text of a fault may be shortened within the secret.
    shown = seen.hide_in(there)  # type: ignore[arg-type]
    hidden = shown is not there and shown != there  # NaN is not equal to itself
    if path != fault.path or (hidden and fault.got == show(there)):
        return fault._replace(path=path, pointer=pointer_to(path), got=HIDDEN, hint="")
    return fault._replace(got=seen.hide_in_text(fault.got), hint=seen.hide_in_text(fault.hint))


def _at(value: object, path: Path) -> object:
    for key in path:
        if isinstance(value, dict):
            value = value.get(key)
        else:
            value = value[key] if isinstance(value, list) and isinstance(key, int) else None
    return value if isinstance(value, str | int | float) else None


def report_fault(result: Result) -> Fault | None:
    """What keeps the `meta` of a result, or the `details` of its error, from being JSON."""
    told: dict[str, object] = {}
    if result.meta is not NOTHING:
        told["meta"] = dict(result.meta)
    if result.error is not None and result.error.details is not NOTHING:
        told["details"] = dict(result.error.details)
    return json_fault(told, depth=DEPTH) if told else None
