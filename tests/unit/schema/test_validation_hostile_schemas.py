"""Schemas and values that mean harm: refused where they are read, or answered soon and without a word too much."""

from __future__ import annotations

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from in_memory import mocked, runtime_of
from sampling import sample
from toolcrib.core.errors import DocumentError
from toolcrib.schema.coercion import coerce
from toolcrib.schema.validation import (
    Validator,
    check_schema,
    compile_defaults,
    json_violation,
    report,
    validate,
)
from toolcrib.schema.validation.schema_check import DIALECTS
from toolcrib.security.redaction import redact

TREE = {"properties": {"next": {"$ref": "#"}, "n": {"type": "integer"}}}


def chain(length):
    value = {"n": 1}
    for _ in range(length - 1):
        value = {"next": value}
    return value


REFUSED = {
    "D25": ({"type": "strng"}, "invalid_schema", "/type"),
    "D26": ({"pattern": "("}, "bad_pattern", "/pattern"),
    "D28": ({"$ref": "http://127.0.0.1:1/x.json"}, "remote_ref", "/$ref"),
    "D29": ({"$ref": "file:///etc/passwd"}, "remote_ref", "/$ref"),
    "D30": ({"$ref": "#"}, "endless_ref", "/$ref"),
    "D31": ({"$ref": "#/$defs/x"}, "dangling_ref", "/$ref"),
}


@pytest.mark.parametrize(("schema", "code", "pointer"), REFUSED.values(), ids=REFUSED)
def test_a_hostile_schema_is_refused_at_its_place(schema, code, pointer):
    assert [(problem.code, problem.pointer) for problem in check_schema(schema)] == [(code, pointer)]
    assert [problem.pointer for problem in check_schema(schema, "/input_schema")] == [
        "/input_schema" + pointer
    ]


TWENTY = {"properties": {f"p{number}": {"type": "integer"} for number in range(100)}}

TOLD = {
    "D27": ({"pattern": "^(a+)+$"}, "a" * 30 + "!", 1, "pattern"),
    "D27 in names": ({"patternProperties": {"^(a|a)*$": False}}, {"a" * 30 + "!": 1}, 0, ""),
    "D27 with look-around": ({"pattern": "^(?:a|a(?=a))+$"}, "a" * 30 + "!", 1, "pattern"),
    "D27 with a back-reference": ({"pattern": "^(a*)*\\1b$"}, "a" * 30 + "!", 1, "pattern"),
    "D32": (TREE, chain(50), 0, ""),
    "D32 with a fault inside": (TREE, {"next": {"next": {"n": "x"}}}, 1, "type"),
    "D33": (TREE, chain(5000), 1, "depth"),
    "D34": (
        {"additionalProperties": False, "properties": {"a": {}}},
        {"b": "CANARY"},
        1,
        "additionalProperties",
    ),
    "D35": ({"required": ["city"]}, {"password": "CANARY"}, 1, "required"),
    "D36": ({"type": "integer"}, True, 1, "type"),
    "D37": ({"type": "integer"}, 1.0, 0, ""),
    "D38": (TWENTY, dict.fromkeys(TWENTY["properties"], "x"), 20, "type"),
}


@pytest.mark.parametrize(("schema", "value", "number", "keyword"), TOLD.values(), ids=TOLD)
def test_a_hostile_value_is_judged_and_told_in_few_words(schema, value, number, keyword):
    assert check_schema(schema) == []
    faults = validate(schema, value)
    assert Validator(schema).is_valid(value) == (number == 0)
    assert [fault.keyword for fault in faults] == [keyword] * number
    assert "CANARY" not in repr(faults)
    assert len(report(faults).encode()) <= 4096


def test_d34_the_stray_property_alone_is_named():
    (fault,) = validate(*TOLD["D34"][:2])
    assert (fault.pointer, fault.got) == ("/b", "`b`")


@pytest.mark.parametrize("depth", [5000, 100_000])
def test_d33_a_value_that_nests_too_deeply_is_a_fault_at_every_door(depth):
    value = chain(depth)
    validator = Validator(TREE)
    assert json_violation(value, depth=64).keyword == "depth"
    assert not validator.is_valid(value)
    assert coerce(TREE, validator, value, "lenient") == (value, [])


def test_d39_a_result_that_does_not_fit_is_not_passed_on():
    output = "{type: object, required: [city]}"
    with runtime_of(mocked("result: {town: '{{ args.town }}'}", inputs="{}", output=output)) as tools:
        result = tools.call_sync("tool", {"town": "Oslo"})
    assert (result.outcome, result.value, result.raw_value) == ("invalid_result", None, {"town": "Oslo"})


