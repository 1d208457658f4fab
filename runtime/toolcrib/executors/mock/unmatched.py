"""What a call gets that no rule answers: the nearest rules, why each did not match, a rule to paste."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from toolcrib.errors import ExpressionError
from toolcrib.executors.mock.rules import SEQUENCE, Rule, stopping
from toolcrib.executors.mock.scope import MockState, Scope
from toolcrib.generation import Draw, generate
from toolcrib.matching import Difference, Matcher
from toolcrib.model import JSON, Call, Descriptor, Outcome, Result
from toolcrib.pointers import keys_of
from toolcrib.rendering import as_written
from toolcrib.secrets import HIDDEN, SecretPlaces, SeenSecrets, redact
from toolcrib.subschemas import SchemaIndex
from toolcrib.text import compact

NEAREST = 3
"""How many rules are shown; several, since the nearest by count may not be the one that was meant."""

_BRACES = re.compile(r"\{[{%#]")


def unmatched(rules: tuple[Rule, ...], call: Call, scope: Scope, number: int, state: MockState) -> Result:
    """The result `unmatched_mock` of a call."""
    tool = call.tool
    near = nearest(rules, tool, scope, number, state)
    shown = compact(redact(call.arguments, tool.input_schema))
    lines = [f"no mock rule of `{tool.name}` answers call {number} with {shown}"]
    lines += [
        f"  {entry['rule']} ({tool.origin.place(entry['pointer'])}): {entry['differences'][0]}"
        for entry in near
    ]
    details: dict[str, JSON] = {"call": number, "nearest": near}
    if rules[0].pointer == SEQUENCE:
        lines.append("  add a reply to the sequence, or write `after_last: repeat` or `after_last: cycle`")
    else:
        stopped = stopping(rules, scope, number, state)
        place = "below the others" if stopped is None else f"above {stopped.label}"
        details["paste"] = rule_to_paste(call)
        lines += [
            f"  a rule that would answer it, {place}:",
            *(f"    {line}" for line in rule_to_paste(call).splitlines()),
        ]
    return Result.failed(Outcome.UNMATCHED_MOCK, "\n".join(lines), details=details)


def nearest(
    rules: tuple[Rule, ...], tool: Descriptor, scope: Scope, number: int, state: MockState
) -> list[Any]:
    """The rules that came nearest, fewest differences first: `{rule, pointer, differences}`."""
    reasons = [(rule, why_not(rule, tool, scope, number, state)) for rule in rules]
    entries = [
        {"rule": rule.label, "pointer": rule.pointer, "differences": why} for rule, why in reasons if why
    ]
    return sorted(entries, key=lambda entry: len(entry["differences"]))[:NEAREST]


def why_not(rule: Rule, tool: Descriptor, scope: Scope, number: int, state: MockState) -> list[str]:
    """Why a rule does not answer a call, in words; empty if it does. What is secret is not told."""
    try:
        reasons = [] if rule.args is None else _differences(rule.args, tool, scope)
        if rule.call is not None:
            reasons += [f"call number: {difference}" for difference in rule.call.differences(number, scope)]
        if not reasons and not rule.matches(scope, number):
            reasons.append("the condition `if` is false")
    except ExpressionError as error:
        return [f"it can't be judged: {error.message}"]
    if not reasons and rule.reply_at(state) is None:
        many = len(rule.replies)
        reasons.append(f"exhausted: its {many} repl{'y is' if many == 1 else 'ies are'} used up")
    return reasons


def _differences(matcher: Matcher, tool: Descriptor, scope: Scope) -> list[str]:
    """The differences of the arguments; where a secret is concerned, only their places."""
    found = matcher.differences(scope["args"], scope)
    masked = redact(scope["args"], tool.input_schema)
    shown: list[Difference | None] = [*found]
    if masked != scope["args"]:
        again = matcher.differences(masked, {**scope, "args": masked})
        told = {difference.pointer: difference for difference in again}
        shown = [told.get(difference.pointer) for difference in found]
    places = SecretPlaces(SchemaIndex(tool.input_schema, {}))
    seen = SeenSecrets(scope["args"], tool.input_schema)
    for plain in _plain(matcher.expected()):
        seen.add(plain, tool.input_schema)
    pairs = zip(shown, found, strict=True)
    return [f"args{_without_secrets(safe, real, masked, places, seen)}" for safe, real in pairs]


def _without_secrets(
    shown: Difference | None, real: Difference, masked: JSON, places: SecretPlaces, seen: SeenSecrets
) -> str:
    """A difference in words; what the rule wants of a secret is as secret as what the call has."""
    path = tuple(int(key) if key.isdecimal() else key for key in keys_of(real.pointer))
    absent = real.actual == "nothing"
    secret = shown is None or _at(masked, real.pointer) == HIDDEN or places.hides(path, "")
    text = "" if shown is None else str(shown)
    safe = seen.hide_in_text(text)
    if secret or (safe != text and "…" in text):
        return f"{real.pointer}: expected something else, got {'nothing' if absent else HIDDEN}"
    return safe


def _plain(pattern: JSON) -> Iterator[JSON]:
    """The values of a pattern, each in a copy that has the shape of the arguments."""
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
    """What stands at a place, or above it where the place is hidden."""
    for key in keys_of(pointer):
        if isinstance(value, dict):
            value = value.get(key)
        else:
            value = value[int(key)] if isinstance(value, list) and int(key) < len(value) else value
    return value


def rule_to_paste(call: Call) -> str:
    """YAML of a rule that matches this call and answers something valid. Secrets may be anything."""
    arguments = _pattern(call.arguments, redact(call.arguments, call.tool.input_schema))
    answer = as_written(_some_result(call))
    return f"- when:\n    args: {_flow(arguments)}\n  reply:\n    result: {_flow(answer)}"


def _some_result(call: Call) -> JSON:
    if call.tool.output_schema is None:
        return None
    try:
        return generate(call.tool.output_schema, Draw(0, call.tool.name))
    except ExpressionError:
        return None


def _pattern(value: JSON, masked: JSON) -> JSON:
    """A matcher that accepts the value and tells no secret of it."""
    if masked == HIDDEN and value != HIDDEN:
        return {"$exists": True}
    if isinstance(value, dict) and isinstance(masked, dict):
        if not any(key.startswith("$") or _BRACES.search(key) for key in value):
            return {key: _pattern(item, masked[key]) for key, item in value.items()}
        readable = masked == value and not any(_BRACES.search(key) for key in _keys(value))
        return {"$exact": as_written(value)} if readable else {"$exists": True}
    if isinstance(value, list) and isinstance(masked, list):
        return [_pattern(item, shown) for item, shown in zip(value, masked, strict=True)]
    return as_written(value)


def _keys(value: JSON) -> Iterator[str]:
    """Every key within a value."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _keys(item)


def _flow(value: JSON) -> str:
    """The value as JSON that YAML reads alike: nothing in it that YAML does not print."""
    text = json.dumps(value, ensure_ascii=False)
    return "".join(
        char if char.isprintable() or ord(char) > 0xFFFF else f"\\u{ord(char):04x}" for char in text
    )
