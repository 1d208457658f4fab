"""Functions in the loose dialects of benchmarks are repaired, and every repair is reported."""

from __future__ import annotations

import json

import pytest

from toolcrib import Executors
from toolcrib.formats.descriptor_files import descriptor_files
from toolcrib.formats.imports.mocks import with_mock
from toolcrib.formats.loose_functions import tools_of_functions

KINDS = Executors.installed()


def repaired(parameters):
    """The repaired schema, and the pointers of the reports."""
    imported = tools_of_functions([{"name": "f", "parameters": parameters}])
    (tool,) = imported.tools
    made = descriptor_files(
        imported._replace(tools=[tool._replace(descriptor=with_mock(tool.descriptor))]), KINDS
    )
    assert made.refused == ()
    assert all(remark.pointer.startswith("/0") for remark in imported.remarks)
    return tool.descriptor["input_schema"], [
        remark.pointer.removeprefix("/0/parameters") for remark in imported.remarks
    ]


def of(properties, **more):
    return {"type": "object", "properties": properties, **more}


CASES = {
    "Python types": (
        {
            "type": "dict",
            "properties": {
                "a": {"type": "float"},
                "b": {"type": "tuple", "items": {"type": "int"}},
                "c": {"type": "any"},
            },
        },
        of({"a": {"type": "number"}, "b": {"type": "array", "items": {"type": "integer"}}, "c": {}}),
        [
            "/type",
            "/properties/a/type",
            "/properties/b/type",
            "/properties/b/items/type",
            "/properties/c/type",
        ],
    ),
    "Java types": (
        {
            "type": "dict",
            "properties": {
                "m": {"type": "HashMap"},
                "l": {"type": "ArrayList"},
                "n": {"type": "long"},
                "s": {"type": "java.lang.String"},
            },
        },
        of(
            {
                "m": {"type": "object"},
                "l": {"type": "array"},
                "n": {"type": "integer"},
                "s": {"type": "string"},
            }
        ),
        ["/type", "/properties/m/type", "/properties/l/type", "/properties/n/type", "/properties/s/type"],
    ),
    "JavaScript types": (
        {
            "type": "Object",
            "properties": {"f": {"type": "function"}, "b": {"type": "Boolean"}, "d": {"type": "Date"}},
        },
        of({"f": {}, "b": {"type": "boolean"}, "d": {"type": "string"}}),
        ["/type", "/properties/f/type", "/properties/b/type", "/properties/d/type"],
    ),
    "generic types": (
        {
            "type": "object",
            "properties": {
                "a": {"type": "List[int]"},
                "b": {"type": "Optional[str]"},
                "c": {"type": "HashMap<String, Integer>"},
                "d": {"type": "String[]"},
                "e": {"type": "Union[int, List[str]]"},
                "f": {"type": "int | None"},
            },
        },
        of(
            {
                "a": {"type": "array", "items": {"type": "integer"}},
                "b": {"type": ["string", "null"]},
                "c": {"type": "object", "additionalProperties": {"type": "integer"}},
                "d": {"type": "array", "items": {"type": "string"}},
                "e": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "string"}}]},
                "f": {"type": ["integer", "null"]},
            }
        ),
        [f"/properties/{name}/type" for name in "abcdef"],
    ),
    "required in a property": (
        {
            "type": "object",
            "properties": {
                "a": {"type": "string", "required": True},
                "b": {"type": "string", "required": False},
            },
        },
        of({"a": {"type": "string"}, "b": {"type": "string"}}, required=["a"]),
        ["/properties/a/required", "/properties/b/required"],
    ),
    "required among the properties": (
        {"type": "object", "properties": {"a": {"type": "string"}, "required": ["a"]}},
        of({"a": {"type": "string"}}, required=["a"]),
        ["/properties/required"],
    ),
    "a property that is named required": (
        {"type": "object", "properties": {"required": {"type": "boolean"}}},
        of({"required": {"type": "boolean"}}),
        [],
    ),
    "no properties": (
        {"city": {"type": "string"}, "days": {"type": "int"}},
        of({"city": {"type": "string"}, "days": {"type": "integer"}}),
        ["", "/properties/days/type"],
    ),
    "no properties below an object": (
        {
            "type": "object",
            "properties": {"where": {"type": "dict", "city": {"type": "string"}, "description": "place"}},
        },
        of({"where": {"type": "object", "description": "place", "properties": {"city": {"type": "string"}}}}),
        ["/properties/where", "/properties/where/type"],
    ),
    "a list of parameters": (
        [{"name": "a", "type": "str", "required": True}, "b", {"type": "int"}],
        of({"a": {"type": "string"}, "b": {}}, required=["a"]),
        ["", "/0/type", "/2"],
    ),
    "names that are required and unknown": (
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b"]},
        of({"a": {"type": "string"}}, required=["a"]),
        ["/required"],
    ),
    "texts in place of schemas": (
        {"type": "object", "properties": {"a": "int", "b": "the city"}},
        of({"a": {"type": "integer"}, "b": {"description": "the city"}}),
        ["/properties/a", "/properties/b"],
    ),
    "defaults": (
        {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "default": "10"},
                "b": {"type": "boolean", "default": "False"},
                "c": {"type": "string", "default": None},
                "d": {"type": "string", "default": "x"},
                "e": {"type": "float", "default": "1.5"},
            },
        },
        of(
            {
                "a": {"type": "integer", "default": 10},
                "b": {"type": "boolean", "default": False},
                "c": {"type": "string"},
                "d": {"type": "string", "default": "x"},
                "e": {"type": "number", "default": 1.5},
            }
        ),
        [
            "/properties/a/default",
            "/properties/b/default",
            "/properties/c/default",
            "/properties/e/type",
            "/properties/e/default",
        ],
    ),
    "numbers, patterns and lists of values": (
        {
            "type": "object",
            "properties": {
                "a": {"type": "integer", "minimum": "1", "maximum": "many"},
                "b": {"type": "string", "pattern": "["},
                "c": {"type": "string", "enum": "x, y"},
                "d": {"type": "array", "items": [{"type": "string"}]},
                "e": {"type": "array", "minItems": "2"},
                "f": {"type": ["str", "int"]},
                "g": {"type": "string", "nullable": True},
                "h": {"type": "Foo"},
            },
        },
        of(
            {
                "a": {"type": "integer", "minimum": 1},
                "b": {"type": "string"},
                "c": {"type": "string"},
                "d": {"type": "array", "prefixItems": [{"type": "string"}]},
                "e": {"type": "array", "minItems": 2},
                "f": {"type": ["string", "integer"]},
                "g": {"type": ["string", "null"]},
                "h": {},
            }
        ),
        [
            *(
                "/properties/a/minimum",
                "/properties/a/maximum",
                "/properties/b/pattern",
                "/properties/c/enum",
            ),
            *(
                "/properties/d/items",
                "/properties/e/minItems",
                "/properties/f/type",
                "/properties/g/nullable",
            ),
            "/properties/h/type",
        ],
    ),
    "nothing": (None, of({}), []),
    "a good schema": (
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/x"}},
            "$defs": {"x": {"type": "string"}},
            "required": ["a"],
        },
        {
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/x"}},
            "$defs": {"x": {"type": "string"}},
            "required": ["a"],
        },
        [],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_repairs(case):
    parameters, expected, pointers = CASES[case]
    schema, told = repaired(parameters)
    assert schema == expected
    assert sorted(told) == sorted(pointers)
    # A repaired schema needs no repair.
    assert repaired(schema) == (schema, [])


