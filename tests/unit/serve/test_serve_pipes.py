"""Lines of a pipe, whole whatever pieces they come in, and bounded; and a server over them."""

from __future__ import annotations

import asyncio
import json
import os
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from holding import opened
from toolcrib.serve.http_common.lifecycle import Shutdown
from toolcrib.serve.http_common.stdio_pipes import OversizedLine, StdioPipes
from toolcrib.serve.mcp import Options
from toolcrib.serve.mcp.stdio import serve_stdio

LINES = st.lists(st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b"")), max_size=12)


async def read(data: bytes, cuts: list[int], limit: int) -> list[bytes | OversizedLine]:
    source, feed = os.pipe()
    unread, target = os.pipe()
    try:
        pipes = StdioPipes(source, target, limit=limit)
        places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
        for begin, end in pairwise(places):
            os.write(feed, data[begin:end])
        os.close(feed)
        async with asyncio.timeout(60):
            return [line async for line in pipes.lines()]
    finally:
        for each in (source, unread, target):
            os.close(each)


@given(LINES, st.lists(st.integers(0, 500), max_size=5), st.integers(1, 60))
def test_lines_are_whole_and_bounded(lines, cuts, limit):
    found = asyncio.run(read(b"\n".join(lines), cuts, limit))
    kept = [
        OversizedLine(limit) if len(line) > limit else line
        for line in lines
        if line.strip() or len(line) > limit
    ]
    assert found == kept


async def test_lines_keep_their_order_and_a_full_pipe_does_not_hold_up_the_loop():
    source, feed = os.pipe()
    unread, target = os.pipe()
    pipes = StdioPipes(source, target)
    lines = [bytes([65 + number % 26]) * (100_000 if number % 5 == 0 else 50) + b"\n" for number in range(60)]
    # Short lines are written at once, but not before a long one that waits for room, nor after one that nobody waits for.
    writing = [asyncio.create_task(pipes.write(line)) for line in lines]
    await asyncio.to_thread(bool)  # the pipe is full by now, and the loop still runs
    writing[5].cancel()
    read, wanted = b"", b"".join(lines)
    async with asyncio.timeout(60):
        while len(read) < len(wanted):
            read += await asyncio.to_thread(os.read, unread, 1 << 16)
        await asyncio.wait(writing)
    assert read == wanted
    for each in (source, feed, unread, target):
        os.close(each)


async def test_what_nobody_reads_is_told():
    source, feed = os.pipe()
    unread, target = os.pipe()
    pipes = StdioPipes(source, target)
    await pipes.write(b"heard\n")
    assert os.read(unread, 10) == b"heard\n"
    os.close(unread)
    async with asyncio.timeout(60):
        await pipes.write(b"lost\n")
        await pipes.broken.wait()
        await pipes.write(b"lost too\n")
    for each in (source, feed, target):
        os.close(each)


class EarlyResponse(StdioPipes):
    """A client whose response is read before the write of its request has returned."""

    def __init__(self, source, target):
        super().__init__(source, target)
        self._read = asyncio.Event()

    async def lines(self):
        async for line in super().lines():
            yield line
            if b'"action"' in line:
                self._read.set()

    async def write(self, data):
        await super().write(data)
        if b"elicitation/create" in data:
            await self._read.wait()


async def test_a_response_may_arrive_before_its_request_counts_as_written(tmp_path):
    source, feed = os.pipe()
    unread, target = os.pipe()
    told = asyncio.StreamReader()

    def send(**message):
        os.write(feed, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    with os.fdopen(unread, "rb") as pipe:
        protocol = asyncio.StreamReaderProtocol(told)
        transport, _protocol = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
        async with asyncio.timeout(60), opened(tmp_path) as runtime:
            pipes = EarlyResponse(source, target)
            serving = asyncio.create_task(
                serve_stdio(runtime, Options(watch=False), lambda _line: None, pipes, Shutdown())
            )
            client = {"protocolVersion": "2025-11-25", "clientInfo": {"name": "client", "version": "1"}}
            send(id=1, method="initialize", params={**client, "capabilities": {"elicitation": {}}})
            assert json.loads(await told.readline())["id"] == 1
            send(method="notifications/initialized")
            send(id=2, method="tools/call", params={"name": "pay", "arguments": {"amount": 5}})
            asked = json.loads(await told.readline())
            assert asked["method"] == "elicitation/create"
            send(id=asked["id"], result={"action": "accept", "content": {"decision": "approve"}})
            assert json.loads(await told.readline())["result"]["structuredContent"]["paid"] == 5
            os.close(feed)
            await serving
        transport.close()
    for each in (source, target):
        os.close(each)
