"""Defaults of the schemas of servers: the server applies its own, and nothing is sent in place of what was not given."""

from __future__ import annotations

import json

import pytest

from loop_models import Model, asks, loop, says
from mcp_listing import listing
from sampling import sample
from toolcrib import Outcome, Runtime
from toolcrib.provider import Answer, Stop, ToolPolicy

FIND = {
    "name": "find",
    "description": "Finds.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "q": {"type": "string"},
            # What `lang: str = None` and `limit: int = 10` become in Python servers.
            "lang": {"type": "string", "default": None},
            "limit": {"type": "integer", "default": 10},
            "sort": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "filter": {"type": "object", "properties": {"deep": {"type": "boolean", "default": True}}},
        },
        "required": ["q"],
    },
}

DESCRIPTORS = """
name: inherits
mode: mcp
mcp: {server: shop, tool: find}
mock:
  sequence: [{passthrough: mcp}, {result: "{{ args.limit }}"}]
---
name: narrowed
mcp: {server: shop, tool: find, args: {q: "{{ args.q | upper }}", limit: "{{ args.limit }}"}}
---
name: own
input_schema:
  type: object
  properties:
    q: {type: string}
    lang: {type: string, default: null}
    limit: {type: integer, default: 3}
mcp: {server: shop, tool: find}
"""


@pytest.fixture
def project(tmp_path):
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([FIND]))
    (tmp_path / "toolcrib.yaml").write_text(
        json.dumps({"project": "p", "servers": {"shop": {**listing(tools), "import": True}}})
    )
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "descriptors" / "tools.yaml").write_text(DESCRIPTORS)
    return tmp_path


def sent(result):
    assert result.outcome is Outcome.OK, result
    return json.loads(result.value)["arguments"]


@pytest.mark.parametrize("tool", sample(["shop__find", "inherits"], one_in=2))
async def test_no_default_of_a_server_is_sent(project, tool):
    async with Runtime.open(project, trust=True) as runtime:
        assert sent(await runtime.call(tool, {"q": "a"})) == {"q": "a"}
        assert sent(await runtime.call(tool, {"q": "a", "filter": {}})) == {"q": "a", "filter": {}}
        assert sent(await runtime.call(tool, {"q": "a", "sort": None})) == {"q": "a", "sort": None}
        assert sent(await runtime.call(tool, {"q": "a", "limit": 10})) == {"q": "a", "limit": 10}


async def test_a_model_that_repeats_a_default_that_does_not_fit_is_understood(project):
    async with Runtime.open(project, trust=True) as runtime:
        result = await runtime.call("shop__find", {"q": "a", "lang": None, "limit": "3"})
        assert sent(result) == {"q": "a", "limit": 3}
        assert [repair["kind"] for repair in result.meta["repairs"]] == ["dropped", "parsed"]


async def test_expressions_of_a_block_see_what_was_given(project):
    async with Runtime.open(project, trust=True) as runtime:
        assert sent(await runtime.call("narrowed", {"q": "a"})) == {"q": "A"}


async def test_the_defaults_of_a_descriptor_are_its_author_s_and_are_sent(project):
    async with Runtime.open(project, trust=True) as runtime:
        assert sent(await runtime.call("own", {"q": "a"})) == {"q": "a", "limit": 3}
        (notice,) = runtime.problems
        assert (notice.code, notice.severity) == ("default_mismatch", "warning")
        assert "it is not filled in" in notice.hint


async def test_a_mock_stands_in_for_the_server_and_gets_its_defaults(project):
    async with Runtime.open(project, trust=True, mode="mock", passthrough=True) as runtime:
        # A mock that may forward a call to the server gets what the server would get.
        assert sent(await runtime.call("inherits", {"q": "a"})) == {"q": "a"}
    (project / "descriptors" / "tools.yaml").write_text(
        "name: inherits\nmode: mcp\nmcp: {server: shop, tool: find}\nmock: {result: '{{ args.limit }}'}\n"
    )
    async with Runtime.open(project, trust=True, mode="mock") as runtime:
        assert (await runtime.call("inherits", {"q": "a"})).value == 10


async def test_a_dry_run_shows_what_would_be_sent(project):
    async with Runtime.open(project, trust=True) as runtime:
        shown = (await runtime.session().dry_run("inherits", {"q": "a"})).value
        assert shown["arguments"] == shown["plan"]["arguments"] == {"q": "a"}


async def test_a_required_argument_with_a_default_is_left_to_the_server(project):
    tool = {"name": "find", "inputSchema": {**FIND["inputSchema"], "required": ["q", "limit"]}}
    (project / "tools.json").write_text(json.dumps([tool]))
    async with Runtime.open(project, trust=True) as runtime:
        assert sent(await runtime.call("shop__find", {"q": "a"})) == {"q": "a"}
        assert (await runtime.call("shop__find", {})).outcome is Outcome.INVALID_ARGUMENTS


async def test_an_approved_call_is_sent_as_the_model_asked_for_it(project):
    async with Runtime.open(project, trust=True) as runtime:
        model = Model(asks(("shop__find", {"q": "a"})), says("Found."))
        asking = loop(model, ToolPolicy(ask=("shop__find",)), runtime)
        suspended = await asking.run("find it")
        assert suspended.stop is Stop.PENDING
        assert suspended.pending[0].arguments == {"q": "a"}
        ended = await asking.run(suspended, {suspended.pending[0].id: Answer.approve()})
        assert json.loads(ended.messages[2].results[0].text)["arguments"] == {"q": "a"}
