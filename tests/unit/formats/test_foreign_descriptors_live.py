"""PromptKit's `http` and the flat `endpoint` become a `live` block; what has no meaning is refused with its line."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest

from http_servers import answering_json
from live_tools import API, calling
from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.sources import parse

WITHOUT_LIVE = Executors({"mock": MockExecutor})
"""So that the block is seen as loading makes it, and only what loading finds is found."""

INPUT = {
    "type": "object",
    "properties": {
        "id": {"type": "string"},
        "q": {"type": "string"},
        "page-size": {"type": "integer"},
        "filter": {"type": "object"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}


def read(http, schema=INPUT, **spec):
    manifest = {
        "apiVersion": "promptkit.altairalabs.ai/v1alpha1",
        "kind": "Tool",
        "metadata": {"name": "a"},
        "spec": {"mode": "live", "description": "x", "input_schema": schema, "http": http, **spec},
    }
    text = json.dumps(manifest, indent=1)
    loaded = parse("a.json", text, WITHOUT_LIVE)
    return loaded, text.splitlines()


def block_of(http, schema=INPUT, **spec):
    loaded, _lines = read({"url": "https://api.example.com/x", **http}, schema, **spec)
    assert [str(problem) for problem in loaded.problems if problem.severity == "error"] == []
    (tool,) = loaded.tools
    return tool.bindings["live"]


def refused(http, schema=INPUT, **spec):
    """The code of the one error, and the line of the document that it points to."""
    loaded, lines = read({"url": "https://api.example.com/x", **http}, schema, **spec)
    (problem,) = (problem for problem in loaded.problems if problem.severity == "error")
    return problem, lines[problem.line - 1].strip().rstrip(",")


ALL_IN_QUERY = {
    "id": "{{ args.id }}",
    "q": "{{ args.q }}",
    "page-size": "{{ args['page-size'] }}",
    "filter": "{{ (args['filter'] | tojson) if args['filter'] is not none else none }}",
    "tags": "{{ args.tags }}",
}


def test_arguments_are_posted_as_json_unless_a_method_says_otherwise():
    assert block_of({}) == {
        "method": "POST",
        "url": "https://api.example.com/x",
        "body": {"from": "args", "as": "json"},
    }


@pytest.mark.parametrize("method", ["PUT", "patch", "Post"])
def test_methods_with_a_body_send_arguments_in_it(method):
    block = block_of({"method": method})
    assert (block["method"], block["body"]) == (method.upper(), {"from": "args", "as": "json"})
    assert "query" not in block


@pytest.mark.parametrize("method", ["GET", "delete", "HEAD"])
def test_methods_without_a_body_send_every_argument_in_the_query(method):
    block = block_of({"method": method})
    assert (block["method"], block["query"]) == (method.upper(), ALL_IN_QUERY)
    assert "body" not in block


def test_arguments_that_no_schema_names_are_sent_all_the_same():
    assert block_of({"method": "GET"}, {"type": "object"})["query"] == {"from": "args"}
    assert block_of({}, {"type": "object"})["body"] == {"from": "args", "as": "json"}


def test_arguments_of_the_url_and_of_headers_are_used_up():
    http = {
        "method": "GET",
        "url": "https://api.example.com/{{.id}}/x",
        "request": {"header_params": {"X-Q": "q={{ .q }}"}},
    }
    block = block_of(http)
    assert block["url"] == "https://api.example.com/{{ args.id }}/x"
    assert block["headers"] == {"X-Q": "q={{ args.q }}"}
    assert list(block["query"]) == ["page-size", "filter", "tags"]


def test_listed_arguments_go_to_the_query_and_the_others_to_the_body():
    block = block_of({"request": {"query_params": ["q"]}})
    assert block["query"] == {"q": "{{ args.q }}"}
    assert block["body"] == {"from": "args", "as": "json"}


def test_no_body_is_sent_where_the_query_and_the_url_take_every_argument():
    schema = {"type": "object", "properties": {"id": {"type": "string"}, "q": {"type": "string"}}}
    block = block_of({"url": "https://a.example/{{.id}}", "request": {"query_params": ["q"]}}, schema)
    assert "body" not in block


def test_arguments_that_are_not_listed_go_to_the_query_of_a_get_all_the_same():
    block = block_of({"method": "GET", "request": {"query_params": ["q"]}})
    assert list(block["query"]) == ["q", "id", "page-size", "filter", "tags"]


def test_excluded_arguments_are_not_sent():
    block = block_of({"request": {"exclude": ["filter", "tags", "page-size"]}})
    assert block["body"] == {"json": {"id": "{{ args.id }}", "q": "{{ args.q }}"}}
    block = block_of({"method": "GET", "request": {"exclude": ["filter", "tags", "page-size"]}})
    assert list(block["query"]) == ["id", "q"]


def test_static_values_are_sent_always_and_stand_in_for_arguments_of_their_name():
    request = {
        "static_query": {"q": "fixed {{ literal }}", "n": 1, "flag": True},
        "static_headers": {"X-A": "{{ not ours }}", "X-B": "Bearer ${TOKEN:-none}"},
    }
    block = block_of({"method": "GET", "request": request})
    assert block["query"]["q"] == "fixed {{ '{{' }} literal }}"
    assert (block["query"]["n"], block["query"]["flag"]) == ("1", "true")
    assert block["headers"] == {"X-A": "{{ '{{' }} not ours }}", "X-B": "Bearer ${TOKEN:-none}"}


def test_static_members_of_the_body_can_not_be_overridden_nor_lost():
    static = {"kind": "fixed", "note": "`x`"}
    block = block_of({"request": {"static_body": static}})
    written = json.dumps(static).replace("`", "\\`")
    assert block["body"] == {"from": "args", "as": "json", "select": f"merge(@, `{written}`)"}
    block = block_of({"request": {"static_body": {"a": 1}, "body_mapping": "{b: q} | @"}})
    assert block["body"]["select"] == 'merge(({b: q} | @), `{"a": 1}`)'


def test_mappings_become_selects():
    http = {"request": {"body_mapping": " {text: q}\n"}, "response": {"body_mapping": "results[0] | name"}}
    block = block_of(http)
    assert block["body"] == {"from": "args", "as": "json", "select": "{text: q}"}
    assert block["select"] == "body | results[0] | name"


def test_headers_and_what_they_read_from_the_environment():
    http = {
        "headers": {"Accept-Language": "en", "X-Team": "${TEAM}", "X-Q": "{{.q}}"},
        "headers_from_env": ["Authorization=API_AUTH"],
    }
    assert block_of(http)["headers"] == {
        "Accept-Language": "en",
        "X-Team": "${TEAM}",
        "X-Q": "{{ args.q }}",
        "Authorization": "${API_AUTH}",
    }


def test_what_is_redacted_and_what_is_accepted():
    http = {
        "redact": ["email", "a.b"],
        "multimodal": {"enabled": True, "accept_types": ["image/png", "audio/wav"]},
    }
    block = block_of(http)
    assert block["response"] == {"redact": ["email", '"a.b"']}
    assert block["accept"] == "image/png, audio/wav"
    assert "accept" not in block_of({"multimodal": {"enabled": False, "accept_types": ["image/png"]}})


@pytest.mark.parametrize(
    ("spec", "http", "seconds"),
    [
        ({}, {}, 30),
        ({}, {"timeout_ms": 5000}, 5),
        ({"timeout_ms": 2000}, {"timeout_ms": 5000}, 2),
        ({"timeout_ms": 9000}, {"timeout_ms": 5000}, 5),
        ({"timeout_ms": 9000}, {"timeout_ms": 0}, 9),
    ],
)
def test_the_shorter_timeout_holds(spec, http, seconds):
    loaded, _lines = read({"url": "https://api.example.com/x", **http}, **spec)
    (tool,) = loaded.tools
    assert tool.timeout == seconds
    told = tool.bindings["live"].get("timeouts")
    assert told == ({"read": "5000ms"} if http.get("timeout_ms") else None)


def test_an_endpoint_is_posted_to():
    loaded = parse("a.json", json.dumps({"name": "a", "endpoint": "https://a.example/{{.id}}"}), WITHOUT_LIVE)
    assert loaded.tools[0].bindings["live"] == {
        "method": "POST",
        "url": "https://a.example/{{ args.id }}",
        "body": {"from": "args", "as": "json"},
    }


@pytest.mark.parametrize(
    ("http", "code", "line"),
    [
        ({"retries": 3}, "unknown_key", '"retries": 3'),
        ({"request": {"static_boddy": {}}}, "unknown_key", '"static_boddy": {}'),
        ({"response": {"mapping": "x"}}, "unknown_key", '"mapping": "x"'),
        ({"multimodal": {"types": []}}, "unknown_key", '"types": []'),
        ({"request": []}, "wrong_type", '"request": []'),
        ({"headers": {"A": []}}, "wrong_type", '"A": []'),
        ({"headers": []}, "wrong_type", '"headers": []'),
        ({"headers_from_env": ["API_TOKEN"]}, "wrong_form", '"API_TOKEN"'),
        ({"headers_from_env": [1]}, "wrong_type", "1"),
        ({"headers_from_env": "A=B"}, "wrong_type", '"headers_from_env": "A=B"'),
        (
            {"headers": {"X-A": "1"}, "request": {"static_headers": {"x-a": "2"}}},
            "duplicate_key",
            '"X-A": "1"',
        ),
        (
            {"url": "https://a.example/{{ template }}"},
            "go_template",
            '"url": "https://a.example/{{ template }}"',
        ),
        ({"request": {"query_params": ["qq"]}}, "unknown_argument", '"qq"'),
        ({"request": {"exclude": ["idd"]}}, "unknown_argument", '"idd"'),
        ({"request": {"body_mapping": 1}}, "wrong_type", '"body_mapping": 1'),
        ({"request": {"static_body": 1}}, "wrong_type", '"static_body": 1'),
        ({"method": "GET", "request": {"static_body": {}}}, "needless_key", '"static_body": {}'),
        ({"method": "GET", "request": {"body_mapping": "q"}}, "needless_key", '"body_mapping": "q"'),
        ({"timeout_ms": "5s"}, "wrong_type", '"timeout_ms": "5s"'),
        ({"multimodal": {"enabled": 1, "accept_types": ["a/b"]}}, "wrong_type", '"enabled": 1'),
    ],
)
def test_what_has_no_meaning_is_refused_with_its_line(http, code, line):
    problem, told = refused(http)
    assert (problem.code, told) == (code, line)


def test_a_slip_gets_the_nearest_name():
    assert "`q`" in refused({"request": {"query_params": ["Q"]}})[0].hint
    assert "`page-size`" in refused({"request": {"exclude": ["page_size"]}})[0].hint


def test_http_that_is_no_object_is_refused():
    loaded, lines = read("https://a.example")
    (problem,) = (problem for problem in loaded.problems if problem.severity == "error")
    assert (problem.code, lines[problem.line - 1].strip()) == ("wrong_type", '"http": "https://a.example"')


# The same blocks, called.


@asynccontextmanager
async def called(http, schema=INPUT, handler=None, **spec):
    """A manifest's tool over a server of its own; nothing about it is wrong."""
    manifest = json.dumps(
        {
            "apiVersion": "promptkit.altairalabs.ai/v1alpha1",
            "kind": "Tool",
            "metadata": {"name": "tool"},
            "spec": {
                "mode": "live",
                "description": "x",
                "input_schema": schema,
                "http": {"url": f"{API}/x", **http},
                **spec,
            },
        }
    )
    async with calling(manifest, handler or answering_json({"ok": True})) as (tools, server):
        assert [str(problem) for problem in tools.problems if problem.severity == "error"] == []
        yield tools, server


