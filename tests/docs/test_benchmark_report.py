"""The report of the benchmarks: a section that cannot be measured does not end the run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

PROGRAM = """
import report
from peers import PeerMissing
from rounds import Row

def good(name):
    yield Row(name, "base", [1.0] * 3, [2.0] * 3, None)

def absent():
    yield from good("before")
    raise PeerMissing("`pip install peer` failed")

def stopped():
    raise SystemExit("the peer ended with 1")
    yield

missing = []
sections = [report.Section("first", absent()), report.Section("second", stopped()), report.Section("third", good("after"))]
print([row.measure for row in report.measured(sections, missing)])
print(missing)
print(report.listed("Not measured", missing), end="")
"""


def test_a_section_that_cannot_be_measured_is_reported_and_the_next_one_follows():
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=BENCHMARKS,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    lines = [line for line in ran.stdout.splitlines() if not line.startswith("-- ")]
    assert lines == [
        "['before', 'after']",
        "['first: `pip install peer` failed', 'second: SystemExit: the peer ended with 1']",
        "Not measured:",
        "",
        "- first: `pip install peer` failed",
        "- second: SystemExit: the peer ended with 1",
        "",
    ]
