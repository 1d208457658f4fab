"""What assertions see of an agent's conversation, or of one turn of it, and the verdicts they give."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, NamedTuple

from toolcrib.core.errors import ConfigurationError, Problem, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Outcome, Result
from toolcrib.core.text import compact, text_for_model
from toolcrib.executors.client import DECLINED
from toolcrib.expressions.matchers import compile_matcher
from toolcrib.loading.scenarios.model import GuardrailCheck
from toolcrib.provider.conversations import CallRecord, Conversation
from toolcrib.provider.messages import Message
from toolcrib.provider.models.protocol import Tokens
from toolcrib.schema.validation.violations import count, describe_value, shorten
from toolcrib.security.redaction import Redactor, redact

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
        guardrails: Those of the prompt.
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
    guardrails: tuple[GuardrailCheck, ...] = ()
    has_text: bool = True
    hide: Callable[[str], str] = _as_it_is
    whole: Trajectory | None = None

    @classmethod
    def of(
        cls,
        conversation: Conversation,
        turn: int | None = None,
        guardrails: Sequence[GuardrailCheck] = (),
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
            guardrails: Those of the prompt.
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
        seen = Redactor()
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


class AssertionVerdict(NamedTuple):
    """What comes of an assertion.

    Attributes:
        applies: Whether it could be judged; one that does not apply neither holds nor fails.
        passed: Whether it holds; False where it does not apply.
        score: How far it holds, from 0 to 1.
        message: What was asked for and what was there; why it does not apply. On one line, without secrets.
        unmet: Whether it does not apply because what its own `when` asks for did not happen.
    """

    applies: bool
    passed: bool
    score: float
    message: str
    unmet: bool = False


def passed(message: str, score: float = 1.0) -> AssertionVerdict:
    """The assertion holds."""
    return AssertionVerdict(applies=True, passed=True, score=score, message=message)


def failed(message: str, score: float = 0.0) -> AssertionVerdict:
    """It does not hold."""
    return AssertionVerdict(applies=True, passed=False, score=score, message=message)


def skipped(reason: str) -> AssertionVerdict:
    """It does not apply."""
    return AssertionVerdict(applies=False, passed=False, score=0.0, message=reason)


def verdict(passed: bool, message: str, score: float | None = None) -> AssertionVerdict:
    """It holds or not; the score is 1 or 0 unless given."""
    return AssertionVerdict(
        applies=True, passed=passed, score=float(passed) if score is None else score, message=message
    )


@lru_cache(maxsize=256)
def pattern_test(pattern: str) -> Callable[[str], bool]:
    """What tells whether a regular expression is found in a text, in linear time.

    Raises:
        ConfigurationError: It is none; loading refuses it.
    """
    problems: list[Problem] = []
    matcher = compile_matcher({"$regex": pattern}, problems)
    if problems:
        raise ConfigurationError(problems[0].message, code=problems[0].code)
    return matcher.matches


def contains_text(part: str, text: str) -> bool:
    """Whether a text stands in another one, whatever their case."""
    return part.casefold() in text.casefold()


def contains_words(part: str, text: str) -> bool:
    """Whether a text stands in another one with no letter or digit before or after it, whatever their case."""
    return re.search(rf"(?<!\w){re.escape(part.casefold())}(?!\w)", text.casefold()) is not None


_TOLD: Final = 12
"""Calls that a message tells; the others are counted."""

_LONGEST: Final = 120
"""Characters that a message spends on the arguments of a call."""

_ENDLESS: Final = 1 << 30


def executed_calls(calls: Iterable[CallRecord], *, ignore_validation: bool = False) -> list[CallRecord]:
    """The calls that reached their tool; with `ignore_validation` also those whose arguments were refused."""
    return [
        call
        for call in calls
        if call.reached
        or call.outcome is Outcome.OK
        or (ignore_validation and call.outcome is Outcome.INVALID_ARGUMENTS)
    ]


def successful_calls(calls: Iterable[CallRecord], *, ignore_validation: bool = False) -> list[CallRecord]:
    """The calls that ended `ok`, or that a person declined: the model has done its part.

    With `ignore_validation` also those whose arguments were refused.
    """
    return [
        call
        for call in calls
        if call.outcome is Outcome.OK
        or call.code == DECLINED
        or (ignore_validation and call.outcome is Outcome.INVALID_ARGUMENTS)
    ]


def calls_of_tools(calls: Iterable[CallRecord], tools: Collection[str] | None) -> list[CallRecord]:
    """The calls of some tools; all of them where none is named."""
    return [call for call in calls if not tools or call.tool in tools]


def result_text(call: CallRecord) -> str:
    """The whole text of what a call answered, or of why it failed; empty while it waits."""
    if call.outcome is None:
        return ""
    if call.outcome is Outcome.OK:
        return text_for_model(Result.ok(call.value, content=call.content), _ENDLESS)
    failure = Result.failed(call.outcome, call.message, code=call.code or None, content=call.content)
    return text_for_model(failure, _ENDLESS)


def outcome_text(call: CallRecord) -> str:
    """How a call ended, in a word or two."""
    if call.outcome is None:
        return "waiting"
    return f"{call.outcome} ({call.code})" if call.code not in {"", call.outcome} else call.outcome.value


def describe_call(call: CallRecord) -> str:
    """A call in a few words: `get_order({"id":"ORD-1"}) ok`."""
    arguments = "?" if call.arguments is None else as_text(redact(call.arguments)) if call.arguments else ""
    return f"{shorten(call.tool)}({shorten(arguments, _LONGEST)}) {outcome_text(call)}"


def list_calls(calls: Sequence[CallRecord], words: str = "calls") -> str:
    """All calls in order, as a sentence."""
    if not calls:
        return f"no {words}"
    lines = [describe_call(call) for call in calls[:_TOLD]]
    more = [f"{len(calls) - _TOLD} more"] if len(calls) > _TOLD else []
    return f"{words}: " + ", ".join([*lines, *more])


def name_hint(tool: str, calls: Iterable[CallRecord], others: Iterable[str] = ()) -> str:
    """What was called under a name like this one, as the end of a sentence; empty if nothing was.

    Args:
        tool: What was wanted.
        calls: What was called.
        others: Names that are wanted as well, so that none of them is a slip of this one.
    """
    names = {call.tool for call in calls}
    hint = "" if tool in names else did_you_mean(tool, names - {*others})
    return f" ({hint})" if hint else ""


def times(number: int) -> str:
    """`2 times`."""
    return count(number, "time")


def matches_expected(wanted: JSON, got: JSON) -> bool:
    """Whether a value is as wanted: of objects the keys that are named, null for any; numbers equal their texts."""
    if wanted is None:
        return True
    if isinstance(wanted, dict):
        return isinstance(got, dict) and all(
            key in got and matches_expected(value, got[key]) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(got, list) and len(got) == len(wanted) and all(map(matches_expected, wanted, got))
    if isinstance(got, list | dict) or got is None:
        return False
    return as_text(wanted) == as_text(got) or (_is_number(wanted) and _is_number(got) and wanted == got)


def as_text(value: JSON) -> str:
    """A value as a regular expression sees it: a text as it is, all else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return compact(value)
    except ValueError:
        return describe_value(value)


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
