"""Options that several commands share, and the runtime that they select.

`--help` and completion import this module, so the engine is imported inside the functions that use it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from toolcrib.cli import exit_codes
from toolcrib.cli.arguments import complete_argument
from toolcrib.cli.output import plural
from toolcrib.cli.redirected_stdout import redirected_stdout
from toolcrib.core.errors import ToolcribError, did_you_mean
from toolcrib.core.model import NOTHING
from toolcrib.core.text import escape_terminal, first_sentence
from toolcrib.core.user_folders import cache_folder
from toolcrib.engine import engine_of
from toolcrib.registry.catalog import ANNOTATIONS, Card

if TYPE_CHECKING:
    from toolcrib.cli.trust import Consents
    from toolcrib.core.model import Approver
    from toolcrib.engine.runtime import Runtime
    from toolcrib.engine.startup import OpenRequest
    from toolcrib.loading.projects import Profile
    from toolcrib.registry.catalog import Filters
    from toolcrib.registry.registry import Registry

F = TypeVar("F", bound=Callable[..., Any])


class ReadOptions(NamedTuple):
    """The command-line options that select what is read.

    Attributes:
        packs: Further packs, folders and files to read.
        profile: Name of the profile; None for the one that the environment or the project selects.
        indexed: Whether the index may be read and written.
        servers: Files with MCP servers, whose tools are used instead of a project.
        granted: Trust hashes that were granted for this run only.
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
    help="Let mocks with `passthrough` forward calls to another binding of their tools.",
)
"""`--allow-passthrough` as parameter `passthrough`: whether mocks may forward calls to real tools."""


def profile_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of the profiles."""
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
        help="Also read tools from this pack, folder or file. Can be repeated, also before the command.",
    ),
    click.option(
        "--profile",
        metavar="NAME",
        shell_complete=profile_names,
        help="Use this profile of the project. Default: the one that TOOLCRIB_PROFILE or the project names.",
    ),
    click.option(
        "--mcp",
        "servers",
        multiple=True,
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False),
        help="Use the tools of the MCP servers in this file (`mcpServers`, as in `.mcp.json`) instead of a project.",
    ),
    click.option(
        "--no-index",
        is_flag=True,
        help="Read every file, and neither use nor write the index.",
    ),
)


def read_options(function: F) -> F:
    """Add the options of every command that reads tools, as one parameter `reading`.

    They are accepted before the command, too. Packs and servers are combined; a profile after the command wins.
    """

    @wraps(function)
    def command(*args: Any, **rest: Any) -> Any:
        parent = click.get_current_context().parent
        before = parent.obj if parent is not None and isinstance(parent.obj, ReadOptions) else ReadOptions()
        said = {key: rest.pop(key) for key in ("packs", "profile", "servers", "no_index")}
        return function(*args, reading=_together(before, said), **rest)

    # Decorators apply from the inside out; in reverse, `--help` lists the options in their order here.
    for option in reversed(_READ_OPTIONS):
        option(command)
    return cast(F, command)


def _provider_names(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of the providers."""
    from toolcrib.provider.models.installed_providers import provider_names  # noqa: PLC0415 -- as above

    names = (*provider_names(), "scripted")
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


_PROVIDER = (
    click.option(
        "--provider",
        default="",
        metavar="NAME",
        shell_complete=_provider_names,
        help="Model provider: `openai`, `openai_responses`, `azure_openai`, `anthropic`, an installed one, or `scripted`. "
        "Default: `chat` of the project.",
    ),
    click.option(
        "--model", metavar="NAME", default="", help="Model of the provider. Default: `chat` of the project."
    ),
    click.option(
        "--base-url",
        metavar="URL",
        default="",
        help="Base URL of the provider. Loopback and numeric addresses are permitted.",
    ),
    click.option(
        "--script",
        metavar="NAME|FILE",
        help="Use the agent script and the mocks of this scenario, with the provider `scripted`.",
    ),
)


def provider_options(function: F) -> F:
    """Add the options that select the model of a conversation."""
    for option in reversed(_PROVIDER):
        function = option(function)
    return function


