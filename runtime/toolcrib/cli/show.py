"""`toolcrib show`: print the details of one tool, with its parameters as a table."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.excluded_files import tell_excluded
from toolcrib.cli.list import mode_of
from toolcrib.cli.options import (
    ReadOptions,
    json_option,
    open_offline,
    print_refusals,
    print_unimported_sources,
    print_unimported_tools,
    print_unqueried_servers,
    read_options,
    tool_argument,
)
from toolcrib.cli.output import json_text, outline, print_failure, table, terminal_width
from toolcrib.core.clock import format_duration
from toolcrib.core.errors import DocumentError, ExpressionError
from toolcrib.core.model import JSON, Descriptor, Icon, Schema
from toolcrib.core.subschemas import SchemaIndex
from toolcrib.core.text import compact, escape_terminal, format_size
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.loading.settings import format_limits, tool_limits
from toolcrib.security.redaction import redact


@click.command("show")
@tool_argument
@json_option
@read_options
@click.pass_context
def command(ctx: click.Context, *, name: str, as_json: bool, reading: ReadOptions) -> None:
    """Show the details of one tool.

    Its source, its parameters and result, its modes, and why a mode cannot run here.
    """
    runtime = open_offline(reading)
    print_refusals(runtime)
    print_unqueried_servers(runtime)
    print_unimported_sources(runtime)
    print_unimported_tools(runtime, name)
    tool = runtime.registry.get(runtime.registry.named_by_alias(name) or name)
    if tool is None:
        # The same result as for a call, with near misses and the same exit code.
        result = engine_of(runtime).not_found(name, runtime.registry)
        if as_json:
            click.echo(json_text(result.as_json()))
        else:
            print_failure(result)
        tell_excluded(runtime, name)
        ctx.exit(exit_codes.OF_OUTCOME[result.outcome])
    if as_json:
        click.echo(json_text(_document(runtime, tool)))
        return
    for line in tool_lines(runtime, tool):
        click.echo(line)


def _availability(runtime: Runtime, tool: Descriptor) -> dict[str, str]:
    """Return for each mode with a block why the tool cannot run in it; empty if it can."""
    return {mode: engine_of(runtime).unavailable(tool._replace(mode=mode)) for mode in tool.bindings}


def _document(runtime: Runtime, tool: Descriptor) -> dict[str, Any]:
    document = {
        key: getattr(tool, key)
        for key in (
            "name",
            "title",
            "description",
            "version",
            "author",
            "help_url",
            "category",
            "mode",
        )
    }
    return document | {
        "timeout": engine_of(runtime).timeout_of(tool),
        "alias": runtime.registry.alias_of(tool.name),
        "tags": list(tool.tags),
        "labels": dict(tool.labels),
        "annotations": tool.annotations._asdict(),
        "icons": [icon.as_json() for icon in tool.icons],
        "unavailable": engine_of(runtime).unavailable(tool) or None,
        "modes": {mode: {"unavailable": why or None} for mode, why in _availability(runtime, tool).items()},
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "limits": format_limits(tool.limits),
        "coerce": tool.coerce,
        "on_invalid_result": tool.on_invalid_result,
        "capabilities": list(tool.capabilities),
        "platforms": list(tool.platforms),
        "dependencies": {key: list(names) for key, names in tool.dependencies._asdict().items()},
        "requires_confirmation": tool.requires_confirmation,
        "estimate": tool.estimate._asdict(),
        "examples": [_example(tool, index) for index in range(len(tool.examples))],
        "deprecated": tool.deprecated,
        "experimental": tool.experimental,
        "metadata": dict(tool.metadata),
        "bindings": redact(dict(tool.bindings)),
        "origin": {
            "source": tool.origin.source,
            "line": tool.origin.line,
            "pack": tool.origin.pack or None,
            "namespace": tool.origin.namespace or None,
            "digest": tool.origin.digest,
            "overrides": list(tool.origin.overrides),
            "settings": dict(tool.origin.settings),
            "stale": tool.origin.stale or None,
        },
    }


def _example(tool: Descriptor, index: int) -> dict[str, JSON]:
    example = tool.examples[index]
    shown = {"args": redact(dict(example.args), tool.input_schema)}
    return shown | ({"result": redact(example.result, tool.output_schema)} if example.has_result else {})


def tool_lines(runtime: Runtime, tool: Descriptor) -> Iterator[str]:
    """The details of a tool, as lines for a terminal."""
    title = f"  {escape_terminal(tool.title)}" if tool.title else ""
    yield click.style(tool.name, bold=True) + signature_of(tool) + title
    for line in escape_terminal(tool.description).splitlines():
        yield f"  {line}"
    yield ""
    yield from _indented(table(list(_facts(runtime, tool))))
    yield from _section("parameters", tool.input_schema)
    if tool.output_schema is not None:
        yield from _section("result", tool.output_schema)
    if tool.examples:
        yield from ("", "examples")
        for index in range(len(tool.examples)):
            example = _example(tool, index)
            result = f" -> {compact(example['result'])}" if "result" in example else ""
            yield escape_terminal(f"  {compact(example['args'])}{result}")
    yield from ("", "call it", f"  {call_line(tool)}")
    if tool.metadata:
        yield from ("", "metadata")
        yield from _indented(escape_terminal(line) for line in outline(dict(tool.metadata)))


def signature_of(tool: Descriptor) -> str:
    """The arguments of a tool: `(city, days=3, unit?)`; empty if its schema is not a plain object."""
    schema: Any = tool.input_schema
    if not isinstance(schema, dict) or not isinstance(properties := schema.get("properties", {}), dict):
        return ""
    required = schema.get("required", [])
    words = []
    for name, part in properties.items():
        default = f"={compact(part['default'])}" if isinstance(part, dict) and "default" in part else "?"
        words.append(name if name in required else name + default)
    return escape_terminal(f"({', '.join(words)})")


def call_line(tool: Descriptor) -> str:
    """A command line that calls the tool, with the arguments of its first example, or with generated ones."""
    arguments: Any = redact(example_arguments(tool), tool.input_schema)
    words = [
        f"{name}={value}" if isinstance(value, str) else f"{name}:={compact(value)}"
        for name, value in arguments.items()
    ]
    return escape_terminal(shlex.join(["toolcrib", "call", tool.name, *words]))


def example_arguments(tool: Descriptor) -> dict[str, JSON]:
    """The arguments of the first example of a tool, or generated ones; empty if none are easy to find."""
    if tool.examples:
        return dict(tool.examples[0].args)
    if not tool.input_schema:
        return {}
    from toolcrib.schema.generation import KeyedRandom, arguments_for  # noqa: PLC0415 -- slow to import

    try:
        (arguments,) = arguments_for(tool.input_schema, KeyedRandom(0, tool.name, "show"), 1)
    except (ExpressionError, DocumentError):  # a schema without a value that is easy to find
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _facts(runtime: Runtime, tool: Descriptor) -> Iterator[tuple[str, str]]:
    availability = _availability(runtime, tool)
    # `destructive` is true by default and has no meaning for a read-only tool, so showing it would only
    # confuse.
    effects = (
        tool.annotations if not tool.annotations.read_only else tool.annotations._replace(destructive=False)
    )
    origin, alias = tool.origin, runtime.registry.alias_of(tool.name)
    facts = {
        "file": origin.place(),
        "overrides": ", ".join(origin.overrides),
        "stale": origin.stale,
        "pack": origin.pack,
        "namespace": origin.namespace,
        "alias": alias if alias != tool.name else "",
        "mode": mode_of(runtime, tool) + _set_by(tool, "mode"),
        "live": _request(tool),
        "available in": ", ".join(mode for mode, why in availability.items() if not why),
        "deprecated": tool.deprecated
        if isinstance(tool.deprecated, str)
        else "yes"
        if tool.deprecated
        else "",
        "experimental": "yes" if tool.experimental else "",
        "a call is": ", ".join(key.replace("_", " ") for key, is_so in effects._asdict().items() if is_so),
        "capabilities": ", ".join(tool.capabilities),
        "platforms": ", ".join(tool.platforms),
        "needs": ", ".join(_needs(tool)),
        "confirmation": _confirmation(tool),
        "estimate": ", ".join(_estimate(tool)),
        "tags": ", ".join(tool.tags),
        "labels": ", ".join(f"{key}={value}" for key, value in tool.labels.items()),
        "category": tool.category,
        "version": tool.version,
        "author": tool.author,
        "help": tool.help_url,
        "icons": ", ".join(_in_short(icon) for icon in tool.icons),
        "timeout": _timeout(runtime, tool),
        "limits": ", ".join(_limits(tool)),
        "coercion": tool.coerce + _set_by(tool, "coerce"),
        "invalid result": tool.on_invalid_result + _set_by(tool, "on_invalid_result"),
    }
    yield from ((key, value) for key, value in facts.items() if value)
    reasons = [
        *availability.values(),
        "" if tool.mode in availability else engine_of(runtime).unavailable(tool),
    ]
    for why in filter(None, dict.fromkeys(reasons)):
        yield "unavailable", why


def _needs(tool: Descriptor) -> Iterator[str]:
    """The dependencies, each with its kind."""
    for kind, names in zip(("package", "command", "tool", "variable"), tool.dependencies, strict=True):
        yield from (f"{kind} {name}" for name in names)


def _confirmation(tool: Descriptor) -> str:
    """The question for the person who approves a call; empty if no approval is needed."""
    if isinstance(tool.requires_confirmation, str):
        return tool.requires_confirmation
    return "required for each call" if tool.requires_confirmation else ""


def _estimate(tool: Descriptor) -> Iterator[str]:
    duration, cost, output = tool.estimate
    if duration is not None:
        yield format_duration(duration)
    if cost is not None:
        yield f"${cost:g}"
    if output is not None:
        yield format_size(output)


def _in_short(icon: Icon) -> str:
    """Shorten an icon; only the beginning of a `data:` URL is shown."""
    src = icon.src if len(icon.src) <= 80 else f"{icon.src[:79]}…"
    more = " ".join(filter(None, (icon.mime_type, *icon.sizes, icon.theme)))
    return f"{src} ({more})" if more else src


def _request(tool: Descriptor) -> str:
    """Method and URL of a live tool, as written; empty for other tools."""
    block: Any = redact(tool.bindings.get("live"))
    return f"{block.get('method', 'GET')} {block['url']}" if block is not None else ""


def _timeout(runtime: Runtime, tool: Descriptor) -> str:
    """The timeout of a call, and its source unless it is the document of the tool."""
    seconds = engine_of(runtime).timeout_of(tool)
    return format_duration(seconds) + (_set_by(tool, "timeout") if seconds == tool.timeout else "")


def _limits(tool: Descriptor) -> Iterator[str]:
    """The limits that a document or a setting defines."""
    for name, limit in tool_limits(tool).items():
        yield f"{name} {limit}{_set_by(tool, f'limits.{name}')}"


def _set_by(tool: Descriptor, key: str) -> str:
    """The source of a value that a setting overrides; empty for other values."""
    place = tool.origin.settings.get(key)
    return f", by {place}" if place is not None else ""


def _section(title: str, schema: Schema) -> Iterator[str]:
    """A schema as a table of its properties, or as JSON if it is not a plain object."""
    rows = parameter_rows(schema)
    yield ""
    if rows is None:
        yield title
        yield from _indented(json_text(schema).splitlines())
    elif not rows:
        yield f"{title}: none"
    else:
        head, *lines = table([("name", "type", "", "default", "description"), *rows], _inner_width())
        yield title
        yield from _indented([click.style(head, dim=True), *lines])


def _inner_width() -> int | None:
    width = terminal_width()
    return None if width is None else width - 2


def _indented(lines: Any) -> Iterator[str]:
    return (f"  {line}" for line in lines)


DEPTH = 3
"""Levels of nested objects that the table expands."""

Row = tuple[str, str, str, str, str]


def parameter_rows(schema: Schema) -> list[Row] | None:
    """The rows `name, type, required, default, description`; None for a schema that is not a plain object."""
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        return None
    if "properties" not in schema:
        return [] if schema.get("additionalProperties") is False else None
    return list(_rows(schema, SchemaIndex(schema), "", DEPTH))


def _rows(schema: Mapping[str, Any], index: SchemaIndex, lead: str, depth: int) -> Iterator[Row]:
    required = schema.get("required", [])
    for name, subschema in schema["properties"].items():
        part = subschema if isinstance(subschema, dict) else {}
        target = _resolved(part, index)
        default = compact(part["default"]) if "default" in part else ""
        needed = "required" if name in required else ""
        description = str(part.get("description", target.get("description", "")))
        yield f"{lead}{name}", type_of(part), needed, default, description
        inner = target.get("items") if target.get("type") == "array" else target
        inner = _resolved(inner, index) if isinstance(inner, dict) else {}
        if "properties" in inner and depth > 1:
            mark = "[]." if inner is not target else "."
            yield from _rows(inner, index, f"{lead}{name}{mark}", depth - 1)


def _resolved(schema: Mapping[str, Any], index: SchemaIndex) -> Mapping[str, Any]:
    """Resolve a `$ref` within the document; return any other schema unchanged."""
    reference = schema.get("$ref")
    site = index.resolve(reference, index.root.base) if isinstance(reference, str) else None
    return site.schema if site is not None and isinstance(site.schema, dict) else schema


def type_of(schema: Mapping[str, Any]) -> str:
    """Describe the type of a value: `integer 1..7`, `"a" | "b"`, `array of string`."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema:
        return compact(schema["const"])
    if "enum" in schema:
        return " | ".join(compact(item) for item in schema["enum"])
    for keyword in ("anyOf", "oneOf"):
        if keyword in schema:
            return " | ".join(type_of(branch) for branch in schema[keyword] if isinstance(branch, dict))
    types = schema.get("type", "any")
    names = types if isinstance(types, list) else [types]
    return " | ".join(_NAMED.get(name, _plain)(str(name), schema) for name in names)


def _plain(name: str, _schema: Mapping[str, Any]) -> str:
    return name


def _number(name: str, schema: Mapping[str, Any]) -> str:
    low = _bound(schema, "minimum", "exclusiveMinimum", ">")
    high = _bound(schema, "maximum", "exclusiveMaximum", "<")
    return f"{name} {low}..{high}" if low or high else name


def _bound(schema: Mapping[str, Any], inclusive: str, exclusive: str, sign: str) -> str:
    if inclusive in schema:
        return compact(schema[inclusive])
    bound = schema.get(exclusive)  # a boolean in draft 4
    return sign + compact(bound) if isinstance(bound, int | float) and not isinstance(bound, bool) else ""


def _string(name: str, schema: Mapping[str, Any]) -> str:
    extra: JSON = schema.get("format", "")
    return f"{name} ({extra})" if extra else name


def _array(name: str, schema: Mapping[str, Any]) -> str:
    items = schema.get("items")
    return f"{name} of {type_of(items)}" if isinstance(items, dict) and items else name


_NAMED: Mapping[str, Callable[[str, Mapping[str, Any]], str]] = {
    "array": _array,
    "integer": _number,
    "number": _number,
    "string": _string,
}
