"""Tools in mode `exec`, as tests write and call them."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from toolcrib import Executors, RealClock, Runtime, parse_registry

NEEDS_BUBBLEWRAP = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="the package `bubblewrap` is not installed"
)

ANY = {"type": "object"}


def document(name="tool", *, input_schema=ANY, **keys):
    """A descriptor in mode `exec`; a list is the command of its block."""
    block = keys.pop("exec")
    block = {"command": block} if isinstance(block, list) else block
    return {"name": name, "mode": "exec", "input_schema": input_schema, "exec": block, **keys}


def registry_of(*documents, source="tools.json", problems=None):
    found = [] if problems is None else problems
    registry = parse_registry(source, json.dumps([*documents]), kinds=Executors.installed(), problems=found)
    if problems is None:
        assert found == []
    return registry


def run(*documents, calls=({},), source="tools.json", sandbox="none", **options):
    """Call the first tool, once for each of the arguments, one after the other."""
    registry = registry_of(*documents, source=source)

    async def results():
        async with Runtime(registry, sandbox=sandbox, **options) as runtime:
            return [await runtime.call(documents[0]["name"], arguments) for arguments in calls]

    return asyncio.run(results())


def call(block, arguments=None, *, sandbox="none", source="tools.json", **keys):
    """The result of one call."""
    [result] = run(document(exec=block, **keys), calls=[arguments or {}], sandbox=sandbox, source=source)
    return result


def text_of(path: Path) -> str:
    """The text of a file; empty if it does not exist."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


async def written(path: Path) -> str:
    """The text of a file, once it has one."""
    for _ in range(3000):
        if (text := text_of(path)).endswith("\n"):
            return text
        await RealClock().sleep(0.01)
    raise AssertionError(f"{path} was not written")


async def gone(pid) -> bool:
    """Wait until a process has ended."""
    for _ in range(2000):
        stat = text_of(Path(f"/proc/{pid}/stat"))
        if not stat or stat.rpartition(")")[2].split()[0] == "Z":
            return True
        await RealClock().sleep(0.01)
    return False
