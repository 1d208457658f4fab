"""`toolcrib import openapi`: its sources, the files that they refer to, and the tools as they are used."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from http_servers import answered_by, answering_by, raw_answer
from toolcrib import Outcome, Runtime
from toolcrib.cli import exit_codes
from toolcrib.loading.documents.foreign_text import read_foreign

SHOP = """
openapi: 3.0.3
info: {title: Shop, version: "1"}
servers: [{url: "http://127.0.0.1:PORT/v1"}]
security: [{key: []}]
paths:
  /orders/{id}:
    get:
      operationId: getOrder
      tags: [orders]
      parameters:
        - {$ref: "common.yaml#/id"}
        - {name: fields, in: query, explode: false, schema: {type: array, items: {type: string}}}
      responses:
        200:
          description: The order
          content: {application/json: {schema: {$ref: "#/components/schemas/Order"}, example: {id: A-7, state: sent}}}
        404: {description: No such order}
  /orders:
    post:
      operationId: createOrder
      requestBody:
        required: true
        content: {application/json: {schema: {type: object, required: [book], properties: {book: {type: string}}}}}
      responses: {201: {description: Made, content: {application/json: {schema: {$ref: "#/components/schemas/Order"}}}}}
components:
  schemas: {Order: {type: object, required: [id], properties: {id: {type: string}, state: {type: string}}}}
  securitySchemes: {key: {type: apiKey, in: header, name: X-Key}}
