"""What every scheme of authentication must be, and how one fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol, TypeAlias

from toolcrib.core.model import JSON, NOTHING
from toolcrib.core.protocols import Clock
from toolcrib.http import Request, Response
from toolcrib.http.request_builder import Draft

Fetch: TypeAlias = Callable[[Request], Awaitable[Response]]
"""An exchange through the egress guard. Raises HTTPError and EgressRefused."""


class AuthFailed(Exception):
    """No credential could be had for a call, so the call was not made. Nothing in it is secret.

    Attributes:
        message: What failed, and the way out.
        retryable: Whether it may work later.
        details: Facts: `token_url`, `status`, `error`, `retry_after` (seconds), `hook` ...
    """

    def __init__(
        self, message: str, *, retryable: bool = False, details: Mapping[str, JSON] = NOTHING
    ) -> None:
        super().__init__(message)
        self.message = message
        self.retryable = retryable
        self.details = details


class Auth(Protocol):
    """A compiled `auth`: what proves who sends the requests of a tool.

    Attributes:
        hosts: The hosts that it asks for tokens.
    """

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that it asks for tokens."""
        ...

    async def apply(self, draft: Draft, clock: Clock, fetch: Fetch) -> None:
        """Add what proves it, in place of what has the same name.

        Raises:
            AuthFailed: There is nothing to add.
            EgressRefused: The guard refused the address of the tokens.
        """
        ...

    def show(self, draft: Draft) -> None:
        """Add what `apply` would add, with `***` for what is secret. Nothing is asked for."""
        ...

    async def renewed(self, clock: Clock, fetch: Fetch, used: Draft | None = None) -> bool:
        """After status 401: whether there is something new to try.

        Args:
            clock: The call's time.
            fetch: Makes an exchange.
            used: The draft that was refused. What it had is not given again, and what somebody else has had
                renewed since then is taken as it is.

        Raises:
            AuthFailed: Something new could not be had.
            EgressRefused: As for `apply`.
        """
        ...
