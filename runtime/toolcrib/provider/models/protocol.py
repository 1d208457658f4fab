"""The contract of a provider: requests, the pieces of an answer, their price, and the checks of what a provider answers."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from toolcrib.core.errors import ConfigurationError, ToolcribError
from toolcrib.core.model import JSON, NOTHING
from toolcrib.formats.providers import Declaration
from toolcrib.provider.messages import Message
from toolcrib.servers.environment import NetworkEnvironment


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
    world: NetworkEnvironment | None = None


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


_MILLION = 1_000_000


class Prices(NamedTuple):
    """US dollars for a million tokens of each kind.

    Attributes:
        input: What is sent.
        output: What is answered, with what was thought.
        cached: What is sent and was known to the provider; None for the price of `input`.
        cache_writes: What is sent and kept by the provider; None for the price of `input`.
    """

    input: float = 0.0
    output: float = 0.0
    cached: float | None = None
    cache_writes: float | None = None

    def cost(self, tokens: Tokens) -> float:
        """US dollars."""
        kept = tokens.cached + tokens.cache_writes
        dollars = max(tokens.input - kept, 0) * self.input + tokens.output * self.output
        dollars += tokens.cached * (self.input if self.cached is None else self.cached)
        dollars += tokens.cache_writes * (self.input if self.cache_writes is None else self.cache_writes)
        return dollars / _MILLION

    def check(self) -> None:
        """Nothing, where all of them are prices.

        Raises:
            ConfigurationError: One is no finite number of at least 0.
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
"""Kind of a piece -> what its fields are."""


async def checked_response(provider: Provider, request: Request) -> AsyncGenerator[Delta, None]:
    """The pieces of an answer, as they come.

    Raises:
        ProviderError: The provider's own; or, in its place, for whatever else it raises, and for what is no piece.
            A bug's text may hold anything, so only the log of `toolcrib` has it.
    """
    try:
        deltas: Any = provider.respond(request)
        if not isinstance(deltas, AsyncIterable):
            raise _no_generator(provider, deltas)  # noqa: TRY301 -- told as what the provider raises itself
        async with _closing(deltas):
            async for delta in deltas:
                if not _is_sound(delta):
                    raise _no_delta(provider, delta)  # noqa: TRY301 -- as above
                yield delta
    except ProviderError:
        raise
    except ToolcribError as error:
        raise ProviderError(error.message, code=error.code, hint=error.hint) from error
    except Exception as error:
        logging.getLogger("toolcrib").exception("a bug in the provider `%s`", _name(provider))
        kind = type(error).__name__
        message = f"a bug in the provider `{_name(provider)}`: {kind}; the traceback is in the `toolcrib` log"
        raise ProviderError(message, code="provider_bug", details={"exception": kind}) from error


def _closing(deltas: AsyncIterable[Delta]) -> AbstractAsyncContextManager[object]:
    """Closes what a provider gives, where that can be closed."""
    return aclosing(deltas) if isinstance(deltas, AsyncGenerator) else nullcontext()


def _is_sound(delta: Any) -> bool:
    form = _FORMS.get(type(delta))
    if form is None or not all(map(isinstance, delta, form)):
        return False
    counts: Iterable[Any] = delta.tokens if type(delta) is Finish else ()
    return all(isinstance(count, int) and count >= 0 for count in counts)


def _no_generator(provider: Provider, given: object) -> ProviderError:
    if isinstance(given, Coroutine):
        given.close()
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
