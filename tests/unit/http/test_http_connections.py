"""Which connections the HTTP client uses again, and how they fail."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import os
import socket
import subprocess
import sys
import threading

import pytest

from http_exchanges import resolving, sending, settled
from http_servers import (
    Head,
    answering,
    answering_each,
    answering_raw,
    raw_answer,
    serving,
)
from toolcrib import RealClock
from toolcrib.http import ExchangeBounds, HTTPError, HTTPFailure, HTTPRequest
from toolcrib.http.client import HTTPClient
from toolcrib.http.connection import SocketStream
from toolcrib.security.egress import EgressGuard, EgressRefused

PRESSED = ExchangeBounds(connect=0.1, read=0.1)


async def test_connections_are_used_again():
    async with serving(answering(200, (), b"ok")) as server, sending(server) as send:
        for _ in range(5):
            await send()
        assert (server.accepted, server.open) == (1, 1)
        await asyncio.gather(*(send() for _ in range(20)))
        assert server.accepted <= 20
        assert len(server.requests) == 25


async def test_no_owner_uses_a_connection_of_another():
    async with serving(answering(200)) as server, sending(server) as send:
        for owner in ("one", "two", "one", "two"):
            await send(owner=owner)
        assert [head.connection for head in server.requests] == [1, 2, 1, 2]


async def test_other_hosts_mean_other_connections():
    async with serving(answering(200)) as server, sending(server) as send:
        request = send.request()
        for hosts in (("127.0.0.1",), ("*",), ("127.0.0.1",)):
            await send.sender.send(request, ExchangeBounds(), hosts=hosts, owner="owner", repeatable=False)
        assert [head.connection for head in server.requests] == [1, 2, 1]


async def test_a_hundred_connections_are_kept_and_no_more():
    all_here = asyncio.Event()

    async def together(_reader, writer, _head):
        if len(server.requests) == 110:
            all_here.set()
        await all_here.wait()
        writer.write(raw_answer())

    async with serving(together) as server, sending(server) as send:
        await asyncio.gather(*(send() for _ in range(110)))
        await settled(lambda: server.open <= 100)
        assert (server.accepted, server.open) == (110, 100)


async def test_a_kept_connection_that_the_server_closed_is_not_used_again():
    async with serving(answering_raw(raw_answer(200, (), b"ok"))) as server, sending(server) as send:
        await send(method="POST")
        await server.all_closed()
        assert (await send(method="POST")).body == b"ok"
        assert server.accepted == 2


async def test_a_kept_connection_over_which_something_came_is_not_used_again():
    writers = []

    async def answer(_reader, writer, _head):
        writers.append(writer)
        writer.write(raw_answer(200, (), b"ok"))

    async with serving(answer) as server, sending(server) as send:
        await send(method="POST")
        writers[0].write(raw_answer(408, (), b"evil"))
        await writers[0].drain()
        assert (await send(method="POST")).body == b"ok"
        assert server.accepted == 2


async def test_a_flood_over_a_kept_connection_ends_it():
    flooded = asyncio.Event()

    async def answer(_reader, writer, head):
        writer.write(raw_answer(200, (), b"ok"))
        if head.connection == 1:
            with contextlib.suppress(ConnectionError):
                while not writer.is_closing():
                    writer.write(bytes(100_000))
                    await writer.drain()
            flooded.set()

    async with serving(answer) as server, sending(server) as send:
        await send()
        await flooded.wait()
        assert (await send()).body == b"ok"
        assert server.accepted == 2


async def test_a_kept_connection_without_work_is_closed():
    async with serving(answering(200)) as server:
        sender = HTTPClient(EgressGuard([f"127.0.0.1:{server.port}"]), idle=0.01)
        request = HTTPRequest("GET", "http", "127.0.0.1", server.port, "/")
        await sender.send(request, ExchangeBounds(), hosts=("127.0.0.1",), owner="owner", repeatable=False)
        await server.all_closed()
        await sender.send(request, ExchangeBounds(), hosts=("127.0.0.1",), owner="owner", repeatable=False)
        assert server.accepted == 2
        await sender.aclose()


async def test_closing_closes_connections_of_other_threads_too():
    async with serving(answering(200)) as server, sending(server) as send:
        began, end = threading.Event(), threading.Event()

        async def elsewhere():
            await send()
            began.set()
            await asyncio.to_thread(end.wait)

        thread = asyncio.create_task(asyncio.to_thread(asyncio.run, elsewhere()))
        await asyncio.to_thread(began.wait)
        assert server.open == 1
        await send.sender.aclose()
        await server.all_closed()
        end.set()
        await thread
        await asyncio.get_running_loop().shutdown_default_executor()


async def test_a_closed_sender_sends_nothing():
    async with serving(answering(200)) as server, sending(server) as send:
        await send()
        await send.sender.aclose()
        with pytest.raises(HTTPError, match="the runtime is closed") as caught:
            await send(repeatable=True)
        assert (caught.value.fault, caught.value.sent) == (HTTPFailure.CONNECT_FAILED, False)
        assert server.accepted == 1


async def test_a_sender_that_was_never_used_and_is_closed_sends_nothing():
    async with serving(answering(200)) as server, sending(server) as send:
        await send.sender.aclose()
        with pytest.raises(HTTPError, match="the runtime is closed"):
            await send()
        assert server.accepted == 0


async def test_a_sender_that_is_closed_while_it_dials_keeps_no_connection():
    dialled, closed = asyncio.Event(), asyncio.Event()

    async def dial(address, port):
        connection = socket.create_connection((address, port))
        connection.setblocking(False)
        dialled.set()
        await closed.wait()
        return connection

    async with serving(answering(200)) as server, sending(server, dial=dial) as send:
        under_way = asyncio.create_task(send())
        await dialled.wait()
        await send.sender.aclose()
        closed.set()
        with pytest.raises(HTTPError, match="the runtime is closed") as caught:
            await under_way
        assert not caught.value.sent
        assert server.requests == []


async def test_a_request_under_way_when_the_sender_is_closed_is_not_sent_again():
    asked = asyncio.Event()

    async def answer(reader, writer, _head):
        if len(server.requests) == 1:
            writer.write(raw_answer(200, (), b"ok"))
            return
        asked.set()
        await reader.read()

    async with serving(answer) as server, sending(server) as send:
        await send()
        under_way = asyncio.create_task(send(repeatable=True))
        await asked.wait()
        await send.sender.aclose()
        with pytest.raises(HTTPError) as caught:
            await under_way
        assert (caught.value.fault, caught.value.sent) == (HTTPFailure.CONNECTION_BROKEN, True)
        assert len(server.requests) == 2


def dying(*answers: bytes):
    """A server that hangs up on the second request of a connection."""

    async def answer(_reader, writer, head):
        if sum(each.connection == head.connection for each in server_requests) > 1:
            writer.close()
        else:
            writer.write(raw_answer(200, (), b"ok"))

    server_requests: list[Head] = []
    return answer, server_requests


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_a_request_that_met_a_dead_connection_is_sent_again_once(method):
    handler, seen = dying()
    async with serving(handler) as server, sending(server) as send:
        server.requests = seen
        await send()
        answer = await send(method=method, body=b"twice" if method == "PUT" else b"", repeatable=True)
        assert answer.status == 200
        assert [head.connection for head in seen] == [1, 1, 2]
        assert seen[1][:2] == seen[2][:2]
        assert seen[1].body == seen[2].body


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
async def test_a_request_that_may_have_acted_is_not_sent_again(method):
    handler, seen = dying()
    async with serving(handler) as server, sending(server) as send:
        server.requests = seen
        await send()
        with pytest.raises(HTTPError) as caught:
            await send(method=method)
        assert (caught.value.fault, caught.value.sent) == (HTTPFailure.CONNECTION_BROKEN, True)
        assert len(seen) == 2


async def test_a_new_connection_that_breaks_is_not_tried_again():
    handler = answering_each(answering(200), answering_raw(b""))
    async with serving(handler) as server, sending(server) as send:
        await send()
        with pytest.raises(HTTPError) as caught:
            await send(repeatable=True)
        assert (caught.value.fault, caught.value.sent) == (HTTPFailure.CONNECTION_BROKEN, True)
        assert [head.connection for head in server.requests] == [1, 1, 2]


async def test_an_answer_that_began_is_not_asked_for_again():
    handler = answering_each(answering(200), answering_raw(b"HTTP/1.1 2"))
    async with serving(handler) as server, sending(server) as send:
        await send()
        with pytest.raises(HTTPError, match="closed before the response was complete"):
            await send(repeatable=True)
        assert len(server.requests) == 2


LARGE = bytes(30_000_000)
"""More than all buffers on the way can take."""


async def test_an_answer_that_comes_early_is_taken():
    async def refuse(reader, writer, _head):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw_answer(413, {"Connection": "close"}, b"too much"))
        await writer.drain()
        await reader.read(1)
        await asyncio.Event().wait()

    async with serving(refuse, reads=False) as server, sending(server) as send:
        answer = await send(method="POST", body=LARGE)
        assert (answer.status, answer.body) == (413, b"too much")
        await server.stop()


async def test_a_server_that_takes_nothing_of_a_request_is_given_up():
    async def busy(_reader, writer, _head):
        writer.transport.pause_reading()
        await asyncio.Event().wait()

    async with serving(busy, reads=False) as server, sending(server) as send:
        with pytest.raises(HTTPError) as caught:
            await send(method="POST", body=LARGE, bounds=PRESSED)
        assert (caught.value.fault, caught.value.sent) == (HTTPFailure.READ_TIMEOUT, True)
        assert "did not read the request for 0.1 s" in caught.value.message
        await server.stop()


async def test_a_connection_that_breaks_while_a_request_is_sent():
    async def breaks(reader, writer, _head):
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    async with serving(breaks, reads=False) as server, sending(server) as send:
        with pytest.raises(HTTPError) as caught:
            await send(method="POST", body=LARGE)
        assert caught.value.fault in {HTTPFailure.WRITE_FAILED, HTTPFailure.CONNECTION_BROKEN}
        assert caught.value.sent


async def test_a_refused_connection():
    async with serving(answering(200)) as server:
        pass
    async with sending(allow=[f"127.0.0.1:{server.port}"]) as send:
        with pytest.raises(HTTPError, match="cannot connect to") as caught:
            await send(scheme="http", port=server.port)
        assert (caught.value.fault, caught.value.sent) == (HTTPFailure.CONNECT_FAILED, False)


async def test_a_name_without_an_address():
    async with sending(host="nowhere.test", resolve=resolving()) as send:
        with pytest.raises(HTTPError, match=r"cannot resolve the host name `nowhere\.test`") as caught:
            await send(scheme="http", port=80)
        assert (caught.value.fault, caught.value.sent) == (HTTPFailure.CONNECT_FAILED, False)


async def test_a_connection_that_does_not_come_about_in_time():
    async def never(_address, _port):
        await asyncio.Event().wait()

    async with sending(allow=["127.0.0.1:80"], dial=never) as send:
        with pytest.raises(HTTPError, match=r"connecting to `127.0.0.1` timed out after 0.1 s") as caught:
            await send(scheme="http", port=80, bounds=PRESSED)
        assert (caught.value.fault, caught.value.sent) == (HTTPFailure.CONNECT_TIMEOUT, False)


async def test_a_look_up_counts_as_connecting():
    async def never(_name, _port):
        await asyncio.Event().wait()

    async with sending(host="slow.test", resolve=never) as send:
        with pytest.raises(HTTPError) as caught:
            await send(scheme="http", port=80, bounds=PRESSED)
        assert caught.value.fault is HTTPFailure.CONNECT_TIMEOUT


async def test_the_guard_is_asked_for_every_connection():
    async with serving(answering(200)) as server, sending() as send:
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(EgressRefused):
                await send(scheme="http", host=host, port=server.port)
        assert server.accepted == 0


async def test_a_name_is_dialled_where_the_guard_says_and_stays_in_the_host_header():
    async with (
        serving(answering(200)) as server,
        sending(server, host="api.test", resolve=resolving(api_test="127.0.0.1")) as send,
    ):
        await send()
        assert server.requests[0].header("host") == f"api.test:{server.port}"


async def test_an_ipv6_address_stands_in_brackets_in_the_host_header():
    async with serving(answering(200), host="::1") as server, sending(server, host="::1") as send:
        await send()
        assert server.requests[0].header("host") == f"[::1]:{server.port}"


async def test_proxies_of_the_environment_are_ignored(monkeypatch):
    async with (
        serving(answering(200, (), b"direct")) as server,
        serving(answering(200, (), b"proxy")) as proxy,
    ):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.origin)
        async with sending(server) as send:
            assert (await send()).body == b"direct"
        assert proxy.accepted == 0


UNSEEN = """
import asyncio
import logging
import sys

