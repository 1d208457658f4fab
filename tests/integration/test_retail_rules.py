"""The retail pack against the hand-derived cases of its English rules."""

from __future__ import annotations

import json

import pytest

from retail.cases import STORE, cases
from retail.playing import answered, opened
from toolcrib import Outcome
from toolcrib.store import store_of


@pytest.fixture(scope="module")
def runtime():
    with opened(STORE) as runtime:
        yield runtime


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in cases()])
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
