"""What servers may do on the wire, and what must come of it: nothing is left behind."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from http_exchanges import sending, turn
from http_servers import Handler, Head, answering, answering_raw, raw_answer, serving
from sampling import sample
from toolcrib.http import ExchangeBounds, HTTPError, HTTPFailure

STATUS = b"HTTP/1.1 200 OK\r\n"
CHUNKED = STATUS + b"Transfer-Encoding: chunked\r\n\r\n"
LIMIT = 10_000
TIGHT = ExchangeBounds(connect=5.0, read=5.0, body=LIMIT, headers=2_000)
HASTY = TIGHT._replace(read=0.1)
GOOD = answering(200, (), b"good")


class Case(NamedTuple):
    """A behaviour, and what must come of it.

    Attributes:
        id: What the server does.
        does: How.
        comes: (status, body) of the answer, or how the exchange fails.
        kept: Whether the connection may carry the next exchange.
        bounds: What the exchange may take.
        asked: What is sent.
    """

    id: str
    does: Handler
    comes: tuple[int, bytes] | HTTPFailure
    kept: bool = False
    bounds: ExchangeBounds = TIGHT
    asked: Mapping[str, Any] = MappingProxyType({})


def says(case: str, raw: bytes, comes: Any, *, close: bool = False, **more: Any) -> Case:
    """A server that writes these bytes, and keeps the connection open unless it is to close it."""
    return Case(case, answering_raw(raw, close=close), comes, **more)


def coded(case: str, coding: str, body: bytes, comes: Any, **more: Any) -> Case:
    """A server that answers with a content coding."""
    return says(case, raw_answer(200, {"Content-Encoding": coding}, body), comes, **more)


def repeats(piece: bytes, first: bytes = b"") -> Handler:
    """A server that writes one thing again and again, as long as anybody reads."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _head: Head) -> None:
        writer.write(first)
        while True:
            writer.write(piece * 100)
            await writer.drain()

    return answer


async def resets(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _head: Head) -> None:
    """A server that breaks the connection off while a request is on its way."""
    writer.transport.abort()


