"""Why a server can't be started, in words for whoever wrote it down."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from toolcrib.core.clock import format_duration
from toolcrib.core.errors import DocumentError, NotReady, ToolcribError
from toolcrib.core.model import JSON, Outcome
from toolcrib.core.pointers import keys_of
from toolcrib.core.server_config import Server, Verdict
from toolcrib.security.egress import EgressRefused
from toolcrib.security.secrets import MissingSecret, Vault, variables_of
from toolcrib.security.trust.check import Untrusted
from toolcrib.servers.mcp.failures import Broken, Down, Garbled, Refused, told
from toolcrib.servers.mcp.server_requests import functions_of
from toolcrib.servers.mcp.transports import Link, StartFailed

MISSING_EXTRA = "pip install 'toolcrib[mcp]'"
"""The way out where the SDK is not installed."""

_OF_THE_EXTRA = frozenset(("mcp", "mcp_types", "httpx2", "anyio", "pydantic"))
"""The packages of the extra that are imported here."""

_LAST_WORDS = 2000
"""Characters that are told of what a server wrote to stderr."""


def missing_extra() -> Down:
    """The error where the SDK is not installed."""
    message = "MCP servers need the package `mcp`, which is not installed"
    return Down(message, code="missing_extra", hint=MISSING_EXTRA, retryable=False)


def missing_secret(server: Server, error: MissingSecret) -> Down:
    """The error of a server for which something is not there to be looked up."""
    place = server.place(next(iter(keys_of(error.pointer)), ""))
    where = f" ({place})" if place else ""
    message = f"the server `{server.name}` can't be started: {error.message}{where}"
    return Down(message, code=error.code, hint=error.hint, retryable=False)


def locked(server: Server, verdict: Verdict) -> Down | None:
    """The error of a server that a lock refuses as a whole; None where it does not."""
    why = verdict.refused.get("*")
    if why is None:
        return None
    return Down(
        why,
        code="definition_changed",
        outcome=Outcome.DENIED,
        details={"server": server.name},
        retryable=False,
    )


def untrusted(error: Untrusted) -> Down:
    """The error of a server whose start nobody has agreed to."""
    details: dict[str, JSON] = {"workspace": error.request.workspace.root, "hash": error.request.hash}
    return Down(
        error.message,
        code=error.code,
        hint=error.hint,
        outcome=Outcome.DENIED,
        details=details,
        retryable=False,
    )


def down_of(server: Server, failure: Exception, link: Link | None) -> Down:
    """The error of a server that could not be started."""
    if _is_of_the_extra(failure):
        return missing_extra()
    if isinstance(failure, MissingSecret):
        return missing_secret(server, failure)
    refusal = failure if isinstance(failure, EgressRefused) else None if link is None else link.refusal
    if refusal is not None:
        message = f"the server `{server.name}`: {refusal.message}"
        return Down(message, code=refusal.code, hint=refusal.hint, outcome=Outcome.DENIED, retryable=False)
    if isinstance(failure, Untrusted):
        return untrusted(failure)
    if isinstance(failure, NotReady | DocumentError):
        return Down(failure.message, code=failure.code, hint=failure.hint, retryable=False)
    if isinstance(failure, StartFailed):
        return Down(failure.message, hint=failure.hint)
    what, hint = _what(server, failure)
    words = _last_words(link)
    return Down(f"the server `{server.name}` could not be started: it {what}{words}", hint=hint)


def of_group(error: Exception) -> Exception:
    """The error that a group of one holds: task groups wrap up whatever ends them."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def is_foreseen(failure: Exception) -> bool:
    """Whether a failure is one of those that a start may end with; any other one is a bug.

    The SDK raises RuntimeError where no version of the protocol is shared, and ValueError for what is no answer.
    """
    return isinstance(failure, _FORESEEN) or _is_of_the_extra(failure)


_FORESEEN = (ToolcribError, Broken, Refused, Garbled, EgressRefused, OSError, RuntimeError, ValueError)


def _is_of_the_extra(failure: Exception) -> bool:
    """Whether something of the extra is not there; what else can't be imported is a bug."""
    name = (failure.name or "") if isinstance(failure, ImportError) else ""
    return name.partition(".")[0] in _OF_THE_EXTRA


def _what(server: Server, failure: Exception) -> tuple[str, str]:
    """What it did instead, and the way out."""
    if isinstance(failure, TimeoutError):
        time = format_duration(server.start_timeout)
        return (
            f"did not answer within {time}",
            "raise `timeouts: {start: ...}` of the server if it takes longer",
        )
    if isinstance(failure, Broken):
        trouble = failure.trouble
        return (
            (failure.why or "closed the connection", "")
            if trouble is None
            else (f"did not answer: {trouble.message}", trouble.hint)
        )
    if isinstance(failure, Refused):
        return f"answered with the error {failure.number}: {told(failure.message)}", ""
    if isinstance(failure, Garbled):
        return f"does not speak MCP: {failure.message}", ""
    if is_foreseen(failure):
        return "speaks no version of MCP that is known here", "`era` says which protocol it is asked for"
    return f"ended with a bug ({type(failure).__name__}); the log of `toolcrib` has the trace", ""


def _last_words(link: Link | None) -> str:
    said = link.said().strip() if link is not None else ""
    if not said:
        return ""
    cut = said if len(said) <= _LAST_WORDS else "..." + said[-_LAST_WORDS:]
    return f"; its stderr ends with:\n{told(cut)}"


def check_ready(server: Server, vault: Vault) -> None:
    """Nothing, where all is there that a server needs to be started.

    Raises:
        NotReady: The extra is missing; or a hook; or something that `${...}` names, all of it at once.
    """
    if find_spec("mcp") is None:
        raise missing_extra()
    functions_of(server)
    missing: dict[str, Down] = {}
    for key in _WITH_VARIABLES:
        written: Any = getattr(server, key)
        for pointer, variable in variables_of(_plain(written), f"/{key}"):
            try:
                vault.look_up(variable, secret=False)
            except MissingSecret as error:
                down = missing_secret(server, error.at(pointer))
                missing.setdefault(down.message, down)
    if missing:
        message = "; ".join(missing)
        hints = "; ".join(dict.fromkeys(down.hint for down in missing.values() if down.hint))
        raise Down(message, code=next(iter(missing.values())).code, hint=hints, retryable=False)


_WITH_VARIABLES = ("command", "args", "env", "cwd", "url", "headers", "auth")


def _plain(value: Any) -> JSON:
    """A member of a server as JSON."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value
