"""Tools of UTCP manuals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from http_servers import answering, serving
from in_memory import runtime_of
from live_tools import live_executors
from toolcrib import Executors, RealClock
from toolcrib.formats.utcp import tools_of_utcp


def inputs(*names: str, **schemas: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {**{name: {"type": "string"} for name in names}, **schemas}}


def tool(template: dict[str, Any], name: str = "shop.find", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": "Find.",
        "inputs": inputs("q"),
        "tool_call_template": template,
        **more,
    }


def http(url: str = "https://api.shop.example/find", **more: Any) -> dict[str, Any]:
    return {"call_template_type": "http", "url": url, **more}


def manual(*tools: Any) -> dict[str, Any]:
    return {"utcp_version": "1.1.0", "manual_version": "1.0.0", "tools": [*tools]}


def descriptor(template: dict[str, Any], **more: Any) -> dict[str, Any]:
    imported = tools_of_utcp(manual(tool(template, **more)))
    assert imported.refused == []
    return dict(imported.tools[0].descriptor)


def test_arguments_are_sent_where_utcp_sends_them():
    made = descriptor(
        http(
            "https://api.shop.example/{shop}/orders/{id}?version=2&lang={lang}",
            http_method="POST",
            headers={"X-Client": "$CLIENT", "Content-Type": "application/json"},
            header_fields=["X-Trace"],
            body_field="order",
        ),
        inputs=inputs("shop", "id", "lang", "X-Trace", "dry_run", order={"type": "object"}),
        outputs={"type": "object", "properties": {"id": {"type": "string", "title": None}}, "items": None},
        tags=["orders", "orders"],
        average_response_size=2048,
    )
    assert made == {
        "name": "shop_find",
        "description": "Find.",
        "tags": ["orders"],
        "input_schema": inputs("shop", "id", "lang", "X-Trace", "dry_run", order={"type": "object"}),
        "output_schema": {"type": "object", "properties": {"id": {"type": "string"}}},
        "on_invalid_result": "warn",
        "estimate": {"output": 2048},
        "live": {
            "method": "POST",
            "url": "https://api.shop.example/{{ args.shop }}/orders/{{ args.id }}",
            "body": {"json": "{{ args.order }}"},
            "query": {"version": "2", "lang": "{{ args.lang }}", "dry_run": "{{ args.dry_run }}"},
            "headers": {"X-Client": "${CLIENT}", "X-Trace": '{{ args["X-Trace"] }}'},
        },
    }


@pytest.mark.parametrize(
    ("auth", "scheme"),
    [
        (
            {"auth_type": "api_key", "api_key": "$KEY", "var_name": "appid", "location": "query"},
            {"type": "apiKey", "in": "query", "name": "appid", "value": "${KEY}"},
        ),
        (
            {
                "auth_type": "api_key",
                "api_key": "Bearer ${TOKEN}",
                "var_name": "Authorization",
                "location": "header",
            },
            {"type": "http", "scheme": "bearer", "token": "${TOKEN}"},
        ),
        (
            {"auth_type": "api_key", "api_key": "c4n4ry", "location": "cookie", "var_name": "sid"},
            {"type": "apiKey", "in": "cookie", "name": "sid", "value": "${SHOP_KEY}"},
        ),
        (
            {"auth_type": "basic", "username": "$USER", "password": "c4n4ry"},
            {"type": "http", "scheme": "basic", "username": "${USER}", "password": "${SHOP_PASSWORD}"},
        ),
        (
            {
                "auth_type": "oauth2",
                "token_url": "https://a.example/t",
                "client_id": "$ID",
                "client_secret": "c4n4ry",
                "scope": "a b",
            },
            {
                "type": "oauth2",
                "flow": "client_credentials",
                "token_url": "https://a.example/t",
                "client_id": "${ID}",
                "client_secret": "${SHOP_CLIENT_SECRET}",
                "client_auth": "body",
                "scopes": ["a", "b"],
            },
        ),
    ],
)
def test_authentication_is_a_scheme_of_live(auth, scheme):
    assert descriptor(http(auth=auth))["live"]["auth"] == scheme
    assert "c4n4ry" not in json.dumps(tools_of_utcp(manual(tool(http(auth=auth)))))


def test_streams_are_one_result():
    made = descriptor({"call_template_type": "streamable_http", "url": "https://x.example/", "timeout": 1500})
    assert made["timeout"] == "1500ms"
    assert made["live"] == {"url": "https://x.example/", "query": {"q": "{{ args.q }}"}}
    made = descriptor({"call_template_type": "sse", "url": "https://x.example/{q}"})
    assert made["live"]["response"] == {"as": "text"}


async def test_a_text_is_the_result_of_a_mock():
    made = descriptor({"call_template_type": "text", "content": "Hello {{ name }} ${x}"})
    async with runtime_of(json.dumps(made)) as runtime:
        assert (await runtime.call("shop_find", {"q": "x"})).value == "Hello {{ name }} ${x}"


@pytest.mark.parametrize(
    ("commands", "arguments", "output"),
    [
        (["printf %s UTCP_ARG_q_UTCP_END"], {"q": "a b; $(rm x) 'c'"}, "a b; $(rm x) 'c'"),
        (["printf '%s|%s' 'a b' \"pre-UTCP_ARG_q_UTCP_END-post\""], {"q": "x y"}, "a b|pre-x y-post\n"),
        (["printf %s UTCP_ARG_q_UTCP_END | tr a b"], {"q": "a$HOME a"}, "b$HOME b\n"),
        (
            ["echo 'it UTCP_ARG_q_UTCP_END is' {{ x }} ${PWD:+y}"],
            {"q": "$(id)`id`"},
            "it $(id)`id` is {{ x }} y\n",
        ),
        (["echo one", 'echo "two $CMD_0_OUTPUT"'], {"q": "x"}, "two one\n"),
        (["echo UTCP_ARG_q_UTCP_END"], {"q": 5}, "5\n"),
    ],
)
async def test_a_program_gets_its_arguments_and_never_as_commands(commands, arguments, output):
    template = {"call_template_type": "cli", "commands": [{"command": command} for command in commands]}
    made = descriptor(template, inputs={"type": "object", "properties": {"q": {}}})
    async with runtime_of(json.dumps(made), executors=Executors.installed(), clock=RealClock()) as runtime:
        result = await runtime.call("shop_find", arguments)
    assert result.ok, result.error
    assert result.value == output


def test_environment_and_folder_of_a_program():
    made = descriptor(
        {
            "call_template_type": "cli",
            "commands": [{"command": "tool run"}],
            "env_vars": {"A": "1", "API_KEY": "c4n4ry", "B": "${B_VALUE}"},
            "inherit_env_vars": ["PATH", "LANG"],
            "working_dir": "/srv/$FOLDER",
        },
        outputs={"type": "object"},
    )
    assert made["exec"] == {
        "command": ["tool", "run"],
        "env": {"A": "1", "API_KEY": "${API_KEY}", "B": "${B_VALUE}", "LANG": "${LANG:-}"},
        "cwd": "/srv/${FOLDER}",
        "wire": "json",
    }


def test_files_and_servers():
    assert descriptor({"call_template_type": "file", "file_path": "docs/a.txt"})["exec"] == {
        "command": ["cat", "--", "docs/a.txt"],
        "paths": {"read": ["docs"]},
    }
    servers = {"fs": {"command": "npx", "args": ["server"], "env": {"TOKEN": "c4n4ry"}}}
    imported = tools_of_utcp(
        manual(tool({"call_template_type": "mcp", "config": {"mcpServers": servers}}, "m.fs.read_file"))
    )
    (made,) = imported.tools
    assert made.descriptor["mcp"] == {"server": "fs", "tool": "read_file"}
    assert imported.remarks[0].message == (
        'its server; add it to `servers` of `toolcrib.yaml`: {"fs":{"command":"npx","args":["server"],"env":{"TOKEN":"${TOKEN}"}}}'
    )


def test_templates_of_other_libraries_are_read():
    server = {"call_template_type": "mcp", "name": "files", "command": "python3", "args": ["server.py"]}
    program = {"call_template_type": "cli", "command": "echo hello"}
    first, second = tools_of_utcp(manual(tool(server, "read"), tool(program, "say"))).tools
    assert first.descriptor["mcp"] == {"server": "files", "tool": "read"}
    assert second.descriptor["exec"]["command"] == ["echo", "hello"]


def test_the_templates_of_0_x_are_read():
    made = tools_of_utcp(
        {
            "version": "0.1.0",
            "tools": [
                {
                    "name": "a",
                    "inputs": inputs("q"),
                    "tool_provider": {"provider_type": "http", "url": "https://x.example/{q}"},
                },
                {
                    "name": "b",
                    "inputs": inputs("q"),
                    "tool_provider": {"provider_type": "cli", "command_name": "find it"},
                },
            ],
        }
    )
    assert made.tools[0].descriptor["live"]["url"] == "https://x.example/{{ args.q }}"
    assert made.tools[1].descriptor["exec"]["command"] == ["find", "it", "--q", "{{ args.q }}"]


def test_a_tool_without_a_counterpart_is_refused_and_the_others_are_not():
    imported = tools_of_utcp(
        manual(
            tool({"call_template_type": "graphql", "url": "https://x.example/"}, "g"),
            tool(http(http_method="GET"), "body", inputs=inputs("body")),
            tool(http("ftp://x.example"), "ftp"),
            tool(http(), "list", inputs={"type": "array"}),
            {"name": "none"},
            tool({"call_template_type": "http"}, "damaged"),
            7,
            tool(
                {"call_template_type": "cli", "commands": [{"command": "a UTCP_ARG_x_UTCP_END"}]}, "unknown"
            ),
            tool(http(), "ok", inputs={"properties": {"q": {"type": "string"}}}),
            tool(http(), "ok"),
        )
    )
    assert [(each.key, each.reason) for each in imported.refused] == [
        ("g", "call_template_graphql"),
        ("body", "body_of_get"),
        ("ftp", "invalid_url"),
        ("list", "invalid_schema"),
        ("none", "no_call_template"),
        ("damaged", "damaged_tool"),
        ("/tools/6", "damaged_tool"),
        ("unknown", "unknown_argument"),
    ]
    assert [each.descriptor["name"] for each in imported.tools] == ["ok", "ok_2"]
    assert imported.remarks[0].message == "`inputs`: its type is missing; it is `object`"


async def test_a_tool_calls_its_service():
    async with serving(answering(200, {"Content-Type": "application/json"}, b'{"found": 1}')) as server:
        made = descriptor(
            http(
                f"{server.origin}/{{q}}/find",
                http_method="POST",
                body_field="data",
                content_type="application/x-www-form-urlencoded",
            ),
            inputs=inputs("q", "x", data={"type": "object", "properties": {"a": {}, "b": {}}}),
        )
        options = {"clock": RealClock(), "egress": [f"127.0.0.1:{server.port}"]}
        async with runtime_of(json.dumps(made), executors=live_executors(), **options) as runtime:
            result = await runtime.call("shop_find", {"q": "a/b", "x": "1", "data": {"a": 1, "b": "c d"}})
        assert result.value == {"found": 1}
        (sent,) = server.requests
    assert (sent.method, sent.target, sent.body) == ("POST", "/a%2Fb/find?x=1", b"a=1&b=c%20d")
