"""`toolcrib top` at a terminal, and the inspection of real servers."""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack

import pytest

from sampling import sample

if sys.platform == "win32":
    pytest.skip("terminals are of another kind there", allow_module_level=True)

from chatting import Talk
from serving_mcp import BASICS, PATIENCE, client, quiet_sdk, serve, stdio, write
from toolcrib import RealClock
from toolcrib.serve.inspection import inspections

pytestmark = [quiet_sdk, pytest.mark.usefixtures("forked_servers")]


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))


async def running(inspection):
    async with asyncio.timeout(PATIENCE):
        while not (found := await inspection.running()):
            await RealClock().sleep(0.005)
    return found


@pytest.mark.parametrize("transport", sample(["stdio", "http"], one_in=2))
async def test_a_real_server_is_inspected(transport, tmp_path, state):
    folder = write(tmp_path / "tools", BASICS)
    if transport == "http":
        async with serve(folder) as served, client(served.url, "2026-07-28") as one:
            await inspect(one, transport)
    else:
        async with client(stdio(folder), "2026-07-28") as one:
            await inspect(one, transport)
    async with inspections() as (found, errors):
        assert (found, errors) == ([], [])


async def inspect(one, transport):
    await one.call_tool("add", {"a": 1, "b": 2})
    async with inspections() as ((inspection,), errors):
        assert errors == []
        assert inspection.served.transport == transport
        assert (await inspection.statistics()).tools["add"].calls == 1
        slow = asyncio.create_task(one.call_tool("slow", {}))
        (call,) = await running(inspection)
        assert call["tool"] == "slow"
        assert await inspection.cancel(tool="slow") == 1
        async with asyncio.timeout(PATIENCE):
            assert (await slow).is_error
        assert (await inspection.statistics()).tools["slow"].outcomes == {"cancelled": 1}


async def test_top_is_live_until_q_is_typed(tmp_path, state):
    folder = write(tmp_path / "tools", BASICS)
    async with serve(folder) as served, client(served.url, "2026-07-28") as one:
        await one.call_tool("add", {"a": 1, "b": 2})
        with Talk(tmp_path, tmp_path, "--interval", "0.1", verb="top") as screen:
            shown = await asyncio.to_thread(screen.until, "add")
            assert "0 running; 1 call, 0 failed" in shown
            assert shown.startswith("\x1b[?1049h\x1b[?25l")
            slow = asyncio.create_task(one.call_tool("slow", {}))
            await asyncio.to_thread(screen.until, "1 running; 1 call, 0 failed")
            async with inspections() as ((inspection,), _errors):
                await inspection.cancel(all=True)
            await slow
            await asyncio.to_thread(screen.until, "0 running; 2 calls, 1 failed")
            screen.type("q")
            await asyncio.to_thread(screen.until, "\x1b[?25h\x1b[?1049l")
            assert await asyncio.to_thread(screen.ended) == 0


async def test_top_ends_with_the_server(tmp_path, state):
    folder = write(tmp_path / "tools", BASICS)
    with ExitStack() as terminal:
        async with serve(folder):
            screen = terminal.enter_context(Talk(tmp_path, tmp_path, "--interval", "0.1", verb="top"))
            await asyncio.to_thread(screen.until, "0 running")
        shown = await asyncio.to_thread(screen.until, "has ended")
        assert "\x1b[?25h\x1b[?1049l" in shown
        assert await asyncio.to_thread(screen.ended) == 1


async def test_a_server_that_cannot_be_inspected_says_so_after_its_address(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "file" / "state"))
    (tmp_path / "file").write_text("")
    async with serve(write(tmp_path / "tools", BASICS)) as served:
        assert "cannot inspect this server: " in await served.until_said("toolcrib stats")
        assert " at http://" in served.said[0]
