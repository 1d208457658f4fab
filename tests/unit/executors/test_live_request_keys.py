"""Every key of the request's part of a `live` block has a test that shows its effect, or says who reads it."""

from __future__ import annotations

import ast
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from drafting import URL
from toolcrib.core.subschemas import SchemaIndex
from toolcrib.executors.live.cross_checks import parameters_of_auth
from toolcrib.schema.validation import Validator

SHOWN_BY = {
    "accept": "_headers:test_accept_and_user_agent_may_be_written",
    "body": ":test_a_request_has_all_its_parts_in_order",
    "body.as": "_bodies:test_what_is_left_may_be_a_form",
    "body.content_type": "_bodies:test_a_text_is_sent_as_it_is",
    "body.file": "_bodies:test_a_file_is_the_body",
    "body.form": "_bodies:test_a_form",
    "body.from": "_bodies:test_a_body_takes_the_arguments_that_are_left",
    "body.json": "_bodies:test_json_keeps_types_and_structure",
    "body.multipart": "_multipart:test_fields_and_files_in_order",
    "body.select": "_bodies:test_select_reshapes_json_and_what_is_left",
    "body.text": "_bodies:test_a_text_is_sent_as_it_is",
    "cookies": "_headers:test_a_cookie_stays_one",
    "headers": "_headers:test_a_value_of_a_header",
    "hosts": "_bodies:test_hosts_name_that_of_the_url",
    "idempotency_key": "_headers:test_a_header_is_written_once",
    "method": "_bodies:test_other_methods_have",
    "path": "_styles:test_the_examples_of_the_specification_for_paths",
    "query": "_styles:test_one_parameter_stays_one",
    "redirects": None,
    "request_cookie.style": "_styles:test_a_cookie_with_a_style",
    "request_cookie.value": "_styles:test_a_cookie_with_a_style",
    "request_file.content_type": "_multipart:test_name_and_media_type_may_be_written",
    "request_file.file": "_multipart:test_an_argument_is_a_file",
    "request_file.name": "_multipart:test_name_and_media_type_may_be_written",
    "request_header.explode": "_styles:test_a_header_with_a_style",
    "request_header.style": "_styles:test_a_header_with_a_style",
    "request_header.value": "_styles:test_a_header_with_a_style",
    "request_part.content_type": "_multipart:test_a_field_with_its_media_type_is_one_part",
    "request_part.value": "_multipart:test_a_field_with_its_media_type_is_one_part",
    "request_segment.explode": "_styles:test_the_examples_of_the_specification_for_paths",
    "request_segment.style": "_styles:test_the_examples_of_the_specification_for_paths",
    "request_segment.value": "_styles:test_the_examples_of_the_specification_for_paths",
    "request_styled.explode": "_styles:test_the_examples_of_the_specification",
    "request_styled.style": "_styles:test_the_examples_of_the_specification",
    "request_styled.value": "_styles:test_the_examples_of_the_specification",
    "timeouts": None,
    "timeouts.connect": None,
    "timeouts.read": None,
    "url": "_urls:test_a_value_stays_one_segment",
}
"""Key of the schema -> module and test; None for those that an exchange reads, whose effects are seen on the wire."""


