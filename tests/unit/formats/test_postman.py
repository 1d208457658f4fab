"""Tools of Postman collections."""

from __future__ import annotations

import json
from typing import Any

import pytest

from in_memory import runtime_of
from live_tools import live_executors
from toolcrib.formats.postman import tools_of_postman

SCHEMA = "https://schema.getpostman.com/json/collection/v2.1.0/collection.json"


def collection(*items: Any, **more: Any) -> dict[str, Any]:
    return {"info": {"name": "Shop", "schema": SCHEMA}, "item": [*items], **more}


def request(
    url: Any = "https://api.shop.example/orders", name: str = "List orders", **more: Any
) -> dict[str, Any]:
    responses = more.pop("response", [])
    events = more.pop("event", [])
    return {
        "name": name,
        "request": {"method": "GET", "url": url, **more},
        "response": responses,
        "event": events,
    }


def tools(*items: Any, **more: Any) -> list[dict[str, Any]]:
    imported = tools_of_postman(collection(*items, **more))
    assert imported.refused == []
    return [dict(each.descriptor) for each in imported.tools]


ORDER = request(
    {
        "raw": "{{baseUrl}}/orders/:orderId?expand=lines&page=2&q={{search}}",
        "host": ["{{baseUrl}}"],
        "path": ["orders", ":orderId"],
        "query": [
            {"key": "expand", "value": "lines", "description": "What to include."},
            {"key": "page", "value": "2", "disabled": True},
            {"key": "q", "value": "{{search}}"},
        ],
        "variable": [{"key": "orderId", "value": "17", "description": {"content": "Number of the order."}}],
    },
    "Get order",
    description="Gets one order.",
    header=[
        {"key": "X-Shop", "value": "{{shop}}"},
        {"key": "Accept", "value": "application/json"},
        {"key": "X-Off", "value": "1", "disabled": True},
    ],
    response=[
        {
            "name": "found",
            "originalRequest": {"method": "GET", "url": {"raw": "{{baseUrl}}/orders/18?expand=none&q=x"}},
            "code": 200,
            "_postman_previewlanguage": "json",
            "body": '{"id": 18, "total": 2.5}',
        },
        {
            "name": "missing",
            "originalRequest": {"method": "GET", "url": {"raw": "{{baseUrl}}/orders/99?q=x"}},
            "code": 404,
            "header": [{"key": "Content-Type", "value": "application/json"}],
            "body": '{"message": "No order 99"}',
        },
    ],
)


def test_a_request_becomes_a_tool():
    (made,) = tools(
        {"name": "Orders", "item": [ORDER]},
        variable=[
            {"key": "baseUrl", "value": "https://{{region}}.shop.example/v1"},
            {"key": "region", "value": "eu"},
        ],
        auth={"type": "bearer", "bearer": [{"key": "token", "value": "{{token}}"}]},
    )
    assert {
        key: value for key, value in made.items() if key not in {"mock", "examples", "output_schema"}
    } == {
        "name": "get_order",
        "title": "Get order",
        "description": "Gets one order.",
        "tags": ["Orders"],
        "input_schema": {
            "type": "object",
            "properties": {
                "orderId": {"type": "integer", "description": "Number of the order.", "default": 17},
                "expand": {"type": "string", "description": "What to include.", "default": "lines"},
                "q": {"type": "string", "examples": ["x"]},
                "page": {"type": "integer", "examples": [2]},
            },
            "required": ["q"],
            "additionalProperties": False,
        },
        "on_invalid_result": "warn",
        "mode": "mock",
        "live": {
            "url": "https://eu.shop.example/v1/orders/{{ args.orderId }}",
            "query": {"expand": "{{ args.expand }}", "q": "{{ args.q }}", "page": "{{ args.page }}"},
            "headers": {"X-Shop": "${SHOP}"},
            "accept": "application/json",
            "auth": {"type": "http", "scheme": "bearer", "token": "${TOKEN}"},
        },
    }


async def test_saved_responses_are_the_mock():
    (made,) = tools(ORDER, variable=[{"key": "baseUrl", "value": "https://api.shop.example"}])
    assert made["examples"] == [
        {"args": {"orderId": 18, "expand": "none", "q": "x"}, "result": {"id": 18, "total": 2.5}}
    ]
    async with runtime_of(json.dumps(made), executors=live_executors()) as runtime:
        found = await runtime.call("get_order", {"orderId": 18, "expand": "none", "q": "x"})
        assert found.value == {"id": 18, "total": 2.5}
        missing = await runtime.call("get_order", {"orderId": 99, "q": "x"})
        assert (missing.error.code, missing.error.message) == ("http_404", "No order 99")
        assert (await runtime.call("get_order", {"q": "y"})).value == found.value


