"""The report of the benchmarks: a section that cannot be measured does not end the run, and one can be measured again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

PROGRAM = """
import sys
from pathlib import Path

import report
from peers import PeerMissing
from rounds import Row

def good(versions):
    versions["peer"] = "1.2"
    yield Row("fast", "base", [1.0] * 3, [2.0] * 3, None)

def absent(versions):
    yield from good(versions)
    raise PeerMissing("`pip install peer` failed")

def stopped(versions):
    raise SystemExit("the peer ended with 1")
    yield

report.RESULTS = Path(sys.argv[1])
report.SECTIONS = (
    report.Section("a", "First", absent), report.Section("b", "Second", stopped),
    report.Section("c", "Third", good, "About it.", lambda: ["0 left"]),
)
print(report.main(sys.argv[2:]))
"""


def measured(page: Path, *sections: str) -> str:
    """The last line of a run."""
    command = [sys.executable, "-c", PROGRAM, str(page), *sections]
    ran = subprocess.run(command, cwd=BENCHMARKS, capture_output=True, text=True, timeout=60, check=True)
    return ran.stdout.splitlines()[-1]


def test_each_section_is_written_once_it_is_measured(tmp_path: Path) -> None:
    page = tmp_path / "RESULTS.md"
    kept = "## First\n\nof yesterday\n\n## Gone\n\nno longer measured\n"
    page.write_text(kept, encoding="utf-8")
    assert measured(page, "c") == "0"
    text = page.read_text(encoding="utf-8")
    assert "## First\n\nof yesterday\n\n## Third\n\nAbout it.\n\n| operation |" in text
    assert "| fast | 1.00 s | base | 2.00 s | 0.50 (0.50 to 0.50) |" in text
    assert "\n\n- 0 left\n\n" in text
    assert "peer 1.2.\n" in text
    assert "Gone" not in text
    assert measured(page) == "1"
    text = page.read_text(encoding="utf-8")
    assert "yesterday" not in text
    assert text.count("| fast |") == 2
    assert "- not measured: `pip install peer` failed\n" in text
    assert "## Second\n\n- not measured: SystemExit: the peer ended with 1\n" in text
    assert measured(page, "d") == "2"
