"""The sessions of handshake revisions over HTTP: which are idle, and which one ends to make room for a new one.

The SDK refuses a new session while it has as many as it may. Its own limit stays: what is known here is what passes
through the application, and a session ends the way in which a client ends it (DELETE), so no part of the SDK is changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

IDLE: Final = 30 * 60.0
"""Minimum time until an unused session of a handshake revision ends, in seconds."""

SESSION_HEADER: Final = b"mcp-session-id"

UNSEEN: Final = 3 * 60.0
"""Seconds during which requests of a session may pass the SDK by."""

UNUSED: Final = IDLE + UNSEEN
"""Seconds after the last request that the SDK has seen until it ends the session."""

_FORGOTTEN: Final = UNUSED + 60.0
"""Seconds after which a session was surely ended by the SDK, which reports no end."""


class _Session:
    __slots__ = ("busy", "seen", "since", "user")

    def __init__(self, since: float, user: object) -> None:
        self.busy = 1
        self.seen = self.since = since
        self.user = user


class OpenSessions:
    """The open sessions, the longest idle one first."""

    def __init__(
        self, most: int, end: Callable[[bytes, object], Awaitable[None]], now: Callable[[], float]
    ) -> None:
        """Know no session yet.

        Args:
            most: Maximum number of sessions.
            end: Ends a session, given its ID and the user that opened it.
            now: The time in seconds.
        """
        self._most = most
        self._end = end
        self._now = now
        self._known: dict[bytes, _Session] = {}
        self._opening = 0

    @contextmanager
    def in_use(self, session: bytes) -> Iterator[None]:
        """A request of a session: the session does not end for another one meanwhile."""
        kept = self._known.get(session)
        # IDs are written by clients: one that no session has is not remembered.
        if kept is None:
            yield
            return
        kept.busy += 1
        try:
            yield
        finally:
            kept.seen = self._now()
            self._release(session, kept)

    def passes_by(self, session: bytes, user: object) -> bool:
        """Whether a request of a session needs not be shown to the SDK. It then counts as the last use of the session.

        The SDK sees one request in `UNSEEN` seconds, or it would end the session, and all requests of other users, to
        refuse them.
        """
        kept = self._known.get(session)
        now = self._now()
        if kept is None or kept.user is not user or now - kept.seen > UNSEEN:
            return False
        if not kept.busy:
            self._known[session] = self._known.pop(session)
            kept.since = now
        return True

    @contextmanager
    def opening(self, user: object) -> Iterator[Callable[[bytes], None]]:
        """A request of a user that may open a session, and counts like one; call the result with the ID of the session."""
        opened: list[tuple[bytes, _Session]] = []

        def told(session: bytes) -> None:
            if not opened:
                opened.append((session, self._opened(session, user)))
                self._opening -= 1

        self._opening += 1
        try:
            yield told
        finally:
            if opened:
                self._release(*opened[0])
            else:
                self._opening -= 1

    async def make_room(self) -> None:
        """End idle sessions until there is room for those that are being opened; busy ones stay."""
        while len(self._known) + self._opening > self._most:
            idle = next((session for session, kept in self._known.items() if not kept.busy), None)
            if idle is None:
                return
            await self._end(idle, self._known.pop(idle).user)

    def ended(self, session: bytes) -> None:
        """A session does not exist any more."""
        self._known.pop(session, None)

    def _opened(self, session: bytes, user: object) -> _Session:
        now = self._now()
        # Otherwise the ones that the SDK has ended would be remembered until there are too many.
        for old, kept in [*self._known.items()]:
            if kept.busy or kept.since > now - _FORGOTTEN:
                break
            del self._known[old]
        kept = self._known[session] = _Session(now, user)
        return kept

    def _release(self, session: bytes, kept: _Session) -> None:
        kept.busy -= 1
        if not kept.busy and self._known.pop(session, None) is not None:
            kept.since = self._now()
            self._known[session] = kept


def ending_scope(path: str, session: bytes, user: object) -> dict[str, Any]:
    """The ASGI scope of a request that ends a session."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "DELETE",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(SESSION_HEADER, session)],
        "client": None,
        "server": None,
    }
    # The SDK lets only the user that opened a session end it.
    return scope if user is None else {**scope, "user": user}