def _together(before: ReadOptions, said: Mapping[str, Any]) -> ReadOptions:
    """Combine the options after the command with those before it."""
    profile: str | None = said.get("profile")
    return ReadOptions(
        packs=(*before.packs, *(said.get("packs") or ())),
        profile=before.profile if profile is None else profile,
        indexed=before.indexed and not said.get("no_index"),
        servers=(*before.servers, *(said.get("servers") or ())),
        granted=before.granted,
    )


def _read_options_of(ctx: click.Context | None) -> ReadOptions:
    """The read options of an incomplete command line, for completion."""
    if ctx is None:
        return ReadOptions()
    return _together(_read_options_of(ctx.parent), ctx.params)


policy_option = click.option(
    "--policy",
    "policy_file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="Apply the tool policy in this YAML or JSON file.",
)
"""`--policy` as parameter `policy_file`."""

settings_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Provider setting, such as temperature=0. Can be repeated.",
)
"""`--set` as parameter `settings`."""

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
"""`--json` as parameter `as_json`."""

args_file_option = click.option(
    "--args-file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Read arguments from a YAML or JSON file that holds an object; `-` is standard input.",
)
"""`--args-file` as parameter `args_file`."""

paths_argument = click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path(exists=True))
"""`[PATH]...` as parameter `paths`."""


def tool_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of the offered tools."""
    return _completed(ctx, incomplete, hidden=False)


def all_tool_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of all tools, including those that are not offered."""
    return _completed(ctx, incomplete, hidden=True)


def server_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of the MCP servers."""
    return [
        CompletionItem(name) for name in known_servers(_read_options_of(ctx)) if name.startswith(incomplete)
    ]


def argument_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of the arguments of the tool that the command line names."""
    try:
        tool = open_offline(_read_options_of(ctx)).registry.get(str(ctx.params.get("name")))
    except ToolcribError:
        tool = None
    words: list[str] = [*(ctx.params.get("words") or ())]
    # bash splits words at `=` and expects what follows it: `unit=me` is `unit`, `=` and `me`. Click drops a last `=`.
    lead = ""
    if words[-1:] == ["="] and len(words) > 1:
        lead = f"{words[-2]}="
    elif words and not incomplete and "=" not in words[-1] and words[-2:-1] != ["="]:
        lead = f"{words[-1]}="
    found = complete_argument(None if tool is None else tool.input_schema, lead + incomplete, words)
    return [CompletionItem(word.removeprefix(lead), help=about) for word, about in found]


words_argument = click.argument(
    "words", nargs=-1, metavar="[KEY=TEXT | KEY:=JSON | JSON OBJECT]...", shell_complete=argument_names
)
"""The arguments of a call as parameter `words`."""


