"""Explain which rule answers a call and why the others do not: for `explain`, and for a call without a reply."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher
from functools import cached_property
from itertools import count
from textwrap import indent
from typing import Any

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON, Call, Descriptor, Outcome, Result
from toolcrib.core.pointers import keys_of
from toolcrib.core.subschemas import SchemaIndex
from toolcrib.core.text import compact
from toolcrib.executors.mock.replies import Reply
from toolcrib.executors.mock.rules import BARE, SEQUENCE, MockRule, blocking_rule, choose_rule
from toolcrib.executors.mock.variables import MockState, Scope, with_arguments
from toolcrib.expressions import escape_expressions
from toolcrib.expressions.matchers import MatchDifference, Matcher
from toolcrib.schema.generation import KeyedRandom, generate
from toolcrib.security.redaction import HIDDEN, Redactor, SecretPlaces, redact

NEAREST = 3
"""The number of rules that a report shows. Several, because the closest by count may not be the intended one."""

_BRACES = re.compile(r"\{[{%#]")

_MORE: dict[str, str] = {
    BARE: "increase `times`, set `after_last: repeat`, or write a `sequence` of replies",
    SEQUENCE: "add a reply to the sequence, or set `after_last: repeat` or `after_last: cycle`",
}
"""Pointer of a mock without `rules`, to which no rule can be added -> what to change."""


def report_no_match(
    rules: tuple[MockRule, ...], call: Call, scope: Scope, number: int, state: MockState
) -> Result:
    """The result of a call without a reply, with outcome `unmatched_mock`."""
    tool = call.tool
    near = RuleMiss(tool, scope, number, state).nearest(rules)
    shown = compact(redact(call.arguments, tool.input_schema))
    lines = [f"no mock rule of `{tool.name}` answers call {number} with {shown}"]
    lines += [f"  {entry['rule']} ({entry['at']}): {entry['differences'][0]}" for entry in near]
    details: dict[str, JSON] = {"call": number, "nearest": near}
    way_out = _MORE.get(rules[0].pointer, "")
    if not way_out:
        way_out, facts = _way_out(rules, call, scope, number, state)
        details |= facts
    lines += [f"  {line}" for line in way_out.split("\n")]
    return Result.failure(Outcome.UNMATCHED_MOCK, "\n".join(lines), details=details)


def _way_out(
    rules: tuple[MockRule, ...], call: Call, scope: Scope, number: int, state: MockState
) -> tuple[str, dict[str, JSON]]:
    """How to change the mock so that the call is answered, as text and as `details` for programs."""
    paste = rule_to_paste(call, {rule.label for rule in rules}, len(rules) + 1)
    below = f"below the others:\n{indent(paste, '  ')}"
    stopped = blocking_rule(rules, scope, number, state)
    if stopped is None:
        return f"to answer it, add this rule {below}", {"paste": paste}
    alone = stopped.replies[0].pointer == f"{stopped.pointer}/reply"
    more = "increase `times` of its reply" if alone else "add a reply to its list"
    words = f"{stopped.label} is exhausted: {more}, or set `after_last: repeat`"
    facts: dict[str, JSON] = {"exhausted": {"rule": stopped.label, "pointer": stopped.pointer}}
    passing = "or set `after_last: next_rule`"
    # Tries what would happen with `next_rule`, so that the advice is never one that fails.
    freed = tuple(rule._replace(after_last="next_rule") if rule is stopped else rule for rule in rules)
    try:
        chosen = choose_rule(freed, scope, number, state)
        again = blocking_rule(freed, scope, number, state)
    except ExpressionError:
        return words, facts
    if chosen is not None:
        return f"{words}, {passing}: then {chosen[0].label} answers", {**facts, "after_last": "next_rule"}
    if again is not None:
        return words, facts
    return f"{words},\n{passing} and add this rule {below}", {
        **facts,
        "after_last": "next_rule",
        "paste": paste,
    }


class RuleMiss:
    """Explains why rules do not answer a call. Secrets of the call and of the rules are masked.

    Args:
        tool: The tool.
        scope: The variables of the call's expressions.
        number: The number of the call.
        state: The session's memory of the tool.
    """

    def __init__(self, tool: Descriptor, scope: Scope, number: int, state: MockState) -> None:
        self._tool = tool
        self._scope = scope
        self._number = number
        self._state = state

    def nearest(self, rules: Sequence[MockRule]) -> list[Any]:
        """The closest rules, fewest differences first: `{rule, at, pointer, differences}`."""
        # Counted first and compared by text only on a tie: SequenceMatcher is slow for many rules.
        counted = [(self._distance(rule), rule) for rule in rules]
        missed = sorted([pair for pair in counted if pair[0]], key=lambda pair: pair[0])
        if len(missed) > NEAREST:
            last = missed[NEAREST - 1][0]
            missed = [pair for pair in missed if pair[0] <= last]
            if len(missed) > NEAREST:
                missed.sort(key=lambda pair: (pair[0], self._strangeness(pair[1])))
        return [
            {
                "rule": rule.label,
                "at": self._tool.origin.place(rule.pointer),
                "pointer": rule.pointer,
                "differences": self.why_not(rule),
            }
            for _distance, rule in missed[:NEAREST]
        ]

    def why_not(self, rule: MockRule) -> list[str]:
        """The reasons why a rule does not answer the call; empty if it does."""
        scope, number = self._scope, self._number
        try:
            reasons = [] if rule.args is None else self._of_arguments(rule.args)
            if rule.call is not None:
                reasons += [
                    f"call number: {difference}" for difference in rule.call.differences(number, scope)
                ]
            if rule.state is not None:
                reasons += map(_of_state, rule.state.differences(scope["state"], scope))
            if not reasons and not rule.matches(scope, number):
                reasons.append("the condition `if` is false")
        except ExpressionError as error:
            return [f"cannot be evaluated: {error.message}"]
        if not reasons and rule.reply_at(self._state) is None:
            reasons.append(_exhausted(rule))
        return reasons

    def _distance(self, rule: MockRule) -> int:
        """The number of reasons; 0 for a rule that answers."""
        scope, number = self._scope, self._number
        try:
            found = 0 if rule.args is None else len(rule.args.differences(scope["args"], scope))
            found += 0 if rule.call is None else len(rule.call.differences(number, scope))
            found += 0 if rule.state is None else len(rule.state.differences(scope["state"], scope))
            answers = not found and rule.matches(scope, number) and rule.reply_at(self._state) is not None
        except ExpressionError:
            return 1
        return 0 if answers else max(found, 1)

    def _strangeness(self, rule: MockRule) -> float:
        """How much the expected and actual values differ, to rank rules with equally many differences."""
        try:
            found = [] if rule.args is None else rule.args.differences(self._scope["args"], self._scope)
        except ExpressionError:
            return 1.0
        pairs = (SequenceMatcher(None, each.expected, each.actual, autojunk=False) for each in found)
        return sum(1 - pair.ratio() for pair in pairs)

    @cached_property
    def _masked(self) -> JSON:
        return redact(self._scope["args"], self._tool.input_schema)

    @cached_property
    def _places(self) -> SecretPlaces:
        return SecretPlaces(SchemaIndex(self._tool.input_schema, {}))

    def _of_arguments(self, matcher: Matcher) -> list[str]:
        """The differences of the arguments; for secrets, only where they are."""
        scope, masked = self._scope, self._masked
        # The real arguments determine where they differ, the masked ones what may be shown.
        found = matcher.differences(scope["args"], scope)
        shown: list[MatchDifference | None] = [*found]
        if masked != scope["args"]:
            told = {
                difference.pointer: difference
                for difference in matcher.differences(masked, with_arguments(scope, masked))
            }
            shown = [told.get(difference.pointer) for difference in found]
        seen = Redactor(scope["args"], self._tool.input_schema)
        # The rule's own values at secret positions are masked wherever they occur in the text.
        for plain in _plain(matcher.expected()):
            seen.add(plain, self._tool.input_schema)
        pairs = zip(shown, found, strict=True)
        return [f"args{_without_secrets(safe, real, masked, self._places, seen)}" for safe, real in pairs]


def _of_state(difference: MatchDifference) -> str:
    """A difference of a state machine, in words."""
    machine = next(iter(keys_of(difference.pointer)), "")
    what = f"state `{machine}` is" if machine else "the states are"
    return f"{what} {difference.actual}, expected {difference.expected}"


def _exhausted(rule: MockRule) -> str:
    many, calls = len(rule.replies), rule.ends[-1]
    used = f"its {many} repl{'y is' if many == 1 else 'ies are'} used up"
    return f"exhausted: {used}" + (f", after {calls} calls" if calls != many else "")


def _without_secrets(
    shown: MatchDifference | None,
    real: MatchDifference,
    masked: JSON,
    places: SecretPlaces,
    seen: Redactor,
) -> str:
    """A difference in words. The value that a rule expects of a secret is as secret as the value of the call."""
    path = tuple(int(key) if key.isdecimal() else key for key in keys_of(real.pointer))
    absent = real.actual == "nothing"
    secret = shown is None or _at(masked, real.pointer) == HIDDEN or places.hides(path, "")
    text = "" if shown is None else str(shown)
    safe = seen.hide_in_text(text)
    # In a text that was shortened, half of a secret may be left, which masking does not find.
    if secret or (safe != text and "…" in text):
        return f"{real.pointer}: expected something else, got {'nothing' if absent else HIDDEN}"
    return safe


def _plain(pattern: JSON) -> Iterator[JSON]:
    """The plain values of a pattern, each wrapped in the shape of the arguments."""
    if isinstance(pattern, dict):
        for key, item in pattern.items():
            if not key.startswith("$"):
                yield from ({key: plain} for plain in _plain(item))
            elif key in {"$any", "$all", "$in"} and isinstance(item, list):
                yield from (plain for choice in item for plain in _plain(choice))
            else:
                yield from _plain(item)
    elif isinstance(pattern, list):
        for index, item in enumerate(pattern):
            yield from ([*[None] * index, plain] for plain in _plain(item))
    else:
        yield pattern


def _at(value: JSON, pointer: str) -> JSON:
    """The value at a pointer, or the masked value above it."""
    for key in keys_of(pointer):
        if isinstance(value, dict):
            value = value.get(key)
        else:
            value = value[int(key)] if isinstance(value, list) and int(key) < len(value) else value
    return value


def rule_to_paste(call: Call, labels: Collection[str], place: int) -> str:
    """YAML of a rule that matches this call and returns a valid result. It matches any value for a secret.

    Args:
        call: The call.
        labels: The names of the existing rules, which the new one must not repeat.
        place: The position of the new rule, from 1.
    """
    arguments = _pattern(call.arguments, redact(call.arguments, call.tool.input_schema))
    when = f"when:\n    args: {_flow(arguments)}\n  reply:\n    {_some_reply(call)}"
    if f"rule {place}" not in labels:
        return f"- {when}"
    free = next(name for name in (f"rule {number}" for number in count(place)) if name not in labels)
    return f"- name: {free}\n  {when}"


def _some_reply(call: Call) -> str:
    """A reply with a result that the output schema accepts, or an error if none can be generated."""
    if call.tool.output_schema is None:
        return "result: null"
    try:
        answer = generate(call.tool.output_schema, KeyedRandom(0, call.tool.name))
    except ExpressionError:
        return "error: no reply is defined yet"
    return f"result: {_flow(escape_expressions(answer))}"


def _pattern(value: JSON, masked: JSON) -> JSON:
    """A matcher that accepts the value and contains no secret."""
    if masked == HIDDEN and value != HIDDEN:
        return {"$exists": True}
    if isinstance(value, dict) and isinstance(masked, dict):
        # Keys that would be read as operators or expressions need `$exact`.
        if not any(key.startswith("$") or _BRACES.search(key) for key in value):
            return {key: _pattern(item, masked[key]) for key, item in value.items()}
        readable = masked == value and not any(_BRACES.search(key) for key in _keys(value))
        return {"$exact": escape_expressions(value)} if readable else {"$exists": True}
    if isinstance(value, list) and isinstance(masked, list):
        return [_pattern(item, shown) for item, shown in zip(value, masked, strict=True)]
    return escape_expressions(value)


def _keys(value: JSON) -> Iterator[str]:
    """Every key within a value."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _keys(item)


