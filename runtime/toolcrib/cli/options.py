"""Options and arguments that several verbs share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
        servers: Files that name MCP servers, whose tools are taken instead of those of a project.
        granted: Hashes of what somebody has agreed to for this run.
    """

    packs: tuple[str, ...] = ()
    profile: str | None = None
    indexed: bool = True
    servers: tuple[str, ...] = ()
    granted: tuple[str, ...] = ()


passthrough_option = click.option(
    "--allow-passthrough",
    "passthrough",
    is_flag=True,
    help="Let mocks that say `passthrough` hand calls on to another binding of their tools.",
)
"""Whether a run may touch what its mocks stand for."""


def profile_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of the profiles, for the shell to complete."""
    from toolcrib.cli.runtime_options import known_profiles  # noqa: PLC0415 -- the engine is loaded only when Tab is pressed

    return [
        CompletionItem(profile.name, help=profile.description)
        for profile in known_profiles(_reading_of(ctx))
        if profile.name.startswith(incomplete)
    ]


_OPTIONS = (
    click.option(
        "--pack",
        "packs",
        multiple=True,
        metavar="PATH",
        type=click.Path(exists=True),
        help="Read tools from this pack, folder or file too. May be given several times, also before the verb.",
    ),
    click.option(
        "--profile",
        metavar="NAME",
        shell_complete=profile_names,
        help="Put this profile of the project in force; else the one that TOOLCRIB_PROFILE or the project names.",
    ),
    click.option(
        "--mcp",
        "servers",
        multiple=True,
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="Take the tools of the MCP servers that this file names (`mcpServers`, as in `.mcp.json`), and no project.",
    ),
    click.option(
        "--no-index",
        is_flag=True,
        help="Read every file anew, and keep nothing of it for the next start.",
    ),
)


def reading_options(function: F) -> F:
    """The options of every verb that reads tools, as one parameter `reading`.

    They may stand before the verb too; packs add up, and of two profiles the one after the verb counts.
    """

    @wraps(function)
    def command(*args: Any, **rest: Any) -> Any:
        parent = click.get_current_context().parent
        before = parent.obj if parent is not None and isinstance(parent.obj, Reading) else Reading()
        said = {key: rest.pop(key) for key in ("packs", "profile", "servers", "no_index")}
        return function(*args, reading=_together(before, said), **rest)

    for option in reversed(_OPTIONS):
        option(command)
    return cast(F, command)


def _together(before: Reading, said: Mapping[str, Any]) -> Reading:
    """What is said after the verb, put together with what is said before it."""
    profile: str | None = said.get("profile")
    return Reading(
        packs=(*before.packs, *(said.get("packs") or ())),
        profile=before.profile if profile is None else profile,
        indexed=before.indexed and not said.get("no_index"),
        servers=(*before.servers, *(said.get("servers") or ())),
        granted=before.granted,
    )


def _reading_of(ctx: click.Context | None) -> Reading:
    """What a command line that is still being written says so far."""
    if ctx is None:
        return Reading()
    return _together(_reading_of(ctx.parent), ctx.params)


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
"""`--json` as parameter `as_json`."""

paths_argument = click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(exists=True))
"""`[PATH]...` as parameter `paths`."""


def tool_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of the tools that are offered, for the shell to complete."""
    return _completed(ctx, incomplete, hidden=False)


def all_tool_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of all tools, also of those that are not offered, for the shell to complete."""
    return _completed(ctx, incomplete, hidden=True)


def server_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names of the MCP servers, for the shell to complete."""
    from toolcrib.cli.runtime_options import known_servers  # noqa: PLC0415 -- as in `profile_names`

    return [CompletionItem(name) for name in known_servers(_reading_of(ctx)) if name.startswith(incomplete)]


def _completed(ctx: click.Context, incomplete: str, *, hidden: bool) -> list[CompletionItem]:
    from toolcrib.cli.runtime_options import known_tools  # noqa: PLC0415 -- the engine is loaded only when Tab is pressed
    from toolcrib.core.text import first_sentence  # noqa: PLC0415

    return [
        CompletionItem(card.name, help=first_sentence(card.description))
        for card in known_tools(_reading_of(ctx), hidden=hidden)
        if card.name.startswith(incomplete)
    ]


def tool_argument(function: F) -> F:
    """`NAME` as parameter `name`, completed from the tools that are loaded."""
    return click.argument("name", shell_complete=tool_names)(function)
