"""What only calls of a mock, or another judge of schemas, can tell."""

from __future__ import annotations

import asyncio

import pytest

from toolcrib.core.model import Descriptor
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.executors import Executors
from toolcrib.loading.sources import parse, parse_files
from toolcrib.scenarios.self_check import check_with_jsonschema, example_value, run_self_check

HEAD = """
name: tool
input_schema:
  type: object
  additionalProperties: false
  properties:
    city: {type: string}
    days: {type: integer, minimum: 1, maximum: 7}
output_schema: {type: object, required: [days], properties: {days: {type: integer}}}
"""


def problems_of(text):
    executors = Executors.installed()
    runtime = loaded_runtime(parse("tool.yaml", text, executors), executors=executors)
    assert [problem for problem in runtime.problems if problem.severity == "error"] == []
    return asyncio.run(run_self_check(runtime))


def codes_of(text):
    return [(problem.code, problem.pointer) for problem in problems_of(text)]


def test_a_mock_that_answers_well_has_no_problems():
    assert codes_of(HEAD + "mock: {result: {days: \"{{ args['days'] | default(1) }}\"}}") == []


def test_a_computed_answer_that_breaks_the_schema_is_found_with_the_arguments_that_show_it():
    (problem,) = problems_of(HEAD + "mock: {result: {days: \"{{ args['city'] }}\"}}")
    assert (problem.code, problem.severity, problem.pointer) == ("reply_breaks_schema", "error", "/mock")
    assert problem.message.startswith("called with {")
    assert "/days: expected an integer" in problem.message
    assert (problem.source, problem.line) == ("tool.yaml", 10)


def test_an_answer_that_can_not_be_worked_out_is_found_where_it_stands():
    (problem,) = problems_of(HEAD + 'mock:\n  result:\n    days: "{{ args.days }}"\n')
    assert (problem.code, problem.pointer) == ("reply_fails", "/mock/result/days")
    assert problem.line == 12


def test_rows_with_a_fault_are_told_where_they_stand_and_not_again_for_each_tool():
    tool = "name: {}\ninput_schema: {{}}\nmock: {{result: '{{{{ store.{} }}}}'}}\n"
    files = {
        "pack.yaml": "name: p\nversion: 1.0.0\ndescription: A pack.\nstore: {a: a.json, b: {rows: {x: {n: 1}}}}\n",
        "a.json": '{"x": ',
        **{
            f"{name}.tool.yaml": tool.format(name, read)
            for name, read in (("one", "a"), ("two", "a.x"), ("fit", "b"))
        },
        "bad.tool.yaml": tool.format("bad", "b.y"),
    }
    executors = Executors.installed()
    runtime = loaded_runtime(parse_files(files, executors), executors=executors)
    assert [(problem.code, problem.source) for problem in runtime.problems] == [("invalid_json", "a.json")]
    told = asyncio.run(run_self_check(runtime))
    assert [(problem.code, problem.source) for problem in told] == [("reply_fails", "bad.tool.yaml")]


@pytest.mark.parametrize("schema", ["{}", "{properties: {city: {const: Oslo}}}"])
def test_arguments_are_an_object_though_their_schema_does_not_say_so(schema):
    text = f"name: tool\ninput_schema: {schema}\nmock: {{result: '{{{{ args.nothing }}}}'}}\n"
    assert codes_of(text) == [("reply_fails", "/mock/result")]


def test_every_rule_is_tried_with_arguments_that_fit_it():
    rules = """
mock:
  rules:
    - when: {args: {city: Oslo}}
      reply: {result: {days: "{{ args.city }}"}}
    - name: far
      when: {args: {city: {$regex: "^far-[a-z]+$"}}}
      reply: [{result: {days: 1}}, {result: {days: "{{ args.city }}"}}]
      after_last: repeat
    - reply: {result: {days: 1}}
"""
    assert codes_of(HEAD + rules) == [
        ("reply_breaks_schema", "/mock/rules/0/reply"),
        ("reply_breaks_schema", "/mock/rules/1/reply/1"),
    ]


def test_a_rule_on_the_number_of_the_call_is_reached():
    rules = """
mock:
  rules:
    - when: {call: {$gt: 5}}
      reply: {result: {days: "{{ call ~ 'th' }}"}}
    - reply: {result: {days: 1}}
"""
    assert codes_of(HEAD + rules) == [("reply_breaks_schema", "/mock/rules/0/reply")]


def test_every_answer_of_a_sequence_is_given():
    sequence = "mock: {sequence: [{result: {days: 1}}, {result: {days: \"{{ 'x' ~ call }}\"}}]}"
    assert codes_of(HEAD + sequence) == [("reply_breaks_schema", "/mock/sequence/1")]


def test_a_call_that_no_rule_answers_and_an_error_reply_are_no_problems():
    rules = """
mock:
  rules:
    - when: {args: {city: Oslo}}
      reply: {error: "no {{ args.city }}"}
"""
    assert codes_of(HEAD + rules) == []


def test_a_tool_that_lets_wrong_answers_pass_with_a_warning_gets_a_warning():
    (problem,) = problems_of(HEAD + "on_invalid_result: warn\nmock: {result: {days: \"{{ 'x' ~ call }}\"}}")
    assert (problem.code, problem.severity) == ("reply_breaks_schema", "warning")


def test_what_loading_said_of_a_fixed_answer_is_not_said_again():
    assert codes_of(HEAD + "on_invalid_result: warn\nmock: {result: {days: x}}") == []


