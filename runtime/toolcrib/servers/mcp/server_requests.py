"""What a server asks back while it works: the user (elicitation), a model (sampling). Functions of the project answer.

MCP 2025-11-25, client features; since 2026-07-28 the same requests come as an `InputRequiredResult`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Mapping
from inspect import isawaitable, iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.core.hooks import load_hook
from toolcrib.core.server_config import Server

if TYPE_CHECKING:
    from mcp.client.session import ClientRequestContext
    from mcp.types import ErrorData

_log = logging.getLogger("toolcrib")

_CAN_NOT = re.compile(r"not? support|unsupported|missing|requires?|capabilit", re.IGNORECASE)

_NO_WAY_BACK = "no back-channel"
"""What a server of the SDK says that would ask by itself, as no server may since 2026-07-28."""

KINDS = ("elicitation", "sampling")
"""What a server may ask, as the keys of a server call it."""


class Elicitation(NamedTuple):
    """What the hook `elicitation` is given. It returns the answers by name, or None to decline.

    Attributes:
        server: Name of the server that asks.
        message: What it asks.
        schema: JSON Schema of the answers: an object of texts, numbers, booleans and choices.
    """

    server: str
    message: str
    schema: dict[str, Any]


class Sampling(NamedTuple):
    """What the hook `sampling` is given. It returns the text that a model answers, or a whole `CreateMessageResult`.

    Attributes:
        server: Name of the server that asks.
        request: The request, as the protocol writes it: `messages`, `maxTokens`, `systemPrompt` ...
    """

    server: str
    request: dict[str, Any]


def load_functions(server: Server) -> dict[str, Callable[[Any], Any]]:
    """What a server may ask -> the function that answers.

    Raises:
        MissingHook: One of them is not there.
    """
    named = ((kind, getattr(server, kind)) for kind in KINDS)
    return {
        kind: load_hook(path, server.place(kind) or f"`{kind}` of the server `{server.name}`", server.root)
        for kind, path in named
        if path
    }


class ServerRequestHooks:
    """The functions that answer one server.

    Attributes:
        unanswered: What the server has asked of late and nobody answered, each as a sentence with a way out.
    """

    def __init__(self, server: Server) -> None:
        """Import the functions.

        Raises:
            MissingHook: One of them is not there.
        """
        self._server = server
        self._functions = load_functions(server)
        self.unanswered: dict[str, str] = {}

    @property
    def capabilities(self) -> dict[str, Any]:
        """What the server is told that it may ask. Of roots there are none, and that it may ask, too."""
        told: dict[str, Any] = {"roots": {}}
        if "elicitation" in self._functions:
            told["elicitation"] = {"form": {}}
        if "sampling" in self._functions:
            told["sampling"] = {}
        return told

    def offers(self, kind: str) -> bool:
        """Whether there is a function that answers."""
        return kind in self._functions

    def missing(self, kind: str) -> str:
        """What to write where there is none."""
        who = "the user" if kind == "elicitation" else "a model"
        name = self._server.name
        return (
            f"the server `{name}` asked {who}, but no hook answers: "
            f"add `{kind}: package.module:function` under `servers.{name}` in toolcrib.yaml"
        )

    def told_of(self, said: str) -> str:
        """What to say besides of a call that failed with these words: that the server asked, and nobody answered."""
        told, self.unanswered = self.unanswered, {}
        if told:
            return "; ".join(told.values())
        if _NO_WAY_BACK in said:
            return self._of_before()
        # A server that knows beforehand that nobody answers does not even ask.
        wanted = (kind for kind in KINDS if kind in said.casefold() and _CAN_NOT.search(said))
        return "; ".join(self.missing(kind) for kind in wanted if not self.offers(kind))

    def _of_before(self) -> str:
        name = self._server.name
        return (
            f"the server `{name}` sends requests as in protocols before 2026-07-28: "
            f"add `era: handshake` under `servers.{name}` in toolcrib.yaml"
        )

    async def elicit(self, _context: ClientRequestContext, params: Any) -> Any:
        """Answer a question to the user; only forms are taken, since an address would be opened unseen."""
        from mcp.types import ElicitResult  # noqa: PLC0415 -- who is asked has the extra

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
        """Answer a question to a model."""
        from mcp.types import CreateMessageResult, CreateMessageResultWithTools, TextContent  # noqa: PLC0415 -- as above
        from pydantic import ValidationError  # noqa: PLC0415 -- as above

        if not self.offers("sampling"):
            return self._refused("sampling")
        request = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        answer = await self._asked("sampling", Sampling(self._server.name, request))
        if isinstance(answer, str):
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

    async def roots(self, context: ClientRequestContext) -> Any:  # noqa: ARG002 -- whoever asks, there is none
        """No folder of ours is a server's business unless it is told so on its command line."""
        from mcp.types import ListRootsResult  # noqa: PLC0415 -- as above

        return ListRootsResult(roots=[])

    async def _asked(self, kind: str, question: Any) -> Any:
        """What the function answers; an error of the protocol where it failed."""
        hook = self._functions[kind]
        try:
            if iscoroutinefunction(hook):
                return await hook(question)
            answer = await asyncio.to_thread(hook, question)  # it may wait for a person
            return await answer if isawaitable(answer) else answer
        except Exception as error:  # noqa: BLE001 -- code of somebody else may raise anything
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
    """The answers, with the defaults of the form for those that were left out (SEP-1034); None for what is no answer."""
    from mcp.types import ElicitResult  # noqa: PLC0415 -- as above
    from pydantic import ValidationError  # noqa: PLC0415 -- as above

    properties = schema.get("properties")
    fields = properties if isinstance(properties, dict) else {}
    defaults = {
        name: field["default"]
        for name, field in fields.items()
        if isinstance(field, dict) and "default" in field
    }
    try:
        return ElicitResult(action="accept", content={**defaults, **answer})
    except ValidationError:
        return None
