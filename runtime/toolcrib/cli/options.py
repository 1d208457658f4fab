"""Options and arguments that several verbs share."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import click
from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., Any])


class Reading(NamedTuple):
    """What the command line says of the tools that are to be read.

    Attributes:
        packs: Packs, folders and files to read besides.
        profile: Name of the profile; None for the one that the environment or the project names.
        indexed: Whether an index may be read and written.
    """

    packs: tuple[str, ...] = ()
    profile: str | None = None
    indexed: bool = True


_OPTIONS = (
    click.option(
        "--pack",
        "packs",
        multiple=True,
        metavar="PATH",
        type=click.Path(exists=True),
        help="Read tools from this pack, folder or file too. May be given several times, also before the verb.",
    ),
)


def reading_options(function: F) -> F:
    """The options of every verb that reads tools, as one parameter `reading`.

    They may stand before the verb too; those of packs add up, of any other the one after the verb counts.
    """

    @wraps(function)
    def command(*args: Any, packs: tuple[str, ...], **rest: Any) -> Any:
        before = _said_before_the_verb(click.get_current_context())
        return function(*args, reading=Reading((*before.packs, *packs)), **rest)

    for option in reversed(_OPTIONS):
        option(command)
    return cast(F, command)


def _said_before_the_verb(ctx: click.Context) -> Reading:
    said = ctx.parent.obj if ctx.parent is not None else None
    return said if isinstance(said, Reading) else Reading()


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
"""`--json` as parameter `as_json`."""

paths_argument = click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(exists=True))
"""`[PATH]...` as parameter `paths`."""


def tool_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of the tools, for the shell to complete."""
    from toolcrib.cli.opening import open_runtime  # noqa: PLC0415 -- the engine is loaded only when Tab is pressed
    from toolcrib.cli.printing import first_sentence  # noqa: PLC0415

    before = _said_before_the_verb(ctx)
    registry = open_runtime(Reading((*before.packs, *(ctx.params.get("packs") or ())))).registry
    return [
        CompletionItem(name, help=first_sentence(tool.description))
        for name, tool in registry.items()
        if name.startswith(incomplete)
    ]


def tool_argument(function: F) -> F:
    """`NAME` as parameter `name`, completed from the tools that are loaded."""
    return click.argument("name", shell_complete=tool_names)(function)
