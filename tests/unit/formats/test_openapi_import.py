"""Operations of OpenAPI descriptions as tools: requests, schemas, answers, names, and what is wrong with some."""

from __future__ import annotations

import json
from typing import Any

import pytest

from toolcrib.executors import Executors
from toolcrib.formats.imported_tools import ImportedTools
from toolcrib.formats.openapi_import import OpenApiOptions, Refused, tools_of_openapi, version_of
from toolcrib.loading.descriptors import parse_descriptor
from toolcrib.loading.document_checks import DocumentChecker
from toolcrib.loading.documents.document import parse_documents

KINDS = Executors.installed()
TEXT = {"type": "string"}
OK = {"200": {"description": "OK"}}


def described(paths: Any, **more: Any) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shop", "version": "1"},
        "servers": [{"url": "https://api.example.com/v1"}],
        "paths": paths,
        **more,
    }


def swagger(paths: Any, **more: Any) -> dict[str, Any]:
    return {
        "swagger": "2.0",
        "info": {"title": "Shop", "version": "1"},
        "host": "api.example.com",
        "basePath": "/v1",
        "schemes": ["http", "https"],
        "paths": paths,
        **more,
    }


def imported(document: Any, **options: Any) -> ImportedTools:
    """The tools, of which each must be a descriptor that loads without an error."""
    found = tools_of_openapi(document, OpenApiOptions(**options))
    for tool in found.tools:
        (written,), problems = parse_documents("x.tool.json", json.dumps(tool.descriptor))
        _read, faults = parse_descriptor(written, KINDS, DocumentChecker("descriptor", KINDS))
        errors = [each for each in [*problems, *faults] if each.severity == "error"]
        assert not errors, (tool.key, errors)
    return found


def one(operation: Any, *, path: str = "/pets", method: str = "get", **more: Any) -> dict[str, Any]:
    (tool,) = imported(described({path: {method: {"responses": OK, **operation}}}, **more)).tools
    return dict(tool.descriptor)


def parameter(name: str, where: str, schema: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "in": where, "schema": TEXT if schema is None else schema, **more}


def told(found: ImportedTools, kind: str) -> list[str]:
    return [remark.message for remark in found.remarks if remark.kind == kind]


# Texts and names.


def test_an_operation_becomes_a_tool():
    operation = {
        "operationId": "pets/list-all",
        "summary": "List pets",
        "description": "Lists all pets of the shop.",
        "tags": ["pets"],
        "externalDocs": {"url": "https://example.com/docs"},
        "parameters": [parameter("limit", "query", {"type": "integer"}, description="How many.")],
        "responses": {
            "200": {"description": "OK", "content": {"application/json": {"schema": {"type": "array"}}}}
        },
        "deprecated": True,
    }
    (tool,) = imported(described({"/pets": {"get": operation}})).tools
    assert tool.key == "GET /pets"
    assert tool.descriptor == {
        "name": "pets_list_all",
        "title": "List pets",
        "description": "Lists all pets of the shop.",
        "help_url": "https://example.com/docs",
        "tags": ["pets"],
        "deprecated": True,
        "input_schema": {
            "type": "object",
            "properties": {"limit": {"description": "How many.", "type": "integer"}},
            "additionalProperties": False,
        },
        "output_schema": {"type": "array"},
        "on_invalid_result": "warn",
        "mode": "live",
        "live": {
            "method": "GET",
            "url": "https://api.example.com/v1/pets",
            "query": {"limit": "{{ args.limit }}"},
        },
    }


def test_names_are_short_safe_and_independent_of_the_order():
    paths = {
        "/a/{id}": {
            "get": {"operationId": "find", "responses": OK},
            "put": {"operationId": "Find", "responses": OK},
        },
        "/b": {"get": {"responses": OK}, "post": {"operationId": "x" * 80, "responses": OK}},
        "/1": {"get": {"operationId": "1st", "responses": OK}},
        "/a-b": {"get": {"responses": OK}},
        "/a_b": {"get": {"responses": OK}},
    }
    names = {tool.key: tool.descriptor["name"] for tool in imported(described(paths)).tools}
    assert names["GET /a/{id}"] == "get_a_by_id"
    assert names["PUT /a/{id}"] == "put_a_by_id"
    assert names["GET /b"] == "get_b"
    assert names["GET /1"] == "_1st"
    assert len(names["POST /b"]) == 64
    assert names["GET /a-b"].startswith("get_a_b_")
    assert names["GET /a-b"] != names["GET /a_b"]
    turned = {path: paths[path] for path in reversed(paths)}
    assert {tool.key: tool.descriptor["name"] for tool in imported(described(turned)).tools} == names


