"""What a call gets that no rule answers, and the rule to paste, which really works."""

from __future__ import annotations

import asyncio
import json
import textwrap

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from in_memory import mocked, runtime_of
from keeping import calls, keeping, loaded_with
from sampling import examples
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
          to answer it, add this rule below the others:
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


def test_a_used_up_rule_says_so_and_the_ways_out_of_it():
    block = "rules: [{when: {args: {a: 2}}, reply: {result: 0}}, {name: once, reply: [{result: 1}]}]"
    result = unmatched(mocked(block, output="{const: 7}", more="on_invalid_result: warn"), {"a": 1}, calls=2)
    assert result.message == textwrap.dedent(
        """\
        no mock rule of `tool` answers call 2 with {"a":1}
          rule 1 (tools.yaml:6): args/a: expected 2, got 1
          once (tools.yaml:6): exhausted: its 1 reply is used up
          once is exhausted: add a reply to its list, or set `after_last: repeat`,
          or set `after_last: next_rule` and add this rule below the others:
            - when:
                args: {"a": 1}
              reply:
                result: 7"""
    )
    details = result.error.details
    assert details["exhausted"] == {"rule": "once", "pointer": "/mock/rules/1"}
    assert details["after_last"] == "next_rule"


def test_a_used_up_rule_above_one_that_would_answer_needs_no_other():
    block = (
        "rules: [{name: once, when: {args: {a: 1}}, reply: {result: 1, times: 2}},"
        " {name: any, when: {args: {a: {$gt: 0}}}, reply: {result: 2}}]"
    )
    result = unmatched(mocked(block), {"a": 1}, calls=3)
    assert result.message.splitlines()[-1] == (
        "  once is exhausted: increase `times` of its reply, or set `after_last: repeat`,"
        " or set `after_last: next_rule`: then any answers"
    )
    assert "paste" not in result.error.details


@pytest.mark.parametrize(
    "below", ["reply: [{result: 2}]", "when: {if: '{{ 1 / args.zero > 0 }}'}, reply: {result: 2}"]
)
def test_a_used_up_rule_above_one_that_stops_the_call_too_is_told_with_what_helps(below):
    block = f"rules: [{{name: twice, when: {{args: {{a: 1}}}}, reply: [{{result: 1}}]}}, {{{below}}}]"
    runtime = runtime_of(mocked(block))

    async def last():
        await runtime.call("tool", {"a": 2, "zero": 1})
        await runtime.call("tool", {"a": 1, "zero": 0})
        return await runtime.call("tool", {"a": 1, "zero": 0})

    result = asyncio.run(last())
    assert result.message.endswith("twice is exhausted: add a reply to its list, or set `after_last: repeat`")
    assert result.error.details.keys() == {"call", "nearest", "exhausted"}


def test_a_rule_to_paste_has_a_name_of_its_own():
    block = "rules: [{name: rule 2, when: {args: {a: 2}}, reply: {result: 0}}, {name: rule 3, reply: [{result: 1}], after_last: next_rule}]"
    paste = unmatched(mocked(block), {"a": 1}, calls=2).error.details["paste"]
    assert paste.startswith("- name: rule 4\n  when:\n")


