"""Which tools, arguments and states assertions name, and where: what must be there for them to say anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from toolcrib.core.pointers import pointer_step
from toolcrib.loading.scenarios.agents import Assertion
from toolcrib.loading.scenarios.assertions.kinds import WRAPPER, kinds

_OF_TOOLS: Final = frozenset({"#/$defs/name", "#/$defs/names", "#/$defs/tools_or_none"})
"""What the schemas of parameters call a tool, or several."""

_OF_ARGUMENTS: Final = ("expected_args", "excluded_args", "forbidden_args", "args_match", "args")
"""Parameters whose keys are arguments of the tool beside them."""


class NameUse(NamedTuple):
    """Something that is named.

    Attributes:
        name: Its name.
        pointer: Where it stands.
        tool: Whose argument it is; empty for anything else.
    """

    name: str
    pointer: str
    tool: str = ""


def named_tools(assertion: Assertion) -> Iterator[NameUse]:
    """The tools that an assertion names, in `when` as well."""
    for schema, params, pointer in _parts(assertion):
        yield from _tools(schema["$defs"], schema, params, pointer)
    when, pointer = assertion.when, f"{assertion.pointer}/when"
    if "tool_called" in when:
        yield NameUse(when["tool_called"], f"{pointer}/tool_called")
    if isinstance(any_of := when.get("any_tool_called"), list):
        yield from (NameUse(name, f"{pointer}/any_tool_called/{index}") for index, name in enumerate(any_of))


def named_arguments(assertion: Assertion) -> Iterator[NameUse]:
    """The arguments that an assertion names, where calls that were refused for theirs don't count."""
    for _schema, params, pointer in _parts(assertion):
        if params.get("ignore_validation"):
            continue
        steps = [(step, f"{pointer}/steps/{index}") for index, step in enumerate(params.get("steps", ()))]
        for part, place in [(params, pointer), *steps]:
            tool = part.get("tool_name") or part.get("tool")
            for key in _OF_ARGUMENTS if isinstance(tool, str) else ():
                yield from (
                    NameUse(name, f"{place}/{key}/{pointer_step(name)}", tool) for name in part.get(key, ())
                )


def named_states(assertion: Assertion) -> Iterator[NameUse]:
    """The states that an assertion names."""
    for _schema, params, pointer in _parts(assertion):
        for index, rule in enumerate(params.get("rules", ())):
            yield NameUse(rule["state"], f"{pointer}/rules/{index}/state")


def _parts(assertion: Assertion) -> Iterable[tuple[dict[str, Any], Mapping[str, Any], str]]:
    """The schema of its kind, its parameters and where they stand; then those of what it wraps."""
    if assertion.unsupported:
        return
    kind, params, pointer = assertion.type, assertion.params, f"{assertion.pointer}/params"
    while kind == WRAPPER:
        kind, params, pointer = params["eval_type"], params["eval_params"], f"{pointer}/eval_params"
    yield kinds()[kind], params, pointer


def _tools(
    definitions: Mapping[str, Any], schema: Mapping[str, Any], value: Any, pointer: str
) -> Iterator[NameUse]:
    """The names of tools in a value, by what its schema says of it."""
    reference = schema.get("$ref", "")
    if reference in _OF_TOOLS:
        if isinstance(value, str):
            yield NameUse(value, pointer)
        else:
            yield from (NameUse(name, f"{pointer}/{index}") for index, name in enumerate(value))
        return
    known = {**definitions.get(reference.removeprefix("#/$defs/"), {}), **schema}
    if isinstance(value, dict):
        inner = known.get("properties", {})
        for key in value.keys() & inner.keys():
            yield from _tools(definitions, inner[key], value[key], f"{pointer}/{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _tools(definitions, known.get("items", {}), item, f"{pointer}/{index}")
