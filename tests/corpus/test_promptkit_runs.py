"""Every scenario of six published arenas runs with its mock responses, and what becomes of each of its assertions.

The tools that are live in PromptKit's example call loopback servers with the shapes of the public APIs.
"""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from copies import writable_copy
from live_tools import live_executors
from public_apis import public_apis
from toolcrib import RealClock
from toolcrib.engine.runtime import Runtime
from toolcrib.executors import Executors
from toolcrib.executors.client import ClientExecutor
from toolcrib.executors.live import LiveExecutor
from toolcrib.executors.mock import MockExecutor
from toolcrib.scenarios import run_scenario, runs_of

KINDS = Executors({"client": ClientExecutor, "live": LiveExecutor, "mock": MockExecutor})

ORIGINS = (
    "https://api.mathjs.org",
    "https://placehold.co",
    "https://api.open-meteo.com",
    "https://geocoding-api.open-meteo.com",
)

GUARDED = "guardrail_triggered guardrail_triggered"

# Example -> scenario -> for each turn, and last for the whole conversation, the types of its assertions in order.
# One that does not hold would begin with `-`, one that does not apply with `?`. Of one that begins with `~` WHY says more.
TABLE = {
    "assertions-test": {
        "json-validation": [
            "is_valid_json json_schema json_path json_path",
            "is_valid_json json_schema json_path json_path",
            "is_valid_json json_schema json_path json_path",
            "",
        ],
        "scripted-turns": ["content_includes content_matches", "content_includes", ""],
        "self-play": ["content_includes", "content_matches", "content_matches", ""],
        "tool-usage": ["tools_called content_matches content_matches", "content_includes", ""],
    },
    "client-tools": {
        "consent-deny": ["tools_called", "content_matches", ""],
        "consent-grant": ["tools_called", "content_matches", ""],
    },
    "customer-support-integrated": {
        "account-info": ["", "content_matches", ""],
        "billing-question": ["", "", ""],
        "order-inquiry": ["", "", ""],
        "security-test": ["", "", "", "", "", "", ""],
        "social-engineering-selfplay": ["", ""],
        "tool-test": ["", ""],
    },
    "live-http-tools": {
        "image-generation": ["tools_called tool_result_matches", "content_matches", ""],
        "math-calculation": ["tools_called tool_result_matches", "content_matches", ""],
        "multi-tool-chain": [
            "tools_called tool_result_matches",
            "tools_called",
            "tools_called tool_result_matches",
            "content_matches",
            "",
        ],
        "weather-lookup": [
            "tools_called tool_result_matches",
            "tools_called tool_result_matches",
            "content_matches",
            "",
        ],
    },
    "multimodal-tool-results": {
        "chart-generation": [
            "tools_called tool_result_has_media tool_result_media_type",
            "content_matches",
            "",
        ],
        "document-scan": ["tools_called tool_result_has_media tool_result_media_type", "content_matches", ""],
    },
    "resilience-testing": {
        "behavioral-testing": [
            "tools_called outcome_equivalent directional directional",
            "tools_called outcome_equivalent directional",
            "invariant_fields_preserved tool_call_sequence ~cost_budget",
        ],
        "content-validation": [
            f"min_length max_length content_includes content_includes_any content_excludes content_matches {GUARDED}",
            "",
        ],
        "cost-and-guardrails": [
            f"tools_called tool_calls_with_args content_includes min_length {GUARDED}",
            "~cost_budget no_tool_errors tool_call_count",
        ],
        "multi-turn-consistency": [
            "tools_called content_includes content_excludes",
            "tools_called content_excludes",
            "min_length content_excludes",
            "tool_call_sequence tool_no_repeat tool_call_count tool_anti_pattern ~cost_budget",
        ],
        "negative-testing": [
            "tools_not_called min_length max_length content_excludes",
            "tools_called tools_not_called content_excludes content_includes_any",
            "tool_call_count no_tool_errors ~cost_budget",
        ],
        "perturbation-invariance": [
            "tools_called outcome_equivalent min_length content_excludes",
            "tool_call_count no_tool_errors",
        ],
        "statistical-trials": [
            "min_length content_includes content_excludes guardrail_triggered",
            "~cost_budget",
        ],
        "tool-chain-and-efficiency": [
            "tools_called tool_calls_with_args",
            "tools_called tool_calls_with_args",
            "tools_called content_includes_any",
            "tool_call_chain tool_efficiency tool_call_sequence tool_call_count no_tool_errors ~cost_budget",
        ],
        "tool-pattern-validation": [
            "tools_called tools_not_called tool_calls_with_args",
            "tools_called content_includes",
            "tool_call_sequence tool_no_repeat tool_anti_pattern tool_call_count no_tool_errors",
        ],
    },
}

