"""What keeps short calls fast: responses in one piece, and garbage collections without the tools."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from toolcrib.serve.mcp.http_server import JoinedWrites
from toolcrib.serve.mcp.lifecycle import YOUNG, frozen_heap

HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class Recorded(asyncio.Transport):
    """A transport that records."""

    def __init__(self):
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.pieces = []

    def write(self, data):
        self.pieces.append(bytes(data))

    def close(self):
        self.pieces.append("closed")


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ([HEAD, b"{}", b""], [HEAD + b"{}", b""]),
        ([HEAD, b"{}", b"", HEAD, b"[]"], [HEAD + b"{}", b"", HEAD + b"[]"]),
        ([STREAM, b"5\r\n: hi\r\n\r\n"], [STREAM, b"5\r\n: hi\r\n\r\n"]),
        ([HEAD, b""], [HEAD]),
    ],
)
def test_a_head_that_announces_a_length_is_sent_with_its_body(written, sent):
    transport = Recorded()
    joined = JoinedWrites(transport)
    for data in written:
        joined.write(data)
    assert transport.pieces == sent
    assert joined.get_extra_info("peername") == ("127.0.0.1", 1)


def test_a_head_without_its_body_is_sent_before_the_transport_closes():
    transport = Recorded()
    joined = JoinedWrites(transport)
    joined.write(HEAD)
    joined.close()
    assert transport.pieces == [HEAD, "closed"]


class Tool:
    pass


def forgotten_tool():
    tool = Tool()
    tool.itself = tool
    return tool, weakref.ref(tool)


@pytest.fixture
def thawed():
    """No object is frozen: a plugin of the test run may have frozen some."""
    gc.unfreeze()


@pytest.mark.usefixtures("thawed")
def test_collections_leave_out_the_tools_until_they_are_replaced():
    before = gc.get_threshold()
    tool, seen = forgotten_tool()
    with frozen_heap() as renew:
        assert gc.get_freeze_count() > 1000
        assert gc.get_threshold() == (max(YOUNG, before[0]), *before[1:])
        del tool
        gc.collect()
        assert seen() is not None
        renew()
        assert seen() is None
        assert gc.get_freeze_count() > 1000
    assert gc.get_freeze_count() == 0
    assert gc.get_threshold() == before


def test_a_program_that_freezes_its_own_heap_keeps_it():
    before = gc.get_threshold()
    gc.freeze()
    try:
        frozen = gc.get_freeze_count()
        with frozen_heap() as renew:
            renew()
            assert gc.get_threshold() == before
        assert gc.get_freeze_count() >= frozen
    finally:
        gc.unfreeze()
