"""Effects with `after`: applied at their time on the session's clock, before the next call."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from in_memory import MOCKS
from keeping import changed, loaded_with
from library import LIBRARY, failed, played, refused, tool
from sampling import examples
from toolcrib import Outcome, VirtualClock
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.scenarios import run_scenario
from toolcrib.simulation.store import MOST_PENDING

SHIP = """
name: ship
input_schema: {}
mock:
  rows: {it: {in: books, key: "{{ args.isbn }}"}}
  let: {was: "{{ it.copies }}"}
  effects:
  - {update: it, set: {copies: 9}}
  - after: "{{ args['in'] | default('2h') }}"
    if: "{{ it and it.copies == 9 }}"
    do:
    - {update: it, set: {copies: 5}}
    - {insert: log, value: {was: "{{ was }}", tag: "{{ args.tags[0] }}", at: "{{ now }}", key: "{{ key_of.it }}"}}
    - {after: 1d, insert: log, value: {at: "{{ now }}"}}
  result: "{{ it.copies }}"
---
name: set
input_schema: {}
mock:
  effects: [{update: "books[args.isbn]", set: {copies: "{{ args.n }}"}}]
  result: done
---
name: drop
input_schema: {}
mock: {effects: [{delete: "books.b1"}], result: done}
---
name: look
input_schema: {}
mock: {result: "{{ store.books.b1.copies }}"}
---
name: odd
input_schema: {}
mock: {effects: [{after: 1h, increment: "readers.bob.nope"}], result: done}
"""

START = "2030-01-01T"


def told(*steps, document=SHIP):
    """The session after calls `(tool, arguments)` and times by which the clock is advanced, with the results."""
    runtime = loaded_runtime(loaded_with(document, LIBRARY), executors=MOCKS)
    clock = VirtualClock()
    session = runtime.session(clock=clock)

    async def run():
        results = []
        for step in steps:
            if isinstance(step, tuple):
                results.append(await session.call(*step))
            else:
                await clock.advance(step)
        return results

    return asyncio.run(run()), session


def test_an_effect_is_applied_at_its_time_with_the_values_of_its_call():
    arguments = {"isbn": "b1", "tags": ["x"]}
    results, session = told(("ship", arguments), 7199, ("look", {}), 1, ("look", {}), 86_400)
    arguments["tags"][0] = "y"
    assert [result.value for result in results] == [9, 9, 5]
    assert changed(session)["log"] == {
        "1": {"was": 2, "tag": "x", "at": f"{START}02:00:00Z", "key": "b1"},
        "2": {"at": "2030-01-02T02:00:00Z"},
    }


def test_its_arguments_stay_what_they_were_in_the_call():
    arguments = {"isbn": "b1", "tags": ["x"]}
    runtime = loaded_runtime(loaded_with(SHIP, LIBRARY), executors=MOCKS)
    clock = VirtualClock()
    session = runtime.session(clock=clock)

    async def run():
        await session.call("ship", arguments)
        arguments["tags"][0] = "y"
        await clock.advance(7200)

    asyncio.run(run())
    assert changed(session)["log"]["1"]["tag"] == "x"


def test_its_condition_is_asked_at_its_time():
    _, session = told(("ship", {"isbn": "b1", "tags": ["x"]}), ("set", {"isbn": "b1", "n": 1}), 7200)
    assert changed(session) == {"books": {"b1": {**LIBRARY_B1, "copies": 1}}}
    assert session.store.pending_count == 0


LIBRARY_B1 = {
    "isbn": "b1",
    "title": "Emma",
    "copies": 2,
    "shelf": {"room": "A", "no": 1},
    "tags": ["novel"],
    "fees": [],
}


def test_a_call_without_effect_leaves_nothing_for_later():
    refusing = SHIP.replace("  result:", "  - {if: '{{ args.no }}', error: refused}\n  result:", 1)
    (result,), session = told(("ship", {"isbn": "b1", "tags": [], "no": True}), document=refusing)
    assert result.outcome is Outcome.TOOL_ERROR
    assert session.store.pending_count == 0


@pytest.mark.parametrize("late", ["look", "set"])
def test_the_next_call_reports_an_effect_that_fails_and_only_that_call(late):
    arguments = {"isbn": "b2", "n": 1}
    results, session = told(("odd", {}), 3600, (late, arguments), (late, arguments))
    first, broken, fine = results
    assert (first.outcome, fine.outcome) == (Outcome.OK, Outcome.OK)
    assert (broken.outcome, broken.error.code) == (Outcome.INTERNAL, "mock_failed")
    assert broken.error.details["pointer"] == "/mock/effects/0/increment"
    assert broken.error.details["at"] in broken.message
    assert f"an effect of `odd` that was due at {START}01:00:00Z failed at" in broken.message
    assert session.store.failed == []


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ("soon", "`soon` is not a valid duration"),
        ("-1h", "`-1h` is not a valid duration"),
        ("", "`` is not a valid duration"),
        ("0s", "must be longer than 0s"),
        ("99999999d", "beyond the year 9999"),
        (f"{'9' * 400}d", "beyond the year 9999"),
        (3600, "needs a duration such as `2h`, not a number"),
        (None, "not none"),
        (["2h"], "not a list"),
    ],
)
def test_what_is_no_time_is_a_mistake_of_the_mock(after, words):
    block = 'effects: [{after: "{{ args.after }}", insert: log, value: {}}]\nresult: 1'
    result = failed(block, {"after": after})
    assert words in result.message
    assert result.error.details["pointer"].startswith("/mock/effects/0")


@pytest.mark.parametrize(
    ("effect", "faults"),
    [
        ("{after: soon, insert: log, value: {}}", [("wrong_form", "/mock/effects/0/after")]),
        ("{after: 0s, insert: log, value: {}}", [("out_of_range", "/mock/effects/0/after")]),
        ("{after: 2, insert: log, value: {}}", [("wrong_form", "/mock/effects/0/after")]),
        ("{after: '{{ nope }}', insert: log, value: {}}", [("unknown_name", "/mock/effects/0/after")]),
        ("{after: 1h}", [("wrong_combination", "/mock/effects/0")]),
        ("{after: 1h, if: '{{ args.x }}', error: late}", [("unreachable_effect", "/mock/effects/0/error")]),
        (
            "{after: 1h, do: [{if: '{{ args.x }}', do: [{if: '{{ args.y }}', error: late}]}]}",
            [("unreachable_effect", "/mock/effects/0/do/0/do/0/error")],
        ),
    ],
)
def test_what_can_never_work_is_found_when_the_tool_is_loaded(effect, faults):
    assert refused(f"effects: [{effect}]\nresult: 1") == faults


def test_pending_effects_are_bounded():
    block = f"""
        effects:
        - for_each: {{n: "{{{{ range({MOST_PENDING // 2 + 1}) }}}}"}}
          after: 1h
          insert: log
          value: {{n: "{{{{ n }}}}"}}
        result: 1
    """
    ended = played(block, {}, {})
    assert [result.outcome for result in ended.results] == [Outcome.OK, Outcome.INTERNAL]
    assert "more than 10,000 pending effects" in ended.results[1].message
    assert ended.session.store.pending_count == MOST_PENDING // 2 + 1


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("later"), st.integers(1, 9)), st.tuples(st.just("advance"), st.integers(0, 9))
    ),
    max_size=12,
)


@settings(max_examples=examples(60), deadline=None)
@given(STEPS)
def test_effects_are_applied_in_the_order_of_their_times_then_of_their_calls(steps):
    block = """
        effects:
        - after: "{{ args.n }}s"
          do: [{insert: log, value: {id: "{{ call }}", at: "{{ now }}"}}]
        result: "{{ store.log | length }}"
    """
    moves = [n if kind == "advance" else ("tool", {"n": n}) for kind, n in steps]
    _, session = told(*moves, document=tool(block))
    time, due, number = 0, [], 0
    for kind, n in steps:
        if kind == "advance":
            time += n
        else:
            number += 1
            due.append((time + n, number))
    expected = [(f"{START}00:{at // 60:02}:{at % 60:02}Z", id_) for at, id_ in sorted(due) if at <= time]
    rows = session.store.rows("log").values()
    assert [(row["at"], row["id"]) for row in rows] == expected
    assert session.store.pending_count == len(due) - len(expected)


def reported(steps, verify=""):
    scenario = f"scenario: s\nsteps: {steps}\n{verify}"
    runtime = loaded_runtime(
        loaded_with(SHIP, LIBRARY, files={"s.yaml": scenario}), executors=MOCKS, clock=VirtualClock()
    )
    return asyncio.run(run_scenario(runtime, runtime.scenarios[0]))


def test_effects_that_are_still_due_at_the_end_of_a_scenario_are_reported():
    report = reported("[{call: ship, args: {isbn: b1, tags: [x]}}, {advance: 30m}]")
    assert report.passed
    (warning,) = report.warnings
    assert warning.what == "effects"
    assert "an effect of `ship` (tools.yaml:9) is due 90m after the end" in warning.lines[0]
    assert "advance" in warning.lines[-1]


def test_a_scenario_sees_at_its_end_what_is_due_by_then():
    steps = "[{call: ship, args: {isbn: b1, tags: [x]}}, {advance: 2d}]"
    report = reported(steps, "verify: {store: {books: {b1: {copies: 5}}}}")
    assert (report.passed, report.warnings) == (True, ())


def test_an_effect_that_fails_after_the_last_call_fails_the_run():
    report = reported("[{call: odd}, {advance: 1h}]")
    assert not report.passed
    assert [failure.what for failure in report.failures] == ["effects"]