def scenario_names(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the names of scenarios and of tools with examples, and paths."""
    try:
        runtime = open_offline(_read_options_of(ctx))
    except ToolcribError:
        return [CompletionItem(incomplete, type="file")]
    names = {each.name: each.description for each in runtime.scenarios}
    names |= {tool.name: tool.description for tool in runtime.registry.values() if tool.examples}
    found = [
        CompletionItem(name, help=first_sentence(about))
        for name, about in names.items()
        if name.startswith(incomplete)
    ]
    return [*found, CompletionItem(incomplete, type="file")]


def _completed(ctx: click.Context, incomplete: str, *, hidden: bool) -> list[CompletionItem]:
    return [
        CompletionItem(card.name, help=first_sentence(card.description))
        for card in known_tools(_read_options_of(ctx), hidden=hidden)
        if card.name.startswith(incomplete)
    ]


def tool_argument(function: F) -> F:
    """Add `NAME` as parameter `name`, with completion of tool names."""
    return click.argument("name", shell_complete=tool_names)(function)


def _several(name: str, metavar: str, help_text: str, parameter: str | None = None) -> Callable[[F], F]:
    return click.option(name, parameter or name[2:], multiple=True, metavar=metavar, help=help_text)


_FILTER_OPTIONS = (
    _several("--name", "GLOB", "Only tools whose name matches."),
    _several("--tag", "TAG", "Only tools with this tag."),
    _several("--label", "KEY[=VALUE]", "Only tools with this label."),
    _several("--category", "CATEGORY", "Only tools of this category."),
    _several("--mode", "MODE", "Only tools in this mode."),
    _several("--source", "GLOB", "Only tools from matching files."),
    _several("--pack-name", "NAME", "Only tools of this pack.", "pack"),
    _several(
        "--annotation", "NAME", f"Only tools that are {', '.join(ANNOTATIONS[:-1])} or {ANNOTATIONS[-1]}."
    ),
    _several("--capability", "NAME", "Only tools with this capability."),
    _several("--toolset", "NAME", "Only tools of this toolset."),
    click.option(
        "--deprecated/--no-deprecated", default=None, help="Only tools that are deprecated, or not."
    ),
    click.option(
        "--experimental/--no-experimental", default=None, help="Only tools that are experimental, or not."
    ),
    click.option(
        "--any", "match_any", is_flag=True, help="Tools that match any of the options instead of all."
    ),
    click.option(
        "--all", "hidden", is_flag=True, help="Also list tools that are not offered, with the reason."
    ),
)


def filter_options(function: F) -> F:
    """Add the filter options, as parameters for `parse_filters`, and `--all` as parameter `hidden`."""
    for option in reversed(_FILTER_OPTIONS):
        function = option(function)
    return function


def parse_filters(options: Mapping[str, Any]) -> Filters:
    """Convert the filter options to arguments of `Registry.query`."""
    filters: Any = {key: value for key, value in options.items() if key != "match_any"}
    filters["match"] = "any" if options["match_any"] else "all"
    asked: Filters = filters
    return asked


def print_unknown_filters(registry: Registry, filters: Filters) -> None:
    """Print on stderr the filter values that no tool has, with near misses."""
    for sentence in _strangers(registry, filters):
        click.echo(escape_terminal(sentence), err=True)


def _strangers(registry: Registry, filters: Mapping[str, Any]) -> Iterator[str]:
    for key, known in _known(registry.cards.values(), registry.toolsets).items():
        for value in filters.get(key) or ():
            if value.startswith("!") or _is_known(value, known, key):
                continue
            # Near misses are searched for the literal part of a glob.
            hint = did_you_mean(value.strip("*?") if key in _GLOBS else value, known) or _all_of(known)
            yield f"{_PHRASES[key]} `{value}`; {hint}"


def _is_known(value: str, known: set[str], key: str) -> bool:
    return any(fnmatchcase(one, value) for one in known) if key in _GLOBS else value in known


_GLOBS = {"name", "source"}

_PHRASES = {
    "name": "no tool name matches",
    "tag": "no tool has the tag",
    "label": "no tool has the label",
    "category": "no tool has the category",
    "mode": "no tool has the mode",
    "source": "no source file matches",
    "pack": "no tool is from the pack",
    "annotation": "unknown annotation",
    "capability": "no tool has the capability",
    "toolset": "unknown toolset",
}


def _known(cards: Iterable[Card], toolsets: Iterable[str]) -> dict[str, set[str]]:
    """Return for each filter the values that tools have."""
    # The cards are iterated once for each filter.
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
        "capability": {name for card in cards for name in card.capabilities},
        "toolset": set(toolsets),
    }


def _all_of(known: set[str], most: int = 8) -> str:
    shown = [f"`{value}`" for value in sorted(known)[:most]]
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return f"known values: {', '.join(shown)}{more}" if shown else "none are defined"


MOST_REMARKS = 5
"""Remarks about servers that a command prints before it continues without their tools."""


def open_runtime(
    reading: ReadOptions,
    paths: Iterable[str] = (),
    *,
    modes: Mapping[str, str] = NOTHING,
    seed: int = 0,
    passthrough: bool = False,
    consents: Consents | None = None,
    modules: Sequence[str] = (),
    approver: Approver | None = None,
) -> Runtime:
    """Open the runtime that the command line selects. The command reports its problems.

    At a terminal, missing trust is asked for when a call needs it, unless `consents` contains the answer. `modules` are
    Python sources in addition to those of the project. `approver` asks about calls that need approval.
    """
    from toolcrib.cli.trust import Consents, can_ask  # noqa: PLC0415 -- `--help` and completions need none of these
    from toolcrib.engine.runtime import read_runtime  # noqa: PLC0415 -- as above

    asked = _asked_for(reading, paths)._replace(modes=modes, modules=tuple(modules))
    return read_runtime(
        asked,
        seed=seed,
        passthrough=passthrough,
        ask=(consents or Consents()) if can_ask() else None,
        approver=approver,
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
    """Open a runtime for listing: it starts no server, contacts no host, reads no secret and does not ask for trust.

    Args:
        reading: The read options.
        paths: Sources to read instead of the project.
        remembers: Whether remembered answers of servers may be used.
    """
    from toolcrib.engine.runtime import read_runtime  # noqa: PLC0415 -- as above

    return read_runtime(_asked_for(reading, paths)._replace(remembers=remembers))


def print_unqueried_servers(runtime: Runtime) -> None:
    """Print on stderr which servers were not queried, for commands that query none."""
    names = engine_of(runtime).undiscovered
    for name, when in engine_of(runtime).stock.remembered.items():
        click.echo(f"{_kind(runtime, name)}: not queried; showing its answer of {when}", err=True)
    for name in names:
        click.echo(f"{_kind(runtime, name)}: not queried", err=True)
    if names:
        click.echo(
            "    hint: run `toolcrib doctor` to query servers, or `toolcrib lock` to store what they offer",
            err=True,
        )


def _kind(runtime: Runtime, name: str) -> str:
    return f"{runtime.servers[name].kind} `{escape_terminal(name)}`"


def print_unimported_tools(runtime: Runtime, only: str = "") -> None:
    """Print on stderr which tools take their schemas from code that is not imported, for commands that import none.

    Args:
        runtime: The runtime.
        only: Name of the only tool that is shown; empty if all are.
    """
    engine = engine_of(runtime)
    for name, known in engine.recalled.items():
        if only in {"", name}:
            click.echo(f"tool `{escape_terminal(name)}`: not imported; {_recalled(known)}", err=True)
    for tool in engine.incomplete:
        if only in {"", tool.name} and tool.name not in engine.recalled:
            name = escape_terminal(tool.name)
            click.echo(f"tool `{name}`: its code is not imported, so its schemas are not known", err=True)


def print_unimported_sources(runtime: Runtime) -> None:
    """Print on stderr which Python sources were not imported, for commands that import none."""
    recalled, unknown = engine_of(runtime).stock.recalled, False
    for source in engine_of(runtime).unimported:
        unknown = unknown or source not in recalled
        told = f"; {_recalled(recalled[source])}" if source in recalled else ""
        click.echo(f"source `{escape_terminal(source)}`: not imported{told}", err=True)
    if unknown:
        click.echo("    hint: run `toolcrib validate` to import it, once the project is trusted", err=True)


def _recalled(known: tuple[str, bool]) -> str:
    when, changed = known
    return f"showing its definition of {when}{', and its files have changed since' if changed else ''}"


def list_exit_code(runtime: Runtime, *, empty: bool, strict: bool = False) -> int:
    """Return the exit code of a listing; an empty list is a success only if there are no errors.

    Args:
        runtime: The runtime.
        empty: Whether the list is empty.
        strict: Whether an empty or incomplete list is a failure.
    """
    errors = {problem.code for problem in runtime.problems if problem.severity == "error"}
    engine = engine_of(runtime)
    incomplete = bool(empty or runtime.problems or engine.undiscovered or engine.stock.unimported)
    # A missing source fails even if other sources have tools: `toolcrib list typo` must not look like a
    # success.
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
    """`open_runtime`, then import the Python sources, and query the MCP servers whose tools are unknown.

    The servers are stopped again. `Runtime.problems` has an error for each one that could not be queried.

    Args:
        reading: The read options.
        paths: Sources to read instead of the project.
        passthrough: Whether mocks may forward calls.
        everything: Whether all servers are queried.
        consents: Earlier answers of the user, which are not asked for again.
    """
    runtime = open_runtime(reading, paths, passthrough=passthrough, consents=consents)
    names = tuple(runtime.servers) if everything else engine_of(runtime).undiscovered
    if names or engine_of(runtime).unimported:
        import asyncio  # noqa: PLC0415 -- few runtimes have servers or Python sources

        listed = ", ".join(f"`{name}`" for name in names)
        with redirected_stdout(), told_while_waiting(f"querying {listed or 'Python sources'}"):
            asyncio.run(_ask(runtime, names))
        _suggest_lock(runtime, names)
    return runtime


def _suggest_lock(runtime: Runtime, names: Iterable[str]) -> None:
    """Tell a user at a terminal once for each project that a lock saves the queries."""
    stock = engine_of(runtime).stock
    folder = cache_folder()
    if folder is None or not stock.lock_file or not sys.stderr.isatty() or {*names} <= {*stock.locked}:
        return
    from hashlib import sha256  # noqa: PLC0415 -- few projects have servers

    project = sha256(os.fsencode(os.path.realpath(stock.lock_file))).hexdigest()[:32]
    try:
        os.makedirs(os.path.join(folder, "lock-suggested"), mode=0o700, exist_ok=True)
        os.close(
            os.open(
                os.path.join(folder, "lock-suggested", project), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600
            )
        )
    except OSError:
        return  # It was told before, or that it is told cannot be kept.
    click.echo("hint: servers are queried at each start; `toolcrib lock` stores what they offer", err=True)


@contextmanager
def told_while_waiting(what: str, seconds: float = 1.0) -> Iterator[None]:
    """Within the block, print on stderr what takes so long, if it is a terminal and the block takes longer than some seconds."""
    if not sys.stderr.isatty():
        yield
        return
    from threading import Timer  # noqa: PLC0415 -- only a terminal needs it

    timer = Timer(seconds, click.echo, [f"{escape_terminal(what)} ..."], {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


async def _ask(runtime: Runtime, names: Iterable[str]) -> None:
    try:
        await engine_of(runtime).import_sources()
        if names:
            await runtime.discover(*names)
    finally:
        await engine_of(runtime).executors.aclose()


def known_tools(reading: ReadOptions, *, hidden: bool = False) -> list[Card]:
    """The tools for completion; empty if they cannot be read.

    Args:
        reading: The read options so far.
        hidden: Whether to include tools that are not offered.
    """
    try:
        return open_offline(reading).registry.query(hidden=hidden)
    except ToolcribError:
        return []


def known_profiles(reading: ReadOptions) -> list[Profile]:
    """The profiles for completion; empty without a project."""
    try:
        # The profile on the command line may be the incomplete word, and an unknown profile is an error.
        project = open_offline(reading._replace(profile=None)).project
    except ToolcribError:
        return []
    return [] if project is None else list(project.profiles.values())


def known_servers(reading: ReadOptions) -> list[str]:
    """The names of the MCP servers for completion; empty if they cannot be read."""
    try:
        return [*open_offline(reading).servers]
    except ToolcribError:
        return []


NO_SOURCES = "there is no project here, and no folder `descriptors` or `packs`"
"""Why nothing is read where `has_no_sources`."""


def has_no_sources(runtime: Runtime) -> bool:
    """Whether no source was named, and neither a project nor a default folder exists."""
    from toolcrib.engine.open_project import DEFAULT_PATHS  # noqa: PLC0415 -- as above

    # Paths on the command line are checked before, and a project names its folders itself.
    return runtime.project is None and [(each.code, each.source) for each in runtime.problems] == [
        ("path_not_found", DEFAULT_PATHS[0])
    ]


def print_why_closed(runtime: Runtime) -> None:
    """Print on stderr why no tool is offered at all."""
    if runtime.registry.why_closed:
        click.echo(escape_terminal(runtime.registry.why_closed), err=True)


def print_refusals(runtime: Runtime) -> None:
    """Print a short note on stderr if documents were refused, for commands that continue without them."""
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
            f"... and {len(remarks) - MOST_REMARKS} more remarks about servers; run `toolcrib doctor`",
            err=True,
        )
    if files:
        refused = f"{plural(len(files), 'file')} {'was' if len(files) == 1 else 'were'} refused"
        click.echo(f"{refused}, fully or partly; run `toolcrib validate`", err=True)
