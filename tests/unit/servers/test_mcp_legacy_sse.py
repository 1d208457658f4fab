"""Servers over HTTP with SSE, as it was before 2025-03-26, at the level of the link."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from mcp import Client, MCPError

from http_servers import Handler, answering, raw_answer, serving
from mcp_over_http import STREAM, answer_to, chunk, event
from sampling import sample
from toolcrib.core.server_config import Server
from toolcrib.security.egress import EgressGuard
from toolcrib.security.secrets import SecretResolver
from toolcrib.servers.environment import NetworkEnvironment
from toolcrib.servers.mcp.transports import Link, StartFailure, open_link, trace_call


class Old:
    """A handler that speaks the old transport.

    Args:
        endpoint: What the first event names.
        answers: What comes on the stream for tools/call, in place of the answer.
        posted: What answers the POST of tools/call.
        more: Whether the stream goes on after that.
    """

    def __init__(
        self,
        endpoint: str = "/messages?session=1",
        answers: bytes | None = None,
        posted: bytes | None = None,
        *,
        more: bool = True,
    ) -> None:
        self.endpoint, self.answers, self.posted, self.more = endpoint, answers, posted, more
        self.events: asyncio.Queue[bytes | None] = asyncio.Queue()

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: Any) -> None:
        if head.method == "GET":
            writer.write(STREAM + event(self.endpoint, "endpoint") + chunk(b": hello\n\n"))
            left = asyncio.ensure_future(reader.read())
            left.add_done_callback(lambda _: self.events.put_nowait(None))
            while (told := await self.events.get()) is not None:
                writer.write(told)
                await writer.drain()
            writer.close()
            left.cancel()
            return
        called = head.json.get("method") == "tools/call"
        writer.write(self.posted if called and self.posted is not None else raw_answer(202))
        if called and self.answers is not None:
            self.events.put_nowait(self.answers)
        elif "id" in head.json and not (called and self.posted is not None):
            self.events.put_nowait(event(answer_to(head.json)))
        if called and not self.more:
            self.events.put_nowait(None)


def link_to(server: Any, **fields: Any) -> Link:
    there = NetworkEnvironment.ordinary()._replace(secrets=SecretResolver({"KEY": "canary-3fd0"}))
    return open_link(Server("old", transport="sse", **{"url": f"{server.origin}/sse", **fields}), there)


async def test_a_call_is_answered():
    async with serving(Old()) as server:
        link = link_to(server, headers={"X-Key": "${KEY}"})
        async with Client(link, mode="legacy") as client:
            with trace_call() as call_trace:
                answer = await client.call_tool("echo", {"city": "Köln"})
            assert json.loads(answer.content[0].text) == {"city": "Köln"}
            assert (call_trace.begun, call_trace.trouble, link.ended) == (True, None, "")
        assert link.ended == "was disconnected"
        await server.all_closed()
        assert {head.target for head in server.requests} == {"/sse", "/messages?session=1"}
        assert {head.header("x-key") for head in server.requests} == {"canary-3fd0"}


async def test_an_absolute_address_of_its_own_is_good():
    async with serving(answering()) as server:
        server.handler = Old(f"{server.origin}/here")
        async with Client(link_to(server), mode="legacy") as client:
            await client.call_tool("echo", {})
        assert server.requests[-1].path == "/here"


async def failure(handler: Handler, **fields: Any) -> str:
    async with serving(handler) as server:
        with pytest.raises(StartFailure) as caught:
            async with link_to(server, **fields):
                pass
        await server.all_closed()
    return f"{caught.value.message} | {caught.value.hint}"


@pytest.mark.parametrize(
    ("handler", "words"),
    sample(
        [
            (Old("https://evil.example/messages"), "sent a message endpoint with a different origin"),
            (Old("//127.0.0.2/messages"), "sent a message endpoint with a different origin"),
            (Old("http://[::1/"), "sent an invalid message endpoint"),
            (answering(404), "the server `old` answered with status 404 | check that `url`"),
            (answering(401), "the server `old` answered with status 401 | add credentials"),
            (answering(200, {"Content-Type": "text/html"}, b"<html>"), "neither JSON nor an event stream"),
            (
                answering(200, {"Content-Type": "application/json"}, b"{}"),
                "did not answer with an event stream",
            ),
            (
                answering(307, {"Location": "https://evil.example/"}),
                "redirects to `evil.example` (status 307)",
            ),
            (answering(200, {"Content-Type": "text/event-stream"}), "did not send its message endpoint"),
            (
                answering(200, {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}),
                "did not answer with an event stream",
            ),
            (
                answering(200, {"Content-Type": "text/event-stream"}, b"data: " + b"x" * (16 * 1024 * 1024)),
                "sent an event larger than 16MiB before its message endpoint",
            ),
        ],
        one_in=3,
    ),
)
async def test_what_is_no_beginning(handler, words):
    assert words in await failure(handler)


async def test_a_server_that_never_says_where_messages_go():
    async def silent(reader, writer, _head):
        writer.write(STREAM)
        await reader.read()

    told = await failure(silent, start_timeout=0.2)
    assert told.startswith("the server `old` did not send its message endpoint within 0.2 s")


async def test_a_server_that_is_not_there_and_one_that_may_not_be_reached():
    async with serving(Old()) as server:
        pass
    link = link_to(server)
    with pytest.raises(StartFailure, match="cannot be reached: cannot connect"):
        await link.__aenter__()
    assert link.ended.startswith("cannot be reached")

    async def resolve(_name, _port):
        return ["127.0.0.1"]

    async with serving(Old()) as server:
        there = NetworkEnvironment.ordinary()._replace(guard=EgressGuard(resolve=resolve))
        url = f"http://old.test:{server.port}/sse"
        link = open_link(Server("old", transport="sse", url=url), there)
        with pytest.raises(StartFailure, match="may not reach"):
            await link.__aenter__()
        assert link.refusal is not None
        assert server.accepted == 0


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (Old(answers=b"", more=False), "aborted its stream: the connection closed"),
        (Old(answers=chunk(b""), more=False), "ended its stream"),
        (Old(answers=event("{}") * 101), "sent more than 100 events that are not MCP messages"),
    ],
)
async def test_a_call_under_way_ends_with_the_stream(handler, words):
    async with serving(handler) as server:
        link = link_to(server)
        async with Client(link, mode="legacy") as client:
            with trace_call() as call_trace, pytest.raises(MCPError):
                await client.call_tool("echo", {})
            assert call_trace.begun
            assert words in link.ended


@pytest.mark.parametrize(
    ("posted", "code"),
    [
        (raw_answer(500), "http_status"),
        (raw_answer(403), "unauthorized"),
        (b"", "connection_broken"),
        (b"SSH-2.0\r\n\r\n", "bad_response"),
    ],
)
async def test_a_message_that_is_not_taken_ends_its_call_alone(posted, code):
    async def handle(reader, writer, head):
        await old(reader, writer, head)
        if head.method == "POST" and head.json.get("method") == "tools/call":
            writer.close()

    old = Old(posted=posted)
    async with serving(handle) as server:
        link = link_to(server)
        async with Client(link, mode="legacy") as client:
            with trace_call() as call_trace, pytest.raises(MCPError):
                await client.call_tool("echo", {})
            assert call_trace.trouble is not None
            assert call_trace.trouble.code == code
            assert link.ended == ""
            assert len((await client.list_tools()).tools) == 1


@pytest.mark.parametrize(
    "text",
    sample(
        [
            '{"jsonrpc": "2.0", "result": {"id": 99, "x": "@PAD@"}, "id": @ID@}',
            '{"jsonrpc": "2.0", "id": @ID@, "result": {"x": "@PAD@"}}',
            "@PAD@",
        ],
        one_in=3,
    ),
)
async def test_an_event_that_is_too_large_ends_its_call_alone(text):
    other = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"x": "x" * 17_000_000}}
    stray = {"jsonrpc": "2.0", "id": 99, "result": {"x": "x" * 17_000_000}}
    more = event("x" * 17_000_000, "log") + event(other) + event(stray)

    async def handle(reader, writer, head):
        if head.method == "POST" and head.json.get("method") == "tools/call":
            filled = text.replace("@ID@", str(head.json["id"])).replace("@PAD@", "x" * 17_000_000)
            old.answers = more + event(filled)
        await old(reader, writer, head)

    old = Old()
    async with serving(handle) as server:
        link = link_to(server)
        async with Client(link, mode="legacy") as client:
            with trace_call() as call_trace, pytest.raises(MCPError):
                await client.call_tool("echo", {})
            assert call_trace.trouble is not None
            assert call_trace.trouble.code == "too_large"
            assert call_trace.trouble.message == "the server sent an event larger than 16MiB"
            assert len((await client.list_tools()).tools) == 1
            assert (link.ended, link.garbage) == ("", 0)


async def test_an_answer_that_is_none_ends_its_call_at_once():
    async with serving(Old(answers=event('{"jsonrpc": "2.0", "id": 2, "result": null}'))) as server:
        link = link_to(server)
        async with Client(link, mode="legacy") as client:
            with trace_call() as call_trace, pytest.raises(MCPError):
                await client.call_tool("echo", {})
            assert call_trace.trouble is not None
            assert call_trace.trouble.code == "protocol_violation"
            assert link.garbage == 1
