"""Servers, and all that they started, end with the process that started them, however that one ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from commands import python_command, toolcrib_command
from sampling import sample
from toolcrib.core.clock import RealClock
from toolcrib.core.process_tree import SEES_ALL, find_processes

pytestmark = pytest.mark.skipif(not SEES_ALL, reason="processes are found in /proc")

SCRIPT = Path(__file__).parents[1] / "mcp_scripts.py"
CLI = [sys.executable, "-c", "from toolcrib.cli import main; main()"]
DEFIANT = ("silent-calls", "stay", "child", "stray")

EMBEDDING = textwrap.dedent("""
    import asyncio, sys
    from toolcrib import Runtime

    async def main():
        async with Runtime.open(".") as runtime:
            await runtime.call("s__echo", {})

    asyncio.run(main())
""")


async def until(what):
    """Look until it is so: only looking tells."""
    async with asyncio.timeout(60):
        while not what():
            await RealClock().sleep(0.02)


@pytest.fixture
def project(tmp_path):
    """A folder with a server that neither answers calls nor ends by itself."""
    log = tmp_path / "log"
    server = {
        "command": sys.executable,
        "args": ["-S", str(SCRIPT), *DEFIANT, f"log={log}"],
        "env": {"TREE": str(tmp_path)},
        "import": True,
    }
    (tmp_path / "toolcrib.yaml").write_text(json.dumps({"project": "ends", "servers": {"s": server}}))
    yield tmp_path
    for pid in find_processes(0, f"TREE={tmp_path}"):
        os.kill(pid, signal.SIGKILL)


def started(command, project):
    return subprocess.Popen(command, cwd=project, stderr=subprocess.PIPE, text=True)


async def in_a_call(project):
    """Wait until the server was called: it and two more run."""
    log = project / "log"
    await until(lambda: log.exists() and "tools/call" in log.read_text())
    assert len(find_processes(0, f"TREE={project}")) == 3


@pytest.mark.parametrize(
    ("number", "code", "words"),
    sample(
        [
            (signal.SIGTERM, 143, "ended by SIGTERM"),
            (signal.SIGHUP, 129, "ended by SIGHUP"),
            (signal.SIGINT, 130, "interrupted"),
        ]
    ),
)
async def test_a_command_that_is_told_to_end_ends_them(project, number, code, words):
    process = started(toolcrib_command("call", "s__echo"), project)
    await in_a_call(project)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.strip()) == (code, words)
    assert not find_processes(0, f"TREE={project}")


@pytest.mark.exhaustive
async def test_a_command_in_the_background_that_ignores_ctrl_c(project):
    background = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *CLI, "call", "s__echo"]
    process = started(background, project)
    await in_a_call(project)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.strip()) == (143, "ended by SIGTERM")
    assert not find_processes(0, f"TREE={project}")


@pytest.mark.exhaustive
async def test_what_nohup_has_a_command_ignore_does_not_end_it(project):
    process = started(["sh", "-c", 'trap "" HUP; exec "$@"', "sh", *CLI, "call", "s__echo"], project)
    await in_a_call(project)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 143


@pytest.mark.parametrize("number", sample([signal.SIGKILL, signal.SIGTERM]))
async def test_a_program_that_is_killed_takes_them_with_it(project, number):
    process = started(python_command("-c", EMBEDDING), project)
    await in_a_call(project)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == -number
    await until(lambda: not find_processes(0, f"TREE={project}"))
