"""The options that several verbs share, and the runtime over what they name.

The group of all verbs imports this module for `--help` and for completions, so the engine is imported when it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from toolcrib.cli import exit_codes
from toolcrib.cli.output import plural
from toolcrib.core.errors import ToolcribError, did_you_mean
from toolcrib.core.model import NOTHING
from toolcrib.core.text import escape_terminal, first_sentence
from toolcrib.engine import engine_of
from toolcrib.registry.catalog import ANNOTATIONS, Card

if TYPE_CHECKING:
    from toolcrib.cli.trust import Consents
    from toolcrib.engine.runtime import Runtime
    from toolcrib.engine.startup import OpenRequest
    from toolcrib.loading.projects import Profile
    from toolcrib.registry.catalog import Filters
    from toolcrib.registry.registry import Registry

F = TypeVar("F", bound=Callable[..., Any])


class ReadOptions(NamedTuple):
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
    return [
        CompletionItem(profile.name, help=profile.description)
        for profile in known_profiles(_read_options_of(ctx))
        if profile.name.startswith(incomplete)
    ]


_READ_OPTIONS = (
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


def read_options(function: F) -> F:
    """The options of every verb that reads tools, as one parameter `reading`.

    They may stand before the verb too; packs add up, and of two profiles the one after the verb counts.
    """

    @wraps(function)
    def command(*args: Any, **rest: Any) -> Any:
        parent = click.get_current_context().parent
        before = parent.obj if parent is not None and isinstance(parent.obj, ReadOptions) else ReadOptions()
        said = {key: rest.pop(key) for key in ("packs", "profile", "servers", "no_index")}
        return function(*args, reading=_together(before, said), **rest)

    for option in reversed(_READ_OPTIONS):
        option(command)
    return cast(F, command)


def _together(before: ReadOptions, said: Mapping[str, Any]) -> ReadOptions:
    """What is said after the verb, put together with what is said before it."""
    profile: str | None = said.get("profile")
    return ReadOptions(
        packs=(*before.packs, *(said.get("packs") or ())),
        profile=before.profile if profile is None else profile,
        indexed=before.indexed and not said.get("no_index"),
        servers=(*before.servers, *(said.get("servers") or ())),
        granted=before.granted,
    )


def _read_options_of(ctx: click.Context | None) -> ReadOptions:
    """What a command line that is still being written says so far."""
    if ctx is None:
        return ReadOptions()
    return _together(_read_options_of(ctx.parent), ctx.params)


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
    return [
        CompletionItem(name) for name in known_servers(_read_options_of(ctx)) if name.startswith(incomplete)
    ]


def _completed(ctx: click.Context, incomplete: str, *, hidden: bool) -> list[CompletionItem]:
    return [
        CompletionItem(card.name, help=first_sentence(card.description))
        for card in known_tools(_read_options_of(ctx), hidden=hidden)
        if card.name.startswith(incomplete)
    ]


def tool_argument(function: F) -> F:
    """`NAME` as parameter `name`, completed from the tools that are loaded."""
    return click.argument("name", shell_complete=tool_names)(function)


def _several(name: str, metavar: str, help_text: str, parameter: str | None = None) -> Callable[[F], F]:
    return click.option(name, parameter or name[2:], multiple=True, metavar=metavar, help=help_text)


_FILTER_OPTIONS = (
    _several("--name", "GLOB", "Only tools whose name fits."),
    _several("--tag", "TAG", "Only tools with this tag."),
    _several("--label", "KEY[=VALUE]", "Only tools with this label."),
    _several("--category", "CATEGORY", "Only tools of this category."),
    _several("--mode", "MODE", "Only tools that are in this mode."),
    _several("--source", "GLOB", "Only tools from files that fit."),
    _several("--pack-name", "NAME", "Only tools of this pack.", "pack"),
    _several(
        "--annotation", "NAME", f"Only tools that are {', '.join(ANNOTATIONS[:-1])} or {ANNOTATIONS[-1]}."
    ),
    _several("--toolset", "NAME", "Only tools of this toolset."),
    click.option(
        "--deprecated/--no-deprecated", default=None, help="Only tools that are deprecated, or not."
    ),
    click.option(
        "--experimental/--no-experimental", default=None, help="Only tools that are experimental, or not."
    ),
    click.option(
        "--any", "match_any", is_flag=True, help="Tools that fit one of the options, not all of them."
    ),
    click.option("--all", "hidden", is_flag=True, help="Also tools that are not offered, with the reason."),
)


def filter_options(function: F) -> F:
    """The options that choose tools, as parameters that `parse_filters` takes, and `--all` as parameter `hidden`."""
    for option in reversed(_FILTER_OPTIONS):
        function = option(function)
    return function


def parse_filters(options: Mapping[str, Any]) -> Filters:
    """What the options ask, as `Registry.query` takes it."""
    filters: Any = {key: value for key, value in options.items() if key != "match_any"}
    filters["match"] = "any" if options["match_any"] else "all"
    asked: Filters = filters
    return asked


def print_unknown_filters(registry: Registry, filters: Filters) -> None:
    """Say on stderr which values of the filters no tool has, with near misses."""
    for sentence in _strangers(registry, filters):
        click.echo(escape_terminal(sentence), err=True)


def _strangers(registry: Registry, filters: Mapping[str, Any]) -> Iterator[str]:
    for key, known in _known(registry.cards.values(), registry.toolsets).items():
        for value in filters.get(key) or ():
            if value.startswith("!") or _is_known(value, known, key):
                continue
            hint = did_you_mean(value.strip("*?") if key in _GLOBS else value, known) or _all_of(known)
            yield f"{_PHRASES[key]} `{value}`; {hint}"


def _is_known(value: str, known: set[str], key: str) -> bool:
    return any(fnmatchcase(one, value) for one in known) if key in _GLOBS else value in known


_GLOBS = {"name", "source"}

_PHRASES = {
    "name": "no tool has a name like",
    "tag": "no tool has the tag",
    "label": "no tool has the label",
    "category": "no tool is of the category",
    "mode": "no tool is in the mode",
    "source": "no tool is from a file like",
    "pack": "no tool is of the pack",
    "annotation": "there is no annotation",
    "toolset": "there is no toolset",
}


def _known(cards: Iterable[Card], toolsets: Iterable[str]) -> dict[str, set[str]]:
    """Filter -> all values that some tool has."""
    cards = list(cards)
    return {
        "name": {card.name for card in cards},
        "tag": {tag for card in cards for tag in card.tags},
        "label": {text for card in cards for key, value in card.labels for text in (key, f"{key}={value}")},
        "category": {card.category for card in cards} - {""},
        "mode": {card.mode for card in cards if card.mode is not None},
        "source": {card.source for card in cards},
        "pack": {card.pack for card in cards} - {""},
        "annotation": set(ANNOTATIONS),
        "toolset": set(toolsets),
    }


def _all_of(known: set[str], most: int = 8) -> str:
    shown = [f"`{value}`" for value in sorted(known)[:most]]
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return f"there are: {', '.join(shown)}{more}" if shown else "there are none"


MOST_REMARKS = 5
"""So much is told of what is wrong with the tools of servers, by verbs that go on without them."""


def open_runtime(
    reading: ReadOptions,
    paths: Iterable[str] = (),
    *,
    modes: Mapping[str, str] = NOTHING,
    seed: int = 0,
    passthrough: bool = False,
    consents: Consents | None = None,
) -> Runtime:
    """The runtime over what the command line names. Its problems are the verb's to tell.

    What nobody has agreed to is asked about at a terminal, once something needs it; but for what `consents` know.
    """
    from toolcrib.cli.trust import Consents, can_ask  # noqa: PLC0415 -- `--help` and completions need none of these
    from toolcrib.engine.runtime import read_runtime  # noqa: PLC0415 -- as above

    asked = _asked_for(reading, paths)._replace(modes=modes)
    return read_runtime(
        asked, seed=seed, passthrough=passthrough, ask=(consents or Consents()) if can_ask() else None
    )


def _asked_for(reading: ReadOptions, paths: Iterable[str]) -> OpenRequest:
    from toolcrib.cli.trust import trust_policy  # noqa: PLC0415 -- as above
    from toolcrib.engine.startup import OpenRequest  # noqa: PLC0415 -- as above

    return OpenRequest(
        paths=(*paths, *reading.servers),
        also=tuple(reading.packs),
        profile=reading.profile,
        indexed=reading.indexed,
        trust=trust_policy(reading),
    )


def open_offline(reading: ReadOptions, paths: Iterable[str] = (), *, remembers: bool = True) -> Runtime:
    """The runtime for a verb that only lists: nothing is started, contacted or looked up, and nobody is asked.

    Args:
        reading: What the command line says of the tools.
        paths: The same, more closely.
        remembers: Whether what servers answered some time ago will do.
    """
    from toolcrib.engine.runtime import read_runtime  # noqa: PLC0415 -- as above

    return read_runtime(_asked_for(reading, paths)._replace(remembers=remembers))


def print_unqueried_servers(runtime: Runtime) -> None:
    """Say on stderr of which servers it is not known what they offer, for verbs that ask none."""
    names = engine_of(runtime).undiscovered
    for name, when in engine_of(runtime).stock.remembered.items():
        click.echo(f"server `{escape_terminal(name)}`: not queried; as it answered at {when}", err=True)
    for name in names:
        click.echo(f"server `{escape_terminal(name)}`: not queried", err=True)
    if names:
        click.echo(
            "    hint: `toolcrib doctor` asks servers, and `toolcrib lock` keeps what they offer", err=True
        )


def list_exit_code(runtime: Runtime, *, empty: bool, strict: bool = False) -> int:
    """The exit code of a verb that lists tools: an empty list is a success only where nothing is wrong.

    Args:
        runtime: What was read.
        empty: Whether nothing is listed.
        strict: Whether the list must have tools, and be all there is.
    """
    errors = {problem.code for problem in runtime.problems if problem.severity == "error"}
    incomplete = bool(empty or runtime.problems or engine_of(runtime).undiscovered)
    wrong = "path_not_found" in errors or (empty and (errors or runtime.registry.why_closed))
    return exit_codes.PROBLEMS if wrong or (strict and incomplete) else exit_codes.OK


def open_with_servers(
    reading: ReadOptions,
    paths: Iterable[str] = (),
    *,
    passthrough: bool = False,
    everything: bool = False,
    consents: Consents | None = None,
) -> Runtime:
    """`open_runtime`, and the MCP servers were asked of which it is not known yet what they offer.

    They no longer run. `Runtime.problems` has an error for each that could not be asked.

    Args:
        reading: What the command line says of the tools.
        paths: The same, more closely.
        passthrough: Whether mocks may hand calls on.
        everything: Whether all servers are asked.
        consents: What somebody has answered before, who is not asked again.
    """
    runtime = open_runtime(reading, paths, passthrough=passthrough, consents=consents)
    names = tuple(runtime.servers) if everything else engine_of(runtime).undiscovered
    if names:
        import asyncio  # noqa: PLC0415 -- few runtimes have servers

        asyncio.run(_ask(runtime, names))
    return runtime


async def _ask(runtime: Runtime, names: Iterable[str]) -> None:
    try:
        await runtime.discover(*names)
    finally:
        await engine_of(runtime).executors.aclose()


def known_tools(reading: ReadOptions, *, hidden: bool = False) -> list[Card]:
    """The tools that are offered, for a shell to complete; none where they can't be read.

    Args:
        reading: What the command line says so far.
        hidden: Also the tools that are not offered.
    """
    try:
        return open_offline(reading).registry.query(hidden=hidden)
    except ToolcribError:
        return []


def known_profiles(reading: ReadOptions) -> list[Profile]:
    """The profiles of the project, for a shell to complete; none where there is no project."""
    try:
        project = open_offline(reading._replace(profile=None)).project
    except ToolcribError:
        return []
    return [] if project is None else list(project.profiles.values())


def known_servers(reading: ReadOptions) -> list[str]:
    """The names of the MCP servers, for a shell to complete; none where they can't be read."""
    try:
        return [*open_offline(reading).servers]
    except ToolcribError:
        return []


def print_why_closed(runtime: Runtime) -> None:
    """Say on stderr why no tool is offered at all, for verbs that then show none."""
    if runtime.registry.why_closed:
        click.echo(escape_terminal(runtime.registry.why_closed), err=True)


def print_refusals(runtime: Runtime) -> None:
    """Say briefly on stderr that documents were refused, for verbs that go on without them."""
    errors = [problem for problem in runtime.problems if problem.severity == "error"]
    for problem in errors:
        if problem.code == "path_not_found":
            click.echo(escape_terminal(str(problem)), err=True)
    files = {problem.source for problem in errors if problem.code != "path_not_found"}
    remarks = [problem for problem in runtime.problems if problem.code == "server_remark"]
    for problem in remarks[:MOST_REMARKS]:
        click.echo(escape_terminal(str(problem)), err=True)
    if len(remarks) > MOST_REMARKS:
        click.echo(
            f"... and {len(remarks) - MOST_REMARKS} more remarks on servers; run `toolcrib doctor`", err=True
        )
    if files:
        refused = f"{plural(len(files), 'file')} {'was' if len(files) == 1 else 'were'} refused"
        click.echo(f"{refused}, wholly or in part; run `toolcrib validate`", err=True)
