"""Connections over HTTP: how many there may be, and how long a client may take to say what it wants.

uvicorn waits for a request as long as a client likes, whoever it is: what is judged is judged when its head is there.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from toolcrib.serve.mcp.options import Limits

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
)


class Connection(H11Protocol):
    """A connection that is broken off where its client takes too long for the head or the body of a request."""

    def __init__(self, *, limits: Limits, **given: Any) -> None:
        """Wait for requests.

        Args:
            limits: What a client may take.
            given: What uvicorn gives a protocol.
        """
        super().__init__(**given)
        self._limits = limits
        self._awaited: tuple[object, object] | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, if there is room for one more."""
        super().connection_made(transport)
        if len(self.connections) > self._limits.connections:
            transport.write(_FULL)
            transport.close()
        else:
            self._watch()

    def handle_events(self) -> None:
        """Take in what has come, and wait for what comes next."""
        super().handle_events()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._stop()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Set the deadline of what is awaited now, unless it has one: a byte now and then earns no time."""
        state = self.conn.their_state
        if state is h11.SEND_BODY:
            seconds = self._limits.body
        elif state is h11.IDLE and self.timeout_keep_alive_task is None:
            seconds = self._limits.head
        else:  # an answer is being made, or the connection is kept for a while
            self._stop()
            return
        awaited = (state, self.cycle)
        if awaited != self._awaited and not self.transport.is_closing():
            self._stop()
            self._awaited = awaited
            self._deadline = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._awaited = self._deadline = None
