"""Assertions as documents write them: names, parameters, and all that is wrong with them at once."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples, sample
from toolcrib.core.schemas import part_schema
from toolcrib.loading.scenarios.assertions import (
    ALIASES,
    GUARDING,
    SPELLINGS,
    assertion_kinds,
    check_assertions,
    check_guardrails,
)
from toolcrib.loading.scenarios.model import SPEAKING

PROMPTKIT = [
    "tools_called",
    "tool_called",
    "tools_called_session",
    "tools_not_called",
    "tools_not_called_session",
    "tool_args",
    "tool_args_session",
    "tool_args_excluded_session",
    "tools_not_called_with_args",
    "tool_calls_with_args",
    "tool_call_count",
    "tool_call_sequence",
    "tool_call_chain",
    "chain",
    "tool_anti_pattern",
    "tool_no_repeat",
    "tool_efficiency",
    "no_tool_errors",
    "tool_result_includes",
    "tool_result_matches",
    "tool_result_has_media",
    "tool_result_media_type",
    "tool_exec",
    "llm_judge_tool_calls",
    "workflow_tool_access",
    "invariant_fields_preserved",
    "outcome_equivalent",
    "directional",
    "assertion",
    "content_includes",
    "content_includes_any",
    "content_excludes",
    "content_matches",
    "min_length",
    "max_length",
    "length",
    "banned_words",
    "is_valid_json",
    "json_schema",
    "json_path",
    "guardrail_triggered",
    "cost_budget",
    "guardrail",
]


def checked(*entries, **options):
    problems = []
    return check_assertions(list(entries), "/a", problems, **options), problems


def faults(*entries):
    return [(problem.code, problem.pointer) for problem in checked(*entries)[1]]


def entry(kind, **params):
    return {"type": kind, "params": params}


@pytest.mark.parametrize("name", PROMPTKIT)
def test_the_names_of_promptkit_are_known(name):
    assert name in assertion_kinds() or ALIASES[name].kind in assertion_kinds()


def test_an_alias_means_a_kind_and_is_none_itself():
    assert {alias.kind for alias in ALIASES.values()} <= assertion_kinds().keys()
    assert not ALIASES.keys() & assertion_kinds().keys()
    assert SPEAKING <= assertion_kinds().keys() >= SPELLINGS.keys()
    assert GUARDING < SPEAKING


def test_other_spellings_of_a_parameter_mean_one_of_its_own():
    for kind, spellings in SPELLINGS.items():
        own = assertion_kinds()[kind]["properties"]
        assert {*spellings.values()} <= own.keys()
        assert not spellings.keys() & own.keys()


@pytest.mark.parametrize("kind", sample(assertion_kinds(), one_in=4))
def test_what_a_kind_takes_is_a_schema_that_explains_itself(kind):
    schema = assertion_kinds()[kind]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"]
    assert schema["description"].endswith(".")
    for name, written in schema["properties"].items():
        described = schema["$defs"].get(written.get("$ref", "").removeprefix("#/$defs/"), {}) | written
        assert described["description"], name
        whole = {"$defs": schema["$defs"], **described}
        for value in [
            *described.get("examples", []),
            *([described["default"]] if "default" in described else []),
        ]:
            jsonschema.validate(value, whole)


@pytest.mark.parametrize(
    ("written", "kind", "params", "scope"),
    [
        (entry("tool_called", tool_name="a"), "tools_called", {"tool_names": ["a"]}, "turn"),
        (entry("tools_called", tools=["a", "b"]), "tools_called", {"tool_names": ["a", "b"]}, "turn"),
        (entry("tools_called_session", tools="a"), "tools_called", {"tool_names": ["a"]}, "conversation"),
        (
            entry("tools_not_called_with_args", tool="a", forbidden_args={"x": [1]}),
            "tool_args_excluded",
            {"tool_name": "a", "forbidden_args": {"x": [1]}},
            "conversation",
        ),
        (
            entry("banned_words", words=["ass"]),
            "content_excludes",
            {"match_mode": "word_boundary", "patterns": ["ass"]},
            "turn",
        ),
        (entry("llm_judge_session", criteria="a"), "llm_judge_session", {"criteria": "a"}, "conversation"),
        (entry("length", max_characters=5), "max_length", {"max": 5}, "turn"),
        (entry("json_path", jmespath_expression="a"), "json_path", {"expression": "a"}, "turn"),
        (entry("tool_no_repeat", tools="a"), "tool_no_repeat", {"tools": ["a"]}, "turn"),
        (
            entry("assertion", eval_type="tools_called_session", eval_params={"tools": "a"}, min_score=0.5),
            "assertion",
            {"eval_type": "tools_called", "eval_params": {"tool_names": ["a"]}, "min_score": 0.5},
            "conversation",
        ),
    ],
)
def test_names_and_parameters_are_settled(written, kind, params, scope):
    (found,), problems = checked(written)
    assert problems == []
    assert (found.type, found.params, found.scope) == (kind, params, scope)


def test_what_may_stand_beside_the_parameters_may_stand_among_them():
    beside = {"type": "no_tool_errors", "message": "None", "scope": "conversation", "pass_threshold": 0.5}
    within = entry("no_tool_errors", message="None", scope="conversation") | {"pass_threshold": 0.5}
    (first, second), problems = checked(beside, within)
    assert problems == []
    assert (first.message, first.scope, first.pass_threshold) == ("None", "conversation", 0.5)
    assert (second.message, second.scope, second.params) == ("None", "conversation", {})
    assert second.pointer == "/a/1"


def test_a_list_of_the_conversation_is_about_all_of_it():
    (found,), _ = checked(entry("no_tool_errors"), whole=True)
    assert found.scope == "conversation"


def test_everything_is_told_at_once():
    assert faults(
        entry("tols_called"),
        entry("tools_called", min_cals=1, tools=[1]),
        entry("tools_called"),
        entry("tool_call_count"),
        entry("tools_called", tools="a", tool_names=["a"]),
        entry("no_tool_errors", message="a") | {"message": "b", "tipe": 1},
        {"params": {}},
        7,
        {"type": "no_tool_errors", "params": 3},
        {"type": "no_tool_errors", "pass_threshold": 2, "when": {"tool_caled": "a"}},
        {"type": "no_tool_errors", "when": {"tool_called_pattern": "("}},
        entry("tool_exec", tool="a", args=1, success_pattern="("),
    ) == [
        ("unknown_assertion", "/a/0/type"),
        ("unknown_key", "/a/1/params/min_cals"),
        ("wrong_type", "/a/1/params/tools/0"),
        ("missing_key", "/a/2/params/tool_names"),
        ("missing_key", "/a/3/params"),
        ("wrong_combination", "/a/4/params/tool_names"),
        ("unknown_key", "/a/5/tipe"),
        ("wrong_combination", "/a/5/params/message"),
        ("missing_key", "/a/6/type"),
        ("wrong_type", "/a/7"),
        ("wrong_type", "/a/8/params"),
        ("wrong_value", "/a/9/pass_threshold"),
        ("unknown_key", "/a/9/when/tool_caled"),
        ("invalid_pattern", "/a/10/when/tool_called_pattern"),
        ("wrong_type", "/a/11/params/args"),
        ("invalid_pattern", "/a/11/params/success_pattern"),
    ]


@pytest.mark.parametrize(
    ("pattern", "words"), [("(x", 'invalid regular expression "(x": missing )'), ("(?=x)", "linear time")]
)
def test_a_pattern_that_is_none_is_told_apart_from_one_that_would_take_long(pattern, words):
    (problem,) = checked(entry("content_matches", pattern=pattern))[1]
    assert words in problem.message


def test_a_fault_of_one_assertion_leaves_the_others():
    found, _problems = checked(entry("tols_called"), entry("no_tool_errors"))
    assert [assertion.type for assertion in found] == ["no_tool_errors"]


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        (entry("tool_caled"), "did you mean `tool_called`"),
        (entry("content_contains"), "or `content_includes` or `contains`?"),
        (entry("xyzzy"), "see the types in `docs/reference/assertions.md`"),
        (entry("tools_called", tool_names=["a"], min_call=1), "did you mean `min_calls`"),
        (entry("tools_called", tool_names=["a"], xyzzy=1), "`tools_called` accepts `tool_names`"),
        (entry("guardrail_triggered", validator="banned_word"), "did you mean `banned_words`"),
        (entry("json_path", expression="lenght(@)"), "did you mean `length`"),
        (entry("content_matches", pattern="(?=a)"), "look-around"),
    ],
)
def test_a_misspelt_name_is_told_with_what_is_near(written, hint):
    (problem,) = checked(written)[1]
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        (entry("content_matches", pattern="("), ("invalid_pattern", "/a/0/params/pattern")),
        (
            entry("tool_calls_with_args", tool="a", args_match={"x/y": "("}),
            ("invalid_pattern", "/a/0/params/args_match/x~1y"),
        ),
        (
            entry("chain", steps=[{"tool": "a"}, {"tool": "b", "result_matches": "("}]),
            ("invalid_pattern", "/a/0/params/steps/1/result_matches"),
        ),
        (
            entry("tool_exec", tool="a", failure_pattern="["),
            ("invalid_pattern", "/a/0/params/failure_pattern"),
        ),
        (entry("json_schema", schema={"type": "objekt"}), ("invalid_schema", "/a/0/params/schema/type")),
        (entry("json_path", jmespath_expression="a["), ("bad_select", "/a/0/params/jmespath_expression")),
        (entry("json_path", expression="a", min=2, max=1), ("contradiction", "/a/0/params/max")),
        (entry("tool_call_count", min=2, max=1), ("contradiction", "/a/0/params/max")),
        (
            entry("outcome_equivalent", metric="final_state"),
            ("missing_key", "/a/0/params/expected_state"),
        ),
        (
            entry("directional", check="same_tool_calls", baseline_tools=[], baseline_content="a"),
            ("wrong_combination", "/a/0/params/baseline_content"),
        ),
        (
            entry("assertion", eval_type="tool_caled", min_score=0.5),
            ("unknown_assertion", "/a/0/params/eval_type"),
        ),
        (
            entry("assertion", eval_type="tool_called", eval_params={"tols": "a"}, min_score=0.5),
            ("unknown_key", "/a/0/params/eval_params/tols"),
        ),
        (entry("assertion", eval_type="no_tool_errors"), ("missing_key", "/a/0/params")),
        (
            entry("guardrail_triggered", validator="tools_called"),
            ("unknown_assertion", "/a/0/params/validator"),
        ),
    ],
)
def test_what_no_schema_says_is_checked_too(written, fault):
    assert fault in faults(written)


def test_a_list_is_wanted():
    problems = []
    assert check_assertions({"type": "no_tool_errors"}, "/a", problems) == ()
    assert [(problem.code, problem.pointer) for problem in problems] == [("wrong_type", "/a")]


def test_guardrails_judge_texts():
    problems = []
    found = check_guardrails(
        [
            {"type": "banned_words", "params": {"words": ["a"]}, "message": "rude"},
            {
                "type": "guardrail",
                "params": {"eval_type": "length", "eval_params": {"max": 3}, "min_score": 1},
            },
            {"type": "tools_called", "params": {"tools": "a"}},
            {"type": "max_length", "params": {"max": 3}, "when": {"tool_called": "a"}},
        ],
        "/g",
        problems,
    )
    assert [guardrail.type for guardrail in found] == ["content_excludes", "assertion"]
    assert [(problem.code, problem.pointer) for problem in problems] == [
        ("unknown_assertion", "/g/2/type"),
        ("unknown_key", "/g/3/when"),
    ]


def test_an_entry_is_what_the_schema_of_scenarios_says():
    keys = part_schema("agent")["$defs"]["assertion"]["properties"]
    assert {*keys} == {"type", "params", "message", "when", "scope", "pass_threshold", "unsupported"}


NAMES = [
    "type",
    "params",
    "when",
    "tool_names",
    "tools",
    "patterns",
    "eval_type",
    "eval_params",
    "steps",
    "tool",
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(["", "a", "(", "tools_called", "length"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(
        VALUES
        | st.fixed_dictionaries(
            {"type": st.sampled_from([*assertion_kinds(), *ALIASES])},
            optional={"params": VALUES, "when": VALUES, "message": VALUES, "scope": VALUES},
        ),
        max_size=4,
    )
)
def test_whatever_is_written_is_settled_or_told(entries):
    found, problems = checked(*entries)
    assert {f"/a/{index}" for index in range(len(entries))} == {
        *(assertion.pointer for assertion in found),
        *("/".join(problem.pointer.split("/")[:3]) for problem in problems),
    }
    assert all(assertion.type in assertion_kinds() for assertion in found)
