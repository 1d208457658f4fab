"""`mcp_servers` of an arena in direct runs: their tools are listed, called and used in scenarios, once they are trusted."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from arenas import arena_files, manifest
from sampling import sample
from toolcrib.cli import exit_codes

SERVER = str(Path(__file__).parents[2] / "mcp_scripts.py")

ANSWERS = """
scenarios:
  one:
    turns:
      1: {tool_calls: [{name: mcp__fs__echo, arguments: {text: hello}}]}
      2: Found it.
      3: You are welcome.
"""

TURNS = """
turns:
  - role: user
    content: Look it up.
    assertions:
      - {type: tools_called, params: {tools: [mcp__fs__echo]}}
      - {type: tool_result_includes, params: {tool: mcp__fs__echo, patterns: [hello]}}
  - {role: user, content: Thanks.}
"""


@pytest.fixture
def arena(write):
    """Writes the arena `a`, whose server `fs` is a real one, and returns the folder above it."""

    def put(**env):
        server = {"name": "fs", "command": sys.executable, "args": ["-S", SERVER], "env": env}
        files = arena_files(
            f"mcp_servers: [{json.dumps(server)}]",
            scenario=TURNS,
            answers=ANSWERS,
            prompt='task_type: help\nsystem_template: Help.\nallowed_tools: ["mcp__fs__*"]',
        )
        return write({f"a/{name}": text for name, text in files.items()})

    return put


@pytest.mark.parametrize(
    "path", sample(["a", "a/config.arena.yaml", "a/scenarios/one.scenario.yaml"], one_in=3)
)
def test_a_direct_run_uses_the_servers(arena, document, path):
    arena()
    (scenario,) = document("run", path, "--json")["scenarios"]
    assert scenario["verdict"] == "passed"
    assert [step["result"]["outcome"] for step in scenario["steps"]] == ["ok"]


def test_a_tool_of_a_server_is_called(arena, toolcrib):
    arena()
    result = toolcrib("call", "mcp__fs__echo", "text=hello", "--pack", "a")
    assert (result.exit_code, json.loads(result.stdout)) == (exit_codes.OK, {"text": "hello"})


def test_an_environment_is_added_and_replaces_no_path(arena, toolcrib):
    arena(PATH="Make sure node is on your path", LEVEL="7")
    result = toolcrib("call", "mcp__fs__environ", "--pack", "a")
    found = json.loads(result.stdout)
    assert found["LEVEL"] == "7"
    assert found["PATH"].split(os.pathsep) == [
        "Make sure node is on your path",
        *os.environ["PATH"].split(os.pathsep),
    ]


def test_a_program_is_found_in_the_path_of_the_caller(arena, toolcrib, monkeypatch):
    folder = arena(PATH="Make sure node is on your path")
    (folder / "bin").mkdir()
    (folder / "bin/serve-fs").symlink_to(sys.executable)
    config = folder / "a/config.arena.yaml"
    config.write_text(config.read_text().replace(sys.executable, "serve-fs"))
    monkeypatch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert toolcrib("call", "mcp__fs__echo", "--pack", "a").exit_code == exit_codes.OK


def test_nothing_is_started_before_it_is_trusted(arena, toolcrib, monkeypatch):
    monkeypatch.delenv("TOOLCRIB_TRUST")
    arena(PATH="x")
    result = toolcrib("run", "a")
    assert result.exit_code == exit_codes.OF_OUTCOME["denied"]
    assert "one (a/scenarios/one.scenario.yaml:1): denied: the folder" in result.stdout
    shown = toolcrib("trust", "a", "--dry-run", "--json")
    (workspace,) = json.loads(shown.stdout)["workspaces"]
    # `${PATH}` is inherited by every server, so it is not something to read.
    assert [need["kind"] for need in workspace["needs"]] == ["start"]
    monkeypatch.setenv("TOOLCRIB_TRUST", workspace["hash"])
    assert toolcrib("run", "a").exit_code == exit_codes.OK


def test_listing_starts_no_server(arena, toolcrib):
    arena()
    result = toolcrib("list", "a")
    assert result.stdout == "look_up  mock  Looks it up.\n1 tool: 1 mock; 1 server not queried\n"
    assert result.stderr.startswith("server `mcp__fs`: not queried\n")


def test_a_server_that_is_down_is_reported(arena, toolcrib):
    folder = arena()
    config = folder / "a/config.arena.yaml"
    config.write_text(config.read_text().replace(json.dumps(sys.executable), "no-such-command"))
    result = toolcrib("run", "a")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "the command of the server `mcp__fs`, `no-such-command`, was not found in PATH" in result.stderr
    assert "1 scenario could not be run" in result.stdout


REQUIRED = 'task_type: help\nallowed_tools: ["mcp__fs__*"]\ntool_policy: {tool_choice: required}'


@pytest.mark.parametrize("verb", sample(["run", "validate"], one_in=2))
def test_a_required_choice_is_met_by_the_tools_of_a_server(arena, toolcrib, verb):
    folder = arena()
    (folder / "a/prompts/help.yaml").write_text(manifest("PromptConfig", "help", REQUIRED), encoding="utf-8")
    result = toolcrib(verb, "a")
    assert (result.exit_code, "contradiction" in result.output) == (exit_codes.OK, False), result.output


def test_a_choice_that_nothing_can_meet_is_a_warning_and_the_scenario_runs(write, toolcrib):
    write(
        arena_files(prompt="task_type: help\nallowed_tools: [nosuch]\ntool_policy: {tool_choice: required}")
    )
    result = toolcrib("run", ".")
    assert (
        "warning: contradiction: `tool_choice` requires a call, but the policy allows no tool"
        in result.stderr
    )
    assert "; until then the model chooses freely" in result.stderr
    assert result.exit_code == exit_codes.OK, result.output
