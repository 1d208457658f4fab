"""What a mock would answer to a call, and why: without answering it."""

from __future__ import annotations

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON, Call
from toolcrib.executors.mock.no_match_report import Miss
from toolcrib.executors.mock.replies import Reply
from toolcrib.executors.mock.rules import Rule, choose
from toolcrib.executors.mock.variables import MockState, Scope

MOST_SKIPPED = 20
"""Rules above the one that answers of which it is told why they don't."""


def explained(
    rules: tuple[Rule, ...], call: Call, scope: Scope, number: int, state: MockState
) -> dict[str, JSON]:
    """Which rule would answer, where it stands, and why those above it would not."""
    try:
        chosen = choose(rules, scope, number, state)
    except ExpressionError as error:
        return {"error": error.message}
    miss = Miss(call.tool, scope, number, state)
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


def _place_of(wanted: Rule, rules: tuple[Rule, ...]) -> int:
    return next(place for place, rule in enumerate(rules) if rule is wanted)


def _world_of(reply: Reply, call: Call) -> dict[str, JSON]:
    """Of a reply that fails or hands calls on: how, or where to."""
    if reply.injection is not None:
        return {"fault": reply.injection.kind}
    if reply.elsewhere:
        return {"passthrough": reply.elsewhere, "allowed": call.context.passthrough}
    return {}
