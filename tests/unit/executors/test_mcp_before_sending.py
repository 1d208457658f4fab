"""Calls that a server has answered before they are sent, and one that it has not heard."""

from __future__ import annotations

import json
import sys

import listing_server
from http_servers import raw_answer, serving
from mcp_calling import Calling, http_server
from mcp_listing import listing
from mcp_over_http import answer_to, speaking
from mcp_scripts import scripted
from toolcrib.core.model import Outcome
from toolcrib.core.server_config import Server


def offering(folder, *tools):
    file = folder / "tools.json"
    file.write_text(json.dumps(tools))
    entry = listing(file)
    return Server("shop", command=entry["command"], args=tuple(entry["args"]))


def at(server):
    return http_server(f"{server.origin}/mcp", era="handshake")


async def test_a_tool_that_is_not_listed_is_not_called(tmp_path):
    log = tmp_path / "log"
    async with Calling(scripted(f"log={log}"), "ecco") as calling:
        result = await calling.call("ecco")
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "unknown_remote_tool")
        assert result.message == "the server `scripted` has no tool `ecco`; did you mean `echo`?"
    assert "tools/call" not in log.read_text()


async def test_a_tool_that_was_added_without_a_word_is_found(tmp_path):
    file = tmp_path / "tools.json"
    file.write_text(json.dumps([{"name": "old", "inputSchema": {"type": "object"}}]))
    server = Server("shop", command=sys.executable, args=("-S", listing_server.__file__, str(file), "1"))
    async with Calling(server, "old", "new") as calling:
        assert (await calling.call("new")).error.code == "unknown_remote_tool"
        file.write_text(json.dumps([{"name": "new", "inputSchema": {"type": "object"}}]))
        assert (await calling.call("new")).value == "done"


async def test_a_tool_whose_definition_is_refused_may_be_called_by_a_schema_of_ones_own(tmp_path):
    server = offering(tmp_path, {"name": "bad", "inputSchema": "none"})
    async with Calling(server, "bad") as calling:
        assert (await calling.call("bad")).outcome is Outcome.OK


async def test_a_fixed_argument_that_the_tool_does_not_take_is_told(tmp_path):
    schema = {"type": "object", "properties": {"zone": {"type": "string"}}, "additionalProperties": False}
    server = offering(tmp_path, {"name": "now", "inputSchema": schema})
    tools = [{"name": "now", "mcp": {"args": {"zon": "UTC"}}}, {"name": "fine", "mcp": {"tool": "now", "args": {"zone": "UTC"}}}]  # fmt: skip
    async with Calling(server, *tools) as calling:
        result = await calling.call("now")
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "unknown_fixed_argument")
        assert result.message == (
            "`now`: the tool `now` of the server `shop` has no such argument: "
            "`mcp.args` sets `zon`; did you mean `zone`?"
        )
        assert (await calling.call("fine")).outcome is Outcome.OK


async def test_a_call_whose_session_is_over_goes_over_a_new_one():
    calls = []

    async def once_unknown(_reader, writer, head):
        calls.append(head.json["method"])
        if len(calls) == 1:
            writer.write(raw_answer(404))
        else:
            body = json.dumps(answer_to(head.json)).encode()
            writer.write(raw_answer(200, {"Content-Type": "application/json"}, body))

    async with serving(speaking(calls=once_unknown)) as server, Calling(at(server), "echo") as calling:
        result = await calling.call("echo", {"text": "x"})
    assert (result.value, calls) == ('{"text": "x"}', ["tools/call", "tools/call"])


async def test_a_server_that_knows_no_session_is_asked_twice_and_no_more():
    calls = []

    async def never_known(_reader, writer, head):
        calls.append(head.json["method"])
        writer.write(raw_answer(404))

    async with serving(speaking(calls=never_known)) as server, Calling(at(server), "echo") as calling:
        result = await calling.call("echo", {"text": "x"})
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "session_over")
    assert "may_have_acted" not in result.error.details
    assert len(calls) == 2
