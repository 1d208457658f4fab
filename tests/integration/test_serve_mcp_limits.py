"""What clients over HTTP may take: time for a request, connections and sessions."""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
import trustme

from sampling import sample
from serving_mcp import (
    BASICS,
    PATIENCE,
    as_http,
    client,
    headers_of,
    in_chunks,
    quiet_sdk,
    request,
    said_raw,
    status_of,
    texts,
    write,
)
from toolcrib import Runtime
from toolcrib.serve.http_common.listen_address import CertificateFiles, ClientLimits, ListenAddress
from toolcrib.serve.mcp import Options, serve_http

pytestmark = [quiet_sdk]

ALIVE = as_http("GET", "/healthz", {"host": "localhost"})
HALF_A_HEAD = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n"
HALF_A_BODY = as_http("POST", "/mcp", headers_of(request("tools/list")) | {"host": "localhost"}, b"{" * 9)[
    :-5
]


@asynccontextmanager
async def served_within(folder, said=None, tls=None, **limits) -> AsyncIterator[tuple[str, int]]:
    """URL and port of the tools of a folder, served with limits of their own; `said` gets what people are told."""
    said = asyncio.Queue() if said is None else said
    address = ListenAddress(port=0, limits=ClientLimits(**limits), tls=tls)
    runtime = Runtime.open(folder)
    serving = asyncio.create_task(serve_http(runtime, Options(watch=False), address, said.put_nowait))
    try:
        async with asyncio.timeout(PATIENCE):
            url = (await said.get()).partition(" at ")[2].partition(";")[0]
        yield url, urlsplit(url).port or 0
    finally:
        serving.cancel()
        await asyncio.wait([serving])


