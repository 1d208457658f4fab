"""What assertions judge: the way that an agent took, or one turn of it, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from toolcrib.core.model import JSON, NOTHING
from toolcrib.loading.prompts import Guardrail
from toolcrib.provider.conversations import CallRecord, Conversation
from toolcrib.provider.messages import Message
from toolcrib.provider.models.protocol import Tokens
from toolcrib.security.redaction import SeenSecrets

_NO_TOKENS: Final = Tokens()


def _as_it_is(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """What an agent said and called.

    Attributes:
        texts: What it said, one for each of its messages that say something, in order.
        calls: What it asked for, in the order asked.
        messages: The messages, without what instructs the model.
        tokens: What the conversation took so far.
        cost: The same in US dollars; 0 where no prices are known.
        states: Named states of the mocks at the end; empty where nobody knows them.
        guardrails: Those of the prompt, as written.
        has_text: Whether there was a model that could say something.
        hide: Masks what the run knows to be secret in a text.
        whole: All of the conversation as far as it came, for what looks beyond the turn; None where this is it.
    """

    texts: tuple[str, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    messages: tuple[Message, ...] = ()
    tokens: Tokens = _NO_TOKENS
    cost: float = 0.0
    states: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    guardrails: tuple[Guardrail, ...] = ()
    has_text: bool = True
    hide: Callable[[str], str] = _as_it_is
    whole: Trajectory | None = None

    @classmethod
    def of(
        cls,
        conversation: Conversation,
        turn: int | None = None,
        guardrails: Sequence[Guardrail] = (),
        *,
        has_text: bool = True,
        states: Mapping[str, JSON] = NOTHING,
        hide: Callable[[str], str] = _as_it_is,
    ) -> Trajectory:
        """What assertions see of a conversation.

        Args:
            conversation: As far as it came.
            turn: The number of the user's message that began the turn, from 1; None for all turns. Of what came
                later nothing is seen.
            guardrails: Those of the prompt, as written.
            has_text: Whether there was a model that could say something.
            states: Named states of the mocks at the end.
            hide: Masks secrets in a text.
        """
        last = conversation.turns if turn is None else turn
        whole = cls(
            texts=(),
            calls=tuple(call for call in conversation.calls if call.turn <= last),
            messages=tuple(_of_turns(conversation.messages, range(last + 1))),
            tokens=conversation.tokens,
            cost=conversation.cost,
            states=states,
            guardrails=tuple(guardrails),
            has_text=has_text,
            hide=hide,
        )
        whole = replace(whole, texts=_texts(whole.messages))
        if turn is None:
            return whole
        messages = tuple(_of_turns(conversation.messages, [turn]))
        calls = tuple(call for call in whole.calls if call.turn == turn)
        return replace(whole, texts=_texts(messages), calls=calls, messages=messages, whole=whole)

    @property
    def reply(self) -> str:
        """What it said last; empty if it said nothing."""
        return self.texts[-1] if self.texts else ""

    def hidden(self, text: str) -> str:
        """A text without secrets: those that the run knows, and what calls have under a secret's name."""
        seen = SeenSecrets()
        for call in self.calls:
            seen.add(call.arguments)
            seen.add(call.value)
        return self.hide(seen.hide_in_text(text))


def _of_turns(messages: Iterable[Message], turns: Sequence[int]) -> Iterator[Message]:
    """The messages of some turns; those before the first message of the user are of turn 0."""
    turn = 0
    for message in messages:
        turn += message.role == "user"
        if turn in turns and message.role != "system":
            yield message


def _texts(messages: Iterable[Message]) -> tuple[str, ...]:
    return tuple(message.text for message in messages if message.role == "assistant" and message.text)
