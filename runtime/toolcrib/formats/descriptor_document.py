"""A descriptor as the document that declares it: the inverse of reading a descriptor file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from toolcrib.core.clock import format_duration
from toolcrib.core.errors import DocumentError, Problem
from toolcrib.core.model import JSON, Annotations, Descriptor
from toolcrib.core.protocols import Kinds
from toolcrib.core.text import format_size
from toolcrib.formats.yaml_writer import yaml_of
from toolcrib.loading.settings import tool_limits
from toolcrib.loading.sources import parse

_DEFAULTS: Final = Descriptor._field_defaults


def _annotations(tool: Descriptor) -> JSON:
    usual = Annotations()._asdict()
    return {key: value for key, value in tool.annotations._asdict().items() if value != usual[key]}


def _examples(tool: Descriptor) -> JSON:
    return [
        {"args": dict(each.args), **({"result": each.result} if each.has_result else {})}
        for each in tool.examples
    ]


def _limits(tool: Descriptor) -> JSON:
    found: dict[str, Any] = {}
    for key, value in tool_limits(tool).items():
        if f"limits.{key}" in tool.origin.written:
            *above, last = key.split(".")
            place = found
            for step in above:
                place = place.setdefault(step, {})
            place[last] = value
    return found


def _estimate(tool: Descriptor) -> JSON:
    duration, cost, output = tool.estimate
    said = {
        "duration": None if duration is None else format_duration(duration),
        "cost": cost,
        "output": None if output is None else format_size(output),
    }
    return {key: value for key, value in said.items() if value is not None}


_WRITERS: Final[Mapping[str, Callable[[Descriptor], JSON]]] = MappingProxyType(
    {
        "annotations": _annotations,
        "icons": lambda tool: [each.as_json() for each in tool.icons],
        "timeout": lambda tool: format_duration(tool.timeout),
        "limits": _limits,
        "examples": _examples,
        "dependencies": lambda tool: {
            key: list(names) for key, names in tool.dependencies._asdict().items() if names
        },
        "estimate": _estimate,
    }
)
"""Fields whose value in a document has another form."""

_NOT_WRITTEN: Final = frozenset({"name", "mode", "bindings", "fixture", "faults", "origin"})

_OF_PROJECTS: Final = frozenset({"timeout", "coerce", "on_invalid_result", "limits"})
"""Keys whose value may come from a project, which a document must not repeat."""


def document_of(tool: Descriptor) -> dict[str, JSON]:
    """The document of a tool, with the keys that differ from their defaults.

    Defaults of the project are not included, because they apply to the document as well. Stores are not part of
    descriptors.
    """
    document: dict[str, Any] = {"name": tool.name}
    for key, default in _DEFAULTS.items():
        if key == "bindings":
            document |= {"mode": tool.mode} if tool.mode is not None else {}
            document |= {mode: _plain(block) for mode, block in tool.bindings.items()}
        if key in _NOT_WRITTEN or (key in _OF_PROJECTS and not _is_written(tool, key)):
            continue
        value = getattr(tool, key)
        if value != default or (key == "output_schema" and key in tool.origin.written):
            written = _WRITERS[key](tool) if key in _WRITERS else _plain(value)
            # A writer leaves out the parts that have their defaults.
            document |= {} if key in _WRITERS and written in ({}, []) else {key: written}
    return document


def descriptor_text(tool: Descriptor, kinds: Kinds) -> str:
    """The text of the descriptor file of a tool, which was read back and compared.

    Args:
        tool: The tool.
        kinds: The block schemas and checks of the modes.

    Raises:
        DocumentError: The text does not describe the tool completely, such as a mock that reads another file.
    """
    document = document_of(tool)
    text = "".join(f"{line}\n" for line in yaml_of(document))
    read = parse(f"{tool.name}.tool.yaml", text, kinds)
    errors = [problem for problem in read.problems if problem.severity == "error"]
    if errors:
        raise DocumentError([_incomplete(tool, errors)])
    again = document_of(read.tools[0])
    lost = [key for key in {**document, **again} if document.get(key) != again.get(key)]
    if lost:
        keys = ", ".join(f"`{key}`" for key in lost)
        message = f"the descriptor would not describe the tool completely: {keys}"
        problem = Problem(code="not_exported", message=message, hint="write the descriptor yourself")
        raise DocumentError([problem.at(tool.origin.source, tool.origin.line, 1)])
    return text


def _incomplete(tool: Descriptor, errors: list[Problem]) -> Problem:
    """The problem of a tool that uses what is not in its document: the store and functions of its pack, or files."""
    first, *others = errors
    more = f", and {len(others)} more" if others else ""
    message = f"its descriptor alone would be invalid: {first.message}{more}"
    hint = "copy its pack or project, which has the store, functions and files that it uses"
    problem = Problem(code="not_exported", message=message, pointer=first.pointer, hint=hint)
    return problem.at(tool.origin.source, tool.origin.line, 1)


def _is_written(tool: Descriptor, key: str) -> bool:
    return any(each == key or each.startswith(f"{key}.") for each in tool.origin.written)


def _plain(value: Any) -> Any:
    """JSON containers of the plain types."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