def test_operations_are_chosen_by_tag_path_id_key_and_name():
    paths = {
        "/pets": {
            "get": {"operationId": "list", "tags": ["pets"], "responses": OK},
            "post": {"operationId": "add", "tags": ["pets", "write"], "responses": OK},
        },
        "/shops": {"get": {"operationId": "shops", "responses": OK}},
    }
    document = described(paths)

    def keys(**options: Any) -> list[str]:
        return [tool.key for tool in tools_of_openapi(document, OpenApiOptions(**options)).tools]

    assert keys(only=["pets"]) == ["GET /pets", "POST /pets"]
    assert keys(only=["/shop*"]) == ["GET /shops"]
    assert keys(only=["add"]) == ["POST /pets"]
    assert keys(only=["GET *"], skipped=["shops"]) == ["GET /pets"]
    assert keys(skipped=["write"]) == ["GET /pets", "GET /shops"]
    assert [*tools_of_openapi(document, OpenApiOptions(only=["add"])).skipped] == ["GET /pets", "GET /shops"]


def test_extensions_that_others_use_for_tools():
    operation = {
        "x-speakeasy-mcp": {
            "name": "buy",
            "title": "Buy",
            "description": "Buys it.",
            "destructiveHint": False,
        },
        "x-openai-isConsequential": True,
        "x-other": 1,
    }
    found = imported(
        described(
            {"/a": {"post": {"responses": OK, **operation}}, "/b": {"get": {"x-mcp": {"disabled": True}}}}
        )
    )
    (tool,) = found.tools
    assert {
        key: tool.descriptor[key]
        for key in ("name", "title", "description", "annotations", "requires_confirmation")
    } == {
        "name": "buy",
        "title": "Buy",
        "description": "Buys it.",
        "annotations": {"destructive": False},
        "requires_confirmation": True,
    }
    assert [*found.skipped] == ["GET /b"]
    assert told(found, "lost") == ["`x-other` of 1 operation has no counterpart"]


# Parameters.


@pytest.mark.parametrize(
    ("said", "schema", "live"),
    [
        ({"in": "query"}, {"type": "array"}, {"query": {"p": "{{ args.p }}"}}),
        (
            {"in": "query", "explode": False},
            {"type": "array"},
            {"query": {"p": {"value": "{{ args.p }}", "explode": False}}},
        ),
        (
            {"in": "query", "style": "pipeDelimited"},
            {"type": "array"},
            {"query": {"p": {"value": "{{ args.p }}", "style": "pipeDelimited"}}},
        ),
        (
            {"in": "query", "style": "pipeDelimited", "explode": True},
            {"type": "array"},
            {"query": {"p": "{{ args.p }}"}},
        ),
        ({"in": "query"}, {"type": "object"}, {"query": {"p": {"value": "{{ args.p }}", "style": "form"}}}),
        (
            {"in": "query", "style": "deepObject"},
            {"type": "object"},
            {"query": {"p": {"value": "{{ args.p }}", "style": "deepObject"}}},
        ),
        (
            {"in": "query", "style": "deepObject"},
            {"type": "array"},
            {"query": {"p": {"value": "{{ args.p }}", "style": "deepObject"}}},
        ),
        ({"in": "header"}, {"type": "array"}, {"headers": {"p": "{{ args.p }}"}}),
        (
            {"in": "header", "explode": True},
            {"type": "object"},
            {"headers": {"p": {"value": "{{ args.p }}", "style": "simple", "explode": True}}},
        ),
        ({"in": "cookie"}, {"type": "string"}, {"cookies": {"p": "{{ args.p }}"}}),
        ({"in": "cookie"}, {"type": "array"}, {"cookies": {"p": {"value": "{{ args.p }}", "style": "form"}}}),
        (
            {"in": "querystring"},
            {"type": "object"},
            {"query": {"p": {"value": "{{ args.p }}", "style": "form"}}},
        ),
    ],
)
def test_styles_of_parameters(said, schema, live):
    tool = one({"parameters": [{"name": "p", "schema": schema, **said}]})
    assert {key: value for key, value in tool["live"].items() if key not in {"method", "url"}} == live


