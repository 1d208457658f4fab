"""Servers as processes, at the level of the link: what comes over it when they behave, and when they do not."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mcp import Client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from mcp_scripts import scripted
from sampling import examples, sample
from toolcrib.core.clock import RealClock
from toolcrib.core.message_splitter import MessageSplitter, OversizedMessage
from toolcrib.core.server_config import Server
from toolcrib.security.secrets import MissingSecret, SecretResolver
from toolcrib.servers.environment import NetworkEnvironment
from toolcrib.servers.mcp.incoming_messages import read_head
from toolcrib.servers.mcp.stdio import resolve_command
from toolcrib.servers.mcp.transports import Link, StartFailure, open_link, trace_call


class Wire:
    """Both streams of an entered link."""

    def __init__(self, streams: Any) -> None:
        self.read, self.write = streams

    async def send(self, number: int, tool: str = "echo", arguments: Any = None) -> None:
        params = {"name": tool, "arguments": arguments}
        request = JSONRPCRequest(jsonrpc="2.0", id=number, method="tools/call", params=params)
        await self.write.send(SessionMessage(request))

    async def say(self, *lines: Any, number: int) -> None:
        """Have the server write lines, each of which is a text and the length of its `@PAD@`."""
        await self.send(number, "say", {"lines": lines})

    async def next(self) -> Any:
        """The next message; None at the end."""
        async with asyncio.timeout(60):
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
        await wire.write.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=2, method="ping")))
        assert (await wire.next()).id == 2
        assert (link.ended, link.garbage) == ("", 0)


async def test_a_line_of_just_sixteen_megabytes_is_not():
    async with entered(f"long={16 * 1024 * 1024}") as (_, wire):
        await wire.send(1)
        assert isinstance(await wire.next(), JSONRPCResponse)


@pytest.mark.parametrize(
    ("most", "long", "fits"),
    sample(
        [
            (100_000, 100_000, True),
            (100_000, 100_001, False),
            (20_000_000, 20_000_000, True),
            (1, 65_536, True),
            (1, 65_537, False),
        ],
        one_in=2,
    ),
)
async def test_the_limit_of_a_line_is_that_of_its_call(most, long, fits):
    async with entered("say") as (_, wire):
        with trace_call(most):
            await wire.send(1, "hold")
        start, end = '{"jsonrpc": "2.0", "id": 1, "result": {"x": "', '"}}'
        # A call with another limit changes nothing.
        await wire.say([f"{start}@PAD@{end}", long - len(start + end)], number=2)
        answer = await wire.next()
        assert answer.id == 1
        assert isinstance(answer, JSONRPCResponse) is fits


async def test_a_flood_without_a_newline_ends_its_request_and_not_the_link():
    async with entered("flood") as (link, wire):
        await wire.send(1)
        answer = await wire.next()
        assert isinstance(answer, JSONRPCError)
        assert answer.error.message == "the server sent a line longer than 16MiB"
        assert link.ended == ""


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
    sample(
        [
            ("die=3", "exited with code 3"),  # D77
            ("die=0", "exited with code 0"),
            ("kill", "was terminated by signal SIGKILL"),
            ("half", "exited with code 0 in the middle of a message"),
            ("hold", "exited with code 3"),
            ("hush", "closed its output but did not exit"),
        ],
        one_in=2,
    ),
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


@pytest.mark.exhaustive
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
        async with asyncio.timeout(60):
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


BYTES = st.sampled_from([b"\n", b"\r", b"\r\n", b"x", b"yy", b" "])


@given(st.lists(st.lists(BYTES, max_size=12).map(b"".join), max_size=20), st.integers(0, 12))
@pytest.mark.parametrize("end", [rb"\n", rb"(?>\r\n|\n|\r)(?:\r\n|\n|\r)"])
def test_messages_are_the_same_however_they_come(end, chunks, limit):
    def cut(pieces):
        splitter = MessageSplitter(re.compile(end), lambda _head: limit, head=0)
        return [part for piece in pieces for part in splitter.add(piece)], splitter.unfinished()

    whole = b"".join(chunks)
    parts, unfinished = cut(chunks)
    # A CR at the end of a chunk ends an event at once, so the LF of its CRLF begins the next one.
    if b"\r" not in whole:
        assert cut([whole]) == (parts, unfinished)
    ends = [found.end() for found in re.finditer(end, whole)]
    expected = [whole[at:to] for at, to in zip([0, *ends], ends, strict=False)]
    good = [part for part in expected if len(re.split(end, part)[0]) <= limit]
    found = [part for part in parts if not isinstance(part, OversizedMessage)]
    if b"\r" not in whole or end == rb"\n":
        assert found == good
        rest = whole[ends[-1] if ends else 0 :]
        assert len(parts) == len(expected) + (len(rest) > limit)
        assert unfinished == (len(rest) > limit or bool(rest.strip()))
    assert all(len(part) <= limit + 4 for part in found)


def test_a_message_that_is_too_large_is_not_kept():
    splitter = MessageSplitter(re.compile(rb"\n"), lambda _head: 100_000)
    (large,) = [part for _ in range(1000) for part in splitter.add(b"x" * 10_000)]
    assert (large.limit, len(large.head)) == (100_000, 65_536)
    assert len(splitter._rest) < 10
    assert [*splitter.add(b"x\nyes\nno")] == [b"yes\n"]


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ('{"jsonrpc": "2.0", "id": 7, "result": {"x', (7, "", False)),
        ('\ufeff {"result": {"id": 3, "x": [{}, "}"]}, "id": "7"', ("7", "", False)),
        ('{"result": {"id": 3, "x": "', (None, "", False)),
        ('{"result": [{"id": 3', (None, "", False)),
        ('{"result": "a\\"b{", "\\u0069d": 7, "x', (7, "", False)),
        ('{"id": 7', (None, "", False)),  # perhaps 70
        ('{"id": "7', (None, "", False)),
        ('{"id": 7.0, "x"', (None, "", False)),
        ('{"id": true, "x"', (None, "", False)),
        ('{"id": null, "error": {"message": "', (None, "", False)),
        ('{"id": ' + "9" * 5000 + ', "result": "', (None, "", False)),
        ('{"id": 7, "id": 8, "x', (7, "", False)),
        ('{"method": "notifications/message", "params": {"id": 7, "', (None, "notifications/message", True)),
        ('{"id": 7, "params": {"x": 1}, "method": "ping", "x": "', (7, "ping", True)),
        ('{"id": 7, "params": {"x', (7, "", True)),
        ('[{"id": 7, "result": {}}, {"', (None, "", False)),
        ("a log line", (None, "", False)),
        ('{"a\\x": 1, "id": 7', (None, "", False)),
        ("{" * 1000, (None, "", False)),
        ("", (None, "", False)),
    ],
)
def test_what_the_beginning_of_a_message_tells(text, head):
    assert read_head(text) == head
    assert read_head(text.encode()) == head


@given(st.text('{}[]":,\\idx 7\n', max_size=60))
def test_any_beginning_is_read(text):
    read_head(text)
    read_head('{"id": 7, ' + text)


def reply(number, **members):
    return json.dumps({"jsonrpc": "2.0", "id": number, **members})


LARGE = 70_000
RESULT = {"content": []}


# What a server may write for request n: the line, the length of its padding, and what ends: `good` or an error code of
# request n, of the only one that waits (`only`), or of all that wait (`any`).
REPLIES = {
    "good": lambda n: (reply(n, result=RESULT), 0, ("n", "good")),
    "id as text": lambda n: (reply(str(n), result=RESULT), 0, ("n", "good")),
    "an error": lambda n: (reply(n, error={"code": -32603, "message": "no"}), 0, ("n", "good")),
    "another id": lambda n: (reply(n + 1000, result=RESULT), 0, None),
    "another id as text": lambda _: (reply("x", result=RESULT), 0, None),
    "no id": lambda _: ('{"jsonrpc": "2.0", "result": {}}', 0, ("only", "protocol_violation")),
    "id null": lambda _: (reply(None, result=RESULT), 0, ("only", "protocol_violation")),
    "id true": lambda _: (reply(True, result=RESULT), 0, ("only", "protocol_violation")),
    "no result": lambda n: (reply(n), 0, None),
    "a bad result": lambda n: (reply(n, result=None), 0, ("n", "protocol_violation")),
    "a bad result and id as text": lambda n: (reply(str(n), result=7), 0, ("n", "protocol_violation")),
    "a bad result and another id": lambda n: (reply(n + 1000, result=None), 0, None),
    "half": lambda n: (reply(n, result=RESULT)[:-3], 0, ("n", "protocol_violation")),
    "half and another id": lambda n: (reply(n + 1000, result=RESULT)[:-3], 0, None),
    "two ids": lambda n: (
        f'{{"id": {n}, {reply(n + 1, result=RESULT)[1:]}',
        0,
        ("only", "protocol_violation"),
    ),
    "large": lambda n: (reply(n, result={"x": "@PAD@"}), LARGE, ("n", "too_large")),
    "large and id last": lambda n: (
        f'{{"jsonrpc": "2.0", "result": {{"id": {n}, "x": "@PAD@"}}, "id": {n}}}',
        LARGE,
        ("any", "too_large"),
    ),
    "large and another id": lambda n: (reply(n + 1000, result={"x": "@PAD@"}), LARGE, None),
    "large and no message": lambda _: ("@PAD@", LARGE, ("any", "too_large")),
    "a large notification": lambda n: (
        f'{{"method": "notifications/message", "params": {{"id": {n}, "data": "@PAD@"}}}}',
        16 * 1024 * 1024,
        None,
    ),
    "a log line": lambda n: (f'{{"id": {n}, "level": "info"}}', 0, None),
}


def outcome_of_replies(count, cancelled, replies):
    """What ends which request, in order, by the rules of the table."""
    waiting = [number for number in range(1, count + 1) if number not in cancelled]
    for kind, number in replies:
        effect = REPLIES[kind](number)[2]
        if effect is None:
            continue
        whose, how = effect
        ended = [number] if whose == "n" else waiting[:] if whose == "any" or len(waiting) == 1 else []
        ended = [each for each in ended if each in waiting]
        for each in ended:
            waiting.remove(each)
            yield each, how if len(ended) == 1 or whose == "n" else "unidentified_response"


@settings(max_examples=examples(40))
@given(
    st.integers(1, 4),
    st.sets(st.integers(1, 4), max_size=2),
    st.lists(st.tuples(st.sampled_from(sorted(REPLIES)), st.integers(1, 4)), max_size=8),
)
@example(2, set(), [("a large notification", 1), ("good", 2), ("good", 1)])
@example(3, set(), [("large and id last", 2), ("good", 3)])
@example(2, {1}, [("a bad result", 1), ("large", 1), ("good", 1), ("good", 2), ("good", 2)])
def test_a_bad_reply_loses_its_request_and_nothing_else(count, cancelled, replies):
    async def happened():
        async with entered("say") as (link, wire):
            traces = {}
            for number in range(1, count + 1):
                with trace_call(1) as traces[number]:
                    await wire.send(number, "hold")
            for number in cancelled & traces.keys():
                params = {"requestId": number}
                off = JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params=params)
                await wire.write.send(SessionMessage(off))
            # A notification makes the server write: a call would be one more request that waits.
            lines = [REPLIES[kind](number)[:2] for kind, number in replies]
            params = {"lines": lines}
            say = JSONRPCNotification(jsonrpc="2.0", method="notifications/say", params=params)
            await wire.write.send(SessionMessage(say))
            expected, found = [*outcome_of_replies(count, cancelled, replies)], []
            while len(found) < len(expected):
                message = await wire.next()
                if isinstance(message, JSONRPCNotification):
                    assert message.params is None
                # The SDK drops a response to no request.
                elif str(message.id) in {str(number) for number, _ in expected[len(found) :]}:
                    trouble = traces[int(message.id)].trouble
                    found.append((int(message.id), "good" if trouble is None else trouble.code))
            assert found == expected
            await wire.write.send(SessionMessage(JSONRPCRequest(jsonrpc="2.0", id=9, method="ping")))
            while isinstance(message := await wire.next(), JSONRPCNotification) or message.id != 9:
                pass
            assert link.ended == ""

    asyncio.run(happened())


async def test_a_request_of_the_server_that_is_too_large_is_passed_on_without_its_content():
    async with entered("say") as (link, wire):
        await wire.send(1, "hold")
        line = '{"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {"x": "@PAD@"}}'
        await wire.say([line, 16 * 1024 * 1024], [reply(1, result=RESULT), 0], number=2)
        asked = await wire.next()
        assert isinstance(asked, JSONRPCRequest)
        assert (asked.id, asked.method, asked.params) == (1, "sampling/createMessage", None)
        assert (await wire.next()).id == 1
        assert link.ended == ""


async def test_a_subscription_is_not_taken_for_a_request_that_a_reply_may_answer():
    async with entered("say") as (_, wire):
        listen = JSONRPCRequest(jsonrpc="2.0", id="listen-1", method="subscriptions/listen", params={})
        await wire.write.send(SessionMessage(listen))
        with trace_call(1) as call_trace:
            await wire.send(1, "say", {"lines": [["@PAD@", LARGE]]})
        assert (await wire.next()).id == 1
        assert call_trace.trouble is not None
        assert call_trace.trouble.code == "too_large"


async def test_what_is_not_a_message_is_logged(caplog):
    with caplog.at_level(logging.DEBUG, "toolcrib"):
        async with entered("say") as (_, wire):
            lines = [
                ["banner", 0],
                [reply(7, result=RESULT), 0],
                ['{"method": "x", "params": "@PAD@"}', 17_000_000],
            ]
            await wire.say(*lines, [reply(1, result=RESULT), 0], number=1)
            assert (await wire.next()).id == 7
            assert isinstance(await wire.next(), JSONRPCNotification)
            assert (await wire.next()).id == 1
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("DEBUG", "the server `scripted` sent output that is not a valid MCP message"),
        ("DEBUG", "the server `scripted` sent a response to no pending request"),
        ("WARNING", "the server `scripted` sent a line longer than 16MiB, which was discarded"),
    ]


def test_logs_of_others_are_left_alone(caplog):
    ours = Context()
    ours.run(open_link, scripted(), world())
    for there in (ours.run, Context().run):
        there(logging.getLogger("client").warning, "of the SDK's session, or of an application")
        there(logging.getLogger("mcp.shared.jsonrpc_dispatcher").error, "of the SDK")
    told = [record.message for record in caplog.records]
    assert told == ["of the SDK's session, or of an application", "of the SDK"]
    assert logging.getLogger("mcp").level == logging.NOTSET


STUBBORN = """
import pathlib, signal, sys, time
told = pathlib.Path(sys.argv[1])
signal.signal(signal.SIGTERM, lambda *_: told.joinpath("asked").touch())
told.joinpath("ready").touch()
while True:
    time.sleep(1)
"""


async def test_a_server_is_asked_and_then_killed_soon_if_its_task_is_cancelled(tmp_path):
    """As at the end of the event loop, if nothing has closed the runtime."""
    link = open_link(
        Server("stubborn", command=sys.executable, args=("-c", STUBBORN, str(tmp_path))), world()
    )
    entered = asyncio.Event()

    async def hold() -> None:
        async with link:
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    async with asyncio.timeout(60):
        await entered.wait()
        while not (tmp_path / "ready").exists():
            await asyncio.wait([task], timeout=0.05)
        task.cancel()
        await asyncio.wait([task])
    assert task.cancelled()
    assert link._child.code == -signal.SIGKILL
