"""Parallel steps in further orders: which they are, how they are told, and that each is a run of its own."""

from __future__ import annotations

import asyncio
from math import factorial
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from in_memory import runtime_of
from toolcrib.core.errors import ConfigurationError
from toolcrib.scenarios import run_scenario, runs_of

TAKE = """
name: take
input_schema: {type: object, properties: {who: {type: string}}}
mock: {sequence: [{result: the last one}], after_last: repeat}
---
name: count
input_schema: {type: object, properties: {who: {type: string}}}
mock: {result: "{{ call }}"}
---
"""

RACE = """
scenario: race
steps:
  - {call: count, expect: {result: 1}}
  - name: two customers
    parallel:
      - {call: count, args: {who: ann}, as: first, expect: {result: 2}}
      - {call: count, args: {who: bob}, as: second, expect: {result: 3}}
  - {call: count, args: {who: "{{ first.result }}"}}
"""


def scenario_of(text):
    (scenario,) = runtime_of(TAKE + dedent(text)).scenarios
    return scenario


def orders_of(runs):
    return [[call.label for call in run.calls] for run in runs]


def parallel(*sizes):
    steps = "".join(f"  - parallel: [{', '.join(['{call: count}'] * size)}]\n" for size in sizes)
    return scenario_of(f"scenario: s\nsteps:\n{steps}")


def test_without_other_orders_a_scenario_is_itself():
    scenario = scenario_of(RACE)
    assert runs_of(scenario) == [scenario]
    alone = scenario_of("scenario: s\nsteps: [{call: count}, {parallel: [{call: count}]}]")
    assert runs_of(alone, interleave=5) == [alone]


def test_there_are_no_more_orders_than_there_can_be_and_the_written_one_is_the_first():
    runs = runs_of(scenario_of(RACE), interleave=9)
    assert [run.name for run in runs] == ["race[order 1/2]", "race[order 2/2]"]
    assert orders_of(runs) == [["1", "2.1", "2.2", "3"], ["1", "2.2", "2.1", "3"]]
    assert [run.base for run in runs] == ["race", "race"]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(1, 40), st.integers(0, 3))
def test_orders_are_different_complete_and_the_same_for_the_same_seed(sizes, further, seed):
    scenario = parallel(*sizes)
    runs = runs_of(scenario, interleave=further, seed=seed)
    orders = orders_of(runs)
    possible = 1
    for size in sizes:
        possible *= factorial(size)
    assert len(orders) == min(further + 1, possible) == len({tuple(order) for order in orders})
    written = [call.label for call in scenario.calls]
    assert orders[0] == written
    assert all(sorted(order) == sorted(written) for order in orders)
    assert orders == orders_of(runs_of(parallel(*sizes), interleave=further, seed=seed))


def test_other_seeds_draw_other_orders():
    scenario = parallel(8)
    drawn = [orders_of(runs_of(scenario, interleave=3, seed=seed)) for seed in range(4)]
    assert len({str(orders[1:]) for orders in drawn}) == 4


def test_very_many_parallel_calls_have_orders_too():
    runs = runs_of(parallel(300), interleave=2)
    assert len({tuple(order) for order in orders_of(runs)}) == 3


def test_combinations_and_repetitions_are_each_run_in_other_orders():
    scenario = scenario_of(RACE.replace("race", "race\nmatrix: {city: [Oslo, Rome]}\nrepeat: 2"))
    names = [run.name for run in runs_of(scenario, interleave=1)]
    assert len(names) == 8
    assert names[:3] == [
        "race[city=Oslo][1/2][order 1/2]",
        "race[city=Oslo][1/2][order 2/2]",
        "race[city=Oslo][2/2][order 1/2]",
    ]


def test_orders_count_as_runs():
    with pytest.raises(ConfigurationError, match="1,200 runs"):
        runs_of(parallel(8), interleave=299, repeat=4)


def test_a_failure_tells_the_order_as_steps():
    runtime = runtime_of(TAKE + RACE)
    written, other = runs_of(runtime.scenarios[0], interleave=1)
    assert asyncio.run(run_scenario(runtime, written)).passed
    report = asyncio.run(run_scenario(runtime, other))
    lines = str(report).splitlines()
    assert lines[0].startswith("FAILED race[order 2/2] › step 2.2 “two customers” (")
    assert lines[-3:] == ["  1 later step did not run", "  calls began in the order 2.2, 2.1", "  seed 0"]
    assert report.as_json()["order"] == [["2.2", "2.1"]]
    assert asyncio.run(run_scenario(runtime, runtime.scenarios[0])).as_json()["order"] == []


def test_what_a_call_saves_keeps_its_name_in_another_order():
    runtime = runtime_of(
        TAKE + RACE.replace(", expect: {result: 2}", "").replace(", expect: {result: 3}", "")
    )
    _written, other = runs_of(runtime.scenarios[0], interleave=1)
    report = asyncio.run(run_scenario(runtime, other))
    assert report.steps[-1].args == {"who": 3}
