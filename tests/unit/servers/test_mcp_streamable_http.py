"""Servers over streamable HTTP, at the level of the link: what is sent, what is refused, and how it fails."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp import Client, MCPError

from http_servers import answering, answering_json, answering_raw, raw_answer, serving
from mcp_over_http import SESSION, STREAM, answer_to, chunk, event, speaking
from sampling import sample
from toolcrib.core.clock import RealClock
from toolcrib.core.server_config import Server
from toolcrib.security.egress import EgressGuard
from toolcrib.security.secrets import MissingSecret, SecretResolver
from toolcrib.servers.endpoint import resolve_endpoint
from toolcrib.servers.environment import NetworkEnvironment
from toolcrib.servers.mcp.transports import CallTrace, Link, StartFailure, open_link, trace_call

CANARY = "canary-7e21"


def at(server: Any, **fields: Any) -> Server:
    return Server("crm", transport="http", **{"url": f"{server.origin}/mcp", **fields})


def world(*allow: str, guard: EgressGuard | None = None, **environment: str) -> NetworkEnvironment:
    return NetworkEnvironment.ordinary()._replace(
        guard=guard or EgressGuard(allow), secrets=SecretResolver(environment)
    )


@asynccontextmanager
async def connected(
    server: Server, there: NetworkEnvironment | None = None, mode: str = "legacy"
) -> AsyncIterator[tuple[Link, Client]]:
    link = open_link(server, there or world())
    async with Client(link, mode=mode) as client:
        yield link, client


async def call(client: Client, arguments: Any = None) -> Any:
    answer = await client.call_tool("echo", arguments or {})
    return json.loads(answer.content[0].text)


async def trouble_of_call(client: Client) -> CallTrace:
    """What is known of a call that fails."""
    with trace_call() as call_trace, pytest.raises(MCPError):
        async with asyncio.timeout(60):
            await client.call_tool("echo", {})
    assert call_trace.trouble is not None
    return call_trace


# When it works


@pytest.mark.parametrize("mode", ["legacy", "auto"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_call_is_answered(mode, stream):
    async with serving(speaking(stream=stream)) as server:
        async with connected(at(server), mode=mode) as (link, client):
            with trace_call() as call_trace:
                assert await call(client, {"city": "Köln"}) == {"city": "Köln"}
            assert (call_trace.begun, call_trace.trouble) == (True, None)
            assert (link.ended, link.refusal, link.garbage, link.said()) == ("", None, 0, "")
        assert link.ended == "was disconnected"


async def test_every_request_has_the_headers_and_no_other_credentials():
    async with serving(speaking()) as server:
        there = world(TEAM="n0rth-71", KEY=CANARY)
        headers = {"X-Team": "${TEAM}", "X-Api-Key": "${KEY}", "Accept": "text/plain"}
        async with connected(at(server, headers=headers), there) as (_, client):
            await call(client)
        assert {head.method for head in server.requests} == {"POST", "GET", "DELETE"}
        for head in server.requests:
            assert (head.header("x-team"), head.header("x-api-key")) == ("n0rth-71", CANARY)
            assert head.header("accept-encoding") == "identity"
            assert "text/event-stream" in str(head.header("accept"))
            assert str(head.header("user-agent")).startswith("toolcrib/")
            assert head.header("cookie") is None
    assert there.secrets.hide_in_text(f"{CANARY} of n0rth-71") == "*** of ***"


async def test_connections_are_kept_and_so_is_the_session():
    async with serving(speaking()) as server:
        async with connected(at(server)) as (_, client):
            for number in range(20):
                assert await call(client, {"n": number}) == {"n": number}
        assert server.accepted <= 2
        assert all(head.header("mcp-session-id") == SESSION for head in server.requests[1:])
        assert server.requests[-1].method == "DELETE"


async def test_no_cookie_is_kept(monkeypatch):
    def seen(head):
        if head.method == "POST" and head.json.get("method") == "initialize":
            headers = {"Content-Type": "application/json", "Set-Cookie": "id=7; Path=/"}
            return raw_answer(200, headers, json.dumps(answer_to(head.json)).encode())
        return None

    async with serving(speaking(seen=seen)) as server:
        async with connected(at(server)) as (_, client):
            await call(client)
        assert all(head.header("cookie") is None for head in server.requests)


async def test_proxies_of_the_environment_are_ignored(monkeypatch):  # D72
    async with serving(answering(500)) as proxy, serving(speaking()) as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.origin)
        async with connected(at(server)) as (_, client):
            await call(client)
        assert proxy.accepted == 0


async def test_an_answer_may_be_zipped_although_nobody_asked_for_it():
    async def zipped(_reader, writer, head):
        body = gzip.compress(json.dumps(answer_to(head.json)).encode())
        writer.write(raw_answer(200, {"Content-Type": "application/json", "Content-Encoding": "gzip"}, body))

    async with serving(speaking(calls=zipped)) as server, connected(at(server)) as (_, client):
        assert await call(client, {"n": 1}) == {"n": 1}


# Who may be reached


async def test_an_address_that_stands_in_the_url_is_allowed_for_this_server_alone():
    async with serving(speaking()) as server, serving(speaking()) as other:
        there = world()
        async with connected(at(server), there) as (_, client):
            await call(client)
        await refused(
            Server("crm", transport="http", url=f"http://crm.test:{other.port}/"), resolving("127.0.0.1")
        )
        assert other.accepted == 0


async def test_localhost_is_meant_as_it_is_written():
    async with (
        serving(speaking()) as server,
        connected(at(server, url=f"http://localhost:{server.port}/mcp")) as (_, client),
    ):
        await call(client)


@pytest.mark.parametrize("host", ["169.254.169.254", "2852039166", "[::ffff:169.254.169.254]"])
async def test_where_clouds_keep_credentials_is_not_allowed_by_being_written(host):
    await refused(Server("meta", transport="http", url=f"http://{host}/mcp"), world())


def resolving(address: str, *allow: str) -> NetworkEnvironment:
    async def resolve(_name: str, _port: int) -> list[str]:
        return [address]

    return world(guard=EgressGuard(allow, resolve=resolve))


async def refused(server: Server, there: NetworkEnvironment) -> None:
    link = open_link(server, there)
    with trace_call() as call_trace:
        with pytest.raises((MCPError, ExceptionGroup)):
            async with Client(link, mode="legacy"):
                pass
        assert link.refusal is not None
        assert link.refusal.code == "address_refused"
        assert "may not reach" in link.ended
        assert call_trace.trouble is not None
        assert call_trace.trouble.code == "address_refused"
        assert not call_trace.begun


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
async def test_a_name_that_leads_to_a_special_address_needs_leave(address):
    async with serving(speaking(), host=address) as server:
        named = at(server, url=f"http://crm.test:{server.port}/mcp")
        await refused(named, resolving(address))
        assert server.accepted == 0
        async with connected(named, resolving(address, f"crm.test:{server.port}")) as (_, client):
            await call(client)
        assert server.requests[0].header("host") == f"crm.test:{server.port}"


async def test_another_origin_may_stand_in_its_place():
    async with serving(speaking()) as server:
        there = world(f"127.0.0.1:{server.port}")._replace(
            origins={"https://crm.example.com": f"http://127.0.0.1:{server.port}"}
        )
        async with connected(at(server, url="https://crm.example.com/mcp?v=1"), there) as (_, client):
            await call(client)
        assert server.requests[0].target == "/mcp?v=1"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_to_another_origin_is_not_followed(status):
    async with serving(speaking(), host="127.0.0.2") as canary:
        elsewhere = f"http://127.0.0.2:{canary.port}/mcp"
        async with serving(speaking(calls=answering(status, {"Location": elsewhere}))) as server:
            there = world(f"127.0.0.2:{canary.port}")
            async with connected(at(server, headers={"X-Key": CANARY}), there) as (_, client):
                call_trace = await trouble_of_call(client)
        assert call_trace.trouble is not None
        assert call_trace.trouble.message == f"the server redirects to `127.0.0.2` (status {status})"
        assert canary.accepted == 0


async def test_a_redirect_within_the_origin_is_followed():
    def seen(head):
        return raw_answer(307, {"Location": "/mcp/"}) if head.path == "/mcp" else None

    async with serving(speaking(seen=seen)) as server, connected(at(server)) as (_, client):
        with trace_call() as call_trace:
            assert await call(client, {"n": 1}) == {"n": 1}
        assert call_trace.trouble is None


# How it fails


async def test_a_server_that_is_down_and_then_up_again_needs_a_new_link():  # D84
    async with serving(speaking()) as server, connected(at(server)) as (link, client):
        await call(client)
        server.stop_listening()
        await server.stop()
        call_trace = await trouble_of_call(client)
        assert not call_trace.begun
        assert call_trace.trouble is not None
        assert call_trace.trouble.code == "connect_failed"
        assert call_trace.trouble.hint == "check that the server is running and that `url` is correct"
        assert link.ended.startswith(f"cannot be reached: cannot connect to `127.0.0.1:{server.port}`")
    async with serving(speaking(), port=server.port) as again, connected(at(server)) as (_, client):
        assert await call(client, {"n": 1}) == {"n": 1}
        assert again.accepted


async def test_a_server_that_goes_away_between_calls():
    async with serving(speaking()) as server, connected(at(server)) as (link, client):
        await call(client)
        server.handler = answering_raw(b"")
        call_trace = await trouble_of_call(client)
        assert call_trace.begun
        assert call_trace.trouble is not None
        assert call_trace.trouble.code == "connection_broken"
        assert link.ended == ""


@pytest.mark.parametrize(
    ("raw", "code"),
    sample(
        [
            (
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{",
                "connection_broken",
            ),
            (STREAM + event("{}", "ping")[:-1], "connection_broken"),
            (STREAM + event("{}", "ping") + chunk(b""), "connection_broken"),
            (b"SSH-2.0-OpenSSH\r\n", "bad_response"),
            (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, "headers_too_large"),
            (
                raw_answer(200, {"Content-Type": "application/json"}, b" " * (16 * 1024 * 1024 + 1)),
                "response_too_large",
            ),
            (STREAM + event("x" * (16 * 1024 * 1024)), "response_too_large"),
            (STREAM.replace(b"chunked", b"chunked\r\nContent-Encoding: gzip"), "unsupported_coding"),
            (raw_answer(202), "http_status"),
            (raw_answer(200, {"Content-Type": "text/html"}, b"<html>"), "http_status"),
            (raw_answer(500, {"Content-Type": "text/html"}, b"<html>"), "http_status"),
            (raw_answer(503), "http_status"),
            (raw_answer(401), "unauthorized"),
            (raw_answer(403), "unauthorized"),
            (raw_answer(404), "session_over"),
            (
                raw_answer(
                    400,
                    {"Content-Type": "application/json"},
                    b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32000, "message": "Bad Request: No valid session"}}',
                ),
                "session_over",
            ),
        ],
        one_in=2,
    ),
)
async def test_an_exchange_that_fails_is_told_and_takes_nothing_with_it(raw, code):
    async with serving(speaking(calls=answering_raw(raw))) as server, connected(at(server)) as (link, client):
        call_trace = await trouble_of_call(client)
        assert call_trace.begun
        assert call_trace.trouble is not None
        assert call_trace.trouble.code == code
        assert link.ended == ("ended the session" if code == "session_over" else "")
        assert [tool.name for tool in (await client.list_tools()).tools] == ["echo"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"id": 1000}, "the response has the ID of another request"),
        ({"id": "x"}, "the response has the ID of another request"),
        ({"result": None}, "the response is not a valid MCP message"),
        ({"result": [1]}, "the response is not a valid MCP message"),
        ({"id": [1]}, "the response is not a valid MCP message"),
        ({"method": "ping"}, "the body is not a response"),
    ],
)
async def test_a_response_that_is_not_one_ends_its_call_alone(stream, members, message):
    async def calls(_reader, writer, head):
        answer = {**answer_to(head.json), **members}
        if "method" in members:
            del answer["result"]
        raw = raw_answer(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())
        writer.write(STREAM + event(answer) + chunk(b"") if stream else raw)

    async with serving(speaking(calls=calls)) as server, connected(at(server)) as (link, client):
        call_trace = await trouble_of_call(client)
        assert call_trace.begun
        # The response may still follow on a stream.
        follows = stream and members.keys() & {"id", "method"} and members.get("id") != [1]
        expected = "the stream ended before the response arrived" if follows else message
        assert call_trace.trouble is not None
        assert call_trace.trouble.message == expected
        assert call_trace.trouble.code == ("connection_broken" if follows else "protocol_violation")
        assert link.ended == ""
        assert len((await client.list_tools()).tools) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_the_id_of_a_response_may_be_a_text(stream):
    async def calls(_reader, writer, head):
        answer = {**answer_to(head.json), "id": str(head.json["id"])}
        raw = raw_answer(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())
        writer.write(STREAM + event(answer) + chunk(b"") if stream else raw)

    async with serving(speaking(calls=calls)) as server, connected(at(server)) as (_, client):
        assert await call(client, {"n": 1}) == {"n": 1}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_without_an_id_is_for_the_request_that_it_answers(stream):
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32700, "message": "Parse error"}}

    async def calls(_reader, writer, _head):
        raw = raw_answer(200, {"Content-Type": "application/json"}, json.dumps(error).encode())
        writer.write(STREAM + event(error) + chunk(b"") if stream else raw)

    async with serving(speaking(calls=calls)) as server, connected(at(server)) as (_, client):
        with pytest.raises(MCPError, match="Parse error"):
            await call(client)


async def test_a_response_with_the_id_of_another_request_does_not_answer_that_one():
    numbers: list[int] = []
    both, wrong = asyncio.Event(), asyncio.Event()

    async def calls(_reader, writer, head):
        first = not numbers
        numbers.append(head.json["id"])
        if first:
            await both.wait()
        else:
            both.set()
            await wrong.wait()
        answer = {**answer_to(head.json), "id": numbers[1]}
        writer.write(raw_answer(200, {"Content-Type": "application/json"}, json.dumps(answer).encode()))

    async with serving(speaking(calls=calls)) as server, connected(at(server)) as (_, client):
        first = asyncio.ensure_future(trouble_of_call(client))
        while not numbers:
            await RealClock().sleep(0.01)
        second = asyncio.ensure_future(call(client, {"n": 2}))
        trouble = (await first).trouble
        assert trouble is not None
        assert trouble.code == "protocol_violation"
        wrong.set()
        assert await second == {"n": 2}


@pytest.mark.parametrize("end", sample(["\r\n", "\n", "\r"], one_in=3))
async def test_events_that_are_not_the_response_lose_nothing(end, caplog):
    large = "x" * 17_000_000
    notes = [
        json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"x": large}}),
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "sampling/createMessage", "params": {"x": large}}),
        json.dumps({"jsonrpc": "2.0", "id": 1000, "result": {"x": large}}),
        json.dumps({"jsonrpc": "2.0", "id": 1000, "result": {}}),
        json.dumps({"jsonrpc": "2.0", "id": 1000, "result": None}),
        '{"method": "notifications/message", "method": "x"}',
        "{}",
        "banner",
    ]

    async def calls(_reader, writer, head):
        writer.write(STREAM)
        for text in [*notes, json.dumps(answer_to(head.json))]:
            raw = f"event: message{end}data: {text}{end}{end}".encode()
            # The last byte, which may be half of a CRLF, comes in a piece of its own.
            writer.write(chunk(raw[:-1]) + chunk(raw[-1:]))
            await writer.drain()
        writer.write(chunk(b""))

    async with serving(speaking(calls=calls)) as server, connected(at(server)) as (link, client):
        with caplog.at_level(logging.WARNING, "toolcrib"):
            assert await call(client, {"n": 1}) == {"n": 1}
        assert link.ended == ""
        answered = [head.json for head in server.requests if head.method == "POST" and "error" in head.json]
        assert [(each["id"], each["error"]["code"]) for each in answered] == [(1, -32602)]
    told = "the server `crm` sent an event larger than 16MiB, which was discarded"
    assert [record.message for record in caplog.records] == [told] * 3


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("most", sample([100_000, 20_000_000]))
async def test_the_limit_of_a_response_is_that_of_its_call(stream, most):
    async def calls(_reader, writer, head):
        answer = {**answer_to(head.json), "result": {"content": [{"type": "text", "text": "x" * length}]}}
        raw = raw_answer(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())
        writer.write(STREAM + event(answer) + chunk(b"") if stream else raw)

    async with serving(speaking(calls=calls)) as server, connected(at(server)) as (_, client):
        length = most - 1000
        with trace_call(most):
            assert len((await client.call_tool("echo", {})).content[0].text) == length
        length = most
        with trace_call(most) as call_trace, pytest.raises(MCPError):
            await client.call_tool("echo", {})
        assert call_trace.trouble is not None
        assert call_trace.trouble.code == "response_too_large"


@pytest.mark.exhaustive
async def test_an_event_may_have_four_megabytes():
    async def large(_reader, writer, head):
        answer = answer_to(head.json)
        answer["result"] = {"content": [{"type": "text", "text": json.dumps("x" * (16 * 1024 * 1024 - 200))}]}
        writer.write(STREAM + event(answer) + chunk(b""))

    async with serving(speaking(calls=large)) as server, connected(at(server)) as (_, client):
        assert len(await call(client)) == 16 * 1024 * 1024 - 200


@pytest.mark.exhaustive
async def test_many_events_may_have_more_together():
    async def many(_reader, writer, head):
        writer.write(STREAM)
        for _ in range(3):
            note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 2_000_000}}
            writer.write(event({**note, "params": {"level": "info", **note["params"]}}))
            await writer.drain()
        writer.write(event(answer_to(head.json)) + chunk(b""))

    async with serving(speaking(calls=many)) as server, connected(at(server)) as (_, client):
        assert await call(client, {"n": 1}) == {"n": 1}


async def test_an_error_of_the_protocol_passes_whatever_its_status():
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": -32020, "message": "Header mismatch"}}
    async with (
        serving(speaking(calls=answering_json(error, 400))) as server,
        connected(at(server)) as (_, client),
    ):
        with trace_call() as call_trace, pytest.raises(MCPError) as caught:
            await client.call_tool("echo", {})
        assert caught.value.error.code == -32020
        assert call_trace.trouble is None


async def silent(reader, _writer, _head):
    await reader.read()


async def silent_stream(reader, writer, _head):
    writer.write(STREAM + event("{}", "ping"))
    await reader.read()


@pytest.mark.parametrize("calls", [silent, silent_stream])
async def test_a_call_that_was_given_up_leaves_no_connection(calls):
    async with serving(speaking(calls=calls)) as server, connected(at(server)) as (_, client):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await client.call_tool("echo", {})
        async with asyncio.timeout(60):
            while server.open > 1:  # the one that is kept, or the stream of what the server tells
                await RealClock().sleep(0.01)
        told = [head.json for head in server.requests if head.method == "POST"]
        assert told[-1]["method"] == "notifications/cancelled"
        assert [tool.name for tool in (await client.list_tools()).tools] == ["echo"]


async def test_leaving_does_not_wait_for_a_server_that_says_nothing():
    def seen(head):
        return b"" if head.method == "DELETE" else None

    async with serving(speaking(seen=seen)) as server, connected(at(server)) as (_, client):
        async with asyncio.timeout(60):
            await call(client)


async def test_a_stream_that_breaks_off_is_resumed():
    def seen(head):
        if head.method == "GET" and head.header("last-event-id") == "7":
            return STREAM + event(answer_to({"method": "tools/call", "id": 2})) + chunk(b"")
        return None

    cut = answering_raw(STREAM + chunk(b"id: 7\nretry: 1\ndata:\n\n"))
    async with serving(speaking(calls=cut, seen=seen)) as server, connected(at(server)) as (link, client):
        with trace_call() as call_trace:
            assert await call(client) is None
        assert (call_trace.trouble, link.ended) == (None, "")


async def test_a_server_that_always_wants_us_back_is_not_flooded():
    stream = STREAM + chunk(b"id: 7\nretry: 0\ndata:\n\n") + chunk(b"")

    def seen(head):
        return stream if head.method == "GET" else None

    async with serving(speaking(calls=answering_raw(stream), seen=seen)) as server:
        async with connected(at(server)) as (_, client):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.8):
                    await client.call_tool("echo", {})
        assert sum(head.method == "GET" for head in server.requests) <= 12


# What is written wrong, and what is told of it


async def test_what_is_looked_up_has_to_be_an_address_and_a_header():
    with pytest.raises(StartFailure, match="is not a valid URL"):
        open_link(Server("crm", transport="http", url="${BASE}/mcp"), world(BASE="crm.example.com"))
    server = Server("crm", transport="http", url="https://crm.example.com", headers={"X-Key": "${KEY}"})
    with pytest.raises(StartFailure, match="contains a line break") as caught:
        open_link(server, world(KEY=f"{CANARY}\nX: 1"))
    assert CANARY not in str(caught.value)
    with pytest.raises(MissingSecret) as missing:
        open_link(server._replace(url="https://${HOST}/"), world())
    assert missing.value.pointer == "/url"
    assert "(at /headers/X-Key)" in missing.value.message


def test_the_endpoint_is_shown_without_its_path_and_headers():
    server = Server(
        "web", transport="http", url="https://example.com/mcp/canary?key=1", headers={"X-Key": "canary"}
    )
    assert (
        repr(resolve_endpoint(server, NetworkEnvironment.ordinary())) == "ServerEndpoint(https://example.com)"
    )


async def test_secrets_are_in_no_error_and_no_log(caplog):
    caplog.set_level(logging.DEBUG)
    echoing = answering_json({"jsonrpc": "2.0", "id": 1, "wrong": True})
    async with serving(speaking(calls=echoing)) as server:
        url = f"http://127.0.0.1:{server.port}/mcp?key=${{KEY}}"
        secret = at(server, url=url, headers={"Authorization": "Bearer ${KEY}"})
        async with connected(secret, world(KEY=CANARY)) as (link, client):
            with pytest.raises(MCPError) as caught:
                await client.call_tool("echo", {})
            assert CANARY not in f"{caught.value} {link.ended} {link!r}"
        assert server.requests[0].target == f"/mcp?key={CANARY}"
    assert CANARY not in caplog.text