def test_a_mock_is_proved_although_another_mode_is_in_force():
    mock = "mock: {result: {days: \"{{ args['city'] }}\"}}"
    text = f"{HEAD}mode: live\nlive: {{url: https://example.com}}\n{mock}"
    assert codes_of(text) == [("reply_breaks_schema", "/mock")]


def test_examples_are_tried_where_no_arguments_can_be_made_up():
    schema = 'name: tool\ninput_schema: {type: object, properties: {a: {type: string, pattern: "^(?=x)(?!y)x$"}}, required: [a], additionalProperties: false}\n'
    mock = 'output_schema: {type: integer}\nmock: {result: "{{ args.a }}"}\n'
    assert codes_of(schema + mock) == [("not_proved", "/mock")]
    assert codes_of(schema + "examples: [{args: {a: x}}]\n" + mock) == [("reply_breaks_schema", "/mock")]


def test_mocks_of_scenarios_are_proved_and_placed_there():
    scenario = """
---
scenario: other
mocks:
  tool:
    rules:
      - name: all
        reply: {result: {days: "{{ 'x' ~ call }}"}}
steps: [{call: tool, expect: {outcome: invalid_result}}]
"""
    (problem,) = problems_of(HEAD + "mock: {result: {days: 1}}\n" + scenario)
    assert (problem.code, problem.pointer) == ("reply_breaks_schema", "/mocks/tool/rules/0/reply")
    assert problem.line == 18


def test_secrets_of_the_arguments_are_not_shown():
    text = """
name: tool
input_schema: {type: object, properties: {password: {type: string}}, required: [password], additionalProperties: false}
examples: [{args: {password: hunter2}}]
output_schema: {type: integer}
mock: {result: "{{ args.password | length ~ 'x' }}"}
"""
    (problem,) = problems_of(text)
    assert '"password":"***"' in problem.message
    assert "hunter2" not in str(problem)


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ("plain", "plain"),
        ([1, {"$gt": 1}], [1, 2]),
        ({"a": {"$eq": {"$x": 1}}, "b": {"$exact": [1]}}, {"a": {"$x": 1}, "b": [1]}),
        (
            {"a": {"$in": ["x", "y"]}, "b": {"$any": [{"$gte": 3}, 1]}, "c": {"$all": [2]}},
            {"a": "x", "b": 3, "c": 2},
        ),
        ({"a": {"$lt": 3}, "b": {"$lte": 3}, "c": {"$close": [1.5, 0.1]}}, {"a": 2, "b": 3, "c": 1.5}),
        ({"a": {"$contains": "x"}, "b": {"$contains": 2}}, {"a": "x", "b": [2]}),
        (
            {"a": {"$schema": {"const": 7}}, "b": {"$gt": "b"}, "c": {"$lt": "b"}},
            {"a": 7, "b": "b", "c": "b"},
        ),
        ({"a": {"$exists": True}, "b": 1}, {"b": 1}),
        ({"a": {"$in": []}, "b": {"$any": []}}, {"a": None, "b": None}),
        ({"$exists": True}, None),
        ({}, {}),
    ],
)
def test_values_are_made_to_fit_matchers(pattern, value):
    assert example_value(pattern) == value


def test_a_value_fits_a_regular_expression():
    assert example_value({"$regex": "^ab?c$"}) in {"abc", "ac"}
    assert example_value({"$regex": "(?=x)(?!y)"}) is None


def test_a_schema_that_jsonschema_refuses_gets_its_opinion():
    tool = Descriptor(
        name="tool", input_schema={"properties": {"a/b": {"type": "strng"}}}, output_schema={"minimum": "1"}
    )
    first, second = check_with_jsonschema(tool)
    assert (first.code, first.severity, first.pointer) == (
        "second_opinion",
        "warning",
        "/input_schema/properties/a~1b/type",
    )
    assert "strng" in first.message
    assert second.pointer == "/output_schema/minimum"


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"pattern": r"\p{L}"},
        {"$schema": "http://json-schema.org/draft-04/schema#", "exclusiveMinimum": True, "minimum": 1},
    ],
)
def test_a_schema_that_both_accept_gets_none(schema):
    assert list(check_with_jsonschema(Descriptor(name="tool", output_schema=schema))) == []


@pytest.mark.parametrize("kind", ["violate_schema", "empty", "not_json", "timeout", "hang", "lost_ack"])
def test_what_is_meant_to_be_broken_is_no_problem(kind):
    assert codes_of(HEAD + f"mock: {{sequence: [{{fault: {kind}}}, {{result: {{days: 1}}}}]}}") == []


def test_what_a_run_would_have_to_allow_is_not_tried():
    live = 'live: {url: "https://api.example.com"}\nmode: mock\n'
    assert codes_of(HEAD + live + "mock: {passthrough: live}") == []


def test_replies_are_tried_that_speak_after_one_has_answered_several_calls():
    replies = '[{result: {days: 1}, times: 3}, {result: {days: "{{ args.city }}"}}]'
    found = codes_of(
        HEAD + f"examples: [{{args: {{city: Oslo}}}}]\nmock: {{sequence: {replies}, after_last: repeat}}"
    )
    assert ("reply_breaks_schema", "/mock/sequence/1") in found
    once = "{reply: {result: {days: 1}, times: 2}, after_last: next_rule}"
    rules = f'[{once}, {{reply: {{result: {{days: "{{{{ args.city }}}}"}}}}}}]'
    found = codes_of(HEAD + f"examples: [{{args: {{city: Oslo}}}}]\nmock: {{rules: {rules}}}")
    assert ("reply_breaks_schema", "/mock/rules/1/reply") in found
