"""Access tokens: fetched once for everybody who needs them, kept while they last."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, NamedTuple

from toolcrib.core.protocols import Clock

_MARGIN = 30.0
"""Seconds before its end from which on a token is replaced; of short-lived tokens the last tenth."""

_MOST_CLOCKS = 64


class Token(NamedTuple):
    """What a token server gave.

    Attributes:
        value: The access token.
        lifetime: Seconds that it lasts, from when it was asked for; None where nobody said.
        refresh_token: The one that takes the place of the one that was used; empty for none.
    """

    value: str
    lifetime: float | None = None
    refresh_token: str = ""

    def __repr__(self) -> str:
        return f"Token(lifetime={self.lifetime})"


Ask = Callable[[str], Coroutine[Any, Any, Token]]
"""Asks for a token, with the refresh token that is good now."""


class _Flight:
    """A request for a token that is under way, and how many wait for it."""

    def __init__(self, asking: Coroutine[Any, Any, Token]) -> None:
        # In a context of its own: it is no part of the call that happened to come first, and may outlive it.
        self.task = asyncio.get_running_loop().create_task(asking, context=Context())
        self.waiting = 0

    def can_be_joined(self) -> bool:
        """Whether it goes on in the running event loop."""
        return not self.task.done() and self.task.get_loop() is asyncio.get_running_loop()


class Account:
    """One identity at one token server, and the token it has now."""

    def __init__(self, refresh_token: str) -> None:
        self._refresh_token = refresh_token
        self._token: Token | None = None
        self._ends: dict[Callable[[], float], float] = {}
        self._flight: _Flight | None = None

    async def token(self, clock: Clock, ask: Ask) -> str:
        """The token to use now. Everybody who needs a new one at the same time waits for the same request.

        Whatever `ask` raises is raised for each of them. A caller that is cancelled leaves the others waiting;
        with the last one the request is cancelled.
        """
        token = self._token
        if token is not None and self._lasts(token, clock):
            return token.value
        flight = self._flight
        if flight is None or not flight.can_be_joined():
            flight = self._flight = _Flight(self._asked(clock, ask))
        flight.waiting += 1
        try:
            with clock.outside():
                return (await asyncio.shield(flight.task)).value
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                await self._given_up(flight)

    def refuse(self, value: str) -> None:
        """Do not give this token again."""
        if self._token is not None and self._token.value == value:
            self._token = None

    async def _asked(self, clock: Clock, ask: Ask) -> Token:
        began = clock.monotonic()
        token = await ask(self._refresh_token)
        self._refresh_token = token.refresh_token or self._refresh_token
        self._token = token
        self._ends = {} if token.lifetime is None else {clock.monotonic: began + _usable(token.lifetime)}
        return token

    async def _given_up(self, flight: _Flight) -> None:
        if self._flight is flight:
            self._flight = None
        flight.task.cancel()
        await asyncio.wait([flight.task])

    def _lasts(self, token: Token, clock: Clock) -> bool:
        """Whether a token lasts, by this clock; on a clock that has not seen it before, its whole life begins."""
        if token.lifetime is None:
            return True
        now = clock.monotonic
        if now not in self._ends:
            if len(self._ends) == _MOST_CLOCKS:
                self._ends.clear()
            self._ends[now] = now() + _usable(token.lifetime)
        return now() < self._ends[now]


def _usable(lifetime: float) -> float:
    return lifetime - min(_MARGIN, lifetime / 10)


class Tokens:
    """The accounts of an executor: tools with the same credentials share their tokens."""

    def __init__(self) -> None:
        self._accounts: dict[tuple[object, ...], Account] = {}

    def account(self, identity: tuple[object, ...], refresh_token: str = "") -> Account:
        """The account of an identity: token address, client, scopes and everything else that tells it from others."""
        return self._accounts.setdefault((*identity, refresh_token), Account(refresh_token))
