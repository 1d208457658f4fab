"""`limits.rules`: limits of groups of calls, by tool, tag, caller, user, session and run."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holding import opened
from reaching import ORIGIN, Reached, reaching
from sampling import examples
from toolcrib import Call, Outcome, Result, Runtime, VirtualClock
from toolcrib.core.model import Bounds, CallContext, Descriptor
from toolcrib.engine import engine_of
from toolcrib.engine.middleware import build_chain
from toolcrib.engine.middleware.layer import LayerContext, SharedState
from toolcrib.loading.limit_rules import LimitRule

TOOLS = """
name: find
description: Finds.
tags: [crm]
input_schema: {type: object, properties: {x: {type: string}}}
mock: {result: {items: [1, 2, 3], text: "{{ args['x'] }}"}}
---
name: slow
description: Takes three seconds.
tags: [crm, slow]
input_schema: {type: object}
mock: {result: 1, latency: 3s}
---
name: other
description: Has no tag.
input_schema: {type: object}
limits: {output_size: 2KiB}
mock: {result: 1, latency: 1s}
"""


PLACE = "project/toolcrib.yaml:4"
"""The place of the first rule."""


@pytest.fixture(autouse=True)
def _in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def ruled(*rules: str, tools: str = TOOLS) -> Runtime:
    lines = "".join(f"    {rule}\n" for rule in rules)
    return opened(Path(), f"limits:\n  rules:\n{lines}", tools, clock=VirtualClock())


def calls(runtime, *asked, **session):
    """Make calls at the same time; each is a name, or a pair of a name and the options of its session."""

    async def run():
        clock = VirtualClock()
        sessions = {}
        tasks = []
        for each in asked:
            name, options = each if isinstance(each, tuple) else (each, session)
            key = tuple(sorted(options.items()))
            if key not in sessions:
                sessions[key] = runtime.session(**{"clock": clock, **options})
            tasks.append(sessions[key].call(name, {}))
        return await asyncio.gather(*tasks)

    with runtime:
        return asyncio.run(run())


def ends(results):
    return [result.error.code if result.error else result.outcome.value for result in results]


def seconds(results):
    return [round(result.usage.duration, 3) for result in results]


# Rates and places


def test_tools_of_a_tag_share_a_rate_and_others_do_not():
    runtime = ruled("crm: {for: {tag: crm}, rate: 2/1h}")
    results = calls(runtime, "find", "slow", "find", "other")
    assert ends(results) == ["ok", "ok", "rate_limited", "ok"]
    assert results[2].error.details == {
        "limit": "rate",
        "of": "crm",
        "per": "run",
        "value": "2/1h",
        "measured": 2,
        "at": PLACE,
        "retry_after": 3600.0,
    }
    assert results[2].message == "the rate limit of `crm` (per run) is 2/1h, 2 used; retry after 1h"
    assert results[2].usage.attempts == 0


def test_calls_wait_for_a_place_of_their_rule_also_in_mocks():
    results = calls(ruled("crm: {for: {tag: slow}, concurrency: 1}"), "slow", "slow", "slow")
    assert seconds(results) == [3, 6, 9]


def test_a_mock_that_waits_for_a_place_has_a_deadline():
    runtime = ruled("all: {rate: 1/20s}")
    assert seconds(calls(runtime, "find", "find")) == [0, 20]
    runtime = ruled("all: {concurrency: 1, timeout: 4s}")
    late = calls(runtime, "slow", "slow", "slow")[2]
    assert (late.outcome, late.usage.attempts) == (Outcome.TIMEOUT, 0)
    assert late.message == (
        f"`slow` did not answer within 4s ({PLACE}, rule all); it waited in the queue of `all`"
    )


def test_the_queue_of_a_rule_is_bounded():
    results = calls(ruled("crm: {for: {tag: slow}, concurrency: 1, queue: 1}"), *["slow"] * 3)
    assert ends(results) == ["ok", "ok", "queue_full"]
    assert results[2].outcome is Outcome.OVERLOADED
    assert results[2].error.details == {
        "limit": "queue",
        "of": "crm",
        "per": "run",
        "value": 1,
        "measured": 1,
        "at": PLACE,
        "under_way": 1,
    }


SHARES = {
    "run": ["ok", "rate_limited", "rate_limited", "rate_limited", "rate_limited"],
    "session": ["ok", "rate_limited", "ok", "ok", "ok"],
    "caller": ["ok", "rate_limited", "rate_limited", "ok", "rate_limited"],
    "user": ["ok", "rate_limited", "rate_limited", "rate_limited", "ok"],
    "tool": ["ok", "ok", "rate_limited", "rate_limited", "rate_limited"],
}


@pytest.mark.parametrize(("per", "expected"), SHARES.items())
def test_what_shares_a_rule(per, expected):
    runtime = ruled(f"few: {{per: {per}, rate: 1/1h}}")
    one = {"id": "one", "caller": "a", "user": "u"}
    made = [
        ("find", one),
        ("other", one),
        ("find", {**one, "id": "two"}),
        ("find", {**one, "id": "three", "caller": "b"}),
        ("find", {**one, "id": "four", "user": "v"}),
    ]
    assert ends(calls(runtime, *made)) == expected


def test_a_session_that_waits_does_not_hold_up_the_others():
    runtime = ruled(
        "all: {for: {tag: slow}, concurrency: 2}",
        "each: {for: {tag: slow}, per: session, concurrency: 1}",
    )
    results = calls(runtime, ("slow", {"id": "a"}), ("slow", {"id": "a"}), ("slow", {"id": "b"}))
    assert seconds(results) == [3, 6, 3]


def test_the_strictest_of_several_rules_decides():
    runtime = ruled("a: {rate: 5/1h}", "b: {for: {tool: find}, rate: 2/1h}", "c: {rate: 3/1h}")
    results = calls(runtime, "find", "find", "find", "other", "other")
    assert ends(results) == ["ok", "ok", "rate_limited", "ok", "rate_limited"]
    assert [results[2].error.details["of"], results[4].error.details["of"]] == ["b", "c"]


def test_a_call_that_a_rule_refuses_spends_no_place_of_another_one():
    runtime = ruled("a: {concurrency: 1, queue: 0}", "b: {rate: 1/1h}")
    with runtime:
        assert runtime.call_sync("find").outcome is Outcome.OK
        assert runtime.call_sync("find").error.code == "rate_limited"
        assert runtime.call_sync("other").error.details["of"] == "b"


def test_cancelled_calls_leave_no_place_taken():
    runtime = ruled("a: {concurrency: 1}", "b: {per: session, concurrency: 1}")

    async def run():
        async with runtime:
            clock = VirtualClock()
            session = runtime.session(clock=clock)
            tasks = [asyncio.create_task(session.call("slow")) for _ in range(5)]
            await clock.sleep(1)
            assert sorted(call.stage for call in runtime.running()) == ["queue"] * 4 + ["running"]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            return await session.call("slow")

    assert seconds([asyncio.run(run())]) == [3]


# Limits of single calls

SINGLE = {
    "input_size: 10B": ("find", {"x": "y" * 20}, "arguments_too_large", "input_size", 10),
    "output_size: 30B": ("find", {"x": "y" * 20}, "result_too_large", "output_size", 30),
    "output_items: 2": ("find", {}, "too_many_items", "output_items", 2),
    "timeout: 2s": ("slow", {}, "timeout", "timeout", "2s"),
}


@pytest.mark.parametrize("conditions", ["{}", '{caller: "batch-*"}', "{user: [ada, bob]}", "{tag: crm}"])
@pytest.mark.parametrize(("limit", "expected"), SINGLE.items())
def test_a_rule_limits_single_calls(conditions, limit, expected):
    name, arguments, code, key, value = expected
    runtime = ruled(f"strict: {{for: {conditions}, {limit}}}")
    with runtime:
        session = runtime.session(caller="batch-1", user="ada", clock=VirtualClock())
        for _ in range(2):  # the first call builds the chain
            result = asyncio.run(session.call(name, arguments))
            assert result.error.code == code, result
            details = result.error.details
            assert (details["limit"], details["value"]) == (key, value)
            assert details["at"] == f"{PLACE} (rule strict)"
        others = runtime.session(caller="web", user="eve", clock=VirtualClock())
        result = asyncio.run(others.call(name, arguments))
        personal = "caller" in conditions or "user" in conditions
        assert (result.outcome is Outcome.OK) is personal


def test_rules_are_stricter_and_never_laxer_than_the_limits_of_tools():
    rules = ["lax: {output_size: 1MiB, timeout: 9m}", "strict: {for: {tag: crm}, output_size: 1KiB}"]
    with ruled(*rules) as runtime:
        other, find = runtime.registry["other"], runtime.registry["find"]
        assert (other.limits.output_size, other.timeout) == (2048, 30.0)
        assert (find.limits.output_size, find.origin.settings["limits.output_size"]) == (
            1024,
            "project/toolcrib.yaml:5 (rule strict)",
        )


def test_limits_of_processes_may_come_from_a_rule():
    tools = "name: run\ndescription: Runs.\ntags: [program]\nexec: {command: [cat]}\n"
    rule = "small: {for: {tag: program}, memory: 64MiB, cpu_time: 2s, processes: 3}"
    with ruled(rule, tools=tools) as runtime:
        assert runtime.problems == ()
        limits = runtime.registry["run"].limits
        assert (limits.memory, limits.cpu_time, limits.processes) == (64 << 20, 2.0, 3)


def test_a_tool_that_no_rule_names_keeps_its_chain():
    rules = [
        "crm: {for: {tag: slow}, concurrency: 1}",
        'b: {for: {tool: other, caller: "b*"}, timeout: 500ms}',
    ]
    with ruled(*rules) as runtime:
        chains = {name: engine_of(runtime).chain_for(runtime.registry[name]) for name in runtime.registry}
        assert "limits" not in chains["find"].layers
        assert chains["find"].at_once
        assert {"deadline", "limits"} <= {*chains["slow"].layers}
        assert "limits" not in chains["other"].layers
        # Callers with the same rules share a chain, and the others have the one of the tool.
        made = [
            chains["other"].chain_of(CallContext(runtime.session(), caller=caller))
            for caller in ("b1", "b2", "a")
        ]
        assert made[0] is made[1] is not made[2]
        assert [chain.tool.timeout for chain in made] == [0.5, 0.5, 30.0]


# Laws

PER = ("run", "session", "user", "caller", "tool")
RULES = st.lists(st.tuples(st.sampled_from(PER), st.integers(1, 3)), min_size=1, max_size=4)
CALLS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),  # tool
        st.integers(0, 2),  # session
        st.sampled_from(["x", "y"]),  # caller
        st.sampled_from([0.0, 0.1, 1.0]),  # pause before the next call
        st.booleans(),  # whether its caller gives up
    ),
    max_size=15,
)


@settings(deadline=None, max_examples=examples(60))
@given(RULES, CALLS, st.booleans())
def test_no_set_of_rules_is_exceeded_or_keeps_calls_waiting_for_ever(written, asked, reaches):
    rules = [
        LimitRule(f"r{number}", {}, per, Bounds(None, most, 100), {}, "toolcrib.yaml:1")
        for number, (per, most) in enumerate(written)
    ]
    inside, peaks = Counter(), Counter()

    async def answer(call):
        context = call.context
        keys = {
            "run": "",
            "session": context.session.id,
            "user": context.user,
            "caller": context.caller,
            "tool": call.tool.name,
        }
        for per, key in keys.items():
            inside[per, key] += 1
            peaks[per] = max(peaks[per], inside[per, key])
        try:
            await context.session.clock.sleep(0.5)
        finally:
            for per, key in keys.items():
                inside[per, key] -= 1
        return Result.success(1)

    runtime, shared = reaching(answer), SharedState()
    clock = VirtualClock()
    sessions = [runtime.session(clock=clock) for _ in range(3)]
    chains = {}
    for name in ("a", "b"):
        tool = Descriptor(name, input_schema={}, timeout=600.0)
        bound = Reached(answer, ORIGIN, repeatable=False) if reaches else Waiting(answer)
        chains[name] = build_chain(LayerContext(tool, bound, shared, limit_rules=rules)), tool

    async def one(number, at, name, session, caller, gives_up):
        chain, tool = chains[name]
        context = CallContext(sessions[session], caller=caller, user=caller.upper())
        with clock.working():
            await clock.sleep(at)
            try:
                async with clock.timeout(0.7 if gives_up else 10_000):
                    return await chain.run(Call(tool, {}, context, str(number)))
            except TimeoutError:
                return None

    async def run():
        at, tasks = 0.0, []
        for number, (name, session, caller, pause, gives_up) in enumerate(asked):
            tasks.append(one(number, at, name, session, caller, gives_up))
            at += pause
        made = await asyncio.gather(*tasks)
        began = clock.monotonic()
        last = await one(99, 0.0, "a", 0, "x", gives_up=False)
        return [*made, last], clock.monotonic() - began

    results, took = asyncio.run(run())
    assert all(result is None or result.outcome is Outcome.OK for result in results)
    for per, most in written:
        assert peaks[per] <= most
    # No place is still taken.
    assert took == pytest.approx(0.5)


@dataclass
class Waiting:
    """A bound tool that waits, without calls outside the program."""

    answer: Any
    waits: bool = True

    async def execute(self, call):
        return await self.answer(call)


# Budgets


def test_a_budget_counts_the_calls_of_a_caller_or_tag():
    budgets = """
budgets:
  batch: {tools: ["*"], for: {caller: "batch-*"}, amount: 1, most: 1}
  crm: {tools: ["*"], for: {tag: "!crm"}, amount: 1, most: 2}
"""
    runtime = opened(Path(), budgets, TOOLS, clock=VirtualClock())
    batch, web = {"caller": "batch-1"}, {"caller": "web"}
    results = calls(runtime, ("find", batch), ("find", web), ("find", web), ("find", batch), ("other", web))
    assert ends(results) == ["ok", "ok", "ok", "budget_reached", "ok"]
    assert results[3].error.details["budget"] == "batch"
