"""One page of documentation for a set of tools, as Markdown or as HTML that needs no network.

Descriptions are plain text: nothing in them is interpreted as Markdown or HTML.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any, Final, NamedTuple

from toolcrib.core.model import JSON, Descriptor, Schema
from toolcrib.core.subschemas import SchemaIndex, described_names
from toolcrib.core.text import compact
from toolcrib.formats.mcp_tools import description_of

_MOST_ALLOWED: Final = 12
"""Number of the values of an `enum` that a row shows; the others are counted."""

_BOUNDS: Final = (
    ("minimum", "at least {}"),
    ("exclusiveMinimum", "more than {}"),
    ("maximum", "at most {}"),
    ("exclusiveMaximum", "less than {}"),
    ("multipleOf", "a multiple of {}"),
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {} items"),
    ("maxItems", "at most {} items"),
    ("pattern", "matches {}"),
    ("format", "format {}"),
)


class Argument(NamedTuple):
    """A row of the table of arguments."""

    name: str
    type: str
    required: bool
    meaning: str


class ToolSection(NamedTuple):
    """What the page says of a tool.

    Attributes:
        name: Its name.
        anchor: Its anchor in the page.
        title: Its title; empty for none.
        description: Its description.
        facts: Properties in words, such as `read-only`.
        arguments: The rows of its arguments.
        result: Its output schema as JSON; empty for none.
        examples: Arguments and results of its examples, as JSON.
    """

    name: str
    anchor: str
    title: str
    description: str
    facts: tuple[str, ...]
    arguments: tuple[Argument, ...]
    result: str
    examples: tuple[tuple[str, str], ...]


def sections_of(tools: Iterable[Descriptor], names: Mapping[str, str]) -> list[ToolSection]:
    """The sections of tools, sorted by name; `names` maps a name to its provider-safe alias, the anchor."""
    return [
        _section(tool, names.get(tool.name, tool.name)) for tool in sorted(tools, key=lambda each: each.name)
    ]


def _section(tool: Descriptor, anchor: str) -> ToolSection:
    examples = [
        (_json(dict(example.args)), _json(example.result) if example.has_result else "")
        for example in tool.examples
    ]
    output = tool.output_schema
    return ToolSection(
        tool.name,
        anchor,
        tool.title,
        description_of(tool),
        tuple(_facts(tool)),
        tuple(_arguments(tool.input_schema)),
        "" if output is None else _json(output),
        tuple(examples),
    )


def _json(value: JSON) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def _facts(tool: Descriptor) -> Iterator[str]:
    hints = tool.annotations
    yield "read-only" if hints.read_only else "destructive" if hints.destructive else "makes changes"
    if hints.idempotent and not hints.read_only:
        yield "idempotent"
    if tool.requires_confirmation:
        yield "needs approval"
    if tool.deprecated:
        yield f"deprecated: {tool.deprecated}" if isinstance(tool.deprecated, str) else "deprecated"
    if tool.experimental:
        yield "experimental"
    if tool.version:
        yield f"version {tool.version}"
    yield from (f"tag {tag}" for tag in tool.tags)


def _arguments(schema: Schema) -> Iterator[Argument]:
    index = SchemaIndex(schema)
    roots = index.together([index.root], ("allOf",))
    lists = [site.get("required") for site in roots]
    needed = {name for names in lists if isinstance(names, list) for name in names}
    for name in dict.fromkeys(name for site in roots for name in described_names(site.schema)):
        # References and parts of `allOf` describe the same argument; the first one that has a keyword counts.
        whole: dict[str, JSON] = {}
        for site in index.together(index.below(roots, name)):
            whole = {**(site.schema if isinstance(site.schema, dict) else {}), **whole}
        yield Argument(name, _type_of(whole), name in needed, _meaning_of(whole))


def _type_of(schema: Mapping[str, Any]) -> str:
    said = schema.get("type")
    if isinstance(said, list):
        return " or ".join(map(str, said))
    if said == "array":
        items = schema.get("items")
        return f"array of {_type_of(items)}" if isinstance(items, dict) and "type" in items else "array"
    return str(said) if isinstance(said, str) else "any"


def _meaning_of(schema: Mapping[str, Any]) -> str:
    parts = [str(schema["description"]).strip()] if schema.get("description") else []
    if isinstance(schema.get("enum"), list):
        values = [compact(value) for value in schema["enum"]]
        more = f" and {len(values) - _MOST_ALLOWED} more" if len(values) > _MOST_ALLOWED else ""
        parts.append(f"One of {', '.join(values[:_MOST_ALLOWED])}{more}.")
    bounds = [text.format(schema[key]) for key, text in _BOUNDS if key in schema]
    if bounds:
        parts.append(f"{', '.join(bounds).capitalize()}.")
    if "default" in schema:
        parts.append(f"Default: {compact(schema['default'])}.")
    return " ".join(parts)


# Markdown.

_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]<>()#+!|~&])|^(\s*)(?=[-=>]|\d+[.)])", re.MULTILINE)


def markdown_page(title: str, description: str, sections: Iterable[ToolSection]) -> str:
    """The page as Markdown (CommonMark with tables)."""
    return "\n".join(_markdown(title, description, sections)) + "\n"


def _markdown(title: str, description: str, sections: Iterable[ToolSection]) -> Iterator[str]:
    yield f"# {_plain(title)}"
    if description:
        yield from ("", _plain(description))
    for tool in sections:
        yield from ("", f"## {_code(tool.name)}", "")
        if tool.title:
            yield from (f"**{_plain(tool.title)}**", "")
        yield from (_plain(tool.description), "", f"*{_plain(', '.join(tool.facts))}*", "")
        if tool.arguments:
            yield from ("| argument | type | required | meaning |", "|---|---|---|---|")
            for each in tool.arguments:
                required = "yes" if each.required else "no"
                yield f"| {_code(each.name)} | {_cell(each.type)} | {required} | {_cell(each.meaning)} |"
        else:
            yield "No arguments."
        if tool.result:
            yield from ("", "Result:", "", *_fenced(tool.result))
        for arguments, result in tool.examples:
            yield from ("", "Example:", "", *_fenced(arguments))
            if result:
                yield from ("", "gives", "", *_fenced(result))


def _plain(text: str) -> str:
    return _SPECIAL.sub(lambda match: f"\\{match[1]}" if match[1] else f"{match[2]}\\", text)


def _cell(text: str) -> str:
    return _plain(" ".join(text.split()))


def _code(text: str) -> str:
    ticks = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    # A pipe would end the cell of a table, also within code.
    return f"{ticks}{text}{ticks}".replace("|", "\\|")


def _fenced(text: str) -> Iterator[str]:
    fence = "`" * max(3, max(map(len, re.findall("`+", text)), default=0) + 1)
    yield from (f"{fence}json", text, fence)


# HTML.

_STYLE: Final = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem; padding: 1.5rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9em; }
pre { border: 1px solid #8884; border-radius: 6px; overflow-x: auto; padding: 0.75rem; }
table { border-collapse: collapse; display: block; overflow-x: auto; }
th, td { border: 1px solid #8884; padding: 0.3rem 0.6rem; text-align: left; vertical-align: top; }
.facts { color: #808080; }
.text { white-space: pre-line; }
section { border-top: 1px solid #8884; margin-top: 2rem; }
""".strip()


