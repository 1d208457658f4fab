"""How long a server may be silent within a call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from toolcrib.servers.mcp.failures import Silent


class Patience:
    """How long a server may be silent within a call; it is not silent while it waits for an answer of ours.

    Args:
        seconds: How long; 0 for any time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timers: set[asyncio.Timeout] = set()
        self._quiet = 0

    async def bear(
        self, exchange: Callable[[Callable[[], None] | None], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        """Wait for an exchange, which is given what to call whenever something is heard.

        Raises:
            Silent: Nothing was heard for too long.
        """
        if not self._seconds:
            return await exchange(None)
        timer = asyncio.timeout(self._seconds)
        try:
            async with timer:
                self._timers.add(timer)
                answer = await exchange(lambda: self._wind(timer))
        except TimeoutError:
            if timer.expired():
                raise Silent from None
            raise
        finally:
            self._timers.discard(timer)
        return answer

    def quiet(self) -> _Quiet:
        """Within, it is us who let the server wait."""
        return _Quiet(self)

    def hold(self, by: int) -> None:
        """More or fewer answers are waited for."""
        self._quiet += by
        for timer in self._timers:
            self._wind(timer)

    def _wind(self, timer: asyncio.Timeout) -> None:
        with suppress(RuntimeError):  # it has expired, or is over
            when = None if self._quiet else asyncio.get_running_loop().time() + self._seconds
            timer.reschedule(when)


class _Quiet:
    def __init__(self, patience: Patience) -> None:
        self._patience = patience

    def __enter__(self) -> None:
        self._patience.hold(1)

    def __exit__(self, *_error: object) -> None:
        self._patience.hold(-1)
