"""Worker processes of Python tools: measured limits, and sandboxes for those whose access is restricted."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from exec_tools import NEEDS_BUBBLEWRAP
from sampling import sample
from toolcrib import Executors, Outcome, Runtime, parse_registry

MODULE = """
import os, socket, time

def reads(path: str) -> str:
    with open(path) as file:
        return file.read()

def writes(path: str) -> int:
    with open(path, "w") as file:
        return file.write("new")

def connects(port: int) -> str:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=60).close()
        return "connected"
    except OSError as error:
        return type(error).__name__

def computes() -> None:
    while True: pass

def fills() -> None:
    while True:
        os.write(os.open(os.devnull, os.O_WRONLY), b"x" * 100000)
        os.closerange(10, 200)

def forks() -> None:
    for _ in range(20):
        if os.fork() == 0: time.sleep(600)
    time.sleep(600)

def grows(mib: int) -> int:
    return len(b"1" * (mib << 20))
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Name of a module that only this test has."""
    name = f"confined_tools_{abs(hash(str(tmp_path)))}"
    for folder in ("code", "data"):
        (tmp_path / folder).mkdir()
    (tmp_path / "code" / f"{name}.py").write_text(MODULE)
    (tmp_path / "data" / "file").write_text("data\n")
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    yield name
    sys.modules.pop(name, None)


def call(module, function, arguments, tmp_path, *, block=None, sandbox=None, problems=None, **keys):
    document = {
        "name": "tool",
        "mode": "python",
        "input_schema": {"type": "object"},
        "python": {"call": f"{module}:{function}", "worker": "process", **(block or {})},
        **keys,
    }
    found = [] if problems is None else problems
    source = str(tmp_path / "code" / "tool.json")
    registry = parse_registry(source, json.dumps(document), kinds=Executors.installed(), problems=found)
    if problems is None:
        assert found == []

    async def result():
        async with Runtime(registry, sandbox=sandbox) as runtime:
            return await runtime.call("tool", arguments)

    return asyncio.run(result())


@pytest.mark.parametrize(
    ("function", "limits", "code"),
    sample(
        [
            ("computes", {"cpu_time": "1s"}, "cpu_time_exceeded"),
            ("fills", {"written_bytes": "1MiB"}, "written_bytes_exceeded"),
            ("forks", {"processes": 4}, "processes_exceeded"),
        ],
        one_in=3,
    ),
)
def test_limits_end_a_worker_with_all_its_processes(module, tmp_path, function, limits, code):
    result = call(module, function, {}, tmp_path, limits=limits)
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, code)
    [name] = limits
    assert result.error.details["limit"] == name
    assert result.error.details["measured"] > result.error.details["value"]


def test_a_worker_with_limits_is_measured(module, tmp_path):
    result = call(module, "grows", {"mib": 100}, tmp_path, limits={"memory": "1000MiB"})
    assert result.usage.memory > 100 << 20
    assert result.usage.processes == 1
    assert call(module, "grows", {"mib": 1}, tmp_path).usage.memory is None


@NEEDS_BUBBLEWRAP
@pytest.mark.parametrize(
    ("block", "keys"),
    [({"network": False}, {}), ({}, {"capabilities": ["system_info"]})],
    ids=["its block restricts it", "it declares other capabilities"],
)
def test_a_restricted_worker_sees_nothing_else(module, tmp_path, block, keys):
    path = str(tmp_path / "data" / "file")
    result = call(module, "reads", {"path": path}, tmp_path, block=block, **keys)
    assert (result.outcome, result.error.code) == (Outcome.TOOL_ERROR, "FileNotFoundError")
    assert (
        call(module, "connects", {"port": 1}, tmp_path, block=block, **keys).value == "ConnectionRefusedError"
    )


@NEEDS_BUBBLEWRAP
def test_a_worker_reads_and_writes_what_it_was_granted(module, tmp_path):
    path = str(tmp_path / "data" / "file")
    read, write = {"paths": {"read": ["../data"]}}, {"paths": {"write": ["../data"]}}
    assert call(module, "reads", {"path": path}, tmp_path, block=read).value == "data\n"
    assert call(module, "writes", {"path": path}, tmp_path, block=read).error.code == "OSError"
    assert call(module, "writes", {"path": path}, tmp_path, block=write).value == 3
    assert (tmp_path / "data" / "file").read_text() == "new"
    capable = {"capabilities": ["file_read"]}
    assert call(module, "reads", {"path": path}, tmp_path, **capable).value == "new"
    assert call(module, "writes", {"path": path}, tmp_path, **capable).error.code == "OSError"


@pytest.mark.exhaustive
def test_without_restrictions_or_without_a_sandbox_a_worker_is_an_ordinary_process(module, tmp_path):
    path = str(tmp_path / "data" / "file")
    assert call(module, "reads", {"path": path}, tmp_path).value == "data\n"
    block = {"paths": {"read": ["."]}, "network": False}
    assert call(module, "reads", {"path": path}, tmp_path, block=block, sandbox="none").value == "data\n"


def test_without_bubblewrap_a_restricted_worker_is_unavailable(module, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    result = call(module, "grows", {"mib": 1}, tmp_path, block={"network": False})
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "no_sandbox")
    assert call(module, "grows", {"mib": 1}, tmp_path, sandbox="bubblewrap").error.code == "no_sandbox"
    assert call(module, "grows", {"mib": 1}, tmp_path).outcome is Outcome.OK


def test_inline_code_cannot_be_restricted(module, tmp_path):
    problems = []
    call(
        module,
        "grows",
        {"mib": 1},
        tmp_path,
        block={"worker": "thread", "network": False},
        limits={"processes": 2},
        problems=problems,
    )
    assert [(each.code, each.pointer) for each in problems] == [
        ("needless_key", "/python"),
        ("wrong_combination", "/python/network"),
    ]
