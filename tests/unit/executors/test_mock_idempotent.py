"""Calls that mean the same: the first of them acts, the others are answered what it was."""

from __future__ import annotations

import pytest

from in_memory import mocked, problems_of, runtime_of
from keeping import TAKE, calls, changed, faults_of, session_of
from toolcrib import Outcome, VirtualClock

ONCE = TAKE + "    result: '{{ it.balance }}'\n    idempotent_by: \"{{ args['key'] }}\"\n"


def test_the_same_key_again_answers_the_same_and_changes_nothing():
    session = session_of(mocked(ONCE))
    given = [
        {"id": "ada", "sum": 3, "key": "k"},
        {"id": "bob", "sum": 9, "key": "k"},
        {"id": "ada", "sum": 3, "key": "l"},
    ]
    results = calls(session, *given)
    assert [result.value for result in results] == [7, 7, 4]
    assert [result.meta["mock"].get("repeated") for result in results] == [None, True, None]
    assert changed(session)["accounts"]["ada"]["balance"] == 4


def test_none_is_no_key():
    session = session_of(mocked(ONCE))
    assert [result.value for result in calls(session, *[{"id": "ada", "sum": 3}] * 3)] == [7, 4, 1]


def test_keys_are_compared_as_json_values():
    runtime = runtime_of(mocked('{result: "{{ call }}", idempotent_by: "{{ args.key }}"}'))
    keys = [1, 1.0, True, "1", [1], [True], {"a": 1, "b": 2}, {"b": 2, "a": 1.0}, None, None]
    assert [result.value for result in calls(runtime, *({"key": key} for key in keys))] == [
        1, 1, 3, 4, 5, 6, 7, 7, 9, 10,
    ]  # fmt: skip


def test_sessions_and_tools_remember_apart():
    text = mocked('{result: "{{ session.id }}", idempotent_by: "{{ 1 }}"}')
    runtime = runtime_of(text + "---\n" + text.replace("name: tool", "name: other"))
    first, second = runtime.session(id="a"), runtime.session(id="b")
    assert [calls(each, {})[0].value for each in (first, second)] == ["a", "b"]
    (other,) = calls(first, {}, tool="other")
    assert "repeated" not in other.meta["mock"]


def test_also_an_error_is_answered_again():
    session = session_of(mocked(ONCE))
    poor = {"id": "ada", "sum": 30, "key": "k"}
    results = calls(session, poor, poor | {"sum": 1})
    assert [result.message for result in results] == ["only 10", "only 10"]
    assert changed(session) == {}


def test_a_fault_of_the_mock_and_a_refused_answer_are_not_remembered():
    block = '{result: "{{ args.a }}", idempotent_by: "{{ 1 }}"}'
    runtime = runtime_of(mocked(block, output="{type: integer}"))
    results = calls(runtime, {}, {"a": "text"}, {"a": 1}, {"a": 2})
    assert [result.outcome.value for result in results] == ["internal", "invalid_result", "ok", "ok"]
    assert results[3].value == 1


def test_what_a_caller_does_to_an_answer_is_not_in_the_next():
    runtime = runtime_of(mocked('{result: {a: [1]}, idempotent_by: "{{ 1 }}"}'))
    session = runtime.session(clock=VirtualClock())
    for _ in range(3):
        (result,) = calls(session, {})
        assert result.value == {"a": [1]}
        result.value["a"].append(2)
    failing = session_of(mocked('{error: {code: a, details: {b: [1]}}, idempotent_by: "{{ 1 }}"}'), "")
    for _ in range(3):
        (result,) = calls(failing, {})
        assert result.error.details == {"b": [1]}
        result.error.details["b"].append(2)


def test_a_repeated_call_uses_up_no_reply():
    block = """
        sequence:
        - {result: first, idempotent_by: "{{ args.key }}"}
        - {result: second, idempotent_by: "{{ args.key }}"}
        - {result: third}
    """
    given = [{"key": "a"}, {"key": "a"}, {"key": "a"}, {"key": "b"}, {"key": "a"}]
    results = calls(runtime_of(mocked(block)), *given)
    assert [result.value for result in results] == ["first", "first", "first", "second", "third"]


def test_a_key_that_can_not_be_worked_out_is_a_fault_of_the_mock():
    (result,) = calls(runtime_of(mocked('{result: 1, idempotent_by: "{{ args.key }}"}')), {})
    assert (result.outcome, result.error.details["pointer"]) == (Outcome.INTERNAL, "/mock/idempotent_by")


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("args.key", "expression_syntax"),
        ('"{{ args.a }} {{ args.b }}"', "expression_syntax"),
        ('"{{ row.id }}"', "unknown_name"),
        ('"{{ it.id }}"', "unknown_name"),
    ],
)
def test_it_is_one_whole_expression_over_the_call(key, code):
    block = f'rows: {{it: {{in: accounts, key: "a"}}}}\nresult: "{{{{ it }}}}"\nidempotent_by: {key}'
    assert faults_of(mocked(block)) == [(code, "/mock/idempotent_by")]
    assert problems_of(mocked("{result: 1, idempotent_by: 7}"))[0][1] == "/mock/idempotent_by"
