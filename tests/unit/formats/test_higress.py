"""Tools of Higress configurations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from http_servers import answering, serving
from in_memory import runtime_of
from live_tools import live_executors
from toolcrib import RealClock
from toolcrib.formats.higress import tools_of_higress

ARGUMENTS = [
    {"name": "city", "description": "A city.", "type": "string", "required": True},
    {"name": "days", "type": "integer", "default": 3},
    {"name": "tags", "type": "array", "items": {"type": "string"}},
]


def tool(template: dict[str, Any], name: str = "find", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "Find.", "args": ARGUMENTS, "requestTemplate": template, **more}


def config(*tools: Any, **server: Any) -> dict[str, Any]:
    return {"server": {"name": "shop", **server}, "tools": [*tools]}


def live(template: dict[str, Any], **server: Any) -> dict[str, Any]:
    imported = tools_of_higress(config(tool(template), **server))
    assert imported.refused == []
    return dict(imported.tools[0].descriptor["live"])


def test_arguments_and_templates():
    imported = tools_of_higress(
        config(
            tool(
                {
                    "url": "https://api.shop.example/{{.args.city}}/x?key={{.config.apiKey}}&lang={{ .config.lang }}&days={{.args.days}}",
                    "method": "GET",
                    "headers": [
                        {"key": "X-Tags", "value": "{{toJson .args.tags}}"},
                        {"key": "Host", "value": "x"},
                    ],
                },
                outputSchema={"type": "object"},
                responseTemplate={"body": "{{ .data.items | toJson }}", "prependBody": "# Results"},
            ),
            config={"apiKey": "c4n4ry-key", "lang": "en"},
        )
    )
    assert imported.tools[0].descriptor == {
        "name": "find",
        "description": "Find.",
        "input_schema": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "A city."},
                "days": {"type": "integer", "default": 3},
                "tags": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
        "output_schema": {"type": "object"},
        "on_invalid_result": "warn",
        "live": {
            "url": "https://api.shop.example/{{ args.city }}/x",
            "query": {"key": "${API_KEY}", "lang": "en", "days": "{{ args.days }}"},
            "headers": {"X-Tags": "{{ args.tags }}"},
            "select": "body.data.items",
        },
    }
    assert [each.message for each in imported.remarks if each.kind == "lost"] == [
        "the header `Host`: the client sets it when it sends the request; remove it",
        "`responseTemplate.prependBody`, the text around the response",
    ]
    assert "c4n4ry" not in json.dumps(imported)


@pytest.mark.parametrize(
    ("template", "part"),
    [
        ({"argsToUrlParam": True}, {"query": {"city": "{{ args.city }}", "days": "{{ args.days }}", "tags": "{{ args.tags }}"}}),
        (
            {"argsToJsonBody": True, "method": "POST", "url": "https://x.example/{city}"},
            {"body": {"json": {"days": "{{ args.days }}", "tags": "{{ args.tags }}"}}},
        ),
        (
            {"argsToFormBody": True, "method": "POST", "headers": [{"key": "content-type", "value": "application/x-www-form-urlencoded"}]},
            {"body": {"form": {"city": "{{ args.city }}", "days": "{{ args.days }}", "tags": "{{ args.tags }}"}}},
        ),
        (
            {"method": "POST", "body": '{"q": "{{.args.city}}", "n": {{.args.days}}, "s": "{{.args.days}}", "t": {{toJson .args.tags}}, "u": "in {{.args.city}}"}'},
            {
                "body": {
                    "json": {
                        "q": "{{ args.city }}",
                        "n": "{{ args.days }}",
                        "s": "{{ args.days | string }}",
                        "t": "{{ args.tags }}",
                        "u": "in {{ args.city }}",
                    }
                }
            },
        ),
        (
            {"method": "POST", "body": "<q>{{.args.city}}</q>", "headers": [{"key": "Content-Type", "value": "text/xml"}]},
            {"body": {"text": "<q>{{ args.city }}</q>", "content_type": "text/xml"}},
        ),
    ],
)  # fmt: skip
def test_bodies(template, part):
    made = live({"url": "https://x.example/", **template})
    assert {key: made[key] for key in part} == part
    assert "headers" not in made


def test_positions_and_security():
    arguments = [
        {"name": name, "type": "string", "position": name}
        for name in ("query", "path", "header", "cookie", "body")
    ]
    schemes = [
        {"id": "Key", "type": "apiKey", "in": "header", "name": "X-Key", "defaultCredential": "c4n4ry"}
    ]
    template = {"url": "https://api.shop.example/{path}", "method": "POST", "security": {"id": "Key"}}
    imported = tools_of_higress(
        {
            "apiVersion": "extensions.higress.io/v1alpha1",
            "kind": "WasmPlugin",
            "spec": {
                "matchRules": [
                    {"config": config({**tool(template), "args": arguments}, securitySchemes=schemes)}
                ]
            },
        }
    )
    assert imported.tools[0].descriptor["live"] == {
        "method": "POST",
        "url": "https://api.shop.example/{{ args.path }}",
        "query": {"query": "{{ args.query }}"},
        "headers": {"header": "{{ args.header }}"},
        "cookies": {"cookie": "{{ args.cookie }}"},
        "body": {"json": {"body": "{{ args.body }}"}},
        "auth": {"type": "apiKey", "in": "header", "name": "X-Key", "value": "${SHOP_KEY}"},
    }
    assert "c4n4ry" not in json.dumps(imported)


def test_a_path_without_a_host_is_a_variable():
    imported = tools_of_higress(config(tool({"url": "/pets/{city}"})))
    assert imported.tools[0].descriptor["live"]["url"] == "${BASE_URL}/pets/{{ args.city }}"
    assert imported.remarks[0].message == "its URL has no host; set `${BASE_URL}`"


async def test_a_tool_calls_its_service():
    async with serving(answering(200, {"Content-Type": "application/json"}, b'{"a": {"b": [1]}}')) as server:
        template = {"url": f"{server.origin}/{{city}}", "method": "PUT", "body": '{"n": {{.args.days}}}'}
        (made,) = tools_of_higress(config(tool(template, responseTemplate={"body": '{{gjson "a.b"}}'}))).tools
        options = {"clock": RealClock(), "egress": [f"127.0.0.1:{server.port}"]}
        async with runtime_of(json.dumps(made.descriptor), executors=live_executors(), **options) as runtime:
            assert (await runtime.call("find", {"city": "a/b", "days": 5})).value == [1]
        (sent,) = server.requests
    assert (sent.method, sent.target, sent.json) == ("PUT", "/a%2Fb", {"n": 5})


def test_a_tool_without_a_counterpart_is_refused_and_the_others_are_not():
    imported = tools_of_higress(
        config(
            tool({"url": "https://x.example/{{range .args.tags}}a{{end}}"}, "range"),
            tool({"url": "https://x.example/{{.args.other}}"}, "other"),
            tool({"url": "https://x.example/", "body": "x"}, "get"),
            {"name": "none"},
            tool({}, "damaged"),
            5,
            tool({"url": "https://x.example/"}, "ok"),
        )
    )
    assert [(each.key, each.reason) for each in imported.refused] == [
        ("range", "template"),
        ("other", "unknown_argument"),
        ("get", "body_of_get"),
        ("none", "no_request"),
        ("damaged", "damaged_tool"),
        ("/tools/5", "damaged_tool"),
    ]
    assert [each.key for each in imported.tools] == ["ok"]
