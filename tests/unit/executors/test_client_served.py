"""What a client of MCP, and the command line, are told of tools that nobody fulfils there."""

from __future__ import annotations

import pytest

from serving_mcp import connected, quiet_sdk, texts, write
from toolcrib.cli.options import ReadOptions
from toolcrib.cli.run_plan import RunPlan
from toolcrib.cli.run_targets import Target
from toolcrib.core.model import Outcome, Result
from toolcrib.serve.mcp.messages import OUTCOME, render_result

pytestmark = [quiet_sdk]

LOCATE = """
    name: locate
    description: Where you are.
    input_schema: {}
    client: {consent: {required: true, message: May I look?}, categories: [secret-category]}
"""


async def test_a_call_over_mcp_says_that_nobody_fulfils_it(tmp_path):
    async with connected("stdio", "2026-07-28", write(tmp_path, LOCATE)) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["locate"]
        result = await client.call_tool("locate", {})
    assert result.is_error
    assert texts(result) == [
        "the application that runs this server must fulfil the tool, and it has no handler for it (client_tool_deferred)"
    ]
    told = result.meta[OUTCOME]
    assert (told["outcome"], told["code"], told["details"]["timeout"]) == (
        "needs_approval",
        "client_tool_deferred",
        "30s",
    )
    assert "secret-category" not in str(result)


@pytest.mark.parametrize(
    ("retryable", "text"),
    [
        (False, "the person asked for consent declined the call (consent_declined)"),
        (
            True,
            "the person asked for consent declined the call (consent_declined); the same call may succeed later",
        ),
    ],
)
def test_a_no_over_mcp_keeps_its_reason_to_itself(retryable, text):
    no = Result.failure(
        Outcome.DENIED,
        "`locate` was declined: private",
        code="consent_declined",
        details={"reason": "private"},
        retryable=retryable,
    )
    told = render_result("locate", no, revision="2026-07-28", declared=False)
    assert (told["isError"], told["content"]) == (True, [{"type": "text", "text": text}])
    assert "private" not in str(told)


def test_examples_that_only_a_person_could_answer_are_not_played(tmp_path):
    text = f"{LOCATE}    examples: [{{args: {{}}, result: 1}}]\n"
    plan = RunPlan(ReadOptions(indexed=False), (Target(str(write(tmp_path, text))),))
    runtime, scenarios = plan.open()
    assert ([*runtime.registry], scenarios) == (["locate"], [])
    mocked = RunPlan(
        ReadOptions(indexed=False),
        (Target(str(write(tmp_path, f"{text}    mode: mock\n    mock: {{result: 1}}\n"))),),
    )
    assert len(mocked.open()[1]) == 1
