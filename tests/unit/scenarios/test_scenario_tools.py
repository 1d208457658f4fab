"""The tools as a scenario sees them are made, and bound, once for all its runs; another reading makes them anew."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from in_memory import runtime_of
from toolcrib import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.scenarios import run_scenario
from toolcrib.scenarios.run_setup import registry_for

TEXT = """
name: tool
input_schema: {}
mock: {result: its own}
---
scenario: s
mocks: {tool: {rules: [{when: {call: 1}, reply: {result: the scenario's}}, {reply: {error: again}}]}}
steps: [{call: tool, expect: {result: the scenario's}}, {call: tool, expect: {error: {message: again}}}]
"""


class Counting(MockExecutor):
    """Mocks that count how often one is bound."""

    bound = 0

    def bind(self, descriptor):
        type(self).bound += 1
        return super().bind(descriptor)


def test_the_tools_of_a_scenario_are_bound_once_and_remember_nothing_from_run_to_run():
    Counting.bound = 0
    executors = Executors({"mock": Counting})
    runtime = runtime_of(TEXT, executors=executors)
    (scenario,) = runtime.scenarios
    for _ in range(3):
        report = asyncio.run(run_scenario(runtime, scenario))
        assert report.passed, str(report)
    assert Counting.bound == 1
    assert asyncio.run(runtime.call("tool")).value == "its own"


def test_what_a_scenario_sees_depends_on_its_own_mocks_and_on_the_tools_that_there_are():
    runtime = runtime_of(TEXT)
    (scenario,) = runtime.scenarios
    seen = registry_for(runtime.registry, scenario)
    assert registry_for(runtime.registry, replace(scenario, seed=7, run=2)) is seen
    other = replace(scenario, mocks={"tool": {"result": "another"}})
    assert registry_for(runtime.registry, other)["tool"].bindings["mock"] == {"result": "another"}
    assert registry_for(runtime.registry.after(runtime.registry), scenario) is not seen
    assert registry_for(runtime.registry, replace(scenario, mocks={})) is runtime.registry


def test_many_scenarios_are_forgotten_again_and_still_see_their_own_mocks():
    runtime = runtime_of(TEXT)
    (scenario,) = runtime.scenarios
    for round_ in range(2):
        for number in range(100):
            mocks = {"tool": {"result": [round_, number]}}
            found = registry_for(runtime.registry, replace(scenario, mocks=mocks))
            assert found["tool"].bindings["mock"] == mocks["tool"]