async def test_every_kind_of_argument_has_its_form_in_a_query():
    async with called({"method": "GET"}) as (tools, server):
        given = {"id": "a b&c", "page-size": 5, "filter": {"a": [1, {"b": None}]}, "tags": ["x", "y"]}
        assert (await tools.call("tool", given)).value == {"ok": True}
        assert server.requests[0].query == [
            ("id", "a b&c"),
            ("page-size", "5"),
            ("filter", '{"a":[1,{"b":null}]}'),
            ("tags", "x"),
            ("tags", "y"),
        ]
        await tools.call("tool", {})
        assert server.requests[1].target == "/x"


async def test_everything_that_a_manifest_may_say_of_a_post_is_sent(monkeypatch):
    monkeypatch.setenv("API_AUTH", "Bearer of-news-77")
    http = {
        "url": f"{API}/v1/{{{{.id}}}}",
        "headers": {"X-Lookup": "${API_AUTH}"},
        "headers_from_env": ["Authorization=API_AUTH"],
        "request": {
            "query_params": ["page-size"],
            "header_params": {"X-Tags": "{{ len .tags }} tags"},
            "static_query": {"format": "json {{ as is }}"},
            "static_headers": {"X-Braces": "{{ as is }}"},
            "static_body": {"kind": "fixed ` {{ as is }}"},
            "body_mapping": "{question: q, kind: 'model'}",
            "exclude": ["filter"],
        },
    }
    async with called(http) as (tools, server):
        given = {"id": "7/8", "q": "why", "page-size": 2, "filter": {"a": 1}, "tags": ["a", "b"]}
        result = await tools.call("tool", given)
        assert result.value == {"ok": True}, result.message
        (head,) = server.requests
        assert (head.method, head.path) == ("POST", "/v1/7%2F8")
        assert head.query == [("page-size", "2"), ("format", "json {{ as is }}")]
        assert head.json == {"question": "why", "kind": "fixed ` {{ as is }}"}
        told = {name: head.header(name) for name in ("authorization", "x-lookup", "x-tags", "x-braces")}
        assert told == {
            "authorization": "Bearer of-news-77",
            "x-lookup": "Bearer of-news-77",
            "x-tags": "2 tags",
            "x-braces": "{{ as is }}",
        }


