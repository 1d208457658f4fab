"""Scenarios and tools together: what a scenario names must be there."""

from __future__ import annotations

import pytest

from toolcrib.engine.runtime import Runtime, loaded_runtime
from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.sources import parse, parse_files

KINDS = Executors({"mock": MockExecutor})

TOOLS = """
name: pay
description: Pay.
mode: mock
mock: {result: 1}
live: {url: x}
---
name: refund
description: Refund.
mock: {result: 2}
"""


def linked(scenario, tools=TOOLS):
    """(code, pointer, line) of everything that is wrong with a scenario, and the scenarios that fit."""
    found = parse_files({"tools.yaml": tools, "x.scenario.yaml": scenario}, KINDS)
    runtime = loaded_runtime(found, executors=KINDS)
    problems = [problem for problem in runtime.problems if problem.source == "x.scenario.yaml"]
    return problems, [entry.name for entry in runtime.scenarios]


def codes(scenario, tools=TOOLS):
    problems, kept = linked(scenario, tools)
    assert kept == []
    return [(problem.code, problem.pointer, problem.line) for problem in problems]


def test_a_scenario_that_fits_is_kept():
    text = (
        "scenario: s\nmodes: {pay: live, '*': mock}\nmocks: {refund: {result: 3}}\nsteps: [{call: pay}]\n"
        "verify: {calls: [{tool: 'pa*'}], never: [{tool: refund}], order: {any: [pay]}}\n"
    )
    assert linked(text) == ([], ["s"])


def test_every_unknown_name_is_told_at_its_place_with_its_near_miss():
    text = """scenario: s
modes:
  pya: mock
mocks:
  re/fund: {result: 1}
steps:
  - call: pays
  - call: pay
verify:
  calls: [{tool: nothing_like_it}]
  never: [{tool: "void*"}]
  order: {exact: [pay, refunds]}
"""
    problems, kept = linked(text)
    assert [(problem.pointer, problem.line) for problem in problems] == [
        ("/modes/pya", 3),
        ("/mocks/re~1fund", 5),
        ("/steps/0/call", 7),
        ("/verify/calls/0/tool", 10),
        ("/verify/never/0/tool", 11),
        ("/verify/order/exact/1", 12),
    ]
    assert {problem.code for problem in problems} == {"unknown_tool"}
    assert [problem.hint for problem in problems[:3]] == [
        "did you mean `pay`?",
        "did you mean `refund`?",
        "did you mean `pay`?",
    ]
    assert problems[3].hint == "load the tool together with the scenario"
    assert kept == []


def test_a_step_may_expect_that_there_is_no_such_tool():
    assert linked("scenario: s\nsteps: [{call: nobody, expect: {outcome: not_found}}]\n") == ([], ["s"])


@pytest.mark.parametrize(
    ("modes", "hint"),
    [
        ("{pay: lve}", "did you mean `live`?"),
        ("{'re*': live}", "their modes are: mock"),
        ("{refund: '7'}", "their modes are: mock"),
    ],
)
def test_a_mode_that_no_tool_has_is_told(modes, hint):
    problems, _kept = linked(f"scenario: s\nmodes: {modes}\nsteps: [{{call: pay}}]\n")
    assert [(problem.code, problem.line, problem.hint) for problem in problems] == [
        ("binding_missing", 2, hint)
    ]


def test_an_unbound_tool_has_no_modes():
    problems, _kept = linked(
        "scenario: s\nmodes: {bare: live}\nsteps: [{call: bare}]\n", "name: bare\ndescription: x\n"
    )
    assert problems[0].hint == "their modes are: none"


def test_a_mode_counts_the_mock_of_the_scenario():
    text = "scenario: s\nmodes: {bare: mock}\nmocks: {bare: {result: 1}}\nsteps: [{call: bare}]\n"
    assert linked(text, "name: bare\ndescription: x\n") == ([], ["s"])


def test_the_mock_of_a_scenario_is_checked_like_that_of_a_tool():
    text = """scenario: s
mocks:
  pay:
    rules:
      - reply: {result: "{{ args.amuont }}"}
      - reply: {result: "{{ nobody }}"}
  refund:
    result_file: absent.json
steps: [{call: pay}]
"""
    tools = TOOLS.replace(
        "description: Pay.", "input_schema: {properties: {amount: {}}, additionalProperties: false}"
    )
    assert codes(text, tools) == [
        ("unknown_argument", "/mocks/pay/rules/0/reply/result", 5),
        ("unreachable_rule", "/mocks/pay/rules/1", 6),
        ("unknown_name", "/mocks/pay/rules/1/reply/result", 6),
        ("file_unreadable", "/mocks/refund/result_file", 8),
    ]


