"""Options and arguments that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])


def _with_those_before_the_verb(
    ctx: click.Context, _param: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    before = ctx.parent.obj if ctx.parent is not None else None
    return (*(before or ()), *value)


pack_option = click.option(
    "--pack",
    "packs",
    multiple=True,
    metavar="PATH",
    type=click.Path(exists=True),
    callback=_with_those_before_the_verb,
    help="Read tools from this pack, folder or file too. May be given several times, also before the verb.",
)
"""`--pack PATH` as parameter `packs`: those before the verb, then those after it."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
"""`--json` as parameter `as_json`."""

paths_argument = click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(exists=True))
"""`[PATH]...` as parameter `paths`."""


def tool_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of the tools, for the shell to complete."""
    from toolcrib.cli.opening import open_runtime  # noqa: PLC0415 -- the engine is loaded only when Tab is pressed
    from toolcrib.cli.printing import first_sentence  # noqa: PLC0415

    registry = open_runtime(packs=ctx.params.get("packs") or ()).registry
    return [
        CompletionItem(name, help=first_sentence(tool.description))
        for name, tool in registry.items()
        if name.startswith(incomplete)
    ]


def tool_argument(function: F) -> F:
    """`NAME` as parameter `name`, completed from the tools that are loaded."""
    return click.argument("name", shell_complete=tool_names)(function)
