"""One call does a bounded number of steps, whatever its mock asks for."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from in_memory import MOCKS
from keeping import calls, loaded_with
from library import failed, played, tool
from sampling import sample
from toolcrib import Outcome, Runtime
from toolcrib.core.model import Collection, Fixture
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.executors.mock.store_rows import write_path
from toolcrib.executors.mock.unit_of_work import UnitOfWork
from toolcrib.expressions.expression import compile_expression
from toolcrib.expressions.values import MOST_STEPS, CountedScope, StepBudget
from toolcrib.simulation.store import Store

MANY = 20_000
ROWS: dict[str, Any] = {f"k{number}": {"n": number} for number in range(MANY)}
BIG = Fixture({"big": Collection("big", "/big", rows=ROWS)})


def spent(source: str, scope: dict[str, Any]) -> int:
    """The steps that an expression takes."""
    counted = CountedScope(StepBudget())
    counted.update(scope)
    compile_expression(source, dict.fromkeys(scope)).run(counted)
    return MOST_STEPS - counted.budget.steps


@pytest.mark.parametrize(
    ("source", "steps"),
    [
        ("a | keys", 0),
        ("big | keys", MANY),
        ("big | values | where(n=1)", 2 * MANY),
        ("zip(list, list)", 2 * MANY),
        ("big | length", 0),
        ("list | first", 0),
        ("big", 0),
        ("text | upper", MANY // 64),
        ("[big] | unique", 2 * MANY + 1),
        ("[big] == [big]", 2 * MANY + 1),
        ("big == big == big", 4 * MANY),
        ("big != 1", 0),
        ("'k1' in list", MANY),
        ("'k1' in big", 0),
        ("list is in [1]", 1),
        ("'k1' is in list", MANY),
    ],
)
def test_what_an_expression_goes_through_is_counted(source: str, steps: int):
    scope = {"a": {"x": 1}, "big": ROWS, "list": list(ROWS), "text": "x" * MANY}
    assert spent(source, scope) == steps


def test_what_becomes_text_is_counted_at_every_level():
    scope = {"rows": [{"a": [1, 2]}] * 100}
    assert [spent(source, scope) for source in ("rows | tojson", "rows ~ ''", "rows | join")] == [400] * 3


def test_rows_that_are_copied_count_an_eighth():
    work = UnitOfWork(Store(), BIG)
    work.rows("big")
    work.put("big", "k1", {}, "/e")
    work.row("big", "k1")
    assert work.steps == MOST_STEPS
    work.rows("big")
    work.rows("big")
    assert work.steps == MOST_STEPS - MANY // 8


def test_what_is_copied_to_write_a_place_counts_an_eighth():
    work = UnitOfWork(
        Store(), Fixture({"one": Collection("one", "/one", rows={"a": {"list": list(range(MANY))}})})
    )
    write_path(work, ("one", "a", "list", 3), 9, [9], "/e")
    assert work.steps == MOST_STEPS - MANY // 8


def test_rows_are_removed_without_a_copy_of_the_others():
    work = UnitOfWork(Store(), BIG)
    seen = work.rows("big")
    for key in list(ROWS)[1:5000]:
        work.remove("big", key)
    work.put("big", "k1", {"n": "again"}, "/e")
    work.remove("big", "k0")
    assert work.steps == MOST_STEPS
    after = work.rows("big")
    assert MOST_STEPS - work.steps == MANY // 8
    assert (len(seen), len(after), list(after)[-1]) == (MANY, MANY - 4999, "k1")
    work.remove("big", "k1")
    assert ("k1" in after, "k1" in work.rows("big"), len(ROWS)) == (True, False, MANY)


TURNS = "for_each: {i: '{{ range(600) }}'}"

TOO_MUCH = {
    "result": f"result: {{{TURNS}, value: '{{{{ store.big | keys | length }}}}'}}",
    "let": f"let: {{l: {{{TURNS}, value: '{{{{ store.big | keys | length }}}}'}}}}\nresult: '{{{{ l }}}}'",
    "template": "template: '{% for i in range(600) %}{{ store.big | keys | length }}{% endfor %}'",
    "effects": f'effects: [{{{TURNS}, increment: "big[\'k1\'].n", by: "{{{{ store.big | values | length }}}}"}}]\nresult: 1',
}


@cache
def over_many_rows(reply: str) -> Runtime:
    files = {"big.json": json.dumps(ROWS)}
    found = loaded_with(tool(reply), "store: {big: big.json}", MOCKS, files)
    assert [str(problem) for problem in found.problems] == []
    return loaded_runtime(found, executors=MOCKS)


@pytest.mark.parametrize("reply", sample(TOO_MUCH.values(), one_in=2), ids=sample(TOO_MUCH, one_in=2))
def test_a_call_that_goes_through_too_much_is_a_bug_of_the_mock(reply: str):
    session = over_many_rows(reply).session()
    (result,) = calls(session, {})
    assert (result.outcome, result.error.code) == (Outcome.INTERNAL, "mock_failed")
    assert "processes more than 5,000,000 elements" in result.message
    assert session.store.changed() == {}


def test_each_call_may_do_as_much_as_every_other():
    reply = f"result: {{{TURNS.replace('600', '200')}, value: '{{{{ store.big | keys | length }}}}'}}"
    results = calls(over_many_rows(reply).session(), {}, {})
    assert [result.outcome for result in results] == [Outcome.OK] * 2


def test_each_member_that_is_set_may_have_so_many_parts():
    setting = "{one: '{{ range(%s) }}', two: '{{ range(10000) }}', three: {four: '{{ range(%s) }}'}}"
    block = f"rows: {{reader: {{in: readers, key: ann}}}}\neffects: [{{update: reader, set: {setting}}}]\nresult: 1"
    assert played(block % (10000, 9999)).value == 1
    assert "cannot store a value with more than 10,000 parts" in failed(block % (10000, 10000)).message