@pytest.mark.parametrize(
    ("said", "schema", "url", "path"),
    [
        ({}, TEXT, "{{ args.id }}", None),
        ({}, {"type": "array"}, "{{ args.id }}", None),
        ({"style": "label"}, TEXT, ".{{ args.id }}", None),
        ({"style": "matrix"}, TEXT, ";id={{ args.id }}", None),
        (
            {"style": "matrix", "explode": True},
            {"type": "array"},
            "{id}",
            {"style": "matrix", "explode": True},
        ),
        ({"explode": True}, {"type": "object"}, "{id}", {"style": "simple", "explode": True}),
        ({}, {"type": "object"}, "{id}", {"style": "simple"}),
    ],
)
def test_styles_of_paths(said, schema, url, path):
    tool = one(
        {"parameters": [{"name": "id", "in": "path", "required": True, "schema": schema, **said}]},
        path="/p/{id}/x",
    )
    assert tool["live"]["url"] == f"https://api.example.com/v1/p/{url}/x"
    assert tool["live"].get("path") == (None if path is None else {"id": {"value": "{{ args.id }}", **path}})


def test_content_of_a_parameter_is_json():
    tool = one(
        {
            "parameters": [
                {"name": "f", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}}
            ]
        }
    )
    assert tool["live"]["query"] == {"f": {"value": "{{ args.f }}", "style": "json"}}


def test_names_of_arguments():
    parameters = [
        parameter("page[size]", "query"),
        parameter("X-Request-ID", "header"),
        parameter("$top", "query"),
        parameter("id", "query"),
        parameter("id", "path", required=True),
        parameter("Accept", "header"),
    ]
    tool = one({"parameters": parameters}, path="/p/{id}")
    assert [*tool["input_schema"]["properties"]] == ["id", "page_size", "X_Request_ID", "top", "id_query"]
    assert tool["live"]["query"] == {
        "page[size]": "{{ args.page_size }}",
        "$top": "{{ args.top }}",
        "id": "{{ args.id_query }}",
    }
    assert tool["live"]["headers"] == {"X-Request-ID": "{{ args.X_Request_ID }}"}


def test_parameters_of_the_path_and_of_the_operation():
    item = {
        "parameters": [parameter("id", "path", required=True), parameter("q", "query", {"type": "integer"})],
        "get": {
            "parameters": [parameter("q", "query", {"type": "boolean"}), parameter("gone", "path")],
            "responses": OK,
        },
    }
    found = imported(described({"/p/{id}/{other}": item}))
    (tool,) = found.tools
    assert {
        name: schema["type"] for name, schema in tool.descriptor["input_schema"]["properties"].items()
    } == {
        "id": "string",
        "q": "boolean",
        "other": "string",
    }
    assert told(found, "repaired") == [
        "the path has no `{gone}`; the parameter was removed",
        "`{other}` of the path has no parameter; it is a text",
    ]


@pytest.mark.parametrize(
    ("collection", "style"),
    [
        (None, {"explode": False}),
        ("multi", None),
        ("ssv", {"style": "spaceDelimited"}),
        ("tsv", {"style": "tabDelimited"}),
    ],
)
def test_lists_of_swagger(collection, style):
    said = {"name": "ids", "in": "query", "type": "array", "items": TEXT}
    if collection:
        said["collectionFormat"] = collection
    (tool,) = imported(swagger({"/p": {"get": {"parameters": [said], "responses": OK}}})).tools
    expression = "{{ args.ids }}"
    assert tool.descriptor["live"]["query"] == {
        "ids": expression if style is None else {"value": expression, **style}
    }
    assert tool.descriptor["live"]["url"] == "https://api.example.com/v1/p"


# Bodies.


def body(media_type: str, schema: Any, *, required: bool = True, **more: Any) -> dict[str, Any]:
    return {"requestBody": {"required": required, "content": {media_type: {"schema": schema, **more}}}}


PET = {"type": "object", "required": ["name"], "properties": {"name": TEXT, "age": {"type": "integer"}}}


def test_the_properties_of_a_body_are_arguments():
    tool = one(body("application/json", PET), method="post")
    assert (tool["input_schema"], tool["live"]["body"]) == (PET, {"from": "args"})
    tool = one({**body("application/json", PET), "parameters": [parameter("name", "query")]}, method="post")
    assert tool["input_schema"] == {
        "type": "object",
        "properties": {"name_parameter": TEXT, **PET["properties"]},
        "required": ["name"],
        "additionalProperties": False,
    }
    assert tool["live"]["query"] == {"name": "{{ args.name_parameter }}"}


def test_a_body_that_is_no_plain_object_is_one_argument():
    for schema in ({"type": "array", "items": TEXT}, {"oneOf": [PET, {"type": "object"}]}):
        tool = one(body("application/json", schema), method="post")
        assert tool["input_schema"]["properties"] == {"body": schema}
        assert tool["live"]["body"] == {"json": "{{ args.body }}"}
    tool = one(body("application/json", PET, required=False), method="post")
    assert tool["input_schema"].get("required") is None
    assert tool["live"]["body"] == {"json": "{{ args.body }}"}


