"""`toolcrib run` reaches the network only where the scenario names the mode of the tool, or with `--allow-live`."""

from __future__ import annotations

import pytest

from http_servers import answered_by, answering_json
from toolcrib.cli import exit_codes

PROJECT = """
project: rates
sources: [tools.yaml]
egress: {{allow: ["127.0.0.1:{port}"]}}
servers: {{away: {{url: "http://127.0.0.1:{port}/mcp"}}}}
agents: {{far: {{card: "http://127.0.0.1:{port}"}}}}
"""

TOOLS = """
name: convert
mock: {{result: 7}}
---
name: rate
annotations: {{read_only: true}}
live: {{url: "http://127.0.0.1:{port}/rate"}}
---
name: add
input_schema: {{type: object}}
mcp: {{server: away, tool: add}}
---
name: ask
input_schema: {{type: object}}
a2a: {{agent: far, tool: ask}}
---
name: sandboxed
exec: {{command: ["true"], network: true}}
---
name: local
exec: {{command: [printf, hi]}}
---
name: code
python: {{call: "rates_{port}:fetch"}}
---
name: pure
python: {{call: "rates_{port}:pure"}}
"""

CODE = """
from toolcrib import CallContext

async def fetch(context: CallContext) -> int:
    return (await context.http.get("http://127.0.0.1:{port}/rate")).json()

def pure() -> int:
    return 3
"""


@pytest.fixture
def rates(write, monkeypatch):
    """A project, one scenario with these lines, and the server that its tools would reach."""
    monkeypatch.setenv("TOOLCRIB_TRUST", "all")
    with answered_by(answering_json(5)) as server:

        def put(*lines):
            files = {"toolcrib.yaml": PROJECT, "tools.yaml": TOOLS, f"rates_{server.port}.py": CODE}
            written = {name: text.format(port=server.port) for name, text in files.items()}
            write({**written, "s.scenario.yaml": "\n".join(["scenario: s", *lines])})
            return server

        yield put


def step(tool, result=5):
    return f"steps: [{{call: {tool}, expect: {{result: {result}}}}}]"


@pytest.mark.parametrize("modes", ["", 'modes: {"*": mock}'])
@pytest.mark.parametrize(
    ("tool", "mode"),
    [("rate", "live"), ("add", "mcp"), ("ask", "a2a"), ("sandboxed", "exec"), ("code", "python")],
)
def test_a_tool_that_keeps_its_mode_does_not_reach_the_network(rates, toolcrib, tool, mode, modes):
    server = rates(modes, step(tool))
    result = toolcrib("run", "s.scenario.yaml")
    assert result.exit_code == exit_codes.PROBLEMS
    told = result.stdout
    assert f"`{tool}` would reach the network in mode `{mode}`, and the scenario at " in told, told
    assert "s.scenario.yaml:1 does not permit that" in told
    assert server.requests == []


def test_the_message_says_what_to_write_and_that_permits_it(rates, toolcrib):
    rates('modes: {"*": mock}', step("rate"))
    assert (
        "add a mock, write `modes: {rate: live}` in the scenario, or run with `--allow-live`"
        in toolcrib("run", "s.scenario.yaml", "--json").stdout
    )
    server = rates('modes: {rate: live, "*": mock}', step("rate"))
    assert toolcrib("run", "s.scenario.yaml").exit_code == exit_codes.OK
    assert len(server.requests) == 1


@pytest.mark.parametrize("tool", ["rate", "code"])
def test_allow_live_permits_it(rates, toolcrib, tool):
    server = rates(step(tool))
    result = toolcrib("run", "s.scenario.yaml", "--allow-live", "-j", "1")
    assert result.exit_code == exit_codes.OK, result.stdout
    assert len(server.requests) == 1


@pytest.mark.parametrize(("tool", "result"), [("convert", 7), ("local", "hi"), ("pure", 3)])
def test_what_stays_on_this_machine_runs(rates, toolcrib, tool, result):
    rates(step(tool, result))
    told = toolcrib("run", "s.scenario.yaml")
    assert told.exit_code == exit_codes.OK, told.stdout


def test_a_scenario_that_may_not_reach_the_network_asks_for_no_trust(rates, toolcrib, monkeypatch):
    monkeypatch.delenv("TOOLCRIB_TRUST")
    rates(step("rate"))
    result = toolcrib("run", "s.scenario.yaml")
    assert "would reach the network" in result.stdout
    assert "is not trusted, so only" not in result.stdout


def test_an_agent_that_goes_on_without_the_result_fails_the_run(rates, toolcrib):
    server = rates(
        "agent:", "  turns: [{user: Rate?, script: [{call: rate}, {call: rate}, {say: I do not know.}]}]"
    )
    result = toolcrib("run", "s.scenario.yaml")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "FAILED s › agent (s.scenario.yaml:" in result.stdout
    assert result.stdout.count("`rate` would reach the network in mode `live`") >= 1
    assert server.requests == []
