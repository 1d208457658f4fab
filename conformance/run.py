"""Run everything: the official suite on both sides, real servers, real clients. `make conformance`.

The tables are printed, and kept in `build/conformance/tables.md`; what of them does not depend on the day is
`docs/reference/mcp-conformance.md`, which must say what the run found. `--write` writes it anew.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import NamedTuple

import environments
import page
from environments import BUILD, LOGS, PROJECT
from official import REVISIONS, TIMED, TOOLS_PROFILE, requirement_set, tools_profile
from processes import ServerFailed, free_port, serving
from real_clients import PACK, real_clients
from real_servers import real_servers
from sections import Section

LANES = 2
"""So much runs side by side; more makes what is timed on two cores unsure."""


class Done(NamedTuple):
    """A part that has run, and for how long."""

    section: Section
    seconds: float


def main(options: Sequence[str]) -> int:
    """Run all parts, and return 1 if anything is not as it must be."""
    began = time.monotonic()
    versions = environments.set_up()
    print(", ".join(f"{name} {version}" for name, version in versions.items()), flush=True)
    done = list(_run_all())
    sections = [part.section for part in sorted(done, key=lambda part: part.section.title)]
    tables = "\n".join(section.as_markdown() for section in sections)
    (BUILD / "tables.md").write_text(f"# Conformance over MCP\n\n{tables}", encoding="utf-8")
    faults = [fault for section in sections for fault in section.faults]
    if not faults:
        faults = page.compared(sections, write="--write" in options)
        print("".join(f"FAULT {fault}\n" for fault in faults), end="")
    print(f"== {len(faults)} faults, {time.monotonic() - began:.0f} s")
    return 1 if faults else 0


def _run_all() -> Iterator[Done]:
    # What is timed comes first and alone.
    yield _told(partial(_client_profile, "2025-11-25", [TIMED]))
    with ThreadPoolExecutor(LANES) as lanes:
        for ended in as_completed([lanes.submit(_told, part) for part in _parts()]):
            yield ended.result()


def _parts() -> Iterator[Callable[[], Section]]:
    """The parts, those that take longest first."""
    yield real_clients
    for revision in reversed(REVISIONS):
        scenarios = [scenario for scenario in TOOLS_PROFILE["client", revision] if scenario != TIMED]
        yield partial(_client_set, revision)
        yield partial(_server_profile, revision)
        yield partial(_client_profile, revision, scenarios)
    yield real_servers
    for revision in REVISIONS:
        yield partial(_server_set, revision)


def _told(part: Callable[[], Section]) -> Done:
    began = time.monotonic()
    done = Done(part(), time.monotonic() - began)
    print(done.section.as_text(done.seconds), flush=True)
    return done


def _client_profile(revision: str, scenarios: Sequence[str]) -> Section:
    return tools_profile("client", revision, _client(), scenarios)


def _client_set(revision: str) -> Section:
    return requirement_set("client", revision, _client())


def _client() -> list[str]:
    return ["--command", f"{environments.python('toolcrib')} {environments.HERE / 'client.py'}"]


def _server_profile(revision: str) -> Section:
    scenarios = TOOLS_PROFILE["server", revision]
    return _served(
        revision, "tools", lambda url: tools_profile("server", revision, ["--url", url], scenarios)
    )


def _server_set(revision: str) -> Section:
    return _served(revision, "set", lambda url: requirement_set("server", revision, ["--url", url]))


def _served(revision: str, what: str, judge: Callable[[str], Section]) -> Section:
    port = free_port()
    command = [environments.script("toolcrib", "toolcrib"), "serve", "mcp", str(PACK.relative_to(PROJECT))]
    command += ["--transport", "http", "--port", str(port)]
    log = LOGS / f"server-{what}-{revision}.log"
    try:
        with serving(command, port, env=environments.bare_environment(), cwd=PROJECT, log=log, ends_with=0):
            return judge(f"http://127.0.0.1:{port}/mcp")
    except ServerFailed as error:
        return Section(f"MCP server, {what}, {revision}", ("fault",), [], [str(error)])


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except environments.SetupFailed as failed:
        sys.exit(f"conformance: {failed}")
