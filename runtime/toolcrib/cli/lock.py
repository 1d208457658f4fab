"""`toolcrib lock`: lock what MCP servers offer, and show what changed since."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.options import (
    ReadOptions,
    json_option,
    open_runtime,
    print_refusals,
    read_options,
    server_names,
)
from toolcrib.cli.output import json_text, plural, problem_text, write_atomically
from toolcrib.core.errors import ConfigurationError, ToolcribError, did_you_mean
from toolcrib.core.model import Outcome
from toolcrib.core.pointers import keys_of, pointer_to
from toolcrib.core.server_config import Server
from toolcrib.core.text import escape_terminal
from toolcrib.engine import engine_of
from toolcrib.engine.discovery import server_of
from toolcrib.engine.runtime import Runtime
from toolcrib.security.hidden_characters import HiddenCharacter, decode_tag_characters, spell_out_hidden
from toolcrib.servers.environment import accept_all
from toolcrib.servers.lock import Lock, LockedServer, read_lock
from toolcrib.servers.lock_diff import (
    ABSENT,
    DiffLine,
    Kind,
    LockDifference,
    ServerReview,
    ToolChange,
    render_lines,
    review,
    review_endpoint,
)


class LockFindings(NamedTuple):
    """The comparison of the servers with the lock.

    Attributes:
        reviews: One for each compared server, in the order of the servers.
        failures: Name of a server -> why it could not be queried.
        forgotten: Servers that are locked, but no longer configured.
    """

    reviews: tuple[ServerReview, ...]
    failures: Mapping[str, ToolcribError]
    forgotten: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether there are changes to accept."""
        return bool(self.forgotten) or any(each.differs for each in self.reviews)

    @property
    def new(self) -> bool:
        """Whether a server without a lock entry was queried."""
        return any(each.is_new and each.now is not None for each in self.reviews)


@click.command("lock")
@click.argument("names", nargs=-1, metavar="[SERVER]...", shell_complete=server_names)
@click.option("--update", is_flag=True, help="Accept all changes: lock every server as it is now.")
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing; exit with 1 if the lock is not up to date.",
)
@json_option
@read_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    names: tuple[str, ...],
    update: bool,
    check: bool,
    as_json: bool,
    reading: ReadOptions,
) -> None:
    """Lock what MCP servers offer, and show what changed since.

    With SERVER: only these servers.

    A missing lock file is created, and new servers are added to it. If a server differs from the lock, each change is
    shown with its kind (compatible, breaking, prompt-affecting), and nothing is written. A server whose command or
    address changed is not started. `--update` accepts all changes.
    """
    if update and check:
        raise click.UsageError("`--check` writes nothing, but `--update` writes; use only one of them")
    runtime = open_runtime(reading)
    print_refusals(runtime)
    unread = _directories(runtime)
    servers = _chosen(runtime, names)
    if not servers:
        click.echo("no servers; add them under `servers` or `agents` in toolcrib.yaml", err=True)
        ctx.exit(exit_codes.NOTHING_SELECTED)
    lock = _read(ctx, runtime, rewrites=update and not names)
    # With named servers or `--mcp`, the other locked servers are not selected, but that does not mean that
    # they were removed.
    known = () if names or reading.servers else tuple(sorted({*lock.servers} - {*runtime.servers}))
    known = tuple(name for name in known if server_of(name, unread) is None)
    found = asyncio.run(_looked_at(runtime, servers, lock, update=update, forgotten=known))
    text = _text(lock, found)
    # New servers are added without `--update`, changes need it. If anything differs, nothing is written at
    # all: the lock never contains half of a review.
    written = not check and (update or not found.differs) and (update or found.new) and text != _before(lock)
    if written:
        _write(Path(lock.source), text)
    if as_json:
        click.echo(
            json_text(
                lock_document(lock.source, found.reviews, found.failures, found.forgotten, written=written)
            )
        )
    else:
        _tell(lock, found, written=written, update=update, check=check)
    ctx.exit(_code(found, update=update, check=check))


