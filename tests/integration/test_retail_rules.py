"""The retail pack against the hand-derived cases of its English rules."""

from __future__ import annotations

import json

import pytest

from retail.cases import STORE, cases
from retail.playing import answered, opened
from sampling import sample
from toolcrib import Outcome
from toolcrib.simulation.store import store_of


@pytest.fixture(scope="module")
def runtime():
    with opened(STORE) as runtime:
        yield runtime


@pytest.mark.parametrize("case", sample([pytest.param(case, id=case.name) for case in cases()], one_in=3))
async def test_the_pack_answers_and_changes_what_was_derived_by_hand(case, runtime):
    session = runtime.session()
    for call, answer, changed, ordered in case.calls:
        before = store_of(session).version
        result = await session.call(*call)
        if case.beyond_schema:
            assert result.outcome is Outcome.INVALID_ARGUMENTS
            assert store_of(session).changed() == {}
            continue
        refused = isinstance(answer, str) and answer.startswith("Error: ")
        assert result.outcome is (Outcome.TOOL_ERROR if refused else Outcome.OK), result
        found = answered(result)
        assert json.loads(found) == answer
        if ordered:
            assert found == json.dumps(answer)
        assert store_of(session).changed() == changed
        if refused:
            assert store_of(session).version is before


@pytest.mark.parametrize(
    "expression",
    ["", " ", "2 +", "1/0", "()", "1 2", "2 ** 99999", "10 ** 309", "-10 ** 309", "1e", "9" * 310],
)
async def test_an_expression_without_a_value_is_refused(expression, runtime):
    """The rules do not say so; it must be an answer all the same, and never a bug of the pack."""
    refusal = "invalid characters in" if "e" in expression else "the"
    result = await runtime.session().call("calculate", {"expression": expression})
    assert result.outcome is Outcome.TOOL_ERROR
    assert result.error.message.startswith(f"Error: {refusal} expression")


async def test_a_large_number_is_answered(runtime):
    result = await runtime.session().call("calculate", {"expression": "-10 ** 308"})
    assert (result.outcome, result.value) == (Outcome.OK, "-1e+308")
