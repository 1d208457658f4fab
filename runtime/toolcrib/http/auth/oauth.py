"""OAuth 2.0 without user interaction: client credentials and refresh tokens (RFC 6749 sections 4.4 and 6).

Tokens are cached until they expire; concurrent callers share one token request.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus, urlencode, urlsplit

from toolcrib.core.model import JSON
from toolcrib.core.protocols import Clock
from toolcrib.core.text import DuplicateKey, decode_json
from toolcrib.http import HTTPError, HTTPFailure, HTTPRequest, HTTPResponse
from toolcrib.http.auth.credentials import STAND_IN, AuthFields
from toolcrib.http.auth.schemes import AuthFailure, Fetch, Spot, basic_header, set_header
from toolcrib.http.headers import seconds_to_wait
from toolcrib.http.messages import DEFAULT_PORTS, RequestDraft
from toolcrib.security.egress import is_loopback
from toolcrib.security.redaction import HIDDEN, is_secret_name
from toolcrib.security.secrets import SecretResolver


class TokenEndpoint(NamedTuple):
    """A token URL.

    Attributes:
        scheme: `http` or `https`.
        host: Lower case, without brackets.
        port: The port.
        target: Path and query.
    """

    scheme: str
    host: str
    port: int
    target: str

    @property
    def shown(self) -> str:
        """The URL without its query, which may be secret."""
        return HTTPRequest("POST", self.scheme, self.host, self.port, self.target.partition("?")[0]).url


def parse_token_endpoint(text: str) -> TokenEndpoint | None:
    """Parse a token URL; None if it is invalid or has a user name or a fragment."""
    fit = text.isascii() and text.isprintable() and not any(each in text for each in ' "<>\\^`{|}#')
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not fit or parts.scheme not in DEFAULT_PORTS or not host or "@" in parts.netloc or port == 0:
        return None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return TokenEndpoint(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], target)


_MARGIN = 30.0
"""A token is replaced this many seconds before it expires, or in the last tenth of a shorter lifetime."""

# Scenarios run on clocks of their own. The bound keeps a long test run from collecting one entry per
# scenario.
_MOST_CLOCKS = 64


class Token(NamedTuple):
    """The response of a token server.

    Attributes:
        value: The access token.
        lifetime: Seconds from the request until it expires; None if not stated.
        refresh_token: Replaces the refresh token that was used; empty for none.
    """

    value: str
    lifetime: float | None = None
    refresh_token: str = ""

    def __repr__(self) -> str:
        return f"Token(lifetime={self.lifetime})"


Ask = Callable[[str], Coroutine[Any, Any, Token]]
"""Requests a token with the current refresh token."""


class _Flight:
    """A pending token request, and how many callers wait for it."""

    def __init__(self, asking: Coroutine[Any, Any, Token]) -> None:
        # A fresh context: the request does not belong to the call that happened to start it, and may outlive
        # it.
        self.task = asyncio.get_running_loop().create_task(asking, context=Context())
        self.waiting = 0

    def can_be_joined(self) -> bool:
        """Whether it is pending in the running event loop."""
        # A task of another loop cannot be awaited here.
        return not self.task.done() and self.task.get_loop() is asyncio.get_running_loop()


class TokenAccount:
    """One client identity at one token server, with its current token."""

    def __init__(self, refresh_token: str) -> None:
        self._refresh_token = refresh_token
        self._token: Token | None = None
        self._ends: dict[Callable[[], float], float] = {}
        self._flight: _Flight | None = None

    async def token(self, clock: Clock, ask: Ask) -> str:
        """The current token. Concurrent callers that need a new one wait for the same request.

        An exception of `ask` is raised for each of them. Cancelling one caller does not affect the others;
        cancelling the last one cancels the request.
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
                # Shielded, so that cancelling one caller does not cancel the request for the others.
                return (await asyncio.shield(flight.task)).value
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                await self._given_up(flight)

    def refuse(self, value: str) -> None:
        """Drop this token if it is still the current one."""
        # Another task may have renewed it already; its token must survive.
        if self._token is not None and self._token.value == value:
            self._token = None

    async def _asked(self, clock: Clock, ask: Ask) -> Token:
        # The lifetime counts from before the request, so a slow response cannot extend it.
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
        """Whether a token is still valid by this clock."""
        if token.lifetime is None:
            return True
        # Clocks are not comparable (scenarios run on virtual ones): on a new clock the full lifetime starts
        # over.
        now = clock.monotonic
        if now not in self._ends:
            if len(self._ends) == _MOST_CLOCKS:
                self._ends.clear()
            self._ends[now] = now() + _usable(token.lifetime)
        return now() < self._ends[now]


