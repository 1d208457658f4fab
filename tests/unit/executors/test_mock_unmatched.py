"""What a call gets that no rule answers, and the rule to paste, which really works."""

from __future__ import annotations

import asyncio
import textwrap

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from in_memory import mocked, runtime_of
from toolcrib import Outcome


def unmatched(text, arguments=None, calls=1):
    runtime = runtime_of(text)

    async def last():
        for _ in range(calls - 1):
            await runtime.call("tool", arguments)
        return await runtime.call("tool", arguments)

    result = asyncio.run(last())
    assert result.outcome is Outcome.UNMATCHED_MOCK, result.message
    return result


RULES = """
    rules:
    - {name: far, when: {args: {city: Oslo, days: 3, unit: c}}, reply: {error: no}}
    - {when: {args: {city: Rome}}, reply: {error: no}}
    - {when: {args: {city: Paris}, call: 9}, reply: {error: no}}
    - {when: {if: "{{ args.days > 3 }}"}, reply: {error: no}}
    - {when: {args: {a: 1, b: 2, c: 3, d: 4}}, reply: {error: no}}
"""


def test_the_nearest_rules_are_told_with_their_first_difference_and_a_rule_to_paste():
    result = unmatched(mocked(RULES, output="{const: 7}"), {"city": "Rom", "days": 2})
    assert result.message == textwrap.dedent(
        """\
        no mock rule of `tool` answers call 1 with {"city":"Rom","days":2}
          rule 2 (tools.yaml:7): args/city: expected "Rome", got "Rom"
          rule 4 (tools.yaml:9): the condition `if` is false
          rule 3 (tools.yaml:8): args/city: expected "Paris", got "Rom"
          a rule that would answer it, below the others:
            - when:
                args: {"city": "Rom", "days": 2}
              reply:
                result: 7"""
    )
    details = result.error.details
    assert details["call"] == 1
    assert [near["rule"] for near in details["nearest"]] == ["rule 2", "rule 4", "rule 3"]
    assert details["nearest"][2] == {
        "rule": "rule 3",
        "at": "tools.yaml:8",
        "pointer": "/mock/rules/2",
        "differences": ['args/city: expected "Paris", got "Rom"', "call number: expected 9, got 1"],
    }
    assert details["paste"].startswith("- when:")


def test_a_used_up_rule_says_so_and_the_new_rule_goes_above_it():
    block = "rules: [{when: {args: {a: 2}}, reply: {result: 0}}, {name: once, reply: [{result: 1}]}]"
    message = unmatched(mocked(block), {"a": 1}, calls=2).message
    assert "once (tools.yaml:5): exhausted: its 1 reply is used up" in message
    assert "a rule that would answer it, above once:" in message


def test_a_used_up_sequence_says_what_to_do():
    result = unmatched(mocked("sequence: [{result: 1}, {result: 2}]"), calls=3)
    assert result.message == (
        "no mock rule of `tool` answers call 3 with {}\n"
        "  sequence (tools.yaml:5): exhausted: its 2 replies are used up\n"
        "  add a reply to the sequence, or write `after_last: repeat` or `after_last: cycle`"
    )
    assert "paste" not in result.error.details


def test_rules_below_a_used_up_one_are_not_called_near():
    block = (
        "rules: [{when: {args: {a: 1}}, reply: [{result: 1}]},"
        " {when: {args: {a: {$lt: 2}}}, reply: {result: 2}}]"
    )
    near = unmatched(mocked(block), {"a": 1}, calls=2).error.details["nearest"]
    assert [rule["rule"] for rule in near] == ["rule 1"]


def test_a_rule_that_cannot_be_judged_says_why():
    block = 'rules: [{when: {args: {a: 1}, call: {$gt: "{{ args.b }}"}}, reply: {result: 1}}]'
    assert "it can't be judged: " in unmatched(mocked(block), {"a": 2}).message


SECRET = "{properties: {user: {}, login: {properties: {key: {writeOnly: true}}}, password: {}, list: {}}}"


@pytest.mark.parametrize(
    "pattern",
    [
        "{password: right}",
        "{login: {key: right}}",
        "{login: {$exact: {key: right}}}",
        "{list: [{token: right}]}",
        "{$not: {password: hunter2}}",
        "{list: {$contains: {token: right}}}",
        "{user: bob}",
        '{user: "{{ args.password }}"}',
        "{password: {$len: 3}}",
        "{login: {key: {deep: 1}}}",
        "{list: [{token: {deep: 1}}]}",
        "{list: [1, 2, {a: 1}]}",
        "{list: [{token: hunter2}, 1]}",
    ],
)
def test_nothing_secret_is_told_of_a_call(pattern):
    given_arguments = {
        "user": "ada",
        "password": "hunter2",
        "login": {"key": "hunter2"},
        "list": [{"token": "hunter2"}],
    }
    text = mocked(f"rules: [{{when: {{args: {pattern}}}, reply: {{result: 1}}}}]", inputs=SECRET)
    result = unmatched(text, given_arguments)
    assert "hunter2" not in str(result)
    assert result.error.details["nearest"][0]["differences"]
    assert_the_pasted_rule_answers(text, given_arguments)


