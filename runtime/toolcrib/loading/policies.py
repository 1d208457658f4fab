"""From a `policy` block to a ToolPolicy: of an agent, of a prompt, of a file of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.core.schemas import part_schema
from toolcrib.schema.validation import Fault, Validator
from toolcrib.security.tool_policy import ToolPolicy


def parse_policy(value: JSON, pointer: str, problems: list[Problem]) -> ToolPolicy:
    """Read a policy.

    Args:
        value: As the document has it.
        pointer: Where it stands.
        problems: Receives what is wrong with it; the policy is made of what is right.
    """
    faults = _validator().faults(value, most=_MOST)
    problems += [_problem(fault, pointer) for fault in faults]
    if not isinstance(value, dict):
        return ToolPolicy()
    wrong = {fault.path[0] for fault in faults if fault.path}
    return ToolPolicy(**{key: _READ.get(key, _same)(item) for key, item in value.items() if key not in wrong})


_MOST = 100
"""Faults of one policy that are told."""


@cache
def _validator() -> Validator:
    return Validator(part_schema("policy"))


@cache
def _forms() -> Mapping[str, str]:
    """Key -> what the schema says of the form of its values."""
    keys = part_schema("policy")["properties"]
    return {
        key: told
        for key, entry in keys.items()
        if (told := entry.get("additionalProperties", {}).get("errorMessage"))
    }


def _problem(fault: Fault, pointer: str) -> Problem:
    place = pointer + fault.pointer
    name = str(fault.path[-1]) if fault.path else ""
    if fault.keyword == "additionalProperties":
        hint = did_you_mean(name, part_schema("policy")["properties"])
        return Problem(
            code="unknown_key", message=f"`{name}` is no key of a policy", pointer=place, hint=hint
        )
    form = _forms().get(str(fault.path[0]), "") if fault.path else ""
    if fault.keyword == "pattern" and form:
        return Problem(code="wrong_form", message=f"{form}; got {fault.got}", pointer=place)
    code = "wrong_type" if fault.keyword == "type" else "wrong_value"
    message = f"expected {fault.expected}, got {fault.got}"
    return Problem(code=code, message=message, pointer=place, hint=fault.hint)


def _same(value: Any) -> Any:
    return value


def _lists(value: Mapping[str, Any]) -> Any:
    return {glob: tuple(names) for glob, names in value.items()}


def _seconds(value: Mapping[str, str]) -> Any:
    return {glob: parse_duration(text) for glob, text in value.items()}


_READ: Mapping[str, Callable[[Any], Any]] = {
    "allow": tuple,
    "deny": tuple,
    "ask": tuple,
    "polling": tuple,
    "stop_on_tool": tuple,
    "requires_before": _lists,
    "exclusive": lambda groups: tuple(tuple(group) for group in groups),
    "cooldown": _seconds,
}
"""Key -> how its value is read, where it is not what the document has."""