def _usable(lifetime: float) -> float:
    return lifetime - min(_MARGIN, lifetime / 10)


class TokenCache:
    """Token accounts: tools with equal credentials share their tokens."""

    def __init__(self) -> None:
        self._accounts: dict[tuple[object, ...], TokenAccount] = {}

    def account(self, identity: tuple[object, ...], refresh_token: str = "") -> TokenAccount:
        """The account of an identity: token URL, client, scopes and all else that is sent to the token server."""
        return self._accounts.setdefault((*identity, refresh_token), TokenAccount(refresh_token))


_HINTS: Final = {
    "invalid_client": "check `client_id` and `client_secret`, and whether the server requires `client_auth: body`",
    "invalid_grant": "the refresh token is no longer valid; get a new one",
    "invalid_scope": "check `scopes`",
    "unauthorized_client": "this client may not use this `flow`",
    "unsupported_grant_type": "the server does not offer this `flow`",
}
"""Error code of RFC 6749 section 5.2 -> hint."""

_CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,59}")
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_PASSING: Final = frozenset(
    {
        HTTPFailure.CONNECT_FAILED,
        HTTPFailure.CONNECT_TIMEOUT,
        HTTPFailure.WRITE_FAILED,
        HTTPFailure.READ_TIMEOUT,
        HTTPFailure.CONNECTION_BROKEN,
    }
)
_MOST_SECRETS: Final = 16


