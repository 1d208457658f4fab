"""The numbers of calls: how often a session has called a tool."""

from __future__ import annotations

from toolcrib.model import Call
from toolcrib.protocols import Session


class Numbers:
    """The calls of one tool in one session.

    Attributes:
        calls: How many there were; attempts and deliveries of one call count once.
    """

    __slots__ = ("_known", "calls")

    def __init__(self) -> None:
        self.calls = 0
        self._known: dict[str, int] = {}

    def of(self, call: Call) -> int:
        """The number of a call, from 1; given at its first attempt that arrives."""
        number = self._known.get(call.id)
        if number is None:
            self.calls += 1
            number = self._known[call.id] = self.calls
        return number

    def would_be(self, call: Call) -> int:
        """The number that a call has, or would be given now."""
        return self._known.get(call.id, self.calls + 1)


def numbers_of(session: Session, tool: str) -> Numbers:
    """The calls of a tool in a session, as those count that let faults happen."""
    return session.slot(f"calls of {tool}", Numbers)