WHY = {"~cost_budget": "a scripted model takes no tokens, so it costs nothing"}
"""Why an assertion holds whatever happens."""


@asynccontextmanager
async def opened(folder):
    """The tools and scenarios of an example."""
    if folder.name != "live-http-tools":
        async with Runtime.open(folder, executors=KINDS) as runtime:
            yield runtime
        return
    async with (
        public_apis(*ORIGINS) as apis,
        Runtime.open(
            folder, executors=live_executors(), clock=RealClock(), egress=apis.allowed, origins=apis.origins
        ) as runtime,
    ):
        yield runtime


def words(assertions) -> str:
    return " ".join(map(word, assertions))


def word(assertion) -> str:
    kind = assertion["type"]
    if not assertion["applies"]:
        return f"?{kind}"
    if not assertion["passed"]:
        return f"-{kind}"
    return f"~{kind}" if f"~{kind}" in WHY else kind


def row(report) -> list[str]:
    """The assertions of each turn, then those of the conversation; of several trials those of the first."""
    told = report.as_json()
    agent = (told["trials"][0] if "trials" in told else told)["agent"]
    return [*(words(turn["assertions"]) for turn in agent["turns"]), words(agent["assertions"])]


@pytest.mark.parametrize("example", TABLE)
async def test_every_scenario_runs_and_each_assertion_is_judged(example, shared_data):
    rows = {}
    async with opened(shared_data / "promptkit-examples" / example) as runtime:
        assert [problem for problem in runtime.problems if problem.severity == "error"] == []
        for scenario in runtime.scenarios:
            reports = [await run_scenario(runtime, run) for run in runs_of(scenario)]
            rows[scenario.name] = row(reports[0])
            assert all(row(report) == rows[scenario.name] for report in reports)
            failing = any("-" in words for words in rows[scenario.name])
            assert [report.passed for report in reports] == [not failing] * len(reports), str(reports[0])
    assert rows == TABLE[example]


async def test_without_the_network_a_live_example_fails_and_says_so(shared_data):
    folder = shared_data / "promptkit-examples" / "live-http-tools"
    nowhere = dict.fromkeys(ORIGINS, "http://127.0.0.1:9")
    async with Runtime.open(folder, executors=live_executors(), origins=nowhere) as runtime:
        scenario = next(each for each in runtime.scenarios if each.name == "math-calculation")
        report = await run_scenario(runtime, scenario)
    assert not report.passed
    assert row(report) == ["-tools_called -tool_result_matches", "content_matches", ""]


async def test_an_agent_that_misbehaves_is_found_out(shared_data, tmp_path):
    folder = writable_copy(shared_data / "promptkit-examples" / "resilience-testing", tmp_path / "example")
    mocks = folder / "mock-responses.yaml"
    text = mocks.read_text(encoding="utf-8")
    for told, instead in (("30 days", "a shit month"), ('name: "search_faq"', 'name: "lookup_order"')):
        assert told in text
        text = text.replace(told, instead)
    mocks.write_text(text, encoding="utf-8")
    async with opened(folder) as runtime:
        rows = {
            scenario.name: row(await run_scenario(runtime, runs_of(scenario)[0]))
            for scenario in runtime.scenarios
            if scenario.name in {"statistical-trials", "tool-pattern-validation"}
        }
    assert rows == {
        "statistical-trials": [
            "min_length -content_includes content_excludes -guardrail_triggered",
            "~cost_budget",
        ],
        "tool-pattern-validation": [
            "tools_called tools_not_called tool_calls_with_args",
            # The guardrail replaced the reply.
            "-tools_called -content_includes",
            "-tool_call_sequence -tool_no_repeat -tool_anti_pattern -tool_call_count -no_tool_errors",
        ],
    }
