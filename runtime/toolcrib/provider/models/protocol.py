"""The protocol of providers: requests, the pieces of an answer, prices, and the checks of answers."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
)
from types import AsyncGeneratorType
from typing import Any, Final, NamedTuple, Protocol, Self, TypeAlias

from toolcrib.core.errors import ConfigurationError, ToolcribError
from toolcrib.core.model import JSON, NOTHING
from toolcrib.formats.providers import Declaration
from toolcrib.provider.messages import Message
from toolcrib.servers.environment import NetworkEnvironment


class Request(NamedTuple):
    """One request to a model.

    Attributes:
        messages: The whole conversation so far; `ToolCall.alias` has the names that the model knows.
        tools: The declared tools, in a stable order.
        tool_choice: `auto`, `required`, `none`, or the declared name of one tool.
        parallel: Whether the model may request several calls in one answer.
        streaming: Whether the answer should be streamed.
        settings: Provider settings such as `temperature` and `max_tokens`.
        aware: Whether the conversation has calls; some services then require declared tools in every request.
        world: Network environment (permitted hosts, secrets) of the runtime whose tools are offered.
    """

    messages: tuple[Message, ...]
    tools: tuple[Declaration, ...] = ()
    tool_choice: str = "auto"
    parallel: bool = True
    streaming: bool = False
    settings: Mapping[str, JSON] = NOTHING
    aware: bool = False
    world: NetworkEnvironment | None = None


class TextDelta(NamedTuple):
    """A piece of text."""

    text: str


class ReasoningDelta(NamedTuple):
    """A piece of reasoning; `data` is as in `Reasoning` and comes with the last piece."""

    text: str
    data: JSON = None


class CallDelta(NamedTuple):
    """A piece of a call. Pieces with the same slot belong to the same call; calls may be interleaved.

    Attributes:
        slot: Number that identifies the call within the answer.
        id: The provider's ID; it may come late or never.
        name: The declared name; it may come late.
        arguments: A piece of the JSON text of the arguments, or all of them as an object.
    """

    slot: int
    id: str = ""
    name: str = ""
    arguments: str | dict[str, JSON] = ""


class Tokens(NamedTuple):
    """Token counts of an answer.

    `cached` and `cache_writes` are part of `input`, and `reasoning` is part of `output`.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_writes: int = 0
    reasoning: int = 0

    def plus(self, other: Tokens) -> Tokens:
        """Return the sum of two counts."""
        return Tokens(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


NO_TOKENS: Final = Tokens()
"""Counts of an answer of a provider that reports none."""


class Finish(NamedTuple):
    """The end of an answer; later pieces are ignored.

    Attributes:
        reason: `stop`, `tool_calls`, `length` (cut off), `refused`, or the provider's own term. Calls are
            made only after `stop` and `tool_calls`.
        tokens: Token counts; all zero if the provider does not report them.
        model: The model that answered.
    """

    reason: str = "stop"
    tokens: Tokens = NO_TOKENS
    model: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether the model finished by itself, so that the calls of the answer are complete."""
        return self.reason in {"stop", "tool_calls"}


Delta: TypeAlias = TextDelta | ReasoningDelta | CallDelta | Finish


class Provider(Protocol):
    """A model. Only `respond` is required.

    Optional members: `dialect`, the form in which tools are declared (`formats.providers.DIALECTS`, default
    `plain`); `world`, a network environment that replaces `Request.world`; `free`, true if answers cost nothing,
    so that `max_cost` requires no prices; and the coroutine function `aclose`.

    Example:
        ```python
        class Echo:
            async def respond(self, request):
                yield TextDelta(request.messages[-1].text)
                yield Finish("stop")
        ```
    """

    def respond(self, request: Request, /) -> AsyncIterator[Delta]:
        """Answer a request with an asynchronous generator of pieces, ended by `Finish`.

        Raises:
            ProviderError: The model cannot answer.
        """
        ...


class ProviderError(ToolcribError):
    """A model could not answer.

    Attributes:
        retryable: Whether the same request may succeed later.
        details: Facts about the error, such as `status` and `retry_after` (seconds).
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
        """Return `{code, message, hint, retryable, details}`; details that are not JSON become strings."""
        details: JSON = json.loads(json.dumps(self.details, default=str))
        told: dict[str, JSON] = {"code": self.code, "message": self.message, "hint": self.hint}
        return {**told, "retryable": self.retryable, "details": details}


_MILLION = 1_000_000


class Prices(NamedTuple):
    """Prices in US dollars per million tokens.

    Attributes:
        input: Input tokens.
        output: Output tokens, including reasoning.
        cached: Input tokens read from the provider's cache (default: the price of `input`).
        cache_writes: Input tokens written to the provider's cache (default: the price of `input`).
    """

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None
    cache_writes: float | None = None

    def cost(self, tokens: Tokens) -> float:
        """Cost of an answer in US dollars."""
        # `max`: a service that counts cached tokens separately would otherwise give a negative cost.
        kept = tokens.cached + tokens.cache_writes
        dollars = max(tokens.input - kept, 0) * self.input + tokens.output * self.output
        dollars += tokens.cached * (self.input if self.cached is None else self.cached)
        dollars += tokens.cache_writes * (self.input if self.cache_writes is None else self.cache_writes)
        return dollars / _MILLION

    def check(self) -> None:
        """Check the prices.

        Raises:
            ConfigurationError: A price is negative or not a finite number.
        """
        for name, price in self._asdict().items():
            sound = isinstance(price, int | float) and not isinstance(price, bool)
            if price is not None and not (sound and math.isfinite(price) and price >= 0):
                raise ConfigurationError(
                    f"invalid price `{name}`: {price!r}",
                    hint="use US dollars per million tokens, such as 0.15",
                )


_FORMS: Final[Mapping[type, tuple[Any, ...]]] = {
    TextDelta: (str,),
    ReasoningDelta: (str, object),
    CallDelta: (int, str, str, (str, dict)),
    Finish: (str, Tokens, str),
}
"""Maps the type of a piece to the types of its fields."""


class CheckedResponse:
    """The pieces of an answer, each one checked. Leaving its block closes the generator of the provider.

    Raises:
        ProviderError: The provider raised it, raised something else, or yielded something that is not a
            piece.
    """

    # No generator: it would take as long as a mocked call.
    __slots__ = ("_close", "_next", "_provider", "_request")

    def __init__(self, provider: Provider, request: Request) -> None:
        self._provider = provider
        self._request = request
        self._next: Callable[[], Awaitable[Delta]]
        self._close: Callable[[], Awaitable[None]] | None = None

    async def __aenter__(self) -> Self:
        try:
            deltas: Any = self._provider.respond(self._request)
            if type(deltas) is AsyncGeneratorType:  # almost always; the protocol classes are slow
                self._next, self._close = deltas.__anext__, deltas.aclose
                return self
            if not isinstance(deltas, AsyncIterable):
                raise _no_generator(self._provider, deltas)  # noqa: TRY301 -- handled like an error of the provider
            self._next = aiter(deltas).__anext__
        except ProviderError:
            raise
        except Exception as error:
            raise _provider_error(self._provider, error) from error
        if isinstance(deltas, AsyncGenerator):
            self._close = deltas.aclose
        return self

    async def __aexit__(self, *_error: object) -> None:
        if self._close is None:
            return
        try:
            await self._close()
        except ProviderError:
            raise
        except Exception as error:
            raise _provider_error(self._provider, error) from error

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delta:
        try:
            delta = await self._next()
        except (StopAsyncIteration, ProviderError):
            raise
        except Exception as error:
            raise _provider_error(self._provider, error) from error
        if not _is_sound(delta):
            raise _no_delta(self._provider, delta)
        return delta


def _provider_error(provider: Provider, error: Exception) -> ProviderError:
    # Such as a missing secret or an invalid setting: keep the code and the hint.
    if isinstance(error, ToolcribError):
        return ProviderError(error.message, code=error.code, hint=error.hint)
    # Providers are third-party code, which may raise anything. The text of the exception may contain the API
    # key, so only the log has it; the conversation, which is stored and shown, names the type.
    logging.getLogger("toolcrib").error("a bug in the provider `%s`", _name(provider), exc_info=error)
    kind = type(error).__name__
    message = f"a bug in the provider `{_name(provider)}`: {kind}; the traceback is in the `toolcrib` log"
    return ProviderError(message, code="provider_bug", details={"exception": kind})


def _is_sound(delta: Any) -> bool:
    kind = type(delta)
    if kind is TextDelta:  # most pieces
        return isinstance(delta[0], str)
    form = _FORMS.get(kind)
    if form is None or not all(map(isinstance, delta, form)):
        return False
    if kind is not Finish or delta.tokens is NO_TOKENS:
        return True
    return all(isinstance(count, int) and count >= 0 for count in delta.tokens)


def _no_generator(provider: Provider, given: object) -> ProviderError:
    if isinstance(given, Coroutine):
        given.close()  # avoids the warning "coroutine was never awaited"
    return ProviderError(
        f"`respond` of the provider `{_name(provider)}` returned a `{type(given).__name__}`",
        code="invalid_answer",
        hint="make it an asynchronous generator: `async def respond(self, request)` with `yield`",
    )


def _no_delta(provider: Provider, given: object) -> ProviderError:
    form = _FORMS.get(type(given))
    what = " with fields of the wrong type" if form else ", which is not a part of an answer"
    return ProviderError(
        f"the provider `{_name(provider)}` yielded a `{type(given).__name__}`{what}",
        code="invalid_answer",
        hint="yield `TextDelta`, `ReasoningDelta` and `CallDelta` with strings as fields, then `Finish`",
    )


def _name(provider: Provider) -> str:
    return type(provider).__name__