def test_other_types_of_json_are_named():
    tool = one(body("application/merge-patch+json", PET), method="patch")
    assert tool["live"]["headers"] == {"Content-Type": "application/merge-patch+json"}


def test_forms():
    schema = {
        "type": "object",
        "properties": {
            "a": TEXT,
            "b": {"type": "array", "items": TEXT},
            "c": PET,
            "d": PET,
            "e": {"type": "array", "items": PET},
        },
    }
    encoding = {"d": {"style": "deepObject", "explode": True}, "b": {"explode": False}}
    tool = one(body("application/x-www-form-urlencoded", schema, encoding=encoding), method="post")
    assert tool["live"]["body"]["form"] == {
        "a": "{{ args.a }}",
        "b": {"value": "{{ args.b }}", "explode": False},
        "c": {"value": "{{ args.c }}", "style": "json"},
        "d": {"value": "{{ args.d }}", "style": "deepObject"},
        "e": {"value": "{{ args.e }}", "style": "json"},
    }


def test_multipart():
    schema = {
        "type": "object",
        "required": ["photo"],
        "properties": {
            "photo": {"type": "string", "format": "binary", "description": "The photo"},
            "more": {"type": "array", "items": {"type": "string", "contentMediaType": "image/png"}},
            "meta": PET,
            "note": TEXT,
            "csv": TEXT,
        },
    }
    encoding = {
        "photo": {"contentType": "image/png"},
        "csv": {"contentType": "text/csv", "headers": {"X": {}}},
    }
    document = described(
        {"/p": {"post": {"responses": OK, **body("multipart/form-data", schema, encoding=encoding)}}}
    )
    found = imported(document)
    (tool,) = found.tools
    assert tool.descriptor["live"]["body"]["multipart"] == {
        "photo": {"file": "{{ args.photo }}", "content_type": "image/png"},
        "more": {"file": "{{ args.more }}"},
        "meta": {"value": "{{ args.meta }}", "content_type": "application/json"},
        "note": "{{ args.note }}",
        "csv": {"value": "{{ args.csv }}", "content_type": "text/csv"},
    }
    assert tool.descriptor["input_schema"]["properties"]["photo"] == {
        "type": "string",
        "description": "The photo (a `data:` URI)",
    }
    assert told(found, "lost") == ["headers of a part are not sent"]


def test_texts_and_bytes():
    tool = one(body("text/csv", TEXT), method="put")
    assert tool["live"]["body"] == {"text": "{{ args.body }}", "content_type": "text/csv"}
    tool = one(body("application/octet-stream", {"type": "string", "format": "binary"}), method="put")
    assert tool["live"]["body"] == {"file": "{{ args.body }}", "content_type": "application/octet-stream"}
    tool = one(body("image/*", {}), method="put")
    assert tool["live"]["body"] == {"file": "{{ args.body }}"}


def test_bodies_of_swagger():
    form = [
        {"name": "a", "in": "formData", "type": "string", "required": True},
        {"name": "f", "in": "formData", "type": "file"},
    ]
    paths = {
        "/form": {"post": {"parameters": form, "responses": OK}},
        "/plain": {"post": {"parameters": form[:1], "responses": OK}},
        "/json": {
            "post": {
                "parameters": [{"name": "pet", "in": "body", "required": True, "schema": PET}],
                "responses": OK,
            }
        },
    }
    tools = {tool.key: tool.descriptor for tool in imported(swagger(paths)).tools}
    assert tools["POST /form"]["live"]["body"] == {
        "multipart": {"a": "{{ args.a }}", "f": {"file": "{{ args.f }}"}}
    }
    assert tools["POST /form"]["input_schema"]["required"] == ["a"]
    assert tools["POST /plain"]["live"]["body"] == {"form": {"a": "{{ args.a }}"}}
    assert tools["POST /json"]["live"]["body"] == {"from": "args"}


# Schemas.