def _directories(runtime: Runtime) -> list[str]:
    """Read the directories of agents, report those that cannot be read, and return their names."""
    engine = engine_of(runtime)
    if not any(server.lists for server in runtime.servers.values()):
        return []

    async def read() -> None:
        try:
            await engine.read_directories()
        finally:
            # Connections belong to an event loop.
            await engine.executors.aclose()

    asyncio.run(read())
    for error in engine.down.values():
        click.echo(escape_terminal(str(error)), err=True)
    return [*engine.down]


def _chosen(runtime: Runtime, names: Sequence[str]) -> list[Server]:
    """The servers with these names; all servers if no name is given. Directories of agents offer no tools."""
    servers = {name: server for name, server in runtime.servers.items() if not server.lists}
    for name in names:
        if name not in servers:
            known = ", ".join(f"`{each}`" for each in servers) or "none"
            hint = did_you_mean(name, servers) or f"the servers are: {known}"
            raise ConfigurationError(f"unknown server `{name}`", code="unknown_server", hint=hint)
    return [servers[name] for name in dict.fromkeys(names)] or [*servers.values()]


def _read(ctx: click.Context, runtime: Runtime, *, rewrites: bool) -> Lock:
    """Read the lock. An invalid one is reported, and ends the command unless it is rewritten completely."""
    lock, problems = read_lock(engine_of(runtime).lock_file)
    for problem in problems:
        click.echo(problem_text(problem), err=True)
    if problems and not rewrites:
        click.echo("nothing was written", err=True)
        ctx.exit(exit_codes.PROBLEMS)
    return lock


async def _looked_at(
    runtime: Runtime, servers: Sequence[Server], lock: Lock, *, update: bool, forgotten: tuple[str, ...]
) -> LockFindings:
    """Query every server that may be started, in parallel."""
    modes = engine_of(runtime).executors
    executors: dict[str, Any] = {mode: modes.get(mode) for mode in {server.mode for server in servers}}
    # Normally the lock decides whether a server may be started. Here the lock itself is being compared, and
    # `review_endpoint` below has already stopped servers whose command changed.
    world = engine_of(runtime).world._replace(judge=accept_all)
    for mode, executor in executors.items():
        if executor is None:
            raise ConfigurationError(f"mode `{mode}` {modes.missing(mode)}")
        executor.world = world
    failures: dict[str, ToolcribError] = {}

    async def looked_at(server: Server) -> ServerReview:
        before = lock.servers.get(server.name)
        outside = review_endpoint(before, server)
        # The command may be anything by now, so it is shown before it runs.
        if outside.endpoint and not update:
            return outside
        try:
            return review(before, server, await executors[server.mode].catalogue(server.name))
        except ToolcribError as error:
            failures[server.name] = error
            return outside

    try:
        reviews = await asyncio.gather(*map(looked_at, servers))
    finally:
        # Servers are child processes, which must not outlive the command.
        await runtime.aclose()
    return LockFindings(tuple(reviews), failures, forgotten)


def _before(lock: Lock) -> str:
    """The text of the current lock; empty if it is missing or invalid."""
    return lock.text if (lock.there or lock.packs) and not lock.problems else ""


def _text(lock: Lock, found: LockFindings) -> str:
    """The text of the new lock; servers that could not be queried keep their entry."""
    servers: dict[str, LockedServer] = {
        name: each for name, each in lock.servers.items() if name not in found.forgotten
    }
    servers |= {each.name: each.now for each in found.reviews if each.now is not None}
    return lock._replace(servers=servers).text if servers or lock.there or lock.packs else ""


def _write(path: Path, text: str) -> None:
    try:
        write_atomically(path, text)
    except OSError as error:
        raise click.ClickException(escape_terminal(f"{path} cannot be written: {error.strerror}")) from error