import httpcore


class Renamed(httpcore.AsyncHTTP11Connection):
    def __getattribute__(self, name):
        if name == "_h11_state" and sys._getframe(1).f_globals["__name__"].startswith("toolcrib"):
            raise AttributeError(name)
        return super().__getattribute__(name)


httpcore.AsyncHTTP11Connection = Renamed

from http_exchanges import sending
from http_servers import answering, serving


async def main():
    async with serving(answering(200, (), b"ok")) as server, sending(server) as send:
        for _ in range(3):
            print((await send()).body.decode(), server.accepted)


logging.basicConfig(format="%(name)s %(levelname)s: %(message)s")
asyncio.run(main())
"""


def test_where_surplus_bytes_can_not_be_seen_no_connection_is_used_again_and_it_is_said():
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", UNSEEN],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "ok 1\nok 2\nok 3\n"
    httpcore = importlib.metadata.version("httpcore")
    assert done.stderr.startswith(
        f"toolcrib.http WARNING: connections are not reused, because httpcore {httpcore} has no "
        "`AsyncHTTP11Connection._h11_state.trailing_data`; pip install 'httpcore>="
    )
    assert done.stderr.count("\n") == 1


async def test_other_tasks_run_while_megabytes_that_have_arrived_are_read():
    stream = SocketStream(set())
    stream.begin(ExchangeBounds())
    stream.head_ended()
    for _ in range(64):
        received = stream.get_buffer(-1)
        received[:5] = b"HTTP/"
        stream.buffer_updated(1 << 16)
    turns, reading = 0, asyncio.create_task(read_all(stream, 1 << 22))
    while not reading.done():
        turns += 1
        await RealClock().sleep(0)
    assert turns >= 63


async def read_all(stream, size):
    while size:
        size -= len(await stream.read(1 << 16))
