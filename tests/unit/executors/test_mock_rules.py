"""Which reply answers: rules, sequences, counters; what can never answer is found when the tool is loaded."""

from __future__ import annotations

import asyncio

import pytest

from in_memory import loaded, mocked, problems_of, runtime_of
from toolcrib import Outcome

REPLIES = "[{result: 1}, {result: 2}]"


def answers(text, *arguments, **options):
    """The value of each call in a row, or its outcome where it is not ok."""
    runtime = runtime_of(text, **options)

    async def calls():
        results = [await runtime.call("tool", given) for given in arguments]
        return [result.value if result.outcome is Outcome.OK else result.outcome.value for result in results]

    return asyncio.run(calls())


def in_a_row(block, times=5):
    return answers(mocked(block), *[{}] * times)


def test_the_first_rule_that_matches_answers():
    block = """
        rules:
        - {when: {args: {city: Oslo}}, reply: {result: one}}
        - {when: {args: {city: {$regex: "^O"}}}, reply: {result: two}}
        - {reply: {result: rest}}
    """
    cities = [{"city": "Oslo"}, {"city": "Ottawa"}, {"city": "Rome"}, {}]
    assert answers(mocked(block), *cities) == ["one", "two", "rest", "rest"]


def test_all_that_a_rule_asks_for_must_hold():
    block = """
        rules:
        - when: {args: {n: {$gt: 1}}, call: {$gt: 1}, if: "{{ args.n < 9 }}"}
          reply: {result: "yes"}
        - reply: {result: "no"}
    """
    given = [{"n": 5}, {"n": 5}, {"n": 1}, {"n": 9}, {"n": 8}]
    assert answers(mocked(block), *given) == ["no", "yes", "no", "no", "yes"]


def test_a_rule_may_look_at_the_number_of_the_call():
    block = "rules: [{when: {call: 2}, reply: {error: busy}}, {reply: {result: '{{ call }}'}}]"
    assert in_a_row(block, 3) == [1, "tool_error", 3]


def test_a_matcher_may_hold_expressions():
    block = (
        'rules: [{when: {args: {b: "{{ args.a + 1 }}"}}, reply: {result: "yes"}}, {reply: {result: "no"}}]'
    )
    assert answers(mocked(block), {"a": 1, "b": 2}, {"a": 1, "b": 3}) == ["yes", "no"]


@pytest.mark.parametrize(
    ("after_last", "expected"),
    [
        ("", [1, 2, "unmatched_mock", "unmatched_mock", "unmatched_mock"]),
        ("after_last: error", [1, 2, "unmatched_mock", "unmatched_mock", "unmatched_mock"]),
        ("after_last: repeat", [1, 2, 2, 2, 2]),
        ("after_last: cycle", [1, 2, 1, 2, 1]),
    ],
)
def test_a_sequence_answers_one_reply_a_call(after_last, expected):
    assert in_a_row(f"sequence: {REPLIES}\n{after_last}") == expected


@pytest.mark.parametrize(
    ("after_last", "expected"),
    [
        ("error", [1, 2, "unmatched_mock", "unmatched_mock", "unmatched_mock"]),
        ("repeat", [1, 2, 2, 2, 2]),
        ("cycle", [1, 2, 1, 2, 1]),
        ("next_rule", [1, 2, "rest", "rest", "rest"]),
    ],
)
def test_a_rule_may_have_a_list_of_replies(after_last, expected):
    rest = "[{when: {call: {$lt: 99}}, reply: {result: rest}}]"
    block = f"rules: [{{when: {{call: {{$gte: 1}}}}, reply: {REPLIES}, after_last: {after_last}}}, {rest[1:]}"
    assert in_a_row(block) == expected


def test_a_list_of_replies_ends_in_an_error_unless_told():
    assert in_a_row(f"rules: [{{reply: {REPLIES}}}]", 3) == [1, 2, "unmatched_mock"]


def test_each_rule_counts_the_calls_that_it_answers():
    block = (
        f"rules: [{{when: {{args: {{a: 1}}}}, reply: {REPLIES}}}, {{reply: {REPLIES}, after_last: cycle}}]"
    )
    assert answers(mocked(block), {}, {"a": 1}, {}, {"a": 1}, {}, {"a": 1}) == [
        1,
        1,
        2,
        2,
        1,
        "unmatched_mock",
    ]


def test_a_call_that_no_rule_answers_counts_as_a_call():
    assert in_a_row("rules: [{when: {call: {$gt: 1}}, reply: {result: '{{ call }}'}}]", 3) == [
        "unmatched_mock",
        2,
        3,
    ]


