"""`toolcrib list`: the tools as a table."""

from __future__ import annotations

from typing import Any

import click

from toolcrib.cli.filters import filter_options, filters_of, tell_strangers
from toolcrib.cli.opening import open_listed, tell_closed, tell_not_queried, tell_refusals
from toolcrib.cli.options import Reading, json_option, reading_options
from toolcrib.cli.tables import json_text, terminal_width
from toolcrib.cli.tools_table import count_line, entry_of, mode_text, tool_lines
from toolcrib.cli.tools_table import modes_line as line_of_modes
from toolcrib.engine import Runtime
from toolcrib.model import Descriptor
from toolcrib.queries import Card, why_unable


@click.command("list")
@click.argument("patterns", nargs=-1, metavar="[PATTERN]...")
@filter_options
@json_option
@reading_options
def command(
    *, patterns: tuple[str, ...], hidden: bool, as_json: bool, reading: Reading, **options: Any
) -> None:
    """List the tools.

    With PATTERN: those whose name fits the glob, or one of several.

    Every option may be given several times, and a value that begins with `!` turns it around. Of tags, labels,
    annotations and toolsets a tool must have each; of names, categories, modes, files and packs one. With `--any`
    one condition is enough.
    """
    runtime = open_listed(reading)
    tell_refusals(runtime)
    tell_not_queried(runtime)
    registry = runtime.registry
    filters = filters_of({**options, "name": patterns})
    everything = registry.query(hidden=True, **filters)
    cards = everything if hidden else [card for card in everything if registry.hidden(card.name) is None]
    if as_json:
        click.echo(json_text({"tools": [entry(runtime, card) for card in cards]}))
    else:
        for line in tool_lines(cards, unable(runtime), terminal_width(), hidden=registry.hidden):
            click.echo(line)
        left = len(everything) - len(cards)
        click.echo(count_line(cards, unable(runtime), exist=bool(cards or registry.query()), hidden=left))
    tell_closed(runtime)
    if registry and not everything:
        tell_strangers(registry, filters)


def unable(runtime: Runtime) -> Any:
    """From a card to why the tool can't run as things are; empty if it can."""
    executors = runtime.executors
    return lambda card: why_unable(card, executors.modes, executors.missing)


def entry(runtime: Runtime, card: Card) -> dict[str, Any]:
    """A tool as `--json` tells it."""
    return entry_of(
        card,
        alias=runtime.registry.alias_of(card.name),
        unable=unable(runtime)(card),
        hidden=runtime.registry.hidden(card.name),
    )


def mode_of(runtime: Runtime, tool: Descriptor) -> str:
    """The mode in force, as a person reads it: with `unbound` and `unavailable` where calls can't run."""
    return mode_text(tool.mode, runtime.unavailable(tool))


def modes_line(runtime: Runtime, tools: list[Descriptor]) -> str:
    """How many tools are in which mode: `12 mock, 1 unbound`."""
    return line_of_modes(mode_of(runtime, tool) for tool in tools)
