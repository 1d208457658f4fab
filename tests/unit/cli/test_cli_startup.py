"""What answers quickly imports little, and says what the long way says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sampling import sample

HEAVY = {
    "asyncio",
    "click",
    "collections",
    "dataclasses",
    "importlib.metadata",
    "inspect",
    "jinja2",
    "json",
    "jsonschema",
    "jsonschema_rs",
    "logging",
    "pathlib",
    "re",
    "statistics",
    "typing",
    "yaml",
}
"""Each of these alone costs a noticeable part of what `python -c pass` does."""

WATCHED = """
import atexit, sys, time
real, later = time.time_ns, int(sys.argv.pop(1)) * 1_000_000_000
time.time_ns = lambda: real() + later
before = {*sys.modules}
atexit.register(lambda: print(*sorted({*sys.modules} - before), file=sys.stderr))
from toolcrib.cli import main
sys.argv = ["toolcrib", *sys.argv[1:]]
main()
"""

TOOLS = """
name: plain
input_schema: {properties: {text: {type: string}, times: {type: integer, default: 1}}, required: [text]}
output_schema: {required: [said]}
mock: {result: {said: "{{ args.text }}", times: "{{ args.times }}"}}
---
name: later
description: Soon.
"""

NEEDED_BY_CALLS = {"collections", "json", "jsonschema_rs", "re", "typing"}
"""What a call of one tool can't do without."""


def imported_by(*words: str, later: int = 0) -> tuple[str, set[str]]:
    """What a command line prints, and the modules that it imports beyond those that the interpreter begins with.

    Args:
        words: The command line.
        later: The seconds by which the clock of the process is fast.
    """
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in map(os.path.abspath, sys.path))
    }
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, str(later), *words],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, {*done.stderr.split()}


@pytest.fixture
def indexed(write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tools, with an index of them."""
    folder = write(
        {"descriptors/tools.yaml": TOOLS, "other/other.tool.yaml": "name: other\nmock: {result: 1}\n"}
    )
    monkeypatch.setenv("TOOLCRIB_CACHE_DIR", str(folder / ".cache"))
    _out, modules = imported_by("list")
    assert {"click", "yaml"} <= modules


def test_importing_the_package_imports_nothing():
    out = subprocess.check_output(
        [
            sys.executable,
            "-c",
            "import sys; before = {*sys.modules}; import toolcrib; print({*sys.modules} - before)",
        ],
        text=True,
    )
    assert eval(out) <= {"toolcrib", "__future__", "time"}


def test_the_version_is_told_before_anything_is_imported():
    out, modules = imported_by("--version")
    assert out.startswith("toolcrib ")
    assert {name for name in modules if name.startswith("toolcrib")} == {
        "toolcrib",
        "toolcrib.cli",
        "toolcrib.cli.entry",
    }
    assert modules & HEAVY == set()


@pytest.mark.parametrize("words", sample([[], ["--pack", "other"]], one_in=2))
def test_a_list_is_told_from_the_index_without_anything_that_is_slow(words, indexed):
    imported_by("list", *words)
    out, modules = imported_by("list", *words)
    assert out.splitlines()[0] == "later  unbound  Soon."
    assert modules & HEAVY == set()


def test_a_list_that_writes_its_index_again_imports_nothing_that_is_slow(indexed, write):
    """Once the documents have rested for two seconds, their times are enough; the index says so from then on."""
    folder = Path(os.environ["TOOLCRIB_CACHE_DIR"]) / "index"
    soon = time.time() + 3600  # the documents have not rested when the first start reads them
    os.utime("descriptors/tools.yaml", (soon, soon))
    imported_by("list")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    _out, modules = imported_by("list", later=7200)
    assert {path: path.read_bytes() for path in folder.iterdir()} != before
    assert modules & HEAVY == set()


@pytest.mark.parametrize("words", sample([["text=hi"], ["text=hi", "times:=2", "--json"]], one_in=2))
def test_a_call_from_the_index_imports_what_it_needs(words, indexed):
    out, modules = imported_by("call", "plain", *words)
    assert '"said": "hi"' in out
    assert modules & HEAVY <= NEEDED_BY_CALLS
    assert not {
        name
        for name in modules
        if name.startswith(("toolcrib.schema.generation", "toolcrib.expressions.matchers"))
    }
    assert {
        name
        for name in modules
        if name.startswith("toolcrib.loading.") and not name.startswith("toolcrib.loading.cache")
    } <= {
        "toolcrib.loading.documents",
        "toolcrib.loading.fingerprints",
        "toolcrib.loading.project_discovery",
        "toolcrib.loading.settings",
        "toolcrib.loading.snapshot",
    }
