"""`toolcrib list`: the tools as a table."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click

from toolcrib.cli.opening import open_runtime, tell_refusals
from toolcrib.cli.options import json_option, pack_option
from toolcrib.cli.printing import first_sentence, json_text, plural, table, terminal_width
from toolcrib.engine import Runtime
from toolcrib.model import Descriptor


@click.command("list")
@click.argument("pattern", required=False)
@click.option("--tag", metavar="TAG", help="Only tools with this tag.")
@click.option("--mode", metavar="MODE", help="Only tools that are in this mode.")
@click.option("--source", metavar="GLOB", help="Only tools from files that fit.")
@click.option("--label", metavar="KEY[=VALUE]", help="Only tools with this label.")
@json_option
@pack_option
def command(
    *,
    pattern: str | None,
    tag: str | None,
    mode: str | None,
    source: str | None,
    label: str | None,
    as_json: bool,
    packs: tuple[str, ...],
) -> None:
    """List the tools.

    With PATTERN: those whose name fits the glob.
    """
    runtime = open_runtime(packs=packs)
    tell_refusals(runtime)
    tools = runtime.registry.select(name=pattern, tag=tag, mode=mode, source=source, label=label)
    if as_json:
        click.echo(json_text({"tools": [_entry(runtime, tool) for tool in tools]}))
        return
    rows = [
        (tool.name, mode_of(runtime, tool), ", ".join(flags_of(tool)), first_sentence(tool.description))
        for tool in tools
    ]
    for line in table(rows, terminal_width()):
        click.echo(line)
    click.echo(_count_line(runtime, tools))


def mode_of(runtime: Runtime, tool: Descriptor) -> str:
    """The mode in force, as a person reads it: with `unbound` and `unavailable` where calls can't run."""
    if tool.mode is None:
        return "unbound"
    return f"{tool.mode} (unavailable)" if runtime.unavailable(tool) else tool.mode


def flags_of(tool: Descriptor) -> list[str]:
    """What one should know of a tool before using it."""
    flags = {
        "deprecated": bool(tool.deprecated),
        "experimental": tool.experimental,
        "read-only": tool.annotations.read_only,
    }
    return [flag for flag, is_so in flags.items() if is_so]


def modes_line(runtime: Runtime, tools: list[Descriptor]) -> str:
    """How many tools are in which mode: `12 mock, 1 unbound`."""
    counts = Counter(mode_of(runtime, tool) for tool in tools)
    return ", ".join(f"{count} {mode}" for mode, count in sorted(counts.items()))


def _count_line(runtime: Runtime, tools: list[Descriptor]) -> str:
    if not tools:
        return "no tool fits" if runtime.registry else "no tools"
    return f"{plural(len(tools), 'tool')}: {modes_line(runtime, tools)}"


def _entry(runtime: Runtime, tool: Descriptor) -> dict[str, Any]:
    return {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "mode": tool.mode,
        "unavailable": runtime.unavailable(tool) or None,
        "modes": list(tool.bindings),
        "tags": list(tool.tags),
        "labels": dict(tool.labels),
        "deprecated": tool.deprecated,
        "experimental": tool.experimental,
        "pack": tool.origin.pack or None,
        "source": tool.origin.source,
        "line": tool.origin.line,
    }
