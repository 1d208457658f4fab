"""Sixteen published tool definitions, and the arguments of 768 recorded calls of them."""

from __future__ import annotations

import json

import pytest

from toolcrib.core.model import Outcome
from toolcrib.engine.runtime import Runtime
from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.sources import load
from toolcrib.schema.validation import Validator

KINDS = Executors({"mock": MockExecutor})


@pytest.fixture
def definitions(shared_data):
    """The published definitions."""
    return json.loads((shared_data / "tau-retail" / "tools.json").read_text(encoding="utf-8"))


@pytest.fixture
def tools(shared_data):
    """The same, as we read them."""
    found = load([shared_data / "tau-retail" / "tools.json"], KINDS)
    assert [str(problem) for problem in found.problems] == []
    return {tool.name: tool for tool in found.tools}


@pytest.fixture
def calls(shared_data):
    """Every recorded call: tool and arguments."""
    lines = (shared_data / "tau-retail" / "tasks-train.jsonl").read_text(encoding="utf-8").splitlines()
    return [(call["tool"], call["arguments"]) for line in lines for call in json.loads(line)["calls"]]


def test_all_sixteen_definitions_are_read(definitions, tools):
    assert list(tools) == [definition["name"] for definition in definitions]
    assert len(tools) == 16
    for definition in definitions:
        tool = tools[definition["name"]]
        assert tool.description == definition["description"]
        for key, value in definition["parameters"].items():
            assert tool.input_schema[key] == value


def test_each_definition_stands_at_its_line(shared_data, tools):
    lines = (shared_data / "tau-retail" / "tools.json").read_text(encoding="utf-8").splitlines()
    for tool in tools.values():
        line, _column = tool.origin.locate("/name")
        assert json.dumps(tool.name) in lines[line - 1]


def test_the_arguments_of_every_recorded_call_are_valid(calls, tools):
    assert len(calls) == 768
    judges = {name: Validator(tool.input_schema) for name, tool in tools.items()}
    wrong = [(name, arguments) for name, arguments in calls if judges[name].faults(arguments)]
    assert wrong == []
    assert len({name for name, _arguments in calls}) == 6


def test_a_recorded_call_without_an_argument_is_refused(calls, tools):
    for name in {name for name, _arguments in calls}:
        required = tools[name].input_schema.get("required", [])
        arguments = dict(next(arguments for tool, arguments in calls if tool == name))
        for key in required:
            short = {other: value for other, value in arguments.items() if other != key}
            assert Validator(tools[name].input_schema).faults(short), (name, key)


def test_every_recorded_call_passes_all_layers_once_there_is_a_mock(calls, shared_data):
    names = sorted({name for name, _arguments in calls})
    with Runtime.open(shared_data / "tau-retail" / "tools.json", executors=KINDS) as runtime:
        assert {runtime.call_sync(name, {}).outcome for name in runtime.registry} == {Outcome.UNAVAILABLE}
        unbound = runtime.registry
    mocked = [unbound[name] for name in names]
    registry = unbound.with_tools(
        type(tool)(
            **{field: getattr(tool, field) for field in ("name", "description", "input_schema")},
            mode="mock",
            bindings={"mock": {"result": "{{ args }}"}},
        )
        for tool in mocked
    )
    with Runtime(registry, executors=KINDS) as runtime:
        for name, arguments in calls:
            result = runtime.call_sync(name, arguments)
            assert (result.outcome, result.value) == (Outcome.OK, arguments)
            assert "repairs" not in result.meta
