"""Dry runs: every error with which a call would end, what access, limits and budgets decide, and warnings."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from exec_tools import document, registry_of
from holding import opened
from http_servers import answering
from live_tools import API, calling, live_tool
from toolcrib import Outcome, Runtime, VirtualClock
from toolcrib.engine.statistics import ENOUGH

TOOLS = """
name: pay
description: Pays.
tags: [money]
deprecated: use `buy`
experimental: true
estimate: {cost: 2, duration: 9s}
timeout: 10s
limits: {output_items: 7}
input_schema: {type: object, properties: {amount: {type: integer}, token: {type: string}}, required: [amount]}
mock: {result: {paid: "{{ args.amount }}"}, latency: 3s}
---
name: look
description: Looks.
input_schema: {type: object}
mock: {result: 1}
"""

PROJECT = """
access:
  rules:
    - {deny: {tool: pay, args: {amount: {$gt: 100}}}, reason: too much}
    - {deny: {tool: pay, caller: stranger}}
budgets:
  spending: {tools: [pay], amount: "{{ args.amount }}", per: session, most: 50}
  cost: {tools: [pay], amount: "{{ estimate.cost }}", most: 3}
limits:
  rules:
    few: {for: {tag: money}, per: session, rate: 2/1h, concurrency: 1}
