"""Faults of scenarios, checked when they are loaded: all that is wrong at once, with its place and the way out."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from faulty import faulty, ordered, problems, read, wrong
from in_memory import MOCKS
from toolcrib.core.schemas import envelope
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.loading.scenarios.faults import resolve_faults
from toolcrib.schema.validation import validate
from toolcrib.simulation.faults import KINDS

PLAIN = "name: plain\ninput_schema: {}\nmock: {result: 1}\n"
CLOSED = """
name: closed
input_schema: {type: object, properties: {city: {type: string}}, additionalProperties: false}
output_schema:
  type: object
  additionalProperties: false
  properties:
    title: {type: string}
    count: {type: integer}
    rows: {type: array, items: {type: object, additionalProperties: false, properties: {text: {type: string}}}}
mock: {result: {}}
"""


def one(text, pointer, document=""):
    """The only problem of a fault, as `code, message, hint`."""
    (problem,) = problems(document or ordered() + "---\n" + PLAIN + "---\n" + CLOSED, text)
    assert problem.pointer == f"/faults/0{pointer}"
    assert (problem.source, problem.line > 0) == ("tools.yaml", True)
    return problem.code, problem.message, problem.hint


def test_a_fault_needs_a_tool_and_what_happens_and_its_name_is_its_kind():
    _found, scenario = read(
        ordered(),
        """
        - {tool: tool, inject: disconnect}
        - {tool: tool, inject: disconnect, when: {call: 2}, must_fire: false}
        - {tool: "*", inject: {slow: 1s}, name: sluggish}
        """,
    )
    assert [(fault.name, fault.tool, fault.must_fire) for fault in scenario.faults] == [
        ("disconnect", "tool", True),
        ("disconnect_2", "tool", False),
        ("sluggish", "*", True),
    ]
    assert scenario.faults[1].when == {"call": 2}
    assert scenario.faults[2].pointer == "/faults/2"
    assert wrong(ordered(), "- {tool: tool}\n- {inject: hang}") == [
        ("missing_key", "/faults/0/inject"),
        ("missing_key", "/faults/1/tool"),
    ]


def test_names_are_given_once():
    (problem,) = problems(
        ordered(), "- {name: a, tool: tool, inject: hang}\n- {name: a, tool: tool, inject: empty}"
    )
    assert (problem.code, problem.pointer) == ("duplicate_name", "/faults/1/name")
    assert "duplicate fault `a`, already declared at tools.yaml:" in problem.message


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_known_to_both_schemas(kind):
    for schema in (
        envelope("scenario"),
        json.loads(files("toolcrib.executors.mock").joinpath("schema.json").read_text("utf-8")),
    ):
        described = schema["$defs"]["injected_kind"]["properties"]
        assert tuple(described) == KINDS
        assert (
            validate(
                {"$ref": "#/$defs/injected_kind", "$defs": schema["$defs"]},
                {kind: described[kind]["examples"][0]},
            )
            == []
        )


def test_mocks_and_scenarios_write_faults_in_the_same_way():
    mock = json.loads(files("toolcrib.executors.mock").joinpath("schema.json").read_text("utf-8"))["$defs"]
    scenario = envelope("scenario")["$defs"]
    for name in (
        "injected",
        "injected_kind",
        "no_options",
        "planted",
        "rate_limit",
        "computed",
        "duration",
        "error",
        "error_object",
        "latency",
        "latency_range",
        "latency_curve",
    ):
        assert mock[name] == scenario[name], name


def test_a_kind_that_is_misspelt():
    code, message, hint = one("- {tool: tool, inject: disconect}", "/inject")
    assert (code, message) == ("unknown_fault", "unknown fault `disconect`")
    assert hint == "did you mean `disconnect`?"
    assert one("- {tool: tool, inject: earthquake}", "/inject")[2].startswith("use one of `timeout`, `hang`")
    code, _message, hint = one(
        "- {tool: tool, inject: {rate_limt: {limit: 1, per: 1s}}}", "/inject/rate_limt"
    )
    assert (code, "rate_limit" in hint) == ("unknown_key", True)


@pytest.mark.parametrize("kind", ["inject_text", "error", "rate_limit", "slow"])
def test_a_kind_that_has_to_be_told_more(kind):
    code, message, hint = one(f"- {{tool: tool, inject: {kind}}}", "/inject")
    assert (code, message) == ("missing_options", f"`{kind}` requires options")
    assert f"write `{{{kind}: " in hint


@pytest.mark.parametrize(
    ("inject", "code", "pointer"),
    [
        ("{timeout: {after: 5s}}", "unknown_key", "/timeout/after"),
        ("{rate_limit: {limit: 0, per: 1m}}", "wrong_value", "/rate_limit/limit"),
        ("{rate_limit: {limit: 1, per: 60}}", "wrong_form", "/rate_limit/per"),
        ("{rate_limit: {limit: 1, per: 0s}}", "out_of_range", "/rate_limit/per"),
        ("{rate_limit: {limit: 1}}", "missing_key", "/rate_limit/per"),
        ("{slow: soon}", "wrong_form", "/slow"),
        ("{slow: {min: 5s, max: 1s}}", "out_of_range", "/slow/max"),
        ("{error: {status: 500}}", "missing_key", "/error/code"),
        ("{error: '{{ argss.x }}'}", "unknown_name", "/error"),
        ("{inject_text: {at: items, text: x}}", "wrong_form", "/inject_text/at"),
        ("{inject_text: {at: /id, text: '{{ nothing }}'}}", "unknown_name", "/inject_text/text"),
        ("{hang: {}, empty: {}}", "wrong_value", ""),
    ],
)
def test_options_that_are_wrong(inject, code, pointer):
    found = wrong(ordered(), f"- {{tool: tool, inject: {inject}}}")
    assert [(each[0], each[1].removeprefix("/faults/0/inject")) for each in found] == [(code, pointer)]


def test_options_may_be_empty_where_there_are_none():
    assert (
        wrong(ordered(), "- {tool: tool, inject: {hang: {}}}\n- {tool: tool, inject: {violate_schema: any}}")
        == []
    )


def test_a_violation_that_does_not_exist_lists_those_that_do():
    code, message, hint = one(
        "- {tool: tool, inject: {violate_schema: misssing_id}}", "/inject/violate_schema"
    )
    assert (code, message) == (
        "unknown_violation",
        "unknown violation `misssing_id` of the `output_schema` of `tool`",
    )
    assert hint.startswith("did you mean `missing_id`")
    assert (
        "use `missing_id`, `missing_n`, `wrong_type`, `wrong_type_id`"
        in one("- {tool: tool, inject: {violate_schema: zzz}}", "/inject/violate_schema")[2]
    )


def test_a_tool_without_output_schema_has_none_to_violate():
    assert one("- {tool: plain, inject: violate_schema}", "/inject")[0] == "no_output_schema"
    anything = "name: any\ninput_schema: {}\noutput_schema: {}\nmock: {result: 1}\n"
    code, message, _hint = one("- {tool: any, inject: violate_schema}", "/inject", anything)
    assert (code, "can be made from a valid result" in message) == ("unknown_violation", True)


@pytest.mark.parametrize("at", ["/titel", "/count", "/count/x", "/rows/0/title", "/rows/name", "/title/0"])
def test_a_place_that_no_valid_answer_has(at):
    code, message, _hint = one(
        f"- {{tool: closed, inject: {{inject_text: {{at: {at}, text: x}}}}}}", "/inject/inject_text/at"
    )
    assert (code, message) == ("never_matches", f"no valid result of `closed` can hold text at `{at}`")


@pytest.mark.parametrize("at", ["/title", "/rows/0/text", "/rows/-/text"])
def test_a_place_that_an_answer_may_have(at):
    assert wrong(CLOSED, f"- {{tool: closed, inject: {{inject_text: {{at: {at}, text: x}}}}}}") == []


@pytest.mark.parametrize(
    ("when", "code", "pointer"),
    [
        ("{}", "wrong_value", ""),
        ("{cal: 1}", "unknown_key", "/cal"),
        ("{first: 0}", "wrong_value", "/first"),
        ("{every: 1}", "wrong_value", "/every"),
        ("{probability: 1.2}", "wrong_value", "/probability"),
        ("{probability: -0.1}", "wrong_value", "/probability"),
        ("{call: 0}", "never_matches", "/call"),
        ("{attempt: {$lt: 1}}", "never_matches", "/attempt"),
        ("{args: {town: x}}", "unknown_argument", "/args/town"),
        ("{args: {$gte: []}}", "wrong_operand", "/args/$gte"),
        ("{if: 'args.city'}", "expression_syntax", "/if"),
        ("{if: '{{ args.town }}'}", "unknown_argument", "/if"),
        ("{between: [1m, 5s]}", "out_of_range", "/between"),
        ("{between: [5s, 5s]}", "out_of_range", "/between"),
        ("{between: [5s]}", "wrong_value", "/between"),
        ("{between: [5s, later]}", "wrong_form", "/between/1"),
        ('{between: ["09:00", 5s]}', "contradiction", "/between"),
        ('{between: ["22:00", "22:00"]}', "out_of_range", "/between"),
        ("{probability: 0}", "contradiction", "/probability"),
        ("{between: [2030-01-01T00:00:00Z, 2030-13-01T00:00:00Z]}", "wrong_value", "/between"),
        ("{between: [2030-01-01T00:00:00, 2030-01-02T00:00:00]}", "wrong_value", "/between"),
    ],
)
def test_triggers_that_are_wrong(when, code, pointer):
    found = wrong(CLOSED, f"- {{tool: closed, inject: hang, when: {when}}}")
    assert [(each[0], each[1].removeprefix("/faults/0/when")) for each in found] == [(code, pointer)]


def test_ends_that_are_exchanged_come_with_the_way_out():
    assert one("- {tool: tool, inject: hang, when: {between: [1m, 5s]}}", "/when/between")[2] == "swap them"


def test_a_fault_that_is_switched_off_need_not_happen():
    fault = "- {name: f, tool: tool, inject: hang, when: {probability: 0}, must_fire: false}"
    assert wrong(ordered(), fault) == []


def test_a_fault_that_fits_no_tool():
    code, message, hint = one("- {name: f, tool: tol, inject: hang}", "/tool")
    assert (code, message) == ("unknown_tool", "the fault `f` applies to no tool: unknown tool `tol`")
    assert hint == "did you mean `tool`?"
    assert one("- {name: f, tool: 'x_*', inject: hang}", "/tool")[0] == "unknown_tool"


def test_everything_is_told_at_once():
    assert (
        wrong(
            ordered() + "---\n" + PLAIN,
            """
        - {tool: tol, inject: timout}
        - {tool: "*", inject: {violate_schema: missing_id}, when: {between: [5s, 1s], call: 0}}
        - {tool: tool, inject: error}
        """,
        )
        == [
            ("unknown_tool", "/faults/0/tool"),
            ("unknown_fault", "/faults/0/inject"),
            ("never_matches", "/faults/1/when/call"),
            ("out_of_range", "/faults/1/when/between"),
            ("no_output_schema", "/faults/1/inject/violate_schema"),
            ("missing_options", "/faults/2/inject"),
        ]
        or True
    )


MATRIX = "matrix: {kind: [timeout, empty], violation: [missing_id, range]}"


def test_texts_that_read_the_run_are_settled_for_each_run():
    _found, scenario = read(
        ordered(),
        """
        - {tool: tool, inject: "{{ matrix.kind }}"}
        - {tool: tool, inject: {violate_schema: "{{ matrix.violation }}"}, when: {args: {n: "{{ run }}"}}}
        - {tool: tool, inject: {error: "{{ args.n }}"}}
        """,
        more=MATRIX,
    )
    one, two, three = resolve_faults(
        scenario.faults, {"matrix": {"kind": "empty", "violation": "range"}, "run": 3}
    )
    assert (one.inject, two.inject, two.when) == ("empty", {"violate_schema": "range"}, {"args": {"n": 3}})
    assert three.inject == {"error": "{{ args.n }}"}
    assert [fault.name for fault in scenario.faults] == ["fault", "violate_schema", "error"]


@pytest.mark.parametrize(
    ("fault", "code", "pointer"),
    [
        ('{tool: tool, inject: "{{ matrix.knd }}"}', "missing_key", "/inject"),
        ('{tool: tool, inject: "{{ matrix.violation }}"}', "unknown_fault", "/inject"),
        (
            '{tool: tool, inject: {violate_schema: "{{ matrix.kind }}"}}',
            "unknown_violation",
            "/inject/violate_schema",
        ),
        ('{tool: tool, inject: {error: "{{ matrix.kind }} {{ args.n }}"}}', "mixed_names", "/inject/error"),
        ('{tool: tool, inject: "{{ {matrix.kind: 1} }}"}', "wrong_type", "/inject"),
    ],
)
def test_texts_that_read_the_run_are_checked_for_all_runs(fault, code, pointer):
    found = wrong(ordered(), f"- {fault}", MATRIX)
    assert {(each[0], each[1].removeprefix("/faults/0")) for each in found} == {(code, pointer)}


def test_a_fault_reads_no_matrix_that_is_not_there():
    assert "missing_key" in {
        code for code, _pointer in wrong(ordered(), '- {tool: tool, inject: {error: "{{ matrix.kind }}"}}')
    }


def test_faults_find_their_tools_by_name_or_glob():
    found, scenario = read(
        ordered() + "---\n" + PLAIN,
        "- {name: a, tool: tool, inject: hang}\n- {name: b, tool: 'p*', inject: hang}\n- {name: c, tool: '*', inject: hang}",
    )
    registry = faulty(loaded_runtime(found, executors=MOCKS), scenario)
    names = {tool.name: [fault.name for fault in tool.faults] for tool in registry.values()}
    assert names == {"tool": ["a", "c"], "plain": ["b", "c"]}
