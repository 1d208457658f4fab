"""Connections over HTTP: how long a client may take to say what it wants.

uvicorn waits for a request as long as a client likes, whoever it is: what is judged is judged when its head is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from toolcrib.serve.mcp.options import Limits


class Connection(H11Protocol):
    """A connection that is broken off where its client takes too long for the head or the body of a request.

    Attributes:
        peer: Address of the client.
        waits_since: When it began to wait for its client, on the clock of the loop: for TLS, for a request or for
            the rest of one. None while a request is answered.
    """

    def __init__(
        self, *, limits: Limits, peer: str, ended: Callable[[Connection], None], **given: Any
    ) -> None:
        """Wait for requests.

        Args:
            limits: What a client may take.
            peer: Address of the client.
            ended: Is called once nothing is left of the connection.
            given: What uvicorn gives a protocol.
        """
        super().__init__(**given)
        self.peer = peer
        self.waits_since: float | None = self.loop.time()
        self._limits = limits
        self._ended = ended
        self._awaited: tuple[object, object, bool] | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._watch()

    def handle_events(self) -> None:
        """Take in what has come, and wait for what comes next."""
        super().handle_events()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._stop()
        self._ended(self)
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Set the deadline of what is awaited now, unless it has one: a byte now and then earns no time."""
        state = self.conn.their_state
        kept = self.timeout_keep_alive_task is not None  # uvicorn ends it where nothing comes
        awaited = (state, self.cycle, kept) if state in {h11.IDLE, h11.SEND_BODY} else None
        if awaited == self._awaited or self.transport.is_closing():
            return
        self._stop()
        self._awaited = awaited
        if awaited is not None:
            self.waits_since = self.loop.time()
        if state is h11.SEND_BODY:
            self._deadline = self.loop.call_later(self._limits.body, self.transport.abort)
        elif state is h11.IDLE and not kept:
            self._deadline = self.loop.call_later(self._limits.head, self.transport.abort)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._awaited = self._deadline = self.waits_since = None
