"""The `client` block: what is refused, and what is read of PromptKit's."""

from __future__ import annotations

import json

import pytest

from toolcrib import Executors
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.executors.client import ClientExecutor
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.sources import parse

KINDS = Executors({"client": ClientExecutor, "mock": MockExecutor})


def read(document):
    return parse("tool.json", json.dumps(document), KINDS)


def faults(block, **more):
    found = read({"name": "locate", "client": block, **more})
    return [(problem.code, problem.pointer) for problem in found.problems]


@pytest.mark.parametrize(
    "block",
    [
        {},
        {"consent": {}},
        {"consent": {"required": True, "message": "May I?", "decline_strategy": "retry"}},
        {"timeout": "24h", "categories": ["a", "b"]},
        {"consent": {"decline_strategy": "fallback"}, "fallback": None},
        {"requires": ["client.terminal"], "replaces": "Bash", "pre_approved": False},
    ],
)
def test_a_right_block_has_no_problem(block):
    assert faults(block) == []


@pytest.mark.parametrize(
    ("block", "code", "pointer"),
    [
        ([], "wrong_type", "/client"),
        ({"concent": {}}, "unknown_key", "/client/concent"),
        ({"consent": True}, "wrong_type", "/client/consent"),
        ({"consent": {"requierd": True}}, "unknown_key", "/client/consent/requierd"),
        ({"consent": {"required": "yes"}}, "wrong_type", "/client/consent/required"),
        ({"consent": {"message": ""}}, "wrong_value", "/client/consent/message"),
        ({"consent": {"decline_strategy": "ask"}}, "not_allowed", "/client/consent/decline_strategy"),
        ({"timeout": 30}, "wrong_type", "/client/timeout"),
        ({"timeout": "soon"}, "wrong_form", "/client/timeout"),
        ({"timeout": "0s"}, "out_of_range", "/client/timeout"),
        ({"timeout": "25h"}, "out_of_range", "/client/timeout"),
        ({"categories": "location"}, "wrong_type", "/client/categories"),
        ({"requires": ["client.fs.read_textfile"]}, "not_allowed", "/client/requires/0"),
        ({"requires": []}, "wrong_value", "/client/requires"),
        ({"requires": ["client.terminal", "client.terminal"]}, "wrong_value", "/client/requires"),
        ({"operation": "read_file"}, "missing_capability", "/client/operation"),
        (
            {"requires": ["client.terminal"], "operation": "read_file"},
            "missing_capability",
            "/client/operation",
        ),
        ({"requires": ["client.terminal"], "operation": "readfile"}, "not_allowed", "/client/operation"),
        ({"replaces": "Read"}, "needless_key", "/client/replaces"),
        ({"pre_approved": False}, "needless_key", "/client/pre_approved"),
        ({"requires": ["client.terminal"], "replaces": "locate"}, "not_allowed", "/client/replaces"),
        ({"fallback": 1}, "needless_key", "/client/fallback"),
        ({"consent": {"decline_strategy": "retry"}, "fallback": 1}, "needless_key", "/client/fallback"),
    ],
)
def test_a_wrong_block_is_refused_at_its_place(block, code, pointer):
    assert (code, pointer) in faults(block)


def test_an_operation_needs_its_arguments():
    block = {"requires": ["client.terminal"], "operation": "run_command"}
    assert faults(block) == [("missing_argument", "/client/operation")]
    schema = {"type": "object", "required": ["command"], "properties": {"command": {"type": "string"}}}
    assert faults(block, input_schema=schema) == []


def test_a_misspelt_capability_gets_the_right_name():
    (problem,) = read({"name": "locate", "client": {"requires": ["client.fs.read_textfile"]}}).problems
    assert "client.fs.read_text_file" in problem.hint


def test_a_fallback_that_does_not_fit_is_refused_at_its_place():
    block = {"consent": {"decline_strategy": "fallback"}, "fallback": {"lat": "north"}}
    schema = {"type": "object", "properties": {"lat": {"type": "number"}}}
    assert faults(block, output_schema=schema) == [("result_breaks_schema", "/client/fallback/lat")]
    assert faults(block, output_schema=schema, mode="mock", mock={"result": {}}) == [
        ("result_breaks_schema", "/client/fallback/lat")
    ]


