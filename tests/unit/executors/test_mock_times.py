"""How many calls a reply answers, and what answers after them."""

from __future__ import annotations

import pytest

from in_memory import loaded, mocked, problems_of, runtime_of
from keeping import calls
from toolcrib import Outcome


def in_a_row(block, times=6):
    results = calls(runtime_of(mocked(block)), *[{}] * times)
    return [result.value if result.outcome is Outcome.OK else result.outcome.value for result in results]


NONE = "unmatched_mock"


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("{result: 1, times: 2}", [1, 1, NONE, NONE, NONE, NONE]),
        ("{result: 1, times: 2, after_last: error}", [1, 1, NONE, NONE, NONE, NONE]),
        ("{result: 1, times: 2, after_last: repeat}", [1, 1, 1, 1, 1, 1]),
        ("sequence: [{result: 1, times: 2}, {result: 2}, {result: 3, times: 2}]", [1, 1, 2, 3, 3, NONE]),
        ("sequence: [{result: 1}, {result: 2, times: 2}]\nafter_last: cycle", [1, 2, 2, 1, 2, 2]),
        ("sequence: [{result: 1, times: 3}, {result: 2}]\nafter_last: repeat", [1, 1, 1, 2, 2, 2]),
        (
            "rules: [{reply: {result: 1, times: 2}, after_last: next_rule}, {reply: {result: 2}}]",
            [1, 1, 2, 2, 2, 2],
        ),
        (
            "rules: [{reply: [{result: 1, times: 2}, {result: 2}], after_last: next_rule}, {reply: {result: 3}}]",
            [1, 1, 2, 3, 3, 3],
        ),
        (
            "rules: [{reply: {error: busy, times: 2}, after_last: next_rule}, {reply: {result: 3}}]",
            ["tool_error"] * 2 + [3] * 4,
        ),
    ],
)
def test_a_reply_answers_so_many_calls(block, expected):
    assert in_a_row(block) == expected


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("sequence: [{fault: disconnect}, {result: 2}, {result: 3}]", [2, 3]),
        ("sequence: [{fault: disconnect, times: 2}, {result: 2}, {result: 3}]", [2, 3]),
        (
            "rules: [{reply: {fault: disconnect, times: 2}, after_last: next_rule}, {reply: {result: 2}}]",
            [2, 2],
        ),
        (
            "sequence: [{error: {code: busy, retryable: true}}, {fault: disconnect}, {result: 3}]",
            [3, NONE],
        ),
    ],
)
def test_each_attempt_of_a_call_that_is_tried_again_takes_a_reply(block, expected):
    runtime = runtime_of(mocked(block, more="annotations: {idempotent: true}"))
    results = calls(runtime, {}, {})
    assert [
        result.value if result.outcome is Outcome.OK else result.outcome.value for result in results
    ] == expected


def test_which_reply_answered_is_told():
    runtime = runtime_of(mocked("sequence: [{result: 1, times: 2}, {result: 2}]"))
    assert [result.meta["mock"]["reply"] for result in calls(runtime, {}, {}, {})] == [1, 1, 2]


def test_a_used_up_reply_is_told_with_the_way_out():
    runtime = runtime_of(mocked("{result: 1, times: 2}"))
    result = calls(runtime, {}, {}, {})[-1]
    assert result.message == (
        "no mock rule of `tool` answers call 3 with {}\n"
        "  mock (tools.yaml:5): exhausted: its 1 reply is used up, after 2 calls\n"
        "  increase `times`, set `after_last: repeat`, or write a `sequence` of replies"
    )


@pytest.mark.parametrize("times", ["0", "-1", "1.5", "true", '"2"'])
def test_times_is_a_number_of_calls(times):
    assert [pointer for _code, pointer in problems_of(mocked(f"{{result: 1, times: {times}}}"))] == [
        "/mock/times"
    ]


@pytest.mark.parametrize(
    ("block", "place"),
    [
        ("{result: 1, after_last: repeat}", "/mock/after_last"),
        ("rules: [{reply: {result: 1}, after_last: repeat}]", "/mock/rules/0/after_last"),
    ],
)
def test_after_last_of_one_reply_belongs_to_times(block, place):
    (problem,) = loaded(mocked(block)).problems
    assert (problem.code, problem.pointer) == ("needless_key", place)
    assert "`times`" in problem.hint


def test_rules_below_one_that_is_used_up_sometime_are_reached_only_where_it_says_so():
    rules = "rules: [{{reply: {{result: 1, times: 1}}{}}}, {{reply: {{result: 2}}}}]"
    assert problems_of(mocked(rules.format(""))) == [("unreachable_rule", "/mock/rules/1")]
    assert problems_of(mocked(rules.format(", after_last: next_rule"))) == []


@pytest.mark.parametrize("holder", ["rules: [{reply: {result: 1}}]", "sequence: [{result: 1}]"])
def test_times_stands_beside_replies_and_nowhere_else(holder):
    ((_code, pointer),) = problems_of(mocked(f"{holder}\ntimes: 2"))
    assert pointer == "/mock/times"