def _tell(lock: Lock, found: LockFindings, *, written: bool, update: bool, check: bool) -> None:
    """Print the comparison of each server on stdout, and warnings on stderr."""
    for each in found.reviews:
        _say(review_heading(each, found.failures.get(each.name)))
        _say(review_lines(each))
    for name in found.forgotten:
        _say([f"{escape_terminal(name)}: locked, but no longer configured"])
    for each in found.reviews:
        for line in warnings_of(each):
            click.echo(line, err=True)
    for name, error in found.failures.items():
        lead = click.style("not queried", fg="red", bold=True)
        click.echo(f"{lead}: {escape_terminal(name)}: {escape_terminal(str(error))}", err=True)
    click.echo(
        lock_summary(lock, found.reviews, written=written, check=check, waits=found.differs and not update)
    )


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _code(found: LockFindings, *, update: bool, check: bool) -> int:
    if (found.differs and not update) or (check and found.new):
        return exit_codes.PROBLEMS
    if any(getattr(error, "denied", False) for error in found.failures.values()):
        return exit_codes.OF_OUTCOME[Outcome.DENIED]
    return exit_codes.OF_OUTCOME[Outcome.UNAVAILABLE] if found.failures else exit_codes.OK


_COLOURS: Mapping[Kind, str] = {"breaking": "red", "compatible": "green", "prompt-affecting": "yellow"}
_SIGNS = {"-": "red", "+": "green", "~": "yellow"}
_SHOWN = 5
"""Hidden characters of a tool that are listed; the rest is counted."""


def review_heading(found: ServerReview, failure: ToolcribError | None) -> Iterator[str]:
    """The first line of a server: `time: 2 tools, unchanged`."""
    name = click.style(spell_out_hidden(found.name), bold=True)
    if found.now is None and failure is None:
        yield f"{name}: not started, because its command or address differs from the lock"
    elif found.now is None:
        yield f"{name}: {'not locked' if found.is_new else 'stays as locked'}"
    else:
        state = "new" if found.is_new else "changed" if found.differs else "unchanged"
        yield f"{name}: {plural(len(found.now.tools), 'tool')}, {state}{_version(found.before, found.now)}"
        if found.is_new:
            yield f"  {_reached(found.now)}"


def _version(before: LockedServer | None, now: LockedServer) -> str:
    """The version that the server reports, and the locked one if it differs."""
    is_now = spell_out_hidden(now.info.get("version", ""))
    was = spell_out_hidden(before.info.get("version", "")) if before is not None else is_now
    if not is_now:
        return ""
    return f" (version {is_now})" if was == is_now else f" (version {was or 'unknown'} -> {is_now})"


def _reached(server: LockedServer) -> str:
    endpoint = server.endpoint
    args = endpoint.get("args")
    words = [endpoint.get("command") or endpoint.get("url"), *(args if isinstance(args, list) else ())]
    return spell_out_hidden(" ".join(str(word) for word in words))


def review_lines(found: ServerReview) -> Iterator[str]:
    """The changes of a server, indented below its first line."""
    yield from (f"  {_line(line)}" for line in render_lines(found.endpoint))
    if found.is_new:
        return
    for name in found.added:
        yield f"  {click.style('+', fg='green')} {spell_out_hidden(name)}: new"
    for name in found.removed:
        yield f"  {click.style('-', fg='red')} {spell_out_hidden(name)}: no longer offered"
    for name, change in found.changed.items():
        yield from (f"  {line}" for line in change_lines(name, change))


def change_lines(name: str, change: ToolChange) -> Iterator[str]:
    """The change of a tool: its verdicts, the differences, and why it is breaking."""
    yield f"{spell_out_hidden(name)}: {verdicts_text(change.verdicts)}"
    yield from (f"  {_line(line)}" for line in render_lines(change.differences))
    for breach in change.breaches:
        yield f"  {click.style('breaking', fg='red')}: {spell_out_hidden(str(breach))}"


def verdicts_text(verdicts: Iterable[Kind]) -> str:
    """Kinds of changes, in their colours."""
    return ", ".join(click.style(kind, fg=_COLOURS[kind], bold=True) for kind in verdicts)


def _line(line: DiffLine) -> str:
    colour = _SIGNS.get(line.sign)
    text = f"{line.sign} {line.text}"
    return text if colour is None else click.style(text, fg=colour)


