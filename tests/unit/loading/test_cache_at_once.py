"""Several processes use one index at once while files change: none of them ever gets what is out of date."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kept import write_project
from sampling import THOROUGH

TESTS = str(Path(__file__).parents[2])

TOOL = "name: counter\nversion: v{number:06}\nmock: {{result: 1}}\n"

WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from kept import Shelf
shelf, file = Shelf(Path(sys.argv[2]), "tools"), Path("tools/counter.tool.yaml")
for number in range(int(sys.argv[3])):
    draft = Path("tools/.draft")
    draft.write_text(f"name: counter\\nversion: v{number:06}\\nmock: {{result: 1}}\\n")
    draft.replace(file)
    if number % 3 == 0:
        shelf.keep()
"""

READER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from kept import Shelf
shelf, file = Shelf(Path(sys.argv[2]), "tools"), Path("tools/counter.tool.yaml")

def version():
    return file.read_text().split()[3]

recalled = 0
while version() < f"v{int(sys.argv[3]) - 1:06}":
    before = version()
    stock = shelf.recall()
    after = version()
    if stock is None:
        shelf.keep()
    else:
        recalled += 1
        assert before <= stock.registry["counter"].version <= after, (before, stock.registry["counter"], after)
print("ok")
"""


def test_nobody_gets_what_is_out_of_date(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tools").mkdir()
    Path("tools/counter.tool.yaml").write_text(TOOL.format(number=0))
    asked = [TESTS, str(tmp_path / "index"), "150" if THOROUGH else "60"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", code, *asked],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for code in (READER, READER, WRITER)
    ]
    told = [process.communicate(timeout=120) for process in processes]
    assert told == [("ok\n", ""), ("ok\n", ""), ("", "")]
    assert [path.suffix for path in (tmp_path / "index").iterdir()] == [".index"]


KEEPER = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from kept import Shelf, assert_same
shelf = Shelf(Path(sys.argv[2]))
cold = shelf.keep()
for _ in range(int(sys.argv[3])):
    shelf.keep()
    assert_same(shelf.recall(), cold)
print("ok")
"""


@pytest.mark.exhaustive
def test_many_may_write_the_same(tmp_path, monkeypatch):
    monkeypatch.chdir(write_project(tmp_path / "project"))
    asked = [TESTS, str(tmp_path / "index"), "15"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-c", KEEPER, *asked],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    assert [process.communicate(timeout=120) for process in processes] == [("ok\n", "")] * 3
