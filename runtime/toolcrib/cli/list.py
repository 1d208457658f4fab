"""`toolcrib list` and `toolcrib search`: print tools as a table."""

from __future__ import annotations

import os
from collections.abc import Callable
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
    print_unimported_sources,
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
        # click.Path would only say that the path does not exist; `toolcrib list NAME` is the usual mistake.
        if not os.path.lexists(path):
            name = escape_terminal(path)
            raise click.BadParameter(
                f"file or folder `{name}` does not exist; to filter tools by name, use `--name '{name}'`"
            )
    return paths


@click.command("list")
@click.argument("paths", nargs=-1, metavar="[PATH]...", callback=_existing)
@filter_options
@click.option(
    "--strict",
    is_flag=True,
    help="Fail if the list is empty or incomplete: a document has a problem, or a server was not queried.",
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

    Without PATH: the project, or the folders `descriptors` and `packs`. Exits with 1 if a source does not exist, or if
    nothing is listed because documents have errors.

    Every filter can be repeated, and a value that starts with `!` negates it. Tags, labels, annotations and toolsets
    must all match; for names, categories, modes, files and packs any match is enough. With `--any`, one matching
    filter is enough.
    """
    runtime = open_offline(reading, paths)
    print_refusals(runtime)
    if strict:
        for problem in runtime.problems:
            if problem.severity != "error":
                click.echo(escape_terminal(str(problem)), err=True)
    print_unqueried_servers(runtime)
    print_unimported_sources(runtime)
    registry = runtime.registry
    filters = parse_filters(options)
    everything = registry.query(hidden=True, **filters)
    cards = everything if hidden else [card for card in everything if registry.hidden(card.name) is None]
    if as_json:
        unable = unavailability(runtime)
        tools = [tool_entry(runtime, card, unable) for card in cards]
        sources = _python_sources(runtime)
        click.echo(json_text({"tools": tools, "servers": _servers(runtime), "python": sources}))
    else:
        why_unable_here = unavailability(runtime)
        reasons = {card.name: why_unable_here(card) for card in cards}
        for line in tool_lines(
            cards, lambda card: reasons[card.name], terminal_width(), hidden=registry.hidden
        ):
            click.echo(line)
        left = len(everything) - len(cards)
        # Tells filters that match nothing from a project without tools.
        exist = bool(cards or registry.query())
        # A server without a lock and a remembered answer may have tools that the list does not show.
        unasked = len(engine_of(runtime).undiscovered)
        click.echo(
            count_line(cards, lambda card: reasons[card.name], exist=exist, hidden=left, unasked=unasked)
        )
    print_why_closed(runtime)
    if registry and not everything:
        print_unknown_filters(registry, filters)
    ctx.exit(list_exit_code(runtime, empty=not cards, strict=strict))


def _servers(runtime: Runtime) -> list[dict[str, Any]]:
    """Report for each server whether its tools are known from the lock, or remembered from an earlier answer."""
    unasked, remembered = {*engine_of(runtime).undiscovered}, engine_of(runtime).stock.remembered
    return [
        {
            "name": name,
            "state": "not queried" if name in unasked or name in remembered else "known",
            "as_of": remembered.get(name),
        }
        for name in runtime.servers
    ]


def _python_sources(runtime: Runtime) -> list[dict[str, Any]]:
    """Report for each Python source since when its tools are known, and whether its files have changed since."""
    stock = engine_of(runtime).stock
    unknown: tuple[str | None, bool | None] = (None, None)
    known = {source.name: stock.recalled.get(source.name, unknown) for source in stock.python}
    return [
        {"name": name, "state": "not imported", "as_of": when, "changed": changed}
        for name, (when, changed) in known.items()
    ]


def unavailability(runtime: Runtime) -> Callable[[Card], str]:
    """Return a function from a card to why the tool cannot run here; empty if it can."""
    executors, unmet = engine_of(runtime).executors, engine_of(runtime).environment_check()
    return lambda card: why_unable(card, executors.modes, executors.missing, unmet)


def tool_entry(runtime: Runtime, card: Card, unable: Callable[[Card], str]) -> dict[str, Any]:
    """The JSON object of a tool; `unable` is the result of `unavailability`."""
    return entry_of(
        card,
        alias=runtime.registry.alias_of(card.name),
        unable=unable(card),
        hidden=runtime.registry.hidden(card.name),
    )


def mode_of(runtime: Runtime, tool: Descriptor) -> str:
    """The active mode for people; `unbound` or `(unavailable)` if calls cannot run."""
    return mode_text(tool.mode, engine_of(runtime).unavailable(tool))


def modes_summary(runtime: Runtime, tools: list[Descriptor]) -> str:
    """Count the tools by mode: `12 mock, 1 unbound`."""
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
    help="Show at most N tools.",
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
    """Search the tools by keyword.

    Words are searched in names, titles, tags, categories, arguments and descriptions, ignoring case, accents and
    plurals; the beginning of a word is enough. Tools that match more words, rarer words, or words in their names come
    first. The filters are those of `toolcrib list`.
    """
    runtime = open_offline(reading)
    print_refusals(runtime)
    print_unqueried_servers(runtime)
    print_unimported_sources(runtime)
    registry = runtime.registry
    filters = parse_filters(options)
    everything = registry.search(" ".join(words), hidden=True, **filters)
    hits = everything if hidden else [hit for hit in everything if registry.hidden(hit.card.name) is None]
    shown = hits[:most]
    if as_json:
        unable = unavailability(runtime)
        tools = [{**tool_entry(runtime, hit.card, unable), "score": hit.score} for hit in shown]
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
    told = plural(found, "tool") if found else "no tool matches" if exist else "no tools"
    more = f", the best {shown} of them shown; use `-n` to see more" if shown < found else ""
    return told + more + not_offered_note(hidden)
