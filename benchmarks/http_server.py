"""A minimal HTTP/1.1 server on loopback, in its own process: the same response to every GET, with keep-alive.

It prints its port and ends with its input. Besides `/v1/forecast` (and every other path) there are:

- `/silent`: no response
- `/half`: the headers and half of the body
- `/late`: a list of many texts, after `LATE_AFTER` seconds
- `/large`: a list of objects of 1 KiB, `LARGE_SIZE` bytes in all
- `/told`: how many connections are open, and the number of requests to the two above; this one is not counted

    python benchmarks/http_server.py
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import cast

ANSWER = {"city": "Lisbon", "days": 3, "temp": 18.5}

LATE_ITEMS = 200_000
LATE_AFTER = 0.97

LARGE_SIZE = 8 << 20

_END = b"\r\n\r\n"


def _response(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


_WHOLE = _response(json.dumps(ANSWER).encode())
_HALF = _WHOLE[:-20]
_LATE = _response(json.dumps(["a"] * LATE_ITEMS, separators=(",", ":")).encode())
_ITEM = {**ANSWER, "text": "a" * (1022 - len(json.dumps({**ANSWER, "text": ""})))}
_LARGE = _response(json.dumps([_ITEM] * (LARGE_SIZE // 1024)).encode())


class Told:
    """Open connections and held requests."""

    def __init__(self) -> None:
        self.open = 0
        self.held = 0


class Connection(asyncio.Protocol):
    """One connection. Requests have no bodies."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._pending = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._told.open += 1
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._told.open -= 1

    def data_received(self, data: bytes) -> None:
        *requests, self._pending = (self._pending + data).split(_END)
        for request in requests:
            if request.startswith(b"GET /late"):
                asyncio.get_running_loop().call_later(LATE_AFTER, self._transport.write, _LATE)
            else:
                self._transport.write(self._answer(request))

    def _answer(self, request: bytes) -> bytes:
        if request.startswith((b"GET /silent", b"GET /half")):
            self._told.held += 1
            return _HALF if request.startswith(b"GET /half") else b""
        if request.startswith(b"GET /large"):
            return _LARGE
        if request.startswith(b"GET /told"):
            return _response(json.dumps({"open": self._told.open - 1, "held": self._told.held}).encode())
        return _WHOLE


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(Connection, Told()), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)
    server.close()


@contextmanager
def serving(python: str | Path = sys.executable) -> Iterator[int]:
    """A running server: its port. With uvloop in `python`, the server takes a smaller part of the time."""
    with subprocess.Popen(
        [str(python), __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate()


if __name__ == "__main__":
    if find_spec("uvloop"):
        import_module("uvloop").install()
    asyncio.run(_serve())
