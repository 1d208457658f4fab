"""Approvals: the memory of pending calls.

.venv/bin/python benchmarks/approvals.py
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

from rounds import Row, line

from toolcrib import Runtime
from toolcrib.security.approvals import MemoryApprovals

MANY, FEW = 10_000, 10

ROUNDS = 30

ROOM = 100 * 2**20
"""Bytes that the pending approvals may take."""

TOOL = """\
name: pay
requires_confirmation: "Pay {{ args.amount }} to {{ args.to }}?"
input_schema: {type: object, properties: {amount: {type: number}, to: {type: string}}, required: [amount]}
mock: {result: 1}
"""


async def held(file: Path, calls: int) -> int:
    """Bytes that so many pending approvals take."""
    runtime = Runtime.open(file, index=False, approvals=MemoryApprovals())
    await runtime.call("pay", {"amount": 0})
    tracemalloc.start()
    for number in range(1, calls):
        await runtime.call("pay", {"amount": number, "to": f"customer {number}"})
    taken, _most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(runtime.approvals.pending()) == calls
    return taken


def rows() -> Iterator[Row]:
    """The row of approvals."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pay.tool.yaml"
        file.write_text(TOOL, encoding="utf-8")
        many, few = asyncio.run(held(file, MANY)), asyncio.run(held(file, FEW))
    # Traced memory is the same in every round, so one measurement stands for the rounds that a verdict needs.
    extra, room = [float(many - few)] * ROUNDS, [float(ROOM)] * ROUNDS
    yield Row(f"memory of {MANY:,} pending approvals beyond {FEW}", "100 MiB", extra, room, 1, unit="B")


def main() -> int:
    """Print the row."""
    for row in rows():
        print(line(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