def test_tools_do_not_share_their_counts():
    text = "name: a\nmock: {result: '{{ call }}'}\n---\nname: b\nmock: {result: '{{ call }}'}\n"
    runtime = runtime_of(text)

    async def calls():
        return [(await runtime.call(name)).value for name in "aababb"]

    assert asyncio.run(calls()) == [1, 2, 1, 3, 2, 3]


def test_attempts_of_one_call_have_one_number_and_are_answered_one_by_one():
    async def thrice(call, call_next):
        for attempt in (1, 2):
            await call_next(call._replace(attempt=attempt))
        return await call_next(call._replace(attempt=3))

    block = 'sequence: [{error: a}, {error: b}, {result: ["{{ call }}", "{{ attempt }}"]}]\nafter_last: cycle'
    assert answers(mocked(block), {}, {}, middleware=[thrice]) == [[1, 3], [2, 3]]


def test_the_reply_that_answered_is_told_in_the_meta():
    runtime = runtime_of(
        mocked(
            f"rules: [{{when: {{args: {{a: 1}}}}, reply: {{result: 0}}}}, {{name: two, reply: {REPLIES}}}]"
        )
    )

    async def calls():
        return [(await runtime.call("tool", given)).meta for given in ({"a": 1}, {}, {})]

    assert asyncio.run(calls()) == [
        {"mock": {"rule": "rule 1", "reply": 1}},
        {"mock": {"rule": "two", "reply": 1}},
        {"mock": {"rule": "two", "reply": 2}},
    ]


# What a dry run tells of it.


def plans(block, *arguments):
    runtime = runtime_of(mocked(block))

    async def dry():
        found = []
        for given in arguments:
            found.append((await runtime.dry_run("tool", given)).value["plan"])
            await runtime.call("tool", given)
        return found

    return asyncio.run(dry())


def test_a_plan_names_the_rule_that_answers_and_why_others_do_not():
    block = "rules:\n- {when: {args: {a: 1}}, reply: {result: 0}}\n- {name: two, reply: [{result: 1}, {error: no}]}\n"
    first, second, third = plans(block, {"a": 2}, {}, {})
    assert first == {
        "mode": "mock",
        "call": 1,
        "rule": "two",
        "reply": 1,
        "kind": "result",
        "at": "tools.yaml:7",
        "skipped": [{"rule": "rule 1", "because": ["args/a: expected 1, got 2"]}],
    }
    assert (second["call"], second["reply"], second["kind"]) == (2, 2, "error")
    assert (third["rule"], third["call"]) == (None, 3)
    assert third["skipped"][1] == {"rule": "two", "because": ["exhausted: its 2 replies are used up"]}
    assert [near["rule"] for near in third["nearest"]] == ["rule 1", "two"]


def test_a_plan_tells_where_the_mock_would_fail_and_no_secret():
    (plan,) = plans('rules: [{when: {if: "{{ args.x }}"}, reply: {result: 0}}]', {})
    assert plan["call"] == 1
    assert "`x`" in plan["error"]
    (plan,) = plans("rules: [{when: {args: {password: a}}, reply: {result: 0}}]", {"password": "hunter2"})
    assert "hunter2" not in str(plan)


# Found when the tool is loaded.


def test_rules_below_one_that_matches_every_call_are_never_reached():
    block = "rules: [{reply: {result: 1}}, {when: {call: 1}, reply: {result: 2}}, {reply: {result: 3}}]"
    (problem,) = loaded(mocked(block)).problems
    assert (problem.code, problem.pointer, problem.severity) == ("unreachable_rule", "/mock/rules/1", "error")
    assert problem.message == "the rules below rule 1 are unreachable: it matches every call"


@pytest.mark.parametrize("after_last", ["error", "repeat", "cycle"])
def test_also_a_list_of_replies_keeps_calls_from_the_rules_below(after_last):
    block = f"rules: [{{reply: {REPLIES}, after_last: {after_last}}}, {{reply: {{result: 3}}}}]"
    assert problems_of(mocked(block)) == [("unreachable_rule", "/mock/rules/1")]
    assert problems_of(mocked(block.replace(after_last, "next_rule"))) == []


INPUTS = "{properties: {city: {type: string}, unit: {enum: [c, f]}}, additionalProperties: false}"