@pytest.mark.parametrize(
    ("auth", "scheme"),
    [
        (
            {"type": "bearer", "bearer": {"token": "s3cr3t-value"}},
            {"type": "http", "scheme": "bearer", "token": "${SHOP_TOKEN}"},
        ),
        (
            {
                "type": "basic",
                "basic": [{"key": "username", "value": "ann"}, {"key": "password", "value": "{{pw}}"}],
            },
            {"type": "http", "scheme": "basic", "username": "${SHOP_USER}", "password": "${PW}"},
        ),
        (
            {
                "type": "apikey",
                "apikey": [{"key": "key", "value": "X-Key"}, {"key": "value", "value": "s3cr3t-value"}],
            },
            {"type": "apiKey", "in": "header", "name": "X-Key", "value": "${SHOP_KEY}"},
        ),
        (
            {"type": "apikey", "apikey": {"key": "k", "value": "{{apiKey}}", "in": "query"}},
            {"type": "apiKey", "in": "query", "name": "k", "value": "${API_KEY}"},
        ),
        (
            {
                "type": "oauth2",
                "oauth2": [
                    {"key": "grant_type", "value": "client_credentials"},
                    {"key": "accessTokenUrl", "value": "https://auth.shop.example/token"},
                    {"key": "clientId", "value": "me"},
                    {"key": "clientSecret", "value": "s3cr3t-value"},
                    {"key": "scope", "value": "read write"},
                ],
            },
            {
                "type": "oauth2",
                "flow": "client_credentials",
                "token_url": "https://auth.shop.example/token",
                "client_id": "${SHOP_CLIENT_ID}",
                "client_secret": "${SHOP_CLIENT_SECRET}",
                "scopes": ["read", "write"],
            },
        ),
        (
            {"type": "oauth2", "oauth2": [{"key": "grant_type", "value": "implicit"}]},
            {"type": "http", "scheme": "bearer", "token": "${ACCESS_TOKEN}"},
        ),
    ],
)
def test_authorization_is_a_scheme_of_live(auth, scheme):
    (made,) = tools(request(auth=auth))
    assert made["live"]["auth"] == scheme


def test_authorization_is_inherited_unless_a_request_has_its_own():
    inherited = {"type": "bearer", "bearer": [{"key": "token", "value": "{{outer}}"}]}
    folder = {"type": "basic", "basic": {"username": "{{user}}", "password": "{{password}}"}}
    made = tools(
        request(name="one"),
        {
            "name": "F",
            "item": [request(name="two"), request(name="three", auth={"type": "noauth"})],
            "auth": folder,
        },
        auth=inherited,
    )
    assert [each["live"].get("auth", {}).get("scheme") for each in made] == ["bearer", "basic", None]


def test_bodies_of_every_mode():
    raw = {
        "mode": "raw",
        "raw": '{"sku": "a", "count": {{count}}, "note": "for {{who}}"}',
        "options": {"raw": {"language": "json"}},
    }
    urlencoded = {
        "mode": "urlencoded",
        "urlencoded": [{"key": "a", "value": "1"}, {"key": "b", "value": "", "disabled": True}],
    }
    formdata = {
        "mode": "formdata",
        "formdata": [
            {"key": "title", "value": "x", "description": "Its title."},
            {"key": "photo", "type": "file", "src": "/p/a.png"},
        ],
    }
    graphql = {
        "mode": "graphql",
        "graphql": {"query": "query Q($n: Int) { a(n: $n) }", "variables": '{"n": 5}'},
    }
    text = {"mode": "raw", "raw": "hello"}
    file = {"mode": "file", "file": {"src": "a.bin"}}
    bodies = [raw, urlencoded, formdata, graphql, text, file]
    made = tools(*(request(name=f"r{place}", method="POST", body=body) for place, body in enumerate(bodies)))
    assert [each["live"]["body"] for each in made] == [
        {"json": {"sku": "{{ args.sku }}", "count": "{{ args.count }}", "note": "{{ args.note }}"}},
        {"form": {"a": "{{ args.a }}"}},
        {"multipart": {"title": "{{ args.title }}", "photo": {"file": "{{ args.photo }}", "name": "a.png"}}},
        {"json": {"query": "query Q($n: Int) { a(n: $n) }", "variables": {"n": "{{ args.n }}"}}},
        {"text": "{{ args.body }}", "content_type": "text/plain"},
        {"text": "{{ args.body }}", "content_type": "application/octet-stream"},
    ]
    assert made[0]["input_schema"]["required"] == ["count", "note"]
    assert made[2]["input_schema"]["properties"]["title"] == {
        "type": "string",
        "description": "Its title.",
        "default": "x",
    }