class Grant:
    """The fixed part of a token request, without the refresh token.

    Attributes:
        address: The token URL.
    """

    def __init__(
        self, address: TokenEndpoint, headers: tuple[tuple[str, str], ...], form: tuple[tuple[str, str], ...]
    ) -> None:
        self.address = address
        self._headers = headers
        self._form = form

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for grants that can share their tokens."""
        return self.address, self._headers, self._form

    async def ask(self, clock: Clock, fetch: Fetch, secrets: SecretResolver, refresh_token: str) -> Token:
        """Request a token.

        Raises:
            AuthFailure: The server returned no token.
            EgressRefused: The guard refused the token URL.
        """
        form = [*self._form, *([("refresh_token", refresh_token)] if refresh_token else [])]
        address = self.address
        request = HTTPRequest("POST", *address, self._headers, urlencode(form).encode())
        try:
            response = await fetch(request)
        except HTTPError as error:
            raise AuthFailure(
                f"cannot get a token from {address.shown}: {error.message}",
                retryable=error.fault in _PASSING,
                details={"token_url": address.shown, "fault": error.fault.value},
            ) from None
        good = 200 <= response.status < 300
        try:
            told = _told(response)
        except DuplicateKey as error:
            if good:
                raise self._unusable(f"{error} in the response of {self.address.shown}") from None
            told = {}
        # Before any message is built: an error description may echo a token.
        _register(told, secrets)
        if not good:
            raise self._refused(response, told, clock, secrets)
        return self._token(told)

    def _token(self, told: dict[str, JSON]) -> Token:
        """The token in a successful response (RFC 6749 section 5.1)."""
        # Required by the RFC, yet some servers omit `token_type`.
        value, kind = told.get("access_token"), told.get("token_type", "Bearer")
        if not isinstance(value, str) or _TOKEN.fullmatch(value) is None:
            what = (
                "has no `access_token`"
                if value is None
                else "has an `access_token` that cannot be sent in a header"
            )
            raise self._unusable(f"the response of {self.address.shown} {what}")
        if not isinstance(kind, str) or not kind.lower().startswith("bearer"):
            raise self._unusable(f"{self.address.shown} returned a token that is not of type `Bearer`")
        refresh_token = told.get("refresh_token")
        return Token(
            value, _seconds(told.get("expires_in")), refresh_token if isinstance(refresh_token, str) else ""
        )

    def _unusable(self, message: str) -> AuthFailure:
        return AuthFailure(
            f"{message}; check `token_url`", details={"token_url": self.address.shown, "status": 200}
        )

    def _refused(
        self, response: HTTPResponse, told: dict[str, JSON], clock: Clock, secrets: SecretResolver
    ) -> AuthFailure:
        """The failure for an error response (RFC 6749 section 5.2)."""
        # `error` and `error_description` are third-party text: masked, shortened and kept on one line.
        status = response.status
        details: dict[str, JSON] = {"token_url": self.address.shown, "status": status}
        message = f"{self.address.shown} returned no token: status {status}"
        code, description = told.get("error"), told.get("error_description")
        if isinstance(code, str) and _CODE.fullmatch(code) is not None:
            details["error"] = secrets.hide_in_text(code)
            message += f", `{details['error']}`"
        if isinstance(description, str) and description:
            message += f" ({_line(secrets.hide_in_text(description))})"
        if 300 <= status < 400:
            message += "; redirects are not followed, so `token_url` must be the final URL"
        elif isinstance(code, str) and code in _HINTS:
            message += f"; {_HINTS[code]}"
        wait = seconds_to_wait(dict(response.headers), clock.now())
        if wait is not None:
            details["retry_after"] = wait
        return AuthFailure(message, retryable=status >= 500 or status in {408, 429}, details=details)


class OAuth:
    """A bearer token from a token server, requested when needed.

    Attributes:
        spot: The header that carries it.
        hosts: The host of the token server.
    """

    spot: Spot = ("header", "authorization")

    def __init__(self, grant: Grant, account: TokenAccount, secrets: SecretResolver) -> None:
        self.hosts: tuple[str, ...] = (grant.address.host,)
        self._grant = grant
        self._account = account
        self._secrets = secrets

    async def apply(self, draft: RequestDraft, clock: Clock, fetch: Fetch) -> None:
        """Add the token, requesting a new one if the cached one has expired.

        Raises:
            AuthFailure: No token could be obtained.
            EgressRefused: The guard refused the token URL.
        """
        set_header(draft, "Authorization", f"Bearer {await self._current(clock, fetch)}")

    def show(self, draft: RequestDraft) -> None:
        """Add the header, masked."""
        set_header(draft, "Authorization", f"Bearer {HIDDEN}")

    async def renewed(self, clock: Clock, fetch: Fetch, used: RequestDraft | None = None) -> bool:
        """Obtain a token that differs from the one that was used.

        Raises:
            AuthFailure: No token could be obtained.
            EgressRefused: The guard refused the token URL.
        """
        before = await self._current(clock, fetch) if used is None else _bearer_of(used)
        self._account.refuse(before)
        return await self._current(clock, fetch) != before

    async def _current(self, clock: Clock, fetch: Fetch) -> str:
        token = await self._account.token(clock, partial(self._grant.ask, clock, fetch, self._secrets))
        self._secrets.register(token, passing=True)
        return token


def compile_oauth2(fields: AuthFields, tokens: TokenCache) -> OAuth | None:
    """Compile `{type: oauth2, flow: client_credentials|refresh_token, token_url, ...}`; None if it is only checked.

    Raises:
        MissingSecret: A secret is missing or cannot be sent.
    """
    address = token_address(fields)
    client_id = fields.text("client_id", "form")
    client_secret = fields.secret("client_secret", "form") if "client_secret" in fields else ""
    form = [("grant_type", fields.choice("flow"))]
    refresh_token = fields.secret("refresh_token", "form") if "refresh_token" in fields else ""
    form += _optional(fields)
    headers = [("Content-Type", "application/x-www-form-urlencoded"), ("Accept", "application/json")]
    if not client_secret:
        form.append(("client_id", client_id))
    elif fields.choice("client_auth", "basic") == "body":
        form += [("client_id", client_id), ("client_secret", client_secret)]
    else:  # RFC 6749 section 2.3.1: both are form-encoded before they are joined
        value = basic_header(fields, quote_plus(client_id), quote_plus(client_secret))
        headers.append(("Authorization", value))
    if fields.secrets is None or address is None:
        return None
    grant = Grant(address, tuple(headers), tuple(form))
    return OAuth(grant, tokens.account(grant.identity, refresh_token), fields.secrets)


def _optional(fields: AuthFields) -> Iterator[tuple[str, str]]:
    scopes = fields.block.get("scopes", [])
    if scopes:
        yield "scope", " ".join(scopes)
    if "audience" in fields:
        yield "audience", fields.text("audience", "form")


def token_address(fields: AuthFields) -> TokenEndpoint | None:
    """The `token_url`; None if it is invalid, which is reported, or not known until its variables are resolved.

    Raises:
        MissingSecret: A variable in it is missing.
    """
    text = fields.text("token_url", "address")
    if text == STAND_IN and fields.secrets is None:
        return None
    address = parse_token_endpoint(text)
    if address is None:
        message = "`token_url` is not a valid token URL"
        hint = "use `https://host/path` without a user name or fragment (RFC 6749 section 3.2)"
        fields.tell("invalid_url", message, "token_url", hint=hint)
    elif "${" not in fields.choice("token_url"):
        warn_of_plain_text(address, fields, "token_url")
    return address


def warn_of_plain_text(address: TokenEndpoint, fields: AuthFields, key: str = "") -> None:
    """Warn about credentials that are sent to another machine without encryption."""
    if address.scheme == "http" and not is_loopback(address.host):
        message = (
            f"credentials go to {address.host} without encryption; anyone on the network path can read them"
        )
        fields.tell("unencrypted_secret", message, key, hint="write `https://`", severity="warning")


def _told(response: HTTPResponse) -> dict[str, JSON]:
    """The members of a JSON response; empty if it is not an object. Raises DuplicateKey."""
    try:
        told = decode_json(response.body)
    except DuplicateKey:
        raise
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _register(told: dict[str, JSON], secrets: SecretResolver) -> None:
    """Register every secret in a response for masking."""
    # Bounded: a hostile response with thousands of secret-looking members would slow down all later masking.
    values = [
        value
        for name, value in told.items()
        if isinstance(value, str) and name != "token_type" and is_secret_name(name)
    ]
    for secret in values[:_MOST_SECRETS]:
        secrets.register(secret, passing=True)


def _seconds(lifetime: JSON) -> float | None:
    """The lifetime of a token in seconds; None if it is not a finite number. Some servers send it as a string."""
    if isinstance(lifetime, bool) or not isinstance(lifetime, int | float | str):
        return None
    try:
        seconds = float(lifetime)
    except (ValueError, OverflowError):
        return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _line(text: str) -> str:
    """Third-party text, shortened and on one line."""
    shown = "".join(each if each.isprintable() else " " for each in text)
    return shown if len(shown) <= 200 else f"{shown[:199]}…"


def _bearer_of(draft: RequestDraft) -> str:
    values = [value for name, value in draft.headers if name.lower() == "authorization"]
    return values[0].removeprefix("Bearer ") if values else ""