@pytest.mark.parametrize(
    ("when", "problem"),
    [
        ("args: {ctiy: Oslo}", ("unknown_argument", "/args/ctiy")),
        ("args: {city: 3}", ("never_matches", "/args/city")),
        ("args: {unit: k}", ("never_matches", "/args/unit")),
        ("args: {city: {$rgx: a}}", ("unknown_operator", "/args/city/$rgx")),
        ("call: 0", ("never_matches", "/call")),
        ("call: -1", ("never_matches", "/call")),
        ("call: 1.5", ("never_matches", "/call")),
        ("call: true", ("never_matches", "/call")),
        ("call: first", ("never_matches", "/call")),
        ("call: {$lt: 1}", ("never_matches", "/call")),
        ("call: {$gt: 1, $lt: 2}", ("never_matches", "/call")),
        ("call: {$in: [0, -1]}", ("never_matches", "/call/$in")),
        ("call: {$grt: 1}", ("unknown_operator", "/call/$grt")),
        ("args: {city: {$gt: b, $lt: a}}", ("never_matches", "/args/city")),
        ('if: "args.x"', ("expression_syntax", "/if")),
        ('if: "a {{ args.city }}"', ("expression_syntax", "/if")),
    ],
)
def test_a_rule_that_can_never_match_is_found_when_the_tool_is_loaded(when, problem):
    found = problems_of(mocked(f"rules: [{{when: {{{when}}}, reply: {{result: 1}}}}]", inputs=INPUTS))
    assert found == [(problem[0], f"/mock/rules/0/when{problem[1]}")]


def test_the_numbers_of_calls_are_told_where_none_fits():
    (problem,) = loaded(mocked("rules: [{when: {call: first}, reply: {result: 1}}]")).problems
    assert problem.message == 'calls are numbered from 1, so none matches "first"'


def test_a_broken_condition_is_no_rule_that_always_matches():
    block = 'rules: [{when: {if: "args.x"}, reply: {result: 1}}, {reply: {result: 2}}]'
    assert problems_of(mocked(block)) == [("expression_syntax", "/mock/rules/0/when/if")]


SAME = ("{args: {a: 1, b: 2}, call: 1}", "{call: 1, args: {b: 2, a: 1}}")


def test_a_rule_with_the_when_of_one_above_is_never_reached():
    block = f"rules: [{{when: {SAME[0]}, reply: [{{result: 1}}]}}, {{when: {SAME[1]}, reply: {{result: 2}}}}]"
    (problem,) = loaded(mocked(block)).problems
    assert (problem.code, problem.pointer) == ("unreachable_rule", "/mock/rules/1")
    assert problem.message == "rule 2 is unreachable: rule 1 has the same `when`"
    assert problems_of(mocked(block.replace("}]}", "}], after_last: next_rule}", 1))) == []


def test_two_rules_of_one_name_are_refused():
    rules = [
        f"{{name: {name}, when: {{call: {n}}}, reply: {{result: 1}}}}" for n, name in enumerate("aba", 1)
    ]
    assert problems_of(mocked(f"rules: [{', '.join(rules)}]")) == [("duplicate_name", "/mock/rules/2/name")]


def test_a_mock_with_one_reply_has_no_after_last():
    (problem,) = loaded(mocked("{result: 1, after_last: repeat}")).problems
    assert (problem.code, problem.pointer) == ("needless_key", "/mock/after_last")
    assert problem.message == "`after_last` has no effect: this mock has a single reply"


def test_the_near_miss_of_an_unknown_argument_is_named():
    text = mocked("rules: [{when: {args: {ctiy: Oslo}}, reply: {result: 1}}]", inputs=INPUTS)
    (problem,) = loaded(text).problems
    assert problem.hint == "did you mean `city`?"


def test_numbers_of_calls_that_exist_are_fine():
    for number in ("1", "2.0", "{$in: [1, 2]}", '"{{ args.n }}"'):
        assert problems_of(mocked(f"rules: [{{when: {{call: {number}}}, reply: {{result: 1}}}}]")) == []


def test_a_rule_may_be_called_like_what_a_bare_mock_is_called():
    runtime = runtime_of(mocked("rules: [{name: mock, reply: [{result: 1}, {result: 2}]}]"))

    async def calls():
        return [await runtime.call("tool", {}) for _number in range(3)]

    first, second, third = asyncio.run(calls())
    assert (first.value, second.value, third.outcome) == (1, 2, "unmatched_mock")


def test_a_rule_called_sequence_is_told_like_a_rule():
    runtime = runtime_of(mocked("rules: [{name: sequence, reply: [{result: 1}]}]"))

    async def second():
        await runtime.call("tool", {})
        return await runtime.call("tool", {})

    assert "paste" in asyncio.run(second()).error.details


@pytest.mark.parametrize("when", ['args: {n: "{{ call }}"}', 'call: {$in: ["{{ seed + 1 }}"]}'])
def test_a_matcher_reads_every_name_of_a_mock(when):
    runtime = runtime_of(
        mocked(f"rules: [{{when: {{{when}}}, reply: {{result: yes}}}}, {{reply: {{result: no}}}}]")
    )
    assert asyncio.run(runtime.call("tool", {"n": 1})).value == "yes"
