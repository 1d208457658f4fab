"""Exchanges with loopback servers in tests: the HTTP client, behind a real guard, and a count of what is left afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from http_servers import Server
from toolcrib.http import ExchangeBounds, HTTPRequest, HTTPResponse, open_client
from toolcrib.http.client import HTTPClient
from toolcrib.security.egress import EgressGuard

DEFAULT = ExchangeBounds()
ASKED: Any = {"method": "GET", "target": "/", "headers": (), "body": b""}


class Sending:
    """A client that knows its server; called, it makes one exchange."""

    def __init__(self, sender: HTTPClient, server: Server | None, host: str) -> None:
        self.sender = sender
        self._server = server
        self._host = host

    def request(self, **asked: Any) -> HTTPRequest:
        """A request to the server, `GET /` unless something else is asked."""
        known = {"host": self._host}
        if self._server is not None:
            known |= {"scheme": self._server.scheme, "port": self._server.port}
        return HTTPRequest(**(ASKED | known | asked))

    async def __call__(
        self,
        *,
        bounds: ExchangeBounds = DEFAULT,
        owner: str = "owner",
        repeatable: bool = False,
        **asked: Any,
    ) -> HTTPResponse:
        request = self.request(**asked)
        hosts = (request.host,)
        return await self.sender.send(request, bounds, hosts=hosts, owner=owner, repeatable=repeatable)


@asynccontextmanager
async def sending(
    server: Server | None = None,
    *,
    host: str = "127.0.0.1",
    allow: Iterable[str] = (),
    **guard: Any,
) -> AsyncIterator[Sending]:
    """A client whose guard lets it reach a server; at the end nothing of it may be left."""
    before = left()
    shown = f"[{host}]" if ":" in host else host
    entries = [*allow, f"{shown}:{server.port}"] if server is not None else list(allow)
    sender = open_client(EgressGuard(entries, **guard))
    yield Sending(sender, server, host)
    await sender.aclose()
    if server is not None:
        await server.all_closed()
    await settled(lambda: left() == before)
    assert left() == before


def left() -> tuple[int, int]:
    """How many tasks and open files there are."""
    return len(asyncio.all_tasks()), len(list(Path("/proc/self/fd").iterdir()))


async def settled(done: Callable[[], bool], turns: int = 100) -> None:
    """Give the loop some turns, until something is so."""
    for _ in range(turns):
        if done():
            return
        await turn()


async def turn() -> None:
    """Let the loop look at its sockets once."""
    loop = asyncio.get_running_loop()
    turned: asyncio.Future[None] = loop.create_future()
    loop.call_soon(turned.set_result, None)
    await turned


def resolving(**names: str) -> Callable[[str, int], Awaitable[list[str]]]:
    """A resolver that knows names, written with `_` for each dot, and no others."""

    async def resolve(name: str, _port: int) -> list[str]:
        try:
            return [names[name.replace(".", "_")]]
        except KeyError:
            raise OSError(f"no {name}") from None

    return resolve
