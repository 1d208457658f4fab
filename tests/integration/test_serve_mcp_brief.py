"""Over HTTP, calls that never wait get one JSON body; whatever may take its time gets events."""

from __future__ import annotations

import json
from typing import Any

import pytest

from serving_mcp import (
    BASICS,
    as_http,
    client,
    headers_of,
    quiet_sdk,
    request,
    said_raw,
    standing,
    texts,
    write,
)

pytestmark = [quiet_sdk]

SOON = """
    name: soon
    description: Answers a moment later.
    input_schema: {type: object, properties: {}}
    mock: {result: done, latency: 20ms}
    ---
    name: steps
    description: Reports its progress.
    input_schema: {type: object, properties: {}}
    mock: {result: done, progress: [{progress: 1, total: 2, after: 10ms}]}
"""

OPENING = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "raw", "version": "1"},
}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with standing(write(tmp_path_factory.mktemp("tools"), f"{BASICS}    ---{SOON}")) as served:
        yield served


class Session:
    """A client of the handshake era that looks at what its answers are."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._headers = {
            "host": f"127.0.0.1:{port}",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }

    async def open(self) -> None:
        head, _body = await self.sent(request("initialize", OPENING, modern=False))
        assert "text/event-stream" in head
        (session,) = [line.split(": ")[1] for line in head.splitlines() if line.startswith("mcp-session-id")]
        self._headers |= {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
        head, _body = await self.sent({"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert " 202 " in head

    async def sent(self, message: Any, **headers: str) -> tuple[str, bytes]:
        """Head, in lower case, and body of the answer."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        raw = await said_raw(self._port, as_http("POST", "/mcp", self._headers | headers, body))
        head, _blank, rest = raw.partition(b"\r\n\r\n")
        return head.decode().lower(), rest

    async def call(self, name: str, arguments: Any = None, **params: Any) -> str:
        """The media type of the answer to a call, which must be a good one."""
        message = request("tools/call", {"name": name, "arguments": arguments or {}, **params}, modern=False)
        head, body = await self.sent(message)
        assert b'"isError":true' not in body, body
        assert "mcp-session-id: " in head
        (kind,) = [line.split(": ")[1] for line in head.splitlines() if line.startswith("content-type")]
        return kind.partition(";")[0]


async def test_what_never_waits_is_answered_with_json(served):
    session = Session(served.port)
    await session.open()
    numbers = {"a": 1, "b": 2}
    await session.call("add", numbers)  # what a tool does is known once it was called
    assert await session.call("add", numbers) == "application/json"
    assert await session.call("add", numbers, _meta={"other": 1}) == "application/json"
    assert await session.call("add", numbers, _meta={"progressToken": 7}) == "text/event-stream"
    await session.call("soon")
    assert await session.call("soon") == "text/event-stream"

    # A body that holds the words, but not as a call of a tool.
    for odd in (
        request("tools/list", {"cursor": "no_such_page"}, modern=False),
        request("tools/no_such_method", {}, modern=False),
        request("tools/call", {"name": 7}, modern=False),
        request("tools/call", {"name": "no_such_tool"}, modern=False),
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": [1]},
        ["tools/call"],
        b'{"method": "tools/call"',
    ):
        _head, body = await session.sent(odd)
        assert b'"error"' in body, odd
    listed, _body = await session.sent(request("tools/list", {}, modern=False))
    assert "application/json" in listed


async def test_without_a_handshake_only_what_reports_its_progress_gets_events(served):
    async def kind(name: str, arguments: Any = None, **params: Any) -> str:
        call = request("tools/call", {"name": name, "arguments": arguments or {}, **params})
        told = headers_of(call, host=f"127.0.0.1:{served.port}")
        raw = await said_raw(served.port, as_http("POST", "/mcp", told, json.dumps(call).encode()))
        head, _blank, body = raw.partition(b"\r\n\r\n")
        assert b" 200 " in head.splitlines()[0]
        assert b'"resultType":"complete"' in body
        assert b'"isError":true' not in body
        (line,) = [line for line in head.decode().lower().splitlines() if line.startswith("content-type: ")]
        return line.removeprefix("content-type: ").partition(";")[0]

    reports = {"_meta": {"progressToken": 7}}
    for _ in range(2):  # what a tool does is known once it was called
        assert await kind("add", {"a": 1, "b": 2}) == "application/json"
        assert await kind("add", {"a": 1, "b": 2}, **reports) == "application/json"
        assert await kind("soon") == "application/json"
        assert await kind("steps", **reports) == "text/event-stream"


async def test_errors_of_a_call_that_never_waits_are_told_as_ever(served):
    session = Session(served.port)
    await session.open()
    await session.call("add", {"a": 1, "b": 2})
    head, body = await session.sent(
        request("tools/call", {"name": "add", "arguments": {"a": "x"}}, modern=False)
    )
    assert "application/json" in head
    result = json.loads(body)["result"]
    assert result["isError"]
    assert "/b: expected a number" in result["content"][0]["text"]


@pytest.mark.parametrize("again", [1, 3])
async def test_a_real_client_takes_either_answer(again, served):
    async with client(served.url, "legacy") as one:
        for number in range(again):
            result = await one.call_tool("echo", {"text": f"call {number}"})
            assert texts(result) == [f"call {number}"]


async def test_a_body_in_pieces_is_read_to_its_end(served):
    session = Session(served.port)
    await session.open()
    long = "x" * 200_000
    for _ in range(2):
        head, body = await session.sent(
            request("tools/call", {"name": "echo", "arguments": {"text": long}}, modern=False)
        )
        assert " 200 " in head
        assert long.encode() in body
