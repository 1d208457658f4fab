"""`Runtime.statistics`: every call is counted once, and what it counts can be merged and read elsewhere."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import math
import sys
from contextlib import suppress

import prometheus_client.parser as prometheus
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from in_memory import runtime_of
from reaching import Script, failed, reaching
from sampling import examples
from toolcrib import ConfigurationError, RealClock, Result, Runtime, Statistics, VirtualClock
from toolcrib.engine.statistics import BATCH, ENOUGH, DurationHistogram

TOOLS = """
name: hello
input_schema: {type: object, properties: {name: {type: string}}, required: [name]}
mock: {result: "hello {{ args.name }}"}
---
name: broken
mock: {error: {code: no_luck, message: out of luck}}
---
name: "off"
mock: {result: 1}
"""


def shop():
    """A runtime over the tools, one of which is disabled."""
    runtime = runtime_of(TOOLS)
    runtime.disable("off")
    return runtime


def exact(durations: list[float], percent: float) -> float:
    return sorted(durations)[max(1, math.ceil(len(durations) * percent / 100)) - 1]


@settings(max_examples=examples(200))
@given(
    st.lists(st.floats(1e-9, 1e6), min_size=1, max_size=200),
    st.sampled_from([0.1, 1, 50, 90, 99, 99.9, 100]),
    st.integers(1, 5),
)
def test_percentiles_are_within_two_percent_also_after_a_merge(durations, percent, parts):
    merged = DurationHistogram()
    for part in range(parts):
        histogram = DurationHistogram()
        histogram.add(durations[part::parts])
        merged.merge(histogram)
    assert merged.count == len(durations)
    assert merged.percentile(percent) == pytest.approx(exact(durations, percent), rel=0.005)
    assert merged.total == pytest.approx(sum(durations), rel=0.005)


def test_no_call_has_no_percentile_and_no_time_is_zero():
    histogram = DurationHistogram()
    assert histogram.percentile(50) is None
    histogram.add([0.0, 0.0])
    assert histogram.percentile(99) == 0


async def _mixed(runtime):
    session = runtime.session(caller="agent", user="ada")
    for number in range(BATCH + 10):
        await session.call("hello", {"name": str(number)})
    await session.call("hello", {"nme": "x"})
    await session.call("broken")
    await session.call("off")
    await session.call("nobody")
    await runtime.call("hello", {"name": "x"})


def test_the_numbers_add_up_to_all_calls():
    runtime = shop()
    asyncio.run(_mixed(runtime))
    taken = runtime.statistics
    assert taken.calls == BATCH + 15
    assert taken.totals.outcomes == {
        "ok": BATCH + 11,
        "invalid_arguments": 1,
        "tool_error": 1,
        "unavailable": 1,
        "not_found": 1,
    }
    assert taken.totals.codes == {"invalid_arguments": 1, "no_luck": 1, "disabled": 1, "not_found": 1}
    assert {name: totals.calls for name, totals in taken.tools.items()} == {
        "": 1,
        "broken": 1,
        "hello": BATCH + 12,
        "off": 1,
    }
    assert {name: totals.calls for name, totals in taken.callers.items()} == {"": 1, "agent": BATCH + 14}
    assert {name: totals.calls for name, totals in taken.users.items()} == {"": 1, "ada": BATCH + 14}
    for groups in (taken.tools, taken.callers, taken.users):
        assert sum(totals.durations.count for totals in groups.values()) == taken.calls


def test_synchronous_and_streamed_calls_are_counted_too():
    runtime = shop()
    runtime.call_sync("hello", {"name": "x"})
    runtime.call_sync("nobody")

    async def stream():
        async for _event in runtime.stream("hello", {"name": "x"}):
            pass

    asyncio.run(stream())
    assert runtime.statistics.totals.outcomes == {"ok": 2, "not_found": 1}


def test_a_cancelled_caller_is_counted():
    async def run():
        script = Script(takes=1)
        runtime = reaching(script)
        task = asyncio.create_task(runtime.call("tool"))
        while not script.calls:
            await RealClock().sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return runtime

    runtime = asyncio.run(run())
    assert runtime.statistics.totals.outcomes == {"cancelled": 1}
    assert runtime.running() == ()


def test_retries_are_one_call_and_durations_follow_the_clock():
    async def run():
        runtime = reaching(
            Script(failed(), Result.success(1), takes=2), "limits: {backoff: {first: 1ms, longest: 1ms}}"
        )
        await runtime.session(clock=VirtualClock()).call("tool")
        return runtime

    totals = asyncio.run(run()).statistics.totals
    assert totals.calls == 1
    assert totals.durations.percentile(50) == pytest.approx(4, rel=0.005)


def test_denials_and_violations(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(
        "project: shop\naccess: {rules: [{deny: {tool: broken}}]}\n", encoding="utf-8"
    )
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "descriptors" / "tools.yaml").write_text(TOOLS, encoding="utf-8")
    with Runtime.open(tmp_path, index=False) as runtime:
        result = runtime.call_sync("broken")
    assert (result.outcome.value, runtime.statistics.denials) == ("denied", 1)
    assert runtime.statistics.violations == runtime.violations.total == 1
    assert repr(runtime.statistics) == "Statistics(1 calls of 1 tools, 1 denied)"


def test_cache_hits_are_counted():
    fresh = Result.success(1, meta={"freshness": {"lifetime": 60.0, "age": 0.0, "validators": {}}})

    async def run():
        runtime = reaching(Script(fresh), "annotations: {read_only: true}")
        session = runtime.session(clock=VirtualClock())
        return runtime, [await session.call("tool") for _ in range(3)]

    runtime, results = asyncio.run(run())
    assert [result.usage.attempts for result in results] == [1, 0, 0]
    assert runtime.statistics.cached == 2


def test_a_reset_returns_what_was_and_starts_anew():
    runtime = shop()
    asyncio.run(_mixed(runtime))
    before = runtime.reset_statistics()
    assert (before.calls, runtime.statistics.calls, runtime.statistics.rows) == (BATCH + 15, 0, ())
    runtime.call_sync("hello", {"name": "x"})
    after = runtime.statistics
    assert (after.calls, after.since) == (1, before.until)
    assert before.merge(after).calls == BATCH + 16


def test_statistics_of_several_processes_are_merged_through_json():
    first, second = shop(), shop()
    asyncio.run(_mixed(first))
    second.call_sync("hello", {"name": "x"})
    taken = [
        Statistics.from_json(json.loads(json.dumps(each.statistics.as_json()))) for each in (first, second)
    ]
    merged = taken[0].merge(taken[1])
    assert merged.calls == BATCH + 16
    assert merged.tools["hello"].durations.count == BATCH + 13
    assert merged.since == taken[0].since
    # Merging changes neither of them.
    assert [each.calls for each in taken] == [BATCH + 15, 1]


@pytest.mark.parametrize("document", [{}, {"format": 1}, {"format": 2}, {"format": 1, "rows": 3}])
def test_other_documents_are_refused(document):
    with pytest.raises(ConfigurationError, match="statistics"):
        Statistics.from_json(document)


def test_the_table_has_a_line_for_each_combination():
    runtime = shop()
    asyncio.run(_mixed(runtime))
    lines = list(csv.DictReader(io.StringIO(runtime.statistics.as_csv())))
    assert sum(int(line["calls"]) for line in lines) == runtime.statistics.calls
    ok = next(
        line
        for line in lines
        if line["tool"] == "hello" and line["caller"] == "agent" and line["outcome"] == "ok"
    )
    assert int(ok["calls"]) == BATCH + 10
    assert 0 < float(ok["p50"]) <= float(ok["p90"]) <= float(ok["p99"])


def test_prometheus_reads_the_text():
    runtime = shop()
    awkward = 'a "quoted" \\ name\nand a line'
    asyncio.run(_mixed(runtime))
    asyncio.run(runtime.session(caller=awkward).call("hello", {"name": "x"}))
    families = {
        each.name: each
        for each in prometheus.text_string_to_metric_families(runtime.statistics.as_prometheus())
    }
    calls = families["toolcrib_calls"].samples
    assert sum(sample.value for sample in calls) == runtime.statistics.calls
    assert awkward in {sample.labels["caller"] for sample in calls}
    durations = families["toolcrib_call_duration_seconds"]
    assert durations.type == "summary"
    counts = [sample for sample in durations.samples if sample.name.endswith("_count")]
    assert sum(sample.value for sample in counts) == runtime.statistics.calls
    quantiles = {sample.labels["quantile"] for sample in durations.samples if "quantile" in sample.labels}
    assert quantiles == {"0.5", "0.9", "0.99"}
    assert families["toolcrib_access_violations"].samples[0].value == 0


def test_memory_depends_on_tools_and_callers_and_not_on_calls():
    runtime = shop()

    def size() -> int:
        rows = runtime.statistics.rows
        held = runtime._engine.call_statistics
        series = held._series
        entries = sum(len(each.pending) for each in series.values())
        return sum(sys.getsizeof(row.durations.buckets) for row in rows) + entries

    async def calls(number):
        session = runtime.session(caller="agent")
        for _ in range(number):
            await session.call("hello", {"name": "x"})
            await session.call("unknown_" + str(number))

    asyncio.run(calls(2 * BATCH))
    assert len(runtime.statistics.rows) == 2
    assert size() < 100_000


def test_an_estimate_is_declared_until_enough_calls_were_observed():
    async def run():
        runtime = reaching(Script(takes=2), "estimate: {duration: 5s, cost: 0.25}", "")
        session = runtime.session(clock=VirtualClock())
        first = runtime.estimate("tool")
        assert first.duration == (5, "declared", 0, 5)
        assert first.cost == (0.25, "declared", 0, 0.25)
        assert first.output == (None, "unknown", 0, None)
        for _ in range(ENOUGH - 1):
            await session.call("tool")
        assert runtime.estimate("tool").duration == (5, "declared", ENOUGH - 1, 5)
        await session.call("tool")
        duration = runtime.estimate("tool").duration
        assert duration[1:] == ("observed", ENOUGH, 5)
        assert duration.value == pytest.approx(2, rel=0.005)
        # Without a declaration, one call is better than nothing.
        assert runtime.estimate("tool_2").duration == (None, "unknown", 0, None)
        await session.call("tool_2")
        assert runtime.estimate("tool_2").duration[1:] == ("observed", 1, None)
        assert runtime.estimate("tool_2").as_json()["duration"]["source"] == "observed"

    asyncio.run(run())


def test_an_estimate_of_an_unknown_tool_names_the_nearest():
    with pytest.raises(ConfigurationError, match="unknown tool `helo`") as raised:
        shop().estimate("helo")
    assert raised.value.hint == "did you mean `hello`?"
