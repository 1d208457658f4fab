"""Services of the runtime for Python code: guarded HTTP and connections, and masked secrets."""

from __future__ import annotations

import asyncio
import gzip
import threading
from contextlib import asynccontextmanager

import httpx
import pytest

import toolcrib
from toolcrib import CallContext, ConfigurationError, Outcome, Registry, Runtime


@asynccontextmanager
async def answering(body=b"hello", headers=""):
    """A server on loopback that answers every request alike; yields its address and what it received."""
    received, running, writers = [], [], []

    async def answer(reader, writer):
        running.append(asyncio.current_task())
        writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (
                        int(line[15:])
                        for line in head.lower().split(b"\r\n")
                        if line.startswith(b"content-length:")
                    ),
                    0,
                )
                received.append(head + await reader.readexactly(length))
                writer.write(
                    f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", received
    for writer in writers:
        writer.close()
    await asyncio.gather(*running, return_exceptions=True)


def call(function, allowed=True, server=None, name=None, **options):
    async def run():
        async with answering(**(server or {})) as (place, received):
            async with Runtime(Registry(), egress=[place] if allowed else [], **options) as runtime:
                runtime.add(function)
                result = await runtime.call(next(iter(runtime.registry)), {"place": place})
            return result, received

    return asyncio.run(run())


async def fetch(place: str, context: CallContext) -> str:
    first = await context.http.get(f"http://{place}/a?b=1", headers={"X-Own": "1"})
    async with context.http as client:
        second = await client.post(f"http://{place}/c", json={"d": 1})
    return first.text + second.text


def fetch_in_thread(place: str, context: CallContext) -> str:
    with context.http_sync as client:
        first = client.get(f"http://{place}/a?b=1", headers={"X-Own": "1"})
        return first.text + client.post(f"http://{place}/c", json={"d": 1}).text


@pytest.mark.parametrize("function", [fetch, fetch_in_thread])
@pytest.mark.parametrize(
    "server", [{}, {"body": gzip.compress(b"hello"), "headers": "Content-Encoding: gzip\r\n"}]
)
def test_requests_reach_a_permitted_address(function, server):
    result, received = call(function, server=server)
    assert result.value == "hellohello", result.message
    assert received[0].startswith(b"GET /a?b=1 HTTP/1.1\r\n")
    assert b"x-own: 1" in received[0].lower()
    assert received[1].endswith(b'{"d":1}')
    assert received[0].lower().count(b"\r\nhost:") == 1


@pytest.mark.parametrize("function", [fetch, fetch_in_thread])
def test_requests_count_in_the_usage_of_their_call(function):
    result, received = call(function, server={"body": b"y" * 3000})
    assert (result.usage.requests, result.usage.sent_bytes) == (2, sum(map(len, received)))
    assert 6000 < result.usage.received_bytes < 6500


@pytest.mark.parametrize("function", [fetch, fetch_in_thread])
def test_a_private_address_is_refused_unless_it_is_allowed(function):
    result, received = call(function, allowed=False)
    assert (result.outcome, result.error.code) == (Outcome.DENIED, "address_refused")
    assert "which tools may not reach" in result.message
    assert received == []


async def dial(place: str, context: CallContext) -> bool:
    host, _colon, port = place.partition(":")
    opened = await context.connect(host, int(port))
    with opened:
        return opened.getpeername()[1] == int(port)


def test_connections_pass_the_same_guard():
    assert call(dial)[0].value is True
    assert call(dial, allowed=False)[0].error.code == "address_refused"


async def unreachable(place: str, context: CallContext) -> str:
    await context.connect("127.0.0.1", 1)
    return ""


def test_a_host_that_cannot_be_reached_is_a_transport_error():
    async def run():
        async with Runtime(Registry(), egress=["127.0.0.1:1"]) as runtime:
            runtime.add(unreachable)
            return await runtime.call("unreachable", {"place": ""})

    result = asyncio.run(run())
    assert (result.outcome, result.error.code) == (Outcome.TRANSPORT_ERROR, "connect_failed")


async def broken(place: str, context: CallContext) -> str:
    try:
        await context.http.get("http://127.0.0.1:1/")
    except httpx.ConnectError:
        pass
    else:
        return "reached"
    try:
        await context.http.get("ftp://127.0.0.1/")
    except httpx.UnsupportedProtocol:
        return "as with httpx"
    return "wrong"


def test_failures_are_those_of_httpx():
    async def run():
        async with Runtime(Registry(), egress=["127.0.0.1:1"]) as runtime:
            runtime.add(broken)
            return await runtime.call("broken", {"place": ""})

    assert asyncio.run(run()).value == "as with httpx"


async def instead(place: str, context: CallContext) -> str:
    return (await context.http.get("http://api.example.com/x")).text


def test_replaced_origins_apply():
    async def run():
        async with answering() as (place, received):
            origins = {"http://api.example.com": f"http://{place}"}
            async with Runtime(Registry(), egress=[place], origins=origins) as runtime:
                runtime.add(instead)
                return await runtime.call("instead", {"place": place}), received

    result, received = asyncio.run(run())
    assert result.value == "hello"
    assert received[0].startswith(b"GET /x ")


async def charge(how: str, context: CallContext) -> str:
    key = context.secret("SHOP_KEY")
    if how == "raise":
        raise RuntimeError(f"bad key {key}")
    return f"{key} {len(key)}"


def test_a_secret_is_masked_in_results_errors_and_logs(monkeypatch, caplog):
    monkeypatch.setenv("SHOP_KEY", "hunter22hunter22")

    async def run():
        async with Runtime(Registry()) as runtime:
            runtime.add(charge)
            return [await runtime.call("charge", {"how": how}) for how in ("value", "raise")]

    value, error = asyncio.run(run())
    assert value.value == "*** 16"
    assert (error.error.code, error.message) == ("RuntimeError", "bad key ***")
    assert "Traceback" in caplog.text
    assert "hunter22" not in caplog.text


@pytest.mark.parametrize(
    ("name", "outcome", "code"),
    [
        ("NO_SUCH_SHOP_KEY", Outcome.UNAVAILABLE, "missing_secret"),
        ("no key", Outcome.TOOL_ERROR, "ConfigurationError"),
        ("a}b", Outcome.TOOL_ERROR, "ConfigurationError"),
    ],
)
def test_a_secret_that_does_not_exist_is_named(name, outcome, code):
    async def ask(context: CallContext) -> str:
        return context.secret(name)

    async def run():
        async with Runtime(Registry()) as runtime:
            runtime.add(ask)
            return await runtime.call("ask")

    result = asyncio.run(run())
    assert (result.outcome, result.error.code) == (outcome, code)
    assert name in result.message


@toolcrib.tool(worker="inline")
def blocking(context: CallContext) -> str:
    return str(context.http_sync)


def test_a_client_that_would_block_the_event_loop_is_refused():
    async def run():
        async with Runtime(Registry()) as runtime:
            runtime.add(blocking)
            return await runtime.call("blocking")

    assert "`context.http_sync` would block the event loop" in asyncio.run(run()).message


def test_a_context_outside_of_a_python_tool_has_no_services():
    async def run():
        async with Runtime(Registry()) as runtime, runtime.session() as session:
            return CallContext(session)

    context = asyncio.run(run())
    for use in (lambda: context.http, lambda: context.http_sync, lambda: context.secret("A")):
        with pytest.raises(ConfigurationError, match="no network services"):
            use()


def test_a_thread_and_the_event_loop_share_the_services():
    async def run():
        async with answering() as (place, received):
            async with Runtime(Registry(), egress=[place]) as runtime:
                for function in (fetch, fetch_in_thread):
                    runtime.add(function)
                results = await asyncio.gather(
                    *(runtime.call(name, {"place": place}) for name in ("fetch", "fetch_in_thread") * 3)
                )
            return results, received

    results, received = asyncio.run(run())
    assert [each.value for each in results] == ["hellohello"] * 6
    assert len(received) == 12
    assert threading.active_count() < 20
