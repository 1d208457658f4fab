"""The ACP client with agents of other makers: the official SDK for TypeScript, Claude Code and Gemini CLI.

The models of the last two are aimock, so that they need no key and no network. Their packages have 100 MB each, so that these
tests are among the exhaustive ones.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import aimock
from acp_agents import Dialogue, driving, ends, text_of
from acp_editors import TYPESCRIPT_SDK
from in_memory import runtime_of
from npm_packages import NODE, installed

HERE = Path(__file__).parents[1]
NODE_PROGRAM = str(NODE / "bin" / "node")
FIXTURES = HERE / "acp_agents_fixtures.json"

TOOLS = """
name: get_order
description: The state of an order.
annotations: {read_only: true}
input_schema: {type: object, properties: {id: {type: string}}}
mock: {result: {status: paid}}
"""


async def test_an_agent_of_the_typescript_sdk_uses_files_a_terminal_and_permissions(tmp_path):
    with installed(*TYPESCRIPT_SDK) as sdk:
        command = [NODE_PROGRAM, str(HERE / "acp_agent.mjs"), str(sdk / "dist" / "v1" / "stable" / "acp.js")]
        async with driving(*command, roots=[tmp_path], approved=["edit"]) as agent:
            dialogue = Dialogue(agent)
            segments, result = await dialogue.say("go")
            assert result.ok
            assert result.usage == {"totalTokens": 3, "inputTokens": 1, "outputTokens": 2}
            assert [segment.kind for segment in segments] == ["user", "call", "text"]
            assert ends(segments)["call-1"][:2] == ("completed", "ok")
            # The command has a pipe, so that it runs in a shell.
            assert text_of(segments) == "0: 1"
            turn = agent.prompt("wait")
            async for event in turn:
                if event.type == "text":
                    await turn.cancel()
            assert turn.result.stop == "cancelled"
            assert [*agent.problems] == []
        assert (tmp_path / "written.txt").read_text() == "by TypeScript\n"


CLAUDE = ("@zed-industries/claude-code-acp", "0.16.2")
GEMINI = ("@google/gemini-cli", "0.61.0")


@pytest.mark.exhaustive
async def test_claude_code_calls_a_tool_after_its_permission(tmp_path):
    with installed(*CLAUDE) as package, aimock.running(fixtures=FIXTURES) as model:
        env = {
            "ANTHROPIC_BASE_URL": model.origin,
            "ANTHROPIC_API_KEY": "sk-ant-mock",
            "HOME": str(tmp_path / "home"),
            "PATH": os.pathsep.join([str(NODE / "bin"), os.environ["PATH"]]),
        }
        await _calls_the_tool([NODE_PROGRAM, str(package / "dist" / "index.js")], env, tmp_path, "Claude")


@pytest.mark.exhaustive
async def test_gemini_cli_calls_a_tool_after_its_permission(tmp_path):
    with installed(*GEMINI) as package, aimock.running(fixtures=FIXTURES) as model:
        program = json.loads((package / "package.json").read_text())["bin"]["gemini"]
        env = {
            "GOOGLE_GEMINI_BASE_URL": model.origin,
            "GEMINI_API_KEY": "mock",
            # MCP servers are used only in a folder that is trusted.
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "HOME": str(tmp_path / "home"),
        }
        # Without the name of a model, another model is asked first which one to use.
        options = ["--experimental-acp", "--model", "gemini-2.5-flash"]
        await _calls_the_tool([NODE_PROGRAM, str(package / program), *options], env, tmp_path, "Gemini")


async def _calls_the_tool(command: list[str], env: dict[str, str], folder: Path, name: str) -> None:
    """An agent calls the tool if a person permits it, and not if the person rejects it."""
    for each in ("home", "work"):
        (folder / each).mkdir()
    asked = []

    async def ask(question):
        asked.append(question)
        wanted = "allow_once" if len(asked) == 1 else "reject_once"
        return next((option for option in question.options if option.kind == wanted), None)

    async with runtime_of(TOOLS, clock=None) as runtime:
        options = {"runtime": runtime, "roots": [folder / "work"], "ask": ask, "env": env}
        async with driving(*command, **options) as agent:
            dialogue = Dialogue(agent)
            segments, result = await dialogue.say(f"Where is order seven for {name}?")
            assert result.ok, result
            assert text_of(segments).endswith("The order is paid.")
            assert [end[:2] for end in ends(segments).values()] == [("completed", "ok")]
            assert '"status":"paid"' in "".join(end[2] for end in ends(segments).values()).replace(" ", "")
            segments, result = await dialogue.say(f"Where is order seven for {name}, again?")
            # Gemini CLI does not report that the rejected call has ended; its turn has.
            assert [end[0] for end in ends(segments).values()] == ["failed"]
        assert len(asked) == 2
        assert [dict(row.outcomes) for row in runtime.statistics.rows] == [{("ok", ""): 1}]
