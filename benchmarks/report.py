"""Run the measures and write `benchmarks/RESULTS.md`: `make bench`, or `make bench SECTIONS="loop journal"`.

Each section has a table, a date and the versions of its own, and is written once it is measured, so that a few sections
can be measured again. Some goals are a few per cent apart, so nothing else should run on the machine.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

import a2a_client
import a2a_server
import access
import acp_agent
import approvals
import calls
import imports
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

HEAD = f"""\
# Results

Written by `make bench`. Each row compares two operations in one run. Rounds alternate, so that other load on the machine
affects both. Times are medians over the rounds. The ratio is the ratio of the medians, followed by the smallest and
largest ratio of a single round. "95 %" is its bootstrap interval; a goal below {STRICT}x is judged by this interval. A row
without a goal is only informative. Compare ratios between machines, not times.
"""

COLUMNS = """\
| operation | toolcrib | compared with | | ratio | 95 % | rounds | goal | |
|---|---|---|---|---|---|---|---|---|
"""


class Section(NamedTuple):
    """A part of the run: its measures fail together.

    Attributes:
        name: Its name on the command line.
        title: Its title on the page.
        rows: Measures the rows; adds the versions of peers to the dictionary.
        about: What is measured, for readers.
        counts: Further results, one a line, once the rows are measured.
    """

    name: str
    title: str
    rows: Callable[[dict[str, str]], Iterable[Row]]
    about: str = ""
    counts: Callable[[], Iterable[object]] = tuple


SERVERS = mcp_server.Measures()

SECTIONS = (
    Section(
        "calls",
        "Mocked calls",
        lambda _versions: calls.rows(),
        "The hand-written functions validate arguments and results only where the row says so.",
    ),
    Section(
        "mocks",
        "Stateful mocks",
        lambda _versions: mocks.rows(),
        "The store has 1,000 orders, 500 users and 50 products. Rule selection is measured without the call around it. "
        "The hand-written tools of packs/retail and of the airline validate arguments, changed rows and results, and return copies.",
    ),
    Section(
        "peers",
        "Calls of other libraries",
        peers.rows,
        "The overhead is the time of a call minus the time of the tool's own work. Every peer runs in its own virtual\n"
        "environment and process.",
    ),
    Section(
        "functions",
        "Typed functions",
        peers.function_rows,
        "Every peer gets the same arguments; the ratio is that of whole calls.",
    ),
    Section(
        "python",
        "Python tools",
        lambda _versions: python_tools.rows(),
        "The hand-written function validates its arguments and its result with pydantic.",
    ),
    Section("programs", "Programs", lambda _versions: programs.rows()),
    Section(
        "live",
        "Live calls",
        live.rows,
        "The calls go to one HTTP server on loopback. toolcrib validates arguments and responses; httpx gets a finished URL\n"
        f"and parses the JSON. With {live.CALLERS} callers, the limits of the tool are high enough for all of them, except in\n"
        'the row "default limits".',
        live.leftovers,
    ),
    Section(
        "mcp-server",
        "MCP servers",
        lambda _versions: SERVERS.rows(),
        """\
