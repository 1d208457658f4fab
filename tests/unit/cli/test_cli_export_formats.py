"""`toolcrib export` in the formats of model providers, MCP, OpenAPI and documentation."""

from __future__ import annotations

import json

import pytest
from anthropic.types import ToolParam
from google.genai.types import FunctionDeclaration
from mcp.types import ListToolsResult
from openai.types.chat import ChatCompletionFunctionToolParam
from openai.types.responses import FunctionToolParam
from openapi_spec_validator import OpenAPIV31SpecValidator
from pydantic import TypeAdapter

from toolcrib.cli import exit_codes

SHOP = """
name: find.order
description: Find an order.
tags: [reading]
input_schema:
  type: object
  properties: {number: {type: string}, kind: {oneOf: [{const: a}, {const: b}]}}
  required: [number]
  additionalProperties: false
mock: {result: 1}
---
name: ping
description: Answer.
mock: {result: pong}
"""
TYPES = {
    "openai": ChatCompletionFunctionToolParam,
    "openai --strict": ChatCompletionFunctionToolParam,
    "openai_responses": FunctionToolParam,
    "openai_responses --strict": FunctionToolParam,
    "anthropic": ToolParam,
    "gemini": FunctionDeclaration,
}
FORMATS = ["openai", "openai_responses", "anthropic", "gemini", "mcp", "openapi", "markdown", "html"]


@pytest.fixture
def shop(write):
    return write(
        {"toolcrib.yaml": "project: shop\ndescription: Orders.\n", "descriptors/shop.tool.yaml": SHOP}
    )


@pytest.mark.parametrize("format_", TYPES)
def test_the_types_of_the_providers_accept_the_tools_of_our_packs(format_, toolcrib, root):
    for pack in ("retail", "payments"):
        written = toolcrib("export", *format_.split(), str(root / "packs" / pack)).stdout
        assert len(TypeAdapter(list[TYPES[format_]]).validate_json(written)) > 3


def test_strict_is_used_where_the_schema_allows_it(shop, toolcrib):
    plain = json.loads(toolcrib("export", "openai").stdout)
    strict = json.loads(toolcrib("export", "openai", "--strict").stdout)
    assert [tool["function"]["name"] for tool in plain] == ["find_order", "ping"]
    assert "strict" not in plain[1]["function"]
    assert strict[1]["function"]["strict"] is True


def test_losses_are_told_on_stderr_or_in_the_document(shop, toolcrib, document):
    told = toolcrib("export", "gemini")
    assert "lost: find.order /: undeclared properties cannot be forbidden\n" in told.stderr
    assert told.exit_code == exit_codes.OK
    found = document("export", "gemini", "--json")
    assert found["format"] == "gemini"
    assert found["export"] == json.loads(told.stdout)
    assert {
        "tool": "find.order",
        "pointer": "",
        "message": "undeclared properties cannot be forbidden",
    } in found["losses"]
    assert len(found["losses"]) == told.stderr.count("lost: ")


def test_mcp(shop, toolcrib):
    listed = json.loads(toolcrib("export", "mcp").stdout)
    assert [tool.name for tool in ListToolsResult.model_validate(listed).tools] == ["find_order", "ping"]


def test_openapi(shop, toolcrib):
    document = json.loads(toolcrib("export", "openapi", "--server", "https://api.example.com").stdout)
    OpenAPIV31SpecValidator(document).validate()
    assert document["info"]["title"] == "shop"
    assert document["info"]["description"] == "Orders."
    assert [*document["paths"]] == ["/tools/find_order", "/tools/ping"]


@pytest.mark.parametrize(
    ("format_", "begin"), [("markdown", "# shop\n\nOrders.\n"), ("html", "<!doctype html>\n")]
)
def test_documentation_is_written_to_a_file(shop, toolcrib, format_, begin):
    done = toolcrib("export", format_, "--out", "tools.txt")
    assert done.stdout == "wrote tools.txt\n"
    assert (shop / "tools.txt").read_text().startswith(begin)
    refused = toolcrib("export", format_, "--out", "tools.txt")
    assert refused.exit_code == exit_codes.USAGE
    assert "tools.txt already exists; use `--force`" in refused.stderr
    assert toolcrib("export", format_, "--out", "tools.txt", "--force").exit_code == exit_codes.OK


@pytest.mark.parametrize("format_", FORMATS)
def test_tools_are_selected_as_in_lists(shop, toolcrib, document, format_):
    whole = json.dumps(document("export", format_, "--json")["export"])
    assert "Answer." in whole
    chosen = json.dumps(document("export", format_, "--json", "--tag", "reading")["export"])
    assert "Answer." not in chosen
    assert "Find an order." in chosen
    by_name = json.dumps(document("export", format_, "--json", "--tool", "p*")["export"])
    assert "Find an order." not in by_name


def test_a_filter_that_selects_nothing_and_files_with_errors_end_with_a_code(shop, write, toolcrib):
    none = toolcrib("export", "openai", "--tag", "redaing")
    assert none.stdout == "[]\n"
    assert none.exit_code == toolcrib("list", "--tag", "redaing").exit_code
    assert "reading" in none.stderr
    write({"descriptors/bad.tool.yaml": "name: bad\ndescripshun: x\n"})
    done = toolcrib("export", "openai")
    assert done.exit_code == exit_codes.PROBLEMS
    assert "1 file was refused" in done.stderr
    assert len(json.loads(done.stdout)) == 2
