"""`type: python`: a function of somebody's own makes what proves who sends a request, e.g. a signature."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from inspect import isawaitable
from typing import Any, NamedTuple

from toolcrib.core.hooks import load_hook
from toolcrib.core.model import JSON
from toolcrib.core.protocols import Clock
from toolcrib.http.auth.credentials import Fields, fault_of
from toolcrib.http.auth.scheme import AuthFailed, Fetch
from toolcrib.http.auth.static_schemes import set_header
from toolcrib.http.headers import fault_of_name
from toolcrib.http.request_builder import Draft
from toolcrib.security.secrets import Vault


class Outgoing(NamedTuple):
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


Hook = Callable[[Outgoing], Any]
"""Returns, or is awaited for, `{"headers": {name: value}, "query": {name: value}}`; each may be left out."""


class HookAuth:
    """Asks a function what to add to each request.

    Attributes:
        hosts: None.
    """

    hosts: tuple[str, ...] = ()

    def __init__(self, path: str, vault: Vault, place: str, folder: str = "") -> None:
        """Import the function.

        Raises:
            MissingHook: There is none.
        """
        self._path = path
        self._vault = vault
        self._hook: Hook = load_hook(path, place, folder)

    async def apply(self, draft: Draft, clock: Clock, fetch: Fetch) -> None:  # noqa: ARG002 -- it asks nobody
        """Add what the function returns.

        Raises:
            AuthFailed: It failed, or returned something else.
        """
        request = draft.finished()
        view = Outgoing(request.method, request.url, request.headers, request.body)
        with clock.outside():
            answer = await self._asked(self._hook, view)
        for name, value in self._part(answer, "headers"):
            if fault_of_name(name) is not None:
                raise self._wrong(
                    "returned a header with a name that none can have, or that is not its to write"
                )
            set_header(draft, name, value)
        for name, value in self._part(answer, "query"):
            draft.set_query(name, value)

    def show(self, draft: Draft) -> None:
        """Nothing: what the function would add is known when it is asked, and not before."""

    async def renewed(self, clock: Clock, fetch: Fetch, used: Draft | None = None) -> bool:  # noqa: ARG002 -- as above
        """There is nothing else to try: the function was asked for this very request."""
        return False

    async def _asked(self, hook: Hook, view: Outgoing) -> Mapping[str, Any]:
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
            raise self._wrong(f"returned `{key}` that are no mapping of texts")
        for name, value in part.items():
            if not isinstance(name, str) or not isinstance(value, str):
                raise self._wrong(f"returned `{key}` that are no mapping of texts")
            self._vault.register(value, passing=True)
            fault = fault_of(value, "header" if key == "headers" else "query") or fault_of(name, "query")
            if fault:
                raise self._wrong(f"returned `{key}` with a text that {fault}")
        return list(part.items())

    def _wrong(self, what: str) -> AuthFailed:
        return AuthFailed(f"the hook `{self._path}` {what}", details={"hook": self._path})

    def _broken(self, error: Exception) -> AuthFailed:
        frames = traceback.extract_tb(error.__traceback__)
        kind = type(error).__name__
        place = f"{frames[-1].filename}:{frames[-1].lineno}"
        details: dict[str, JSON] = {"hook": self._path, "exception": kind, "at": place}
        return AuthFailed(f"the hook `{self._path}` failed at {place}: {kind}", details=details)


def python(fields: Fields, place: Callable[[str], str], folder: str = "") -> HookAuth | None:
    """`{type: python, call: "package.module:function"}`; nothing is imported while it is only checked.

    Args:
        fields: Its keys.
        place: Pointer -> `file:line`.
        folder: The trusted project whose modules may be hooks; empty for none.

    Raises:
        MissingHook: There is no such function.
    """
    if fields.vault is None:
        return None
    return HookAuth(fields.choice("call"), fields.vault, place(f"{fields.pointer}/call"), folder)
