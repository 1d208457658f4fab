"""The schemes of authentication: what each must be and how it fails; apiKey, http basic and bearer; hooks in Python."""

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
"""An exchange through the egress guard. Raises HTTPError and EgressRefused."""


class AuthFailure(Exception):
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

    async def apply(self, draft: RequestDraft, clock: Clock, fetch: Fetch) -> None:
        """Add what proves it, in place of what has the same name.

        Raises:
            AuthFailure: There is nothing to add.
            EgressRefused: The guard refused the address of the tokens.
        """
        ...

    def show(self, draft: RequestDraft) -> None:
        """Add what `apply` would add, with `***` for what is secret. Nothing is asked for."""
        ...

    async def renewed(self, clock: Clock, fetch: Fetch, used: RequestDraft | None = None) -> bool:
        """After status 401: whether there is something new to try.

        Args:
            clock: The call's time.
            fetch: Makes an exchange.
            used: The draft that was refused. What it had is not given again, and what somebody else has had
                renewed since then is taken as it is.

        Raises:
            AuthFailure: Something new could not be had.
            EgressRefused: As for `apply`.
        """
        ...


Spot: TypeAlias = tuple[str, str]
"""Where a credential goes: (`header`, `query` or `cookie`, its name; of a header in lower case)."""


class StaticAuth:
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

    async def apply(self, draft: RequestDraft, clock: Clock, fetch: Fetch) -> None:  # noqa: ARG002 -- needs neither
        """Add it."""
        self._put(draft, self._value)

    def show(self, draft: RequestDraft) -> None:
        """Add it, masked."""
        if self.spot[0] == "query":
            draft.set_query(self._name, "")
            draft.query[-1] += self._shown
        else:
            self._put(draft, self._shown)

    async def renewed(self, clock: Clock, fetch: Fetch, used: RequestDraft | None = None) -> bool:  # noqa: ARG002 -- as above
        """There is nothing else to try."""
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
    """Put a header that is a credential in place of those of the same name."""
    lower = name.lower()
    draft.headers = [header for header in draft.headers if header[0].lower() != lower]
    draft.headers.append((name, value))


def compile_api_key(fields: AuthFields) -> StaticAuth:
    """`{type: apiKey, in: header|query|cookie, name, value}`: the value as it is.

    Raises:
        MissingSecret: It is not there, or can't be sent.
    """
    where = fields.choice("in")
    value = fields.secret("value", where)  # type: ignore[arg-type] # the schema has no others
    return StaticAuth(where, fields.choice("name"), value)


def compile_bearer(fields: AuthFields) -> StaticAuth:
    """`{type: http, scheme: bearer, token}` (RFC 6750 section 2.1).

    Raises:
        MissingSecret: The token is not there, or can't be sent.
    """
    return StaticAuth(
        "header", "Authorization", f"Bearer {fields.secret('token', 'header')}", f"Bearer {HIDDEN}"
    )


def compile_basic(fields: AuthFields) -> StaticAuth:
    """`{type: http, scheme: basic, username, password}` (RFC 7617), as UTF-8. The password may be empty.

    Raises:
        MissingSecret: One of them is not there, or can't be sent.
    """
    username = fields.text("username", "basic")
    password = fields.secret("password", "form", blank=True)
    return StaticAuth("header", "Authorization", basic_header(fields, username, password), f"Basic {HIDDEN}")


def basic_header(fields: AuthFields, username: str, password: str) -> str:
    """The value of `Authorization` for a user name and password; both together are registered."""
    both = f"{username}:{password}"
    if fields.secrets is not None and len(both) > 1:
        fields.secrets.register(both)
    return f"Basic {b64encode(both.encode()).decode()}"


class HookRequest(NamedTuple):
    """What a hook sees of a request.

    Attributes:
        method: In upper case.
        url: The whole address, as it will be sent.
        headers: (name, value) in order; names as they were written.
        body: What is sent.
    """

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


Hook = Callable[[HookRequest], Any]
"""Returns, or is awaited for, `{"headers": {name: value}, "query": {name: value}}`; each may be left out."""


class HookAuth:
    """Asks a function what to add to each request.

    Attributes:
        hosts: None.
    """

    hosts: tuple[str, ...] = ()

    def __init__(self, path: str, secrets: SecretResolver, place: str, folder: str = "") -> None:
        """Import the function.

        Raises:
            MissingHook: There is none.
        """
        self._path = path
        self._secrets = secrets
        self._hook: Hook = load_hook(path, place, folder)

    async def apply(self, draft: RequestDraft, clock: Clock, fetch: Fetch) -> None:  # noqa: ARG002 -- it asks nobody
        """Add what the function returns.

        Raises:
            AuthFailure: It failed, or returned something else.
        """
        request = draft.finished()
        view = HookRequest(request.method, request.url, request.headers, request.body)
        with clock.outside():
            answer = await self._asked(self._hook, view)
        for name, value in self._part(answer, "headers"):
            if fault_of_name(name) is not None:
                raise self._wrong("returned a header with an invalid or reserved name")
            set_header(draft, name, value)
        for name, value in self._part(answer, "query"):
            draft.set_query(name, value)

    def show(self, draft: RequestDraft) -> None:
        """Nothing: what the function would add is known when it is asked, and not before."""

    async def renewed(self, clock: Clock, fetch: Fetch, used: RequestDraft | None = None) -> bool:  # noqa: ARG002 -- as above
        """There is nothing else to try: the function was asked for this very request."""
        return False

    async def _asked(self, hook: Hook, view: HookRequest) -> Mapping[str, Any]:
        try:
            answer = hook(view)
            if isawaitable(answer):
                answer = await answer
        except Exception as error:  # noqa: BLE001 -- code of somebody else may raise anything
            raise self._broken(error) from None
        if not isinstance(answer, Mapping) or not answer.keys() <= {"headers", "query"}:
            what = "None" if answer is None else f"a `{type(answer).__name__}`"
            if isinstance(answer, Mapping):
                what = "other keys"
            raise self._wrong(f"returned {what} instead of a mapping with `headers` and `query`")
        return answer

    def _part(self, answer: Mapping[str, Any], key: str) -> list[tuple[str, str]]:
        """The names and values of one part, checked and registered."""
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
        frames = traceback.extract_tb(error.__traceback__)
        kind = type(error).__name__
        place = f"{frames[-1].filename}:{frames[-1].lineno}"
        details: dict[str, JSON] = {"hook": self._path, "exception": kind, "at": place}
        return AuthFailure(f"the hook `{self._path}` failed at {place}: {kind}", details=details)


def compile_hook(fields: AuthFields, place: Callable[[str], str], folder: str = "") -> HookAuth | None:
    """`{type: python, call: "package.module:function"}`; nothing is imported while it is only checked.

    Args:
        fields: Its keys.
        place: Pointer -> `file:line`.
        folder: The trusted project whose modules may be hooks; empty for none.

    Raises:
        MissingHook: There is no such function.
    """
    if fields.secrets is None:
        return None
    return HookAuth(fields.choice("call"), fields.secrets, place(f"{fields.pointer}/call"), folder)