def test_the_mock_of_a_scenario_must_fit_the_output_schema():
    tools = "name: pay\noutput_schema: {type: integer}\nmock: {result: 1}\n"
    text = "scenario: s\nmocks:\n  pay: {result: much}\nsteps: [{call: pay}]\n"
    assert codes(text, tools) == [("result_breaks_schema", "/mocks/pay/result", 3)]


REFUSED = TOOLS + "---\nname: broken\ndescription: x\ntags: 3\n"


def test_a_tool_that_was_refused_is_named_once_and_the_rest_is_told_too():
    text = """scenario: s
modes: {"bro*": mock}
mocks: {broken: {result: 1}}
steps:
  - call: broken
  - call: pya
  - call: broken
verify:
  calls: [{tool: "brok*"}]
  never: [{tool: broken}]
  order: {any: [broken]}
"""
    problems, kept = linked(text, REFUSED)
    assert [(problem.code, problem.pointer, problem.line) for problem in problems] == [
        ("refused_tool", "/steps/0/call", 5),
        ("unknown_tool", "/steps/1/call", 6),
    ]
    assert problems[0].message == "the tool `broken` was rejected: wrong_type in tools.yaml:14"
    assert problems[0].hint == "fix its descriptor first"
    assert kept == []


@pytest.mark.parametrize(
    ("part", "pointer"),
    [
        ("mocks: {broken: {result: 1}}", "/mocks/broken"),
        ("verify: {never: [{tool: broken}]}", "/verify/calls/0/tool"),
        ("verify: {order: {any: [broken]}}", "/verify/order/any/0"),
    ],
)
def test_a_refused_tool_is_told_wherever_it_is_named(part, pointer):
    ((code, place, line),) = codes(f"scenario: s\nsteps: [{{call: pay}}]\n{part}\n", REFUSED)
    assert (code, place.replace("never", "calls"), line) == ("refused_tool", pointer, 3)


def test_a_second_tool_of_the_name_that_is_good_is_enough():
    assert linked("scenario: s\nsteps: [{call: pay}]\n", TOOLS + "---\nname: pay\ntags: 3\nmock: {}\n") == (
        [],
        ["s"],
    )


def test_a_scenario_from_memory_is_placed():
    found = parse("x", {"scenario": "s", "steps": [{"call": "nobody"}]}, KINDS)
    runtime = loaded_runtime(found, executors=KINDS)
    assert [(problem.source, problem.line, problem.column) for problem in runtime.problems] == [("x", 1, 1)]


def test_a_tool_that_nobody_knows_may_stand_in_a_file_that_could_not_be_read(folder):
    root = folder({"t.tool.yaml": "name: gen\nmock: {\n", "s.yaml": "scenario: s\nsteps: [{call: gen}]\n"})
    with Runtime.open(root, index=False) as runtime:
        (unknown,) = [problem for problem in runtime.problems if problem.code == "unknown_tool"]
    assert f"{root / 't.tool.yaml'}:" in unknown.hint
    assert unknown.hint.endswith("could not be read and may contain it")


def test_a_pack_that_is_refused_is_named_by_what_needs_it(folder):
    root = folder(
        {
            "a/pack.yaml": "name: a\nversion: 1.0.0\nrequires: {packs: {b: '>=1'}}\n",
            "a/s.yaml": "scenario: s\nsteps: [{call: x}]\n",
            "b/pack.yaml": "name: b\nversion: 1.0.0\nbad: 1\n",
            "b/x.yaml": "name: x\nmock: {result: 1}\n",
        }
    )
    with Runtime.open(root, index=False) as runtime:
        found = {problem.code: problem for problem in runtime.problems}
    assert sorted(found) == ["refused_pack", "refused_tool", "unknown_key"]
    assert found["refused_tool"].hint == "fix the file of its pack first"
    assert f"{root / 'b' / 'pack.yaml'}:3" in found["refused_pack"].message
