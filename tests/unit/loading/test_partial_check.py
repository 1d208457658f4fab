"""One fault of a document hides no other one."""

from __future__ import annotations

import pytest

from toolcrib.engine.runtime import Runtime
from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.document_checks import DocumentChecker, valid_parts
from toolcrib.loading.sources import load, parse

KINDS = Executors({"mock": MockExecutor})


def told(text):
    return {(problem.code, problem.pointer) for problem in parse("x.tool.yaml", text, KINDS).problems}


def test_an_unknown_key_of_a_block_does_not_hide_a_wrong_expression_in_it():
    text = 'name: x\nmock: {rules: [{when: {if: "args.x > 3"}, reply: {result: 1}}], foo: 1}\n'
    found = told(text)
    assert ("unknown_key", "/mock/foo") in found
    assert any(pointer.startswith("/mock/rules/0/when/if") for _code, pointer in found)


def test_an_unknown_key_deep_in_a_list_does_not_hide_its_neighbour():
    text = "name: x\nmock: {sequence: [{result: 1, foo: 1}, {template: '{{ nobody }}'}]}\n"
    found = told(text)
    assert ("unknown_key", "/mock/sequence/0/foo") in found
    assert any(pointer.startswith("/mock/sequence/1/template") for _code, pointer in found)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ({"name": "x", "mock": {"result": 1}}, {"name": "x", "mock": {"result": 1}}),
        ({"name": "x", "mock": {"result": 1, "foo": 2}}, {"name": "x", "mock": {"result": 1}}),
        ({"name": "x", "mock": {"result": 1, "a/b~c": 2}}, {"name": "x", "mock": {"result": 1}}),
        ({"name": "x", "foo": 1}, {"name": "x"}),
        ({"name": "x", "mock": {"resul": 1}}, {"name": "x"}),
        ({"name": "x", "tags": 3, "mock": {"result": 1, "foo": 2}}, {"name": "x", "mock": {"result": 1}}),
        ({"name": 3, "title": "t"}, {"title": "t"}),
    ],
)
def test_an_unknown_key_is_left_out_alone_and_of_other_faults_the_whole_top_level_key(value, kept):
    shape = DocumentChecker("descriptor", KINDS)
    assert valid_parts(value, shape.problems(value), shape) == kept


def test_the_document_itself_stays_as_it_was():
    value = {"name": "x", "mock": {"sequence": [{"result": 1, "foo": 1}]}}
    shape = DocumentChecker("descriptor", KINDS)
    assert valid_parts(value, shape.problems(value), shape)["mock"] == {"sequence": [{"result": 1}]}
    assert value == {"name": "x", "mock": {"sequence": [{"result": 1, "foo": 1}]}}


TOOL = "name: pay\ndescription: Pays.\nmock: {result: 1}\n"

SCENARIO = """
scenario: s
foo: 1
modes: {pay: nowhere}
mocks: {nobody: {result: 1}, pay: {template: "{{ nothing }}"}}
steps: [{call: absent, bar: 1, expect: {result: {$gtt: 1}}}]
verify: {never: [{tool: vanished}]}
"""


def test_an_unknown_key_of_a_scenario_hides_no_unknown_tool_mode_or_mock(folder):
    root = folder({"pay.tool.yaml": TOOL, "s.scenario.yaml": SCENARIO})
    with Runtime.open(root, executors=KINDS) as runtime:
        found = {(problem.code, problem.pointer) for problem in runtime.problems}
        assert runtime.scenarios == ()
    assert found >= {
        ("unknown_key", "/foo"),
        ("unknown_key", "/steps/0/bar"),
        ("binding_missing", "/modes/pay"),
        ("unknown_tool", "/mocks/nobody"),
        ("unknown_tool", "/steps/0/call"),
        ("unknown_tool", "/verify/never/0/tool"),
    }
    pointers = {pointer for _code, pointer in found}
    assert any(pointer.startswith("/mocks/pay/template") for pointer in pointers)
    assert any(pointer.startswith("/steps/0/expect/result") for pointer in pointers)


def test_without_steps_what_stands_beside_them_is_checked_and_their_names_are_not_missed(folder):
    text = 'scenario: s\nmocks: {nobody: {result: 1}}\nsteps: 3\nverify: {never: [{tool: pay, args: {id: "{{ a }}"}}]}\n'
    root = folder({"pay.tool.yaml": TOOL, "s.scenario.yaml": text})
    with Runtime.open(root, executors=KINDS) as runtime:
        assert {problem.code for problem in runtime.problems} == {"wrong_type", "unknown_tool"}


def test_a_broken_scenario_that_is_data_is_not_checked_against_tools(folder):
    data = '{"scenario": "rain", "foo": 1, "steps": [{"call": "absent"}]}'
    root = folder({"x.yaml": "name: a\nmock: {result_file: y.json}\n", "y.json": data})
    found = load([root], KINDS)
    assert (found.problems, found.refused_scenarios) == ((), ())