def converted(schema: Any, *, openapi: str = "3.0.3", **more: Any) -> Any:
    """A schema as that of a response."""
    responses = {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}}
    return one({"responses": responses}, openapi=openapi, **more).get("output_schema")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"oneOf": [{"type": "string"}], "nullable": True}, {"oneOf": [{"type": "string"}, {"type": "null"}]}),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, {"type": "integer", "exclusiveMinimum": 1}),
        ({"type": "integer", "maximum": 1, "exclusiveMaximum": False}, {"type": "integer", "maximum": 1}),
        ({"type": "string", "example": "a"}, {"type": "string", "examples": ["a"]}),
        ({"type": "integer", "example": "7"}, {"type": "integer", "examples": [7]}),
        ({"type": "integer", "example": "seven"}, {"type": "integer"}),
        ({"type": "string", "format": "byte"}, {"type": "string", "format": "byte", "contentEncoding": "base64"}),
        ({"type": "float"}, {"type": "number"}),
        ({"type": "any", "description": "x"}, {"description": "x"}),
        ({"type": "string", "pattern": "(["}, {"type": "string"}),
        ({"type": "string", "pattern": "/^a$/i"}, {"type": "string", "pattern": "^a$"}),
        ({"type": "string", "minLength": "2", "maxLength": -1}, {"type": "string", "minLength": 2}),
        ({"type": "string", "enum": [1, True]}, {"type": "string", "enum": ["1", "true"]}),
        ({"type": "string", "enum": []}, {"type": "string"}),
        ({"type": "string", "xml": {"name": "a"}, "x-any": 1}, {"type": "string"}),
        ({"type": "integer", "enum": [0, 1], "x-enum-varnames": ["off", "on"]}, {"type": "integer", "enum": [0, 1], "description": "Values: 0: off, 1: on."}),
        ({"type": "object", "discriminator": {"propertyName": "kind"}}, {"type": "object", "description": "`kind` selects the form."}),
        ({"properties": {"a": {"type": "string", "required": True}}}, {"properties": {"a": TEXT}, "required": ["a"]}),
        ({"type": "array", "items": [TEXT]}, {"type": "array", "prefixItems": [TEXT]}),
        ({"type": "string", "default": None}, {"type": "string"}),
        ({"type": "boolean", "default": "true"}, {"type": "boolean", "default": True}),
    ],
)  # fmt: skip
def test_schemas_of_openapi_3_0(schema, expected):
    assert converted(schema) == expected


def test_read_only_properties_are_no_arguments_and_write_only_ones_no_results():
    schema = {
        "type": "object",
        "required": ["id", "name", "secret"],
        "properties": {
            "id": {"type": "string", "readOnly": True},
            "name": TEXT,
            "secret": {"type": "string", "writeOnly": True},
        },
    }
    responses = {"200": {"description": "OK", "content": {"application/json": {"schema": schema}}}}
    tool = one({**body("application/json", schema), "responses": responses}, method="post")
    assert [*tool["input_schema"]["properties"]] == ["name", "secret"]
    assert tool["input_schema"]["required"] == ["name", "secret"]
    assert [*tool["output_schema"]["properties"]] == ["id", "name"]
    assert tool["output_schema"]["required"] == ["id", "name"]


