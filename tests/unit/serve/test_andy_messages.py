"""Clients of Andy.Acp, over stdio and HTTP, beside clients of MCP.

The requests and the members of answers are those of its documents: `docs/TOOLS_COMPARISON.md` and the example messages of
https://github.com/rivoli-ai/andy-acp.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager

import httpx
import pytest
from mcp.client.client import Client

from toolcrib import Runtime, VirtualClock
from toolcrib.serve.http_common.asgi import InvalidMessage
from toolcrib.serve.http_common.lifecycle import Shutdown
from toolcrib.serve.http_common.listen_address import ListenAddress
from toolcrib.serve.mcp import Options, serve_http
from toolcrib.serve.mcp.andy_messages import as_mcp
from toolcrib.serve.mcp.server import ToolServer
from toolcrib.serve.mcp.stdio import StdioPipes, serve_stdio

ANDY = Options(watch=False, compat="andy")
TOOLS = """
name: calculator
description: Calculates.
category: Utility
tags: [Math, number]
capabilities: [network]
input_schema:
  type: object
  required: [operation, a, b]
  properties: {operation: {enum: [add, divide]}, a: {type: number}, b: {type: number}}
mock:
  rules:
    - when: {args: {operation: divide, b: 0}}
      reply: {error: {code: bad_division, message: Cannot divide by zero}}
    - reply: {result: {result: "{{ args.a + args.b }}", operation: "{{ args.operation }}"}}
