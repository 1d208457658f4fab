"""Guards: the first that is true answers its error, and nothing is changed."""

from __future__ import annotations

import pytest

from library import failed, played, refused
from toolcrib import Outcome


def test_the_first_guard_that_is_true_answers():
    block = """
        guard:
        - {if: "{{ args.n > 2 }}", error: big}
        - {if: "{{ args.n > 1 }}", error: {code: middling, message: "{{ args.n }} is middling", status: 409, retryable: true, details: {n: "{{ args.n }}"}}}
        effects: [{insert: log, value: {n: "{{ args.n }}"}}]
        result: fine
    """
    ended = played(block, {"n": 3}, {"n": 2}, {"n": 1})
    big, middling, fine = ended.results
    assert [result.outcome.value for result in ended.results] == ["tool_error", "tool_error", "ok"]
    assert (big.message, big.content[0].text) == ("big", "big")
    assert middling.error.as_json() == {
        "code": "middling",
        "message": "2 is middling",
        "details": {"status": 409, "n": 2},
        "retryable": True,
    }
    assert fine.value == "fine"
    assert ended.changed == {"log": {"1": {"n": 1}}}


def test_a_guard_may_ask_for_each_element_and_the_first_that_is_true_answers():
    block = """
        guard:
        - for_each: {isbn: "{{ args.isbns }}", n: "{{ args.ns }}"}
          let: {book: "{{ store.books[isbn] }}"}
          if: "{{ not book or book.copies < n }}"
          error: "{{ isbn }} is not there {{ n }} times"
        result: fine
    """
    given = [
        {"isbns": ["b1", "b2", "x"], "ns": [2, 1, 1]},
        {"isbns": ["b1"], "ns": [2]},
        {"isbns": [], "ns": []},
    ]
    assert [result.message or result.value for result in played(block, *given).results] == [
        "b2 is not there 1 times",
        "fine",
        "fine",
    ]


def test_checks_of_one_loop_go_element_by_element_and_separate_guards_rule_by_rule():
    rules = (
        '{if: "{{ not book }}", error: "{{ isbn }} unknown"}',
        '{if: "{{ book.copies == 0 }}", error: "{{ isbn }} lent"}',
    )
    loop = 'for_each: {isbn: "{{ args.isbns }}"}, let: {book: "{{ store.books[isbn] }}"}'
    by_element = f"guard: [{{{loop}, checks: [{', '.join(rules)}]}}]\nresult: fine"
    by_rule = f"guard: [{', '.join(f'{{{loop}, {rule[1:]}' for rule in rules)}]\nresult: fine"
    given = [{"isbns": ["b2", "x"]}, {"isbns": ["x", "b2"]}, {"isbns": ["b1"]}, {"isbns": []}]
    assert [result.message or result.value for result in played(by_element, *given).results] == [
        "b2 lent",
        "x unknown",
        "fine",
        "fine",
    ]
    first, *rest = [result.message or result.value for result in played(by_rule, *given).results]
    assert (first, rest) == ("x unknown", ["x unknown", "fine", "fine"])


def test_checks_may_hold_a_loop_of_their_own():
    block = """
        guard:
        - for_each: {who: "{{ args.who }}"}
          checks:
          - {if: "{{ who not in store.readers }}", error: "{{ who }} unknown"}
          - for_each: {loan: "{{ store.readers[who].loans }}"}
            if: "{{ loan.days > 5 }}"
            error: "{{ who }} is late with {{ loan.isbn }}"
        result: fine
    """
    given = [{"who": ["bob", "ann"]}, {"who": ["bob", "eve", "ann"]}, {"who": ["bob"]}]
    assert [result.message or result.value for result in played(block, *given).results] == [
        "ann is late with b2",
        "eve unknown",
        "fine",
    ]


@pytest.mark.parametrize(
    ("value", "passes"),
    [
        (0, True),
        ("", True),
        ([], True),
        (None, True),
        (False, True),
        ("x", False),
        (-1, False),
        ({"a": 0}, False),
    ],
)
def test_what_is_nothing_is_not_true(value, passes):
    (result,) = played('guard: [{if: "{{ args.v }}", error: stop}]\nresult: 1', {"v": value}).results
    assert (result.outcome is Outcome.OK) is passes


@pytest.mark.parametrize(
    ("guard", "pointer"),
    [
        ('{if: "{{ args.x > 1 }}", error: e}', "/mock/guard/0/if"),
        ('{if: "{{ args.y > 1 }}", error: "{{ args.x }}"}', "/mock/guard/0/error/message"),
        ('{for_each: {a: "{{ args.y }}"}, if: "{{ a }}", error: e}', "/mock/guard/0"),
        (
            '{for_each: {a: "{{ [args.y] }}"}, let: {b: "{{ a.z }}"}, if: "{{ b }}", error: e}',
            "/mock/guard/0/let/b",
        ),
        ('{for_each: {a: "{{ [1] }}", b: "{{ [] }}"}, if: "{{ a == b }}", error: e}', "/mock/guard/0"),
    ],
)
def test_a_guard_that_fails_is_a_bug_of_the_mock(guard, pointer):
    result = failed(f"guard: [{guard}]\neffects: [{{insert: log, value: {{}}}}]\nresult: 1", {"y": 2})
    assert result.error.details["pointer"] == pointer


