"""A WebSocket of a front end, which counts among the connections of the server until it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket.

    Args:
        ended: Called once the connection is closed.
        given: uvicorn's own arguments for a protocol.
    """

    def __init__(self, *, ended: Callable[[], None], **given: Any) -> None:
        super().__init__(**given)
        self._ended = ended

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._ended()
        super().connection_lost(exc)
