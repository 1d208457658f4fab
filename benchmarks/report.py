"""Run every measure and write `benchmarks/RESULTS.md`: `make bench`.

Some measures judge a few per cent, so nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import calls
import large_values
import live
import loading
import loop
import mcp_client
import mcp_server
import mocks
import peers
import startup
import trust
from rounds import STRICT, Row, line, shown

RESULTS = Path(__file__).parent / "RESULTS.md"

OURS = ("toolcrib", "jsonschema-rs", "jsonschema", "pyyaml", "jinja2", "click", "uvicorn", "starlette")

HEAD = """\
# Results

Written by `make bench`. Each line compares two things that ran side by side in one run: rounds alternate, so that what
else the machine does falls on both. Times are medians of the rounds; a ratio is the ratio of the medians, with the
least and the largest ratio of a single round behind it. A goal below {strict} is judged by the interval that holds the
ratio of the medians in 95 of 100 resamplings of the rounds. Absolute times belong to one machine; ratios travel.

Overhead is the time of a call less that of the tool's own work in the same process. Every peer has a virtual environment
and a process of its own.

Mocks that keep something run over a store of 1,000 orders, 500 users and 50 products. What is written by hand beside them
checks no arguments. Choosing among rules is measured without the call around it; a call among rules is a whole one.

Live calls go to one server on loopback, which has a process of its own too. Those of ours check arguments and answer;
bare httpx gets a finished URL and reads the JSON. With {callers} callers the limits of the tool let all of them pass,
unless the line says that they are the default ones. A line without a goal only shows what there is.

MCP servers have the same tools and are called by one raw client: bytes that are written before the clock starts, one
connection for each client, in the era of the handshake (2025-11-25) and in the one without (2026-07-28). Ours checks
arguments and results, the SDK's bare server neither. Our calls of MCP tools and the SDK's run in one process and call one
server.

A turn of a model's tool loop is two requests and one mocked call. The model is a list in memory, or a server of OpenAI's
chat completions in a process of its own; beside it stand the same requests without the loop, and the same with the call
by hand.

A value is large from 64 Ki characters on, and then judged in a thread. The answer that comes late to its deadline comes
30 ms before it; the row reports how long the call takes. The wait for `/healthz` is the longest of many.

| measure | ours | beside | | ratio | 95 % | rounds | goal | |
|---|---|---|---|---|---|---|---|---|
"""


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


def main() -> None:
    """Measure, print as it goes, write the page."""
    peer_versions: dict[str, str] = {}
    found: list[Row] = []
    serving = mcp_server.Measures()
    measures = (
        calls.rows(),
        mocks.rows(),
        peers.rows(peer_versions),
        live.rows(peer_versions),
        serving.rows(),
        mcp_client.rows(peer_versions),
        loop.rows(),
        loading.rows(),
        startup.rows(),
        trust.rows(),
        large_values.rows(),
    )
    for part in measures:
        for row in part:
            print(line(row), flush=True)
            found.append(row)
    left = []
    for each in live.leftovers():
        print(each, flush=True)
        left.append(f"- {each}")
    for held in serving.memory:
        print(held, flush=True)
        left.append(f"- {held}")
    table = "\n".join(cells(row) for row in found)
    counted = "\n".join(left)
    RESULTS.write_text(
        f"{HEAD.format(strict=STRICT, callers=live.CALLERS)}{table}\n\nCounted:\n\n{counted}\n\n{about(peer_versions)}",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
