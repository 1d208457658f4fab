"""`mode: mcp` without a server, with real servers: nothing is started by listing, and a call finds the server."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from toolcrib.cli import exit_codes

SERVER = str(Path(__file__).parents[2] / "listing_server.py")
READ = {"name": "read_file", "description": "Reads.", "inputSchema": {"type": "object"}}
NOW = {"name": "now", "description": "Tells the time.", "inputSchema": {"type": "object"}}


@pytest.fixture
def project(write):
    """Writes a project with a server for each list of tools, and the descriptor `read_file` in PromptKit's flat form."""

    def put(**servers):
        blocks = {
            name: {"command": sys.executable, "args": ["-S", SERVER, f"{name}.json", "1.0"]}
            for name in servers
        }
        tool = {
            "name": "read_file",
            "description": "Reads.",
            "inputSchema": {"type": "object"},
            "mode": "mcp",
        }
        files = {f"{name}.json": json.dumps(tools) for name, tools in servers.items()}
        named = f"project: p\nsources: [tools]\nservers: {json.dumps(blocks)}\n"
        return write({"toolcrib.yaml": named, "tools/read_file.tool.json": json.dumps(tool), **files})

    return put


def started(folder):
    return sorted(path.name for path in folder.glob("*.started"))


def test_listing_starts_no_server_and_a_call_finds_it(project, toolcrib):
    folder = project(fs=[READ], time=[NOW])
    assert toolcrib("list").stdout.startswith("read_file  mcp  Reads.\n")
    assert toolcrib("show", "read_file").exit_code == exit_codes.OK
    assert started(folder) == []
    result = toolcrib("call", "read_file")
    assert (result.exit_code, result.stdout) == (exit_codes.OK, "done\n")
    assert started(folder) == ["fs.json.started", "time.json.started"]


def test_what_servers_said_before_is_known_to_lists(project, document, toolcrib):
    project(fs=[READ], time=[NOW])
    toolcrib("call", "read_file")
    assert document("show", "read_file", "--json")["bindings"]["mcp"] == {"server": "fs", "tool": "read_file"}


def test_two_servers_with_the_tool_are_named(project, toolcrib):
    project(fs=[READ], web=[READ])
    result = toolcrib("call", "read_file")
    assert result.exit_code == exit_codes.OF_OUTCOME["unavailable"]
    assert (
        "several servers offer the tool `read_file`: `fs`, `web`; `read_file` must name one of them"
        in result.stderr
    )
    assert "write `mcp: {server: fs, tool: read_file}`" in result.stderr
    checked = toolcrib("validate")
    assert (
        "tools/read_file.tool.json:1:91: warning: ambiguous_server: several servers"
        in checked.stderr + checked.stdout
    )


def test_without_any_server_the_call_says_so(write, toolcrib):
    write({"x.tool.yaml": "name: read_file\nmode: mcp\n"})
    result = toolcrib("call", "read_file", "--pack", "x.tool.yaml")
    assert result.exit_code == exit_codes.OF_OUTCOME["unavailable"]
    assert "`read_file` names no server; no server is configured" in result.stderr
    assert "add one under `servers` in toolcrib.yaml" in result.stderr


def test_what_is_trusted_does_not_depend_on_what_is_known(project, toolcrib, monkeypatch):
    monkeypatch.delenv("TOOLCRIB_TRUST")
    project(fs=[READ], time=[NOW])
    before = json.loads(toolcrib("trust", "--dry-run", "--json").stdout)["workspaces"][0]["hash"]
    monkeypatch.setenv("TOOLCRIB_TRUST", before)
    assert toolcrib("call", "read_file").exit_code == exit_codes.OK
    assert json.loads(toolcrib("trust", "--dry-run", "--json").stdout)["workspaces"][0]["hash"] == before


def test_a_pack_from_elsewhere_gets_no_server_without_trust(project, write, toolcrib, monkeypatch):
    folder = project(fs=[READ], time=[NOW])
    write(
        {"toolcrib.yaml": (folder / "toolcrib.yaml").read_text().replace("sources: [tools]", "sources: []")}
    )
    other = folder.parent / "other-pack"
    other.mkdir(exist_ok=True)
    (other / "pack.yaml").write_text("name: other\nversion: 1.0.0\n")
    (other / "reader.tool.yaml").write_text("name: read_file\nmode: mcp\n")
    trusted = json.loads(toolcrib("trust", "--dry-run", "--json").stdout)["workspaces"][0]["hash"]
    monkeypatch.setenv("TOOLCRIB_TRUST", trusted)
    result = toolcrib("call", "read_file", "--pack", str(other))
    assert result.exit_code == exit_codes.OF_OUTCOME["denied"]
    assert started(folder) == []
    # Nothing of that refusal is remembered.
    monkeypatch.setenv("TOOLCRIB_TRUST", "all")
    assert toolcrib("call", "read_file", "--pack", str(other)).stdout == "done\n"


def test_a_lock_is_suggested_once_at_a_terminal(project, toolcrib, on_terminal):
    project(fs=[READ])
    hint = "hint: servers are queried at each start; `toolcrib lock` stores what they offer"
    assert hint not in toolcrib("validate").stderr
    assert on_terminal("validate")[1].count(hint) == 1
    assert hint not in on_terminal("validate")[1]


def test_no_lock_is_suggested_if_there_is_one(project, toolcrib, on_terminal):
    project(fs=[READ])
    assert toolcrib("lock").exit_code == exit_codes.OK
    assert "toolcrib lock" not in on_terminal("validate")[1]