---
name: echo
description: Repeats a text.
category: Text
tags: [text]
input_schema: {type: object, required: [text], properties: {text: {type: string}}}
mock: {result: "{{ args.text }}"}
---
name: photo
description: Shows a picture.
mock: {content: [{type: image, data: aGk=, mime_type: image/png}]}
---
name: closed
description: Disabled.
tags: [math]
mock: {result: 1}
"""
PROJECT = "project: shop\nsources: [tools.yaml]\ndisable: [closed]\n"


def tools(folder):
    (folder / "tools.yaml").write_text(TOOLS)
    (folder / "toolcrib.yaml").write_text(PROJECT)
    return Runtime.open(folder, clock=VirtualClock())


class Pipe:
    """A client at the other end of stdin and stdout."""

    def __init__(self, feed, told):
        self._feed, self._told = feed, told
        self._last = 0

    def send(self, method, params=None, **more):
        message = {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}
        os.write(self._feed, json.dumps(message | more).encode() + b"\n")

    async def ask(self, method, params=None):
        self._last += 1
        self.send(method, params, id=self._last)
        answer = json.loads(await self._told.readline())
        assert answer["id"] == self._last
        return answer.get("result", answer.get("error"))


@asynccontextmanager
async def stdio(folder, options=ANDY):
    source, feed = os.pipe()
    unread, target = os.pipe()
    told = asyncio.StreamReader()
    with os.fdopen(unread, "rb") as pipe:
        protocol = asyncio.StreamReaderProtocol(told)
        transport, _protocol = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
        async with asyncio.timeout(60), tools(folder) as runtime:
            pipes = StdioPipes(source, target)
            serving = asyncio.create_task(
                serve_stdio(runtime, options, lambda _line: None, pipes, Shutdown())
            )
            try:
                yield Pipe(feed, told)
            finally:
                os.close(feed)
                await serving
                transport.close()
                os.close(source)
                os.close(target)


@asynccontextmanager
async def andy(folder):
    """A client that has said what the example messages say first."""
    async with stdio(folder) as client:
        hello = {"protocolVersion": "1.0", "clientInfo": {"name": "TestClient", "version": "1.0.0"}}
        greeting = await client.ask("initialize", hello)
        assert greeting["serverInfo"]["name"] == "shop"
        client.send("initialized", {})
        yield client


async def test_a_call_with_parameters_gets_result_and_error(tmp_path):
    async with andy(tmp_path) as client:
        call = {"name": "calculator", "parameters": {"operation": "add", "a": 15, "b": 27}}
        answer = await client.ask("tools/call", call)
        assert answer["result"] == {"result": 42, "operation": "add"}
        assert answer["isError"] is False
        assert "error" not in answer
        assert answer["usage"]["attempts"] == 1
        assert "_meta" not in answer
        call["parameters"] |= {"operation": "divide", "b": 0}
        failed = await client.ask("tools/call", call)
        assert (failed["result"], failed["isError"]) == (None, True)
        assert "Cannot divide by zero" in failed["error"]
        assert (await client.ask("tools/call", {"name": "echo", "parameters": None}))["isError"] is True


async def test_arguments_are_accepted_and_a_client_of_mcp_understands_the_answer(tmp_path):
    async with tools(tmp_path) as runtime:
        for era in ("auto", "legacy"):
            async with Client(ToolServer(runtime, ANDY).sdk, mode=era) as client:
                answer = await client.call_tool("calculator", {"operation": "add", "a": 1, "b": 2})
                assert answer.structured_content == {"result": 3, "operation": "add"}
                assert (await client.call_tool("nothing", {})).is_error
                assert [tool.name for tool in (await client.list_tools()).tools] == [
                    "calculator",
                    "echo",
                    "photo",
                ]


async def test_what_cannot_be_called(tmp_path):
    async with andy(tmp_path) as client:
        unknown = await client.ask("tools/call", {"name": "calculatr", "parameters": {}})
        assert (unknown["isError"], unknown["result"]) == (True, None)
        assert unknown["error"] == "Unknown tool: calculatr"
        disabled = await client.ask("tools/call", {"name": "closed", "parameters": {}})
        assert disabled["isError"] is True
        invalid = await client.ask("tools/call", {"name": "calculator", "parameters": {"a": "x"}})
        assert "operation" in invalid["error"]
        for params, text in (
            ({"parameters": {}}, "Tool name is required"),
            ({"name": "", "parameters": {}}, "Tool name is required"),
            ({"name": "echo", "parameters": {}, "arguments": {}}, "send one of them"),
        ):
            refused = await client.ask("tools/call", params)
            assert refused["code"] == -32602
            assert text in refused["message"]
        assert "code" in await client.ask("tools/call", {"name": "echo", "parameters": [1]})


async def test_content_is_the_result_of_a_tool_without_a_value(tmp_path):
    async with andy(tmp_path) as client:
        answer = await client.ask("tools/call", {"name": "photo", "parameters": {}})
        assert answer["result"] == [{"type": "image", "data": "aGk=", "mime_type": "image/png"}]


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        ({}, ["calculator", "echo", "photo"]),
        ({"category": "utility"}, ["calculator"]),
        ({"tags": ["TEXT", "math"]}, ["calculator", "echo"]),
        ({"capabilities": "Network"}, ["calculator"]),
        ({"capabilities": ["network", "files"]}, []),
        ({"category": "Text", "tags": "number"}, []),
        ({"enabledOnly": True, "category": None}, ["calculator", "echo", "photo"]),
    ],
)
async def test_a_list_is_filtered(tmp_path, filters, names):
    async with andy(tmp_path) as client:
        listed = (await client.ask("tools/list", filters))["tools"]
        assert [tool["name"] for tool in listed] == names
        assert all(tool["inputSchema"]["type"] == "object" and tool["description"] for tool in listed)


async def test_pages_of_a_filtered_list(tmp_path):
    async with stdio(tmp_path, ANDY._replace(page_tools=1)) as client:
        await client.ask("initialize", {"protocolVersion": 1})
        first = await client.ask("tools/list", {"tags": "text, math"})
        second = await client.ask("tools/list", {"tags": "text, math", "cursor": first["nextCursor"]})
        assert [first["tools"][0]["name"], second["tools"][0]["name"]] == ["calculator", "echo"]
        assert "nextCursor" not in second


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        ({"catgory": "Text"}, "Unknown filter `catgory`: did you mean `category`?"),
        ({"xyz": 1}, "Unknown filter `xyz`: known: category, tags, capabilities, enabledOnly"),
        ({"tags": [1]}, "`tags` must be a text or a list of texts"),
        ({"category": 3}, "`category` must be a text or a list of texts"),
        ({"enabledOnly": False}, "`enabledOnly` can only be true: disabled tools are not served"),
    ],
)
async def test_filters_that_are_refused(tmp_path, filters, text):
    async with andy(tmp_path) as client:
        assert await client.ask("tools/list", filters) == {"code": -32602, "message": text}


async def test_over_http(tmp_path):
    said = asyncio.Queue()
    async with tools(tmp_path) as runtime:
        serving = asyncio.create_task(serve_http(runtime, ANDY, ListenAddress(port=0), said.put_nowait))
        async with asyncio.timeout(60):
            while " at http://" not in (line := await said.get()):
                pass
        url = line.partition(" at ")[2].partition(";")[0]
        accepted = {"accept": "application/json, text/event-stream"}
        async with httpx.AsyncClient(headers=accepted, timeout=60) as client:

            async def ask(method, params, session=""):
                message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
                headers = {"mcp-session-id": session} if session else {}
                answer = await client.post(url, json=message, headers=headers)
                data = answer.text.partition("data: ")[2] or answer.text
                return json.loads(data), answer.headers.get("mcp-session-id", session)

            greeting, session = await ask("initialize", {"protocolVersion": "1.0"})
            assert greeting["result"]["serverInfo"]["name"] == "shop"
            call = {"name": "calculator", "parameters": {"operation": "add", "a": 1, "b": 2}}
            # The first call of a tool takes the transport of the SDK, and a later one does not.
            for _ in range(2):
                answer, _ = await ask("tools/call", call, session)
                assert answer["result"]["result"] == {"result": 3, "operation": "add"}
            refused, _ = await ask("tools/call", {"parameters": {}}, session)
            assert refused["error"]["message"] == "Tool name is required"
        serving.cancel()
        await asyncio.wait([serving])


async def test_without_the_option_only_mcp_is_spoken(tmp_path):
    async with stdio(tmp_path, Options(watch=False)) as client:
        refused = await client.ask("initialize", {"protocolVersion": "1.0"})
        assert refused["code"] == -32602
        hello = {
            "protocolVersion": "2025-11-25",
            "clientInfo": {"name": "c", "version": "1"},
            "capabilities": {},
        }
        await client.ask("initialize", hello)
        answer = await client.ask("tools/call", {"name": "echo", "arguments": {"text": "hi"}})
        assert (
            answer == {"content": [{"type": "text", "text": "hi"}], "isError": False}
            or "result" not in answer
        )


def test_other_messages_are_unchanged():
    for message in (
        None,
        [],
        3,
        {"method": "ping", "id": 1},
        {"method": "tools/call", "params": {"name": "a"}},
    ):
        assert as_mcp(message) is message
    with pytest.raises(InvalidMessage) as refused:
        as_mcp({"method": "tools/call", "id": "x", "params": [1]})
    assert refused.value.request == "x"