def after_reading(raw: bytes, then: Callable[[asyncio.StreamWriter], None]) -> Handler:
    """A server that writes something and then does something to the connection."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _head: Head) -> None:
        writer.write(raw)
        await writer.drain()
        then(writer)

    return answer


BROKEN, BAD, LARGE = HTTPFailure.CONNECTION_BROKEN, HTTPFailure.BAD_RESPONSE, HTTPFailure.RESPONSE_TOO_LARGE
HEADERS, CODING, SILENT = (
    HTTPFailure.HEADERS_TOO_LARGE,
    HTTPFailure.UNSUPPORTED_CODING,
    HTTPFailure.READ_TIMEOUT,
)
OK = (200, b"")

ENDS = [
    says("says-nothing", b"", SILENT, bounds=HASTY),
    says("stops-in-the-head", STATUS + b"Content-Le", SILENT, bounds=HASTY),
    says("stops-in-the-body", STATUS + b"Content-Length: 9\r\n\r\nhalf", SILENT, bounds=HASTY),
    says("stops-between-chunks", CHUNKED + b"4\r\nhalf\r\n", SILENT, bounds=HASTY),
    says("closes-at-once", b"", BROKEN, close=True),
    Case("resets", resets, BROKEN),
    says("closes-in-the-status-line", b"HTTP/1.1 2", BROKEN, close=True),
    says("closes-in-the-head", STATUS + b"Content-Le", BROKEN, close=True),
    says("closes-before-the-body", STATUS + b"Content-Length: 4\r\n\r\n", BROKEN, close=True),
    says("closes-in-the-body", STATUS + b"Content-Length: 9\r\n\r\nhalf", BROKEN, close=True),
    says("closes-in-a-chunk", CHUNKED + b"9\r\nhalf", BROKEN, close=True),
    says("closes-before-the-last-chunk", CHUNKED + b"4\r\nhalf\r\n", BROKEN, close=True),
    says("closes-in-the-trailers", CHUNKED + b"4\r\nhalf\r\n0\r\nX: y\r\n", BROKEN, close=True),
    Case(
        "resets-in-the-body",
        after_reading(STATUS + b"Content-Length: 9\r\n\r\nhalf", lambda writer: writer.transport.abort()),
        BROKEN,
    ),
    says("ends-the-body-by-closing", STATUS + b"\r\nwhole", (200, b"whole"), close=True),
    says("speaks-http-1.0", b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", (200, b"ok")),
    says("closes-as-it-said", raw_answer(200, {"Connection": "close"}, b"ok"), (200, b"ok")),
]

GARBAGE = [
    says("garbage", b"garbage\r\n\r\n", BAD),
    says("garbage-without-a-line", b"\x00\x01\x02", BAD),
    says("a-page-without-a-head", b"<html>hello</html>", BAD),
    says("an-empty-line-first", b"\r\n" + raw_answer(), BAD),
    says("http-2", b"HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", BAD),
    says("http-1.2", b"HTTP/1.2 200 OK\r\nContent-Length: 0\r\n\r\n", BAD),
    says("an-http-2-frame", b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", BAD),
    says("status-099", b"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n", BAD),
    says("status-600", b"HTTP/1.1 600 Odd\r\nContent-Length: 0\r\n\r\n", BAD),
    says("status-1000", b"HTTP/1.1 1000 Odd\r\nContent-Length: 0\r\n\r\n", BAD),
    says("status-in-words", b"HTTP/1.1 two OK\r\nContent-Length: 0\r\n\r\n", BAD),
    says("switches-protocols", b"HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", BAD),
    says("switches-without-a-word", b"HTTP/1.1 101 Go\r\n\r\n", BAD),
    says("a-header-without-colon", STATUS + b"X\r\nContent-Length: 0\r\n\r\n", BAD),
    says("a-header-without-name", STATUS + b": x\r\nContent-Length: 0\r\n\r\n", BAD),
    says("a-space-in-a-name", STATUS + b"X y: z\r\nContent-Length: 0\r\n\r\n", BAD),
    says("a-space-before-the-colon", STATUS + b"X : y\r\nContent-Length: 0\r\n\r\n", BAD),
    says("nul-in-a-value", STATUS + b"X: a\x00b\r\nContent-Length: 0\r\n\r\n", BAD),
    says("escape-in-a-value", STATUS + b"X: a\x1b[2Jb\r\nContent-Length: 0\r\n\r\n", BAD),
    says("cr-in-a-value", STATUS + b"X: a\rY: b\r\nContent-Length: 0\r\n\r\n", BAD),
]

LENGTHS = [
    says("two-lengths", STATUS + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nabc", BAD),
    says("length-and-chunks", STATUS + b"Content-Length: 5\r\n" + CHUNKED[17:] + b"0\r\n\r\n", BAD),
    says("chunks-and-length", CHUNKED[:-2] + b"Content-Length: 5\r\n\r\n0\r\n\r\n", BAD),
    *(
        says(f"length-{length}", STATUS + b"Content-Length: " + length.encode() + b"\r\n\r\nabc", BAD)
        for length in ("-1", "+3", "0x3", "3e0", "3.0", "three", "", "2, 3", "9" * 40)
    ),
    *(
        says(f"transfer-{coding}", STATUS + f"Transfer-Encoding: {coding}\r\n\r\n".encode() + b"0\r\n\r\n", BAD)
        for coding in ("gzip, chunked", "identity", "xchunked", "chunked, chunked", "chunked\r\nTransfer-Encoding: chunked")
    ),
    says("chunk-size-no-number", CHUNKED + b"zz\r\nab\r\n0\r\n\r\n", BAD),
    says("chunk-size-negative", CHUNKED + b"-2\r\nab\r\n0\r\n\r\n", BAD),
    says("chunk-size-huge", CHUNKED + b"f" * 40 + b"\r\nab\r\n0\r\n\r\n", BAD),
    says("chunk-longer-than-its-size", CHUNKED + b"2\r\nabc\r\n0\r\n\r\n", BAD),
    says("chunks", CHUNKED + b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n", (200, b"abc"), kept=True),
    says("trailers", CHUNKED + b"2\r\nab\r\n0\r\nX: y\r\nSet-Cookie: a=b\r\n\r\n", (200, b"ab"), kept=True),
    says("interim-answers", b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n" * 5 + raw_answer(), OK, kept=True),
]  # fmt: skip

FLOODS = [
    Case("headers-without-end", repeats(b"X: y\r\n", STATUS), HEADERS),
    Case("one-header-without-end", repeats(b"yyyyyyyy", STATUS + b"X: "), HEADERS),
    Case("a-reason-without-end", repeats(b"y", b"HTTP/1.1 200 "), HEADERS),
    Case("interim-answers-without-end", repeats(b"HTTP/1.1 100 Continue\r\n\r\n"), HEADERS),
    says("headers-one-byte-too-long", STATUS + b"X: " + b"y" * (2_000 - 17 - 7 + 1) + b"\r\n\r\n", HEADERS),
    Case("a-body-without-end", repeats(b"yyyyyyyy", STATUS + b"\r\n"), LARGE),
    Case("chunks-without-end", repeats(b"2\r\nab\r\n", CHUNKED), LARGE),
    Case("trailers-without-end", repeats(b"X: y\r\n", CHUNKED + b"2\r\nab\r\n0\r\n"), BAD),
    Case("an-extension-without-end", repeats(b"yyyyyyyy", CHUNKED + b"2;x="), BAD),
    says("a-length-beyond-the-bound", STATUS + b"Content-Length: 10001\r\n\r\n", LARGE),
    says("a-length-at-the-bound", raw_answer(200, (), b"y" * LIMIT), (200, b"y" * LIMIT), kept=True),
    says(
        "headers-at-the-bound",
        STATUS + b"X: " + b"y" * (2_000 - 17 - 7 - 19) + b"\r\nContent-Length: 0\r\n\r\n",
        OK,
        kept=True,
    ),
]

PLAIN = b"plain text"
ZIPPED = gzip.compress(PLAIN)

CODINGS = [
    coded("gzip", "gzip", ZIPPED, (200, PLAIN), kept=True),
    coded("x-gzip", "x-gzip", ZIPPED, (200, PLAIN), kept=True),
    coded("gzip-in-capitals", "GZip", ZIPPED, (200, PLAIN), kept=True),
    coded("identity", "identity", PLAIN, (200, PLAIN), kept=True),
    coded("gzip-of-nothing", "gzip", gzip.compress(b""), OK, kept=True),
    coded("gzip-and-no-body", "gzip", b"", OK, kept=True),
    coded("gzip-at-the-bound", "gzip", gzip.compress(bytes(LIMIT)), (200, bytes(LIMIT)), kept=True),
    coded("gzip-beyond-the-bound", "gzip", gzip.compress(bytes(LIMIT + 1)), LARGE),
    coded("gzip-bomb", "gzip", gzip.compress(bytes(9_000_000)), LARGE),
    coded("gzip-cut-off", "gzip", ZIPPED[:-1], BAD),
    coded("gzip-with-a-wrong-sum", "gzip", ZIPPED[:-8] + bytes(4) + ZIPPED[-4:], BAD),
    coded("no-gzip-at-all", "gzip", PLAIN, BAD),
    coded("zlib-for-gzip", "gzip", zlib.compress(PLAIN), BAD),
    coded("garbage-behind-gzip", "gzip", ZIPPED + b"garbage", BAD),
    coded("two-gzip-members", "gzip", ZIPPED + ZIPPED, CODING),
    coded("gzip-twice", "gzip, gzip", gzip.compress(ZIPPED), CODING),
    coded("gzip-in-two-headers", "gzip\r\nContent-Encoding: gzip", gzip.compress(ZIPPED), CODING),
    coded("deflate", "deflate", zlib.compress(PLAIN), CODING),
    coded("brotli", "br", b"\x0b\x02\x80hello\x03", CODING),
    coded("zstd", "zstd", b"(\xb5/\xfd", CODING),
    coded("a-coding-with-a-parameter", "gzip;q=1", ZIPPED, CODING),
    says(
        "gzip-in-chunks",
        STATUS + b"Content-Encoding: gzip\r\n" + CHUNKED[17:]
        + b"".join(b"1\r\n%c\r\n" % byte for byte in ZIPPED) + b"0\r\n\r\n",
        (200, PLAIN),
        kept=True,
    ),
]  # fmt: skip

SURPLUS = [
    says("more-than-its-length", raw_answer(200, (), b"ok") + b"more", (200, b"ok")),
    says("a-second-answer", raw_answer(200, (), b"ok") + raw_answer(200, (), b"evil"), (200, b"ok")),
    says("half-a-second-answer", raw_answer(200, (), b"ok") + b"HTTP/1.1 200 OK\r\n", (200, b"ok")),
    says("a-second-answer-behind-chunks", CHUNKED + b"0\r\n\r\n" + raw_answer(200, (), b"evil"), OK),
    says("half-an-answer-behind-chunks", CHUNKED + b"0\r\n\r\nHTTP/1.1 200 OK\r\n", OK),
    says("a-body-behind-204", b"HTTP/1.1 204 No\r\n\r\nbody", (204, b"")),
    says("a-length-and-body-behind-204", b"HTTP/1.1 204 No\r\nContent-Length: 4\r\n\r\nbody", (204, b"")),
    says("a-length-behind-304", b"HTTP/1.1 304 No\r\nContent-Length: 9\r\n\r\n", (304, b""), kept=True),
    says("chunks-behind-304", b"HTTP/1.1 304 No\r\nTransfer-Encoding: chunked\r\n\r\n", (304, b""), kept=True),
    says("no-body-for-head", STATUS + b"Content-Length: 9\r\n\r\n", OK, kept=True, asked={"method": "HEAD"}),
    says("a-body-for-head", raw_answer(200, (), b"body"), OK, asked={"method": "HEAD"}),
    says("a-huge-length-for-head", STATUS + b"Content-Length: 999999\r\n\r\n", OK, kept=True, asked={"method": "HEAD"}),
    says("a-strange-coding-for-head", STATUS + b"Content-Encoding: br\r\nContent-Length: 9\r\n\r\n", OK, kept=True, asked={"method": "HEAD"}),
]  # fmt: skip

CASES = [*ENDS, *GARBAGE, *LENGTHS, *FLOODS, *CODINGS, *SURPLUS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_a_server_may_do(case):
    turns = iter([case.does])

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: Head) -> None:
        await next(turns, GOOD)(reader, writer, head)

    async with serving(handler) as server, sending(server) as send:
        if isinstance(case.comes, HTTPFailure):
            with pytest.raises(HTTPError) as caught:
                await send(bounds=case.bounds, **case.asked)
            assert (caught.value.fault, caught.value.sent) == (case.comes, True)
        else:
            answer = await send(bounds=case.bounds, **case.asked)
            assert (answer.status, answer.body) == case.comes
        assert len(server.requests) == 1
        # Whatever happened, the next answer is its own.
        assert (await send(bounds=TIGHT)).body == b"good"
        assert server.accepted == (1 if case.kept else 2)


async def drips(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _head: Head) -> None:
    """A server that is never silent and never done."""
    writer.write(STATUS + b"\r\n")
    while not writer.is_closing():
        writer.write(b"y")
        await writer.drain()
        await turn()


async def test_a_server_that_drips_is_stopped_by_the_callers_deadline():
    async with serving(drips) as server, sending(server) as send:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await send(bounds=ExchangeBounds(read=0.05))
        await server.all_closed()


FAULTY = [case for case in CASES if isinstance(case.comes, HTTPFailure)]


@pytest.mark.parametrize("case", sample(FAULTY, one_in=4), ids=lambda case: case.id)
async def test_no_fault_shows_what_was_sent_or_answered(case):
    async with serving(case.does) as server, sending(server) as send:
        with pytest.raises(HTTPError) as caught:
            await send(
                bounds=case.bounds,
                target="/path?key=canary-query",
                headers=(("Authorization", "Bearer canary-header"),),
                **case.asked,
            )
        error = caught.value
        shown = f"{error!s} {error!r} {error.message} {error.__cause__!r}"
        assert not [word for word in ("canary", "garbage", "half") if word in shown]
        assert error.__suppress_context__ or error.__context__ is None