async def until_over(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(PATIENCE):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""


@pytest.mark.parametrize(
    "half",
    sample([b"", HALF_A_HEAD, HALF_A_BODY], one_in=3),
    ids=sample(["nothing", "head", "body"], one_in=3),
)
async def test_who_does_not_say_what_it_wants_is_cut_off(half, tmp_path):
    async with served_within(write(tmp_path, BASICS), head=0.2, body=0.2) as (_url, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(half)
        await until_over(reader)
        writer.close()
        assert status_of(await said_raw(port, ALIVE)) == 200


@pytest.mark.parametrize("half", [HALF_A_HEAD, HALF_A_BODY + b"x"], ids=["head", "body"])
async def test_a_byte_now_and_then_earns_no_time(half, tmp_path):
    async with served_within(write(tmp_path, BASICS), head=0.3, body=0.3) as (_url, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def drip() -> None:
            for byte in half:
                writer.write(bytes([byte]))
                await asyncio.wait([over], timeout=0.1)
                if over.done():
                    return
            raise AssertionError("all of it was taken")

        over = asyncio.create_task(until_over(reader))
        await drip() if half is HALF_A_HEAD else writer.write(half)
        await over
        writer.close()


async def test_answers_that_take_longer_and_connections_that_are_kept_are_not_cut_off(tmp_path):
    tools = write(
        tmp_path, "name: later\ndescription: Answers later.\nmock: {result: done, latency: 700ms}\n"
    )
    call = request("tools/call", {"name": "later", "arguments": {}})
    told = headers_of(call) | {"host": "localhost", "connection": "keep-alive"}
    async with served_within(tools, head=0.2, body=0.2) as (_url, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(as_http("POST", "/mcp", told, json.dumps(call).encode()))
            async with asyncio.timeout(PATIENCE):
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                length = int(head.partition("content-length: ")[2].split()[0])
                assert b"done" in await reader.readexactly(length)
            ending = asyncio.create_task(reader.read(1))
            ended, _waits = await asyncio.wait([ending], timeout=0.5)
            assert not ended
            ending.cancel()
            await asyncio.wait([ending])
        writer.close()


KEPT = as_http("GET", "/healthz", {"host": "localhost", "connection": "keep-alive"})
SLOW = request("tools/call", {"name": "slow", "arguments": {}})
IN_WORK = as_http("POST", "/mcp", headers_of(SLOW) | {"host": "localhost"}, json.dumps(SLOW).encode())

other_addresses = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8 for loopback"
)


class Held(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def is_open(self) -> bool:
        """Whether the server still answers here."""
        self.writer.write(KEPT)
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionResetError):
                return (await self.reader.readline()).startswith(b"HTTP/1.1 200")
        return False


@asynccontextmanager
async def holding(port: int) -> AsyncIterator[Callable[..., Awaitable[Held]]]:
    """Opens connections: `await hold(raw, peer, until)`. Each has said `raw`, and has read `until`, if it is given."""
    writers: list[asyncio.StreamWriter] = []

    async def hold(raw: bytes = b"", peer: str = "127.0.0.1", until: bytes = b"") -> Held:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(peer, 0))
        writers.append(writer)
        writer.write(raw)
        async with asyncio.timeout(PATIENCE):
            await (reader.readuntil(until) if until else writer.drain())
        return Held(reader, writer)

    try:
        yield hold
    finally:
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


@other_addresses
async def test_a_new_connection_takes_the_place_of_the_longest_idle_one_of_who_holds_most(tmp_path):
    tools = write(tmp_path, BASICS)
    async with served_within(tools, connections=4) as (_url, port), holding(port) as hold:
        kept = await hold(KEPT, until=b"}")
        greedy = [await hold(KEPT, "127.0.0.2", until=b"}") for _ in range(3)]
        assert await (await hold(peer="127.0.0.3")).is_open()
        await until_over(greedy[0].reader)
        for each in (kept, *greedy[1:]):
            assert await each.is_open()


@other_addresses
async def test_who_says_half_of_a_request_holds_no_place(tmp_path):
    tools = write(tmp_path, BASICS)
    limits = {"connections": 3, "head": 2 * PATIENCE, "body": 2 * PATIENCE}
    async with served_within(tools, **limits) as (_url, port), holding(port) as hold:
        halves = [await hold(half, "127.0.0.2") for half in (b"", HALF_A_HEAD, HALF_A_BODY)]
        for number, each in enumerate(halves):
            assert await (await hold(peer=f"127.0.0.{10 + number}")).is_open()
            await until_over(each.reader)


async def test_who_does_not_agree_on_tls_holds_no_place_and_is_cut_off(tmp_path):
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    files = CertificateFiles(tmp_path / "cert.pem", tmp_path / "key.pem")
    issued.private_key_and_cert_chain_pem.write_to_path(str(files.certificate))
    issued.private_key_pem.write_to_path(str(files.key))
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    tools = write(tmp_path / "tools", BASICS)
    limits = {"connections": 2, "head": 2 * PATIENCE}
    async with served_within(tools, tls=files, **limits) as (_url, port), holding(port) as hold:
        silent = [await hold() for _ in range(2)]
        raw = await said_raw(port, ALIVE, ssl=trusting, server_hostname="localhost")
        assert status_of(raw) == 200
        await until_over(silent[0].reader)
    async with served_within(tools, tls=files, head=0.2) as (_url, port), holding(port) as hold:
        await until_over((await hold()).reader)


async def test_where_all_connections_are_in_work_one_more_is_refused_and_room_is_found_again(tmp_path):
    said = asyncio.Queue()
    tools = write(tmp_path, BASICS)
    async with served_within(tools, said, connections=2) as (_url, port), holding(port) as hold:
        working = []
        for _ in range(2):
            working.append(await hold(KEPT, until=b"}"))
            working[-1].writer.write(IN_WORK)
        for _ in range(3):
            assert status_of(await said_raw(port, b"")) == 503
        assert [said.get_nowait() for _ in range(said.qsize())] == [
            "all 2 connections are in use; 127.0.0.1 was refused"
        ]
        working[0].writer.close()
        async with asyncio.timeout(PATIENCE):
            while status_of(await said_raw(port, ALIVE)) == 503:
                pass


async def test_a_session_too_many_ends_the_longest_idle_one(tmp_path):
    def opening(*, session: str = "", method: str = "initialize") -> bytes:
        params = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "r", "version": "1"},
        }
        message = request(method, params if method == "initialize" else {}, modern=False)
        headers = headers_of(message) | {"host": "localhost", "mcp-protocol-version": "2025-11-25"}
        headers |= {"mcp-session-id": session} if session else {}
        return as_http("POST", "/mcp", headers, json.dumps(message).encode())

    async def opened() -> str:
        raw = await said_raw(port, opening())
        assert status_of(raw) == 200
        return raw.partition(b"mcp-session-id: ")[2].split()[0].decode()

    async def pinged(session: str) -> int:
        return status_of(await said_raw(port, opening(session=session, method="ping")))

    async with (
        served_within(write(tmp_path, BASICS), sessions=3) as (url, port),
        client(url, "legacy") as streaming,  # holds a stream open, so it is never idle
    ):
        first, second = await opened(), await opened()
        assert await pinged(first) == 200
        third = await opened()
        assert [await pinged(each) for each in (first, second, third)] == [200, 404, 200]
        for _ in range(5):
            await opened()
        assert await pinged(first) == 404
        assert texts(await streaming.call_tool("echo", {"text": "still here"})) == ["still here"]


