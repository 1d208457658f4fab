"""Bytes that were encoded long ago, put into messages that are encoded now.

A page of `tools/list` is the same for every client until the registry changes. The SDK would make objects of all its
tools, check them, and encode them again for each request. So the result that passes through the SDK has one text in
place of the tools, and when its bytes leave us that text is exchanged for the page. The SDK still does all that it
does around a result, and nothing of it is rebuilt here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from secrets import token_hex
from typing import Any, TypeAlias

Message: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

KEY = "toolcrib.splices"
"""Where the scope of an HTTP request holds its `Splices`."""


class Splices:
    """Texts that stand for bytes until they leave. Each is used once, and nobody can guess one."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: dict[bytes, bytes] = {}

    def __bool__(self) -> bool:
        return bool(self._pages)

    def put(self, page: bytes) -> str:
        """A text to write, as a JSON string, where these bytes shall be."""
        token = f"page-{token_hex(16)}"
        self._pages[f'"{token}"'.encode()] = page
        return token

    def into(self, data: bytes) -> bytes:
        """The encoded message, with the bytes where their texts stood."""
        for token in [token for token in self._pages if token in data]:
            data = data.replace(token, self._pages.pop(token), 1)
        return data


def splicing(send: Send, splices: Splices) -> Send:
    """An ASGI `send` that puts the bytes in, in a JSON body (then its length is told anew) as in an event."""
    held: list[Message] = []

    async def spliced(message: Message) -> None:
        if not splices and not held:
            await send(message)
        elif message["type"] == "http.response.start":
            # A body of known length follows at once, and of events nobody says how long they will be.
            if _has_length(message):
                held.append(message)
            else:
                await send(message)
        elif message["type"] == "http.response.body":
            body = splices.into(message.get("body", b""))
            while held:
                await send(_with_length(held.pop(), len(body)))
            await send({**message, "body": body})
        else:
            await send(message)

    return spliced


def _has_length(start: Message) -> bool:
    return any(name == b"content-length" for name, _value in start["headers"])


def _with_length(start: Message, length: int) -> Message:
    told = [(name, value) for name, value in start["headers"] if name != b"content-length"]
    return {**start, "headers": [*told, (b"content-length", str(length).encode())]}