All servers offer the same tools to one raw client, which sends prepared bytes over one connection per client, with a
handshake (2025-11-25) and without (2026-07-28). toolcrib validates arguments and results. The SDK's low-level server
validates them only in the row "validation both ways", with the same validator. `json_response` is its fastest setting: JSON
bodies instead of event streams. The servers run as their packages are installed: toolcrib's extra `mcp` has httptools, which
parses HTTP; the others use h11. The SDK's client reads all pages and does not use its cache. Most of the time is its own: it
parses and validates the tools. The floor is this client without a server and a network: it gets the smallest valid
response, on one page, from its own memory. No server that offers these tools can be faster. The rows that compare the floor
with other servers therefore show the smallest possible ratios, and a goal below such a ratio cannot be reached.""",
        lambda: SERVERS.memory,
    ),
    Section(
        "mcp-client",
        "MCP clients",
        mcp_client.rows,
        "toolcrib and the SDK's client call the same server from the same process.",
    ),
    Section("a2a-client", "A2A clients", a2a_client.rows),
    Section("a2a-server", "A2A servers", a2a_server.rows),
    Section(
        "loop",
        "Model turns",
        lambda _versions: loop.rows(),
        "A turn consists of two requests and one mocked call. The model is a list in memory or a server of OpenAI's chat\n"
        "completions in its own process.",
    ),
    Section(
        "operations",
        "Operation",
        lambda _versions: operations.rows(),
        "A mocked call is due every 2 ms; its delay is the time from then to its end. The other calls go to a server on\n"
        "loopback, whose 8 MiB are a list of objects of 1 KiB.",
    ),
    Section("loading", "Loading", lambda _versions: loading.rows()),
    Section(
        "acp",
        "ACP",
        acp_agent.rows,
        "The agent of toolcrib opens a project with one tool and has a scripted model; that of the SDK answers with a constant.\n"
        "Both write to a client that reads nothing.",
    ),
    Section(
        "import",
        "Import",
        lambda _versions: imports.rows(),
        "Both convert the same description of 13 MB in processes of their own, reading it included. toolcrib makes descriptors;\n"
        "writing and checking their files is not part of the measure.",
    ),
    Section("startup", "Start-up", lambda _versions: startup.rows()),
    Section(
        "extras",
        "Extras that are not used",
        lambda _versions: startup.rows_of_extras(),
        "Two environments of their own, each with 1,000 tools and an index.",
    ),
    Section("trust", "Trust", lambda _versions: trust.rows()),
    Section(
        "access",
        "Access",
        lambda _versions: access.rows(),
        "One mocked tool in projects with different rules. Of many rules, two concern the tool.",
    ),
    Section("approvals", "Approvals", lambda _versions: approvals.rows()),
    Section(
        "journal",
        "Journal",
        lambda _versions: journal.rows(),
        "A Python function that does nothing, and SQLite on the disk of the checkout. The bare commits write the same rows into\n"
        "the same table. Mocks are journalled on demand only (`mocks: true`).",
    ),
    Section(
        "large-values",
        "Large values",
        lambda _versions: large_values.rows(),
        "They have 64 Ki characters or more and are validated in a thread.",
    ),
)


def cells(row: Row) -> str:
    """The row as a line of a Markdown table."""
    found = row.ratio
    return (
        f"| {row.measure} | {row.typical(row.ours)} | {row.base} | "
        f"{row.typical(row.theirs)} | {found} | {shown(found.low)} to {shown(found.high)} | "
        f"{len(row.ours)} | {row.goal} | {row.verdict} |"
    )


def machine(peer_versions: dict[str, str]) -> str:
    """The date, the machine and the versions."""
    ours = {name: version(name) for name in OURS}
    known = ", ".join(f"{name} {number}" for name, number in (ours | peer_versions).items())
    system = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return f"{datetime.now(UTC):%Y-%m-%d}. {system}. {known}."


def measured(section: Section) -> tuple[str, bool]:
    """Measure a section and print its rows. Returns its text, and whether all of it could be measured."""
    versions: dict[str, str] = {}
    table = ""
    lines: list[str] = []
    missing = ""
    started = perf_counter()
    try:
        for row in section.rows(versions):
            print(line(row), flush=True)
            table += f"{cells(row)}\n"
        lines += [str(each) for each in section.counts()]
    except PeerMissing as error:
        missing = str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- the other sections take many minutes
        traceback.print_exc()
        missing = f"{type(error).__name__}: {error}"
    if missing:
        lines.append(f"not measured: {missing}")
    for each in lines:
        print(each, flush=True)
    print(f"-- {section.name}: {perf_counter() - started:.0f} s", flush=True)
    parts = [
        section.about,
        (COLUMNS + table).rstrip() if table else "",
        "\n".join(f"- {each}" for each in lines),
    ]
    return "\n\n".join([*(part for part in parts if part), machine(versions)]) + "\n", not missing


def main(names: list[str]) -> int:
    """Measure the named sections, or all; write the page after each. Returns 1 if one failed, and 2 for an unknown name."""
    known = {section.name: section for section in SECTIONS}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"unknown sections: {', '.join(unknown)}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    _, *texts = re.split(r"^## (.+)\n\n", RESULTS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    page = dict(zip(texts[::2], texts[1::2], strict=True))
    complete = True
    for name in names or known:
        page[known[name].title], whole = measured(known[name])
        complete &= whole
        sections = [
            f"## {each.title}\n\n{page[each.title].rstrip()}\n" for each in SECTIONS if each.title in page
        ]
        RESULTS.write_text("\n".join([HEAD, *sections]), encoding="utf-8")
    return 0 if complete else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