@pytest.mark.parametrize(
    ("guards", "fault"),
    [
        (
            '[{if: "{{ true }}", error: a}, {if: "{{ args.x }}", error: b}]',
            ("unreachable_guard", "/mock/guard/1"),
        ),
        (
            '[{if: "{{ 1 + 1 == 2 }}", error: a}, {if: "{{ args.x }}", error: b}]',
            ("unreachable_guard", "/mock/guard/1"),
        ),
        ("[{if: args.x, error: a}]", ("expression_syntax", "/mock/guard/0/if")),
        ('[{if: "{{ args.x }} and 1", error: a}]', ("expression_syntax", "/mock/guard/0/if")),
        ('[{if: "{{ nope }}", error: a}]', ("unknown_name", "/mock/guard/0/if")),
        ('[{if: "{{ args.x }}", error: "{{ nope }}"}]', ("unknown_name", "/mock/guard/0/error")),
        (
            '[{for_each: {a: [1]}, let: {b: 1}, if: "{{ a }}", error: a}]',
            ("unused_name", "/mock/guard/0/let/b"),
        ),
    ],
)
def test_what_can_never_work_is_found_when_the_tool_is_loaded(guards, fault):
    assert fault in refused(f"guard: {guards}\nresult: 1")


def test_a_guard_below_one_that_may_be_false_can_be_reached():
    guards = '[{for_each: {x: [1]}, if: "{{ true }}", error: b}, {if: "{{ args.x }}", error: c}]'
    assert refused(f"guard: {guards}\nresult: 1") == []


@pytest.mark.parametrize(
    "guard",
    [
        '{if: "{{ args.x }}"}',
        "{error: a}",
        '{if: "{{ args.x }}", error: a, let: {b: 1}}',
        '{if: "{{ args.x }}", error: a, where: b}',
        '{checks: [{if: "{{ args.x }}", error: a}]}',
        "{for_each: {x: [1]}, checks: []}",
        '{for_each: {x: [1]}, if: "{{ x }}", checks: [{if: "{{ x }}", error: a}]}',
        '{for_each: {x: [1]}, error: a, checks: [{if: "{{ x }}", error: a}]}',
    ],
)
def test_a_guard_has_if_and_error(guard):
    assert refused(f"guard: [{guard}]\nresult: 1") != []


@pytest.mark.parametrize(
    ("guards", "faults"),
    [
        ("{if: '{{ false }}', error: a}", [("constant_condition", "/0/if")]),
        (
            "{if: '{{ 1 > 2 }}', error: a}, {if: '{{ [] }}', error: b}",
            [("constant_condition", "/0/if"), ("constant_condition", "/1/if")],
        ),
        (
            "{for_each: {x: '{{ args.l }}'}, if: '{{ 1 > 2 }}', error: '{{ x }}'}",
            [("constant_condition", "/0/if")],
        ),
        (
            "{for_each: {x: '{{ args.l }}'}, checks: [{if: '{{ x }}', error: a}, {if: '{{ x }}', error: b}]}",
            [("unreachable_guard", "/0/checks/1")],
        ),
        (
            "{for_each: {x: '{{ args.l }}'}, checks: [{if: '{{ true }}', error: a}, {if: '{{ y }}', error: b}]}",
            [("unknown_name", "/0/checks/1/if"), ("unreachable_guard", "/0/checks/1")],
        ),
        ("{for_each: {x: '{{ args.l }}'}, if: '{{ true }}', error: '{{ x }}'}", []),
        (
            "{if: '{{ args.n }}', error: a}, {if: '{{ args.m }}', error: b}, {if: ' {{ args.n }}', error: c}",
            [("unreachable_guard", "/2")],
        ),
        ("{if: '{{ random(0, 1) > 0 }}', error: a}, {if: '{{ random(0, 1) > 0 }}', error: b}", []),
        (
            "{for_each: {x: '{{ args.l }}'}, if: '{{ x }}', error: a}, {for_each: {x: '{{ args.m }}'}, if: '{{ x }}', error: b}",
            [],
        ),
    ],
)
def test_guards_that_never_answer_are_told(guards, faults):
    found = refused(f"guard: [{guards}]\nresult: 1")
    assert found == [(code, f"/mock/guard{place}") for code, place in faults]