def test_entries_of_a_benchmark_hold_functions():
    function = {"name": "math.add", "description": "Adds.", "parameters": {"type": "dict", "properties": {}}}
    entries = [
        {"id": "simple_0", "question": [[{"role": "user"}]], "function": [function]},
        {"id": "simple_1", "question": [], "function": [function, {**function, "description": "Another."}]},
    ]
    imported = tools_of_functions(entries)
    assert [(tool.key, tool.descriptor["name"]) for tool in imported.tools] == [
        ("math.add", "math.add"),
        ("math.add#2", "math.add_2"),
    ]
    assert imported.remarks[0].pointer == "/0/function/0/parameters/type"


def test_results_of_functions_become_the_output_schema():
    (tool,) = tools_of_functions(
        [
            {
                "name": "f",
                "parameters": {},
                "response": {"type": "dict", "properties": {"a": {"type": "float"}}},
            }
        ]
    ).tools
    assert tool.descriptor["output_schema"] == of({"a": {"type": "number"}})


def test_what_is_no_function_is_refused_and_hides_no_other():
    imported = tools_of_functions([{"name": "f", "parameters": {}}, 5, {"parameters": {}}])
    assert [tool.key for tool in imported.tools] == ["f"]
    assert [(each.reason, each.pointer) for each in imported.refused] == [
        ("not_a_tool", "/1"),
        ("no_name", "/2"),
    ]


@pytest.mark.parametrize(
    "value",
    [
        5,
        "text",
        [1],
        {"type": 5},
        {"properties": 5},
        {"required": 5, "properties": {"a": 1}},
        {"type": {"a": {}}},
        {"enum": {}},
    ],
)
def test_nothing_ends_with_an_exception(value):
    assert json.dumps(repaired(value)[0])
