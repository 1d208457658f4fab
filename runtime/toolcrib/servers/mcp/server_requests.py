"""Answer the requests that a server sends to the user (elicitation) or to a model (sampling) during a call.

Hooks of the project return the answers (MCP 2025-11-25, client features). Since 2026-07-28 the same requests
arrive as an `InputRequiredResult`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolcrib.core.hooks import load_hook
from toolcrib.core.server_config import Server
from toolcrib.servers.mcp.transports import project_code

if TYPE_CHECKING:
    from mcp.client.session import ClientRequestContext
    from mcp.types import ErrorData

_log = logging.getLogger("toolcrib")

_CAN_NOT = re.compile(r"not? support|unsupported|unavailable|missing|requires?|capabilit", re.IGNORECASE)

_MISPLACED = re.compile(r"no back-channel|server-initiated", re.IGNORECASE)
"""In the error of a server that sends a request by itself, which is not allowed since 2026-07-28.

The texts of the Python SDK and of FastMCP.
"""

_TOO_EARLY = re.compile(r"InputRequired|SEP-2322|^Handler returned an invalid result$")
"""In the error of a server that returns a request for input, which exists since 2026-07-28. The texts of the same two."""

KINDS = ("elicitation", "sampling")
"""The kinds of requests, named like their keys in the configuration of a server."""


_METHODS: Final[Mapping[str, tuple[str, ...]]] = {
    "elicitation/create": ("elicitation",),
    "sampling/createMessage": ("sampling",),
    "roots/list": (),
}
"""Requests that a server may send by itself before 2026-07-28 -> the hooks that answer them."""


class Elicitation(NamedTuple):
    """The argument of the hook `elicitation`. The hook returns a mapping of answers, or None to decline.

    Attributes:
        server: Name of the server that asks.
        message: The question to the user.
        schema: JSON Schema of the answers: an object of texts, numbers, booleans and choices.
    """

    server: str
    message: str
    schema: dict[str, Any]


class Sampling(NamedTuple):
    """The argument of the hook `sampling`. The hook returns the model's text, or a `CreateMessageResult`.

    Attributes:
        server: Name of the server that asks.
        request: The request with the keys of the protocol: `messages`, `maxTokens`, `systemPrompt` ...
    """

    server: str
    request: dict[str, Any]


def load_functions(server: Server) -> dict[str, Callable[[Any], Any]]:
    """Import the hooks of a server; a mapping from the kind of request to the function.

    Raises:
        MissingHook: A hook cannot be found.
    """
    named = ((kind, getattr(server, kind)) for kind in KINDS)
    return {
        kind: load_hook(path, server.place(kind) or f"`{kind}` of the server `{server.name}`", server.root)
        for kind, path in named
        if path
    }


class ServerRequestHooks:
    """The hooks that answer one server.

    Attributes:
        unanswered: Recent requests without an answer: kind -> an explanation with a hint.
    """

    def __init__(self, server: Server) -> None:
        """Import the hooks.

        Raises:
            MissingHook: A hook cannot be found.
        """
        self._server = server
        self._functions = load_functions(server)
        self.unanswered: dict[str, str] = {}

    @property
    def asks(self) -> bool:
        """Whether a hook answers any requests of the server."""
        return bool(self._functions)

    @property
    def capabilities(self) -> dict[str, Any]:
        """The client capabilities to announce: those with a hook, and `roots`."""
        # `roots` needs no hook: the answer is always an empty list.
        told: dict[str, Any] = {"roots": {}}
        if "elicitation" in self._functions:
            # Named explicitly, because the other mode, `url`, is not supported.
            told["elicitation"] = {"form": {}}
        if "sampling" in self._functions:
            told["sampling"] = {}
        return told

    def offers(self, kind: str) -> bool:
        """Whether there is a hook for a kind of request."""
        return kind in self._functions

    def missing(self, kind: str) -> str:
        """Explain which hook to configure for a kind of request without one."""
        who = "the user" if kind == "elicitation" else "a model"
        name = self._server.name
        return (
            f"the server `{name}` asked {who}, but no hook answers: "
            f"add `{kind}: package.module:function` under `servers.{name}` in toolcrib.yaml"
        )

    def told_of(self, said: str, *, modern: bool) -> str:
        """Explain which requests had no answer, for a call that failed with this text; empty if none.

        Args:
            said: The text.
            modern: Whether the protocol version is 2026-07-28 or later.
        """
        # Reported once: the next failure of the server may have another cause.
        told, self.unanswered = self.unanswered, {}
        if told:
            return "; ".join(told.values())
        # A server that checks the capabilities first fails without a request; only its text names the kind.
        kinds = [kind for kind in KINDS if kind in said.casefold()]
        if modern and _MISPLACED.search(said):
            return self._told_misplaced(kinds)
        if not modern and _TOO_EARLY.search(said) and (self.asks or self._server.era == "handshake"):
            name = self._server.name
            return (
                f"if the server `{name}` requests input as in protocol 2026-07-28, "
                f"add `era: modern` under `servers.{name}` in toolcrib.yaml"
            )
        if not _CAN_NOT.search(said):
            return ""
        return "; ".join(self.missing(kind) for kind in kinds if not self.offers(kind))

    def note_misplaced(self, method: str) -> None:
        """Note a request that the protocol version of the connection does not have."""
        if method in _METHODS:
            self._note(method, self._told_misplaced(_METHODS[method]))

    def _told_misplaced(self, kinds: Sequence[str]) -> str:
        name = self._server.name
        hooks = [f"`{kind}: package.module:function`" for kind in kinds if not self.offers(kind)]
        return (
            f"the server `{name}` sends requests as in protocols before 2026-07-28: "
            f"add {' and '.join(['`era: handshake`', *hooks])} under `servers.{name}` in toolcrib.yaml"
        )

    async def elicit(self, _context: ClientRequestContext, params: Any) -> Any:
        """Answer a question to the user. Only forms are supported; other requests are declined."""
        from mcp.types import ElicitResult  # noqa: PLC0415 -- needs the extra

        # In `url` mode the user must see the address and agree before it is opened (2025-11-25,
        # client/elicitation), and hooks have no such step.
        if getattr(params, "mode", "form") != "form":
            self._note(
                "elicitation",
                f"the server `{self._server.name}` asked to open a URL, which toolcrib does not support",
            )
            return ElicitResult(action="decline")
        if not self.offers("elicitation"):
            return self._refused("elicitation")
        schema = dict(params.requested_schema)
        answer = await self._asked("elicitation", Elicitation(self._server.name, params.message, schema))
        if answer is None:
            return ElicitResult(action="decline")
        if isinstance(answer, Mapping):
            return _accepted(answer, schema) or self._wrong(
                "elicitation", "returned answers that do not fit the form"
            )
        return (
            answer
            if _is_error(answer)
            else self._wrong("elicitation", "returned neither a mapping of answers nor None")
        )

    async def sample(self, _context: ClientRequestContext, params: Any) -> Any:
        """Answer a request for a completion of a model."""
        from mcp.types import CreateMessageResult, CreateMessageResultWithTools, TextContent  # noqa: PLC0415 -- as above
        from pydantic import ValidationError  # noqa: PLC0415 -- as above

        if not self.offers("sampling"):
            return self._refused("sampling")
        request = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        answer = await self._asked("sampling", Sampling(self._server.name, request))
        if isinstance(answer, str):
            # `model` is required by the protocol, and the hook does not name one.
            content = TextContent(type="text", text=answer)
            return CreateMessageResult(role="assistant", content=content, model="hook", stop_reason="endTurn")
        if not isinstance(answer, Mapping):
            return (
                answer
                if _is_error(answer)
                else self._wrong("sampling", "returned neither a text nor a result")
            )
        try:
            made = (
                CreateMessageResultWithTools
                if isinstance(answer.get("content"), list)
                else CreateMessageResult
            )
            return made.model_validate({"role": "assistant", "model": "hook", **answer})
        except ValidationError:
            return self._wrong("sampling", "returned an invalid `CreateMessageResult`")

    async def roots(self, context: ClientRequestContext) -> Any:  # noqa: ARG002 -- the SDK's signature
        """Answer with an empty list of roots."""
        # A server learns of our folders only through its own configuration.
        from mcp.types import ListRootsResult  # noqa: PLC0415 -- as above

        return ListRootsResult(roots=[])

    async def _asked(self, kind: str, question: Any) -> Any:
        """The answer of a hook, or a protocol error if the hook fails."""
        hook = self._functions[kind]
        try:
            with project_code():
                if iscoroutinefunction(hook):
                    return await hook(question)
                # A hook may wait for a person, and must not block the event loop meanwhile.
                answer = await asyncio.to_thread(hook, question)
                return await answer if isawaitable(answer) else answer
        except Exception as error:  # noqa: BLE001 -- hooks of the project may raise anything
            # Only the type: the text of the exception may contain secrets, and a model reads the result.
            _log.exception("the hook `%s` of the server `%s` failed", kind, self._server.name)
            return self._wrong(kind, f"failed: {type(error).__name__}")

    def _note(self, kind: str, sentence: str) -> None:
        self.unanswered[kind] = sentence

    def _refused(self, kind: str) -> ErrorData:
        self._note(kind, self.missing(kind))
        return _error(f"this client does not answer {kind} requests")

    def _wrong(self, kind: str, what: str) -> ErrorData:
        self._note(kind, f"the hook `{getattr(self._server, kind)}` {what}")
        return _error(f"the {kind} hook of this client failed")


def _error(message: str) -> ErrorData:
    from mcp.types import INVALID_REQUEST, ErrorData  # noqa: PLC0415 -- as above

    return ErrorData(code=INVALID_REQUEST, message=message)


def _is_error(answer: object) -> bool:
    from mcp.types import ErrorData  # noqa: PLC0415 -- as above

    return isinstance(answer, ErrorData)


def _accepted(answer: Mapping[Any, Any], schema: Mapping[str, Any]) -> Any:
    """The answers, with the defaults of the form for omitted ones (SEP-1034); None if they are invalid."""
    from mcp.types import ElicitResult  # noqa: PLC0415 -- as above
    from pydantic import ValidationError  # noqa: PLC0415 -- as above

    from toolcrib.schema.validation import compile_defaults  # noqa: PLC0415 -- most servers ask nothing

    fill = compile_defaults(dict(schema))
    content: Any = dict(answer)
    if fill is not None:
        content = fill(content)
    try:
        return ElicitResult(action="accept", content=content)
    except ValidationError:
        return None
