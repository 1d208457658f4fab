"""Servers as processes, at the level of the link: what comes over it when they behave, and when they do not."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import Client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from mcp_scripts import scripted
from toolcrib.core.clock import RealClock
from toolcrib.core.server_config import Server
from toolcrib.security.secrets import MissingSecret, SecretResolver
from toolcrib.servers.environment import NetworkEnvironment
from toolcrib.servers.mcp.stdio import LineSplitter, LineTooLong, resolve_command
from toolcrib.servers.mcp.transports import Link, StartFailure, open_link, trace_call


class Wire:
    """Both streams of an entered link."""

    def __init__(self, streams: Any) -> None:
        self.read, self.write = streams

    async def send(self, number: int, tool: str = "echo", arguments: Any = None) -> None:
        params = {"name": tool, "arguments": arguments}
        request = JSONRPCRequest(jsonrpc="2.0", id=number, method="tools/call", params=params)
        await self.write.send(SessionMessage(request))

    async def next(self) -> Any:
        """The next message; None at the end."""
        async with asyncio.timeout(20):
            async for item in self.read:
                return item.message
        return None

    async def call(self, tool: str = "echo", arguments: Any = None) -> Any:
        """What a tool answers, read."""
        await self.send(1, tool, arguments)
        answer = await self.next()
        assert isinstance(answer, JSONRPCResponse), answer
        return json.loads(answer.result["content"][0]["text"])


def world(**environment: str) -> NetworkEnvironment:
    return NetworkEnvironment.ordinary()._replace(secrets=SecretResolver(environment))


@asynccontextmanager
async def entered(*behaviours: str, **fields: Any) -> AsyncIterator[tuple[Link, Wire]]:
    link = open_link(scripted(*behaviours, **fields), world())
    async with link as streams:
        yield link, Wire(streams)


async def test_a_call_is_answered():
    async with entered() as (link, wire):
        assert await wire.call("echo", {"city": "Köln"}) == {"city": "Köln"}
        assert (link.ended, link.garbage, link.refusal) == ("", 0, None)
    assert link.ended == "was stopped"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_sdk_speaks_over_it(mode):
    async with Client(open_link(scripted(), world()), mode=mode) as client:
        tools = await client.list_tools()
        assert [tool.name for tool in tools.tools] == ["echo", "environ", "kin"]
        answer = await client.call_tool("echo", {"n": 1})
        assert answer.content[0].text == '{"n": 1}'


async def test_many_calls_are_under_way_at_once():
    async with entered() as (_, wire):
        await asyncio.gather(*(wire.send(number, "echo", {"n": number}) for number in range(500)))
        answers = {answer.id: answer.result for answer in [await wire.next() for _ in range(500)]}
    assert all(json.loads(answers[number]["content"][0]["text"]) == {"n": number} for number in range(500))


async def test_a_large_argument_passes_and_a_large_answer_too():
    async with entered() as (_, wire):
        assert await wire.call("echo", {"text": "ä" * 300_000}) == {"text": "ä" * 300_000}


# What can't be started (D73)


async def failure(server: Server, **environment: str) -> StartFailure:
    with pytest.raises(StartFailure) as caught:
        async with open_link(server, world(**environment)):
            pass
    return caught.value


async def test_a_command_that_is_not_there_is_named_with_where_it_was_looked_for(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "mcp-server-thyme").touch()
    server = Server("time", command="mcp-server-time", env={"PATH": str(folder)}, root=str(tmp_path))
    error = await failure(server)
    assert error.message == (
        f"the command of the server `time`, `mcp-server-time`, was not found in PATH ({folder})"
    )
    assert error.hint == "did you mean `mcp-server-thyme`?"
    assert error.code == "server_down"


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        ("uvx", "install uv (https://docs.astral.sh/uv/), or use its full path"),
        ("uvx mcp-server-time", "`command` is only the program: put its arguments into `args`"),
        ("zzz", "install it, or use its full path"),
        ("~/bin/server", "no shell expands it: write `${HOME}` instead of `~`"),
        ("./server", "correct `command`"),
        ("", "install it, or use its full path"),
    ],
)
async def test_what_to_do_about_a_command(tmp_path, command, hint):
    server = Server("time", command=command, env={"PATH": str(tmp_path)}, root=str(tmp_path))
    assert (await failure(server)).hint == hint


async def test_a_file_that_may_not_be_run_and_one_that_is_no_program(tmp_path):
    path = tmp_path / "server"
    path.write_text("echo hello\n")
    server = Server("time", command="./server", root=str(tmp_path))
    error = await failure(server)
    assert error.message.endswith("`./server`, is not executable")
    assert error.hint == f"chmod +x {path}"
    path.chmod(0o755)
    assert "is not a program" in (await failure(server)).message
    path.write_text("#!/nowhere/python\n")
    assert "the interpreter of" in (await failure(server)).message


async def test_what_the_system_takes_is_bounded(tmp_path):
    large = Server("time", command=sys.executable, args=("x" * 10_000_000,), root=str(tmp_path))
    assert "exceed the system limit" in (await failure(large)).message
    nul = Server("time", command=sys.executable, args=("a\0b",), root=str(tmp_path))
    assert "NUL" in (await failure(nul)).message


async def test_a_working_directory_that_is_not_there(tmp_path):
    error = await failure(scripted(root=str(tmp_path), cwd="tools"))
    assert (
        error.message
        == f"the working directory of the server `scripted`, `{tmp_path / 'tools'}`, does not exist"
    )
    assert "cwd" in error.hint


async def test_the_working_directory_begins_at_the_root(tmp_path):
    (tmp_path / "tools").mkdir()
    script = tmp_path / "tools" / "where"
    script.write_text('#!/bin/sh\nprintf %s "$(pwd -P)" >&2\n')
    script.chmod(0o755)
    link = open_link(Server("w", command="./where", cwd="tools", root=str(tmp_path)), world())
    async with link as streams:
        assert await Wire(streams).next() is None
    assert link.said() == str(tmp_path / "tools")


# What it is given (D81)


async def test_the_environment_holds_what_is_named_and_little_else(monkeypatch):
    monkeypatch.setenv("CANARY", "canary-5c1d")
    monkeypatch.setenv("LANG", "de_DE.UTF-8")
    monkeypatch.setenv("TERM", "() { :; }")
    link = open_link(scripted(env={"TOKEN": "${KEY}", "LEVEL": "${LEVEL:-info}"}), world(KEY="sesame-77"))
    async with link as streams:
        environment = await Wire(streams).call("environ")
    kept = {"PATH", "HOME", "LOGNAME", "SHELL", "USER", "LANG", "LC_ALL", "TMPDIR"}
    assert environment.keys() <= kept | {"TOKEN", "LEVEL", "TOOLCRIB_CHILD", "LC_CTYPE"}
    assert environment["TOKEN"] == "sesame-77"
    assert environment["LEVEL"] == "info"
    assert environment["LANG"] == "de_DE.UTF-8"
    assert environment["PATH"] == os.environ["PATH"]


async def test_variables_are_looked_up_in_arguments_too_and_masked():
    server = scripted(
        env={"API_KEY": "written-out-9"},
        root="${not_looked_up}",
        cwd=os.getcwd(),  # noqa: PTH109
    )
    there = world(TOKEN="hunter2-hunter2", ZONE="Europe/Berlin")
    link = open_link(server._replace(args=(*server.args, "stderr=0", "x=${TOKEN}", "y=${ZONE:-UTC}")), there)
    async with link as streams:
        assert await Wire(streams).call("echo", {}) == {}
    hide = there.secrets.hide_in_text
    assert hide("hunter2-hunter2 and written-out-9 in Europe/Berlin") == "*** and *** in Europe/Berlin"


def test_the_command_is_shown_without_its_arguments():
    server = Server("shop", command="python", args=("--token=${KEY}",), root="/")
    command = resolve_command(server, SecretResolver({"KEY": "hunter2-hunter2"}))
    assert repr(command) == "ServerCommand(shop: python with 1 arguments)"


def test_all_that_is_missing_is_told_at_once():
    server = scripted(env={"TOKEN": "${NO_TOKEN}"})
    with pytest.raises(MissingSecret) as caught:
        open_link(server._replace(args=("${NO_ARGUMENT}",)), world())
    assert caught.value.pointer == "/args/0"
    assert "`NO_ARGUMENT` is not set in the environment (at /args/0)" in caught.value.message
    assert "`NO_TOKEN` is not set in the environment (at /env/TOKEN)" in caught.value.message


# What it says


async def test_lines_that_are_no_messages_are_tolerated_and_counted():  # D76
    async with entered("banner=5", "garbage=3") as (link, wire):
        assert await wire.call("echo", {"n": 1}) == {"n": 1}
        assert link.garbage == 8
        assert link.ended == ""


async def test_too_many_of_them_end_the_link():
    async with entered("garbage=200") as (link, wire):
        await wire.send(1)
        assert await wire.next() is None
        assert link.ended == "wrote more than 100 lines to its stdout that are not MCP messages"


async def test_bytes_that_are_no_utf8_are_replaced():
    async with entered("bytes") as (link, wire):
        await wire.send(1)
        answer = await wire.next()
        assert answer.result["content"][0]["text"] == "caf\ufffd \ufffd\ufffd"
        assert link.ended == ""


async def test_lines_may_end_with_carriage_returns():
    async with entered("crlf") as (link, wire):
        assert await wire.call("echo", {"n": 1}) == {"n": 1}
        assert link.garbage == 0


async def test_a_line_of_twenty_megabytes_is_too_long():  # D79
    async with entered(f"long={20 * 1024 * 1024}") as (link, wire):
        with trace_call() as call_trace:
            await wire.send(1)
        answer = await wire.next()
        assert isinstance(answer, JSONRPCError)
        assert answer.id == 1
        assert call_trace.trouble is not None
        assert call_trace.trouble.code == "too_large"
        assert await wire.next() is None
        assert link.ended == "sent a line longer than 16MiB"


async def test_a_line_of_just_sixteen_megabytes_is_not():
    async with entered(f"long={16 * 1024 * 1024}") as (_, wire):
        await wire.send(1)
        assert isinstance(await wire.next(), JSONRPCResponse)


async def test_a_flood_without_a_newline_ends_the_link():
    async with entered("flood") as (link, wire):
        await wire.send(1)
        assert isinstance(await wire.next(), JSONRPCError)
        assert await wire.next() is None
        assert link.ended == "sent a line longer than 16MiB"


@pytest.mark.parametrize(
    "text",
    [
        '{"jsonrpc": "2.0", "id": @ID@, "result": null}',
        '{"jsonrpc": "2.0", "id": @ID@, "result": {"content": []',
        '{"jsonrpc": "2.0", "id": [1], "result": 7}',
        '{"jsonrpc": "2.0", "id": @ID@, "error": {"code": "x"}}',
    ],
)
async def test_an_answer_that_is_none_ends_its_call_at_once(text):
    async with entered(f"instead={text}") as (link, wire):
        with trace_call() as call_trace:
            await wire.send(1)
        answer = await wire.next()
        assert isinstance(answer, JSONRPCError)
        assert (answer.id, answer.error.code) == (1, -32700)
        assert call_trace.begun
        assert call_trace.trouble is not None
        assert call_trace.trouble.code == "protocol_violation"
        assert link.ended == ""


@pytest.mark.parametrize("levels", [250, 20_000])
async def test_an_answer_that_is_nested_too_deep_is_none(levels):
    async with entered(f"deep={levels}") as (_, wire):
        await wire.send(1)
        answer = await wire.next()
        assert isinstance(answer, JSONRPCError)
        assert answer.id == 1


async def test_logs_in_json_answer_nothing():
    async with entered('instead={"level": "info", "id": 1}') as (link, wire):
        await wire.send(1)
        await wire.write.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=2, method="ping")))
        assert (await wire.next()).id == 2
        assert link.garbage == 1


async def test_an_error_without_a_number_is_for_the_one_request_that_waits():
    text = '{"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "Parse error"}}'
    async with entered(f"instead={text}") as (_, wire):
        await wire.send(7)
        assert (await wire.next()).id == 7


async def test_a_batch_is_taken_apart():
    text = '[{"jsonrpc": "2.0", "method": "notifications/message"}, 5, {"jsonrpc": "2.0", "id": @ID@, "result": {}}]'
    async with entered(f"instead={text}") as (link, wire):
        await wire.send(7)
        assert isinstance(await wire.next(), JSONRPCNotification)
        assert (await wire.next()).id == 7
        assert link.garbage == 1


async def test_three_megabytes_of_stderr_block_nothing_and_the_end_of_them_is_kept():
    async with entered("stderr=3000000") as (link, wire):
        assert await wire.call("echo", {"n": 1}) == {"n": 1}
    assert link.said() == "the last words\n"


async def test_stderr_is_masked():
    script = "import sys, os; sys.stderr.write('Bearer ' + os.environ['TOKEN'])"
    server = Server("w", command=sys.executable, args=("-c", script), env={"TOKEN": "${KEY}"})
    link = open_link(server, world(KEY="canary-91ab"))
    async with link as streams:
        assert await Wire(streams).next() is None
    assert link.said() == "Bearer ***"


def test_before_it_is_entered_nothing_was_said():
    assert open_link(scripted(), world()).said() == ""


# How it ends


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("die=3", "exited with code 3"),  # D77
        ("die=0", "exited with code 0"),
        ("kill", "was terminated by signal SIGKILL"),
        ("half", "exited with code 0 in the middle of a message"),
        ("hold", "exited with code 3"),
        ("hush", "closed its output but did not exit"),
    ],
)
async def test_a_call_under_way_ends_with_the_server(behaviour, words):
    async with entered(behaviour) as (link, wire):
        with trace_call() as call_trace:
            await wire.send(1)
        assert call_trace.begun
        assert await wire.next() is None
        assert link.ended == words


async def test_a_server_that_exits_at_once_tells_why_on_stderr():  # D74
    async with entered("exit=7") as (link, wire):
        assert await wire.next() is None
        assert link.ended == "exited with code 7"
    assert link.said() == "can't start\n"


async def test_what_was_answered_before_the_end_is_not_lost():
    code = (
        "import os, sys; sys.stdin.readline(); "
        '[os.write(1, b\'{"jsonrpc": "2.0", "id": %d, "result": {}}\\n\' % n) for n in range(1000)]; os._exit(4)'
    )
    link = open_link(Server("quick", command=sys.executable, args=("-S", "-c", code)), world())
    async with link as streams:
        wire = Wire(streams)
        await wire.send(0)
        assert [(await wire.next()).id for _ in range(1000)] == list(range(1000))
        assert await wire.next() is None
        assert link.ended == "exited with code 4"


async def test_what_nobody_takes_waits_in_the_pipe():
    code = (
        "import os\n"
        'note = b\'{"jsonrpc": "2.0", "method": "notifications/x", "params": {"data": "%s"}}\\n\'\n'
        "for _ in range(20_000): os.write(1, note % (b'x' * 1000))\n"
        "input()"
    )
    link: Any = open_link(Server("talker", command=sys.executable, args=("-S", "-c", code)), world())
    async with link as streams:
        inbox = link._intake.inbox
        async with asyncio.timeout(20):
            while inbox._held <= 1024 * 1024:
                await RealClock().sleep(0.01)
        for _ in range(20):
            await RealClock().sleep(0.001)  # it would go on now
        assert inbox._held < 2 * 1024 * 1024
        wire = Wire(streams)
        for _ in range(20_000):
            assert isinstance(await wire.next(), JSONRPCNotification)


async def test_after_the_end_nothing_is_sent():
    async with entered("exit=7") as (_, wire):
        assert await wire.next() is None
        with trace_call() as call_trace, pytest.raises(anyio.BrokenResourceError):
            await wire.send(1)
        assert not call_trace.begun


async def test_a_request_that_waits_for_room_was_not_sent():
    async with entered("deaf") as (_, wire):
        with trace_call() as first:
            await wire.send(1, "echo", {"text": "x" * 1_000_000})
        with trace_call() as second, pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await wire.send(2)
        assert (first.begun, second.begun) == (True, False)
        # What calls it off is not kept waiting.
        off = JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params={"requestId": 1})
        await wire.write.send(SessionMessage(off))


async def test_only_calls_are_told_of_as_begun():
    async with entered() as (_, wire):
        with trace_call() as call_trace:
            await wire.write.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=1, method="ping")))
        assert (await wire.next()).id == 1
        assert not call_trace.begun


@given(st.lists(st.binary(max_size=20), max_size=20), st.integers(1, 60))
def test_lines_are_the_same_however_they_come(chunks, longest):
    whole = b"".join(chunks)
    expected = whole.split(b"\n")
    lines, found = LineSplitter(longest), []
    try:
        for data in chunks:
            found += lines.add(data)
    except LineTooLong:
        assert max(map(len, expected)) > longest
    else:
        assert found == expected[:-1]
        assert max(map(len, expected)) <= longest
        assert lines.unfinished() == bool(expected[-1].strip())


def test_logs_of_others_are_left_alone(caplog):
    ours = Context()
    ours.run(open_link, scripted(), world())
    for there in (ours.run, Context().run):
        there(logging.getLogger("client").warning, "of the SDK's session, or of an application")
        there(logging.getLogger("mcp.shared.jsonrpc_dispatcher").error, "of the SDK")
    told = [record.message for record in caplog.records]
    assert told == ["of the SDK's session, or of an application", "of the SDK"]
    assert logging.getLogger("mcp").level == logging.NOTSET
