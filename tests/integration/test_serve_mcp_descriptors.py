"""A server whose clients and calls take all the file descriptors that it may have."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from serving_mcp import (
    BASICS,
    PATIENCE,
    as_http,
    headers_of,
    json_of,
    quiet_sdk,
    request,
    said_raw,
    serve,
    status_of,
    write,
)

pytestmark = [
    quiet_sdk,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8 for loopback"),
]

FEW = 64
MOST = 900

ALIVE = as_http("GET", "/healthz", {"host": "localhost"})
HELD = request("tools/call", {"name": "held", "arguments": {}})
CALL = as_http("POST", "/mcp", headers_of(HELD) | {"host": "localhost"}, json.dumps(HELD).encode())


@contextmanager
def sockets(port: int, number: int, raw: bytes = b"") -> Iterator[None]:
    """Connections of 127.0.0.2, each of which has said something and waits."""
    opened = []
    try:
        for _ in range(number):
            opened.append(socket.create_connection(("127.0.0.1", port), PATIENCE, ("127.0.0.2", 0)))
            opened[-1].sendall(raw)
        yield
    finally:
        for each in opened:
            each.close()


@pytest.fixture
def many_files():
    """This process may open as many files as it ever may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < MOST + 100:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def tools_alive(port: int) -> int:
    """How many tools are served, by /healthz, which is asked from 127.0.0.1."""
    raw = await said_raw(port, ALIVE)
    assert status_of(raw) == 200
    count: int = json_of(raw)["tools"]
    return count


def add_tool(folder: Path) -> None:
    write(folder, "name: late\nmock: {result: 1}\n", "late.tool.yaml")


@pytest.mark.exhaustive
async def test_more_sockets_than_descriptors_keep_nobody_out_and_no_reload_back(tmp_path):
    tools = write(tmp_path, BASICS)
    async with serve(tools, files=FEW) as served:
        warning = await served.until_said("warning")
        assert f"at most {FEW // 2} connections are accepted instead of {MOST}" in warning
        assert "ulimit -n 1024" in warning
        with sockets(served.port, 120):
            assert await tools_alive(served.port) == 3
            add_tool(tools)
            await served.until_said("reloaded: 1 appeared")
            assert await tools_alive(served.port) == 4
        assert await tools_alive(served.port) == 4
        assert await served.end() == 0
    assert len(served.said) == 3, "".join(served.said)


@pytest.mark.exhaustive
async def test_idle_sockets_of_one_peer_do_not_lock_out_another(tmp_path, many_files):
    async with serve(write(tmp_path, BASICS), files=1024) as served:
        with sockets(served.port, MOST):
            for _ in range(3):
                assert await tools_alive(served.port) == 3
        assert await served.end() == 0
    assert len(served.said) == 1, "".join(served.said)


async def test_no_descriptor_at_all_is_reported_once_a_second_and_delays_a_reload(tmp_path):
    """Every connection has a call in work, which holds a connection of its own to an API that does not answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=200) as api:
        origin = f"127.0.0.1:{api.getsockname()[1]}"
        tools = write(
            tmp_path,
            f"""
            name: held
            mode: live
            live: {{method: POST, url: "http://{origin}/"}}
            limits: {{concurrency: 100}}
            """,
        )
        # Without the journal, whose files would leave too few descriptors for as many calls as connections.
        project = f"project: held\negress: {{allow: ['{origin}']}}\nsources: [.]\njournal: {{store: off}}\n"
        write(tools, project, "toolcrib.yaml")
        async with serve(tools, files=FEW, env={"TOOLCRIB_TRUST": "all"}) as served:
            began = asyncio.get_running_loop().time()
            with sockets(served.port, 120, CALL):
                await served.until_said("cannot accept connections: Too many open files")
                add_tool(tools)
                for _ in range(3):
                    seen = len(served.said)
                    while not any("cannot accept connections" in line for line in served.said[seen:]):
                        await served.next_said()
            await served.until_said("reloaded: 1 appeared")
            assert await tools_alive(served.port) == 2
            seconds = asyncio.get_running_loop().time() - began
            assert await served.end() == 0
    told = "".join(served.said)
    assert "Traceback" not in told
    for repeated in ("cannot accept connections", "a reload failed"):
        assert told.count(repeated) <= seconds + 1
