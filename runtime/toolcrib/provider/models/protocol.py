"""What a model is asked, and what comes of it: the contract of a provider."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias

from toolcrib.core.errors import ToolcribError
from toolcrib.core.model import JSON, NOTHING
from toolcrib.formats.providers import Declaration
from toolcrib.provider.messages import Message
from toolcrib.servers.environment import World


class Request(NamedTuple):
    """One request to a model.

    Attributes:
        messages: The conversation so far, whole; `ToolCall.alias` has the names that the model knows.
        tools: What is declared, in the same order each time.
        tool_choice: `auto`, `required`, `none`, or the declared name of one tool.
        parallel: Whether the model may ask for several calls at once.
        streaming: Whether what comes should come as it is made.
        settings: The provider's own: `temperature`, `max_tokens` ...
        aware: Whether the conversation has calls, so that the form with tools is needed even where none is declared.
        world: What may be reached and which secrets there are: that of the runtime whose tools are offered.
    """

    messages: tuple[Message, ...]
    tools: tuple[Declaration, ...] = ()
    tool_choice: str = "auto"
    parallel: bool = True
    streaming: bool = False
    settings: Mapping[str, JSON] = NOTHING
    aware: bool = False
    world: World | None = None


class TextDelta(NamedTuple):
    """Text, or a piece of it."""

    text: str


class ReasoningDelta(NamedTuple):
    """What a model thinks, or a piece of it; `data` is as in `Reasoning`, and is given with a last piece."""

    text: str
    data: JSON = None


class CallDelta(NamedTuple):
    """A call, or a piece of it. Pieces with the same slot belong together, in any order of calls.

    Attributes:
        slot: Tells the calls of one answer apart.
        id: The provider's id; it may come late, or never.
        name: The declared name; it may come late.
        arguments: A piece of the JSON text of the arguments; or all of them, as an object.
    """

    slot: int
    id: str = ""
    name: str = ""
    arguments: str | dict[str, JSON] = ""


class Tokens(NamedTuple):
    """What an answer cost. `cached` and `cache_writes` are parts of `input`; `reasoning` is a part of `output`."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_writes: int = 0
    reasoning: int = 0

    def plus(self, other: Tokens) -> Tokens:
        """Both together."""
        return Tokens(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Finish(NamedTuple):
    """The end of an answer; whatever comes after it is not looked at.

    Attributes:
        reason: `stop`, `tool_calls`, `length` (it is cut off), `refused`; or the provider's own word. Calls are made
            only after `stop` and `tool_calls`.
        tokens: What it cost, where the provider says so.
        model: Which model answered.
    """

    reason: str = "stop"
    tokens: Tokens = Tokens()
    model: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether the model came to its own end, so that the calls of the answer are whole."""
        return self.reason in {"stop", "tool_calls"}


Delta: TypeAlias = TextDelta | ReasoningDelta | CallDelta | Finish


class Provider(Protocol):
    """A model. One method is enough.

    More members may be there: `dialect`, the name of the form in which schemas are declared
    (`formats.providers.DIALECTS`; `plain` unless given); `world`, what may be reached in place of `Request.world`,
    which tells that the provider reaches out; a coroutine function `aclose`.
    """

    def respond(self, request: Request, /) -> AsyncIterator[Delta]:
        """Answer a request: an asynchronous generator of what the model says, whole or in pieces.

        Raises:
            ProviderError: There is no answer.
        """
        ...


class ProviderError(ToolcribError):
    """A model gave no answer.

    Attributes:
        retryable: Whether the same request may succeed later.
        details: Facts that belong to the code: `status`, `retry_after` (seconds) ...
    """

    code = "provider_failed"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hint: str = "",
        retryable: bool = False,
        details: Mapping[str, Any] = NOTHING,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.retryable = retryable
        self.details = dict(details)

    def as_json(self) -> dict[str, JSON]:
        """`{code, message, hint, retryable, details}` as plain data; what is none in `details` is told as text."""
        details: JSON = json.loads(json.dumps(self.details, default=str))
        told: dict[str, JSON] = {"code": self.code, "message": self.message, "hint": self.hint}
        return {**told, "retryable": self.retryable, "details": details}
