"""What both senders do: what they write, which connections they use again, how they fail, what they leave behind."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import subprocess
import sys
import threading

import pytest

from http_exchanges import BOTH, resolving, sending, settled
from http_servers import (
    Head,
    answering,
    answering_each,
    answering_json,
    answering_raw,
    raw_answer,
    serving,
)
from toolcrib.egress import EgressRefused, Guard
from toolcrib.http import Bounds, Fault, HTTPError, Request, open_sender
from toolcrib.http.fast import FastSender
from toolcrib.http.stock import StockSender

PRESSED = Bounds(connect=0.1, read=0.1)


def headers_of(head: Head) -> list[tuple[str, str]]:
    """All headers but the one that names the port."""
    return [(name, value) for name, value in head.headers if name != "Host"]


@BOTH
async def test_a_request_is_written_as_it_was_given_with_one_spelling_for_each_name(client):
    async with serving(answering_json({"a": 1})) as server, sending(client, server) as send:
        answer = await send(
            method="POST",
            target="/a%2Fb/%2e%2e/c;d?q=%20+&q=%C3%A9&empty=&&x",
            headers=(("X-Tag", "one"), ("x-tag", "two"), ("Accept", "a, b"), ("X-Latin", "\xe9")),
            body=b'{"a": "\xc3\xa9"}',
        )
    (head,) = server.requests
    assert head.raw.startswith(b"POST /a%2Fb/%2e%2e/c;d?q=%20+&q=%C3%A9&empty=&&x HTTP/1.1\r\nHost: ")
    assert head.header("host") == f"127.0.0.1:{server.port}"
    assert headers_of(head) == [
        ("X-Tag", "one"),
        ("X-Tag", "two"),
        ("Accept", "a, b"),
        ("X-Latin", "\xe9"),
        ("Accept-Encoding", "gzip"),
        ("Content-Length", "11"),
    ]
    assert head.body == b'{"a": "\xc3\xa9"}'
    assert (answer.status, answer.body) == (200, b'{"a": 1}')
    assert answer.header("content-type") == "application/json"


@pytest.mark.parametrize(
    ("asked", "headers"),
    [
        ({}, [("Accept-Encoding", "gzip")]),
        ({"method": "HEAD"}, [("Accept-Encoding", "gzip")]),
        ({"method": "DELETE"}, [("Accept-Encoding", "gzip"), ("Content-Length", "0")]),
        ({"method": "OPTIONS"}, [("Accept-Encoding", "gzip")]),
        ({"method": "POST"}, [("Accept-Encoding", "gzip"), ("Content-Length", "0")]),
        ({"method": "PUT"}, [("Accept-Encoding", "gzip"), ("Content-Length", "0")]),
        ({"method": "PATCH"}, [("Accept-Encoding", "gzip"), ("Content-Length", "0")]),
        ({"body": b"ab"}, [("Accept-Encoding", "gzip"), ("Content-Length", "2")]),
        ({"method": "DELETE", "body": b"ab"}, [("Accept-Encoding", "gzip"), ("Content-Length", "2")]),
        ({"headers": (("accept-encoding", "identity"),)}, [("accept-encoding", "identity")]),
        ({"headers": (("X-Space", " a\t"),)}, [("X-Space", "a"), ("Accept-Encoding", "gzip")]),
    ],
)
@BOTH
async def test_a_sender_adds_what_follows_and_nothing_else(client, asked, headers):
    async with serving(answering(200)) as server, sending(client, server) as send:
        await send(**asked)
    assert headers_of(server.requests[0]) == headers


@pytest.mark.parametrize(
    "target", ["/", "//", "//other.test/x", "/a/../b", "/%", "/?a=b?", "/?a=b?c", "/a:b@c", "/*'()!$,"]
)
@BOTH
async def test_a_target_stays_what_it_was(client, target):
    async with serving(answering(200)) as server, sending(client, server) as send:
        await send(target=target)
    assert server.requests[0].target == target


@BOTH
async def test_a_question_mark_without_a_query_is_dropped(client):
    async with serving(answering(200)) as server, sending(client, server) as send:
        await send(target="/x?")
    assert server.requests[0].target == "/x"


@BOTH
async def test_a_large_body_arrives_whole(client):
    body = bytes(range(256)) * 20_000
    async with serving(answering(200)) as server, sending(client, server) as send:
        await send(method="PUT", body=body)
    assert server.requests[0].body == body


@BOTH
async def test_an_answer_in_many_pieces_arrives_whole(client):
    body = bytes(range(256)) * 20_000
    async with serving(answering(200, (), body)) as server, sending(client, server) as send:
        assert (await send()).body == body


CANARY = "canary\r\nX-Evil: 1"


@pytest.mark.parametrize(
    "asked",
    [
        {"headers": (("X-Token", CANARY),)},
        {"headers": (("X-Token", "canary\n"),)},
        {"headers": (("X-Token", "canary\x00"),)},
        {"headers": (("X-Token", "canary\u2028"),)},
        {"headers": (("X-Token", "canary\u0141"),)},
        {"headers": ((CANARY, "x"),)},
        {"headers": (("canary ", "x"),)},
        {"headers": (("", "canary"),)},
        {"headers": (("Host", "canary"),)},
        {"headers": (("content-length", "canary"),)},
        {"headers": (("Transfer-Encoding", "canary"),)},
        {"headers": (("Connection", "canary"),)},
        {"headers": (("Upgrade", "canary"),)},
        {"headers": (("Expect", "canary"),)},
        {"target": "canary"},
        {"target": "/canary x"},
        {"target": "/canary\r\nX-Evil: 1"},
        {"target": "/canary#x"},
        {"target": "/canary\xe9"},
        {"target": ""},
        {"method": "get"},
        {"method": "GET /canary HTTP/1.1\r\nX: y"},
        {"scheme": "ftp"},
        {"host": "canary/x"},
        {"host": "canary@127.0.0.1"},
        {"host": "Canary"},
        {"host": ""},
    ],
)
@BOTH
async def test_what_would_not_stay_in_its_place_is_refused_and_not_shown(client, asked):
    async with serving(answering(200)) as server, sending(client, server) as send:
        with pytest.raises(HTTPError) as caught:
            await send(**asked)
        assert (caught.value.fault, caught.value.sent) == (Fault.BAD_REQUEST, False)
        assert "canary" not in str(caught.value).replace("`canary `", "")
        assert server.accepted == 0


@BOTH
async def test_connections_are_used_again(client):
    async with serving(answering(200, (), b"ok")) as server, sending(client, server) as send:
        for _ in range(5):
            await send()
        assert (server.accepted, server.open) == (1, 1)
        await asyncio.gather(*(send() for _ in range(20)))
        assert server.accepted <= 20
        assert len(server.requests) == 25


@BOTH
async def test_no_owner_uses_a_connection_of_another(client):
    async with serving(answering(200)) as server, sending(client, server) as send:
        for owner in ("one", "two", "one", "two"):
            await send(owner=owner)
        assert [head.connection for head in server.requests] == [1, 2, 1, 2]


@BOTH
async def test_other_hosts_mean_other_connections(client):
    async with serving(answering(200)) as server, sending(client, server) as send:
        request = send.request()
        for hosts in (("127.0.0.1",), ("*",), ("127.0.0.1",)):
            await send.sender.send(request, Bounds(), hosts=hosts, owner="owner")
        assert [head.connection for head in server.requests] == [1, 2, 1]


@BOTH
async def test_a_hundred_connections_are_kept_and_no_more(client):
    all_here = asyncio.Event()

    async def together(_reader, writer, _head):
        if len(server.requests) == 110:
            all_here.set()
        await all_here.wait()
        writer.write(raw_answer())

    async with serving(together) as server, sending(client, server) as send:
        await asyncio.gather(*(send() for _ in range(110)))
        await settled(lambda: server.open <= 100)
        assert (server.accepted, server.open) == (110, 100)


@BOTH
async def test_a_kept_connection_that_the_server_closed_is_not_used_again(client):
    async with serving(answering_raw(raw_answer(200, (), b"ok"))) as server, sending(client, server) as send:
        await send(method="POST")
        await server.all_closed()
        assert (await send(method="POST")).body == b"ok"
        assert server.accepted == 2


@BOTH
async def test_a_kept_connection_over_which_something_came_is_not_used_again(client):
    writers = []

    async def answer(_reader, writer, _head):
        writers.append(writer)
        writer.write(raw_answer(200, (), b"ok"))

    async with serving(answer) as server, sending(client, server) as send:
        await send(method="POST")
        writers[0].write(raw_answer(408, (), b"evil"))
        await writers[0].drain()
        assert (await send(method="POST")).body == b"ok"
        assert server.accepted == 2


@BOTH
async def test_a_flood_over_a_kept_connection_ends_it(client):
    flooded = asyncio.Event()

    async def answer(_reader, writer, head):
        writer.write(raw_answer(200, (), b"ok"))
        if head.connection == 1:
            with contextlib.suppress(ConnectionError):
                while not writer.is_closing():
                    writer.write(bytes(100_000))
                    await writer.drain()
            flooded.set()

    async with serving(answer) as server, sending(client, server) as send:
        await send()
        await flooded.wait()
        assert (await send()).body == b"ok"
        assert server.accepted == 2


@pytest.mark.parametrize("kind", [StockSender, FastSender])
async def test_a_kept_connection_without_work_is_closed(kind):
    async with serving(answering(200)) as server:
        sender = kind(Guard([f"127.0.0.1:{server.port}"]), idle=0.01)
        request = Request("GET", "http", "127.0.0.1", server.port, "/")
        await sender.send(request, Bounds(), hosts=("127.0.0.1",), owner="owner")
        await server.all_closed()
        await sender.send(request, Bounds(), hosts=("127.0.0.1",), owner="owner")
        assert server.accepted == 2
        await sender.aclose()


@BOTH
async def test_closing_closes_connections_of_other_threads_too(client):
    async with serving(answering(200)) as server, sending(client, server) as send:
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


def dying(*answers: bytes):
    """A server that hangs up on the second request of a connection."""

    async def answer(_reader, writer, head):
        if sum(each.connection == head.connection for each in server_requests) > 1:
            writer.close()
        else:
            writer.write(raw_answer(200, (), b"ok"))

    server_requests: list[Head] = []
    return answer, server_requests


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
@BOTH
async def test_a_request_that_met_a_dead_connection_is_sent_again_once(client, method):
    handler, seen = dying()
    async with serving(handler) as server, sending(client, server) as send:
        server.requests = seen
        await send()
        answer = await send(method=method, body=b"twice" if method == "PUT" else b"")
        assert answer.status == 200
        assert [head.connection for head in seen] == [1, 1, 2]
        assert seen[1][:2] == seen[2][:2]
        assert seen[1].body == seen[2].body


@pytest.mark.parametrize("method", ["POST", "PATCH"])
@BOTH
async def test_a_request_that_may_have_acted_is_not_sent_again(client, method):
    handler, seen = dying()
    async with serving(handler) as server, sending(client, server) as send:
        server.requests = seen
        await send()
        with pytest.raises(HTTPError) as caught:
            await send(method=method)
        assert (caught.value.fault, caught.value.sent) == (Fault.CONNECTION_BROKEN, True)
        assert len(seen) == 2


@BOTH
async def test_a_new_connection_that_breaks_is_not_tried_again(client):
    handler = answering_each(answering(200), answering_raw(b""))
    async with serving(handler) as server, sending(client, server) as send:
        await send()
        with pytest.raises(HTTPError) as caught:
            await send()
        assert (caught.value.fault, caught.value.sent) == (Fault.CONNECTION_BROKEN, True)
        assert [head.connection for head in server.requests] == [1, 1, 2]


@BOTH
async def test_an_answer_that_began_is_not_asked_for_again(client):
    handler = answering_each(answering(200), answering_raw(b"HTTP/1.1 2"))
    async with serving(handler) as server, sending(client, server) as send:
        await send()
        with pytest.raises(HTTPError, match="ended before the answer was complete"):
            await send()
        assert len(server.requests) == 2


@BOTH
async def test_redirects_are_not_followed_and_cookies_not_kept(client):
    handler = answering(302, {"Location": "/elsewhere", "Set-Cookie": "session=1"})
    async with serving(handler) as server, sending(client, server) as send:
        answer = await send()
        await send()
        assert (answer.status, answer.header("location")) == (302, "/elsewhere")
        assert [(head.target, head.header("cookie")) for head in server.requests] == [("/", None)] * 2


@BOTH
async def test_headers_of_an_answer_keep_their_order_and_number(client):
    headers = [("B", "1"), ("a", " 2 "), ("b", "3"), ("Empty", ""), ("Latin", "\xe9")]
    async with serving(answering(200, headers)) as server, sending(client, server) as send:
        answer = await send()
    assert answer.headers[:-1] == (("b", "1"), ("a", "2"), ("b", "3"), ("empty", ""), ("latin", "\xe9"))
    assert (answer.header("b"), answer.header("none")) == ("1, 3", None)


LARGE = bytes(30_000_000)
"""More than all buffers on the way can take."""


@BOTH
async def test_an_answer_that_comes_early_is_taken(client):
    async def refuse(reader, writer, _head):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw_answer(413, {"Connection": "close"}, b"too much"))
        await writer.drain()
        await reader.read(1)
        await asyncio.Event().wait()

    async with serving(refuse, reads=False) as server, sending(client, server) as send:
        answer = await send(method="POST", body=LARGE)
        assert (answer.status, answer.body) == (413, b"too much")
        await server.stop()


@BOTH
async def test_a_server_that_takes_nothing_of_a_request_is_given_up(client):
    async def busy(_reader, writer, _head):
        writer.transport.pause_reading()
        await asyncio.Event().wait()

    async with serving(busy, reads=False) as server, sending(client, server) as send:
        with pytest.raises(HTTPError) as caught:
            await send(method="POST", body=LARGE, bounds=PRESSED)
        assert (caught.value.fault, caught.value.sent) == (Fault.READ_TIMEOUT, True)
        assert "took nothing of the request for 0.1 s" in caught.value.message
        await server.stop()


@BOTH
async def test_a_connection_that_breaks_while_a_request_is_sent(client):
    async def breaks(reader, writer, _head):
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    async with serving(breaks, reads=False) as server, sending(client, server) as send:
        with pytest.raises(HTTPError) as caught:
            await send(method="POST", body=LARGE)
        assert caught.value.fault in {Fault.WRITE_FAILED, Fault.CONNECTION_BROKEN}
        assert caught.value.sent


@BOTH
async def test_a_refused_connection(client):
    async with serving(answering(200)) as server:
        pass
    async with sending(client, allow=[f"127.0.0.1:{server.port}"]) as send:
        with pytest.raises(HTTPError, match="no connection to") as caught:
            await send(scheme="http", port=server.port)
        assert (caught.value.fault, caught.value.sent) == (Fault.CONNECT_FAILED, False)


@BOTH
async def test_a_name_without_an_address(client):
    async with sending(client, host="nowhere.test", resolve=resolving()) as send:
        with pytest.raises(HTTPError, match=r"no address was found for the name `nowhere\.test`") as caught:
            await send(scheme="http", port=80)
        assert (caught.value.fault, caught.value.sent) == (Fault.CONNECT_FAILED, False)


@BOTH
async def test_a_connection_that_does_not_come_about_in_time(client):
    async def never(_address, _port):
        await asyncio.Event().wait()

    async with sending(client, allow=["127.0.0.1:80"], dial=never) as send:
        with pytest.raises(HTTPError, match=r"no connection to `127.0.0.1` within 0.1 s") as caught:
            await send(scheme="http", port=80, bounds=PRESSED)
        assert (caught.value.fault, caught.value.sent) == (Fault.CONNECT_TIMEOUT, False)


@BOTH
async def test_a_look_up_counts_as_connecting(client):
    async def never(_name, _port):
        await asyncio.Event().wait()

    async with sending(client, host="slow.test", resolve=never) as send:
        with pytest.raises(HTTPError) as caught:
            await send(scheme="http", port=80, bounds=PRESSED)
        assert caught.value.fault is Fault.CONNECT_TIMEOUT


@BOTH
async def test_the_guard_is_asked_for_every_connection(client):
    async with serving(answering(200)) as server, sending(client) as send:
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(EgressRefused):
                await send(scheme="http", host=host, port=server.port)
        assert server.accepted == 0


@BOTH
async def test_a_name_is_dialled_where_the_guard_says_and_stays_in_the_host_header(client):
    async with (
        serving(answering(200)) as server,
        sending(client, server, host="api.test", resolve=resolving(api_test="127.0.0.1")) as send,
    ):
        await send()
        assert server.requests[0].header("host") == f"api.test:{server.port}"


@BOTH
async def test_an_ipv6_address_stands_in_brackets_in_the_host_header(client):
    async with serving(answering(200), host="::1") as server, sending(client, server, host="::1") as send:
        await send()
        assert server.requests[0].header("host") == f"[::1]:{server.port}"


@BOTH
async def test_proxies_of_the_environment_are_ignored(client, monkeypatch):
    async with (
        serving(answering(200, (), b"direct")) as server,
        serving(answering(200, (), b"proxy")) as proxy,
    ):
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy.origin)
        async with sending(client, server) as send:
            assert (await send()).body == b"direct"
        assert proxy.accepted == 0


@BOTH
async def test_a_cancelled_exchange_closes_its_connection_at_once(client):
    asked = asyncio.Event()

    async def silent(reader, _writer, _head):
        asked.set()
        await reader.read()

    async with serving(silent) as server, sending(client, server) as send:
        task = asyncio.create_task(send())
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.all_closed()


@BOTH
async def test_a_thousand_cancelled_exchanges_leave_nothing(client):
    async def silent(reader, writer, head):
        if len(head.target) % 2:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        await reader.read()

    async with serving(silent) as server, sending(client, server) as send:
        for turn in range(20):
            tasks = [asyncio.create_task(send(target="/" * (turn + 1))) for _ in range(50)]
            await settled(lambda wanted=turn * 50 + 20: len(server.requests) >= wanted, turns=turn * 10)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert all(task.cancelled() for task in tasks)
            await server.all_closed()


@BOTH
async def test_closing_ends_what_is_under_way(client):
    asked = asyncio.Event()

    async def silent(reader, _writer, _head):
        asked.set()
        await reader.read()

    async with serving(silent) as server, sending(client, server) as send:
        task = asyncio.create_task(send())
        await asked.wait()
        await send.sender.aclose()
        with pytest.raises(HTTPError) as caught:
            await task
        assert caught.value.fault is Fault.CONNECTION_BROKEN


@BOTH
async def test_a_sender_may_be_closed_twice_and_used_again(client):
    async with serving(answering(200)) as server, sending(client, server) as send:
        await send.sender.aclose()
        await send()
        await send.sender.aclose()
        await send.sender.aclose()
        assert (await send()).status == 200
        assert server.accepted == 2


IN_TWO_LOOPS = """
import asyncio, gc, sys, threading
from http_servers import answering, serving
from toolcrib.egress import Guard
from toolcrib.http import Bounds, Request, open_sender

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
sender = open_sender(Guard([f"127.0.0.1:{port[0]}"]), client=sys.argv[1])
request = Request("GET", "http", "127.0.0.1", port[0], "/")

