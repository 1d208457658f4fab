"""Authentication schemes: their protocol and error, `apiKey`, `http` (basic and bearer), and Python hooks."""

from __future__ import annotations

import traceback
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, NamedTuple, Protocol, TypeAlias

from toolcrib.core.hooks import load_hook
from toolcrib.core.model import JSON, NOTHING
from toolcrib.core.protocols import Clock
from toolcrib.http import HTTPRequest, HTTPResponse
from toolcrib.http.auth.credentials import AuthFields, credential_fault
from toolcrib.http.headers import fault_of_name
from toolcrib.http.messages import RequestDraft
from toolcrib.security.redaction import HIDDEN
from toolcrib.security.secrets import SecretResolver

Fetch: TypeAlias = Callable[[HTTPRequest], Awaitable[HTTPResponse]]
"""Sends a request through the egress guard. Raises HTTPError and EgressRefused."""


class AuthFailure(Exception):
    """No credential could be obtained, so the request was not sent. Contains no secrets.

    Attributes:
        message: What failed and how to fix it.
        retryable: Whether a later attempt may succeed.
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
    """A compiled `auth` that authenticates the requests of a tool.

    Attributes:
        hosts: The hosts of its token servers.
    """

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts of its token servers."""
        ...

    async def apply(self, draft: RequestDraft, clock: Clock, fetch: Fetch) -> None:
        """Add the credential, replacing headers and parameters of the same name.

        Raises:
            AuthFailure: No credential could be obtained.
            EgressRefused: The guard refused the token URL.
        """
        ...

    def show(self, draft: RequestDraft) -> None:
        """Add what `apply` would add, with secrets as `***`. Sends no request."""
        ...

    async def renewed(self, clock: Clock, fetch: Fetch, used: RequestDraft | None = None) -> bool:
        """After status 401: whether a new credential is available.

        Args:
            clock: The clock of the call.
            fetch: Sends a request.
            used: The draft that was refused. Its credential is not used again; one that another task has renewed
                since counts as new.

        Raises:
            AuthFailure: No new credential could be obtained.
            EgressRefused: The guard refused the token URL.
        """
        ...


Spot: TypeAlias = tuple[str, str]
"""The target of a credential: (`header`, `query` or `cookie`; name, in lower case for a header)."""


class StaticAuth:
    """A fixed credential in one header, parameter or cookie.

    Attributes:
        spot: Its target.
        hosts: Always empty.
    """

    hosts: tuple[str, ...] = ()

    def __init__(self, where: str, name: str, value: str, shown: str = HIDDEN) -> None:
        self.spot: Spot = (where, name.lower() if where == "header" else name)
        self._name = name
        self._value = value
        self._shown = shown

    async def apply(self, draft: RequestDraft, clock: Clock, fetch: Fetch) -> None:  # noqa: ARG002 -- fixed value
        """Add the credential."""
        self._put(draft, self._value)

    def show(self, draft: RequestDraft) -> None:
        """Add the masked credential."""
        # `set_query` would percent-encode the asterisks.
        if self.spot[0] == "query":
            draft.set_query(self._name, "")
            draft.query[-1] += self._shown
        else:
            self._put(draft, self._shown)

    async def renewed(self, clock: Clock, fetch: Fetch, used: RequestDraft | None = None) -> bool:  # noqa: ARG002 -- as above
        """Always False: there is no other credential."""
        return False

    def _put(self, draft: RequestDraft, value: str) -> None:
        where = self.spot[0]
        if where == "header":
            set_header(draft, self._name, value)
        elif where == "query":
            draft.set_query(self._name, value)
        else:
            start = f"{self._name}="
            draft.cookies = [piece for piece in draft.cookies if not piece.startswith(start)]
            draft.cookies.append(start + value)


def set_header(draft: RequestDraft, name: str, value: str) -> None:
    """Set a header, replacing all of the same name."""
    lower = name.lower()
    draft.headers = [header for header in draft.headers if header[0].lower() != lower]
    draft.headers.append((name, value))


def compile_api_key(fields: AuthFields) -> StaticAuth:
    """Compile `{type: apiKey, in: header|query|cookie, name, value}`; the value is sent unchanged.

    Raises:
        MissingSecret: The value is missing or cannot be sent.
    """
    where = fields.choice("in")
    value = fields.secret("value", where)  # type: ignore[arg-type] # the schema allows no other places
    return StaticAuth(where, fields.choice("name"), value)


def compile_bearer(fields: AuthFields) -> StaticAuth:
    """Compile `{type: http, scheme: bearer, token}` (RFC 6750 section 2.1).

    Raises:
        MissingSecret: The token is missing or cannot be sent.
    """
    return StaticAuth(
        "header", "Authorization", f"Bearer {fields.secret('token', 'header')}", f"Bearer {HIDDEN}"
    )


