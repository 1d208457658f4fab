"""Rules that ask for named states of the session."""

from __future__ import annotations

import asyncio

import pytest

from in_memory import mocked
from keeping import calls, faults_of, keeping, loaded_with, session_of
from toolcrib import Outcome

TILL = """
    rules:
    - {name: shut, when: {state: {till: closed}}, reply: {effects: [{goto: {till: open}}], result: opened}}
    - {name: full, when: {args: {a: 1}, state: {till: open, cart: {$ne: empty}}}, reply: {result: full}}
    - {name: fill, when: {state: {till: open}, if: "{{ state.cart == 'empty' }}"}, reply: {effects: [{goto: {cart: full}}], result: filled}}
"""


def test_a_rule_answers_in_its_states_only():
    session = session_of(mocked(TILL))
    results = calls(session, {}, {}, {"a": 1}, {"a": 2})
    assert [result.value for result in results[:3]] == ["opened", "filled", "full"]
    assert results[3].outcome is Outcome.UNMATCHED_MOCK


def test_a_miss_tells_the_state_that_a_rule_wants():
    session = session_of(mocked(TILL))
    result = calls(session, {}, {}, {"a": 2})[-1]
    told = {near["rule"]: near for near in result.error.details["nearest"]}
    assert told["shut"]["differences"] == ['state `till` is "open", expected "closed"']
    assert told["fill"]["differences"] == ["the condition `if` is false"]
    assert told["full"]["differences"] == ["args/a: expected 1, got 2"]
    assert '  shut (tools.yaml:6): state `till` is "open", expected "closed"' in result.message


def test_a_state_that_looks_like_a_number_is_a_text():
    block = 'rules: [{when: {state: {lap: "3"}}, reply: {result: 1}}, {when: {state: {lap: "2"}}, reply: {result: 2}}]'
    session = session_of(mocked(block), "state: {lap: '3'}")
    assert calls(session, {})[0].value == 1
    (problem,) = loaded_with(mocked(block.replace('"3"', "3")), "state: {lap: ['3', '2']}").problems
    assert problem.code == "never_matches"
    assert problem.message == "`lap` is never in state 3; its states are `3`, `2`"
    assert problem.hint == 'quote it: `"3"`'


def test_operators_are_told_in_words():
    block = "rules: [{when: {state: {cart: {$in: [full, held]}}}, reply: {result: 1}}]"
    (result,) = calls(keeping(mocked(block)), {})
    (near,) = result.error.details["nearest"]
    assert near["differences"] == ['state `cart` is "empty", expected one of ["full", "held"]']


def test_explaining_tells_it_too():
    session = session_of(mocked(TILL))
    calls(session, {}, {})

    async def explained():
        return (await session.dry_run("tool", {"a": 1})).value["plan"]

    plan = asyncio.run(explained())
    assert plan["rule"] == "full"
    assert plan["skipped"] == [{"rule": "shut", "because": ['state `till` is "open", expected "closed"']}]


@pytest.mark.parametrize(
    ("state", "code", "pointer", "hint"),
    [
        ("{tll: open}", "unknown_machine", "/tll", "did you mean `till`?"),
        ("{shop: open}", "unknown_machine", "/shop", "add `state: {shop: ...}` to the pack or scenario"),
        ("{till: opne}", "never_matches", "/till", "did you mean `open`?"),
        ("{till: {$in: [a, b]}}", "never_matches", "/till", ""),
        ("{till: 7}", "never_matches", "/till", ""),
        ("{cart: 3}", "never_matches", "/cart", 'quote it: `"3"`'),
        ("{cart: {$in: [3]}}", "never_matches", "/cart", ""),
        ("{till: {$not: {$in: [open, closed]}}}", "never_matches", "/till", ""),
        ("{till: {$exists: false}}", "never_matches", "/till", ""),
        ("{$any: [{till: open}, {tll: open}]}", "unknown_machine", "/$any/1/tll", "did you mean `till`?"),
        ('{till: "{{ nope }}"}', "unknown_name", "/till", None),
        ("{till: {$is: open}}", "unknown_operator", "/till/$is", None),
    ],
)
def test_states_that_can_not_be_are_found_when_the_tool_is_loaded(state, code, pointer, hint):
    text = mocked(f"rules: [{{when: {{state: {state}}}, reply: {{result: 1}}}}]")
    (problem,) = loaded_with(text).problems
    assert (problem.code, problem.pointer) == (code, f"/mock/rules/0/when/state{pointer}")
    assert hint is None or problem.hint == hint


@pytest.mark.parametrize(
    "state",
    [
        "{till: open}",
        "{cart: anything}",
        "{till: {$ne: open}}",
        '{till: "{{ args.s }}"}',
        "{till: {$not: {$in: [open, '{{ args.s }}']}}}",
        "{cart: {$ne: 3}}",
        "{$any: [{till: open}, {cart: full}]}",
    ],
)
def test_states_that_can_be_are_fine(state):
    assert faults_of(mocked(f"rules: [{{when: {{state: {state}}}, reply: {{result: 1}}}}]")) == []


@pytest.mark.parametrize("state", ["open", "[]", "{}", "1"])
def test_it_is_a_matcher_over_machines(state):
    ((_code, pointer),) = faults_of(mocked(f"rules: [{{when: {{state: {state}}}, reply: {{result: 1}}}}]"))
    assert pointer == "/mock/rules/0/when/state"


def test_rules_that_differ_in_their_states_do_not_hide_each_other():
    rules = [
        f"{{when: {{args: {{a: 1}}, state: {{till: {state}}}}}, reply: {{result: 1}}}}"
        for state in ("open", "closed", "open")
    ]
    assert faults_of(mocked(f"rules: [{', '.join(rules)}]")) == [("unreachable_rule", "/mock/rules/2")]


def test_expressions_know_the_machines_and_the_collections():
    for name, expected in {
        "state.till": [],
        "state.tll": ["unknown_argument"],
        "store.accounts": [],
        "store.account": ["unknown_argument"],
    }.items():
        text = mocked(f'result: "{{{{ {name} }}}}"')
        assert [code for code, _pointer in faults_of(text)] == expected, name
