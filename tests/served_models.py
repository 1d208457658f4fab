"""Services of models on loopback that say exactly what a test writes down.

async with speaking("openai", events({...}, {...}, "[DONE]")) as (provider, server):
    deltas = await said(provider, Request(...))
"""

from __future__ import annotations

import json
import socket
import struct
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from http_servers import Handler, Head, Server, serving
from toolcrib.provider import Message, Request, user
from toolcrib.provider.models.assembler import Assembler
from toolcrib.provider.models.installed_providers import open_provider
from toolcrib.security.egress import EgressGuard
from toolcrib.security.secrets import SecretResolver
from toolcrib.servers.environment import NetworkEnvironment

PATHS = {"openai": "/v1", "openai_responses": "/v1", "anthropic": ""}
ASKED = Request((user("hello"),), streaming=True)


class Waiting:
    """A clock that notes what is waited for, and does not wait."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self._outside = 0

    async def sleep(self, seconds: float) -> None:
        assert self._outside, "virtual time would jump"
        self.waits.append(seconds)

    @contextmanager
    def outside(self) -> Iterator[None]:
        self._outside += 1
        yield
        self._outside -= 1


@asynccontextmanager
async def speaking(
    name: str, handler: Handler, *, environment: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[tuple[Any, Server]]:
    """A provider, and the server that it speaks to."""
    async with serving(handler) as server:
        world = NetworkEnvironment(
            EgressGuard([f"127.0.0.1:{server.port}"]), SecretResolver(environment or {})
        )
        given = {"model": "m-1", "base_url": server.origin + PATHS[name], "world": world, "attempts": 1}
        provider = open_provider(name, **{**given, **options})
        try:
            yield provider, server
        finally:
            await provider.aclose()  # type: ignore[attr-defined]


EVENT_STREAM = "text/event-stream; charset=utf-8"


def in_chunks(
    chunks: Iterable[bytes], *, ended: bool = True, status: int = 200, kind: str | None = EVENT_STREAM
) -> Handler:
    """A handler that sends an event stream in these pieces, and hangs up in its middle unless it is `ended`."""
    told = "" if kind is None else f"Content-Type: {kind}\r\n"
    head = f"HTTP/1.1 {status} Well\r\n{told}Transfer-Encoding: chunked\r\n\r\n".encode()
    listed = list(chunks)

    async def answer(_reader: StreamReader, writer: StreamWriter, _head: Head) -> None:
        writer.write(head)
        for chunk in listed:
            writer.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            await writer.drain()
        if ended:
            writer.write(b"0\r\n\r\n")
        else:
            writer.close()

    return answer


def text_of(*events: Any, named: bool = False) -> bytes:
    """An event stream: JSON values, texts as they are; with their types as names of the events where it is `named`."""
    told = []
    for event in events:
        if named:
            told.append(f"event: {event['type']}\n")
        told.append(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n")
    return "".join(told).encode()


def events(*told: Any, named: bool = False, ended: bool = True) -> Handler:
    """A handler that sends events, each in a piece of its own."""
    return in_chunks([text_of(event, named=named) for event in told], ended=ended)


def resetting(raw: bytes) -> Handler:
    """A handler that writes these bytes, waits until they are sent, and resets the connection."""

    async def answer(_reader: StreamReader, writer: StreamWriter, _head: Head) -> None:
        writer.write(raw)
        await writer.drain()
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()

    return answer


async def said(provider: Any, request: Request = ASKED) -> list[Any]:
    """Every delta of an answer."""
    return [delta async for delta in provider.respond(request)]


async def message(provider: Any, request: Request = ASKED) -> Message:
    """The message that an answer is."""
    assembler = Assembler()
    for delta in await said(provider, request):
        list(assembler.add(delta))
    assert assembler.finish is not None
    return Message("assistant", assembler.parts())
