"""`toolcrib cost`: count the tokens of the tool declarations in a request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import click

from toolcrib.cli.options import (
    ReadOptions,
    filter_options,
    json_option,
    list_exit_code,
    open_offline,
    parse_filters,
    paths_argument,
    print_refusals,
    print_unimported_sources,
    print_unimported_tools,
    print_unknown_filters,
    print_unqueried_servers,
    print_why_closed,
    read_options,
)
from toolcrib.cli.output import json_text, not_offered_note, plural, table, terminal_width
from toolcrib.core.text import compact
from toolcrib.formats.providers import DIALECTS, Declaration, declare
from toolcrib.formats.providers.tokens import ENCODING, EXTRA, TokenCounter, token_counter
from toolcrib.registry.registry import Registry


class Cost(NamedTuple):
    """The tokens of one tool declaration, and its share of the tokens of all of them."""

    declaration: Declaration
    tokens: int
    share: float


@click.command("cost")
@paths_argument
@click.option(
    "--dialect",
    type=click.Choice([*DIALECTS]),
    default="openai",
    show_default=True,
    help="Format of the declarations: "
    + "; ".join(f"`{dialect.name}`, {dialect.summary}" for dialect in DIALECTS.values())
    + ".",
)
@click.option("--tool", "name", multiple=True, metavar="GLOB", help="Only tools whose name matches.")
@filter_options
@click.option(
    "--losses", is_flag=True, help="Also list what the dialect cannot express of each tool's schema."
)
@json_option
@read_options
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    paths: tuple[str, ...],
    dialect: str,
    hidden: bool,
    losses: bool,
    as_json: bool,
    reading: ReadOptions,
    **options: Any,
) -> None:
    """Count the tokens that the tool declarations use.

    Every request to a model declares all tools that it may call; this is their cost before the conversation starts.
    With PATH: only the tools there. The most expensive tools come first. With the extra `tokens`, tokens are counted
    with the encoding of OpenAI's models; otherwise they are estimated. The last line names the method.
    """
    runtime = open_offline(reading, paths)
    print_refusals(runtime)
    print_unqueried_servers(runtime)
    print_unimported_sources(runtime)
    print_unimported_tools(runtime)
    registry = runtime.registry
    filters = parse_filters(options)
    # Hidden tools are queried, too, to report how many matching tools are not offered.
    everything = registry.query(hidden=True, **filters)
    names = [card.name for card in everything if hidden or registry.hidden(card.name) is None]
    counting = token_counter()
    costs = _costs(registry, names, dialect, counting)
    if as_json:
        click.echo(json_text(_document(costs, dialect, counting)))
    else:
        for line in _page(costs, dialect, counting, losses=losses):
            click.echo(line)
        left = len(everything) - len(names)
        click.echo(_last_line(costs, dialect, counting, exist=bool(registry)) + not_offered_note(left))
    print_why_closed(runtime)
    if registry and not everything:
        print_unknown_filters(registry, filters)
    ctx.exit(list_exit_code(runtime, empty=not costs))


def _costs(registry: Registry, names: Sequence[str], dialect: str, counting: TokenCounter) -> list[Cost]:
    """Return the costs of some tools, highest first."""
    aliases = {name: registry.alias_of(name) for name in names}
    declarations = declare([registry[name] for name in names], dialect, aliases)
    tokens = [counting.count(compact(dict(one.definition))) for one in declarations]
    # Declarations are counted as compact JSON, which is how the SDKs of the providers send them.
    whole = sum(tokens) or 1
    costs = [Cost(one, count, count / whole) for one, count in zip(declarations, tokens, strict=True)]
    return sorted(costs, key=lambda cost: (-cost.tokens, cost.declaration.tool))


def _page(costs: Sequence[Cost], dialect: str, counting: TokenCounter, *, losses: bool) -> list[str]:
    width = terminal_width()
    sign = "" if counting.exact else "~"
    rows = [
        (tool.tool, f"{sign}{tokens:,}", f"{share:.1%}", _remark(tool, dialect))
        for tool, tokens, share in costs
    ]
    lines = table(rows, width)
    if not (losses and costs):
        return lines
    told = [row for cost in costs for row in _losses(cost.declaration)]
    return [*lines, "", *(table(told, width) if told else ["no losses"]), ""]


def _remark(declaration: Declaration, dialect: str) -> str:
    many = len(declaration.losses)
    lost = f"{many} loss{'' if many == 1 else 'es'}" if many else ""
    loose = "not strict" if dialect.endswith("_strict") and not declaration.strict else ""
    return ", ".join(filter(None, (loose, lost)))


def _losses(declaration: Declaration) -> Iterator[tuple[str, str, str, str]]:
    """Rows of tool, pointer into the schema, keyword and message."""
    for loss in declaration.losses:
        yield (declaration.tool, loss.pointer or "/", loss.keyword, loss.message)


def _last_line(costs: Sequence[Cost], dialect: str, counting: TokenCounter, *, exist: bool) -> str:
    if not costs:
        return "no tool matches" if exist else "no tools"
    total = sum(cost.tokens for cost in costs)
    about = "" if counting.exact else "about "
    return (
        f"{plural(len(costs), 'tool')}: {about}{total:,} tokens as `{dialect}`; {_method(dialect, counting)}"
    )


def _method(dialect: str, counting: TokenCounter) -> str:
    if not counting.exact:
        return f"estimated; run `pip install 'toolcrib[{EXTRA}]'` for exact counts"
    foreign = "" if dialect.startswith("openai") else "; other models count differently"
    return f"counted with {ENCODING}{foreign}"


def _document(costs: Sequence[Cost], dialect: str, counting: TokenCounter) -> dict[str, Any]:
    return {
        "dialect": dialect,
        "encoding": ENCODING if counting.exact else None,
        "exact": counting.exact,
        "method": _method(dialect, counting),
        "tokens": sum(cost.tokens for cost in costs),
        "tools": [
            {
                "name": tool.tool,
                "alias": tool.name,
                "tokens": tokens,
                "share": round(share, 4),
                "strict": tool.strict,
                "losses": [loss._asdict() for loss in tool.losses],
            }
            for tool, tokens, share in costs
        ],
    }
