"""Calls of an MCP server's tool by toolcrib and by the SDK's client, to the same server from the same process.

python benchmarks/mcp_client.py [--rounds 60]
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack

from mcp_server import FEW, Serving, theirs
from peers import Worker, python_of
from rounds import Round, Row, interleaved, print_rows

ROUNDS = 40
GOAL = 1.1
WAYS = (("http", "HTTP", GOAL), ("stdio", "stdio", GOAL))
CALLS = 60
CALLERS = 50


def timed(worker: Worker, contender: str, callers: int) -> Round:
    """A round of tens or hundreds of milliseconds."""
    count = CALLS if callers == 1 else 4 * callers
    return lambda: worker.time(contender, count, callers)


def rows(versions: dict[str, str] | None = None, rounds: int = ROUNDS) -> Iterator[Row]:
    """All measures of this file; adds the measured versions to `versions`."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="toolcrib-mcp-"))
        serving = stack.enter_context(Serving(FEW, {"sdk": theirs("mcp")}, os.environ))
        port, python = str(serving.ports["sdk"]), str(python_of("mcp"))
        worker = stack.enter_context(Worker(sys.executable, "toolcrib_mcp", folder, port, python))
        (versions if versions is not None else {}).update(worker.about["versions"])
        for way, title, goal in WAYS:
            for callers in (1, CALLERS):
                contenders = {name: timed(worker, f"{name}_{way}", callers) for name in ("ours", "sdk")}
                times = interleaved(contenders, rounds)
                many = "" if callers == 1 else f", {callers} concurrent callers"
                measure = f"MCP tool call as a client, {title}{many}"
                yield Row(
                    measure,
                    "SDK, Client.call_tool",
                    times["ours"],
                    times["sdk"],
                    goal if callers == 1 else None,
                )


if __name__ == "__main__":
    print_rows(lambda rounds: rows(rounds=rounds), __doc__)
