"""Trajectories (the conversation or the turn that an assertion sees), and verdicts."""

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


class GuardrailFiring(NamedTuple):
    """A reply that a guardrail rewrote.

    Attributes:
        turn: Number of the user's message that began the turn, from 1.
        guard: Index of the guardrail.
        found: What it found in the reply of the model.
    """

    turn: int
    guard: int
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trajectory:
    """The texts and calls of an agent.

    Attributes:
        texts: The texts of the agent's messages that are not empty, in order.
        calls: The requested calls in order.
        messages: The messages without system messages.
        tokens: Tokens of the conversation so far.
        cost: Cost so far in US dollars; 0 without known prices.
        states: Named states of the mocks at the end; empty if unknown.
        guardrails: The guardrails of the agent and its prompt.
        firings: The replies that guardrails rewrote; `texts` contains the rewritten ones.
        has_text: Whether the provider produces text.
        hide: Masks the secrets that the run knows.
        whole: The conversation so far, for assertions that look beyond the turn; None if this is it.
    """

    texts: tuple[str, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    messages: tuple[Message, ...] = ()
    tokens: Tokens = _NO_TOKENS
    cost: float = 0.0
    states: Mapping[str, JSON] = field(default_factory=lambda: NOTHING)
    guardrails: tuple[GuardrailCheck, ...] = ()
    firings: tuple[GuardrailFiring, ...] = ()
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
        firings: Sequence[GuardrailFiring] = (),
        has_text: bool = True,
        states: Mapping[str, JSON] = NOTHING,
        hide: Callable[[str], str] = _as_it_is,
    ) -> Trajectory:
        """Create the trajectory of a conversation or a turn.

        Args:
            conversation: The conversation so far.
            turn: Number of the user's message that began the turn, from 1; None for all turns. Later turns are not
                included.
            guardrails: The guardrails of the agent and its prompt.
            firings: The replies that they rewrote.
            has_text: Whether the provider produces text.
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
            firings=tuple(each for each in firings if each.turn <= last),
            has_text=has_text,
            hide=hide,
        )
        # Texts are derived from the messages, so that both end with the same turn.
        whole = replace(whole, texts=_texts(whole.messages))
        if turn is None:
            return whole
        messages = tuple(_of_turns(conversation.messages, [turn]))
        calls = tuple(call for call in whole.calls if call.turn == turn)
        firings = tuple(each for each in whole.firings if each.turn == turn)
        return replace(
            whole, texts=_texts(messages), calls=calls, messages=messages, firings=firings, whole=whole
        )

    @property
    def reply(self) -> str:
        """Last text of the agent; empty if there is none."""
        return self.texts[-1] if self.texts else ""

    def hidden(self, text: str) -> str:
        """Mask secrets in a text: those that the run knows, and values in calls whose key names a secret."""
        seen = Redactor()
        for call in self.calls:
            seen.add(call.arguments)
            seen.add(call.value)
        return self.hide(seen.hide_in_text(text))


def _of_turns(messages: Iterable[Message], turns: Sequence[int]) -> Iterator[Message]:
    """The messages of some turns; messages before the first one of the user belong to turn 0."""
    turn = 0
    for message in messages:
        turn += message.role == "user"
        if turn in turns and message.role != "system":
            yield message


def _texts(messages: Iterable[Message]) -> tuple[str, ...]:
    return tuple(message.text for message in messages if message.role == "assistant" and message.text)


class AssertionVerdict(NamedTuple):
    """The verdict of an assertion.

    Attributes:
        applies: Whether it could be judged; one that does not apply neither holds nor fails.
        passed: Whether it holds; False if it does not apply.
        score: How far it holds, from 0 to 1.
        message: The expected and the actual value, or why it does not apply. One line with secrets masked.
        unmet: Whether it does not apply because its own `when` did not happen.
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
    """The assertion does not hold."""
    return AssertionVerdict(applies=True, passed=False, score=score, message=message)


def skipped(reason: str) -> AssertionVerdict:
    """The assertion does not apply."""
    return AssertionVerdict(applies=False, passed=False, score=0.0, message=reason)