def compile_basic(fields: AuthFields) -> StaticAuth:
    """Compile `{type: http, scheme: basic, username, password}` (RFC 7617), as UTF-8. The password may be empty.

    Raises:
        MissingSecret: The user name or password is missing or cannot be sent.
    """
    username = fields.text("username", "basic")
    password = fields.secret("password", "form", blank=True)
    return StaticAuth("header", "Authorization", basic_header(fields, username, password), f"Basic {HIDDEN}")


def basic_header(fields: AuthFields, username: str, password: str) -> str:
    """The value of `Authorization` for a user name and password."""
    # The pair is registered, too: a log of the decoded or encoded header would contain it as one string.
    both = f"{username}:{password}"
    if fields.secrets is not None and len(both) > 1:
        fields.secrets.register(both)
    return f"Basic {b64encode(both.encode()).decode()}"


class HookRequest(NamedTuple):
    """The request that a hook receives.

    Attributes:
        method: In upper case.
        url: The full URL as sent.
        headers: (name, value) in order; names as written.
        body: The body.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


Hook = Callable[[HookRequest], Any]
"""Returns (or awaits to) `{"headers": {name: value}, "query": {name: value}}`; both keys are optional."""


class HookAuth:
    """Calls a Python function that returns what to add to each request.

    Attributes:
        hosts: Always empty.
    """

    hosts: tuple[str, ...] = ()

    def __init__(self, path: str, secrets: SecretResolver, place: str, folder: str = "") -> None:
        """Import the function.

        Raises:
            MissingHook: The function does not exist.
        """
        self._path = path
        self._secrets = secrets
        self._hook: Hook = load_hook(path, place, folder)

    async def apply(self, draft: RequestDraft, clock: Clock, fetch: Fetch) -> None:  # noqa: ARG002 -- a hook sends its own requests
        """Add what the function returns.

        Raises:
            AuthFailure: The function failed or returned an invalid value.
        """
        request = draft.finished()
        view = HookRequest(request.method, request.url, request.headers, request.body)
        with clock.outside():
            answer = await self._asked(self._hook, view)
        for name, value in self._part(answer, "headers"):
            # A hook must not set framing headers such as `Content-Length` or `Host`.
            if fault_of_name(name) is not None:
                raise self._wrong("returned a header with an invalid or reserved name")
            set_header(draft, name, value)
        for name, value in self._part(answer, "query"):
            draft.set_query(name, value)

    def show(self, draft: RequestDraft) -> None:
        """Adds nothing: what the function returns is only known when it is called."""

    async def renewed(self, clock: Clock, fetch: Fetch, used: RequestDraft | None = None) -> bool:  # noqa: ARG002 -- as above
        """Always False: the function was already called for this request."""
        return False

    async def _asked(self, hook: Hook, view: HookRequest) -> Mapping[str, Any]:
        try:
            answer = hook(view)
            if isawaitable(answer):
                answer = await answer
        except Exception as error:  # noqa: BLE001 -- third-party code may raise anything
            raise self._broken(error) from None
        if not isinstance(answer, Mapping) or not answer.keys() <= {"headers", "query"}:
            what = "None" if answer is None else f"a `{type(answer).__name__}`"
            if isinstance(answer, Mapping):
                what = "other keys"
            raise self._wrong(f"returned {what} instead of a mapping with `headers` and `query`")
        return answer

    def _part(self, answer: Mapping[str, Any], key: str) -> list[tuple[str, str]]:
        """The names and values of `headers` or `query`, checked and registered as secrets."""
        part = answer.get(key, {})
        if not isinstance(part, Mapping):
            raise self._wrong(f"returned `{key}` that is not a mapping of strings")
        for name, value in part.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise self._wrong(f"returned `{key}` that is not a mapping of strings")
            self._secrets.register(value, passing=True)
            fault = credential_fault(value, "header" if key == "headers" else "query") or credential_fault(
                name, "query"
            )
            if fault:
                raise self._wrong(f"returned `{key}` with a string that {fault}")
        return list(part.items())

    def _wrong(self, what: str) -> AuthFailure:
        return AuthFailure(f"the hook `{self._path}` {what}", details={"hook": self._path})

    def _broken(self, error: Exception) -> AuthFailure:
        # Only type and place of the exception: its message may contain a secret.
        frames = traceback.extract_tb(error.__traceback__)
        kind = type(error).__name__
        place = f"{frames[-1].filename}:{frames[-1].lineno}"
        details: dict[str, JSON] = {"hook": self._path, "exception": kind, "at": place}
        return AuthFailure(f"the hook `{self._path}` failed at {place}: {kind}", details=details)


def compile_hook(fields: AuthFields, place: Callable[[str], str], folder: str = "") -> HookAuth | None:
    """Compile `{type: python, call: "package.module:function"}`. Nothing is imported if it is only checked.

    Args:
        fields: The keys of the scheme.
        place: Pointer -> `file:line`.
        folder: The trusted project folder from which hooks may be imported; empty for none.

    Raises:
        MissingHook: The function does not exist.
    """
    if fields.secrets is None:
        return None
    return HookAuth(fields.choice("call"), fields.secrets, place(f"{fields.pointer}/call"), folder)