def test_places_beside_a_secret_are_told_plainly():
    text = mocked("rules: [{when: {args: {user: bob}}, reply: {result: 1}}]")
    assert 'args/user: expected "bob", got "ada"' in unmatched(text, {"user": "ada", "password": "x"}).message


WANTED = "{properties: {tok: {x-secret: true}, login: {properties: {key: {writeOnly: true}}}, user: {}}}"


@pytest.mark.parametrize(
    "pattern",
    [
        "{tok: abc123}",
        "{tok: {$any: [abc123, {$eq: abc123}]}}",
        "{$any: [{tok: abc123}, {tok: {$ne: abc123}, user: bob}]}",
        "{login: {$eq: {key: abc123}}}",
        "{login: {$contains: abc123}}",
        "{$exact: {user: ada, password: abc123}}",
        "{user: {$in: [{password: abc123}]}}",
        "{user: {$in: [{note: 'a note of seventy characters, so that the secret is cut in its middle.', password: abc123}]}}",
        "{user: {$contains: {list: [1, {password: abc123}]}}}",
    ],
)
@pytest.mark.parametrize("arguments", [{"user": "ada"}, {"user": "ada", "tok": "mine-it-is"}])
def test_nothing_secret_is_told_of_a_rule(pattern, arguments):
    text = mocked(f"rules: [{{when: {{args: {pattern}}}, reply: {{result: 1}}}}]", inputs=WANTED)
    told = str(unmatched(text, arguments))
    assert "abc" not in told
    assert "mine" not in told


def test_a_missing_secret_is_told_as_missing():
    text = mocked("rules: [{when: {args: {tok: abc123}}, reply: {result: 1}}]", inputs=WANTED)
    assert "args/tok: expected something else, got nothing" in unmatched(text, {}).message


# The rule to paste.


def assert_the_pasted_rule_answers(text, arguments):
    """Paste the rule at the end of the mock, call again, and get what the rule says."""
    paste = unmatched(text, arguments).error.details["paste"]
    name, _, rules = text.rpartition("rules: [")
    pasted = (
        f"{name}rules:\n    - {rules.rstrip().removesuffix(']')}\n" + textwrap.indent(paste, "    ") + "\n"
    )
    result = asyncio.run(runtime_of(pasted).call("tool", arguments))
    assert result.outcome is Outcome.OK, result.message
    assert result.meta["mock"]["rule"] == "rule 2"


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.lists(
    st.sampled_from(
        [
            "{{",
            "}}",
            "{%",
            "%}",
            "{#",
            "#}",
            "$",
            "{",
            "}",
            "$${",
            "${",
            "'",
            '"',
            "\\",
            " ",
            "a",
            "\n",
            "\x7f",
            "\x85",
            "\u2028",
            "\ufeff",
            "\U000e0001",
        ]
    ),
    max_size=7,
).map("".join)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)

NEVER = "rules: [{when: {args: {never: 1}}, reply: {error: never}}]"


@settings(max_examples=40, deadline=None)
@example({"$eq": 1})
@example({"a": {"$gt": "x", "b": {}}})
@example({"{{ a }}": {"b": 1}, "n": 1e22})
@example({"a": "$${{ x }}", "password": "{{ x }}"})
@example({"a": {"$x": {"token": "s"}}})
@example({"a": [10**40, -1e-7, 1e16]})
@given(st.dictionaries(TEXTS.filter(lambda key: key != "never"), VALUES, max_size=4))
def test_whatever_the_arguments_the_pasted_rule_answers_them(arguments):
    assert_the_pasted_rule_answers(mocked(NEVER), arguments)


@pytest.mark.parametrize(
    "output",
    [
        "{type: object, properties: {n: {type: integer, minimum: 3}}, required: [n]}",
        "{const: '{{ args.x }} costs $${5}'}",
        "{type: array, items: {enum: ['{%', '{#']}, minItems: 2}",
        "true",
    ],
)
def test_the_pasted_rule_answers_what_the_output_schema_accepts(output):
    assert_the_pasted_rule_answers(mocked(NEVER, output=output), {"a": 1})


def test_without_a_schema_or_with_one_that_nothing_fits_it_answers_null():
    bare = "name: tool\ninput_schema: {}\nmock:\n  rules: [{when: {args: {a: 1}}, reply: {result: 1}}]\n"
    assert unmatched(bare).error.details["paste"].endswith("result: null")
    impossible = mocked(
        "rules: [{when: {args: {a: 1}}, reply: {error: no}}]",
        output="{allOf: [{type: string}, {type: integer}]}",
    )
    assert unmatched(impossible).error.details["paste"].endswith("result: null")
