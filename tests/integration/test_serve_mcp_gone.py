"""Clients that go away, in the middle of whatever they asked for: nothing of it is logged."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

from serving_mcp import (
    BASICS,
    PATIENCE,
    as_http,
    headers_of,
    process,
    quiet_sdk,
    request,
    said_raw,
    serve,
    status_of,
    write,
)

pytestmark = [quiet_sdk]

LONG = request("tools/call", {"name": "echo", "arguments": {"text": "x" * 3_000_000}})


def spoken(message: dict[str, Any], *, modern: bool = True, **headers: str) -> bytes:
    """A message, whose connection is kept unless the headers say otherwise."""
    told = headers_of(message) | {"host": "localhost", "connection": "keep-alive"}
    if not modern:
        told["mcp-protocol-version"] = "2025-11-25"
    return as_http("POST", "/mcp", told | headers, json.dumps(message).encode())


SLOW = request("tools/call", {"name": "slow", "arguments": {}, "_meta": {"progressToken": 1}}, modern=False)
INITIALIZE = request(
    "initialize",
    {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "r", "version": "1"}},
    modern=False,
)
ALIVE = as_http("GET", "/healthz", {"host": "localhost"})
CALL = spoken(request("tools/call", {"name": "slow", "arguments": {}}))
SAID = {
    "nothing": b"",
    "half a head": CALL[:40],
    "half a body": CALL[:-10],
    "a call": CALL,
    "a long answer": spoken(LONG),
    "garbage": b"\x00\x16garbage\r\n\r\n",
}


async def test_a_client_over_http_goes_away(tmp_path):
    async with serve(write(tmp_path, BASICS)) as served:
        for said, raw in SAID.items():
            for resets in (False, True):
                with socket.create_connection(("127.0.0.1", served.port), PATIENCE) as one:
                    one.sendall(raw)
                    if said == "a long answer":
                        assert one.recv(1000)
                    if resets:
                        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                assert status_of(await said_raw(served.port, ALIVE)) == 200
                assert len(served.said) == 1, (said, resets, served.said)
        assert await served.end() == 0
    assert "Traceback" not in "".join(served.said)


async def test_a_client_of_the_handshake_goes_away_while_events_are_streamed(tmp_path):
    """One stream waits for changes, another for the answer to a call."""
    async with serve(write(tmp_path, BASICS), "--drain", "0") as served:
        opened = await said_raw(served.port, spoken(INITIALIZE, modern=False, connection="close"))
        session = opened.partition(b"mcp-session-id: ")[2].split()[0].decode()
        told = {
            "host": "localhost",
            "accept": "text/event-stream",
            "mcp-session-id": session,
            "mcp-protocol-version": "2025-11-25",
        }
        changes = as_http("GET", "/mcp", told | {"connection": "keep-alive"})
        call = spoken(SLOW, modern=False, **{"mcp-session-id": session})
        for raw in (changes, call):
            with socket.create_connection(("127.0.0.1", served.port), PATIENCE) as one:
                one.sendall(raw)
                assert b"text/event-stream" in one.recv(1000)
        assert status_of(await said_raw(served.port, ALIVE)) == 200
        assert len(served.said) == 1, "".join(served.said)
        assert await served.end() == 0
    assert "Traceback" not in "".join(served.said)


async def test_a_client_over_stdio_goes_away_before_its_answers_come(tmp_path):
    async with process(write(tmp_path, BASICS)) as served:
        await served.until_said("serving")
        served.process.stdout._transport.close()
        for number in range(3):
            message = request("tools/call", {"name": "echo", "arguments": {"text": "x"}}, number)
            served.process.stdin.write(json.dumps(message).encode() + b"\n")
        served.process.stdin.close()
        assert await served.ended() == 0
    assert len(served.said) == 1, "".join(served.said)
