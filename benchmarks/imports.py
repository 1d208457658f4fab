"""Import of the OpenAPI description of GitHub (13 MB, more than 1,000 operations), and a start with the imported tools.

A round is one process: it reads the description, converts it, and reports the seconds of that and its peak memory. FastMCP
converts the same description in an environment of its own. The description is that of the npm package `@octokit/openapi`:

    python benchmarks/imports.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from loading import aged, read_all, timed
from peers import python_of
from rounds import Row, interleaved, line

from toolcrib import Runtime
from toolcrib.executors import Executors
from toolcrib.formats.descriptor_files import descriptor_files
from toolcrib.formats.imports.mocks import with_mock
from toolcrib.formats.openapi_import import tools_of_openapi
from toolcrib.loading.documents.foreign_text import decode_foreign, read_foreign

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from npm_packages import installed  # type: ignore[import-not-found]  # mypy does not look in tests

GITHUB = ("@octokit/openapi", "23.0.2")
ROUNDS = 30

# Not `ru_maxrss`: Linux counts in it what the process that started this one used.
PEAK = """\
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
"""

OURS = """\
import json, sys, time
from toolcrib.formats.openapi_import import tools_of_openapi
from toolcrib.loading.documents.foreign_text import decode_foreign, read_foreign
started = time.perf_counter()
value = read_foreign(decode_foreign(open(sys.argv[1], "rb").read())).value
tools = tools_of_openapi(value).tools
took = time.perf_counter() - started
print(json.dumps([took, peak(), len(tools)]))
"""

THEIRS = """\
import asyncio, json, logging, sys, time
logging.disable(logging.CRITICAL)
import httpx2
from fastmcp import FastMCP
started = time.perf_counter()
document = json.loads(open(sys.argv[1], "rb").read())
client = httpx2.AsyncClient(base_url="https://api.github.com")
server = FastMCP.from_openapi(document, client=client)
took = time.perf_counter() - started
print(json.dumps([took, peak(), len(asyncio.run(server.list_tools()))]))
"""


def measured(python: str | Path, script: str, description: Path) -> tuple[float, int, int]:
    """Seconds, peak memory in KiB and number of tools of one conversion, in a process of its own."""
    done = subprocess.run(
        [str(python), "-c", PEAK + script, str(description)], check=True, capture_output=True, text=True
    )
    took, memory, tools = json.loads(done.stdout.splitlines()[-1])
    return took, memory, tools


def conversions(description: Path) -> Iterator[Row]:
    """Time and peak memory of the conversion, and those of FastMCP."""
    memory: dict[str, list[float]] = {"ours": [], "theirs": []}
    tools: set[int] = set()

    def contender(name: str, python: str | Path, script: str) -> float:
        took, peak, number = measured(python, script, description)
        memory[name].append(peak * 1024)
        tools.add(number)
        return took

    peer = python_of("fastmcp")
    times = interleaved(
        {
            "ours": lambda: contender("ours", sys.executable, OURS),
            "theirs": lambda: contender("theirs", peer, THEIRS),
        },
        ROUNDS,
    )
    assert len(tools) == 1, tools
    measure = f"import of the description of GitHub, {tools.pop():,} operations"
    yield Row(measure, "FastMCP.from_openapi", times["ours"], times["theirs"], 0.5)
    yield Row(
        f"{measure}: peak memory of the process",
        "FastMCP.from_openapi",
        memory["ours"][1:],
        memory["theirs"][1:],
        0.5,
        unit="B",
    )


def warm(description: Path, folder: Path) -> Row:
    """A start with the imported descriptors from the index, and reading the files."""
    found = tools_of_openapi(read_foreign(decode_foreign(description.read_bytes())).value)
    mocked = found._replace(
        tools=[tool._replace(descriptor=with_mock(tool.descriptor)) for tool in found.tools]
    )
    made = descriptor_files(mocked, Executors.installed())
    for file in made.files:
        (folder / file.file).write_text(file.text, encoding="utf-8")
    aged(folder)
    with Runtime.open(folder) as first:
        assert len(first.registry) == len(made.files)

    def ours() -> Runtime:
        runtime = Runtime.open(folder)
        assert len(runtime.registry) == len(made.files)
        return runtime

    times = interleaved({"ours": timed(ours), "read": timed(lambda: read_all(str(folder)))}, 15)
    return Row(
        f"warm start of {len(made.files):,} imported descriptors",
        "reading the files",
        times["ours"],
        times["read"],
        2,
    )


def rows() -> Iterator[Row]:
    """All measures of this file."""
    with installed(*GITHUB) as package, tempfile.TemporaryDirectory(prefix="toolcrib-bench-") as place:
        description = package / "generated" / "api.github.com.json"
        os.environ["TOOLCRIB_CACHE_DIR"] = str(Path(place, "cache"))
        Path(place, "tools").mkdir()
        yield from conversions(description)
        yield warm(description, Path(place, "tools"))


if __name__ == "__main__":
    for row in rows():
        print(line(row), flush=True)
