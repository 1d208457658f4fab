"""What answers quickly imports little, and says what the long way says."""

from __future__ import annotations

import json
import os
import subprocess
import sys

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
import atexit, json, sys
before = {*sys.modules}
atexit.register(lambda: print(json.dumps(sorted({*sys.modules} - before)), file=sys.stderr))
from toolcrib.cli import main
sys.argv = ["toolcrib", *sys.argv[1:]]
main()
"""


def imported_by(*words: str) -> tuple[str, set[str]]:
    """What a command line prints, and the modules that it imports beyond those that the interpreter begins with."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in map(os.path.abspath, sys.path))
    }
    done = subprocess.run(
        [sys.executable, "-c", WATCHED, *words], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout, {*json.loads(done.stderr)}


def test_the_version_is_told_before_anything_is_imported():
    out, modules = imported_by("--version")
    assert out.startswith("toolcrib ")
    assert {name for name in modules if name.startswith("toolcrib")} == {
        "toolcrib",
        "toolcrib.cli",
        "toolcrib.cli.entry",
    }
    assert modules & HEAVY == set()