def test_a_used_up_sequence_says_what_to_do():
    result = unmatched(mocked("sequence: [{result: 1}, {result: 2}]"), calls=3)
    assert result.message == (
        "no mock rule of `tool` answers call 3 with {}\n"
        "  sequence (tools.yaml:5): exhausted: its 2 replies are used up\n"
        "  add a reply to the sequence, or set `after_last: repeat` or `after_last: cycle`"
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
    assert "cannot be evaluated: " in unmatched(mocked(block), {"a": 2}).message


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


@settings(max_examples=examples(40), deadline=None)
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


def test_without_a_schema_it_answers_null_and_where_nothing_fits_an_error():
    bare = "name: tool\ninput_schema: {}\nmock:\n  rules: [{when: {args: {a: 1}}, reply: {result: 1}}]\n"
    assert unmatched(bare).error.details["paste"].endswith("result: null")
    impossible = mocked(
        "rules: [{when: {args: {a: 1}}, reply: {error: no}}]",
        output="{allOf: [{type: string}, {type: integer}]}",
    )
    assert unmatched(impossible).error.details["paste"].endswith("error: no reply is defined yet")


# All that is told as a way out.

REPLIES = st.fixed_dictionaries(
    {"result": st.integers(0, 9)}, optional={"times": st.integers(1, 2)}
) | st.just({"effects": [{"goto": {"till": "open"}}], "result": "opened"})
WHEN = st.fixed_dictionaries(
    {},
    optional={
        "args": st.sampled_from([{"x": 0}, {"x": 1}, {"x": {"$gte": 0}}]),
        "call": st.sampled_from([1, {"$lte": 2}, {"$gt": 1}]),
        "state": st.sampled_from([{"till": "open"}, {"till": "closed"}, {"cart": {"$ne": "empty"}}]),
        "if": st.sampled_from(["{{ args.x == 1 }}", "{{ 1 / args.x > 0 }}"]),
    },
)
NAMES = st.sampled_from(["", "", "rule 2", "rule 3"])
AFTER = st.sampled_from(["error", "repeat", "cycle", "next_rule"])


@st.composite
def rules(draw):
    """A rule, most often with replies that can be used up."""
    rule = {"reply": draw(REPLIES | st.lists(REPLIES, min_size=1, max_size=2))}
    rule |= {key: value for key, value in [("when", draw(WHEN)), ("name", draw(NAMES))] if value}
    return rule | ({"after_last": draw(AFTER)} if isinstance(rule["reply"], list) else {})


BLOCKS = (
    st.lists(rules(), min_size=1, max_size=4).map(lambda some: {"rules": some})
    | st.lists(REPLIES, min_size=1, max_size=2).map(lambda some: {"sequence": some})
    | st.fixed_dictionaries({"result": st.just(1), "times": st.integers(1, 2)})
)
OUTPUTS = st.sampled_from(["{}", "{type: [integer, string]}"])


def first_miss(block, output, given_arguments):
    """The calls up to the first that nothing answers, and that; None where the tool is refused or answers all."""
    text = mocked(json.dumps(block), output=output)
    if any(problem.severity == "error" for problem in loaded_with(text).problems):
        return None
    results = calls(keeping(text), *given_arguments)
    missed = [place for place, result in enumerate(results) if result.outcome is Outcome.UNMATCHED_MOCK]
    return (given_arguments[: missed[0] + 1], results[missed[0]]) if missed else None


def ways_out(block, result):
    """The text of the block in all the ways that a miss names."""
    details = result.error.details
    if "sequence" in block:
        yield from (json.dumps({**block, "after_last": after}) for after in ("repeat", "cycle"))
        yield json.dumps({"sequence": [*block["sequence"], {"result": 1}]})
    elif "rules" not in block:
        yield from (json.dumps({**block, **longer}) for longer in ({"after_last": "repeat"}, {"times": 9}))
    elif "exhausted" not in details:
        yield with_rule(block["rules"], details["paste"])
    else:
        place = int(details["exhausted"]["pointer"].rpartition("/")[2])
        above, used_up, below = block["rules"][:place], block["rules"][place], block["rules"][place + 1 :]
        reply = used_up["reply"]
        more = [*reply, {"result": 1}] if isinstance(reply, list) else {**reply, "times": 9}
        yield with_rule([*above, {**used_up, "after_last": "repeat"}, *below])
        yield with_rule([*above, {**used_up, "reply": more}, *below])
        if "after_last" in details:
            passing = {**used_up, "after_last": details["after_last"]}
            yield with_rule([*above, passing, *below], details.get("paste", ""))


def with_rule(rules, paste=""):
    """The text of rules, and of one more below them."""
    return "\n".join(["rules:", *(f"- {json.dumps(rule)}" for rule in rules), paste])


@settings(max_examples=examples(40), deadline=None)
@example(
    {"rules": [{"name": "once", "when": {"args": {"x": 0}}, "reply": {"result": 1, "times": 1}}]},
    "{}",
    [{"x": 0}] * 2,
)
@given(BLOCKS, OUTPUTS, st.lists(st.fixed_dictionaries({"x": st.integers(0, 2)}), min_size=3, max_size=6))
def test_every_way_out_loads_and_answers_the_call(block, output, given_arguments):
    found = first_miss(block, output, given_arguments)
    assume(found is not None)
    up_to_it, miss = found
    for changed in ways_out(block, miss):
        text = mocked(changed, output=output)
        result = calls(keeping(text), *up_to_it)[-1]
        assert result.outcome is Outcome.OK, (changed, result.message)
