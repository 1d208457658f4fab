"""Broadcast the events of a conversation to any front end: server-sent events and WebSockets.

    GET /events     text/event-stream, or a WebSocket; `Last-Event-ID` or `?after=ID` continues
    GET /view       the segments so far
    GET /healthz    whether it runs

The server has a thread and an event loop of its own. Whoever adds events never waits for a front end: each front end reads one
shared log at its own speed, and one that falls behind the log gets the state in place of what it has missed.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import parse_qs

from toolcrib.core.dependencies import imports_of_extra
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON
from toolcrib.core.text import compact
from toolcrib.provider import Event, View
from toolcrib.serve.http_common.asgi import HEALTH, Receive, Scope, Send, send_answer, sends_headers
from toolcrib.serve.http_common.lifecycle import Shutdown
from toolcrib.serve.http_common.listen_address import ListenAddress, Say
from toolcrib.serve.http_common.request_guard import GuardAnswer, Headers, PageAccess, RequestGuard, refusal

if TYPE_CHECKING:
    from toolcrib.serve.http_common.http_server import BoundAddress

MOST_EVENTS: Final = 20_000
"""Maximum number of events in the log."""

MOST_BYTES: Final = 32 << 20
"""Maximum size of the events in the log."""

KEEP_ALIVE: Final = 15.0
"""Seconds after which a silent stream of server-sent events gets a comment, so that a gone front end is noticed."""

START_TIMEOUT: Final = 30.0
"""Seconds in which the server must listen."""

PROTOCOL: Final = "toolcrib.events"
"""The WebSocket subprotocol."""

TOKEN_PROTOCOL: Final = "toolcrib.token."  # noqa: S105 -- a prefix
"""Prefix of the WebSocket subprotocol that presents a token: pages cannot send headers with a WebSocket."""

EVENTS: Final = "/events"
VIEW: Final = "/view"

PAGE_ACCESS: Final = PageAccess(b"GET", frozenset({"last-event-id"}), b"")


class BroadcastMessage(NamedTuple):
    """One message to front ends.

    Attributes:
        id: Its ID; a front end that has seen it continues after it.
        type: The type of the event, or `view`.
        data: JSON of the message.
    """

    id: str
    type: str
    data: str

    def as_sse(self) -> bytes:
        """The message in `text/event-stream`."""
        return f"id: {self.id}\nevent: {self.type}\ndata: {self.data}\n\n".encode(errors="replace")


class EventLog:
    """The latest events of all sessions, and their views. Events may be added from any thread.

    Args:
        most_events: Maximum number of events.
        most_bytes: Maximum size of the events.
    """

    def __init__(self, most_events: int = MOST_EVENTS, most_bytes: int = MOST_BYTES) -> None:
        # IDs of another run of the program must not be taken for those of this one.
        self._run = secrets.token_hex(4)
        self._most_events, self._most_bytes = most_events, most_bytes
        self._messages: deque[BroadcastMessage] = deque()
        self._views: dict[str, View] = {}
        self._last = self._size = 0
        self._closed = False
        self._lock = threading.Lock()
        self._waiting: set[Callable[[], None]] = set()

    def add(self, session: str, event: Event) -> None:
        """Add an event.

        Args:
            session: ID of its session; empty for what concerns no session.
            event: The event.
        """
        with self._lock:
            if self._closed:
                return
            self._last += 1
            id_ = f"{self._run}-{self._last}"
            said: dict[str, JSON] = {"id": id_, "session": session, "event": event.as_json()}
            message = BroadcastMessage(id_, event.type, compact(said))
            self._messages.append(message)
            self._size += len(message.data)
            while len(self._messages) > self._most_events or (
                self._size > self._most_bytes and len(self._messages) > 1
            ):
                self._size -= len(self._messages.popleft().data)
            self._views.setdefault(session, View()).apply(event)
            self._wake()

    def close(self) -> None:
        """End all streams, once they have sent everything."""
        with self._lock:
            self._closed = True
            self._wake()

    def view(self) -> BroadcastMessage:
        """The state after the last event."""
        with self._lock:
            return self._view()

    def _view(self) -> BroadcastMessage:
        id_ = f"{self._run}-{self._last}"
        sessions: dict[str, JSON] = {name: view.as_json() for name, view in self._views.items()}
        return BroadcastMessage(id_, "view", compact({"id": id_, "sessions": sessions}))

    def _wake(self) -> None:
        for wake in self._waiting:
            wake()

    def _place_of(self, id_: str) -> int:
        """The number of an event that a front end has seen; -1 if it is of another run."""
        run, _mark, number = id_.rpartition("-")
        return int(number) if run == self._run and number.isdecimal() and number.isascii() else -1

    def _following(self, place: int) -> tuple[list[BroadcastMessage], int, bool]:
        """The messages after a place, the place after them, and whether more may follow."""
        with self._lock:
            first = self._last - len(self._messages)
            if not first <= place <= self._last:
                return [self._view()], self._last, True
            # A part at a time, so that a slow front end holds no copy of the log.
            begin = place - first
            found = [self._messages[index] for index in range(begin, min(begin + 100, len(self._messages)))]
            return found, place + len(found), bool(found) or not self._closed

    async def follow(
        self, after: str = "", silence: float = KEEP_ALIVE
    ) -> AsyncIterator[BroadcastMessage | None]:
        """Yield the messages after an event, then new ones as they are added, until the log is closed.

        Args:
            after: ID of the last event that the front end has seen; empty for all events.
            silence: Seconds after which None is yielded.
        """
        place = self._place_of(after) if after else 0
        loop = asyncio.get_running_loop()
        news = asyncio.Event()

        def wake() -> None:
            with suppress(RuntimeError):  # the loop of the front end is closed
                loop.call_soon_threadsafe(news.set)

        self._waiting.add(wake)
        try:
            while True:
                news.clear()
                found, place, goes_on = self._following(place)
                for message in found:
                    yield message
                if found:
                    continue
                if not goes_on:
                    return
                try:
                    async with asyncio.timeout(silence):
                        await news.wait()
                except TimeoutError:
                    yield None
        finally:
            self._waiting.discard(wake)


class BroadcastApp:
    """The ASGI application.

    Args:
        log: The events.
        guard: Which requests may pass.
    """

    def __init__(self, log: EventLog, guard: RequestGuard) -> None:
        self._log = log
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        path, headers = scope["path"], [*scope["headers"]]
        if scope["type"] == "websocket":
            await self._socket(scope, headers, receive, send)
            return
        method = scope["method"]
        refused = self._guard.check(method, headers, public=path == HEALTH)
        send = sends_headers(send, self._guard.shares_with(headers))
        if refused is None and method not in {"GET", "HEAD"}:
            refused = GuardAnswer(405, headers=((b"allow", b"GET, HEAD"),))
        if refused is not None:
            await send_answer(send, refused)
        elif path == HEALTH:
            await send_answer(send, GuardAnswer(200, b'{"status": "ok"}'), body=method == "GET")
        elif path == VIEW:
            body = self._log.view().data.encode(errors="replace")
            await send_answer(send, GuardAnswer(200, body), body=method == "GET")
        elif path == EVENTS:
            await self._stream(_after(scope, headers), receive, send, body=method == "GET")
        else:
            await send_answer(send, refusal(404, f"Not found; the events are at {EVENTS}"))

    async def _stream(self, after: str, receive: Receive, send: Send, *, body: bool) -> None:
        told = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": told})
        if body:

            async def write() -> None:
                async for message in self._log.follow(after):
                    data = b": still here\n\n" if message is None else message.as_sse()
                    await send({"type": "http.response.body", "body": data, "more_body": True})

            await _until_gone(write(), receive, "http.disconnect")
        await send({"type": "http.response.body", "body": b""})

    async def _socket(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        await receive()  # `websocket.connect`
        asked = scope["subprotocols"]
        headers += [
            (b"authorization", f"Bearer {name.removeprefix(TOKEN_PROTOCOL)}".encode())
            for name in asked
            if name.startswith(TOKEN_PROTOCOL)
        ]
        refused = self._guard.check("GET", headers, public=False)
        if refused is None and scope["path"] != EVENTS:
            refused = refusal(404, f"Not found; the events are at {EVENTS}")
        if refused is not None:
            told = [*refused.headers, (b"content-type", b"application/json")]
            await send({"type": "websocket.http.response.start", "status": refused.status, "headers": told})
            await send({"type": "websocket.http.response.body", "body": refused.body})
            return
        await send(
            {
                "type": "websocket.accept",
                "subprotocol": PROTOCOL if PROTOCOL in asked else None,
                "headers": [],
            }
        )
        after = _after(scope, headers)

        async def write() -> None:
            async for message in self._log.follow(after):
                if message is not None:  # the server sends pings itself
                    await send({"type": "websocket.send", "text": message.data})
            await send({"type": "websocket.close", "code": 1000})

        await _until_gone(write(), receive, "websocket.disconnect")


async def _until_gone(work: Any, receive: Receive, gone: str) -> None:
    """Run until the work has ended, or the front end has gone. What front ends send is ignored."""

    async def listen() -> None:
        while (await receive())["type"] != gone:
            pass

    tasks = [asyncio.ensure_future(work), asyncio.ensure_future(listen())]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for task in tasks:
        # A front end that goes while something is sent to it is no failure.
        if (
            not task.cancelled()
            and (error := task.exception()) is not None
            and not isinstance(error, OSError)
        ):
            raise error


def _after(scope: Scope, headers: Headers) -> str:
    told = [value.decode("latin-1") for name, value in headers if name == b"last-event-id"]
    asked = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("after", [])
    return (told or asked or [""])[0]


class EventBroadcast:
    """A server that broadcasts events, in a thread of its own.

    Args:
        address: Where to listen, and who may connect.
        say: Prints a line for the user: warnings of the server.

    Attributes:
        url: Address of the events; set once it listens.
    """

    def __init__(self, address: ListenAddress, say: Say) -> None:
        self._address = address.checked()
        self._say = say
        self._log = EventLog()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="toolcrib-broadcast", daemon=True)
        self._stop: Callable[[], object] = lambda: None
        self.url = ""

    def __enter__(self) -> Self:
        """Listen.

        Raises:
            ConfigurationError: The address cannot be listened on or needs a token, or the extra `web` is not installed.
        """
        with imports_of_extra("web", cannot="broadcast events", doing="broadcasting events"):
            import websockets  # noqa: F401, PLC0415 -- an extra; uvicorn would only fail at the first front end

            from toolcrib.serve.http_common import http_server  # noqa: F401, PLC0415 -- as above
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT):
            raise ConfigurationError(f"the broadcast did not begin within {START_TIMEOUT:g} s")
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def add(self, session: str, event: Event) -> None:
        """Broadcast an event. This never waits."""
        self._log.add(session, event)

    def close(self) -> None:
        """Send what is left to the front ends that read, and stop."""
        self._log.close()
        self._stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:  # noqa: BLE001 -- `__enter__` raises it
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        from toolcrib.serve.http_common.http_server import bind_address  # noqa: PLC0415 -- imported by `__enter__`

        bound: BoundAddress = await bind_address(self._address, PAGE_ACCESS)
        for warning in bound.warnings:
            self._say(warning)
        shutdown = Shutdown()
        loop = asyncio.get_running_loop()

        def stop() -> None:
            with suppress(RuntimeError):  # it has stopped by itself
                loop.call_soon_threadsafe(shutdown.ask)

        self._stop = stop
        server = bound.server(BroadcastApp(self._log, bound.guard), self._say, websockets=True)
        async with server.closed_at_last():
            await bound.listen(server, shutdown)
            self.url = bound.url(EVENTS)
            self._ready.set()
            await shutdown.asked.wait()
            server.stop_listening()
