"""Lines of a pipe, whole whatever pieces they come in, and bounded."""

from __future__ import annotations

import asyncio
import os
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.serve.mcp.stdio import OversizedLine, StdioPipes

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
        async with asyncio.timeout(10):
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


async def test_what_nobody_reads_is_told():
    source, feed = os.pipe()
    unread, target = os.pipe()
    pipes = StdioPipes(source, target)
    await pipes.write(b"heard\n")
    assert os.read(unread, 10) == b"heard\n"
    os.close(unread)
    async with asyncio.timeout(10):
        await pipes.write(b"lost\n")
        await pipes.broken.wait()
        await pipes.write(b"lost too\n")
    for each in (source, feed, target):
        os.close(each)
