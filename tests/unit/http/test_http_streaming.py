"""Answers that are read as they come: bounds, breaks, and which connections are kept."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from http_servers import Server, answering, answering_each, answering_raw, serving
from served_models import resetting
from toolcrib.core.clock import RealClock
from toolcrib.http import ExchangeBounds, HTTPError, HTTPFailure, HTTPRequest
from toolcrib.http.client import StreamedResponse, StreamingClient
from toolcrib.security.egress import EgressGuard, EgressRefused

HOST = "127.0.0.1"


def request(server: Server, method: str = "GET", **fields: Any) -> HTTPRequest:
    return HTTPRequest(method, "http", HOST, server.port, "/", **fields)


@asynccontextmanager
async def streaming(server: Server, idle: float = 30.0) -> AsyncIterator[StreamingClient]:
    streamer = StreamingClient(EgressGuard([f"{HOST}:{server.port}"]), idle)
    try:
        yield streamer
    finally:
        await streamer.aclose()


async def answer(streamer: StreamingClient, server: Server, **bounds: Any) -> StreamedResponse:
    return await streamer.send(request(server), ExchangeBounds(**bounds), hosts=[HOST], silence=5)


async def failure(server: Server, *, whole: bool = True, **bounds: Any) -> HTTPError:
    with pytest.raises(HTTPError) as caught:
        await exhausted(server, whole=whole, **bounds)
    return caught.value


async def exhausted(server: Server, *, whole: bool, **bounds: Any) -> None:
    async with streaming(server) as streamer:
        incoming = await answer(streamer, server, **bounds)
        try:
            if whole:
                await incoming.whole()
            while await incoming.chunk():
                pass
        finally:
            await incoming.aclose()


async def test_a_stream_is_read_as_it_comes():
    go_on = asyncio.Event()

    async def drip(_reader, writer, _head):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await go_on.wait()
        writer.write(b"1\r\nb\r\n0\r\n\r\n")

    async with serving(drip) as server, streaming(server) as streamer:
        incoming = await answer(streamer, server)
        incoming.check_stream()
        assert await incoming.chunk() == b"a"
        go_on.set()
        assert await incoming.chunk() == b"b"
        assert await incoming.chunk() == b""
        await incoming.aclose()


async def test_a_connection_is_kept_once_its_answer_was_read():
    async with serving(answering(body=b"x")) as server, streaming(server) as streamer:
        for _ in range(3):
            incoming = await answer(streamer, server)
            assert (incoming.status, await incoming.whole()) == (200, b"x")
            await incoming.aclose()
        assert server.accepted == 1


async def test_a_connection_is_not_kept_if_the_answer_was_not_read_or_is_too_old():
    async with serving(answering(body=b"x" * 100_000)) as server, streaming(server) as streamer:
        await (await answer(streamer, server)).aclose()
        await (await answer(streamer, server)).aclose()
        assert server.accepted == 2
    async with serving(answering(body=b"x")) as server, streaming(server, idle=0) as streamer:
        for _ in range(2):
            incoming = await answer(streamer, server)
            await incoming.whole()
            await incoming.aclose()
        assert server.accepted == 2


async def test_a_connection_that_the_server_closed_is_not_used_again():
    closing = answering_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx")
    async with serving(closing) as server, streaming(server) as streamer:
        for _ in range(2):
            incoming = await answer(streamer, server)
            assert await incoming.whole() == b"x"
            await incoming.aclose()
            await server.all_closed()
        assert server.accepted == 2


async def test_what_stands_behind_an_answer_ends_its_connection():
    surplus = answering_raw(
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n\r\n", close=False
    )
    async with (
        serving(answering_each(surplus, answering(body=b"y"))) as server,
        streaming(server) as streamer,
    ):
        for expected in (b"x", b"y"):
            incoming = await answer(streamer, server)
            assert await incoming.whole() == expected
            await incoming.aclose()
        assert server.accepted == 2


async def test_a_whole_body_is_bounded_and_unzipped():
    body = gzip.compress(b"x" * 10_000)
    async with serving(answering(headers={"Content-Encoding": "gzip"}, body=body)) as server:
        async with streaming(server) as streamer:
            incoming = await answer(streamer, server)
            assert await incoming.whole() == b"x" * 10_000
            await incoming.aclose()
        assert (await failure(server, body=9_999)).fault is HTTPFailure.RESPONSE_TOO_LARGE


async def test_a_stream_with_a_coding_is_refused():
    coded = answering(headers={"Content-Encoding": "gzip"}, body=b"x")
    async with serving(coded) as server, streaming(server) as streamer:
        incoming = await answer(streamer, server)
        with pytest.raises(HTTPError) as caught:
            incoming.check_stream()
        assert caught.value.fault is HTTPFailure.UNSUPPORTED_CODING
        await incoming.aclose()


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b"", HTTPFailure.CONNECTION_BROKEN),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx", HTTPFailure.CONNECTION_BROKEN),
        (b"SSH-2.0-OpenSSH\r\n", HTTPFailure.BAD_RESPONSE),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000 + b"\r\n\r\n", HTTPFailure.HEADERS_TOO_LARGE),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nxxxx", HTTPFailure.BAD_RESPONSE),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", HTTPFailure.BAD_RESPONSE),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
async def test_what_is_no_answer(raw, fault, whole):
    async with serving(answering_raw(raw)) as server:
        error = await failure(server, whole=whole)
        assert (error.fault, error.sent) == (fault, True)


async def test_silence_is_bounded_where_it_is_asked_for():
    async def silent(reader, _writer, _head):
        await reader.read()

    async with serving(silent) as server, streaming(server) as streamer:
        with pytest.raises(HTTPError) as caught:
            await streamer.send(request(server), ExchangeBounds(), hosts=[HOST], silence=0.05)
        assert caught.value.fault is HTTPFailure.READ_TIMEOUT


async def test_hanging_up_ends_a_read_under_way():
    async def begin(reader, writer, _head):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        await reader.read()

    async with serving(begin) as server, streaming(server) as streamer:
        incoming = await answer(streamer, server)
        assert await incoming.chunk() == b"a"
        reading = asyncio.ensure_future(incoming.chunk())
        incoming.hang_up(HTTPError(HTTPFailure.CONNECTION_BROKEN, "given up", sent=True))
        with pytest.raises(HTTPError, match="given up"):
            await reading
        await incoming.aclose()
        await server.all_closed()


async def test_a_request_that_is_cancelled_leaves_no_connection():
    async def silent(reader, _writer, _head):
        await reader.read()

    async with serving(silent) as server, streaming(server) as streamer:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await answer(streamer, server)
        await server.all_closed()


async def test_a_release_that_is_cancelled_leaves_no_connection():
    async with serving(answering(body=b"x")) as server, streaming(server) as streamer:
        incoming = await answer(streamer, server)
        assert await incoming.whole() == b"x"
        releasing = asyncio.create_task(incoming.aclose())
        await RealClock().sleep(0)  # it waits for httpcore
        releasing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await releasing
        await server.all_closed()


async def test_nothing_is_sent_where_nothing_may_be():
    async with serving(answering()) as server:
        streamer = StreamingClient(EgressGuard())
        with pytest.raises(EgressRefused):
            await answer(streamer, server)
        await streamer.aclose()
        with pytest.raises(HTTPError) as caught:
            await answer(streamer, server)
        assert (caught.value.fault, caught.value.sent) == (HTTPFailure.CONNECT_FAILED, False)
        assert server.accepted == 0


async def test_a_reset_is_not_the_end_of_a_body():
    head = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf"

    async with serving(resetting(head)) as server:
        fault = await failure(server)
    assert fault.fault is HTTPFailure.CONNECTION_BROKEN
    async with serving(answering_raw(head)) as server, streaming(server) as streamer:
        incoming = await answer(streamer, server)
        assert await incoming.whole() == b"half"
        await incoming.aclose()


async def test_the_start_of_a_body_can_be_looked_at():
    async with serving(answering(200, {}, b"abc")) as server, streaming(server) as streamer:
        for enough, start in ((1, b"abc"), (9, b"abc")):
            incoming = await answer(streamer, server)
            assert await incoming.peek(lambda seen, enough=enough: len(seen) >= enough) == start
            assert await incoming.whole() == b"abc"
            await incoming.aclose()
        assert server.accepted == 1


async def test_a_close_that_is_cancelled_in_the_middle_of_a_write():
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: reported.append(context))
    writing = asyncio.Event()

    async def deaf(reader, _writer, _head):
        await reader.read(1)
        writing.set()
        await asyncio.Event().wait()

    async with serving(deaf, reads=False) as server:
        streamer = StreamingClient(EgressGuard([f"{HOST}:{server.port}"]))
        large = request(server, "POST", body=b"x" * 50_000_000)
        sending = asyncio.create_task(streamer.send(large, ExchangeBounds(), hosts=[HOST]))
        await writing.wait()
        closing = asyncio.create_task(streamer.aclose())
        await RealClock().sleep(0)  # the transport is aborted, and tells so in the next turn of the loop
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        with pytest.raises(HTTPError):
            await sending
        await streamer.aclose()
    assert reported == []
