"""Run everything: the official suite on both sides, real servers, real clients. `make conformance`.

The tables are printed, and kept in `build/conformance/tables.md`; what of them does not depend on the day is
`docs/reference/mcp-conformance.md`, which must say what the run found.
"""

from __future__ import annotations

import argparse
import fcntl
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import environments
import page
from environments import BUILD, LOGS, PROJECT
from official import REVISIONS, TIMED, TOOLS_PROFILE, requirement_set, tools_profile, write_passing
from processes import ServerFailed, free_port, left_over, serving
from real_clients import PACK, real_clients
from real_servers import real_servers
from sections import Section

LANES = 2
"""So much runs side by side; more makes what is timed on two cores unsure."""


class Done(NamedTuple):
    """A part that has run, and for how long."""

    section: Section
    seconds: float


class Part(NamedTuple):
    """Something to run: a title's beginning, for who wants only some, and the work."""

    name: str
    work: Callable[[], Section]


def main() -> int:
    """Run all parts, and return 1 if anything is not as it must be."""
    reader = argparse.ArgumentParser(prog="make conformance", description=__doc__.split(".", 1)[0])
    reader.add_argument(
        "--write",
        action="store_true",
        help="write passing.json and the reference page anew instead of comparing them",
    )
    reader.add_argument("--only", metavar="WORD", default="", help="run only the parts whose name holds this")
    reader.add_argument(
        "--quick", action="store_true", help="leave out the whole requirement sets, of which much is not ours"
    )
    asked = reader.parse_args()
    parts = [
        part
        for part in _parts(write=asked.write)
        if asked.only in part.name and not (asked.quick and " set " in part.name)
    ]
    with _alone():
        return _run(parts, whole=not (asked.only or asked.quick), write=asked.write)


@contextmanager
def _alone() -> Iterator[None]:
    """Wait until no other run of this checkout is under way: they share environments and results."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "running").open("w", encoding="utf-8") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("waiting for another run to end", flush=True)
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def _run(parts: Sequence[Part], *, whole: bool, write: bool) -> int:
    began = time.monotonic()
    versions = environments.set_up()
    print(", ".join(f"{name} {version}" for name, version in versions.items()), flush=True)
    done = list(_run_all(parts))
    sections = [part.section for part in sorted(done, key=lambda part: part.section.title)]
    tables = "\n".join(section.as_markdown() for section in sections)
    (BUILD / "tables.md").write_text(f"# Conformance over MCP\n\n{tables}", encoding="utf-8")
    if write:
        write_passing()
    faults = [f"still running: {command}" for command in left_over(environments.SCRATCH_HOME)]
    if whole and not any(section.faults for section in sections):
        faults += page.compared(sections, write=write)
    print("".join(f"FAULT {fault}\n" for fault in faults), end="")
    faults += [fault for section in sections for fault in section.faults]
    print(f"== {len(faults)} faults, {time.monotonic() - began:.0f} s")
    return 1 if faults else 0


def _parts(*, write: bool) -> Iterator[Part]:
    """The parts, those that take longest first; what is timed comes before all of them, and alone."""
    yield Part(TIMED, partial(_client_profile, "2025-11-25", [TIMED]))
    yield Part("real clients", real_clients)
    for revision in reversed(REVISIONS):
        scenarios = [scenario for scenario in TOOLS_PROFILE["client", revision] if scenario != TIMED]
        yield Part(f"client set {revision}", partial(_client_set, revision, write=write))
        yield Part(f"server tools {revision}", partial(_server_profile, revision))
        yield Part(f"client tools {revision}", partial(_client_profile, revision, scenarios))
    yield Part("real servers", real_servers)
    for revision in REVISIONS:
        yield Part(f"server set {revision}", partial(_server_set, revision, write=write))


def _run_all(parts: Sequence[Part]) -> Iterator[Done]:
    alone = [part for part in parts if part.name == TIMED]
    yield from map(_told, alone)
    with ThreadPoolExecutor(LANES) as lanes:
        running = [lanes.submit(_told, part) for part in parts if part not in alone]
        for ended in as_completed(running):
            yield ended.result()


def _told(part: Part) -> Done:
    began = time.monotonic()
    done = Done(part.work(), time.monotonic() - began)
    print(done.section.as_text(done.seconds), flush=True)
    return done


def _client_profile(revision: str, scenarios: Sequence[str]) -> Section:
    return tools_profile("client", revision, _client(), scenarios)


def _client_set(revision: str, *, write: bool) -> Section:
    return requirement_set("client", revision, _client(), write=write)


def _client() -> list[str]:
    return ["--command", f"{environments.python('toolcrib')} {environments.HERE / 'client.py'}"]


def _server_profile(revision: str) -> Section:
    scenarios = TOOLS_PROFILE["server", revision]
    return _served(
        revision, "tools", lambda url: tools_profile("server", revision, ["--url", url], scenarios)
    )


def _server_set(revision: str, *, write: bool) -> Section:
    return _served(
        revision, "set", lambda url: requirement_set("server", revision, ["--url", url], write=write)
    )


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
        sys.exit(main())
    except environments.SetupFailed as failed:
        sys.exit(f"conformance: {failed}")
