"""The fields of a tool in a running program: each one has the effect that docs/reference/tool-fields.md names."""

from __future__ import annotations

import json

import pytest

from toolcrib import Outcome, Runtime


def runtime_of(folder, **keys):
    tool = {"name": "tool", "mock": {"result": {"args": "{{ args }}"}}, **keys}
    (folder / "tool.json").write_text(json.dumps(tool), encoding="utf-8")
    runtime = Runtime.open(folder / "tool.json")
    assert runtime.problems == ()
    return runtime


@pytest.mark.parametrize(
    ("parameter", "valid", "invalid", "keyword"),
    [
        ({"type": "integer"}, 1, "many", "type"),
        ({"allowed_values": ["a", "b"]}, "a", "c", "enum"),
        ({"type": "number", "min_value": 2}, 2, 1, "minimum"),
        ({"type": "number", "max_value": 2}, 2, 3, "maximum"),
        ({"type": "string", "min_length": 2}, "ab", "a", "minLength"),
        ({"type": "string", "max_length": 2}, "ab", "abc", "maxLength"),
        ({"type": "array", "min_length": 2}, [1, 2], [1], "minItems"),
        ({"type": "array", "max_length": 2}, [1, 2], [1, 2, 3], "maxItems"),
        ({"type": "string", "pattern": "^a+$"}, "aa", "b", "pattern"),
        ({"type": "any", "schema": {"multipleOf": 2}}, 4, 3, "multipleOf"),
        ({"type": "list", "item_type": "str"}, ["a"], [{}], "type"),
        ({"required": True, "type": "string"}, "a", None, "required"),
    ],
)
def test_a_field_of_a_parameter_is_checked(tmp_path, parameter, valid, invalid, keyword):
    runtime = runtime_of(tmp_path, parameters=[{"name": "p", **parameter}])
    assert runtime.call_sync("tool", {"p": valid}).value == {"args": {"p": valid}}
    refused = runtime.call_sync("tool", {} if keyword == "required" else {"p": invalid})
    assert refused.outcome is Outcome.INVALID_ARGUMENTS
    assert refused.error.details["violations"][0]["keyword"] == keyword


def test_the_default_of_a_parameter_is_filled_in_and_an_unknown_argument_is_refused(tmp_path):
    runtime = runtime_of(tmp_path, parameters=[{"name": "p", "type": "integer", "default": 3}])
    assert runtime.call_sync("tool", {}).value == {"args": {"p": 3}}
    refused = runtime.call_sync("tool", {"q": 1})
    assert refused.error.details["violations"][0]["keyword"] == "additionalProperties"


def test_models_read_the_name_the_description_and_the_examples_of_a_parameter(tmp_path):
    parameter = {"name": "p", "type": "string", "description": "Words.", "examples": ["a"]}
    schema = runtime_of(tmp_path, parameters=[parameter]).registry["tool"].input_schema
    assert schema["properties"] == {"p": {"type": "string", "description": "Words.", "examples": ["a"]}}


def test_the_output_schema_checks_every_result(tmp_path):
    output = {"type": "object", "properties": {"args": {"type": "object", "maxProperties": 1}}}
    runtime = runtime_of(tmp_path, output_schema=output, input_schema={"type": "object"})
    assert runtime.call_sync("tool", {"a": 1}).outcome is Outcome.OK
    refused = runtime.call_sync("tool", {"a": 1, "b": 2})
    assert (refused.outcome, refused.raw_value) == (Outcome.INVALID_RESULT, {"args": {"a": 1, "b": 2}})
