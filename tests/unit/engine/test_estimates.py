"""Estimates: declared and observed values, and the calls that they refuse before they act."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from holding import opened
from reaching import reaching
from toolcrib import Outcome, Result, VirtualClock
from toolcrib.engine.statistics import ENOUGH

SLOW = """
name: work
description: Works.
timeout: 20s
estimate: {output: 10B}
input_schema: {type: object, properties: {x: {type: string}}}
mock: {result: "{{ args.x }}", latency: 3s}
"""
"""A call takes three seconds, and returns as many bytes as asked for, and two."""


@pytest.fixture(autouse=True)
def _in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def text(size):
    return {"x": "y" * size}


def project(rule, tools=SLOW):
    return opened(
        Path(),
        f"limits:\n  rules:\n    strict: {{for: {{caller: agent}}, {rule}}}\n",
        tools,
        clock=VirtualClock(),
    )


def run(runtime, body):
    async def within():
        async with runtime:
            clock = VirtualClock()
            sessions = [runtime.session(caller=caller, clock=clock) for caller in ("person", "agent")]
            return await body(*sessions, clock)

    return asyncio.run(within())


def test_a_call_that_all_earlier_ones_show_to_be_too_slow_is_not_made():
    async def body(person, agent, clock):
        ends = []
        for number in range(ENOUGH):
            if number in {1, ENOUGH - 1}:
                ends.append(await agent.call("work", text(1)))
            await person.call("work", text(1))
        probe = await agent.call("work", text(1))
        refused = await agent.call("work", text(1))
        others = await person.call("work", text(1))
        await clock.sleep(61)
        return ends, probe, refused, others, await agent.call("work", text(1))

    ends, probe, refused, others, later = run(project("timeout: 2s"), body)
    # Before there is enough evidence the calls are made, and time out.
    assert [each.outcome for each in (*ends, probe)] == [Outcome.TIMEOUT] * 3
    assert (refused.outcome, refused.error.code) == (Outcome.LIMIT_EXCEEDED, "estimate_exceeds_limit")
    assert (refused.usage.attempts, refused.usage.duration) == (0, 0.0)
    assert refused.message == (
        f"`work` was not called: each of {ENOUGH} successful calls took at least 3s, and "
        "`timeout` is 2s (project/toolcrib.yaml:4, rule strict)"
    )
    assert refused.error.details == {
        "limit": "timeout",
        "value": "2s",
        "measured": 3.0,
        "at": "project/toolcrib.yaml:4 (rule strict)",
        "source": "observed",
        "observations": ENOUGH,
    }
    assert others.outcome is Outcome.OK
    # Once a minute a call is made nevertheless.
    assert later.outcome is Outcome.TIMEOUT


def test_the_limit_of_a_caller_is_enough_for_the_calls_of_others_to_be_observed():
    async def body(person, agent, _clock):
        for _ in range(ENOUGH):
            await person.call("work", text(100))
        return [await agent.call("work", text(100)) for _ in range(2)]

    tools = SLOW.replace("estimate: {output: 10B}\n", "").replace("timeout: 20s\n", "")
    for rule in ("timeout: 2s", "output_size: 50B"):
        probe, refused = run(project(rule, tools), body)
        assert refused.error.code == "estimate_exceeds_limit"
        assert probe.error.code in {"timeout", "result_too_large"}


def test_one_small_value_is_enough_to_make_the_call():
    async def body(person, agent, _clock):
        for number in range(ENOUGH + 5):
            await person.call("work", text(1 if number == 3 else 100))
        return [await agent.call("work", text(size)) for size in (1, 100, 1)]

    results = run(project("output_size: 50B"), body)
    assert [each.error and each.error.code for each in results] == [None, "result_too_large", None]


def test_results_that_were_all_too_large_for_a_caller_refuse_its_calls():
    async def body(person, agent, _clock):
        for _ in range(ENOUGH):
            await person.call("work", text(100))
        made = [await agent.call("work", text(100)) for _ in range(2)]
        return *made, person

    probe, refused, _ = run(project("output_size: 50B"), body)
    assert probe.error.code == "result_too_large"
    assert refused.error.code == "estimate_exceeds_limit"
    assert refused.error.details["measured"] == 102
    assert "returned at least 102 bytes, and `limits.output_size` is 50B" in refused.message


def test_a_declared_estimate_refuses_the_callers_whose_limit_it_exceeds():
    tools = SLOW.replace("estimate: {output: 10B}", "estimate: {duration: 3s}")

    async def body(person, agent, _clock):
        return await agent.call("work", text(1)), await person.call("work", text(1))

    refused, made = run(project("timeout: 2s", tools), body)
    assert (refused.outcome, refused.error.code) == (Outcome.LIMIT_EXCEEDED, "estimate_exceeds_limit")
    assert refused.error.details == {
        "limit": "timeout",
        "value": "2s",
        "measured": 3.0,
        "at": "project/toolcrib.yaml:4 (rule strict)",
        "source": "declared",
    }
    assert made.outcome is Outcome.OK


def test_estimates_merge_declared_and_observed_values():
    runtime = opened(Path(), "", SLOW, clock=VirtualClock())

    def estimate():
        return runtime.estimate("work").output

    async def within():
        async with runtime:
            before = estimate()
            for number in range(ENOUGH):
                await runtime.call("work", text(100 if number else 8))
                if number == 3:
                    early = estimate()
            late = estimate()
            runtime.reset_statistics()
            return before, early, late, estimate()

    before, early, late, reset = asyncio.run(within())
    assert before == (10, "declared", 0, 10)
    assert early == (10, "declared", 4, 10)
    assert (late.source, late.observations, late.declared) == ("observed", ENOUGH, 10)
    assert late.value == pytest.approx(102, rel=0.01)
    assert reset == before


def test_tools_without_a_declared_limit_or_estimate_are_not_observed():
    async def answer(_call):
        return Result.success(1)

    from toolcrib.engine import engine_of  # noqa: PLC0415

    with reaching(answer, "", "timeout: 5s") as runtime:
        chains = [engine_of(runtime).chain_for(runtime.registry[name]).layers for name in ("tool", "tool_2")]
    assert ["estimate" in layers for layers in chains] == [False, True]


PAID = """
name: buy
estimate: {cost: 0.5}
input_schema: {type: object, properties: {price: {type: number}}}
mock: {result: {total: "{{ args.price }}"}}
"""

SPENDING = """budgets:
  spending: {tools: [buy], amount: "{{ estimate.cost }}", actual: "{{ result.total }}", most: 1e50}
"""


def test_costs_that_results_tell_a_budget_are_observed():
    def cost(runtime, prices):
        async def calls():
            async with runtime:
                for price in prices:
                    assert (await runtime.call("buy", {"price": price})).outcome is Outcome.OK
                return runtime.estimate("buy").cost

        return asyncio.run(calls())

    few = cost(opened(Path(), SPENDING, PAID), [2])
    assert (few.value, few.source, few.observations) == (0.5, "declared", 1)
    many = cost(opened(Path(), SPENDING, PAID), [2] * 19 + [0, 1e40])
    assert (many.source, many.observations, many.declared) == ("observed", 20, 0.5)
    assert many.value == pytest.approx(2, rel=0.004)
    # Amounts of another budget need not be costs.
    other = SPENDING.replace("estimate.cost", "args.price * 100")
    assert cost(opened(Path(), other, PAID), [2]).observations == 0
