"""Inspection of served runtimes over a socket of their user."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from mcp import Client, MCPError

from in_memory import runtime_of
from serving_mcp import ERAS
from toolcrib import ConfigurationError, RealClock, Runtime
from toolcrib.serve.inspection import PROTOCOL, RuntimeUnreachable, inspectable, inspections, socket_folder
from toolcrib.serve.mcp import Options
from toolcrib.serve.mcp.server import ToolServer

if sys.platform == "win32":
    pytest.skip("there are no Unix sockets", allow_module_level=True)

TOOLS = """
name: greet
mock: {result: hello}
---
name: slow
mock: {result: 1, latency: 1h, progress: [{progress: 1, total: 4, message: begun}]}
"""

ABOUT = {
    "pid": 1,
    "name": "newer",
    "folder": "/",
    "transport": "stdio",
    "started": "2026-01-01T00:00:00+00:00",
    "version": "99.0",
}


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    folder = tmp_path / "state"
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(folder))
    return folder


def silent(text):
    raise AssertionError(text)


@asynccontextmanager
async def served(name="shop", say=silent):
    async with runtime_of(TOOLS, clock=RealClock()) as runtime, inspectable(runtime, name, "stdio", say):
        yield runtime


@asynccontextmanager
async def only():
    async with inspections() as (found, errors):
        assert errors == []
        (one,) = found
        yield one


@asynccontextmanager
async def calling(runtime, **session):
    """A call that runs."""
    task = asyncio.create_task(runtime.session(**session).call("slow"))
    async with asyncio.timeout(60):
        while not (running := runtime.running()) or running[0].progress is None:
            await RealClock().sleep(0.001)
    yield task
    runtime.cancel(all=True)
    await task


async def errors_of(**options):
    async with inspections(**options) as (found, errors):
        assert found == []
        return errors


@asynccontextmanager
async def listening(state, answer):
    """A server of another kind on a socket in the folder."""
    folder = state / "run"
    folder.mkdir(parents=True, exist_ok=True)

    async def serve(reader, writer):
        await answer(reader, writer)
        writer.close()

    path = folder / "other.sock"
    async with await asyncio.start_unix_server(serve, path):
        yield path
    path.unlink(missing_ok=True)


async def test_only_the_user_can_enter_the_folder_and_open_the_socket(state):
    (state / "run").mkdir(parents=True, mode=0o755)
    async with served():
        (socket,) = (state / "run").iterdir()
        assert stat.S_IMODE((state / "run").stat().st_mode) == 0o700
        assert stat.S_IMODE(socket.stat().st_mode) == 0o600
        assert stat.S_ISSOCK(socket.stat().st_mode)
    assert [*(state / "run").iterdir()] == []


async def test_a_served_runtime_describes_itself():
    async with served(), only() as one:
        about = one.served
        assert (about.pid, about.name, about.transport) == (os.getpid(), "shop", "stdio")
        assert about.folder == str(Path.cwd())


async def test_its_name_is_that_of_its_project_or_folder(tmp_path, monkeypatch):
    (tmp_path / "toolcrib.yaml").write_text("project: weather\n")
    monkeypatch.chdir(tmp_path)
    async with (
        Runtime.open(tmp_path, index=False) as runtime,
        inspectable(runtime, "", "http", silent),
        only() as one,
    ):
        assert (one.served.name, one.served.folder) == ("weather", str(tmp_path))
    async with served(""), only() as one:
        assert one.served.name == tmp_path.name


async def test_running_calls_are_listed_and_cancelled():
    async with served() as runtime, calling(runtime, id="nightly", caller="batch") as task, only() as one:
        (call,) = await one.running()
        here = runtime.running()[0].as_json()
        assert call.keys() == here.keys()
        assert (call["id"], call["tool"], call["caller"]) == (here["id"], "slow", "batch")
        assert call["progress"] == {"progress": 1, "total": 4, "message": "begun"}
        assert await one.cancel(session="nightly", tool="other") == 0
        assert await one.cancel(session="nightly") == 1
        assert (await task).error.code == "cancelled_by_operator"
        assert await one.running() == []


async def test_statistics_are_read_and_reset():
    async with served() as runtime, only() as one:
        for _ in range(3):
            await runtime.call("greet")
        assert (await one.statistics()).tools["greet"].calls == 3
        assert (await one.statistics(reset=True)).calls == 3
        assert runtime.statistics.calls == 0
        assert (await one.statistics()).calls == 0


async def test_what_nothing_selects_is_not_cancelled():
    async with served(), only() as one:
        with pytest.raises(ConfigurationError, match=r"shop \(pid \d+\): ") as caught:
            await one.cancel()
        assert caught.value.hint


async def test_several_runtimes_are_served_at_once():
    async with served("one"), served("two"), inspections() as (found, errors):
        assert {each.served.name for each in found} == {"one", "two"}
        assert len(found) == 2
        assert errors == []


async def test_the_socket_of_a_killed_process_is_removed(state):
    async with listening(state, None) as path:
        os.link(path, state / "run" / "killed.sock")
        path.unlink()
    assert [each.name for each in (state / "run").iterdir()] == ["killed.sock"]
    assert await errors_of() == []
    assert [*(state / "run").iterdir()] == []


async def test_a_server_that_starts_removes_them_too(state):
    async with listening(state, None) as path:
        os.link(path, state / "run" / "killed.sock")
    async with served():
        assert not (state / "run" / "killed.sock").exists()


async def test_another_user_is_not_answered(state, monkeypatch):
    async with served():
        (socket,) = (state / "run").iterdir()
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        reader, writer = await asyncio.open_unix_connection(socket)
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
        monkeypatch.undo()


async def test_a_server_of_another_user_is_not_believed(state, monkeypatch):
    async def answer(reader, _writer):
        await reader.read()

    async with listening(state, answer):
        here = os.geteuid()
        # The folder belongs to this user, and the process at the other end does not.
        users = iter([here] * 2)
        monkeypatch.setattr(os, "geteuid", lambda: next(users, here + 1))
        (error,) = await errors_of()
        monkeypatch.undo()
        assert "another user listens on it" in str(error)


async def test_another_version_of_the_protocol_is_named(state):
    async def answer(_reader, writer):
        writer.write(json.dumps({"protocol": PROTOCOL + 1, **ABOUT}).encode() + b"\n")

    async with listening(state, answer):
        (error,) = await errors_of()
    assert error.code == "other_version"
    assert "newer (pid 1) has toolcrib 99.0" in str(error)


async def test_a_runtime_that_does_not_answer_is_given_up(state):
    async def answer(reader, _writer):
        await reader.read()

    async with listening(state, answer):
        (error,) = await errors_of(patience=0.01)
    assert f"process {os.getpid()} does not answer" in str(error)


async def test_a_runtime_may_end_while_it_is_inspected():
    async with AsyncExitStack() as client:
        async with served():
            one = await client.enter_async_context(only())
        with pytest.raises(RuntimeUnreachable, match="has ended") as caught:
            await one.running()
        assert caught.value.code == "runtime_ended"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"no JSON\n", "invalid request"),
        (b"[1]\n", "invalid request"),
        (b"{}\n", "invalid request"),
        (b'{"request": "dance"}\n', "unknown request 'dance'"),
        (b'{"request": "cancel", "colour": "red"}\n', "invalid request"),
        (b'{"request": "cancel", "all": false}\n', "cancel"),
    ],
)
async def test_a_wrong_request_gets_an_error(line, message, state):
    async with served():
        (socket,) = (state / "run").iterdir()
        reader, writer = await asyncio.open_unix_connection(socket)
        await reader.readline()
        for _ in range(2):  # the connection goes on
            writer.write(line)
            async with asyncio.timeout(60):
                error = json.loads(await reader.readline())["error"]
            assert message in error["message"]
        writer.close()


async def test_a_request_without_end_ends_the_connection(state):
    async with served():
        (socket,) = (state / "run").iterdir()
        reader, writer = await asyncio.open_unix_connection(socket)
        await reader.readline()
        writer.write(b"x" * (1 << 18))
        async with asyncio.timeout(60):
            with suppress(ConnectionResetError):  # it has not read all of it
                assert await reader.read() == b""
        writer.close()
        async with only() as one:
            assert await one.running() == []


async def test_a_socket_that_cannot_be_connected_to_is_named(state):
    (state / "run").mkdir(parents=True)
    (state / "run" / "file.sock").symlink_to("file.sock")
    (error,) = await errors_of()
    assert error.code == "runtime_unreachable"
    assert str(error).startswith(f"cannot connect to {state}/run/file.sock: ")


async def test_the_path_of_the_folder_may_be_long(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / ("long" * 20) / ("er" * 50)))
    async with served(), only() as one:
        assert await one.running() == []
        assert len(socket_folder()) > 108


@pytest.mark.parametrize("part", ["", "run"])
async def test_a_folder_that_others_control_is_not_used(part, state):
    (state / "run").mkdir(parents=True)
    (state / part).chmod(0o777)
    said = []
    async with served(say=said.append) as runtime:
        assert (await runtime.call("greet")).value == "hello"
    why = f"the sockets of served runtimes in {state}/run are not used: others can write to it"
    assert said == [f"`toolcrib stats` and `toolcrib top` cannot inspect this server: {why}"]
    assert [*(state / "run").iterdir()] == []
    with pytest.raises(ConfigurationError, match="others can write to it"):
        await errors_of()


async def test_a_folder_that_cannot_be_created_does_not_stop_the_server(state):
    state.write_text("")
    said = []
    async with served(say=said.append) as runtime:
        assert (await runtime.call("greet")).value == "hello"
    assert len(said) == 1


async def test_a_link_is_not_followed(state):
    elsewhere = state.parent / "elsewhere"
    elsewhere.mkdir()
    state.mkdir()
    (state / "run").symlink_to(elsewhere)
    said = []
    async with served(say=said.append):
        assert "it is a symbolic link" in said[0]
    assert [*elsewhere.iterdir()] == []


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_calls_an_unknown_tool_is_counted(era):
    async with served() as runtime:
        async with Client(ToolServer(runtime, Options(watch=False)).sdk, mode=era) as client:
            await client.call_tool("greet", {})
            with pytest.raises(MCPError, match="Unknown tool: gret"):
                await client.call_tool("gret", {})
        totals = runtime.statistics.totals
        assert (totals.calls, totals.outcomes) == (2, {"ok": 1, "not_found": 1})
        assert runtime.statistics.tools.keys() == {"greet", ""}
