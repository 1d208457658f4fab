"""Values that FastMCP wraps, and texts that repeat values: what the tool, the lock, files, models and clients see."""

from __future__ import annotations

import json
import sys

import pytest

from loop_models import FREE, Model, asks, loop, says
from sampling import sample
from serving_mcp import ERAS, connected
from toolcrib import Outcome, Runtime
from toolcrib.cli import exit_codes

SERVER = """
import json, sys

def wrapped(inner):
    schema = {"type": "object", "properties": {"result": inner}, "required": ["result"], "x-fastmcp-wrap-result": True}
    return {**schema, "$defs": {"n": {"type": "integer"}}}

META = {"fastmcp": {"wrap_result": True}}
TEXT = {"type": "object", "properties": {"content": {"type": "string"}}, "required": ["content"]}
TOOLS = {
    "numbers": (wrapped({"type": "array", "items": {"$ref": "#/$defs/n"}}), {"result": [1, 2]}, "[\\n 1,\\n 2\\n]"),
    "wrong": (wrapped({"type": "array", "items": {"$ref": "#/$defs/n"}}), {"result": ["a"]}, '["a"]'),
    "read": (TEXT, {"content": "hello\\n"}, "hello\\n"),
}
for line in sys.stdin:
    asked = json.loads(line)
    method, params = asked["method"], asked.get("params") or {}
    if method == "initialize":
        told = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "f", "version": "1"}}
    elif method == "tools/list":
        told = {"tools": [{"name": n, "inputSchema": {"type": "object"}, "outputSchema": t[0]} for n, t in TOOLS.items()]}
    elif method == "tools/call":
        _schema, value, text = TOOLS[params["name"]]
        told = {"content": [{"type": "text", "text": text}], "structuredContent": value}
        if "result" in value:
            told["_meta"] = META
    else:
        told = None
    if "id" in asked:
        answer = {"error": {"code": -32601, "message": "Method not found"}} if told is None else {"result": told}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""

INNER = {"$defs": {"n": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/n"}}


@pytest.fixture
def project(write):
    server = {"command": sys.executable, "args": ["-S", "server.py"], "import": True, "era": "handshake"}
    config = {"project": "p", "servers": {"fast": server}}
    return write({"server.py": SERVER, "toolcrib.yaml": json.dumps(config)})


async def test_the_tool_has_the_schema_of_its_value(project):
    async with Runtime.open(project, trust=True) as runtime:
        assert runtime.registry["fast__numbers"].output_schema == INNER
        result = await runtime.call("fast__numbers")
        assert (result.value, result.content) == ([1, 2], ())
        wrong = await runtime.call("fast__wrong")
        assert (wrong.outcome, wrong.raw_value) == (Outcome.INVALID_RESULT, ["a"])


async def test_a_model_reads_a_value_once(project):
    async with Runtime.open(project, trust=True) as runtime:
        conversation = await loop(
            Model(asks("fast__numbers", "fast__read"), says("Done.")), FREE, runtime
        ).run("go")
        told = [result.text for message in conversation.messages for result in message.results]
        assert told == ["[1,2]", '{"content":"hello\\n"}']
        assert [record.content for record in conversation.calls] == [(), ()]


@pytest.mark.parametrize("era", sample(ERAS, one_in=2))
async def test_a_client_reads_a_value_once_as_text_and_once_as_value(project, era):
    async with connected("stdio", era, project) as served:
        read = await served.call_tool("fast__read", {})
        assert [part.text for part in read.content] == ['{"content":"hello\\n"}']
        assert read.structured_content == {"content": "hello\n"}
        numbers = await served.call_tool("fast__numbers", {})
        assert [part.text for part in numbers.content] == ["[1,2]"]
        assert numbers.structured_content == ([1, 2] if era == ERAS[1] else None)


def test_the_lock_holds_what_the_server_said_and_files_hold_the_value(project, toolcrib):
    assert toolcrib("lock").exit_code == exit_codes.OK
    assert "x-fastmcp-wrap-result" in (project / "toolcrib.lock").read_text()
    assert toolcrib("lock", "--check").exit_code == exit_codes.OK
    assert json.loads(toolcrib("call", "fast__numbers").stdout) == [1, 2]
    written = toolcrib("import", "mcp", "fast", "--only", "numbers", "--out", "descriptors")
    assert written.exit_code == exit_codes.OK
    assert "x-fastmcp-wrap-result" not in (project / "descriptors" / "fast__numbers.tool.yaml").read_text()
    assert toolcrib("validate").exit_code == exit_codes.OK
    assert json.loads(toolcrib("call", "fast__numbers").stdout) == [1, 2]


def test_a_file_with_the_wrapped_schema_still_works(project, toolcrib):
    schema = {
        "type": "object",
        "properties": {"result": {"type": "array"}},
        "required": ["result"],
        "x-fastmcp-wrap-result": True,
    }
    mine = {"name": "mine", "output_schema": schema, "mcp": {"server": "fast", "tool": "numbers"}}
    (project / "descriptors").mkdir()
    (project / "descriptors" / "mine.tool.json").write_text(json.dumps(mine))
    assert json.loads(toolcrib("call", "mine").stdout) == {"result": [1, 2]}
