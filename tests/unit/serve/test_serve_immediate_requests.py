"""Requests of handshake sessions that never wait: they pass the SDK's transport by, and their answers are the same."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager

from serving_mcp import write
from toolcrib import Runtime
from toolcrib.serve.http_common.listen_address import ListenAddress
from toolcrib.serve.http_common.request_guard import RequestGuard
from toolcrib.serve.mcp import Options
from toolcrib.serve.mcp.immediate_requests import ScopedRequest
from toolcrib.serve.mcp.server import ToolServer
from toolcrib.serve.mcp.streamable_http import PAGE_ACCESS, McpApp

TOKENS = ("token-of-ada-1234567890", "token-of-bob-1234567890")
PAGE = "https://page.example"

TOOLS = """
    name: add
    description: Adds two numbers.
    input_schema:
      type: object
      properties: {a: {type: number}, b: {type: number}}
      required: [a, b]
    output_schema: {type: object, properties: {sum: {type: number}}, required: [sum]}
    mock: {result: {sum: "{{ args.a + args.b }}"}}
    ---
    name: echo
    description: Says what it is told.
    input_schema: {type: object, properties: {text: {type: string, default: hello}}}
    mock: {result: "{{ args.text }}"}
    ---
    name: fail
    description: Fails.
    mock: {error: out of paper}
    ---
    name: count
    description: Counts the calls of its session.
    mock: {sequence: [{result: one}, {result: two}, {result: three}]}
    ---
    name: slow
    description: Takes a moment.
    mock: {result: done, latency: 1ms}