def verdict(passed: bool, message: str, score: float | None = None) -> AssertionVerdict:
    """The assertion holds or not. The default score is 1 or 0."""
    return AssertionVerdict(
        applies=True, passed=passed, score=float(passed) if score is None else score, message=message
    )


# The same pattern is tested against every call in every trial.
@lru_cache(maxsize=256)
def pattern_test(pattern: str) -> Callable[[str], bool]:
    """Return a test for whether a text contains a match of a regular expression, in linear time.

    Raises:
        ConfigurationError: The regular expression is invalid; loading refuses it.
    """
    problems: list[Problem] = []
    matcher = compile_matcher({"$regex": pattern}, problems)
    if problems:
        raise ConfigurationError(problems[0].message, code=problems[0].code)
    return matcher.matches


def contains_text(part: str, text: str, *, exact: bool = False) -> bool:
    """Whether a text contains another one; case is ignored unless `exact` is set."""
    return part in text if exact else part.casefold() in text.casefold()


def contains_words(part: str, text: str, *, exact: bool = False) -> bool:
    """Whether a text contains another one as whole words; case is ignored unless `exact` is set."""
    part, text = (part, text) if exact else (part.casefold(), text.casefold())
    # Not `\b`: it would require a word character at the edge of the part, which may end with a sign such as
    # `%`.
    return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text) is not None


_TOLD: Final = 12
"""Maximum number of calls that a message lists; the others are counted."""

_LONGEST: Final = 120
"""Maximum characters of the arguments of a call in a message."""

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
    """The calls that ended `ok`, or that a person declined, which is not the fault of the model.

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
    """The calls of some tools; all calls if no tool is named."""
    return [call for call in calls if not tools or call.tool in tools]


def result_text(call: CallRecord) -> str:
    """The complete text of a result or a failure; empty for a pending call."""
    if call.outcome is None:
        return ""
    if call.outcome is Outcome.OK:
        return text_for_model(Result.success(call.value, content=call.content), _ENDLESS)
    failure = Result.failure(call.outcome, call.message, code=call.code or None, content=call.content)
    return text_for_model(failure, _ENDLESS)


def outcome_text(call: CallRecord) -> str:
    """The outcome of a call, with its code if it is more specific."""
    if call.outcome is None:
        return "waiting"
    return f"{call.outcome} ({call.code})" if call.code not in {"", call.outcome} else call.outcome.value


def describe_call(call: CallRecord) -> str:
    """Describe a call: `get_order({"id":"ORD-1"}) ok`."""
    arguments = "?" if call.arguments is None else as_text(redact(call.arguments)) if call.arguments else ""
    return f"{shorten(call.tool)}({shorten(arguments, _LONGEST)}) {outcome_text(call)}"


def list_calls(calls: Sequence[CallRecord], words: str = "calls") -> str:
    """List the calls in order."""
    if not calls:
        return f"no {words}"
    lines = [describe_call(call) for call in calls[:_TOLD]]
    more = [f"{len(calls) - _TOLD} more"] if len(calls) > _TOLD else []
    return f"{words}: " + ", ".join([*lines, *more])


def name_hint(tool: str, calls: Iterable[CallRecord], others: Iterable[str] = ()) -> str:
    """A hint that a tool with a similar name was called; empty if there is none.

    Args:
        tool: The expected tool.
        calls: The calls.
        others: Other expected tools, which are not suggested.
    """
    names = {call.tool for call in calls}
    hint = "" if tool in names else did_you_mean(tool, names - {*others})
    return f" ({hint})" if hint else ""


def times(number: int) -> str:
    """`2 times`."""
    return count(number, "time")


def matches_expected(wanted: JSON, got: JSON) -> bool:
    """Whether a value is as expected: objects may have further keys, null accepts anything, numbers equal their texts."""
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
    # Models often send numbers as strings, which coercion accepts.
    return as_text(wanted) == as_text(got) or (_is_number(wanted) and _is_number(got) and wanted == got)


def as_text(value: JSON) -> str:
    """A value as the text for regular expressions: a string unchanged, anything else as JSON."""
    if isinstance(value, str):
        return value
    try:
        return compact(value)
    except ValueError:
        return describe_value(value)


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
