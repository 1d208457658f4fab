"""What a scenario draws is keyed: a call that is added changes no draw of another tool, nor one of another run."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from in_memory import runtime_of
from sampling import examples
from toolcrib.scenarios import run_scenario

TOOLS = """
name: roll
input_schema: {type: object}
mock: {result: {id: "{{ uuid() }}", of: "{{ pick(['a', 'b', 'c', 'd', 'e', 'f']) }}", at: "{{ random(0, 1000000) }}"}, latency: {min: 1ms, max: 9s}}
---
name: other
input_schema: {type: object}
mock: {result: "{{ uuid() }}", latency: {min: 1ms, max: 9s}}
---
name: inserted
input_schema: {type: object}
annotations: {read_only: true}
mock: {result: "{{ uuid() }}"}
---
scenario: s
seed: 11
faults: [{name: shaky, tool: inserted, inject: {slow: 3s}, when: {probability: 0.5}, must_fire: false}]
"""


def rolled(names):
    """What each call of a run answered, and how long it took, by tool and number of the call."""
    steps = ", ".join(f"{{call: {name}}}" for name in names)
    runtime = runtime_of(f"{TOOLS}steps: [{steps}]\n")
    report = asyncio.run(run_scenario(runtime, runtime.scenarios[0]))
    assert report.passed, str(report)
    found = {}
    counts = {}
    for step in report.steps:
        name = step.step.call
        counts[name] = counts.get(name, 0) + 1
        found[name, counts[name]] = (step.result.as_json()["result"], round(step.result.usage.duration, 6))
    return found


CALLS = st.lists(st.sampled_from(["roll", "other"]), min_size=1, max_size=4)


@settings(max_examples=examples(8), deadline=None)
@given(CALLS, st.data())
def test_a_call_of_another_tool_changes_no_draw(names, data):
    place = data.draw(st.integers(0, len(names)))
    alone = rolled(names)
    longer = rolled([*names[:place], "inserted", *names[place:]])
    assert {key: value for key, value in longer.items() if key[0] != "inserted"} == alone


def test_calls_of_one_tool_draw_different_values():
    found = rolled(["roll"] * 4)
    assert len({str(value) for value in found.values()}) == 4