async def ask():
    for _ in range(2):
        await sender.send(request, Bounds(), hosts=("127.0.0.1",), owner="owner")

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


@BOTH
def test_connections_of_a_loop_that_ended_are_closed_and_never_used_again(client, root):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", IN_TWO_LOOPS, client],
        cwd=root / "tests",
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, [line for line in done.stderr.splitlines() if "took" not in line]) == ("4\n", [])


@BOTH
async def test_the_libraries_log_nothing(client, caplog):
    caplog.set_level(logging.DEBUG)
    async with serving(answering(200)) as server, sending(client, server) as send:
        await send(target="/?key=canary", headers=(("Authorization", "canary"),))
    assert "canary" not in caplog.text


@pytest.mark.parametrize(("client", "name"), [("stock", "httpcore"), ("fast", "aiohttp")])
def test_a_level_that_somebody_gave_a_librarys_log_stays(client, name):
    logger = logging.getLogger(name)
    before = logger.level
    try:
        logger.setLevel(logging.ERROR)
        open_sender(Guard(), client=client)
        assert logger.level == logging.ERROR
        logger.setLevel(logging.NOTSET)
        open_sender(Guard(), client=client)
        assert logger.level == logging.WARNING
    finally:
        logger.setLevel(before)


def test_the_fast_sender_is_taken_where_it_is_installed():
    assert isinstance(open_sender(Guard()), FastSender)
    assert isinstance(open_sender(Guard(), client="fast"), FastSender)
    assert isinstance(open_sender(Guard(), client="stock"), StockSender)


WITHOUT_AIOHTTP = """
import sys

sys.modules["aiohttp"] = None   # as if it were not installed

from toolcrib.egress import Guard
from toolcrib.errors import ConfigurationError
from toolcrib.http import open_sender

print(type(open_sender(Guard())).__name__)
try:
    open_sender(Guard(), client="fast")
except ConfigurationError as error:
    print(error.code, error.hint)
"""


def test_without_the_extra_the_stock_sender_is_taken_and_the_fast_one_is_an_error():
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_AIOHTTP], capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["StockSender", "missing_extra pip install 'toolcrib[fast]'"]


def test_messages_alone_import_neither_library():
    script = "import sys, toolcrib.http; print(sorted({'httpcore', 'aiohttp', 'ssl', 'asyncio'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
