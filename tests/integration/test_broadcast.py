"""Events that are broadcast: read by httpx, by the client of `websockets`, and by the WebSocket of Node, which is that of browsers."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from contextlib import contextmanager

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from npm_packages import NODE
from toolcrib import ConfigurationError
from toolcrib.provider import Event, Timeline, View
from toolcrib.serve.broadcast import EventBroadcast, EventLog
from toolcrib.serve.http_common.listen_address import ListenAddress

PATIENCE = 60.0
TOKEN = "a-token-that-nobody-guesses"


def events_of(*pieces: str) -> list[Event]:
    timeline = Timeline()
    events = timeline.user("go")
    for piece in pieces:
        events += timeline.text(piece)
    return events


@contextmanager
def broadcast(**keys):
    said: list[str] = []
    with EventBroadcast(ListenAddress(port=0, **keys), said.append) as server:
        yield server
    assert said == []


def parsed(text: str) -> list[tuple[str, str, dict]]:
    """ID, type and data of each server-sent event."""
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.partition(": ")[::2] for line in block.splitlines() if not line.startswith(":"))
        if fields:
            found.append((fields["id"], fields["event"], json.loads(fields["data"])))
    return found


def viewed(messages) -> View:
    view = View()
    for message in messages:
        if "sessions" in message:
            view = View.parse(message["sessions"]["s"])
        else:
            view.apply(Event.parse(message["event"]))
    return view


async def read_sse(url, count, **headers):
    """The next events of a stream."""
    text = ""
    async with (
        httpx.AsyncClient(timeout=PATIENCE) as client,
        client.stream("GET", url, headers=headers) as got,
    ):
        assert got.status_code == 200
        assert got.headers["content-type"] == "text/event-stream; charset=utf-8"
        async for piece in got.aiter_text():
            text += piece
            if len(parsed(text[: text.rfind("\n\n") + 2])) >= count:
                break
    return parsed(text)[:count]


async def read_socket(url, count, **keys):
    async with connect(url.replace("http", "ws"), **keys) as front_end:
        return [json.loads(await asyncio.wait_for(front_end.recv(), PATIENCE)) for _ in range(count)]


async def test_both_kinds_of_front_ends_get_every_event_once_and_continue_after_the_last():
    events = events_of("a", "b", "c")
    with broadcast() as server:
        for event in events[:3]:
            server.add("s", event)
        first = await read_sse(server.url, 2)
        assert [kind for _id, kind, _data in first] == ["user", "text"]
        server.add("s", events[3])
        rest = await read_sse(server.url, 2, **{"Last-Event-ID": first[-1][0]})
        told = [data for _id, _kind, data in [*first, *rest]]
        assert [Event.parse(each["event"]) for each in told] == events
        assert {each["session"] for each in told} == {"s"}
        assert await read_socket(server.url, 4) == told
        assert await read_socket(f"{server.url}?after={first[-1][0]}", 2) == told[2:]
        assert viewed(told + told).segments == viewed(told).segments
        async with httpx.AsyncClient() as client:
            state = (await client.get(server.url.replace("/events", "/view"))).json()
            assert (await client.get(server.url.replace("/events", "/healthz"))).json() == {"status": "ok"}
            assert (await client.get(server.url + "x")).status_code == 404
            assert (await client.post(server.url)).status_code == 405
        assert View.parse(state["sessions"]["s"]).segments == viewed(told).segments
        assert state["id"] == told[-1]["id"]


async def test_a_front_end_of_another_run_gets_the_state():
    with broadcast() as server:
        for event in events_of("a", "b"):
            server.add("s", event)
        ((id_, kind, data),) = await read_sse(server.url, 1, **{"Last-Event-ID": "00000000-2"})
        assert kind == "view"
        assert [each.text for each in viewed([data]).segments] == ["go", "ab"]
        # And continues after it.
        server.add("s", Event(4, "text", 2, "c"))
        ((_id, _kind, following),) = await read_sse(server.url, 1, **{"Last-Event-ID": id_})
        assert [each.text for each in viewed([data, following]).segments] == ["go", "abc"]


async def test_a_front_end_that_does_not_read_holds_nobody_up_and_gets_the_state_later():
    log = EventLog(most_events=50)
    events = events_of(*"x" * 500)
    reading = log.follow()
    for event in events[:10]:
        log.add("s", event)
    first = [await anext(reading) for _ in range(3)]
    for event in events[10:]:
        log.add("s", event)  # never waits
    log.close()
    rest = [each async for each in reading]
    assert [each.type for each in rest if each.type == "view"] == ["view"]
    assert len(rest) < 200
    view = viewed([json.loads(each.data) for each in [*first, *rest]])
    assert view.segments[1].text == "x" * 500
    # Nothing is added after the end.
    log.add("s", events[0])
    assert [each async for each in log.follow(rest[-1].id)] == []


async def test_a_stalled_connection_does_not_delay_the_events_of_others():
    big = "y" * 100_000
    with broadcast() as server:
        host, port = server.url.removeprefix("http://").removesuffix("/events").split(":")
        with socket.create_connection((host, int(port))) as stalled:
            stalled.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            for event in events_of(*[big] * 200):
                server.add("s", event)
            told = await read_socket(server.url, 201, max_size=None)
    assert viewed(told).segments[1].text == big * 200


async def test_the_size_of_the_log_is_bounded():
    log = EventLog(most_bytes=10_000)
    for event in events_of(*["z" * 1000] * 100):
        log.add("s", event)
    log.close()
    ids = [each.type async for each in log.follow()]
    assert ids[0] == "view"
    assert len(ids) == 1


async def test_a_silent_stream_is_kept_alive():
    log = EventLog()
    reading = log.follow(silence=0.01)
    assert await anext(reading) is None
    await reading.aclose()


async def test_the_end_closes_the_streams_after_the_last_event():
    events = events_of("a")
    with broadcast() as server:
        async with connect(server.url.replace("http", "ws")) as front_end:
            for event in events:
                server.add("s", event)
            await asyncio.to_thread(server.close)
            told = [json.loads(each) async for each in front_end]  # ends without an error: code 1000
            assert [Event.parse(each["event"]) for each in told] == events


async def test_who_may_not_connect_is_refused():
    with broadcast(tokens=(TOKEN,)) as server:
        web = server.url.replace("http", "ws")
        server.add("s", events_of()[0])
        async with httpx.AsyncClient() as client:
            assert (await client.get(server.url)).status_code == 401
            assert (await client.get(server.url, headers={"host": "evil.example"})).status_code == 421
            assert (
                await client.get(server.url, headers={"origin": "http://evil.example"})
            ).status_code == 403
            assert (await client.get(server.url.replace("/events", "/view"))).status_code == 401
        for keys, status in (
            ({}, 401),
            ({"additional_headers": {"Authorization": "Bearer wrong"}}, 401),
            ({"subprotocols": ["toolcrib.events", "toolcrib.token.wrong"]}, 401),
            ({"origin": "http://evil.example"}, 403),
        ):
            with pytest.raises(InvalidStatus) as refused:
                await read_socket(server.url, 1, **keys)
            assert refused.value.response.status_code == status
        with pytest.raises(InvalidStatus) as refused:
            await read_socket(web + "x", 1, additional_headers={"Authorization": f"Bearer {TOKEN}"})
        assert refused.value.response.status_code == 404
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        (one,) = await read_socket(server.url, 1, additional_headers=bearer)
        assert one["event"]["type"] == "user"
        assert len(await read_sse(server.url, 1, **bearer)) == 1
        # A page cannot send headers with a WebSocket.
        protocols = ["toolcrib.events", f"toolcrib.token.{TOKEN}"]
        async with connect(web, subprotocols=protocols) as front_end:
            assert front_end.subprotocol == "toolcrib.events"
            assert json.loads(await front_end.recv()) == one


def test_other_machines_need_a_token():
    with pytest.raises(ConfigurationError) as refused:
        EventBroadcast(ListenAddress("0.0.0.0", 0), print)
    assert refused.value.code == "token_needed"


def test_a_port_in_use_is_reported():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = ListenAddress(port=taken.getsockname()[1])
        with pytest.raises(ConfigurationError) as refused, EventBroadcast(address, print):
            pass
    assert refused.value.code == "address_not_free"


PAGE = """
const [url, count] = process.argv.slice(1);
const socket = new WebSocket(url, ["toolcrib.events", "toolcrib.token.%s"]);
const told = [];
socket.onmessage = ({ data }) => {
  told.push(JSON.parse(data));
  if (told.length === Number(count)) socket.close();
};
socket.onclose = ({ code }) => console.log(JSON.stringify({ told, code, protocol: socket.protocol }));
"""


def test_the_websocket_of_browsers_gets_the_events():
    events = events_of("a", "b")
    with broadcast(tokens=(TOKEN,)) as server:
        for event in events:
            server.add("s", event)
        done = subprocess.run(
            [NODE / "bin" / "node", "-e", PAGE % TOKEN, server.url.replace("http", "ws"), "3"],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["protocol"] == "toolcrib.events"
    assert [Event.parse(each["event"]) for each in seen["told"]] == events