def _flow(value: JSON) -> str:
    """The value as JSON that YAML reads the same way."""
    # YAML 1.2 section 5.1 allows only printable characters in a stream; others are escaped.
    text = json.dumps(value, ensure_ascii=False)
    return "".join(
        char if char.isprintable() or ord(char) > 0xFFFF else f"\\u{ord(char):04x}" for char in text
    )


MOST_SKIPPED = 20
"""The number of skipped rules that an explanation gives reasons for."""


def explain_call(
    rules: tuple[MockRule, ...], call: Call, scope: Scope, number: int, state: MockState
) -> dict[str, JSON]:
    """The rule that would answer, its location, and why the rules above it would not."""
    try:
        chosen = choose_rule(rules, scope, number, state)
    except ExpressionError as error:
        return {"error": error.message}
    miss = RuleMiss(call.tool, scope, number, state)
    passed = rules if chosen is None else rules[: _place_of(chosen[0], rules)]
    reasons = ((rule, miss.why_not(rule)) for rule in passed[:MOST_SKIPPED])
    skipped: list[JSON] = [{"rule": rule.label, "because": [*why]} for rule, why in reasons if why]
    told: dict[str, JSON] = {"skipped": skipped}
    if len(passed) > MOST_SKIPPED:
        told["skipped_too"] = len(passed) - MOST_SKIPPED
    if chosen is None:
        return {"rule": None, **told, "nearest": miss.nearest(rules)}
    rule, index = chosen
    reply = rule.replies[index]
    place = call.tool.origin.place(reply.pointer)
    answer: dict[str, JSON] = {"rule": rule.label, "reply": index + 1, "kind": reply.kind, "at": place}
    return {**answer, **_world_of(reply, call), **told}


def _place_of(wanted: MockRule, rules: tuple[MockRule, ...]) -> int:
    return next(place for place, rule in enumerate(rules) if rule is wanted)


def _world_of(reply: Reply, call: Call) -> dict[str, JSON]:
    """The fault or the passthrough mode of a reply; empty for other replies."""
    if reply.injection is not None:
        return {"fault": reply.injection.kind}
    if reply.elsewhere:
        return {"passthrough": reply.elsewhere, "allowed": call.context.passthrough}
    return {}