def warnings_of(found: ServerReview) -> Iterator[str]:
    """Warnings that a person should read before trusting the server."""
    lead = click.style("warning", fg="yellow")
    server = spell_out_hidden(found.name)
    for tool, characters in found.hidden.items():
        whose = (
            f"tool `{spell_out_hidden(tool)}` of `{server}`"
            if tool
            else f"the server information of `{server}`"
        )
        many = plural(len(characters), "hidden character")
        yield f"{lead}: {whose} contains {many}, which a model reads but a person cannot see"
        yield from (f"    {_place(each)}: {each}: {each.why}" for each in characters[:_SHOWN])
        if len(characters) > _SHOWN:
            yield f"    ... and {len(characters) - _SHOWN} more"
        # Tag characters (U+E0000 to U+E007F) mirror ASCII and are invisible: a known way to smuggle
        # instructions to a model.
        secret = decode_tag_characters("".join(chr(each.code) for each in characters))
        if secret:
            yield f"    the tag characters spell: {spell_out_hidden(secret[:200])}"
    # MCP recommends this set of characters for tool names.
    for tool in found.odd:
        yield f"{lead}: the name of tool `{spell_out_hidden(tool)}` of `{server}` contains characters other than A-Z a-z 0-9 _ . / -"
    for tool, why in found.unlockable.items():
        yield f"{lead}: tool `{spell_out_hidden(tool)}` of `{server}` cannot be locked: {spell_out_hidden(why)}"


def _place(each: HiddenCharacter) -> str:
    part, *rest = keys_of(each.where) or [""]
    place = spell_out_hidden(f"{part} {pointer_to(rest)}" if rest else part)
    return f"the key {place}" if each.in_key else place


def lock_summary(
    lock: Lock, reviews: Sequence[ServerReview], *, written: bool, check: bool, waits: bool
) -> str:
    """The last line: what was written, and what to do next."""
    place = escape_terminal(lock.source)
    if written:
        return f"wrote {place}"
    if waits:
        # Naming the servers makes `--update` accept only what was shown.
        names = " ".join(escape_terminal(each.name) for each in reviews if each.differs)
        accepts = f"`toolcrib lock --update{f' {names}' if names else ''}`"
        return (
            f"{place} does not match what the servers offer; nothing was written; run {accepts} to accept it"
        )
    if check and any(each.is_new and each.now is not None for each in reviews):
        return f"{place} does not contain every server; nothing was written; run `toolcrib lock` to add them"
    return f"{place} is unchanged" if lock.there else "nothing was written"


def lock_document(
    source: str,
    reviews: Sequence[ServerReview],
    failures: Mapping[str, ToolcribError],
    forgotten: Sequence[str],
    *,
    written: bool,
) -> dict[str, Any]:
    """The comparison as one JSON document."""
    return {
        "lock": source,
        "written": written,
        "servers": {each.name: _json_of_server(each, failures.get(each.name)) for each in reviews},
        "forgotten": [*forgotten],
    }


def _json_of_server(found: ServerReview, failure: ToolcribError | None) -> dict[str, Any]:
    now = found.now
    state = "new" if found.is_new else "changed" if found.differs else "unchanged"
    return {
        "state": "not_asked" if failure is not None else state,
        "error": None if failure is None else {"code": failure.code, "message": failure.message},
        "version": None if now is None else now.info.get("version"),
        "tools": None if now is None else {name: tool.hash for name, tool in now.tools.items()},
        "endpoint": [_json_of_difference(each) for each in found.endpoint],
        "added": [*found.added] if found.before is not None else [],
        "removed": [*found.removed],
        "changed": {name: json_of_change(change) for name, change in found.changed.items()},
        "hidden": {name: [each._asdict() for each in hidden] for name, hidden in found.hidden.items()},
        "unlockable": dict(found.unlockable),
    }


def json_of_change(change: ToolChange) -> dict[str, Any]:
    """The change of a tool as JSON: `verdicts`, `differences`, `breaches`."""
    return {
        "verdicts": [*change.verdicts],
        "differences": [_json_of_difference(each) for each in change.differences],
        "breaches": [each._asdict() for each in change.breaches],
    }


def _json_of_difference(each: LockDifference) -> dict[str, Any]:
    values = {"before": each.before, "after": each.after}
    return {
        "pointer": pointer_to(each.path),
        **{key: item for key, item in values.items() if item is not ABSENT},
    }
