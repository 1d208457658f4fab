"""One predicate decides for Python, the command line, a model and clients over MCP."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from loop_models import Model, asks, ends, loop, says
from serving_mcp import client, each_era, quiet_sdk, stdio, texts
from toolcrib import Outcome, Runtime
from toolcrib.cli.group import cli

pytestmark = [quiet_sdk]

PROJECT = """
project: p
sources: [tools.yaml]
access:
  rules:
    - {deny: {tool: hidden}, reason: Not for you.}
    - {deny: {tool: refund, args: {amount: {$gt: 500}}}, reason: Too much.}
"""

TOOLS = """
name: hidden
mock: {result: 1}
---
name: refund
input_schema: {type: object, properties: {amount: {type: number}}}
mock: {result: done}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toolcrib.yaml").write_text(PROJECT)
    (tmp_path / "tools.yaml").write_text(TOOLS)
    return tmp_path / "toolcrib.yaml"


CALLS = (("hidden", {}), ("refund", {"amount": 501}), ("refund", {"amount": 500}))


async def test_python(project):
    async with Runtime.open(project, index=False) as runtime:
        assert [card.name for card in runtime.registry.query()] == ["refund"]
        results = [await runtime.call(name, arguments) for name, arguments in CALLS]
        assert [result.outcome for result in results] == [Outcome.DENIED, Outcome.DENIED, Outcome.OK]
        assert runtime.violations.total == 2


def test_the_command_line(project):
    def run(*words):
        return CliRunner().invoke(cli, words, prog_name="toolcrib")

    assert [tool["name"] for tool in json.loads(run("list", "--json").stdout)["tools"]] == ["refund"]
    codes = [
        run("call", name, *(f"{key}:={item}" for key, item in given.items())).exit_code
        for name, given in CALLS
    ]
    assert codes == [15, 15, 0]


async def test_a_model(project):
    async with Runtime.open(project, index=False) as runtime:
        model = Model(asks(*CALLS), says("done"))
        conversation = await loop(model, tools=runtime).run("hello")
        assert [tool.name for tool in model.requests[0].tools] == ["refund"]
        assert ends(conversation) == [("denied", "access_rule"), ("denied", "access_rule"), ("ok", "")]
        assert runtime.violations.total == 2


@each_era
async def test_clients_over_mcp(project, era):
    async with client(stdio(project), era) as one:
        assert [tool.name for tool in (await one.list_tools()).tools] == ["refund"]
        results = [await one.call_tool(name, arguments) for name, arguments in CALLS]
        assert [bool(result.is_error) for result in results] == [True, True, False]
        assert "Not for you." in texts(results[0])[0]
        assert "Too much." in texts(results[1])[0]
