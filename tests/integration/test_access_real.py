"""Rules over packs/retail and packs/payments: what audit counts is what enforcement refuses."""

from __future__ import annotations

from collections import Counter

import pytest

from toolcrib import Outcome, Runtime, run_scenario
from toolcrib.scenarios import runs_of
from toolcrib.scenarios.recorded_tasks import parse_tasks

RETAIL = """
  rules:
    - {deny: {tool: cancel_pending_order, args: {reason: ordered by mistake}}, reason: Ask why., severity: low}
    - {deny: {tool: "modify_*", args: {payment_method_id: {$regex: ^gift_card}}}, severity: high}
    - {ask: {annotation: destructive, tool: "return_*"}}
    - {ask: {annotation: destructive, tool: "exchange_*"}}
"""

PAYMENTS = """
  default: ask
  rules:
    - {allow: {tool: "retrieve_*"}}
    - {allow: {tool: create_customer}}
    - {allow: {tool: create_payment_intent, args: {amount: {$lte: 5000}}}}
    - {deny: {tag: money-moves, args: {amount_to_capture: {$gt: 1500}}}, severity: critical}
"""


@pytest.fixture
def opened(root, tmp_path):
    def open_pack(name, rules, *, audit):
        text = (
            f"project: p\nsources: [{root / 'packs' / name}]\naccess:\n  audit: {str(audit).lower()}{rules}"
        )
        (tmp_path / "toolcrib.yaml").write_text(text)
        runtime = Runtime.open(tmp_path / "toolcrib.yaml", index=False, strict=True, trust=True)
        assert runtime.problems == ()
        return runtime

    return open_pack


def counted(runtime):
    """Effect, severity and rule of each violation, counted."""
    return Counter(
        (each.decision.effect, each.decision.severity, each.decision.place) for each in runtime.violations
    )


async def replayed(runtime, tasks):
    """The outcomes of all recorded calls, each task in its own session."""
    outcomes = Counter()
    for task in tasks:
        async with runtime.session(id=task.name) as session:
            for call in task.calls:
                result = await session.call(call.tool, call.arguments)
                at = (
                    result.error.details.get("approval", result.error.details).get("at")
                    if result.error
                    else None
                )
                outcomes[result.outcome, at] += 1
    return outcomes


@pytest.mark.exhaustive
@pytest.mark.shared_data
async def test_the_recorded_calls_of_retail(opened, shared_data, monkeypatch):
    monkeypatch.setenv("TAU_RETAIL_DATA", str(shared_data / "tau-retail"))
    with (shared_data / "tau-retail" / "tasks-train.jsonl").open("rb") as lines:
        tasks, _problems = parse_tasks("tasks-train.jsonl", lines)
    async with opened("retail", RETAIL, audit=True) as runtime:
        before = await replayed(runtime, tasks)
        audit, total = counted(runtime), runtime.violations.total
    async with opened("retail", RETAIL, audit=False) as runtime:
        after = await replayed(runtime, tasks)
        enforced = counted(runtime)
    assert sum(before.values()) == sum(after.values()) == 768
    assert not {outcome for outcome, _at in before} & {Outcome.DENIED, Outcome.NEEDS_APPROVAL}
    # Each call is decided by itself, so that what earlier calls changed has no influence on the counts.
    refused = {at: count for (outcome, at), count in after.items() if outcome is Outcome.DENIED}
    asked = {at: count for (outcome, at), count in after.items() if outcome is Outcome.NEEDS_APPROVAL}
    assert refused == {
        place: count for (effect, _severity, place), count in audit.items() if effect == "deny"
    }
    assert asked == {place: count for (effect, _severity, place), count in audit.items() if effect == "ask"}
    assert enforced == Counter({key: count for key, count in audit.items() if key[0] == "deny"})
    assert total == sum(refused.values()) + sum(asked.values())
    assert min(map(len, (refused, asked))) == 2


def played(runtime):
    return [run for scenario in runtime.scenarios for run in runs_of(scenario)]


async def test_the_scenarios_of_payments(opened):
    async with opened("payments", PAYMENTS, audit=True) as runtime:
        reports = [await run_scenario(runtime, run) for run in played(runtime)]
        assert [str(report) for report in reports if not report.passed] == []
        audit = counted(runtime)
    calls = await _calls_of(opened, audit=True)
    async with opened("payments", PAYMENTS, audit=False) as runtime:
        refused = Counter()
        for name, arguments in calls:
            result = await runtime.call(name, arguments)
            if result.outcome in {Outcome.DENIED, Outcome.NEEDS_APPROVAL}:
                details = result.error.details.get("approval", result.error.details)
                refused[details["effect"], details["severity"], details["at"]] += 1
    assert refused == audit
    assert {effect for effect, _severity, _place in audit} == {"deny", "ask"}


async def _calls_of(opened, *, audit):
    """Tool and valid arguments of every call that the scenarios make."""
    from toolcrib import CallStarted  # noqa: PLC0415 -- only here

    made = []

    def hear(event):
        if isinstance(event, CallStarted):
            made.append((event.call.tool.name, dict(event.call.arguments)))

    async with opened("payments", PAYMENTS, audit=audit) as runtime:
        runtime.observe(hear)
        for run in played(runtime):
            await run_scenario(runtime, run)
    return made