"""


class Asked:
    """A session at a server in this process.

    Attributes:
        passed_by: For each call and listing, whether it passed the transport by.
    """

    def __init__(self, app, headers):
        self._app = app
        self._headers = headers
        self.passed_by = []

    async def send(self, body, method="POST", **headers):
        """Status, headers and body of the answer to a request."""
        named = {name.replace("_", "-"): value for name, value in (self._headers | headers).items()}
        told = [(name.encode(), value.encode()) for name, value in named.items()]
        scope = {"type": "http", "http_version": "1.1", "method": method, "path": "/mcp", "headers": told}
        scope["query_string"] = b""
        heard = [{"type": "http.request", "body": body, "more_body": False}]
        said = []

        async def receive():
            return heard.pop() if heard else await asyncio.Event().wait()

        async def send(message):
            said.append(message)

        await asyncio.create_task(self._app(scope, receive, send))
        whole = b"".join(message.get("body", b"") for message in said[1:])
        return said[0]["status"], dict(said[0]["headers"]), whole

    async def open(self, **headers):
        """Initialize."""
        asked = {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        _, told, _ = await self.send(encoded(asked, "initialize"), **headers)
        self._headers |= {
            "mcp-session-id": told[b"mcp-session-id"].decode(),
            "mcp-protocol-version": "2025-11-25",
        }
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await self.send(json.dumps(done).encode(), **headers))[0] == 202
        return self

    async def call(self, params, headers=None, **message):
        return await self.send(encoded(params, **message), **(headers or {}))

    async def __call__(self, ctx, call_next):
        """As a middleware of the SDK: note which way a request took."""
        if ctx.method in {"tools/call", "tools/list"}:
            self.passed_by.append(isinstance(ctx.request, ScopedRequest))
        return await call_next(ctx)


def encoded(params, method="tools/call", **message):
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params, **message}).encode()


@asynccontextmanager
async def asking(folder, tokens=()):
    """A session whose tools have been called before."""
    async with Runtime.open(write(folder, TOOLS)) as runtime:
        server = ToolServer(runtime, Options(watch=False))
        address = ListenAddress("127.0.0.1", 8000, tokens=tokens, origins=(PAGE,))
        app = McpApp(server, RequestGuard(address, [8000], PAGE_ACCESS), list, server.count, 10)
        headers = {
            "host": "127.0.0.1:8000",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
        }
        proof = {"authorization": f"Bearer {tokens[0]}"} if tokens else {}
        asked = Asked(app, headers | proof)
        server.sdk.middleware.append(asked)
        async with app.sessions.run():
            await asked.open()
            for name in ("add", "echo", "fail", "count", "slow"):
                await asked.call({"name": name})
            asked.passed_by.clear()
            yield asked


WILDCARD = {"accept": "*/*"}
"""Headers of a request for which the transport is needed to decide whether it takes JSON."""


ADD = {"name": "add", "arguments": {"a": 1, "b": 2}}

SAME = [
    ("tools/call", ADD, 7, None),
    ("tools/call", {**ADD, "_meta": {"traceparent": "00-1-2-01"}}, "seven", None),
    ("tools/call", {"name": "add", "arguments": {"a": "x"}}, 7, None),
    ("tools/call", {"name": "add", "arguments": None}, 7, None),
    ("tools/call", {"name": "echo", "arguments": {"text": "\u00fc\u2028\U0001f600"}}, 7, None),
    ("tools/call", {"name": "echo"}, "", None),
    ("tools/call", {"name": "fail", "arguments": {}}, 7, None),
    ("tools/call", {"name": "add", "arguments": []}, "seven", -32602),
    ("tools/call", {"name": "add", "arguments": {}, "_meta": []}, 7, -32602),
    (
        "tools/call",
        {"name": "add", "arguments": {}, "_meta": {"dev.toolcrib/session": "mine"}},
        7,
        -32602,
    ),
    ("tools/list", {}, 7, None),
    ("tools/list", {"cursor": "bm9uZQ=="}, 7, None),
    ("tools/list", {"cursor": "?"}, 7, -32602),
    ("tools/list", {"cursor": 1}, 7, -32602),
]
"""Method, params and ID of requests, and the code of the error that each ends in, if any."""


async def test_both_ways_give_the_same_answer(tmp_path):
    async with asking(tmp_path) as session:
        for method, params, number, code in SAME:
            direct = await session.call(params, method=method, id=number)
            assert direct == await session.call(params, WILDCARD, method=method, id=number)
            status, headers, body = direct
            assert status == 200
            assert headers[b"content-type"] == b"application/json"
            assert headers[b"content-length"] == b"%d" % len(body)
            answer = json.loads(body)
            assert answer["id"] == number
            assert answer.get("error", {}).get("code") == code
        assert session.passed_by == [True, False] * len(SAME)


async def test_a_list_needs_no_params(tmp_path):
    async with asking(tmp_path) as session:
        listed = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
        _, _, body = await session.send(listed)
        names = [tool["name"] for tool in json.loads(body)["result"]["tools"]]
        assert names == ["add", "count", "echo", "fail", "slow"]
        assert session.passed_by == [True]


async def test_both_ways_belong_to_the_same_session(tmp_path):
    async with asking(tmp_path) as session:
        for headers, said in (({}, "two"), (WILDCARD, "three")):
            _, _, body = await session.call({"name": "count"}, headers)
            assert json.loads(body)["result"]["content"] == [{"type": "text", "text": said}]
        assert session.passed_by == [True, False]


CALL = {"name": "echo", "arguments": {"text": "hi"}}


OTHERS = [
    (encoded({**CALL, "_meta": {"progressToken": 1}}), {}),
    (encoded({"name": "slow"}), {}),
    (encoded({"name": "absent"}), {}),
    (encoded({"name": 1}), {}),
    (encoded(None), {}),
    (encoded(CALL, id=True), {}),
    (encoded(CALL, id=None), {}),
    (encoded(CALL, id=1.5), {}),
    (encoded(CALL, jsonrpc="1.0"), {}),
    (encoded(CALL, more=1), {}),
    (encoded({}, method="ping"), {}),
    (b"[%s]" % encoded(CALL), {}),
    (encoded({"name": "echo", "arguments": {"text": "x" * 70_000}}), {}),
    (encoded(CALL), {"content_type": "text/plain"}),
    (encoded(CALL), {"content_type": "text/application/json"}),
    (encoded(CALL), {"accept": "text/event-stream"}),
    (encoded(CALL), {"mcp-session-id": "0" * 32}),
    (encoded(CALL), {"mcp-protocol-version": "2026-07-28"}),
    (encoded(CALL), {"mcp-protocol-version": "1999-01-01"}),
]
"""Body and headers of requests that are not clearly calls that never wait."""


async def test_the_transport_decides_about_everything_else(tmp_path):
    async with asking(tmp_path) as session:
        for body, headers in OTHERS:
            await session.send(body, **headers)
            assert True not in session.passed_by, (body, headers)
        await session.call(CALL)
        assert session.passed_by[-1]


async def test_a_session_belongs_to_its_token_and_ends_with_it(tmp_path):
    async with asking(tmp_path, TOKENS) as session:
        assert (await session.call(CALL))[0] == 200
        assert (await session.call(CALL, {"authorization": f"Bearer {TOKENS[1]}"}))[0] == 404
        assert (await session.call(CALL, {"authorization": "Bearer guessed"}))[0] == 401
        assert (await session.send(b"", "DELETE"))[0] == 200
        assert (await session.call(CALL))[0] == 404
        assert session.passed_by == [True]


async def test_a_page_may_read_the_answer(tmp_path):
    async with asking(tmp_path) as session:
        _, headers, _ = await session.call(CALL, {"origin": PAGE})
        assert headers[b"access-control-allow-origin"] == PAGE.encode()
        assert session.passed_by == [True]
