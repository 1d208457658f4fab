"""Run every measure and write `benchmarks/RESULTS.md`: `make bench`.

Some goals are a few per cent apart, so nothing else should run on the machine.
"""

from __future__ import annotations

import os
import platform
import sys
import traceback
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import a2a_client
import access
import approvals
import calls
import journal
import large_values
import live
import loading
import loop
import mcp_client
import mcp_server
import mocks
import operations
import peers
import programs
import python_tools
import startup
import trust
from peers import PeerMissing
from rounds import STRICT, Row, line, shown

RESULTS = Path(__file__).parent / "RESULTS.md"

OURS = ("toolcrib", "jsonschema-rs", "jsonschema", "pyyaml", "jinja2", "click", "uvicorn", "starlette")

HEAD = """\
# Results

Written by `make bench`. Each row compares two operations in one run. Rounds alternate, so that other load on the machine
affects both. Times are medians over the rounds. The ratio is the ratio of the medians, followed by the smallest and
largest ratio of a single round. "95 %" is its bootstrap interval; a goal below {strict}x is judged by this interval. A row
without a goal is only informative. Compare ratios between machines, not times.

- **Mocked calls.** The hand-written functions validate arguments and results only where the row says so. The overhead is
  the time of a call minus the time of the tool's own work. Every peer runs in its own virtual environment and process.
- **Typed functions** are called with the same arguments in every peer; the ratio is that of whole calls.
- **Python tools.** The hand-written function validates its arguments and its result with pydantic.
- **Stateful mocks** use a store with 1,000 orders, 500 users and 50 products. Rule selection is measured without the call
  around it.
- **Live calls** go to one HTTP server on loopback. toolcrib validates arguments and responses; httpx gets a finished URL
  and parses the JSON. With {callers} callers, the limits of the tool are high enough for all of them, except in the row
  "default limits".
- **MCP servers** offer the same tools to one raw client, which sends prepared bytes over one connection per client, with
  a handshake (2025-11-25) and without (2026-07-28). toolcrib validates arguments and results. The SDK's low-level
  server validates them only in the row "validation both ways", with the same validator. `json_response` is its fastest
  setting: JSON bodies instead of event streams. The servers run as their packages are installed: toolcrib's extra `mcp`
  has httptools, which parses HTTP; the others use h11. The SDK's client reads all pages and does not use its cache. Most of
  the time is its own: it parses and validates the tools. The floor is this client without a server and a network: it gets
  the smallest valid response, on one page, from its own memory. No server that offers these tools can be faster. The rows
  that compare the floor with other servers therefore show the smallest possible ratios, and a goal below such a ratio
  cannot be reached.
- **MCP clients.** toolcrib and the SDK's client call the same server from the same process.
- **Model turns** consist of two requests and one mocked call. The model is a list in memory or a server of OpenAI's chat
  completions in its own process.
- **Access.** One mocked tool in projects with different rules. Of many rules, two concern the tool.
- **Journal.** A Python function that does nothing, and SQLite on the disk of the checkout. The bare commits write the same row into the
  same table. Mocks are journalled on demand only (`mocks: true`).
- **Operation.** A mocked call is due every 2 ms; its delay is the time from then to its end. The other calls go to a server on
  loopback, whose 8 MiB are a list of objects of 1 KiB.
- **Large values** have 64 Ki characters or more and are validated in a thread.

| operation | toolcrib | compared with | | ratio | 95 % | rounds | goal | |
|---|---|---|---|---|---|---|---|---|
"""


class Section(NamedTuple):
    """A part of the run: its measures fail together.

    Attributes:
        name: Its name in messages.
        rows: The rows, as they are measured.
    """

    name: str
    rows: Iterable[Row]


def cells(row: Row) -> str:
    """The row as a line of a Markdown table."""
    found = row.ratio
    return (
        f"| {row.measure} | {row.typical(row.ours)} | {row.base} | "
        f"{row.typical(row.theirs)} | {found} | {shown(found.low)} to {shown(found.high)} | "
        f"{len(row.ours)} | {row.goal} | {row.verdict} |"
    )


def about(peer_versions: dict[str, str]) -> str:
    """The machine and the versions."""
    ours = {name: version(name) for name in OURS}
    known = ", ".join(f"{name} {number}" for name, number in (ours | peer_versions).items())
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return f"{datetime.now(UTC):%Y-%m-%d}. {machine}. {known}.\n"


def measured(sections: Iterable[Section], missing: list[str]) -> Iterator[Row]:
    """The rows of all sections. A section that fails is added to `missing`, and the next one follows."""
    for section in sections:
        started = perf_counter()
        try:
            yield from section.rows
        except PeerMissing as error:
            missing.append(f"{section.name}: {error}")
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- the other sections take many minutes
            traceback.print_exc()
            missing.append(f"{section.name}: {type(error).__name__}: {error}")
        print(f"-- {section.name}: {perf_counter() - started:.0f} s", flush=True)


def main() -> int:
    """Measure, print each row, and write the page. Returns 1 if a section failed."""
    peer_versions: dict[str, str] = {}
    serving = mcp_server.Measures()
    sections = (
        Section("calls", calls.rows()),
        Section("mocks", mocks.rows()),
        Section("peers", peers.rows(peer_versions)),
        Section("typed functions", peers.function_rows(peer_versions)),
        Section("python_tools", python_tools.rows()),
        Section("programs", programs.rows()),
        Section("live", live.rows(peer_versions)),
        Section("mcp_server", serving.rows()),
        Section("mcp_client", mcp_client.rows(peer_versions)),
        Section("a2a_client", a2a_client.rows(peer_versions)),
        Section("loop", loop.rows()),
        Section("operations", operations.rows()),
        Section("loading", loading.rows()),
        Section("startup", startup.rows()),
        Section("trust", trust.rows()),
        Section("access", access.rows()),
        Section("approvals", approvals.rows()),
        Section("journal", journal.rows()),
        Section("large_values", large_values.rows()),
    )
    found: list[Row] = []
    missing: list[str] = []
    for row in measured(sections, missing):
        print(line(row), flush=True)
        found.append(row)
    try:
        counts = [str(each) for each in live.leftovers()]
    except PeerMissing as error:
        counts = []
        missing.append(f"cancelled calls: {error}")
    counts += [str(held) for held in serving.memory]
    for each in [*counts, *(f"not measured: {reason}" for reason in missing)]:
        print(each, flush=True)
    table = "\n".join(cells(row) for row in found)
    head = HEAD.format(strict=STRICT, callers=live.CALLERS)
    RESULTS.write_text(
        f"{head}{table}\n\n{listed('Counts', counts)}{listed('Not measured', missing)}{about(peer_versions)}",
        encoding="utf-8",
    )
    return 1 if missing else 0


def listed(title: str, lines: Sequence[str]) -> str:
    """A list under a title; empty without lines."""
    return f"{title}:\n\n" + "".join(f"- {each}\n" for each in lines) + "\n" if lines else ""


if __name__ == "__main__":
    sys.exit(main())
