"""From paths of the command line to a runtime."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import click

from toolcrib.cli.options import Reading
from toolcrib.cli.printing import plural
from toolcrib.engine import Runtime
from toolcrib.errors import Problem, ToolcribError
from toolcrib.loading.projects import Profile
from toolcrib.model import NOTHING
from toolcrib.queries import Card
from toolcrib.starting import Asked
from toolcrib.text import escape_terminal

MOST_REMARKS = 5
"""So much is told of what is wrong with the tools of servers, by verbs that go on without them."""


def open_runtime(
    reading: Reading,
    paths: Iterable[str] = (),
    *,
    modes: Mapping[str, str] = NOTHING,
    seed: int = 0,
    passthrough: bool = False,
) -> Runtime:
    """The runtime over what the command line names. Its problems are the verb's to tell."""
    asked = Asked(
        paths=(*paths, *reading.servers),
        also=tuple(reading.packs),
        profile=reading.profile,
        modes=modes,
        indexed=reading.indexed,
    )
    return Runtime.reading(asked, seed=seed, passthrough=passthrough)


def open_and_ask(reading: Reading, paths: Iterable[str] = (), *, passthrough: bool = False) -> Runtime:
    """`open_runtime`, and the MCP servers were asked of which it is not known yet what they offer.

    They do not run any longer. One that could not be asked is told on stderr.
    """
    runtime = open_runtime(reading, paths, passthrough=passthrough)
    if runtime.undiscovered:
        import asyncio  # noqa: PLC0415 -- few runtimes have servers

        for problem in asyncio.run(_asked(runtime)):
            click.echo(escape_terminal(str(problem)), err=True)
    return runtime


async def _asked(runtime: Runtime) -> tuple[Problem, ...]:
    try:
        return await runtime.discover()
    finally:
        await runtime.executors.aclose()


def known_tools(reading: Reading, *, hidden: bool = False) -> list[Card]:
    """The tools that are offered, for a shell to complete; none where they can't be read.

    Args:
        reading: What the command line says so far.
        hidden: Also the tools that are not offered.
    """
    try:
        return open_runtime(reading).registry.query(hidden=hidden)
    except ToolcribError:
        return []


def known_profiles(reading: Reading) -> list[Profile]:
    """The profiles of the project, for a shell to complete; none where there is no project."""
    try:
        project = open_runtime(reading._replace(profile=None)).project
    except ToolcribError:
        return []
    return [] if project is None else list(project.profiles.values())


def known_servers(reading: Reading) -> list[str]:
    """The names of the MCP servers, for a shell to complete; none where they can't be read."""
    try:
        return [*open_runtime(reading).servers]
    except ToolcribError:
        return []


def tell_closed(runtime: Runtime) -> None:
    """Say on stderr why no tool is offered at all, for verbs that then show none."""
    if runtime.registry.why_closed:
        click.echo(escape_terminal(runtime.registry.why_closed), err=True)


def tell_refusals(runtime: Runtime) -> None:
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