def test_references_are_inlined_unless_they_are_long_and_repeated():
    long = {"type": "object", "properties": {f"member_{number}": TEXT for number in range(9)}}
    node = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/Node"}}}
    components = {"schemas": {"Long": long, "Short": TEXT, "Node": node}}

    def pair(name: str) -> dict[str, Any]:
        link = {"$ref": f"#/components/schemas/{name}"}
        return {"type": "object", "properties": {"a": link, "b": link}}

    assert converted(pair("Short"), components=components) == {
        "type": "object",
        "properties": {"a": TEXT, "b": TEXT},
    }
    repeated = {"$ref": "#/$defs/Long"}
    assert converted(pair("Long"), components=components) == {
        "type": "object",
        "properties": {"a": repeated, "b": repeated},
        "$defs": {"Long": long},
    }
    recursive = converted({"$ref": "#/components/schemas/Node"}, components=components)
    assert recursive == {
        "$ref": "#/$defs/Node",
        "$defs": {"Node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}}},
    }


def test_siblings_of_references():
    components = {"schemas": {"A": {"type": "string", "description": "old"}}}
    link = {"$ref": "#/components/schemas/A", "description": "new", "minLength": 2}
    assert converted(link, components=components) == {"description": "new", "type": "string"}
    assert converted(link, openapi="3.1.0", components=components) == {
        "type": "string",
        "description": "new",
        "minLength": 2,
    }
    wrapped = {"allOf": [{"$ref": "#/components/schemas/A"}], "nullable": True, "description": "new"}
    assert converted(wrapped, components=components) == {
        "description": "new",
        "anyOf": [{"description": "old", "type": "string"}, {"type": "null"}],
    }


def test_schemas_of_openapi_3_1_keep_their_keywords():
    schema = {
        "type": ["object", "null"],
        "patternProperties": {"^x": TEXT},
        "if": {"required": ["a"]},
        "then": {"required": ["b"]},
        "dependentRequired": {"a": ["b"]},
        "unevaluatedProperties": False,
        "$defs": {"Inner": {"$anchor": "inner", "type": "integer"}},
        "properties": {"a": {"$ref": "#inner"}, "b": {"const": 1}, "c": True},
    }
    expected = {
        **{key: value for key, value in schema.items() if key != "$defs"},
        "properties": {"a": {"type": "integer"}, "b": {"const": 1}, "c": True},
    }
    assert converted(schema, openapi="3.1.0", components={"schemas": {"S": schema}}) == expected


# Answers.


def test_results_errors_and_examples():
    operation = {
        "parameters": [parameter("id", "path", required=True, example="7")],
        "responses": {
            "200": {
                "description": "OK",
                "content": {"application/json": {"schema": PET, "example": {"name": "{{ Rex }}"}}},
            },
            "204": {"description": "None"},
            "404": {"description": "No such pet"},
            "422": {
                "description": "Not a pet.",
                "content": {
                    "application/json": {"schema": {"type": "object", "properties": {"detail": TEXT}}}
                },
            },
            "5XX": {"description": "Broken"},
        },
    }
    tool = one(operation, path="/p/{id}")
    assert tool["output_schema"] == {"anyOf": [PET, {"type": "null"}]}
    assert tool["live"]["errors"] == {
        "404": {"code": "not_found", "message": "No such pet"},
        "422": {"code": tool["live"]["errors"]["422"]["code"], "message": "Not a pet: {{ body.detail }}"},
        "5xx": {"message": "Broken"},
    }
    assert tool["examples"] == [{"args": {"id": "7"}, "result": {"name": "{{ Rex }}"}}]
    assert "Rex" in json.dumps(tool["mock"])


def test_examples_that_do_not_match_are_removed():
    content = {"application/json": {"schema": PET, "example": {"name": 1}}}
    operation = {
        **body("application/json", PET, example={"age": "x"}),
        "responses": {"200": {"description": "OK", "content": content}},
    }
    found = imported(described({"/p": {"post": operation}}))
    (tool,) = found.tools
    assert not {"examples", "mock"} & tool.descriptor.keys()
    assert told(found, "repaired") == [
        "the example of the response does not match its schema and was removed"
    ]


@pytest.mark.parametrize(
    ("content", "schema", "accept"),
    [
        ({"application/json": {"schema": TEXT}}, TEXT, None),
        ({"text/html": {}, "application/hal+json": {"schema": TEXT}}, TEXT, "application/hal+json"),
        ({"text/csv": {"schema": PET}}, TEXT, None),
        ({"application/json": {}}, None, None),
        ({}, None, None),
    ],
)
def test_media_types_of_results(content, schema, accept):
    tool = one({"responses": {"200": {"description": "OK", "content": content}}})
    assert (tool.get("output_schema"), tool["live"].get("accept")) == (schema, accept)


def test_what_has_no_counterpart_is_reported():
    operation = {
        "callbacks": {"done": {}},
        "responses": {"200": {"description": "OK", "links": {"next": {}}}},
    }
    found = imported(described({"/p": {"get": operation}}, webhooks={"new": {"post": {}}}))
    assert told(found, "lost") == [
        "links of a response to other operations",
        "callbacks: requests that the API sends",
        "webhooks: requests that the API sends",
    ]


# Servers and security.


@pytest.mark.parametrize(
    ("servers", "url"),
    [
        ([{"url": "https://a.example/v1/"}], "https://a.example/v1/pets"),
        ([{"url": "//a.example"}], "https://a.example/pets"),
        ([{"url": "a.example/v1"}], "https://a.example/v1/pets"),
        ([{"url": "https://{region}.example/{base}", "variables": {"region": {"default": "eu"}, "base": {}}}], "https://${SHOP_REGION:-eu}.example/${SHOP_BASE}/pets"),
        ([{"url": "/v2"}], "${SHOP_URL}/v2/pets"),
        ([], "${SHOP_URL}/pets"),
    ],
)  # fmt: skip
def test_servers(servers, url):
    assert one({}, servers=servers)["live"]["url"] == url
    (tool,) = tools_of_openapi(
        described({"/pets": {"get": {"responses": OK}}}, servers=servers),
        OpenApiOptions(server="https://x.example"),
    ).tools
    assert tool.descriptor["live"]["url"] == "https://x.example/pets"


def test_a_relative_server_belongs_to_the_url_of_the_description():
    document = described({"/pets": {"get": {"responses": OK}}}, servers=[{"url": "/v2"}])
    (tool,) = imported(document, source="https://a.example/docs/openapi.json").tools
    assert tool.descriptor["live"]["url"] == "https://a.example/v2/pets"


SCHEMES = {
    "key": {"type": "apiKey", "in": "query", "name": "api_key"},
    "basic": {"type": "http", "scheme": "basic"},
    "bearer": {"type": "http", "scheme": "Bearer"},
    "own": {"type": "http", "scheme": "hmac"},
    "app": {
        "type": "oauth2",
        "flows": {"clientCredentials": {"tokenUrl": "https://a.example/token", "scopes": {}}},
    },
    "person": {
        "type": "oauth2",
        "flows": {"implicit": {"authorizationUrl": "https://a.example", "scopes": {}}},
    },
    "tls": {"type": "mutualTLS"},
}


@pytest.mark.parametrize(
    ("security", "auth"),
    [
        ([{"key": []}], {"type": "apiKey", "in": "query", "name": "api_key", "value": "${SHOP_KEY}"}),
        ([{"basic": []}], {"type": "http", "scheme": "basic", "username": "${SHOP_BASIC_USERNAME}", "password": "${SHOP_BASIC_PASSWORD}"}),
        ([{"own": []}], {"type": "apiKey", "in": "header", "name": "Authorization", "value": "${SHOP_OWN}"}),
        ([{"person": []}], {"type": "http", "scheme": "bearer", "token": "${SHOP_PERSON_TOKEN}"}),
        (
            [{"app": ["read"]}],
            {
                "type": "oauth2",
                "flow": "client_credentials",
                "token_url": "https://a.example/token",
                "client_id": "${SHOP_APP_CLIENT_ID}",
                "client_secret": "${SHOP_APP_CLIENT_SECRET}",
                "scopes": ["read"],
            },
        ),
        ([{"tls": []}, {"bearer": []}], {"type": "http", "scheme": "bearer", "token": "${SHOP_BEARER_TOKEN}"}),
        ([{"basic": [], "bearer": []}, {"bearer": []}], {"type": "http", "scheme": "bearer", "token": "${SHOP_BEARER_TOKEN}"}),
        ([{"key": [], "bearer": []}], [{"type": "apiKey", "in": "query", "name": "api_key", "value": "${SHOP_KEY}"}, {"type": "http", "scheme": "bearer", "token": "${SHOP_BEARER_TOKEN}"}]),
        ([{"basic": [], "bearer": []}], {"type": "http", "scheme": "basic", "username": "${SHOP_BASIC_USERNAME}", "password": "${SHOP_BASIC_PASSWORD}"}),
        ([{}], None),
        ([{"none": []}], None),
    ],
)  # fmt: skip
def test_security(security, auth):
    assert one({"security": security}, components={"securitySchemes": SCHEMES})["live"].get("auth") == auth


# What is wrong with one operation affects no other.

GOOD = {"get": {"operationId": "good", "responses": OK}}


def broken(operation: Any, *, method: str = "post", **more: Any) -> ImportedTools:
    found = imported(described({"/good": GOOD, "/bad": {method: {"responses": OK, **operation}}}, **more))
    assert "GET /good" in [tool.key for tool in found.tools]
    return found


@pytest.mark.parametrize(
    ("operation", "method", "reason"),
    [
        (body("application/json", {"$ref": "#/components/schemas/Loop"}), "post", "cycle"),
        ({"parameters": [{"$ref": "#/components/parameters/None"}]}, "get", "unresolved_reference"),
        ({"parameters": [{"$ref": "https://a.example/p.json"}]}, "get", "external_reference"),
        (body("application/json", PET), "get", "body_not_allowed"),
        (body("multipart/mixed", PET), "post", "media_type"),
        ({}, "trace", "trace"),
        ({"parameters": [parameter("a b", "cookie")]}, "get", "invalid_name"),
        ({"parameters": [parameter("a", "nowhere")]}, "get", "invalid_operation"),
    ],
)
def test_an_operation_is_refused_alone(operation, method, reason):
    components = {"schemas": {"Loop": {"allOf": [{"$ref": "#/components/schemas/Loop"}]}}}
    found = broken(operation, method=method, components=components)
    assert [(each.key, each.reason) for each in found.refused] == [(f"{method.upper()} /bad", reason)]


def test_references_that_lead_nowhere_accept_any_value():
    for link in ("#/components/schemas/None", "https://a.example/s.json", "other.json#/A"):
        found = broken(body("application/json", {"type": "object", "properties": {"a": {"$ref": link}}}))
        assert found.tools[1].descriptor["input_schema"]["properties"] == {"a": {}}
        assert "any value is accepted" in told(found, "lost")[0]


def test_ten_thousand_references_to_one_schema():
    link = {"$ref": "#/components/schemas/Pet"}
    many = {"type": "object", "properties": {f"p{number}": link for number in range(10_000)}}
    found = broken(body("application/json", many), components={"schemas": {"Pet": PET}})
    assert [each.reason for each in found.refused] == ["too_large"]
    some = {"type": "object", "properties": {f"p{number}": link for number in range(1_000)}}
    found = broken(body("application/json", some), components={"schemas": {"Pet": PET}})
    assert [*found.tools[1].descriptor["input_schema"]["$defs"]] == ["Pet"]


def test_a_schema_that_is_too_large_is_cut():
    text = {"type": "string", "description": "x" * 1000}
    schemas = {
        f"S{number}": {
            "type": "object",
            "properties": {"text": text, "next": {"$ref": f"#/components/schemas/S{number + 1}"}},
        }
        for number in range(100)
    }
    found = broken(
        body("application/json", {"$ref": "#/components/schemas/S0"}),
        components={"schemas": {**schemas, "S100": {}}},
    )
    assert len(json.dumps(found.tools[1].descriptor)) < 64 * 1024
    assert (
        told(found, "lost") == ["the schemas `S46` are too large here; they accept any value"]
        or "too large here" in told(found, "lost")[0]
    )


def test_a_schema_that_nests_deeply_is_cut():
    schema: Any = TEXT
    for _level in range(100):
        schema = {"type": "object", "properties": {"a": schema}}
    found = broken(body("application/json", schema))
    assert len(found.tools) == 2
    assert "levels; below, any value is accepted" in told(found, "lost")[0]


def test_a_billion_ways_to_judge_a_value():
    schemas = {
        f"S{number}": {"allOf": [{"$ref": f"#/components/schemas/S{number + 1}"}] * 2} for number in range(40)
    }
    found = broken(
        body("application/json", {"$ref": "#/components/schemas/S0"}),
        components={"schemas": {**schemas, "S40": PET}},
    )
    assert [each.reason for each in found.refused] == ["too_branchy"]


@pytest.mark.parametrize("operation", [None, 1, [], "text"])
def test_an_operation_that_is_no_object(operation):
    found = imported(described({"/good": GOOD, "/bad": {"get": operation}}))
    assert [tool.key for tool in found.tools] == ["GET /good"]
    assert [each.reason for each in found.refused] == ([] if operation is None else ["invalid_operation"])


@pytest.mark.parametrize(
    "operation",
    [
        {"parameters": "x", "requestBody": 1, "responses": [], "tags": 3, "security": "x", "servers": 1},
        {
            "parameters": [1, None, {}],
            "requestBody": {"content": []},
            "responses": {"200": 1, "default": None},
        },
        {
            "parameters": [{"name": "a", "in": "query", "schema": 1}],
            "responses": {"200": {"content": {"application/json": 3}}},
        },
        {"requestBody": {"content": {"application/json": {"schema": [1]}}}, "callbacks": 1},
    ],
)
def test_parts_of_another_form_are_passed_over(operation):
    assert len(imported(described({"/good": GOOD, "/bad": {"post": operation}})).tools) == 2


# Versions.


@pytest.mark.parametrize(
    ("document", "version"),
    [
        ({"openapi": "3.2.0"}, "3.2.0"),
        ({"swagger": 2.0}, "2.0"),
        ({"openapi": 3.1}, "3.1"),
        ({"name": "x"}, ""),
        ([], ""),
    ],
)
def test_the_version_of_a_description(document, version):
    assert version_of(document) == version


def test_an_unknown_version_is_refused():
    with pytest.raises(Refused, match=r"version 4\.0\.0 of OpenAPI is not known"):
        version_of({"openapi": "4.0.0"})


def test_the_method_query_and_additional_operations_of_3_2():
    item = {
        "query": {"responses": OK, **body("application/json", PET)},
        "additionalOperations": {"COPY": {"responses": OK}},
    }
    found = imported(described({"/p": item}, openapi="3.2.0"))
    (tool,) = found.tools
    assert (tool.descriptor["live"]["method"], tool.descriptor["live"]["body"]) == ("QUERY", {"from": "args"})
    assert [(each.key, each.reason) for each in found.refused] == [("COPY /p", "unknown_method")]


def test_files_of_a_description():
    files = {
        "pets.yaml": {
            "list": {
                "get": {
                    "operationId": "list",
                    "parameters": [{"$ref": "common.yaml#/limit"}],
                    "responses": OK,
                }
            }
        },
        "common.yaml": {
            "limit": parameter("limit", "query", {"$ref": "openapi.yaml#/components/schemas/Limit"})
        },
    }
    document = described(
        {"/pets": {"$ref": "pets.yaml#/list"}}, components={"schemas": {"Limit": {"type": "integer"}}}
    )
    (tool,) = imported(document, file="openapi.yaml", read=lambda name: files[name]).tools
    assert tool.descriptor["input_schema"]["properties"] == {"limit": {"type": "integer"}}
