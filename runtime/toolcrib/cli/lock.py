"""`toolcrib lock`: freeze what MCP servers offer, see what changed since, and accept it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.file_output import write_whole
from toolcrib.cli.lock_output import heading, json_of, lines_of_review, summary, warnings_of
from toolcrib.cli.options import Reading, json_option, reading_options, server_names
from toolcrib.cli.runtime_options import open_runtime, tell_refusals
from toolcrib.cli.value_output import json_text, problem_text
from toolcrib.core.errors import ConfigurationError, ToolcribError, did_you_mean
from toolcrib.core.model import Outcome
from toolcrib.core.server_config import MODE, Server
from toolcrib.core.text import escape_terminal
from toolcrib.engine.runtime import Runtime
from toolcrib.servers.environment import accept_all
from toolcrib.servers.lock import Lock, LockedServer, read_lock
from toolcrib.servers.lock_diff import ServerReview, review, review_endpoint


class Found(NamedTuple):
    """What became of looking at the servers.

    Attributes:
        reviews: One for each server that was looked at, in their order.
        failures: Name of a server -> why it could not be asked.
        forgotten: Servers that are locked and named nowhere any longer.
    """

    reviews: tuple[ServerReview, ...]
    failures: Mapping[str, ToolcribError]
    forgotten: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether something is to be accepted."""
        return bool(self.forgotten) or any(each.differs for each in self.reviews)

    @property
    def new(self) -> bool:
        """Whether there is a server of which nothing is locked, and which could be asked."""
        return any(each.is_new and each.now is not None for each in self.reviews)


@click.command("lock")
@click.argument("names", nargs=-1, metavar="[SERVER]...", shell_complete=server_names)
@click.option("--update", is_flag=True, help="Accept what changed: lock every server as it is now.")
@click.option(
    "--check",
    is_flag=True,
    help="Write nothing; end with 1 where the lock does not hold everything as it is.",
)
@json_option
@reading_options
@click.pass_context
def command(
    ctx: click.Context,
    *,
    names: tuple[str, ...],
    update: bool,
    check: bool,
    as_json: bool,
    reading: Reading,
) -> None:
    """Freeze what MCP servers offer, and show what changed since.

    With SERVER: only that one, or those.

    Where there is no lock, it is written. Servers that are not in it yet are added. What is not as it was locked is shown,
    each change with what it means (compatible, breaking, prompt-affecting), and then nothing is written. A server whose command
    or address changed is not even started. `--update` accepts all of it.
    """
    if update and check:
        raise click.UsageError("`--check` writes nothing, and `--update` writes; leave one of them out")
    runtime = open_runtime(reading)
    tell_refusals(runtime)
    servers = _chosen(runtime, names)
    if not servers:
        click.echo("there are no MCP servers; name them under `servers` in toolcrib.yaml", err=True)
        ctx.exit(exit_codes.NOTHING_SELECTED)
    lock = _read(ctx, runtime, rewrites=update and not names)
    known = () if names or reading.servers else tuple(sorted({*lock.servers} - {*runtime.servers}))
    found = asyncio.run(_looked_at(runtime, servers, lock, update=update, forgotten=known))
    text = _text(lock, found)
    written = not check and (update or not found.differs) and (update or found.new) and text != _before(lock)
    if written:
        _write(Path(lock.source), text)
    if as_json:
        click.echo(
            json_text(json_of(lock.source, found.reviews, found.failures, found.forgotten, written=written))
        )
    else:
        _tell(lock, found, written=written, update=update, check=check)
    ctx.exit(_code(found, update=update, check=check))


def _chosen(runtime: Runtime, names: Sequence[str]) -> list[Server]:
    """The servers that are asked for; all, where none is named."""
    servers = runtime.servers
    for name in names:
        if name not in servers:
            known = ", ".join(f"`{each}`" for each in servers) or "none"
            hint = did_you_mean(name, servers) or f"the servers are: {known}"
            raise ConfigurationError(f"there is no server `{name}`", code="unknown_server", hint=hint)
    return [servers[name] for name in dict.fromkeys(names)] or [*servers.values()]


def _read(ctx: click.Context, runtime: Runtime, *, rewrites: bool) -> Lock:
    """The lock as it is. One that can't be used is told, and ends the command unless all of it is written anew."""
    lock, problems = read_lock(runtime.engine.lock_file)
    for problem in problems:
        click.echo(problem_text(problem), err=True)
    if problems and not rewrites:
        click.echo("nothing was written", err=True)
        ctx.exit(exit_codes.PROBLEMS)
    return lock


async def _looked_at(
    runtime: Runtime, servers: Sequence[Server], lock: Lock, *, update: bool, forgotten: tuple[str, ...]
) -> Found:
    """Ask every server that may be started what it offers, all at once."""
    executor: Any = runtime.engine.executors.get(MODE)
    if executor is None:
        raise ConfigurationError(f"mode `{MODE}` {runtime.engine.executors.missing(MODE)}")
    # The lock is about to be judged itself, so it does not judge whether a server may be started.
    executor.world = runtime.engine.world._replace(judge=accept_all)
    failures: dict[str, ToolcribError] = {}

    async def looked_at(server: Server) -> ServerReview:
        before = lock.servers.get(server.name)
        outside = review_endpoint(before, server)
        if outside.endpoint and not update:
            return outside
        try:
            return review(before, server, await executor.catalogue(server.name))
        except ToolcribError as error:
            failures[server.name] = error
            return outside

    try:
        reviews = await asyncio.gather(*map(looked_at, servers))
    finally:
        await runtime.aclose()
    return Found(tuple(reviews), failures, forgotten)


def _before(lock: Lock) -> str:
    """The text of the lock as it is, if it is one."""
    return lock.text if lock.there and not lock.problems else ""


def _text(lock: Lock, found: Found) -> str:
    """The lock with the servers as they are now; those that could not be asked stay as they were."""
    servers: dict[str, LockedServer] = {
        name: each for name, each in lock.servers.items() if name not in found.forgotten
    }
    servers |= {each.name: each.now for each in found.reviews if each.now is not None}
    return lock._replace(servers=servers).text if servers or lock.there else ""


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise click.ClickException(escape_terminal(f"{path} can't be written: {error.strerror}")) from error


def _tell(lock: Lock, found: Found, *, written: bool, update: bool, check: bool) -> None:
    """The outcome on stdout, server by server; what somebody should look at on stderr."""
    for each in found.reviews:
        _say(heading(each, found.failures.get(each.name)))
        _say(lines_of_review(each))
    for name in found.forgotten:
        _say([f"{escape_terminal(name)}: locked, and named nowhere any longer"])
    for each in found.reviews:
        for line in warnings_of(each):
            click.echo(line, err=True)
    for name, error in found.failures.items():
        lead = click.style("not asked", fg="red", bold=True)
        click.echo(f"{lead}: {escape_terminal(name)}: {escape_terminal(str(error))}", err=True)
    click.echo(summary(lock, found.reviews, written=written, check=check, waits=found.differs and not update))


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _code(found: Found, *, update: bool, check: bool) -> int:
    if (found.differs and not update) or (check and found.new):
        return exit_codes.PROBLEMS
    if any(getattr(error, "denied", False) for error in found.failures.values()):
        return exit_codes.OF_OUTCOME[Outcome.DENIED]
    return exit_codes.OF_OUTCOME[Outcome.UNAVAILABLE] if found.failures else exit_codes.OK
