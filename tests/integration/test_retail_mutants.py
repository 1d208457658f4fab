"""The judges of the retail pack, judged: every rule that is left out of a mock is noticed, and so is every wrong order.

How each was noticed is printed: `pytest -rP`.
"""

from __future__ import annotations

import json
from functools import cache

import pytest

from retail.cases import cases, first_store
from retail.mutants import Mutant, documents, mutants, runtime_over
from retail.playing import Played, ask, read
from retail.reading import REASONS
from retail.worlds import TOOLS, ToolCall, session, world
from sampling import examples, sample
from toolcrib import Runtime

SESSIONS = 200
WORLD = world(6, size=4)

UNSAID = "the rules do not say what an expression without a value answers"

EQUIVALENT = {
    "calculate: without guard `Error: the expression has no value`": UNSAID,
    "calculate: guard/1/if with `>=` for `>`": UNSAID,
    "calculate: guard/1/if without `| abs`": UNSAID,
    "modify_pending_order_payment: rows/old/key with `[-1]` for `[0]`": "of one entry the first is the last",
    "modify_pending_order_payment: let/paid with `[-1]` for `[0]`": "of one entry the first is the last",
}
"""Name of a mutant that nothing can notice -> why."""


@cache
def played(tool: str) -> list[tuple[list[ToolCall], Played]]:
    """Sessions of one tool alone, and what they must come to."""
    sessions = [session(f"{tool} {turn}", WORLD, tool, (*REASONS, "too late")) for turn in range(SESSIONS)]
    calls = [[call for call in calls if call.tool == tool] for calls in sessions]
    return [(own, read(WORLD, own)) for own in calls if own]


async def noticed_by_a_session(runtime: Runtime, tool: str, most: int = SESSIONS) -> str:
    for turn, (calls, expected) in enumerate(played(tool)[:most]):
        try:
            if await ask(runtime, calls) != expected:
                return f"session {turn}"
        except AssertionError:
            return f"session {turn}: a failed call has changed rows"
    return ""


async def noticed_by_a_case(runtime: Runtime, tool: str) -> str:
    store = first_store()
    for case in cases():
        calls = [expected.call for expected in case.calls]
        if tool in {call.tool for call in calls} and await ask(runtime, calls) != read(store, calls):
            return f"case {case.name}"
    return ""


async def noticed(mutant: Mutant) -> str:
    """What noticed it; empty where nothing did."""
    runtime = runtime_over(WORLD, mutant.document, alone=True)
    with runtime:
        found = await noticed_by_a_session(runtime, mutant.tool)
    if found:
        return found
    whole = runtime_over(first_store(), mutant.document)
    with whole:
        return await noticed_by_a_case(whole, mutant.tool)


def test_every_tool_is_of_the_pack():
    assert set(documents()) == set(TOOLS)


@pytest.mark.parametrize("tool", sample(sorted(TOOLS), one_in=8))
async def test_the_tools_as_they_are_are_not_noticed(tool):
    """With free texts as reasons, so that `Error: invalid reason` is met."""
    alone = runtime_over(WORLD, documents()[tool], alone=True)
    with alone:
        assert await noticed_by_a_session(alone, tool, examples(SESSIONS)) == ""


async def test_the_cases_hold_beyond_the_schema():
    whole = runtime_over(first_store())
    with whole:
        for case in cases():
            calls = [expected.call for expected in case.calls]
            answers = (await ask(whole, calls)).answers
            assert [json.loads(answer) for answer in answers] == [expected.answer for expected in case.calls]


@pytest.mark.parametrize(
    "mutant", [pytest.param(mutant, id=mutant.name) for mutant in sample(mutants(), one_in=24)]
)
async def test_every_change_of_a_rule_is_noticed(mutant):
    found = await noticed(mutant)
    print(f"{mutant.name}: {found or EQUIVALENT.get(mutant.name, 'NOT NOTICED')}")  # noqa: T201 -- the table
    assert (found == "") == (mutant.name in EQUIVALENT), found


def test_what_is_called_equivalent_exists():
    assert set(EQUIVALENT) <= {mutant.name for mutant in mutants()}
