"""Servers that ask by themselves, which only the older era allows, and servers that return what they ask."""

from __future__ import annotations

import json

import pytest

import mcp_sdk_server
from mcp_calling import Calling
from sampling import sample
from toolcrib import Outcome
from toolcrib.core.server_config import Server

DESK = """
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult
from pydantic import BaseModel

server = MCPServer("desk")


class Order(BaseModel):
    size: str = "small"


@server.tool()
async def ask(ctx: Context) -> str:
    return (await ctx.elicit("Which coffee?", Order)).action


@server.tool()
async def returns(ctx: Context) -> str | InputRequiredResult:
    if ctx.input_responses:
        return ctx.input_responses["size"].action
    form = ElicitRequestFormParams(message="Which?", requested_schema=Order.model_json_schema())
    return InputRequiredResult(input_requests={"size": ElicitRequest(params=form)})


server.run()
"""

RAW = """
import json, sys

asked, words = sys.argv[1], sys.argv[2:]
MODERN = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    number, method = message.get("id"), message.get("method")
    told = {"capabilities": {"tools": {}}, "serverInfo": {"name": "raw", "version": "1"}}
    if method == "server/discover":
        say(id=number, result={**MODERN, **told, "supportedVersions": ["2026-07-28"]})
    elif method == "initialize" and "modern only" not in words:
        say(id=number, result={**told, "protocolVersion": "2025-11-25"})
    elif method == "tools/list":
        say(id=number, result={**MODERN, "tools": [{"name": "ask", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call" and "/" in asked:
        fields = {"milk": {"type": "boolean", "default": True}, "note": {"type": "string", "default": None}}
        call, params = number, {"message": "Which?", "requestedSchema": {"type": "object", "properties": fields}}
        if asked.startswith("sampling"):
            params = {"messages": [], "maxTokens": 10}
        say(id="asked", method=asked, params=params)
    elif method == "tools/call":
        say(id=number, result={**MODERN, "content": [{"type": "text", "text": asked}], "isError": True})
    elif number == "asked":
        text = json.dumps(message.get("result") or message.get("error"))
        say(id=call, result={**MODERN, "content": [{"type": "text", "text": text}], "isError": "error" in message})
    elif number is not None and method is not None:
        say(id=number, error={"code": -32601, "message": "Method not found"})
"""

ERA = "the server `desk` sends requests as in protocols before 2026-07-28: add `era: handshake`"
PLACE = " under `servers.desk` in toolcrib.yaml"
HOOK = " and `{}: package.module:function`"

FASTMCP = "elicitation via server-initiated requests is unavailable on 2026-07-28 connections."
GUARD = "Tool 'ask' returned an InputRequiredResult to request client input, but (SEP-2322)"


@pytest.fixture
def desk(tmp_path):
    (tmp_path / "desk.py").write_text(DESK)
    return Server("desk", command=mcp_sdk_server.PYTHON, args=(str(tmp_path / "desk.py"),))


@pytest.fixture
def raw(tmp_path):
    (tmp_path / "raw.py").write_text(RAW)

    def of(*words, **fields):
        return Server(
            "desk", command=mcp_sdk_server.PYTHON, args=(str(tmp_path / "raw.py"), *words), **fields
        )

    return of


async def test_a_hook_answers_a_server_of_both_eras_that_asks_by_itself(desk):
    async with Calling(desk._replace(elicitation="mcp_hooks:answer"), "ask") as calling:
        assert (await calling.call("ask")).value == {"result": "accept"}


async def test_without_a_hook_the_call_says_what_to_write(desk):
    async with Calling(desk, "ask") as calling:
        result = await calling.call("ask")
        assert result.outcome is Outcome.TOOL_ERROR
        assert result.message.endswith(ERA + HOOK.format("elicitation") + PLACE)


async def test_what_a_server_returns_to_ask_needs_the_other_era(desk):
    asking = desk._replace(elicitation="mcp_hooks:answer")
    async with Calling(asking, "returns") as calling:
        result = await calling.call("returns")
        assert result.outcome is Outcome.TOOL_ERROR
        assert result.message.endswith("add `era: modern`" + PLACE)
    async with Calling(asking._replace(era="modern"), "returns") as calling:
        assert (await calling.call("returns")).value == {"result": "accept"}


@pytest.mark.parametrize(
    ("method", "hook", "value"),
    sample([
        ("elicitation/create", {"elicitation": "mcp_hooks:answer"}, {"action": "accept", "content": {"size": "large", "milk": True}}),
        ("sampling/createMessage", {"sampling": "mcp_hooks:model"}, {"model": "hook"}),
        ("roots/list", {"sampling": "mcp_hooks:model"}, {"roots": []}),
    ], one_in=3),
)  # fmt: skip
async def test_any_request_that_is_sent_is_answered_where_there_is_a_hook(raw, method, hook, value):
    async with Calling(raw(method, **hook), "ask") as calling:
        told = json.loads((await calling.call("ask")).value)
        assert {key: told[key] for key in value} == value


@pytest.mark.parametrize(
    ("method", "words", "fields", "end"),
    sample(
        [
            ("elicitation/create", (), {}, HOOK.format("elicitation")),
            ("sampling/createMessage", (), {}, HOOK.format("sampling")),
            ("roots/list", (), {}, ""),
            ("elicitation/create", (), {"era": "modern"}, HOOK.format("elicitation")),
            ("elicitation/create", (), {"era": "modern", "elicitation": "mcp_hooks:answer"}, ""),
            ("elicitation/create", ("modern only",), {"elicitation": "mcp_hooks:answer"}, ""),
            (FASTMCP, (), {}, HOOK.format("elicitation")),
            (FASTMCP, (), {"era": "modern", "elicitation": "mcp_hooks:answer"}, ""),
        ],
        one_in=3,
    ),
)
async def test_a_request_that_the_era_does_not_have_is_explained(raw, method, words, fields, end):
    async with Calling(raw(method, *words, **fields), "ask") as calling:
        result = await calling.call("ask")
        assert result.outcome is Outcome.TOOL_ERROR
        assert result.message.endswith(f"; {ERA}{end}{PLACE}")


@pytest.mark.parametrize(
    "fields", sample([{"era": "handshake"}, {"elicitation": "mcp_hooks:answer"}], one_in=2)
)
async def test_a_text_that_names_the_newer_result_is_explained(raw, fields):
    async with Calling(raw(GUARD, **fields), "ask") as calling:
        result = await calling.call("ask")
        assert result.message.endswith("add `era: modern`" + PLACE)


async def test_a_server_of_the_newer_era_alone_is_used_with_a_hook_too(raw):
    asking = raw("sorry", "modern only", elicitation="mcp_hooks:answer")
    async with Calling(asking, "ask") as calling:
        result = await calling.call("ask")
        assert (result.outcome, result.message) == (Outcome.TOOL_ERROR, "sorry")
