"""From paths of the command line to a runtime."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress

import click

from toolcrib.cli import exit_codes
from toolcrib.cli.options import Reading
from toolcrib.cli.trust_output import ask_at_terminal, can_ask, tell_untrusted
from toolcrib.cli.value_output import plural
from toolcrib.core.errors import ToolcribError
from toolcrib.core.model import NOTHING
from toolcrib.core.text import escape_terminal
from toolcrib.engine.runtime import Runtime, read_runtime
from toolcrib.engine.startup import Asked
from toolcrib.loading.projects import Profile
from toolcrib.registry.catalog import Card
from toolcrib.security.trust import VARIABLE, Consent, TrustPolicy, TrustRequest, Untrusted, hashes_in

MOST_REMARKS = 5
"""So much is told of what is wrong with the tools of servers, by verbs that go on without them."""


class Consents:
    """What somebody at the terminal has answered so far, so that nobody is asked for the same twice."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], Consent] = {}

    def __call__(self, request: TrustRequest) -> Consent:
        """The answer that was given for the same; else ask."""
        key = (request.workspace.root, request.hash)
        if key not in self._said:
            said = ask_at_terminal(request)
            self._said[key] = "no" if said == "no" else "once"  # what is for good is kept already
            return said
        return self._said[key]

    @property
    def granted(self) -> tuple[str, ...]:
        """The hashes of what was agreed to."""
        return tuple(digest for (_root, digest), said in self._said.items() if said != "no")


def open_runtime(
    reading: Reading,
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
    asked = _asked_for(reading, paths)._replace(modes=modes)
    return read_runtime(
        asked, seed=seed, passthrough=passthrough, ask=(consents or Consents()) if can_ask() else None
    )


def _asked_for(reading: Reading, paths: Iterable[str]) -> Asked:
    return Asked(
        paths=(*paths, *reading.servers),
        also=tuple(reading.packs),
        profile=reading.profile,
        indexed=reading.indexed,
        trust=policy_of(reading),
    )


def policy_of(reading: Reading) -> TrustPolicy:
    """What a command trusts without a stored decision: who names a file of servers with `--mcp` wants them started."""
    return TrustPolicy(paths=reading.servers, hashes=reading.granted).with_environment()


def open_listed(reading: Reading, paths: Iterable[str] = (), *, remembers: bool = True) -> Runtime:
    """The runtime for a verb that only lists: nothing is started, contacted or looked up, and nobody is asked.

    Args:
        reading: What the command line says of the tools.
        paths: The same, more closely.
        remembers: Whether what servers answered some time ago will do.
    """
    return read_runtime(_asked_for(reading, paths)._replace(remembers=remembers))


def tell_not_queried(runtime: Runtime) -> None:
    """Say on stderr of which servers it is not known what they offer, for verbs that ask none."""
    names = runtime.engine.undiscovered
    for name, when in runtime.engine.stock.remembered.items():
        click.echo(f"server `{escape_terminal(name)}`: not queried; as it answered at {when}", err=True)
    for name in names:
        click.echo(f"server `{escape_terminal(name)}`: not queried", err=True)
    if names:
        click.echo(
            "    hint: `toolcrib doctor` asks servers, and `toolcrib lock` keeps what they offer", err=True
        )


def code_of_list(runtime: Runtime, *, empty: bool, strict: bool = False) -> int:
    """The exit code of a verb that lists tools: an empty list is a success only where nothing is wrong.

    Args:
        runtime: What was read.
        empty: Whether nothing is listed.
        strict: Whether the list must have tools, and be all there is.
    """
    errors = {problem.code for problem in runtime.problems if problem.severity == "error"}
    incomplete = bool(empty or runtime.problems or runtime.engine.undiscovered)
    wrong = "path_not_found" in errors or (empty and (errors or runtime.registry.why_closed))
    return exit_codes.PROBLEMS if wrong or (strict and incomplete) else exit_codes.OK


def open_and_ask(
    reading: Reading,
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
    names = tuple(runtime.servers) if everything else runtime.engine.undiscovered
    if names:
        import asyncio  # noqa: PLC0415 -- few runtimes have servers

        asyncio.run(_ask(runtime, names))
    return runtime


async def _ask(runtime: Runtime, names: Iterable[str]) -> None:
    try:
        await runtime.discover(*names)
    finally:
        await runtime.engine.executors.aclose()


def agree_to_all(runtime: Runtime) -> None:
    """Let somebody agree to what the tools in force may touch, before a client or a model calls them."""
    from toolcrib.engine.workspaces import subject_of_tool  # noqa: PLC0415 -- few commands need it

    trust, executors = runtime.engine.trust, runtime.engine.executors
    if not trust.policy.everything:
        reaching = [
            card
            for card in runtime.registry.query()
            if card.mode is not None and card.mode in card.modes and not executors.is_contained(card.mode)
        ]
        subjects = [
            subject_of_tool(runtime.registry[card.name], executors, trust, card.mode) for card in reaching
        ]
        for subject in subjects:
            with suppress(Untrusted):
                trust.check(subject)
        for name in runtime.engine.undiscovered:
            with suppress(Untrusted):
                trust.check_server(runtime.servers[name])
    tell_denied(runtime)


def idle_variable() -> str:
    """That the environment variable for trust is set to what grants nothing; empty where it is not."""
    said = os.environ.get(VARIABLE, "").strip()
    granted = said.lower() == "all" or any(_HASH.fullmatch(each) for each in hashes_in(said))
    if not said or granted:
        return ""
    return f"{VARIABLE} grants nothing: it is neither `all` nor a list of hashes of at least 16 hexadecimal digits"


_HASH = re.compile("[0-9a-f]{16,}")


def tell_idle_variable() -> None:
    """Say on stderr that the variable grants nothing, beside what was denied."""
    idle = idle_variable()
    if idle:
        click.echo(f"{click.style('warning', fg='yellow')}: {idle}", err=True)


def tell_denied(runtime: Runtime) -> bool:
    """Say on stderr, once for each workspace, what nobody has agreed to so far; whether there is such."""
    refused = runtime.engine.trust.refused
    if refused:
        tell_untrusted(refused, runtime.engine.trust.store.problems)
        tell_idle_variable()
    runtime.engine.trust.told = True
    return bool(refused)


def known_tools(reading: Reading, *, hidden: bool = False) -> list[Card]:
    """The tools that are offered, for a shell to complete; none where they can't be read.

    Args:
        reading: What the command line says so far.
        hidden: Also the tools that are not offered.
    """
    try:
        return open_listed(reading).registry.query(hidden=hidden)
    except ToolcribError:
        return []


def known_profiles(reading: Reading) -> list[Profile]:
    """The profiles of the project, for a shell to complete; none where there is no project."""
    try:
        project = open_listed(reading._replace(profile=None)).project
    except ToolcribError:
        return []
    return [] if project is None else list(project.profiles.values())


def known_servers(reading: Reading) -> list[str]:
    """The names of the MCP servers, for a shell to complete; none where they can't be read."""
    try:
        return [*open_listed(reading).servers]
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