def test_d40_without_an_input_schema_no_arguments_are_allowed():
    with runtime_of("name: tool\nmock: {result: 1}\n") as tools:
        assert tools.call_sync("tool", {}).outcome == "ok"
        result = tools.call_sync("tool", {"city": "Oslo"})
    assert result.outcome == "invalid_arguments"
    assert "/city: expected no property of this name" in result.message


class Canary(BaseHTTPRequestHandler):
    """Answers everything with a schema and remembers that it was asked."""

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"type": "string"}')

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def canary() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Canary) as server:
        server.requests = []
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def leading_out(address):
    """Schemas that lead to an address, by what leads there."""
    return {
        "reference": {"$ref": f"{address}/a.json"},
        "reference below": {"properties": {"a": {"items": {"$ref": f"{address}/a.json#/$defs/b"}}}},
        "dynamic reference": {"$dynamicRef": f"{address}/a.json#b"},
        "recursive reference": {"$schema": DIALECTS[1], "$recursiveRef": f"{address}/a.json"},
        "relative to an id": {"$id": f"{address}/root.json", "properties": {"a": {"$ref": "a.json"}}},
        "relative to an id of draft 4": {
            "$schema": DIALECTS[4],
            "id": f"{address}/",
            "not": {"$ref": "a.json"},
        },
        "dialect": {"$schema": f"{address}/schema"},
        "dialect below": {"$defs": {"a": {"$id": "a", "$schema": f"{address}/schema"}}},
        "default": {"properties": {"a": {"$ref": f"{address}/a.json", "default": 1}}},
        "where only a reference looks": {"$ref": "#/x", "x": {"$ref": f"{address}/a.json"}},
    }


@pytest.mark.parametrize("name", leading_out(""))
def test_d28_nothing_is_fetched_by_the_check_or_by_anything_else(name, canary):
    schema = leading_out(f"http://127.0.0.1:{canary.server_port}")[name]
    assert {problem.code for problem in check_schema(schema)} <= {"remote_ref", "unknown_dialect"}
    assert check_schema(schema)
    compile_defaults(schema)
    redact({"a": ["x"]}, schema)
    try:
        validator = Validator(schema)
    except DocumentError:
        pass
    else:
        validator.faults({"a": ["x"]})
        coerce(schema, validator, {"a": ["x"]}, "lenient")
    assert canary.requests == []


def test_d29_no_file_is_opened(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"type": "integer"}', encoding="utf-8")
    schema = {"$ref": path.as_uri()}
    assert [problem.code for problem in check_schema(schema)] == ["remote_ref"]
    with pytest.raises(DocumentError):
        Validator(schema)


WIDE = {
    "an entry of a list": ({"allOf": [{}] * 400 + [1]}, ["/allOf/400"]),
    "a property": ({"properties": {f"p{index}": {} for index in range(400)} | {"x": 1}}, ["/properties/x"]),
    "within a property": (
        {"properties": {f"p{index}": {} for index in range(400)} | {"x": {"minLength": -1}}},
        ["/properties/x/minLength"],
    ),
    "a name": ({"required": [*map(str, range(400)), 1]}, ["/required/400"]),
    "a name twice": ({"required": [*map(str, range(400)), "1"]}, ["/required"]),
    "beside": ({"properties": {f"p{index}": {} for index in range(400)}, "title": 1}, ["/title"]),
}


@pytest.mark.parametrize(("schema", "pointers"), WIDE.values(), ids=WIDE)
def test_what_is_wrong_in_a_large_schema_is_told_at_its_place(schema, pointers):
    assert [*dict.fromkeys(problem.pointer for problem in check_schema(schema))] == pointers


@pytest.mark.parametrize(
    "schema",
    sample(
        [
            {"allOf": [1] * 60_000},
            {"required": [1] * 60_000},
            {"properties": {f"p{index}": 1 for index in range(20_000)}},
            {"properties": {f"p{index}": {"type": "integer", "default": "x"} for index in range(4_000)}},
        ],
        one_in=4,
    ),
    ids=sample(["branches", "names", "properties", "defaults"], one_in=4),
)
def test_of_a_schema_that_is_wrong_everywhere_a_hundred_problems_are_told(schema):
    assert 0 < len(check_schema(schema)) <= 100