async def test_a_variable_that_is_not_set_sends_nothing(monkeypatch):
    monkeypatch.delenv("API_AUTH", raising=False)
    async with called({"headers_from_env": ["Authorization=API_AUTH"]}) as (tools, server):
        result = await tools.call("tool", {})
        assert (result.outcome, result.error.code) == ("unavailable", "missing_secret")
        assert server.accepted == 0


async def test_static_parts_are_sent_with_a_call_without_arguments():
    http = {"request": {"static_body": {"a": 1}, "static_query": {"b": "2"}, "static_headers": {"X-C": "3"}}}
    async with called(http) as (tools, server):
        await tools.call("tool", {})
        (head,) = server.requests
        assert (head.json, head.query, head.header("x-c")) == ({"a": 1}, [("b", "2")], "3")


async def test_the_model_overrides_nothing_static():
    schema = {"type": "object", "properties": {"role": {"type": "string"}, "q": {"type": "string"}}}
    async with called({"request": {"static_body": {"role": "guest"}}}, schema) as (tools, server):
        await tools.call("tool", {"role": "admin", "q": "x"})
        assert server.requests[0].json == {"role": "guest", "q": "x"}


async def test_a_mapping_sees_the_body_after_its_members_are_hidden():
    answer = answering_json({"email": "ada@example.com", "a.b": "c", "results": [{"name": "Ada"}]})
    http = {
        "redact": ["email", "a.b"],
        "response": {"body_mapping": '{mail: email, dot: "a.b", first: results[0].name}'},
    }
    async with called(http, handler=answer) as (tools, _server):
        assert (await tools.call("tool", {})).value == {"mail": "***", "dot": "***", "first": "Ada"}


async def test_an_endpoint_gets_the_arguments_as_json():
    flat = json.dumps({"name": "tool", "endpoint": f"{API}/run", "mode": "live", "timeoutMs": 2000})
    async with calling(flat, answering_json({"ok": True})) as (tools, server):
        assert (await tools.call("tool", {})).value == {"ok": True}
        (head,) = server.requests
        assert (head.method, head.path, head.header("content-type")) == ("POST", "/run", "application/json")
