"""Pages and answers over a server: what is asked, what crosses to another origin, what a model is told."""

from __future__ import annotations

import json

import pytest

from http_servers import answering_by, raw_answer, serving
from live_tools import API, calling, live_runtime, live_tool
from toolcrib import Outcome

KEY = "auth: {type: apiKey, in: header, name: X-Key, value: '${CRIB_KEY}'}"
SECRET = "k3y-of-the-canary"


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("CRIB_KEY", SECRET)


def page(items, link="", status=200):
    headers = [("Content-Type", "application/json"), *([("Link", f'<{link}>; rel="next"')] if link else [])]
    return raw_answer(status, headers, json.dumps(items).encode())


def numbered(head):
    """Three pages of two, which link to each other by the address under which they were asked for."""
    at = int(dict(head.query).get("page", "1"))
    following = f"http://{head.header('host')}/things?page={at + 1}" if at < 3 else ""
    return page([at * 2 - 1, at * 2], following)


async def test_links_to_the_server_itself_are_followed_with_the_key():
    text = live_tool(f"url: {API}/things\n{KEY}\npagination: {{style: link}}")
    async with calling(text, answering_by(numbered)) as (tools, server):
        result = await tools.call("tool")
    assert result.value == {"items": [1, 2, 3, 4, 5, 6], "next_cursor": None}
    assert result.meta["pages"] == {"count": 3, "items": 6, "stopped": "end"}
    assert [head.header("x-key") for head in server.requests] == [SECRET] * 3
    assert server.accepted == 1


async def test_one_page_at_a_time_by_an_argument():
    inputs = "{type: object, properties: {after: {type: string}}}"
    block = f"url: {API}/things\npagination: {{style: link, collect: false, param: page, cursor_arg: after}}"
    async with calling(live_tool(block, inputs=inputs), answering_by(numbered)) as (
        tools,
        server,
    ):
        first = await tools.call("tool")
        second = await tools.call("tool", {"after": first.value["next_cursor"]})
        await tools.call("tool", {"after": "3&admin=1"})
    assert (first.value["next_cursor"], second.value) == ("2", {"items": [3, 4], "next_cursor": "3"})
    assert server.requests[-1].query == [("page", "3&admin=1")]


async def test_the_key_stays_with_its_origin():
    cdn = "https://cdn.example.com"
    first = answering_by(lambda _head: page([1], f"{cdn}/more?page=2"))
    pages = f"{KEY}\npagination: {{style: link}}"
    async with serving(answering_by(lambda _head: page([2]))) as other, serving(first) as server:
        options = {
            "egress": [f"127.0.0.1:{server.port}", f"127.0.0.1:{other.port}"],
            "origins": {API: server.origin, cdn: other.origin},
        }
        text = live_tool(f"url: {API}/things\nhosts: [api.example.com, cdn.example.com]\n{pages}")
        async with live_runtime(text, server, **options) as tools:
            result = await tools.call("tool")
        assert result.value["items"] == [1, 2]
        assert server.requests[0].header("x-key") == SECRET
        assert other.requests[0].header("x-key") is None
        assert SECRET.encode() not in other.requests[0].raw

        text = live_tool(f"url: {API}/things\nhosts: ['*.example.com']\n{pages}")
        async with live_runtime(text, server, **options) as tools:
            assert (await tools.call("tool")).value["items"] == [1, 2]

        text = live_tool(f"url: {API}/things\n{pages}")
        async with live_runtime(text, server, **options) as tools:
            result = await tools.call("tool")
        assert (result.outcome, result.error.code) == (Outcome.DENIED, "link_refused")
        assert len(other.requests) == 2


async def test_a_key_that_comes_back_in_a_link_is_hidden():
    def echo(head):
        return page([1], f"/things?page=2&key={head.header('x-key')}")

    text = live_tool(f"url: {API}/things\n{KEY}\npagination: {{style: link, max_pages: 1}}")
    async with calling(text, answering_by(echo)) as (tools, _server):
        result = await tools.call("tool")
    assert result.value["next_cursor"].startswith("/things?page=2&key=")
    assert SECRET not in json.dumps(result.as_json())


async def test_a_page_that_fails_says_how_far_the_call_came():
    def failing(head):
        at = int(head.query[-1][1])
        return page({"message": "try later"}, status=503) if at == 4 else page([at, at + 1])

    text = live_tool(
        f"url: {API}/things\npagination: {{style: offset, param: offset}}", more="limits: {attempts: 1}"
    )
    async with calling(text, answering_by(failing)) as (tools, _server):
        result = await tools.call("tool")
    assert (result.outcome, result.error.code) == (Outcome.TOOL_ERROR, "http_503")
    assert result.error.details["pages"] == {"count": 2, "items": 4}


async def test_an_answer_is_hidden_in_shortened_and_still_fits():
    rows = [{"id": number, "user": {"email": "canary@example.com"}} for number in range(100)]
    block = f"""
    url: {API}/things
    response: {{redact: ["rows.*.user.email"], budget: {{size: 200, items: /rows}}}}
    """
    output = "{type: object, properties: {rows: {type: array, minItems: 2}}, required: [rows, total]}"
    answer = answering_by(lambda _head: page({"rows": rows, "total": 100}))
    async with calling(live_tool(block, output=output), answer) as (tools, _server):
        result = await tools.call("tool")
    kept = result.meta["truncated"][0]["kept"]
    assert result.value == {
        "rows": [{"id": number, "user": {"email": "***"}} for number in range(kept)],
        "total": 100,
    }
    assert result.meta["truncated"] == [{"pointer": "/rows", "kept": 5, "of": 100}]
    assert "canary@" not in str(result)
