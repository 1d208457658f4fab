"""What the HTTP client leaves behind, and what it logs."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys

import pytest

from http_exchanges import sending, settled
from http_servers import (
    answering,
    serving,
)
from sampling import THOROUGH
from toolcrib.http import HTTPError, HTTPFailure, open_client
from toolcrib.security.egress import EgressGuard


async def test_a_cancelled_exchange_closes_its_connection_at_once():
    asked = asyncio.Event()

    async def silent(reader, _writer, _head):
        asked.set()
        await reader.read()

    async with serving(silent) as server, sending(server) as send:
        task = asyncio.create_task(send())
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.all_closed()


@pytest.mark.exhaustive
async def test_a_thousand_cancelled_exchanges_leave_nothing():
    async def silent(reader, writer, head):
        if len(head.target) % 2:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        await reader.read()

    async with serving(silent) as server, sending(server) as send:
        for turn in range(20 if THOROUGH else 4):
            tasks = [asyncio.create_task(send(target="/" * (turn + 1))) for _ in range(50)]
            await settled(lambda wanted=turn * 50 + 20: len(server.requests) >= wanted, turns=turn * 10)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert all(task.cancelled() for task in tasks)
            await server.all_closed()


async def test_closing_ends_what_is_under_way():
    asked = asyncio.Event()

    async def silent(reader, _writer, _head):
        asked.set()
        await reader.read()

    async with serving(silent) as server, sending(server) as send:
        task = asyncio.create_task(send())
        await asked.wait()
        await send.sender.aclose()
        with pytest.raises(HTTPError) as caught:
            await task
        assert caught.value.fault is HTTPFailure.CONNECTION_BROKEN


async def test_a_sender_may_be_closed_twice():
    async with serving(answering(200)) as server, sending(server) as send:
        await send()
        await send.sender.aclose()
        await send.sender.aclose()


IN_TWO_LOOPS = """
import asyncio, gc, sys, threading
from http_servers import answering, serving
from toolcrib.security.egress import EgressGuard
from toolcrib.http import ExchangeBounds, HTTPRequest, open_client

ready, port, end = threading.Event(), [], []

async def serve():
    async with serving(answering(200, (), b"ok")) as server:
        port.append(server.port)
        end.extend([asyncio.get_running_loop(), stop := asyncio.Event()])
        ready.set()
        await stop.wait()
        return server.accepted

def run():
    end.append(asyncio.run(serve()))

thread = threading.Thread(target=run)
thread.start()
ready.wait()
sender = open_client(EgressGuard([f"127.0.0.1:{port[0]}"]))
request = HTTPRequest("GET", "http", "127.0.0.1", port[0], "/")

async def ask():
    for _ in range(2):
        await sender.send(request, ExchangeBounds(), hosts=("127.0.0.1",), owner="owner", repeatable=False)

for _ in range(3):
    asyncio.run(ask())

loop = asyncio.new_event_loop()   # one that is stopped and started, and properly closed
for _ in range(2):
    loop.run_until_complete(ask())
loop.run_until_complete(loop.shutdown_asyncgens())
loop.close()
del sender
gc.collect()
end[0].call_soon_threadsafe(end[1].set)
thread.join()
print(end[2])
"""


def test_connections_of_a_loop_that_ended_are_closed_and_never_used_again(root):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", IN_TWO_LOOPS],
        cwd=root / "tests",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, [line for line in done.stderr.splitlines() if "took" not in line]) == ("4\n", [])


async def test_the_library_logs_nothing(caplog):
    caplog.set_level(logging.DEBUG)
    async with serving(answering(200)) as server, sending(server) as send:
        await send(target="/?key=canary", headers=(("Authorization", "canary"),))
    assert "canary" not in caplog.text


def test_a_level_that_somebody_gave_the_librarys_log_stays():
    logger = logging.getLogger("httpcore")
    before = logger.level
    try:
        logger.setLevel(logging.ERROR)
        open_client(EgressGuard())
        assert logger.level == logging.ERROR
        logger.setLevel(logging.NOTSET)
        open_client(EgressGuard())
        assert logger.level == logging.WARNING
    finally:
        logger.setLevel(before)


def test_messages_alone_do_not_import_the_library():
    script = "import sys, toolcrib.http; print(sorted({'httpcore', 'ssl', 'asyncio'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
