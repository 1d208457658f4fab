"""Schemes whose credential is the same for every call: apiKey, http basic, http bearer."""

from __future__ import annotations

from base64 import b64encode
from typing import TypeAlias

from toolcrib.core.protocols import Clock
from toolcrib.http.auth.credentials import Fields
from toolcrib.http.auth.scheme import Fetch
from toolcrib.http.request_builder import Draft
from toolcrib.security.redaction import HIDDEN

Spot: TypeAlias = tuple[str, str]
"""Where a credential goes: (`header`, `query` or `cookie`, its name; of a header in lower case)."""


class Fixed:
    """One credential at one place.

    Attributes:
        spot: Where it goes.
        hosts: None.
    """

    hosts: tuple[str, ...] = ()

    def __init__(self, where: str, name: str, value: str, shown: str = HIDDEN) -> None:
        self.spot: Spot = (where, name.lower() if where == "header" else name)
        self._name = name
        self._value = value
        self._shown = shown

    async def apply(self, draft: Draft, clock: Clock, fetch: Fetch) -> None:  # noqa: ARG002 -- needs neither
        """Add it."""
        self._put(draft, self._value)

    def show(self, draft: Draft) -> None:
        """Add it, masked."""
        if self.spot[0] == "query":
            draft.set_query(self._name, "")
            draft.query[-1] += self._shown
        else:
            self._put(draft, self._shown)

    async def renewed(self, clock: Clock, fetch: Fetch, used: Draft | None = None) -> bool:  # noqa: ARG002 -- as above
        """There is nothing else to try."""
        return False

    def _put(self, draft: Draft, value: str) -> None:
        where = self.spot[0]
        if where == "header":
            set_header(draft, self._name, value)
        elif where == "query":
            draft.set_query(self._name, value)
        else:
            start = f"{self._name}="
            draft.cookies = [piece for piece in draft.cookies if not piece.startswith(start)]
            draft.cookies.append(start + value)


def set_header(draft: Draft, name: str, value: str) -> None:
    """Put a header that is a credential in place of those of the same name."""
    lower = name.lower()
    draft.headers = [header for header in draft.headers if header[0].lower() != lower]
    draft.headers.append((name, value))


def api_key(fields: Fields) -> Fixed:
    """`{type: apiKey, in: header|query|cookie, name, value}`: the value as it is.

    Raises:
        MissingSecret: It is not there, or can't be sent.
    """
    where = fields.choice("in")
    value = fields.secret("value", where)  # type: ignore[arg-type] # the schema has no others
    return Fixed(where, fields.choice("name"), value)


def bearer(fields: Fields) -> Fixed:
    """`{type: http, scheme: bearer, token}` (RFC 6750 section 2.1).

    Raises:
        MissingSecret: The token is not there, or can't be sent.
    """
    return Fixed("header", "Authorization", f"Bearer {fields.secret('token', 'header')}", f"Bearer {HIDDEN}")


def basic(fields: Fields) -> Fixed:
    """`{type: http, scheme: basic, username, password}` (RFC 7617), as UTF-8. The password may be empty.

    Raises:
        MissingSecret: One of them is not there, or can't be sent.
    """
    username = fields.text("username", "basic")
    password = fields.secret("password", "form", blank=True)
    return Fixed("header", "Authorization", basic_header(fields, username, password), f"Basic {HIDDEN}")


def basic_header(fields: Fields, username: str, password: str) -> str:
    """The value of `Authorization` for a user name and password; both together are registered."""
    both = f"{username}:{password}"
    if fields.vault is not None and len(both) > 1:
        fields.vault.register(both)
    return f"Basic {b64encode(both.encode()).decode()}"
