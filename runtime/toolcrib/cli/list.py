"""`toolcrib list` and `toolcrib search`: tools as a table."""

from __future__ import annotations

import os
from typing import Any

import click

from toolcrib.cli.options import (
    ReadOptions,
    filter_options,
    json_option,
    list_exit_code,
    open_offline,
    parse_filters,
    print_refusals,
    print_unknown_filters,
    print_unqueried_servers,
    print_why_closed,
    read_options,
)
from toolcrib.cli.output import (
    count_line,
    entry_of,
    json_text,
    mode_text,
    not_offered_note,
    plural,
    terminal_width,
    tool_lines,
)
from toolcrib.cli.output import modes_line as line_of_modes
from toolcrib.core.model import Descriptor
from toolcrib.core.text import escape_terminal
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import Runtime
from toolcrib.registry.catalog import Card, why_unable


def _existing(_ctx: click.Context, _param: click.Parameter, paths: tuple[str, ...]) -> tuple[str, ...]:
    for path in paths:
        if not os.path.lexists(path):
            name = escape_terminal(path)
            raise click.BadParameter(
                f"there is no file or folder `{name}`; to choose tools by name, write `--name '{name}'`"
            )
    return paths


@click.command("list")
@click.argument("paths", nargs=-1, metavar="[PATH]...", callback=_existing)
@filter_options
@click.option(
    "--strict",
    is_flag=True,
    help="Fail where the list is empty or not the whole truth: a document has a problem, a server was not asked.",
)
@json_option
@read_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    paths: tuple[str, ...],
    hidden: bool,
    strict: bool,
    as_json: bool,
    reading: ReadOptions,
    **options: Any,
) -> None:
    """List the tools.

    Without PATH: the project, or the folders `descriptors` and `packs`. Ends with 1 when a source does not exist, or when
    nothing is listed because documents have errors.

    Every option may be given several times, and a value that begins with `!` turns it around. Of tags, labels,
    annotations and toolsets a tool must have each; of names, categories, modes, files and packs one. With `--any`
    one condition is enough.
    """
    runtime = open_offline(reading, paths)
    print_refusals(runtime)
    if strict:
        for problem in runtime.problems:
            if problem.severity != "error":
                click.echo(escape_terminal(str(problem)), err=True)
    print_unqueried_servers(runtime)
    registry = runtime.registry
    filters = parse_filters(options)
    everything = registry.query(hidden=True, **filters)
    cards = everything if hidden else [card for card in everything if registry.hidden(card.name) is None]
    if as_json:
        tools = [tool_entry(runtime, card) for card in cards]
        click.echo(json_text({"tools": tools, "servers": _servers(runtime)}))
    else:
        for line in tool_lines(cards, unavailability(runtime), terminal_width(), hidden=registry.hidden):
            click.echo(line)
        left = len(everything) - len(cards)
        exist = bool(cards or registry.query())
        unasked = len(engine_of(runtime).undiscovered)
        click.echo(count_line(cards, unavailability(runtime), exist=exist, hidden=left, unasked=unasked))
    print_why_closed(runtime)
    if registry and not everything:
        print_unknown_filters(registry, filters)
    ctx.exit(list_exit_code(runtime, empty=not cards, strict=strict))


def _servers(runtime: Runtime) -> list[dict[str, Any]]:
    """Of each server, whether its tools are known: from the lock, or from what it answered some time ago."""
    unasked, remembered = {*engine_of(runtime).undiscovered}, engine_of(runtime).stock.remembered
    return [
        {
            "name": name,
            "state": "not queried" if name in unasked or name in remembered else "known",
            "as_of": remembered.get(name),
        }
        for name in runtime.servers
    ]


def unavailability(runtime: Runtime) -> Any:
    """From a card to why the tool can't run as things are; empty if it can."""
    executors = engine_of(runtime).executors
    return lambda card: why_unable(card, executors.modes, executors.missing)


def tool_entry(runtime: Runtime, card: Card) -> dict[str, Any]:
    """A tool as `--json` tells it."""
    return entry_of(
        card,
        alias=runtime.registry.alias_of(card.name),
        unable=unavailability(runtime)(card),
        hidden=runtime.registry.hidden(card.name),
    )


def mode_of(runtime: Runtime, tool: Descriptor) -> str:
    """The mode in force, as a person reads it: with `unbound` and `unavailable` where calls can't run."""
    return mode_text(tool.mode, engine_of(runtime).unavailable(tool))


def modes_summary(runtime: Runtime, tools: list[Descriptor]) -> str:
    """How many tools are in which mode: `12 mock, 1 unbound`."""
    return line_of_modes(mode_of(runtime, tool) for tool in tools)


@click.command("search")
@click.argument("words", nargs=-1, required=True)
@filter_options
@click.option(
    "-n",
    "most",
    metavar="N",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Show at most so many tools.",
)
@json_option
@read_options
@click.pass_context
def search(
    ctx: click.Context,
    /,
    *,
    words: tuple[str, ...],
    hidden: bool,
    most: int,
    as_json: bool,
    reading: ReadOptions,
    **options: Any,
) -> None:
    """Search the tools for words.

    Words are looked for in names, titles, tags, categories, arguments and descriptions, without regard to case,
    accents and plurals; the beginning of a word is enough. Tools that have more of the words, rarer words, and
    words in their names stand first. The other options are those of `toolcrib list`.
    """
    runtime = open_offline(reading)
    print_refusals(runtime)
    print_unqueried_servers(runtime)
    registry = runtime.registry
    filters = parse_filters(options)
    everything = registry.search(" ".join(words), hidden=True, **filters)
    hits = everything if hidden else [hit for hit in everything if registry.hidden(hit.card.name) is None]
    shown = hits[:most]
    if as_json:
        tools = [{**tool_entry(runtime, hit.card), "score": hit.score} for hit in shown]
        click.echo(json_text({"tools": tools, "found": len(hits)}))
    else:
        cards = [hit.card for hit in shown]
        for line in tool_lines(cards, unavailability(runtime), terminal_width(), hidden=registry.hidden):
            click.echo(line)
        click.echo(
            _count_line(
                len(shown), len(hits), exist=bool(registry.query()), hidden=len(everything) - len(hits)
            )
        )
    print_why_closed(runtime)
    if registry and not everything:
        print_unknown_filters(registry, filters)
    ctx.exit(list_exit_code(runtime, empty=not hits))


def _count_line(shown: int, found: int, *, exist: bool, hidden: int) -> str:
    told = plural(found, "tool") if found else "no tool fits" if exist else "no tools"
    more = f", the best {shown} of them shown; `-n` shows more" if shown < found else ""
    return told + more + not_offered_note(hidden)
