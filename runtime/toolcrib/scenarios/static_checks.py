"""Checks of `toolcrib validate` that call nothing: the arguments that scenarios write, and names under `required`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON, Descriptor, Outcome, Result, Schema
from toolcrib.core.pointers import pointer_step, pointer_to
from toolcrib.core.subschemas import SchemaIndex, Site
from toolcrib.core.virtual_clock import VirtualClock
from toolcrib.engine.runtime import Runtime
from toolcrib.engine.session import Session
from toolcrib.loading.scenarios.model import CallStep, Scenario
from toolcrib.loading.scenarios.scenario_links import locate_problem


def run_static_checks(runtime: Runtime) -> Iterator[Problem]:
    """Yield the problems `step_breaks_schema` of scenarios and `unknown_required` of descriptors, placed."""
    for tool in runtime.registry.values():
        yield from check_required(tool)
    session = runtime.session(id="check", clock=VirtualClock())
    for scenario in runtime.scenarios:
        for step in scenario.written_calls:
            if step.call in runtime.registry and step.expect.outcomes and _must_be_valid(step):
                yield from _check_step(session, scenario, step)


def _must_be_valid(step: CallStep) -> bool:
    """Whether a step does not expect that its arguments are refused."""
    return Outcome.INVALID_ARGUMENTS not in step.expect.outcomes


def _check_step(session: Session, scenario: Scenario, step: CallStep) -> Iterator[Problem]:
    open_places = set(_open_places(step.written, ""))
    if "" in open_places:
        return
    arguments: Any = step.written or {}
    result = session.check_arguments(step.call, arguments)
    if (
        not isinstance(result, Result)
        or result.outcome is not Outcome.INVALID_ARGUMENTS
        or result.error is None
    ):
        return
    for fault in result.error.details["violations"]:
        if not _is_open(fault["pointer"], fault["keyword"], open_places):
            hint = fault["hint"] or f"`toolcrib show {step.call}` prints the schema"
            at = fault["pointer"]
            where = f" at {at}" if at else ""
            message = f"`{step.call}` refuses these arguments: expected {fault['expected']}{where}, got {fault['got']}"
            problem = Problem(
                code="step_breaks_schema", message=message, pointer=f"{step.pointer}/args{at}", hint=hint
            )
            yield locate_problem(problem, scenario)


_OPENERS = ("{{", "{%", "{#", "${")


def _open_places(value: JSON, pointer: str) -> Iterator[str]:
    """The pointers of the values that are only known when the step runs."""
    if isinstance(value, str):
        if any(opener in value for opener in _OPENERS):
            yield pointer
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _open_places(item, f"{pointer}/{index}")
    elif isinstance(value, dict):
        # Keys with an operator or an expression make other keys.
        if any(key.startswith("$") or any(opener in key for opener in _OPENERS) for key in value):
            yield pointer
        else:
            for key, item in value.items():
                yield from _open_places(item, f"{pointer}/{pointer_step(key)}")


_OF_KEYS = frozenset(("required", "additionalProperties", "unevaluatedProperties", "dependentRequired"))
"""Keywords that depend on the keys of an object and not on their values."""


def _is_open(pointer: str, keyword: str, open_places: set[str]) -> bool:
    """Whether a violation may only exist because of a value that is not known yet."""
    for place in open_places:
        if pointer == place or pointer.startswith(f"{place}/"):
            return True
        if place.startswith(f"{pointer}/") and keyword not in _OF_KEYS:
            return True
    return False


_COMBINING = ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas")
"""Keywords next to `properties` that may define further properties."""


def check_required(tool: Descriptor) -> Iterator[Problem]:
    """Yield a problem for each name under `required` that is not in `properties`, unless another keyword may define it.

    It is an error where no other properties are allowed: no value is valid. In an open output schema, only a name similar to
    that of a property is reported.
    """
    schemas: Mapping[str, Schema | None] = {
        "/input_schema": tool.input_schema,
        "/output_schema": tool.output_schema,
    }
    for base, schema in schemas.items():
        if schema is not None:
            index = SchemaIndex(schema)
            for site in index.walk(index.root):
                yield from _unknown_required(tool, base, site)


def _unknown_required(tool: Descriptor, base: str, site: Site) -> Iterator[Problem]:
    schema = site.schema
    if not isinstance(schema, dict) or any(key in schema for key in _COMBINING):
        return
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict) or not properties or not isinstance(required, list):
        return
    for index, name in enumerate(required):
        if isinstance(name, str) and name not in properties:
            is_closed = schema.get("additionalProperties") is False
            near = did_you_mean(name, [each for each in properties if each not in required])
            # A result may promise members without saying what they are; only a misspelt name is a mistake.
            if base == "/output_schema" and not is_closed and not near:
                continue
            pointer = base + pointer_to((*site.path, "required", index))
            line, column = tool.origin.locate(pointer)
            yield Problem(
                code="unknown_required",
                message=f"`required` names `{name}`, which is not in `properties`"
                + ("; no value can be valid" if is_closed else ""),
                pointer=pointer,
                hint=near or "add it to `properties`, or remove it",
                severity="error" if is_closed else "warning",
                source=tool.origin.file_of(pointer),
                line=line or tool.origin.line,
                column=column or 1,
            )