def html_page(title: str, description: str, sections: Iterable[ToolSection]) -> str:
    """The page as HTML; it loads nothing."""
    return "\n".join(_html(title, description, list(sections))) + "\n"


def _html(title: str, description: str, sections: list[ToolSection]) -> Iterator[str]:
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
    yield f"<h1>{escape(title)}</h1>"
    if description:
        yield f'<p class="text">{escape(description)}</p>'
    entries = (f'<li><a href="#{escape(tool.anchor)}">{escape(tool.name)}</a></li>' for tool in sections)
    yield f"<nav><ul>{''.join(entries)}</ul></nav>"
    for tool in sections:
        yield f'<section id="{escape(tool.anchor)}"><h2><code>{escape(tool.name)}</code></h2>'
        if tool.title:
            yield f"<p><strong>{escape(tool.title)}</strong></p>"
        yield f'<p class="text">{escape(tool.description)}</p><p class="facts">{escape(", ".join(tool.facts))}</p>'
        if tool.arguments:
            yield "<table><thead><tr><th>argument</th><th>type</th><th>required</th><th>meaning</th></tr></thead><tbody>"
            for each in tool.arguments:
                required = "yes" if each.required else "no"
                cells = (
                    f"<code>{escape(each.name)}</code>",
                    escape(each.type),
                    required,
                    escape(each.meaning),
                )
                yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
            yield "</tbody></table>"
        else:
            yield "<p>No arguments.</p>"
        if tool.result:
            yield f"<h3>Result</h3><pre>{escape(tool.result)}</pre>"
        for arguments, result in tool.examples:
            yield f"<h3>Example</h3><pre>{escape(arguments)}</pre>"
            if result:
                yield f"<p>gives</p><pre>{escape(result)}</pre>"
        yield "</section>"
    yield "</body></html>"
