"""Tools as a UTCP manual, which the UTCP library reads, and whose tools it calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from utcp.data.utcp_client_config import UtcpClientConfig
from utcp.data.utcp_manual import UtcpManualSerializer
from utcp.utcp_client import UtcpClient
from utcp_text.text_call_template import TextCallTemplate

from http_servers import answering, serving
from in_memory import loaded
from toolcrib import Executors
from toolcrib.core.server_config import Server
from toolcrib.formats.utcp import tools_of_utcp
from toolcrib.formats.utcp_manual import UtcpExport, utcp_manual

ORIGIN = "https://api.shop.example"


def exported(*descriptors: dict[str, Any], servers: Mapping[str, Server] | None = None) -> UtcpExport:
    text = "\n---\n".join(json.dumps(each) for each in descriptors)
    found = loaded(text, executors=Executors.installed())
    assert [str(problem) for problem in found.problems if problem.severity == "error"] == []
    made = utcp_manual(found.tools, {}, servers=servers or {})
    # Its models of servers are in a package of their own, which needs a second version of the MCP library.
    document = json.loads(json.dumps(made.document))
    kinds = [each["tool_call_template"]["call_template_type"] for each in document["tools"]]
    document["tools"] = [each for each, kind in zip(document["tools"], kinds, strict=True) if kind != "mcp"]
    UtcpManualSerializer().validate_dict(document)
    return made


def tool(live: dict[str, Any], name: str = "find", **properties: Any) -> dict[str, Any]:
    schema = (
        {"type": "object", "properties": properties, "required": [*properties][:1]}
        if properties
        else {"type": "object"}
    )
    return {"name": name, "description": "Find.", "input_schema": schema, "live": live}


TEXT = {"type": "string"}
ORDER = tool(
    {
        "method": "POST",
        "url": ORIGIN + "/{{ args.shop }}/orders",
        "query": {"lang": "en", "dry-run": "{{ args.dry_run }}"},
        "headers": {"X-Trace": "{{ args.trace }}", "X-Client": "toolcrib"},
        "body": {"json": {"sku": "{{ args.sku }}", "source": "tool", "to": {"city": "{{ args['city'] }}"}}},
        "auth": {"type": "http", "scheme": "bearer", "token": "${TOKEN}"},
        "select": "body.order",
    },
    shop=TEXT,
    dry_run={"type": "boolean"},
    trace=TEXT,
    sku={"$ref": "#/properties/shop"},
    city=True,
)


def test_a_live_block_is_an_http_call_template():
    made = exported(ORDER)
    assert made.document["tools"] == [
        {
            "name": "find",
            "description": "Find.",
            "inputs": {
                "type": "object",
                "properties": {
                    "shop": TEXT,
                    "X-Trace": TEXT,
                    "body": {
                        "type": "object",
                        "properties": {
                            "sku": TEXT,
                            "source": {"const": "tool"},
                            "to": {"type": "object", "properties": {"city": {}}},
                        },
                        "required": ["source", "to"],
                    },
                    "dry-run": {"type": "boolean"},
                },
                "required": ["shop", "body"],
            },
            "tool_call_template": {
                "call_template_type": "http",
                "http_method": "POST",
                "url": f"{ORIGIN}/{{shop}}/orders?lang=en",
                "body_field": "body",
                "content_type": "application/json",
                "headers": {"X-Client": "toolcrib"},
                "header_fields": ["X-Trace"],
                "auth": {
                    "auth_type": "api_key",
                    "var_name": "Authorization",
                    "location": "header",
                    "api_key": "Bearer ${TOKEN}",
                },
            },
        }
    ]
    assert made.losses == (("find", "/live/select", "`select`"),)


async def test_the_library_calls_the_service_of_a_tool():
    async with serving(answering(200, {"Content-Type": "application/json"}, b'{"order": 7}')) as server:
        block = json.loads(json.dumps(ORDER).replace(ORIGIN, server.origin))
        form = tool(
            {"method": "PUT", "url": server.origin + "/f", "body": {"form": {"a": "{{ args.a }}", "b": "{{ args.b }}"}}}, "form", a=TEXT, b=TEXT
        )  # fmt: skip
        text = tool(
            {"method": "POST", "url": server.origin + "/t", "body": {"text": "{{ args.a }}"}}, "text", a=TEXT
        )
        rest = tool({"url": server.origin + "/r", "query": {"from": "args"}, "auth": {"type": "apiKey", "in": "query", "name": "key", "value": "${KEY}"}}, "rest", q=TEXT)  # fmt: skip
        made = exported(block, form, text, rest)
        config = UtcpClientConfig(variables={"shop_TOKEN": "t0ken", "shop_KEY": "k3y"})
        client = await UtcpClient.create(config=config)
        manual = TextCallTemplate(
            name="shop", content=json.dumps(made.document), allowed_communication_protocols=["http", "text"]
        )
        registered = await client.register_manual(manual)
        assert registered.success, registered.errors
        arguments = {
            "shop": "a/b",
            "X-Trace": "t1",
            "dry-run": "true",
            "body": {"sku": "s", "source": "tool", "to": {"city": "Oslo"}},
        }
        assert await client.call_tool("shop.find", arguments) == {"order": 7}
        await client.call_tool("shop.form", {"body": {"a": "1", "b": "c d"}})
        await client.call_tool("shop.text", {"a": "hello"})
        await client.call_tool("shop.rest", {"q": "x y"})
        await client.close()
        sent = server.requests
    assert (sent[0].method, sent[0].path) == ("POST", "/a%2Fb/orders")
    assert sorted(sent[0].query) == [("dry-run", "true"), ("lang", "en")]
    assert sent[0].json == {"sku": "s", "source": "tool", "to": {"city": "Oslo"}}
    assert sent[0].header("Authorization") == "Bearer t0ken"
    assert (sent[0].header("X-Trace"), sent[0].header("X-Client")) == ("t1", "toolcrib")
    assert (sent[1].method, sent[1].body) == ("PUT", b"a=1&b=c+d")
    assert (sent[2].body, sent[2].header("Content-Type")) == (b"hello", "text/plain; charset=utf-8")
    assert sorted(sent[3].query) == [("key", "k3y"), ("q", "x y")]


@pytest.mark.parametrize(
    ("auth", "written"),
    [
        (
            {"type": "http", "scheme": "basic", "username": "${USER_NAME}", "password": "${PASSWORD:-x}"},
            {"auth_type": "basic", "username": "${USER_NAME}", "password": "${PASSWORD}"},
        ),
        (
            {
                "type": "oauth2",
                "flow": "client_credentials",
                "token_url": "https://a.example/t",
                "client_id": "${ID}",
                "client_secret": "${keyring:shop/secret}",
                "scopes": ["a", "b"],
            },
            {
                "auth_type": "oauth2",
                "token_url": "https://a.example/t",
                "client_id": "${ID}",
                "client_secret": "${shop_secret}",
                "scope": "a b",
            },
        ),
    ],
)
def test_authentication(auth, written):
    made = exported(tool({"url": ORIGIN, "auth": auth}))
    assert made.document["tools"][0]["tool_call_template"]["auth"] == written
    assert len(made.losses) == 1


def test_programs_servers_and_constant_mocks():
    schema = {"type": "object", "properties": {"q": TEXT}}
    made = exported(
        {
            "name": "a",
            "input_schema": schema,
            "exec": {"command": ["echo", "it's", "--q={{ args.q }}"], "env": {"A": "${A}"}},
        },
        {"name": "b", "input_schema": schema, "mode": "mcp", "mcp": {"server": "fs", "tool": "read"}},
        {"name": "c", "input_schema": schema, "mock": {"result": {"n": 1}}},
        servers={"fs": Server("fs", command="npx", args=("server",))},
    )
    templates = {each["name"]: each["tool_call_template"] for each in made.document["tools"]}
    assert templates == {
        "a": {
            "call_template_type": "cli",
            "commands": [{"command": "echo 'it'\"'\"'s' --q=UTCP_ARG_q_UTCP_END"}],
            "env_vars": {"A": "${A}"},
        },
        "fs.read": {
            "call_template_type": "mcp",
            "config": {"mcpServers": {"fs": {"command": "npx", "args": ["server"]}}},
        },
        "c": {"call_template_type": "text", "content": '{"n":1}'},
    }


@pytest.mark.parametrize(
    ("descriptor", "pointer"),
    [
        (tool({"url": ORIGIN + "/{{ args.q | upper }}"}, q=TEXT), "/live/url"),
        (tool({"url": ORIGIN, "query": {"q": "a {{ args.q }}"}}, q=TEXT), "/live/query/q"),
        (tool({"url": ORIGIN, "method": "HEAD"}), "/live/method"),
        (tool({"url": ORIGIN, "method": "POST", "body": {"multipart": {"f": {"file": "{{ args.q }}"}}}}, q=TEXT), "/live/body/multipart"),
        (tool({"url": ORIGIN, "headers": {"X": "$$A"}}), "/live/headers/X"),
        ({"name": "find", "mock": {"rules": [{"reply": {"result": 1}}]}}, "/mock"),
        ({"name": "find", "client": {}}, "/client"),
        ({"name": "find", "exec": {"command": ["a"], "wire": "json"}}, "/exec"),
    ],
)  # fmt: skip
def test_a_tool_that_utcp_cannot_call_is_left_out_and_told(descriptor, pointer):
    made = exported(descriptor, tool({"url": ORIGIN}, "other"))
    assert [each["name"] for each in made.document["tools"]] == ["other"]
    ((name, place, message),) = made.losses
    assert (name, place) == ("find", pointer)
    assert message.startswith("the tool is not written: ")


def test_an_export_is_imported_again():
    again = tools_of_utcp(exported(ORDER).document)
    assert again.refused == []
    assert again.tools[0].descriptor["live"]["url"] == ORIGIN + "/{{ args.shop }}/orders"
    assert again.tools[0].descriptor["live"]["auth"] == ORDER["live"]["auth"]
