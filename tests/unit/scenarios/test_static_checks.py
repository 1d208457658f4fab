"""Checks of `toolcrib validate` that call nothing."""

from __future__ import annotations

import pytest

from toolcrib import Runtime
from toolcrib.scenarios.static_checks import run_static_checks

TOOL = """
name: book
input_schema:
  type: object
  additionalProperties: false
  required: [room]
  properties:
    room: {type: string}
    seats: {type: integer, maximum: 9}
    when: {type: object, properties: {day: {type: string}}, required: [day]}
mock: {result: booked}
"""


@pytest.fixture
def found(tmp_path):
    def problems(*documents, tool=TOOL):
        (tmp_path / "book.tool.yaml").write_text(tool)
        for number, document in enumerate(documents):
            (tmp_path / f"s{number}.scenario.yaml").write_text(document)
        with Runtime.open(tmp_path, index=False) as tools:
            assert not tools.problems
            return list(run_static_checks(tools))

    return problems


def step(args, more=""):
    return f"scenario: s\nsteps:\n  - call: book\n    args: {args}\n{more}"


@pytest.mark.parametrize(
    ("args", "pointer", "told"),
    [
        ("{room: A, seats: 12}", "/steps/0/args/seats", "expected at most 9 at /seats, got 12"),
        ("{seats: 1}", "/steps/0/args", "room"),
        ("{room: A, seat: 1}", "/steps/0/args/seat", "seat"),
        ("{room: '{{ 1 + 1 }}', seats: 12}", "/steps/0/args/seats", "at most 9"),
        ("{seats: '{{ 1 + 1 }}'}", "/steps/0/args", "room"),
        ("{room: A, when: {}}", "/steps/0/args/when", "day"),
    ],
)
def test_literal_arguments_that_the_tool_refuses_are_an_error_at_their_line(found, args, pointer, told):
    (problem,) = found(step(args))
    assert (problem.code, problem.severity, problem.line) == ("step_breaks_schema", "error", 4)
    assert problem.pointer.startswith(pointer)
    assert told in problem.message
    assert problem.source.endswith("s0.scenario.yaml")


@pytest.mark.parametrize(
    "args",
    [
        "{room: A, seats: 9}",
        "{room: A, seats: '9'}",  # repaired when the tool is called
        "{room: '{{ 1 }}', seats: '{{ 2 }}', when: '{{ 3 }}'}",
        "{room: A, when: {day: '{{ 1 }}'}}",
    ],
)
def test_what_is_valid_or_only_known_when_the_step_runs_is_no_problem(found, args):
    assert found(step(args)) == []


@pytest.mark.parametrize("expected", ["outcome: invalid_arguments", "error: {code: invalid_arguments}"])
def test_a_step_that_expects_a_refusal_is_no_problem(found, expected):
    assert found(step("{seats: 12}", f"    expect: {{{expected}}}\n")) == []


@pytest.mark.parametrize(
    ("extra", "severity", "told"),
    [
        ("additionalProperties: false", "error", "; no value can be valid"),
        ("additionalProperties: true", "warning", ""),
        ("title: Cancel", "warning", ""),
    ],
)
def test_required_that_names_no_property_suggests_one(found, extra, severity, told):
    tool = f"""
name: cancel
input_schema:
  type: object
  {extra}
  required: [orderid]
  properties: {{order_id: {{type: string}}}}
mock: {{result: 1}}
"""
    (problem,) = found(tool=tool)
    assert (problem.code, problem.severity, problem.line) == ("unknown_required", severity, 6)
    assert problem.message == f"`required` names `orderid`, which is not in `properties`{told}"
    assert problem.hint == "did you mean `order_id`?"


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("{type: object, required: [user_id, order_id], properties: {order_id: {}}}", []),
        ("{type: object, required: [orderid, total], properties: {order_id: {}}}", ["orderid"]),
        (
            "{type: object, required: [total], properties: {order_id: {}}, additionalProperties: false}",
            ["total"],
        ),
    ],
)
def test_an_open_result_may_promise_what_it_does_not_describe(found, schema, names):
    problems = found(tool=f"name: a\noutput_schema: {schema}\nmode: mock\nmock: {{error: none}}\n")
    told = [each.message.split("`")[3] for each in problems if each.code == "unknown_required"]
    assert told == names


@pytest.mark.parametrize(
    "schema",
    [
        "{type: object, required: [a]}",
        "{type: object, required: [a], properties: {b: {}}, patternProperties: {'^a': {}}}",
        "{type: object, required: [a], properties: {b: {}}, allOf: [{properties: {a: {}}}]}",
        "{type: object, properties: {required: {type: array}}, required: [required]}",
    ],
)
def test_required_that_another_keyword_may_define_is_no_problem(found, schema):
    assert found(tool=f"name: a\ninput_schema: {schema}\nmock: {{result: 1}}\n") == []
