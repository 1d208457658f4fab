"""The numbers of calls: how often a session has called a tool."""

from __future__ import annotations

from collections import OrderedDict

from toolcrib.core.model import Call
from toolcrib.core.protocols import Session

MOST = 10_000
"""Calls of one tool whose numbers are known; of more the latest."""


class Numbers:
    """The calls of one tool in one session.

    A call keeps its number for as long as fewer than `MOST` others of its tool have begun since.

    Attributes:
        calls: How many there were; attempts and deliveries of one call count once.
    """

    __slots__ = ("_known", "calls")

    def __init__(self) -> None:
        self.calls = 0
        self._known: OrderedDict[str, int] = OrderedDict()

    def of(self, call: Call) -> int:
        """The number of a call, from 1; given at its first attempt that arrives."""
        number = self._known.get(call.id)
        if number is None:
            self.calls += 1
            number = self._known[call.id] = self.calls
            if len(self._known) > MOST:
                self._known.popitem(last=False)
        return number

    def would_be(self, call: Call) -> int:
        """The number that a call has, or would be given now."""
        return self._known.get(call.id, self.calls + 1)


def numbers_of(session: Session, tool: str) -> Numbers:
    """The calls of a tool in a session, as those count that let faults happen."""
    return session.slot(f"calls of {tool}", Numbers)
