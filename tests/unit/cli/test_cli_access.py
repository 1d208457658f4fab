"""`doctor --as` and `call --explain` say what access decides, and which rule."""

from __future__ import annotations

import json

import pytest

PROJECT = """
project: p
sources: [tools.yaml]
access:
  rules:
    - {deny: {tool: refund, caller: "!ops"}, reason: Only ops.}
    - {ask: {tool: refund, args: {amount: {$gt: 500}}}}
"""

TOOLS = """
name: refund
input_schema: {type: object, properties: {amount: {type: number}}}
mock: {result: done}
---
name: balance
mock: {result: 5}
"""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toolcrib.yaml").write_text(PROJECT)
    (tmp_path / "tools.yaml").write_text(TOOLS)


def test_doctor_says_what_a_caller_may_do(toolcrib):
    denied = toolcrib("doctor", "refund", "--as", "bot", "--user", "ann")
    assert denied.exit_code == 1
    rule = "denied by the rule `deny tool refund, caller !ops` (toolcrib.yaml:6): Only ops."
    assert f"access of bot for ann  {rule}" in denied.stdout
    allowed = toolcrib("doctor", "refund", "--as", "ops")
    assert allowed.exit_code == 0
    assert (
        "needs approval by the rule `ask tool refund, args` (toolcrib.yaml:7), depending on" in allowed.stdout
    )
    assert "otherwise allowed by default" in allowed.stdout
    assert "access  allowed by default" in toolcrib("doctor", "balance").stdout


def test_doctor_prints_the_decision_as_json(toolcrib):
    told = json.loads(toolcrib("doctor", "refund", "--as", "bot", "--json").stdout)
    assert told["state"] == "denied"
    assert told["access"]["decision"]["at"] == "toolcrib.yaml:6"
    assert told["access"]["caller"] == "bot"


def test_doctor_shows_the_settings(toolcrib):
    assert "default allow; 2 rules" in toolcrib("doctor").stdout


def test_a_caller_needs_a_tool(toolcrib):
    result = toolcrib("doctor", "--as", "bot")
    assert result.exit_code == 2
    assert "need the name of a tool" in result.stderr


def test_a_call_that_is_denied_says_why(toolcrib):
    result = toolcrib("call", "refund")
    assert result.exit_code == 15
    assert "(toolcrib.yaml:6): Only ops." in result.stderr


def test_explain_names_the_decision(toolcrib, tmp_path):
    text = PROJECT.replace('caller: "!ops"', "args: {amount: 1}")
    (tmp_path / "toolcrib.yaml").write_text(text)
    result = toolcrib("call", "refund", "amount=2", "--explain")
    assert result.exit_code == 0
    assert "access: allowed by default" in result.stderr
    assert "denied by the rule" in toolcrib("call", "refund", "amount=1", "--explain").stderr


def test_denied_tools_are_listed_with_all_only(toolcrib):
    assert "refund" not in toolcrib("list").stdout
    assert "refund" in toolcrib("list", "--all").stdout
    assert "refund" not in toolcrib("search", "refund").stdout
