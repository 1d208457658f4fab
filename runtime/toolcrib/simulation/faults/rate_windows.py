"""How many attempts an injected limit lets through in any stretch of time."""

from __future__ import annotations

import math
from collections import deque

from toolcrib.core.clock import format_duration
from toolcrib.core.model import JSON, Descriptor, Outcome, Result

_NEARLY = 1e-6
"""Seconds that are no wait: clocks count in whole nanoseconds."""


class Window:
    """The attempts that were let through of late.

    Args:
        limit: How many may be, in any stretch of `per` seconds.
        per: Seconds.
    """

    __slots__ = ("_limit", "_per", "_times")

    def __init__(self, limit: int, per: float) -> None:
        self._limit = limit
        self._per = per
        self._times: deque[float] = deque(maxlen=limit)

    def wait(self, now: float) -> float:
        """Seconds until one more is let through; 0.0 for now."""
        if len(self._times) < self._limit:
            return 0.0
        left = self._times[0] + self._per - now
        return left if left > _NEARLY else 0.0

    def note(self, now: float) -> None:
        """One is let through."""
        self._times.append(now)


def refused(tool: Descriptor, limit: int, per: str, wait: float) -> Result:
    """The answer to an attempt above the limit."""
    seconds = math.ceil(wait * 1000) / 1000
    details: dict[str, JSON] = {"status": 429, "retry_after": seconds}
    return Result.failed(
        Outcome.TOOL_ERROR,
        f"`{tool.name}` takes {limit} call{'s' if limit != 1 else ''} in {per}; retry after {format_duration(seconds)}",
        code="rate_limited",
        details=details,
        retryable=True,
    )
