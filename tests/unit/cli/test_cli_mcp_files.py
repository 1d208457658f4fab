"""`--mcp FILE`: the tools of a client's servers at once, without a project; and what doctor says of servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from toolcrib.cli import exit_codes

SERVER = str(Path(__file__).parents[2] / "listing_server.py")
NOW = {
    "name": "now",
    "description": "The time in a zone.",
    "inputSchema": {"type": "object", "properties": {"zone": {"type": "string"}}, "required": ["zone"]},
}
FAR = {"name": "far", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "https://x.test/s"}}}}


@pytest.fixture
def named(tmp_path, monkeypatch):
    """Writes `.mcp.json` with a server for each list of tools; None is one that can't be started."""
    monkeypatch.chdir(tmp_path)

    def write(**servers):
        said = {}
        for name, tools in servers.items():
            (tmp_path / f"{name}.json").write_text(json.dumps(tools))
            command = sys.executable if tools is not None else "no-such-command"
            said[name] = {"command": command, "args": ["-S", SERVER, f"{name}.json", "1.0"]}
        (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": said}))
        return tmp_path

    return write


def test_the_tools_of_a_clients_file_are_listed_shown_found_and_called(named, toolcrib):
    folder = named(clock=[NOW])
    before = toolcrib("list", "--mcp", ".mcp.json")
    assert before.stdout == "no known tools; 1 server not queried\n"
    assert before.stderr.startswith("server `clock`: not queried\n")
    assert not (folder / "clock.json.started").exists()
    toolcrib("doctor", "--mcp", ".mcp.json")
    listed = toolcrib("list", "--mcp", ".mcp.json")
    assert listed.stdout == "clock__now  mcp  The time in a zone.\n1 tool: 1 mcp\n"
    assert listed.stderr.startswith("server `clock`: not queried; showing its answer of 20")
    shown = toolcrib("--mcp", ".mcp.json", "show", "clock__now")
    assert ".mcp.json:1" in shown.stdout
    assert "zone  string  required" in shown.stdout
    assert toolcrib("search", "time", "--mcp", ".mcp.json").stdout.startswith("clock__now")
    called = toolcrib("call", "--mcp", ".mcp.json", "clock__now", "zone=UTC")
    assert (called.exit_code, called.stdout) == (exit_codes.OK, "done\n")
    assert called.stderr == ""


def test_a_call_starts_no_other_server(named, toolcrib):
    folder = named(clock=[NOW], other=[NOW])
    toolcrib("call", "--mcp", ".mcp.json", "clock__now", "zone=UTC")
    assert not (folder / "other.json.started").exists()


def test_near_misses_are_told_of_every_server(named, toolcrib):
    named(clock=[NOW])
    missed = toolcrib("call", "--mcp", ".mcp.json", "clok__now", "zone=UTC")
    assert missed.exit_code == exit_codes.OF_OUTCOME["not_found"]
    assert "did you mean `clock__now`?" in missed.stderr


def test_a_server_that_is_down_and_a_tool_that_is_no_good_are_told(named, toolcrib):
    named(clock=[NOW, FAR], gone=None)
    checked = toolcrib("validate", "--mcp", ".mcp.json")
    assert checked.exit_code == exit_codes.PROBLEMS
    assert ".mcp.json:1:" in checked.stdout
    assert "server_down: the command of the server `gone`, `no-such-command`, was not found" in checked.stdout
    assert "server_remark: the tool `far` of the server `clock` is not offered" in checked.stdout
    listed = toolcrib("list", "--mcp", ".mcp.json")
    assert listed.stdout == "clock__now  mcp  The time in a zone.\n1 tool: 1 mcp; 1 server not queried\n"
    down = toolcrib("call", "--mcp", ".mcp.json", "gone__now")
    assert down.exit_code == exit_codes.OF_OUTCOME["unavailable"]
    assert "`no-such-command`, was not found" in down.stderr
    refused = toolcrib("call", "--mcp", ".mcp.json", "clock__far")
    assert (
        "the tool `far` of the server `clock` is not offered: `https://x.test/s` is outside" in refused.stderr
    )


def test_doctor_asks_every_server(named, toolcrib, document):
    named(clock=[NOW], gone=None)
    told = document("doctor", "--mcp", ".mcp.json", "--json")
    clock, gone = told["servers"]
    assert (clock["name"], clock["transport"], clock["tools"], clock["fault"]) == ("clock", "stdio", 1, None)
    assert "was not found" in gone["fault"]
    assert not told["healthy"]
    assert told["tools"]["modes"] == {"mcp": 1}
    page = toolcrib("doctor", "--mcp", ".mcp.json")
    assert page.exit_code == exit_codes.PROBLEMS
    assert "1 tool, MCP " in page.stdout
    assert "cannot be used" in page.stdout


def test_doctor_tells_what_a_lock_has_against_a_server(named, toolcrib):
    folder = named(clock=[NOW])
    toolcrib("lock", "--mcp", ".mcp.json")
    (folder / "clock.json").write_text(json.dumps([{**NOW, "description": "Another."}]))
    page = toolcrib("doctor", "--mcp", ".mcp.json").stdout
    assert "the tool `now` of the server `clock` differs from the lock: description changed" in page
