"""Why no rule answers a call: the nearest of many rules, with reasons; and what a mock would answer, unasked."""

from __future__ import annotations

import asyncio

import pytest

from in_memory import mocked, runtime_of
from keeping import calls, changed, keeping, session_of
from toolcrib import Call, Outcome, VirtualClock
from toolcrib.core.model import CallContext
from toolcrib.executors.mock import MockExecutor
from toolcrib.executors.mock.no_match_report import MOST_SKIPPED

CITIES = [f"{letter}{number}" for letter in ("Oslo", "Rome", "Bergen", "Paris") for number in range(300)]


def many(more=""):
    rules = "\n".join(
        f"- {{name: {city}, when: {{args: {{city: {city}}}}}, reply: {{result: 1}}}}" for city in CITIES
    )
    return mocked(f"rules:\n{rules}\n{more}")


def missed(text, arguments, store=""):
    (result,) = calls(keeping(text, store), arguments)
    assert result.outcome is Outcome.UNMATCHED_MOCK
    return result


def plan_of(session, arguments):
    return asyncio.run(session.dry_run("tool", arguments)).value["plan"]


def test_of_many_rules_that_differ_in_one_value_those_with_the_likest_come_first():
    near = missed(many(), {"city": "Brgen217"}).error.details["nearest"]
    assert near[0] == {
        "rule": "Bergen217",
        "at": f"tools.yaml:{6 + CITIES.index('Bergen217')}",
        "pointer": f"/mock/rules/{CITIES.index('Bergen217')}",
        "differences": ['args/city: expected "Bergen217", got "Brgen217"'],
    }
    assert len(near) == 3


def test_rules_with_fewer_differences_come_before_those_with_liker_values():
    block = """
        rules:
        - {name: a, when: {args: {city: Oslo, days: 3}}, reply: {result: 1}}
        - {name: b, when: {args: {city: Paris}}, reply: {result: 1}}
        - {name: c, when: {args: {city: Osla}}, reply: {result: 1}}
        - {name: d, when: {args: {city: Rome}}, reply: {result: 1}}
        - {name: e, when: {args: {city: Osl}}, reply: {result: 1}}
    """
    near = missed(mocked(block), {"city": "Oslo!", "days": 9}).error.details["nearest"]
    assert [entry["rule"] for entry in near] == ["e", "c", "d"]


def test_what_is_told_in_words_is_told_as_json_too():
    block = "rules: [{name: far, when: {args: {a: 1}, call: 9, state: {till: open}}, reply: {result: 1}}]"
    result = missed(mocked(block), {"a": 2}, "state: {till: [closed, open]}")
    (near,) = result.error.details["nearest"]
    assert near["differences"] == [
        "args/a: expected 1, got 2",
        "call number: expected 9, got 1",
        'state `till` is "closed", expected "open"',
    ]
    assert f"far ({near['at']}): {near['differences'][0]}" in result.message
    assert result.error.details["paste"] in result.message.replace("\n    ", "\n").replace(
        "    - when", "- when"
    )


def test_where_rules_are_told_by_their_places_a_rule_that_is_used_up_counts_as_near():
    block = "rules: [{name: once, when: {args: {a: 1}}, reply: {result: 1, times: 3}, after_last: next_rule}]"
    session = runtime_of(mocked(block)).session(clock=VirtualClock())
    result = calls(session, *[{"a": 1}] * 4)[-1]
    (near,) = result.error.details["nearest"]
    assert near["differences"] == ["exhausted: its 1 reply is used up, after 3 calls"]


def test_explaining_tells_of_so_many_rules_above_the_one_that_answers():
    session = keeping(many("- {reply: {result: rest}}"), "").session(clock=VirtualClock())
    plan = plan_of(session, {"city": "Madrid"})
    assert plan["rule"] == f"rule {len(CITIES) + 1}"
    assert len(plan["skipped"]) == MOST_SKIPPED
    assert plan["skipped_too"] == len(CITIES) - MOST_SKIPPED
    assert plan["skipped"][0] == {"rule": "Oslo0", "because": ['args/city: expected "Oslo0", got "Madrid"']}


def test_explaining_changes_nothing():
    block = """
        rules:
        - reply:
          - {effects: [{goto: {till: open}}], result: "{{ seq('n') }}", idempotent_by: "{{ args['k'] }}"}
          - {result: second}
    """
    session = session_of(mocked(block))
    for _ in range(3):
        plan = plan_of(session, {"k": 1})
        assert (plan["rule"], plan["reply"], plan["kind"], plan["call"]) == ("rule 1", 1, "result", 1)
    assert [result.value for result in calls(session, {"k": 1}, {})] == [1, "second"]
    assert changed(session) == {}


def test_a_call_that_fails_says_what_explaining_says():
    block = 'rules: [{when: {if: "{{ args.n > 1 }}"}, reply: {result: 1}}]'
    plan = plan_of(runtime_of(mocked(block)).session(clock=VirtualClock()), {})
    assert "`args` has no `n`" in plan["error"]


@pytest.mark.parametrize(
    "kind", ["crud: {get: accounts, key: ada}", "result: 1", "error: no", "generate: true"]
)
def test_explaining_names_what_was_written(kind):
    plan = plan_of(session_of(mocked(kind)), {})
    assert plan["kind"] == kind.partition(":")[0]
    assert plan["at"].startswith("tools.yaml:")


# What a call would have been answered before the last change.


def bound_of(session):
    """The bound tool of a session, and how to make a call to it."""
    tool = session.registry["tool"]
    return MockExecutor().bind(tool), lambda given: Call(tool, given, CallContext(session))


def test_an_answer_from_before_reads_the_store_before_its_last_change_and_changes_nothing():
    block = """
        rules:
        - when: {args: {read: true}}
          reply: {result: ["{{ store.accounts.ada.balance }}", "{{ state.till }}", "{{ call }}"]}
        - reply: {rows: {it: {in: accounts, key: ada}}, effects: [{decrement: it.balance}, {goto: {till: open}}], result: 1}
    """
    session = session_of(mocked(block))
    bound, call = bound_of(session)
    assert bound.answer_before(call({"read": True})).value == [10, "closed", 1]
    calls(session, {})
    assert bound.answer_before(call({"read": True})).value == [10, "closed", 2]
    calls(session, {})
    assert bound.answer_before(call({"read": True})).value == [9, "open", 3]
    assert bound.answer_before(call({})).value == 1
    assert calls(session, {"read": True})[0].value == [8, "open", 3]


def test_an_answer_from_before_uses_no_reply_up_and_remembers_none():
    session = session_of(
        mocked("sequence: [{result: first, idempotent_by: \"{{ args['k'] }}\"}, {result: second}]")
    )
    bound, call = bound_of(session)
    for _ in range(2):
        assert bound.answer_before(call({"k": 1})).value == "first"
    assert [result.value for result in calls(session, {}, {"k": 1})] == ["first", "second"]


def test_also_from_before_a_call_may_be_unmatched_or_the_mock_wrong():
    session = session_of(
        mocked("rules: [{when: {args: {a: 1}}, reply: {result: '{{ store.accounts.eve }}'}}]")
    )
    bound, call = bound_of(session)
    assert bound.answer_before(call({})).outcome is Outcome.UNMATCHED_MOCK
    assert bound.answer_before(call({"a": 1})).error.code == "mock_failed"