def test_all_problems_of_a_block_are_told_at_once():
    found = faults({"timeout": "0s", "fallback": 1}, output_schema={"type": "object"})
    assert [code for code, _pointer in found] == ["out_of_range", "needless_key", "result_breaks_schema"]


MANIFEST = {
    "apiVersion": "promptkit.altairalabs.ai/v1alpha1",
    "kind": "Tool",
    "metadata": {"name": "locate"},
    "spec": {
        "description": "Where you are.",
        "mode": "client",
        "timeout_ms": 5000,
        "input_schema": {"type": "object"},
        "output_schema": {"type": "object", "required": ["lat"]},
        "mock_result": {"lat": 1},
    },
}


def manifest(**client):
    return read({**MANIFEST, "spec": {**MANIFEST["spec"], "client": client}})


async def test_a_manifest_is_a_tool_with_two_blocks():
    consent = {"required": True, "message": "Allow?", "decline_strategy": "fallback"}
    found = manifest(consent=consent, categories=["location"], timeout_ms=90000, validate_output=True)
    assert not found.problems
    (tool,) = found.tools
    assert (tool.mode, tool.timeout, tool.on_invalid_result) == ("client", 5.0, "error")
    assert tool.bindings["client"] == {"consent": consent, "categories": ["location"], "timeout": "90000ms"}
    async with loaded_runtime(found, executors=KINDS, modes={"*": "mock"}) as runtime:
        assert (await runtime.call("locate", {})).value == {"lat": 1}
    async with loaded_runtime(found, executors=KINDS) as runtime:
        assert (await runtime.call("locate", {})).error.details == {
            "consent": True,
            "message": "Allow?",
            "categories": ["location"],
            "timeout": "90s",
        }


async def test_a_manifest_whose_answers_need_not_fit_passes_them():
    async def client(_call):
        return {"north": True}

    async with loaded_runtime(manifest(validate_output=False), executors=KINDS, client=client) as runtime:
        assert (await runtime.call("locate", {})).value == {"north": True}


def test_a_manifest_without_the_block_or_without_its_time_has_the_tool_s_own():
    (tool,) = read(MANIFEST).tools
    assert (tool.bindings["client"], tool.timeout) == ({}, 5.0)
    (tool,) = manifest(timeout_ms=0).tools
    assert tool.bindings["client"] == {}


def test_a_flat_form_has_it_too():
    flat = {"name": "locate", "mode": "client", "client": {"timeout_ms": 1500}, "mock_result": {"lat": 1}}
    (tool,) = read(flat).tools
    assert (tool.bindings["client"], sorted(tool.bindings)) == ({"timeout": "1500ms"}, ["client", "mock"])


@pytest.mark.parametrize(
    ("client", "code", "pointer"),
    [
        ({"timeout_ms": "5s"}, "wrong_type", "/spec/client/timeout_ms"),
        ({"timeout_ms": True}, "wrong_type", "/spec/client/timeout_ms"),
        ({"timeout_ms": 90_000_000}, "out_of_range", "/spec/client/timeout_ms"),
        ({"timeout_ms": 5, "timeout": "5s"}, "duplicate_key", "/spec/client/timeout"),
        ({"validate_output": "no"}, "wrong_type", "/spec/client/validate_output"),
        ({"consent": {"requierd": True}}, "unknown_key", "/spec/client/consent/requierd"),
        ({"concent": {}}, "unknown_key", "/spec/client/concent"),
    ],
)
def test_what_is_wrong_with_a_manifest_is_told_where_it_is_written(client, code, pointer):
    assert [(problem.code, problem.pointer) for problem in manifest(**client).problems] == [(code, pointer)]


def test_a_manifest_whose_client_is_no_object_is_told():
    found = read({**MANIFEST, "spec": {**MANIFEST["spec"], "client": 3}})
    assert [(problem.code, problem.pointer) for problem in found.problems] == [("wrong_type", "/spec/client")]
