"""What a call gets that no rule answers: the nearest rules, why each did not match, a rule to paste."""

from __future__ import annotations

import json
from typing import Any

from toolcrib.errors import ExpressionError
from toolcrib.executors.mock.rules import Rule
from toolcrib.executors.mock.scope import MockState, Scope
from toolcrib.generation import Draw, generate
from toolcrib.model import JSON, Call, Outcome, Result
from toolcrib.secrets import redact
from toolcrib.text import compact

NEAREST = 3
"""How many rules are shown; several, since the nearest by count may not be the one that was meant."""


def unmatched(rules: tuple[Rule, ...], call: Call, scope: Scope, number: int, state: MockState) -> Result:
    """The result `unmatched_mock` of a call."""
    tool = call.tool
    near = nearest(rules, scope, number, state)
    paste = rule_to_paste(call)
    lines = [
        f"no mock rule of `{tool.name}` answers call {number} with {compact(redact(call.arguments, tool.input_schema))}"
    ]
    lines += [
        f"  {entry['rule']} ({tool.origin.place(entry['pointer'])}): {entry['differences'][0]}"
        for entry in near
    ]
    lines += ["  a rule that would answer it:", *(f"    {line}" for line in paste.splitlines())]
    return Result.failed(
        Outcome.UNMATCHED_MOCK, "\n".join(lines), details={"call": number, "nearest": near, "paste": paste}
    )


def nearest(rules: tuple[Rule, ...], scope: Scope, number: int, state: MockState) -> list[Any]:
    """The rules that came nearest, fewest differences first: `{rule, pointer, differences}`."""
    reasons = [(rule, rule.mismatch(scope, number, state)) for rule in rules]
    entries = [
        {"rule": rule.label, "pointer": rule.pointer, "differences": list(why)}
        for rule, why in reasons
        if why
    ]
    return sorted(entries, key=lambda entry: len(entry["differences"]))[:NEAREST]


def rule_to_paste(call: Call) -> str:
    """YAML of a rule that matches this call and answers something valid."""
    arguments = json.dumps(redact(call.arguments, call.tool.input_schema), ensure_ascii=False)
    answer = json.dumps(_some_result(call), ensure_ascii=False)
    return f"- when:\n    args: {arguments}\n  reply:\n    result: {answer}"


def _some_result(call: Call) -> JSON:
    if call.tool.output_schema is None:
        return None
    try:
        return generate(call.tool.output_schema, Draw(0, call.tool.name))
    except ExpressionError:
        return None