"""


@pytest.fixture(autouse=True)
def _in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def within(body, settings=PROJECT, tools=TOOLS, **session):
    async def run():
        async with opened(Path(), settings, tools, clock=VirtualClock()) as runtime:
            return await body(runtime, runtime.session(clock=VirtualClock(), **session))

    return asyncio.run(run())


def codes(result):
    return [error["code"] for error in result.meta["errors"]]


def test_everything_that_would_end_a_call_is_reported_at_once():
    async def body(_runtime, session):
        for _ in range(2):
            await session.call("pay", {"amount": 1})
        return await session.dry_run("pay", {"amount": 101}), await session.call("pay", {"amount": 101})

    planned, made = within(body)
    assert codes(planned) == ["access_rule", "rate_limited", "budget_reached", "budget_reached"]
    # The call ends with the first of them.
    assert (planned.outcome, planned.error, planned.message) == (made.outcome, made.error, made.message)
    assert planned.meta["errors"][0]["outcome"] == "denied"
    assert planned.meta["errors"][0]["message"] == planned.message
    assert planned.meta["access"]["effect"] == "deny"
    spending, cost = planned.meta["budgets"]
    assert (spending["budget"], spending["amount"], spending["left"], spending["effect"]) == (
        "spending",
        "101",
        "49",
        "deny",
    )
    assert (cost["budget"], cost["left"], cost["effect"]) == ("cost", "1", "deny")


def test_invalid_arguments_do_not_hide_what_holds_for_all_arguments():
    async def body(_runtime, session):
        return await session.dry_run("pay", {"amount": "much", "token": "canary-4711"})

    planned = within(body, caller="stranger")
    assert codes(planned) == ["invalid_arguments", "access_rule"]
    assert planned.outcome is Outcome.INVALID_ARGUMENTS
    assert "canary" not in str(planned)
    # Budgets depend on the arguments.
    assert "budgets" not in planned.meta


def test_a_call_that_would_be_made_has_its_limits_and_warnings():
    async def body(runtime, session):
        planned = await session.dry_run("pay", {"amount": "5"})
        return planned, runtime.statistics.calls, await session.call("pay", {"amount": 5})

    planned, calls, made = within(body)
    assert (planned.outcome, planned.value["arguments"], calls) == (Outcome.OK, {"amount": 5}, 0)
    assert made.outcome is Outcome.OK
    assert planned.meta["errors"] == []
    assert planned.meta["warnings"] == [
        "`pay` is deprecated: use `buy`",
        "`pay` is experimental and may change",
        "a call takes about 9s (declared), and its timeout is 10s",
    ]
    limits = planned.meta["limits"]
    assert [each["limit"] for each in limits] == [
        "timeout",
        "input_size",
        "output_size",
        "output_items",
        "rate",
        "concurrency",
        "queue",
    ]
    assert limits[0] == {"limit": "timeout", "value": "10s", "at": "project/descriptors/pay.tool.yaml:8"}
    assert limits[4] == {
        "limit": "rate",
        "of": "few",
        "per": "session",
        "value": "2/1h",
        "measured": 0,
        "at": "project/toolcrib.yaml:12",
    }
    assert planned.meta["estimate"]["duration"] == {
        "value": 9.0,
        "source": "declared",
        "observations": 0,
        "declared": 9.0,
    }


def test_a_dry_run_spends_nothing():
    async def body(_runtime, session):
        for _ in range(5):
            assert (await session.dry_run("pay", {"amount": 40})).outcome is Outcome.OK
        return await session.call("pay", {"amount": 40})

    assert within(body).outcome is Outcome.OK


def test_a_call_that_would_wait_says_for_what():
    async def body(_runtime, session):
        running = asyncio.ensure_future(session.call("pay", {"amount": 1}))
        await session.clock.sleep(1)
        planned = await session.dry_run("pay", {"amount": 1})
        await running
        return planned.meta["warnings"][-1], planned.meta["limits"][-2]["measured"]

    warning, measured = within(body)
    assert warning == "the call would wait for one of 1 running calls of `few` (per session)"
    assert measured == 1


def test_a_caller_sees_the_limits_and_estimates_that_apply_to_it():
    rules = "limits: {rules: {strict: {for: {caller: agent}, timeout: 4s}, lax: {for: {caller: bot}, timeout: 9s}}}"
    tools = TOOLS.replace("estimate: {cost: 2, duration: 9s}\n", "")

    async def body(runtime, session):
        for _ in range(ENOUGH):
            await session.call("pay", {"amount": 1})
        clock = session.clock
        agent, bot = (runtime.session(clock=clock, caller=caller) for caller in ("agent", "bot"))
        return await agent.dry_run("pay", {"amount": 1}), await bot.dry_run("pay", {"amount": 1})

    agent, bot = within(
        body, rules, tools.replace("timeout: 10s", "timeout: 9s").replace("latency: 3s", "latency: 8s")
    )
    assert codes(agent) == ["estimate_exceeds_limit"]
    assert agent.meta["limits"][0]["value"] == "4s"
    assert agent.error.details["source"] == "observed"
    assert codes(bot) == []
    assert "(observed), and its timeout is 9s" in bot.meta["warnings"][-1]


def test_a_tool_that_cannot_run_reports_its_arguments_as_well():
    async def body(_runtime, session):
        return await session.dry_run("unbound", {"n": "x"})

    tools = "name: unbound\ndescription: No mode.\ninput_schema: {type: object, properties: {n: {type: integer}}}\n"
    planned = within(body, "", tools)
    assert planned.outcome is Outcome.UNAVAILABLE
    assert codes(planned) == ["unavailable", "invalid_arguments"]


async def test_an_open_circuit_is_reported():
    text = live_tool(
        f"url: {API}/x", more="limits: {attempts: 1, breaker: {failures: 2, within: 1h, open_for: 1h}}"
    )
    async with calling(text, answering(503)) as (runtime, _server):
        for _ in range(2):
            await runtime.call("tool", {})
        planned = await runtime.dry_run("tool", {})
        made = await runtime.call("tool", {})
    assert codes(planned) == ["circuit_open"]
    assert (planned.outcome, planned.error.code) == (made.outcome, made.error.code)


async def test_a_declared_estimate_that_exceeds_a_limit_is_reported():
    block = {"command": ["cat"]}
    registry = registry_of(document(exec=block, estimate={"duration": "40s"}))
    async with Runtime(registry, sandbox="none") as runtime:
        planned = await runtime.dry_run("tool", {})
    assert codes(planned) == ["estimate_exceeds_limit"]
    assert planned.error.details == {
        "limit": "timeout",
        "value": "30s",
        "measured": 40.0,
        "source": "declared",
    }