def test_names_are_unique_and_stable():
    inner = [request(name="List"), request(name="https://api.shop.example/orders/{{id}}"), request(name="!")]
    first = tools({"name": "Orders", "item": inner}, {"name": "Users", "item": inner})
    assert [each["name"] for each in first] == [
        "orders_list",
        "orders_get_orders",
        "orders_get_orders_2",
        "users_list",
        "users_get_orders",
        "users_get_orders_2",
    ]
    assert first == tools({"name": "Orders", "item": inner}, {"name": "Users", "item": inner})


def test_version_2_0_is_read():
    old = {
        "name": "old",
        "request": {
            "method": "POST",
            "url": "api.shop.example/orders?x=1",
            "header": "Content-Type: application/json\nX-A: b",
            "auth": {"type": "basic", "basic": {"username": "u", "password": "s3cr3t-value"}},
            "body": {"mode": "raw", "raw": '{"a": 1}'},
        },
        "response": [],
    }
    imported = tools_of_postman(
        {"collection": collection(old, {"name": "plain", "request": "https://api.shop.example/"})}
    )
    assert [each.descriptor["live"]["url"] for each in imported.tools] == [
        "http://api.shop.example/orders",
        "https://api.shop.example/",
    ]
    assert imported.tools[0].descriptor["live"]["headers"] == {"X-A": "b"}


def test_scripts_and_what_changes_with_each_request_are_told():
    script = [{"listen": "test", "script": {"exec": ["pm.test('ok')"], "type": "text/javascript"}}]
    empty = [{"listen": "test", "script": {"exec": [""]}}]
    imported = tools_of_postman(
        collection(
            request(name="a", event=script, auth={"type": "awsv4", "awsv4": []}),
            request(name="b", event=empty),
            event=script,
        )
    )
    assert [(each.kind, each.key, each.message) for each in imported.remarks] == [
        ("lost", "", "the scripts of the collection"),
        (
            "lost",
            "a",
            "its authorization `awsv4`, which changes with each request; write it as `auth: {type: python, ...}`",
        ),
        ("lost", "a", "its scripts"),
    ]


def test_a_damaged_request_is_refused_and_the_others_are_not():
    deep: dict[str, Any] = request(name="deep")
    for _ in range(60):
        deep = {"name": "f", "item": [deep]}
    imported = tools_of_postman(
        collection(
            5,
            {"name": "x"},
            {"name": "y", "request": {}},
            {"name": "z", "request": {"url": 7}},
            deep,
            request(name="ok"),
            request(name="v", body={"mode": "urlencoded", "urlencoded": [3]}),
        )
    )
    assert [each.descriptor["name"] for each in imported.tools] == ["ok"]
    assert [each.reason for each in imported.refused][:4] == [
        "damaged_request",
        "damaged_request",
        "nesting",
        "no_url",
    ]
    assert len(imported.refused) == 6


def test_secrets_are_not_in_the_output():
    secrets = ["c4n4ryVar1able", "c4n4ryB3arer", "c4n4ryPassw0rd", "c4n4ryT0ken"]
    imported = tools_of_postman(
        collection(
            request(
                f"https://api.shop.example/a?access_token={secrets[3]}",
                auth={"type": "bearer", "bearer": [{"key": "token", "value": secrets[1]}]},
                method="POST",
                body={"mode": "raw", "raw": json.dumps({"password": secrets[2], "key": "{{apiKey}}"})},
                description=f"Use {secrets[0]} as key",
                response=[{"code": 200, "body": json.dumps({"echo": secrets}), "originalRequest": None}],
            ),
            variable=[{"key": "apiKey", "value": secrets[0]}],
        )
    )
    assert len(imported.tools) == 1
    shown = json.dumps(imported, default=str)
    assert not [secret for secret in secrets if secret in shown]
