"""The page of diff verdicts: pairs of tools, and what `toolcrib diff` says of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import click

from toolcrib.cli.diff import ToolSet, report_lines
from toolcrib.executors import Executors
from toolcrib.formats.mcp_tools import definition_of
from toolcrib.loading.sources import parse
from toolcrib.servers.lock_diff import compare_sets


class Change(NamedTuple):
    """A change of a tool.

    Attributes:
        title: The change.
        verdicts: What `toolcrib diff` says.
        why: Why, for the reader.
        old: The tool before; empty if there was none.
        new: The tool after; empty if it is gone.
    """

    title: str
    verdicts: tuple[str, ...]
    why: str
    old: str
    new: str


def _tool(more: str, description: str = "Find an order by its number.") -> str:
    return f"name: find_order\ndescription: {description}\n{more}"


_OPEN = "input_schema: {type: object, properties: {number: {type: string}}}\n"
_PLAIN = "input_schema: {type: object, properties: {number: {type: string}}, additionalProperties: false}\n"

CHANGES = (
    Change(
        "A new tool",
        ("compatible", "prompt-affecting"),
        "No call of before changes. A model reads one tool more, and may use it instead of another.",
        "",
        _tool(_PLAIN),
    ),
    Change(
        "A tool is gone, or has another name",
        ("breaking", "compatible", "prompt-affecting"),
        "Calls of the old name fail; that there is a new name is compatible. If only the name differs, the report says which tool it became.",
        _tool(_PLAIN),
        "name: get_order\ndescription: Find an order by its number.\n" + _PLAIN,
    ),
    Change(
        "Another description",
        ("prompt-affecting",),
        "The same calls are valid. A model may make others.",
        _tool(_PLAIN),
        _tool(_PLAIN, "Find an order by its number. Ask for the number first."),
    ),
    Change(
        "A further optional argument",
        ("compatible",),
        "Calls without it stay valid. With a description, the change is `prompt-affecting`, too.",
        _tool(_PLAIN),
        _tool(
            "input_schema: {type: object, properties: {number: {type: string}, days: {type: integer}}, "
            "additionalProperties: false}\n"
        ),
    ),
    Change(
        "An optional argument of a tool that accepts any",
        ("compatible",),
        "A caller could have sent a text as `days`, which is now refused. Arguments that no schema describes are not counted.",
        _tool(_OPEN),
        _tool("input_schema: {type: object, properties: {number: {type: string}, days: {type: integer}}}\n"),
    ),
    Change(
        "An argument becomes required",
        ("breaking",),
        "Calls without it are refused.",
        _tool(_PLAIN),
        _tool(
            "input_schema: {type: object, properties: {number: {type: string}}, required: [number], additionalProperties: false}\n"
        ),
    ),
    Change(
        "An argument accepts more",
        ("compatible",),
        "All old values are still valid.",
        _tool("input_schema: {type: object, properties: {days: {type: integer, maximum: 30}}}\n"),
        _tool("input_schema: {type: object, properties: {days: {type: integer, maximum: 90}}}\n"),
    ),
    Change(
        "An argument accepts less",
        ("breaking",),
        "Some values that were valid are refused.",
        _tool("input_schema: {type: object, properties: {state: {enum: [open, paid, lost]}}}\n"),
        _tool("input_schema: {type: object, properties: {state: {enum: [open, paid]}}}\n"),
    ),
    Change(
        "An argument is written otherwise, and accepts the same",
        ("compatible",),
        "The comparison is of the values and not of the text.",
        _tool("input_schema: {type: object, properties: {state: {anyOf: [{const: open}, {const: paid}]}}}\n"),
        _tool("input_schema: {type: object, properties: {state: {enum: [open, paid]}}}\n"),
    ),
    Change(
        "A pattern changes",
        ("breaking",),
        "Nothing proves that the new pattern matches what the old one matched, so the verdict is `breaking`.",
        _tool('input_schema: {type: object, properties: {number: {type: string, pattern: "^[0-9]{4}$"}}}\n'),
        _tool('input_schema: {type: object, properties: {number: {type: string, pattern: "^[0-9]+$"}}}\n'),
    ),
    Change(
        "A result promises more",
        ("compatible",),
        "Whoever reads results finds all that was there before.",
        _tool(_PLAIN + "output_schema: {type: object, required: [total]}\n"),
        _tool(_PLAIN + "output_schema: {type: object, required: [total, currency]}\n"),
    ),
    Change(
        "A result promises less",
        ("breaking",),
        "Who relies on `total` fails.",
        _tool(_PLAIN + "output_schema: {type: object, required: [total]}\n"),
        _tool(_PLAIN + "output_schema: {type: object}\n"),
    ),
    Change(
        "A tool no longer only reads",
        ("breaking",),
        "Its calls were repeated and made without asking, because it changed nothing.",
        _tool("annotations: {read_only: true}\n" + _PLAIN),
        _tool(_PLAIN),
    ),
    Change(
        "A setting that no caller sees",
        (),
        "Lines with `~` note it; it does not affect callers.",
        _tool(_PLAIN),
        _tool(_PLAIN + "timeout: 5s\n"),
    ),
)
"""The changes, in the order of the page."""


def tool_set(label: str, text: str) -> ToolSet:
    """The tools of a text."""
    read = parse(f"{label}.tool.yaml", text, Executors.installed()) if text else None
    tools = {tool.name: tool for tool in read.tools} if read is not None else {}
    return ToolSet(label, {name: definition_of(tool) for name, tool in tools.items()}, tools)


def verdicts_of(change: Change) -> tuple[str, ...]:
    """The verdicts of a change."""
    sets = [tool_set(label, text).definitions for label, text in (("old", change.old), ("new", change.new))]
    return compare_sets(*sets).verdicts


def section(change: Change) -> Iterator[str]:
    """The lines about a change."""
    verdicts = ", ".join(f"`{each}`" for each in change.verdicts) or "no change"
    yield f"### {change.title}\n"
    yield f"{verdicts}. {change.why}\n"
    for label, text in (("Before", change.old), ("After", change.new)):
        if text:
            yield f"{label}:\n\n```yaml\n{text}```\n"
    said = click.unstyle("\n".join(report_lines(tool_set("old", change.old), tool_set("new", change.new))))
    yield f"```text\n{said}\n```\n"
