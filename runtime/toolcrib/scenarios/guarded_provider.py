"""Rewrite the replies of a model that violate a guardrail, before the conversation contains them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any, Final

from toolcrib.loading.scenarios.model import GuardrailCheck
from toolcrib.provider.models.protocol import (
    CheckedResponse,
    Delta,
    Finish,
    Provider,
    ProviderError,
    Request,
    TextDelta,
)
from toolcrib.scenarios.assertions.evaluator import violation_of
from toolcrib.scenarios.assertions.trajectories import GuardrailFiring

REPLACEMENT: Final = "Sorry, we can't provide this response as it would violate our content policy."
"""The reply in place of one that violates a guardrail without `message`; the default of PromptKit."""


class GuardedProvider:
    """A provider whose replies are rewritten by the first guardrail that they violate.

    Each reply is judged as a whole, so its pieces are held back until it is complete.

    Attributes:
        firings: The violations so far.

    Args:
        provider: The provider; its optional members are available here as well.
        guards: The guardrails; those without `rewrite` are ignored.
    """

    def __init__(self, provider: Provider, guards: Sequence[GuardrailCheck]) -> None:
        self.firings: list[GuardrailFiring] = []
        self._provider = provider
        self._guards = [(index, guard) for index, guard in enumerate(guards) if guard.rewrites]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    async def respond(self, request: Request, /) -> AsyncGenerator[Delta, None]:
        """Answer a request with the rewritten reply."""
        # Turns are counted by the messages of the user, as in assertions.
        turn = sum(message.role == "user" for message in request.messages)
        held: list[Delta] = []
        failure: ProviderError | None = None
        try:
            async with CheckedResponse(self._provider, request) as deltas:
                async for delta in deltas:
                    held.append(delta)
                    if isinstance(delta, Finish):
                        break
        except ProviderError as error:
            # The text of an interrupted reply stays in the conversation, so it is judged as well.
            failure = error
        for delta in self._rewritten(held, turn):
            yield delta
        if failure is not None:
            raise failure

    def _rewritten(self, held: Sequence[Delta], turn: int) -> Iterator[Delta]:
        text = "".join(delta.text for delta in held if isinstance(delta, TextDelta))
        for index, guard in self._guards if text else ():
            found = violation_of(guard, text)
            if found:
                self.firings.append(GuardrailFiring(turn, index, found))
                replaced = [TextDelta(_rewrite(guard, text))]
                for delta in held:
                    # The new text is where the old one began; calls and everything else stay.
                    yield from [delta] if not isinstance(delta, TextDelta) else replaced
                    replaced = [] if isinstance(delta, TextDelta) else replaced
                return
        yield from held


def _rewrite(guard: GuardrailCheck, text: str) -> str:
    """The text in place of one that violates a guardrail."""
    assertion = guard.assertion
    most = assertion.params.get("max") if assertion is not None and assertion.type == "max_length" else None
    if most is not None and len(text) > most:
        return text[:most]
    return guard.message or REPLACEMENT
