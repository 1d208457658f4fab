"""What a provider answers, held to its contract: pieces of an answer, or the reason why there is none."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any, Final

from toolcrib.core.errors import ToolcribError
from toolcrib.provider.models.protocol import (
    CallDelta,
    Delta,
    Finish,
    Provider,
    ProviderError,
    ReasoningDelta,
    Request,
    TextDelta,
    Tokens,
)

_FORMS: Final[Mapping[type, tuple[Any, ...]]] = {
    TextDelta: (str,),
    ReasoningDelta: (str, object),
    CallDelta: (int, str, str, (str, dict)),
    Finish: (str, Tokens, str),
}
"""Kind of a piece -> what its fields are."""


async def answered(provider: Provider, request: Request) -> AsyncGenerator[Delta, None]:
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
        message = f"a bug in the provider `{_name(provider)}`: {kind}; the log of `toolcrib` has the trace"
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
        f"`respond` of the provider `{_name(provider)}` gives a `{type(given).__name__}`",
        code="invalid_answer",
        hint="make it an asynchronous generator: `async def respond(self, request)` with `yield`",
    )


def _no_delta(provider: Provider, given: object) -> ProviderError:
    form = _FORMS.get(type(given))
    what = "with fields of other types" if form else "in its answer"
    return ProviderError(
        f"the provider `{_name(provider)}` gives a `{type(given).__name__}` {what}",
        code="invalid_answer",
        hint="yield `TextDelta`, `ReasoningDelta`, `CallDelta` and at the end `Finish`, with texts in their fields",
    )


def _name(provider: Provider) -> str:
    return type(provider).__name__
