"""`toolcrib chat` with servers of others: a model behind HTTP, tools behind MCP."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

from aimock import Aimock
from chatting import install
from mcp_listing import listing
from toolcrib.cli.group import cli
from toolcrib.provider import load_transcript

ADD = """
name: add
description: The sum of two numbers.
input_schema:
  type: object
  properties: {a: {type: number}, b: {type: number}}
  required: [a, b]
mock: {result: "{{ args.a + args.b }}"}
"""


def chat(*words: str, given: str | None = None) -> Any:
    return CliRunner().invoke(
        cli, ["chat", *words], input=given, prog_name="toolcrib", catch_exceptions=False
    )


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "add.tool.yaml").write_text(ADD)
    return tmp_path


@pytest.mark.parametrize("provider", ["openai", "openai_responses", "anthropic"])
def test_a_conversation_of_two_turns_with_a_model_behind_http(aimock: Aimock, folder, provider):
    before = len(aimock.journal())
    words = ("add.tool.yaml", "--provider", provider, "--model", "m", "--base-url", aimock.url(provider))
    given = "add two numbers\nand again\n"
    result = chat(*words, "--system", "Be brief.", "--transcript", "talk.jsonl", given=given)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "> add two numbers",
        '* add {"a":2,"b":3}',
        "  add: ok 5",
        "The sum is 5.",
        "> and again",
        '* add {"a":3,"b":2}',
        "  add: ok 5",
        "Still 5.",
    ]
    assert [message.role for message in load_transcript("talk.jsonl")] == [
        "system",
        *(["user", "assistant", "tool", "assistant"] * 2),
    ]
    sent = aimock.journal()[before:]
    assert len(sent) == 4
    assert all(request["body"]["stream"] for request in sent)
    assert sent[-1]["body"]["messages"][0] == {"role": "system", "content": "Be brief."}


def test_an_error_of_the_service_is_one_block_and_the_conversation_goes_on(aimock: Aimock, folder):
    words = ("add.tool.yaml", "--provider", "openai", "--model", "m", "--base-url", aimock.url("openai"))
    result = chat(*words, given="wrong\nadd two numbers\n")
    assert result.exit_code == 21
    assert result.stderr.startswith("request_refused: ")
    assert "No such parameter" in result.stderr
    assert "The sum is 5." in result.stdout


def test_nothing_is_there(folder):
    words = ("add.tool.yaml", "--provider", "openai", "--model", "m", "--base-url", "http://127.0.0.1:9/v1")
    result = chat(*words, "hello")
    assert (result.exit_code, result.stdout) == (21, "")
    assert result.stderr.startswith("connect_failed: ")
    assert "hint: check that the service is running and that `base_url` is correct" in result.stderr


def test_tools_of_an_mcp_server_are_there_in_every_turn(folder, monkeypatch):
    monkeypatch.syspath_prepend(str(install(folder)))
    (folder / "tools.json").write_text(json.dumps([{"name": "say", "inputSchema": {"type": "object"}}]))
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"calc": listing(folder / "tools.json")}}))
    result = chat(
        "--provider", "echo", "--mcp", ".mcp.json", given="call calc__say\ncall calc__say\n/tools\n"
    )
    assert result.exit_code == 0
    assert result.stdout.count('calc__say: ok {"tool": "say", "arguments": {}}') == 2
    assert "calc__say  mcp" in result.stdout