def section() -> dict[str, Any]:
    text = files("toolcrib.executors.live").joinpath("schema/request.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def keys() -> set[str]:
    schema = section()
    own = set(schema["properties"])
    inner = {
        f"{name}.{key}" for name, part in schema["properties"].items() for key in part.get("properties", ())
    }
    defined = {
        f"{name}.{key}" for name, part in schema["$defs"].items() for key in part.get("properties", ())
    }
    return own | inner | defined


def validator() -> Validator:
    schema = section()
    return Validator({"type": "object", "additionalProperties": False, "required": ["url"], **schema})


def test_every_key_of_the_schema_is_shown_by_a_test():
    assert set(SHOWN_BY) == keys()


@pytest.mark.parametrize("shown_by", sorted({place for place in SHOWN_BY.values() if place}))
def test_the_test_of_a_key_is_there(shown_by):
    module, _, name = shown_by.partition(":")
    tree = ast.parse(Path(__file__).with_name(f"test_live_request{module}.py").read_text(encoding="utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def described(schema: Any) -> list[tuple[str, Any]]:
    found = list(schema.get("properties", {}).items())
    return found + [pair for _name, inner in found for pair in described(inner)]


def test_every_key_is_described_with_an_example_that_fits():
    schema = section()
    for name, part in [
        *described(schema),
        *(pair for each in schema["$defs"].values() for pair in described(each)),
    ]:
        assert part["title"], name
        assert part["description"], name
        judge = Validator({**part, "$defs": schema["$defs"]})
        assert part["examples"], name
        assert all(judge.judge(example) for example in part["examples"]), name
        assert "default" not in part or judge.judge(part["default"]), name


def test_the_schema_compiles():
    assert SchemaIndex({"type": "object", **section()}) is not None
    assert validator().judge({"url": URL})


@pytest.mark.parametrize(
    "block",
    [
        {"method": "get"},
        {"method": "TRACE"},
        {"url": 1},
        {"url": ""},
        {"query": {"a": None}},
        {"query": {"a": [[1]]}},
        {"query": {"a": {"style": "form"}}},
        {"query": {"a": {"value": {}, "style": "form"}}},
        {"query": {"a": {"value": 1, "style": "matrix"}}},
        {"query": {"a": {"value": 1, "other": 1}}},
        {"headers": {"a": {}}},
        {"headers": {"a": [None]}},
        {"cookies": {"a": []}},
        {"body": {}},
        {"body": "text"},
        {"body": {"json": 1, "text": "a"}},
        {"body": {"text": 1}},
        {"body": {"text": "a", "select": "a"}},
        {"body": {"text": "a", "as": "json"}},
        {"body": {"json": 1, "content_type": "a/b"}},
        {"body": {"json": 1, "as": "json"}},
        {"body": {"form": {}, "select": "a"}},
        {"body": {"from": "args", "content_type": "a/b"}},
        {"body": {"from": "arguments"}},
        {"body": {"multipart": {}}},
        {"body": {"multipart": {"a": {"name": "x"}}}},
        {"body": {"multipart": {"a": []}}},
        {"timeouts": {"total": "5s"}},
        {"timeouts": {"connect": "5"}},
        {"redirects": 6},
        {"redirects": -1},
        {"hosts": []},
        {"hosts": ["https://example.com"]},
        {"accept": ""},
        {"unknown": 1},
    ],
)
def test_what_has_no_effect_is_refused(block):
    assert not validator().judge({"url": URL, **block})


@pytest.mark.parametrize(
    "block",
    [
        {
            "query": {
                "from": "args",
                "a": 1,
                "b": ["{{ args.x }}", 2],
                "c": {"value": [1], "style": "pipeDelimited"},
            }
        },
        {"headers": {"A": 1, "B": ["a"], "C": True}, "cookies": {"a": "b"}},
        {"body": {"json": None}},
        {"body": {"json": {"a": 1}, "select": "a"}},
        {"body": {"from": "args", "as": "form", "select": "a"}},
        {"body": {"text": "a", "content_type": "text/csv"}},
        {"body": {"multipart": {"a": 1, "b": {"file": "x", "name": "y", "content_type": "a/b"}}}},
        {"timeouts": {"connect": "500ms", "read": "1m"}, "redirects": 5, "hosts": ["*.example.com", "::1"]},
    ],
)
def test_what_has_an_effect_is_taken(block):
    assert validator().judge({"url": URL, "method": "POST", **block})


def test_parameters_of_authentication_are_known():
    schemes = [
        {"type": "http"},
        {"type": "apiKey", "in": "query", "name": "key"},
        {"type": "apiKey", "in": "header", "name": "X"},
    ]
    assert list(parameters_of_auth({"auth": schemes})) == ["key"]
    assert list(parameters_of_auth({"auth": schemes[1]})) == ["key"]
    assert list(parameters_of_auth({})) == []
