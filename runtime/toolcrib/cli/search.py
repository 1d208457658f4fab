"""`toolcrib search`: the tools that speak of some words, the best first."""

from __future__ import annotations

from typing import Any

import click

from toolcrib.cli.filters import filter_options, filters_of, tell_strangers
from toolcrib.cli.list import entry, unable
from toolcrib.cli.options import Reading, json_option, reading_options
from toolcrib.cli.runtime_options import (
    code_of_list,
    open_listed,
    tell_closed,
    tell_not_queried,
    tell_refusals,
)
from toolcrib.cli.tables import json_text, plural, terminal_width
from toolcrib.cli.tools_table import not_offered, tool_lines


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
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    words: tuple[str, ...],
    hidden: bool,
    most: int,
    as_json: bool,
    reading: Reading,
    **options: Any,
) -> None:
    """Search the tools for words.

    Words are looked for in names, titles, tags, categories, arguments and descriptions, without regard to case,
    accents and plurals; the beginning of a word is enough. Tools that have more of the words, rarer words, and
    words in their names stand first. The other options are those of `toolcrib list`.
    """
    runtime = open_listed(reading)
    tell_refusals(runtime)
    tell_not_queried(runtime)
    registry = runtime.registry
    filters = filters_of(options)
    everything = registry.search(" ".join(words), hidden=True, **filters)
    hits = everything if hidden else [hit for hit in everything if registry.hidden(hit.card.name) is None]
    shown = hits[:most]
    if as_json:
        tools = [{**entry(runtime, hit.card), "score": hit.score} for hit in shown]
        click.echo(json_text({"tools": tools, "found": len(hits)}))
    else:
        cards = [hit.card for hit in shown]
        for line in tool_lines(cards, unable(runtime), terminal_width(), hidden=registry.hidden):
            click.echo(line)
        click.echo(
            _count_line(
                len(shown), len(hits), exist=bool(registry.query()), hidden=len(everything) - len(hits)
            )
        )
    tell_closed(runtime)
    if registry and not everything:
        tell_strangers(registry, filters)
    ctx.exit(code_of_list(runtime, empty=not hits))


def _count_line(shown: int, found: int, *, exist: bool, hidden: int) -> str:
    told = plural(found, "tool") if found else "no tool fits" if exist else "no tools"
    more = f", the best {shown} of them shown; `-n` shows more" if shown < found else ""
    return told + more + not_offered(hidden)