"""
COMMON = "id: {name: id, in: path, required: true, schema: {type: string}, example: A-7}\n"
LINKED = """
openapi: 3.1.0
info: {title: Shop, version: "1"}
servers: [{url: https://api.example.com}]
paths:
  /orders: {get: {operationId: list, parameters: [{$ref: "LINK"}], responses: {}}}
  /good: {get: {operationId: good, responses: {}}}
"""


def read_yaml(text):
    return read_foreign(text).value


async def called(folder, allowed):
    """The results of three calls of the API."""
    async with Runtime.open(folder, egress=[allowed]) as runtime:
        return (
            await runtime.call("getOrder", {"id": "A/7", "fields": ["a", "b"]}),
            await runtime.call("createOrder", {"book": "Emma"}),
            await runtime.call("getOrder", {"id": "none"}),
        )


def test_imported_tools_are_valid_and_run_as_mocks_and_against_the_api(write, toolcrib, monkeypatch):
    def choose(head):
        if head.method == "POST":
            return raw_answer(
                201, {"Content-Type": "application/json"}, json.dumps({"id": "B-1", **head.json}).encode()
            )
        if head.path.endswith("/none"):
            return raw_answer(404, {"Content-Type": "application/json"}, b"{}")
        return raw_answer(
            200, {"Content-Type": "application/json"}, json.dumps({"id": head.path[-3:]}).encode()
        )

    with answered_by(answering_by(choose)) as server:
        folder = write({"api/shop.yaml": SHOP.replace("PORT", str(server.port)), "api/common.yaml": COMMON})
        result = toolcrib("import", "openapi", "api/shop.yaml")
        assert (result.exit_code, result.stderr) == (exit_codes.OK, "")
        assert result.stdout.splitlines() == [
            "wrote descriptors/getOrder.tool.yaml",
            "wrote descriptors/createOrder.tool.yaml",
        ]
        assert toolcrib("validate", "descriptors").exit_code == exit_codes.OK
        assert json.loads(toolcrib("call", "getOrder", "id=A-7", "--mode", "mock").stdout) == {
            "id": "A-7",
            "state": "sent",
        }
        assert toolcrib("call", "createOrder", "book=Emma", "--mode", "mock").exit_code == exit_codes.OK
        monkeypatch.setenv("SHOP_KEY", "secret")
        one, made, none = asyncio.run(called(folder / "descriptors", f"127.0.0.1:{server.port}"))
        assert (one.value, made.value) == ({"id": "2F7"}, {"id": "B-1", "book": "Emma"})
        assert (none.outcome, none.error.code) == (Outcome.TOOL_ERROR, "not_found")
        assert [head.target for head in server.requests] == [
            "/v1/orders/A%2F7?fields=a,b",
            "/v1/orders",
            "/v1/orders/none",
        ]
        assert {head.header("X-Key") for head in server.requests} == {"secret"}


def test_a_second_import_merges(write, toolcrib):
    folder = write({"shop.yaml": SHOP.replace("PORT", "80"), "common.yaml": COMMON})
    toolcrib("import", "openapi", "shop.yaml")
    file = folder / "descriptors" / "getOrder.tool.yaml"
    file.write_text(file.read_text().replace("name: getOrder", "name: getOrder\ntitle: Mine"))
    write({"shop.yaml": SHOP.replace("PORT", "80").replace("tags: [orders]", "tags: [orders, shop]")})
    assert toolcrib("import", "openapi", "shop.yaml", "--check").exit_code == exit_codes.PROBLEMS
    result = toolcrib("import", "openapi", "shop.yaml")
    assert (result.exit_code, "updated descriptors/getOrder.tool.yaml" in result.stdout) == (
        exit_codes.OK,
        True,
    )
    merged = read_yaml(file.read_text())
    assert (merged["title"], merged["tags"]) == ("Mine", ["orders", "shop"])


def test_operations_are_chosen(write, toolcrib):
    write({"shop.yaml": SHOP.replace("PORT", "80"), "common.yaml": COMMON})
    result = toolcrib("import", "openapi", "shop.yaml", "--only", "orders", "--server", "https://x.example")
    assert result.stdout.splitlines() == ["wrote descriptors/getOrder.tool.yaml"]
    assert read_yaml(Path("descriptors/getOrder.tool.yaml").read_text())["live"]["url"].startswith(
        "https://x.example/"
    )
    result = toolcrib("import", "openapi", "shop.yaml", "--only", "nothing")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (
        exit_codes.PROBLEMS,
        "no operation matches `nothing`; the description has 2",
    )


@pytest.mark.parametrize(
    ("link", "reason", "message"),
    [
        ("https://elsewhere.example/p.json", "external_reference", "--allow-ref elsewhere.example"),
        ("../secret.yaml#/id", "external_reference", "outside the folder"),
        ("/etc/hostname", "external_reference", "outside the folder"),
        ("none.yaml#/id", "unresolved_reference", "cannot be read"),
        ("broken.yaml#/id", "unresolved_reference", "invalid YAML"),
        ("#/nothing", "unresolved_reference", "leads to nothing"),
        ("ftp://a.example/p", "external_reference", "is not fetched"),
    ],
)
def test_a_reference_that_is_not_read_affects_one_operation(write, toolcrib, link, reason, message):
    write({"api/shop.yaml": LINKED.replace("LINK", link), "secret.yaml": COMMON, "api/broken.yaml": "a: ["})
    result = toolcrib("import", "openapi", "api/shop.yaml", "--json")
    report = json.loads(result.stdout)
    assert (result.exit_code, [each["name"] for each in report["tools"]]) == (exit_codes.PROBLEMS, ["good"])
    assert [(each["key"], each["reason"]) for each in report["refused"]] == [("GET /orders", reason)]
    assert message in report["refused"][0]["message"]


def test_files_of_a_server(write, toolcrib):
    """References to the server of the source are followed, those to another one if it is allowed."""

    def choose(head):
        files = {"/openapi.yaml": LINKED.replace("LINK", "common.yaml#/id"), "/common.yaml": COMMON}
        if head.path == "/moved":
            return raw_answer(302, {"Location": "/openapi.yaml"})
        known = head.path in files
        return raw_answer(
            200 if known else 404, {"Content-Type": "text/yaml"}, files.get(head.path, "").encode()
        )

    with answered_by(answering_by(choose)) as server:
        result = toolcrib("import", "openapi", f"{server.origin}/openapi.yaml")
        assert (result.exit_code, len(server.requests)) == (exit_codes.OK, 2)
        write({"linked.yaml": LINKED.replace("LINK", f"{server.origin}/common.yaml#/id")})
        assert toolcrib("import", "openapi", "linked.yaml", "--out", "a").exit_code == exit_codes.PROBLEMS
        assert len(server.requests) == 2
        allowed = f"127.0.0.1:{server.port}"
        result = toolcrib("import", "openapi", "linked.yaml", "--out", "a", "--allow-ref", allowed)
        assert (result.exit_code, len(server.requests)) == (exit_codes.OK, 3)
        result = toolcrib("import", "openapi", f"{server.origin}/moved")
        assert f"status 302; use {server.origin}/openapi.yaml" in result.stderr
    result = toolcrib("import", "openapi", f"{server.origin}/openapi.yaml")
    assert (result.exit_code, "cannot be read" in result.stderr) == (exit_codes.USAGE, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"log": {"entries": []}}', "it looks like a browser recording (HAR)"),
        ("utcp_version: 1\ntools: []", "it looks like a UTCP manual"),
        ("<!DOCTYPE html><p>", "it looks like a web page"),
        ('<?xml version="1.0"?><definitions/>', "it looks like XML"),
        ("a: [", "invalid YAML"),
        ('{"a": ', "invalid JSON"),
        ("openapi: 9.0.0", "version 9.0.0 of OpenAPI is not known"),
        ("a: 1", "it is an object with `a`"),
        ("", "it is empty"),
    ],
)
def test_a_file_of_another_kind(write, toolcrib, text, message):
    write({"source": text})
    result = toolcrib("import", "openapi", "source")
    assert (result.exit_code, message in result.stderr) == (exit_codes.USAGE, True), result.stderr


@pytest.mark.parametrize(
    "words", [["none.yaml"], ["shop.yaml", "--allow-ref", "https://a"], ["shop.yaml", "--server", "a"]]
)
def test_options_that_are_wrong(write, toolcrib, words):
    write({"shop.yaml": SHOP})
    assert toolcrib("import", "openapi", *words).exit_code == exit_codes.USAGE


def test_duplicate_keys_are_reported(write, toolcrib):
    write({"shop.yaml": SHOP.replace("PORT", "80") + "paths: {/p: {get: {operationId: p, responses: {}}}}\n"})
    report = json.loads(toolcrib("import", "openapi", "shop.yaml", "--json").stdout)
    assert [each["name"] for each in report["tools"]] == ["p"]
    assert "duplicate key `paths` on line" in report["repaired"][0]["message"]