LISTS = """
    name: total
    description: The sum of numbers.
    input_schema: {type: object, properties: {items: {type: array, items: {type: integer}}}}
    mock: {result: 1}
"""


@pytest.mark.parametrize("era", sample(["legacy", "2026-07-28"], one_in=2))
async def test_a_call_with_many_invalid_items_is_answered_and_holds_nobody_up(era, tmp_path):
    async with served_within(write(tmp_path, LISTS)) as (url, port), client(url, era) as one:
        call = asyncio.ensure_future(one.call_tool("total", {"items": ["x" * 16] * 180_000}))
        while not call.done():
            assert status_of(await said_raw(port, ALIVE)) == 200
        result = call.result()
    (text,) = texts(result)
    assert result.is_error
    assert text.endswith("... and at least 30 more")
    assert text.count("expected an integer") == 20


# Requests that clients spell as no library does.


async def answer_of(reader: asyncio.StreamReader) -> str:
    """The body of the next answer."""
    async with asyncio.timeout(PATIENCE):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert head.startswith("http/1.1 200 "), head
        return (await reader.readexactly(int(head.partition("content-length: ")[2].split()[0]))).decode()


def spoken(text: str, number: int = 1, **more: str) -> bytes:
    """A call of `echo`, after which the connection stays open."""
    call = request("tools/call", {"name": "echo", "arguments": {"text": text}}, number)
    told = headers_of(call) | {"host": "localhost", "connection": "keep-alive", **more}
    return as_http("POST", "/mcp", told, json.dumps(call).encode())


@pytest.mark.parametrize("start", sample(["head", "trailer"], one_in=2))
async def test_headers_and_trailers_without_end_are_refused_before_they_fill_the_memory(start, tmp_path):
    begun = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: "
    if start == "trailer":
        begun = in_chunks(request("tools/list"), b"")[:-2] + b"x: "
    async with served_within(write(tmp_path, BASICS)) as (_url, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begun)
        sent = 0
        # `drain` raises, or the answer arrives, as soon as the server has closed the connection.
        with suppress(ConnectionError):
            while not reader.at_eof() and not writer.is_closing():
                writer.write(b"x" * 65_536)
                sent += 65_536
                await writer.drain()
        writer.close()
        assert sent < (2**23 if start == "head" else 2**26)
        assert status_of(await said_raw(port, ALIVE)) == 200


async def test_a_head_that_is_too_large_is_answered(tmp_path):
    async with served_within(write(tmp_path, BASICS)) as (_url, port):
        raw = await said_raw(port, b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * 70_000)
    assert status_of(raw) == 400
    assert raw.endswith(b"The request is too large.")


async def test_a_client_that_offers_http_2_on_every_request_is_answered(tmp_path):
    # Java's HttpClient does, also for requests with a body.
    offer = {
        "connection": "Upgrade, HTTP2-Settings",
        "upgrade": "h2c",
        "http2-settings": "AAEAAEAAAAIAAAABAAMAAABk",
    }
    async with served_within(write(tmp_path, BASICS)) as (_url, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for text in ("first", "second"):
            writer.write(spoken(text, **offer))
            assert text in await answer_of(reader)
        writer.close()


async def test_blanks_around_a_header_are_not_part_of_it(tmp_path):
    async with served_within(write(tmp_path, BASICS)) as (_url, port):
        raw = await said_raw(
            port, b"GET /healthz HTTP/1.1\r\nhost:\t localhost \t\r\nconnection:close \r\n\r\n"
        )
    assert status_of(raw) == 200


async def test_a_tunnel_is_refused(tmp_path):
    async with served_within(write(tmp_path, BASICS)) as (_url, port):
        assert (
            status_of(await said_raw(port, b"CONNECT localhost:1 HTTP/1.1\r\nhost: localhost\r\n\r\n")) == 400
        )


async def test_requests_that_are_sent_before_the_answers_are_answered_in_order(tmp_path):
    async with served_within(write(tmp_path, BASICS), body=0.5) as (_url, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        three = b"".join(spoken(text, number) for number, text in enumerate(("one", "two", "three"), 1))
        writer.write(three[:-5])
        assert "one" in await answer_of(reader)
        writer.write(three[-5:])
        assert "two" in await answer_of(reader)
        assert "three" in await answer_of(reader)
        writer.close()
