"""One call of a stateful mock is one step: all of it happens, or nothing."""

from __future__ import annotations

import asyncio

import pytest

from in_memory import mocked
from keeping import TAKE, calls, changed, keeping, session_of
from toolcrib import Outcome, VirtualClock
from toolcrib.simulation.store import store_of


def took(answer, *given, more="", output="{}"):
    session = session_of(mocked(TAKE + answer, output=output, more=more))
    results = calls(session, *given)
    return results, session


def untouched(session):
    return store_of(session).version.rows == {} and store_of(session).version.numbers == {}


def test_effects_happen_and_the_answer_reads_the_rows_as_they_are_now():
    answer = '    result: ["{{ it.balance }}", "{{ store.accounts[args.id].balance }}", "{{ state.till }}"]\n'
    results, session = took(answer, {"id": "ada", "sum": 4}, {"id": "ada", "sum": 5})
    assert [result.value for result in results] == [[6, 6, "open"], [1, 1, "open"]]
    assert changed(session) == {
        "accounts": {"ada": {"id": "ada", "balance": 1}},
        "log": {"1": {"who": "ada"}, "2": {"who": "ada"}},
    }


@pytest.mark.parametrize(
    ("given", "code", "message"),
    [
        ({"id": "eve", "sum": 1}, "tool_error", "no such account"),
        ({"id": "ada", "sum": 11}, "poor", "only 10"),
    ],
)
def test_what_a_missing_row_or_a_guard_answers_changes_nothing(given, code, message):
    (result,), session = took("    result: 1\n", given)
    assert (result.outcome, result.error.code, result.message) == (Outcome.TOOL_ERROR, code, message)
    assert result.meta["mock"] == {"rule": "mock", "reply": 1}
    assert untouched(session)


BUGS = {
    '    result: "{{ it.nope }}"\n': "/mock/result",
    "    result: 1\n    content: [{type: text, text: '{{ it.nope }}'}]\n": "/mock/content/0/text",
    "    result: 1\n    progress: [{progress: 1, message: '{{ it.nope }}'}]\n": "/mock/progress/0/message",
    "    error: {code: odd, details: {a: '{{ it.nope }}'}}\n": "/mock/error/details/a",
    "    - {insert: log, key: '1', value: {}}\n    result: 1\n": "/mock/effects/3",
}


@pytest.mark.parametrize(("answer", "pointer"), BUGS.items())
def test_a_mock_that_is_wrong_changes_nothing_and_says_where(answer, pointer):
    (result,), session = took(answer, {"id": "ada", "sum": 1, "nobody": "eve"})
    assert (result.outcome, result.error.code) == (Outcome.INTERNAL, "mock_failed")
    assert result.error.details["pointer"].startswith(pointer)
    assert result.error.details["at"].startswith("tools.yaml:")
    assert untouched(session)


def test_an_answer_that_the_output_schema_refuses_changes_nothing():
    answer = '    result: "{{ args.answer }}"\n'
    given = [{"id": "ada", "sum": 1, "answer": answer} for answer in ("no", 7, "no")]
    results, session = took(answer, *given, output="{type: integer}")
    assert [result.outcome.value for result in results] == ["invalid_result", "ok", "invalid_result"]
    assert changed(session)["accounts"]["ada"]["balance"] == 9
    assert list(changed(session)["log"]) == ["1"]


@pytest.mark.parametrize("way", ["warn", "pass"])
def test_where_the_descriptor_lets_such_an_answer_pass_its_effects_happen(way):
    (result,), session = took(
        "    result: text\n",
        {"id": "ada", "sum": 1},
        output="{type: integer}",
        more=f"on_invalid_result: {way}",
    )
    assert result.outcome is Outcome.OK
    assert changed(session)["accounts"]["ada"]["balance"] == 9


def test_an_answer_that_is_nested_too_deeply_changes_nothing():
    deep: object = 1
    for _ in range(60):
        deep = [deep]
    answer = "    result: " + "[" * 41 + '"{{ args.deep }}"' + "]" * 41 + "\n"
    (result,), session = took(answer, {"id": "ada", "sum": 1, "deep": deep})
    assert result.outcome is Outcome.INVALID_RESULT
    assert untouched(session)


def test_a_reply_that_answers_an_error_may_have_effects():
    (result,), session = took(
        "    error: {code: declined, details: {left: '{{ it.balance }}'}}\n", {"id": "ada", "sum": 1}
    )
    assert (result.outcome, result.error.details) == (Outcome.TOOL_ERROR, {"left": 9})
    assert changed(session)["accounts"]["ada"]["balance"] == 9


def test_a_row_that_would_not_fit_its_collection_is_a_fault_of_the_mock_and_changes_nothing():
    store = "store: {books: {key: isbn, rows: [], schema: {properties: {isbn: {type: string}, n: {type: integer}}}}}"
    block = """
        effects: [{insert: books, key: "{{ args.isbn }}", value: {isbn: "{{ args.isbn }}", n: "{{ args.n }}"}}]
        result: done
    """
    session = session_of(mocked(block), store)
    bad, good = calls(session, {"isbn": "a", "n": "many"}, {"isbn": "a", "n": 1})
    assert (bad.outcome, bad.error.details["cause"]) == (Outcome.INTERNAL, "row_breaks_schema")
    assert bad.error.details["pointer"].startswith("/mock/effects/0")
    assert good.outcome is Outcome.OK
    assert changed(session) == {"books": {"a": {"isbn": "a", "n": 1}}}


LISTED = """
rules:
- reply:
  - {rows: {it: {in: accounts, key: "{{ args.id }}", missing: gone}}, result: first}
  - {result: second}
  - {rows: {it: {in: accounts, key: ada}}, result: "{{ args.word + it.id }}"}
  - {effects: [{goto: {till: open}}], result: "{{ args.word }}"}
  - {result: last}
"""


def test_what_a_call_uses_up_of_a_list_of_replies():
    session = session_of(mocked(LISTED, output="{type: string}"))
    given = [{"id": "eve"}, {}, {"word": 1}, {"word": "a"}, {"word": 1}, {}]
    results = calls(session, *given)
    assert [result.outcome.value for result in results] == [
        "tool_error",  # a missing row answers, and that is an answer
        "ok",
        "internal",  # what is wrong with the mock uses nothing up
        "ok",
        "invalid_result",  # the tool has answered, though badly
        "ok",
    ]
    assert [result.value for result in results if result.outcome is Outcome.OK] == ["second", "aada", "last"]
    assert store_of(session).version.states == {}


def test_sessions_know_nothing_of_each_other():
    runtime = keeping(mocked(TAKE + '    result: "{{ it.balance }}"\n'))
    first, second = runtime.session(clock=VirtualClock()), runtime.session(clock=VirtualClock())
    given = {"id": "ada", "sum": 3}
    assert [calls(session, given, given)[1].value for session in (first, second)] == [4, 4]


def test_what_a_caller_does_to_an_answer_stays_with_the_caller():
    runtime = keeping(mocked('crud: {get: accounts, key: "{{ args.id }}"}'))
    session = runtime.session(clock=VirtualClock())
    (first,) = calls(session, {"id": "ada"})
    first.value["balance"] = 1_000
    assert calls(session, {"id": "ada"})[0].value == {"id": "ada", "balance": 10}
    assert changed(session) == {}


def test_a_stateful_mock_without_waits_answers_without_an_event_loop():
    session = session_of(mocked(TAKE + '    result: "{{ it.balance }}"\n'))
    calls(session, {"id": "ada", "sum": 1})
    assert session.call_at_once("tool", {"id": "ada", "sum": 1}).value == 8


def test_time_passes_after_the_step_so_that_calls_side_by_side_can_not_both_take_the_last():
    block = TAKE + '    latency: 1s\n    result: "{{ it.balance }}"\n'
    session = session_of(mocked(block))

    async def both():
        given = {"id": "ada", "sum": 10}
        return await asyncio.gather(session.call("tool", given), session.call("tool", given))

    assert sorted(result.outcome.value for result in asyncio.run(both())) == ["ok", "tool_error"]
    assert changed(session)["accounts"]["ada"]["balance"] == 0


def test_progress_shows_what_the_step_made_and_is_not_told_where_a_guard_answers():
    block = TAKE + "    progress: [{progress: 1, message: '{{ it.balance }} left'}]\n    result: 1\n"
    session = session_of(mocked(block))

    async def streamed(given):
        return [item async for item in session.stream("tool", given)]

    seen, result = asyncio.run(streamed({"id": "ada", "sum": 3}))
    assert (seen.message, result.outcome) == ("7 left", Outcome.OK)
    (result,) = asyncio.run(streamed({"id": "ada", "sum": 30}))
    assert result.error.code == "poor"


def test_what_crud_stands_for_fails_at_the_place_that_was_written():
    (result,) = calls(keeping(mocked('crud: {get: accounts, key: "{{ args.id }}"}')), {})
    assert (result.outcome, result.error.details["pointer"]) == (Outcome.INTERNAL, "/mock/crud/key")


def test_numbers_count_in_the_session_whatever_reply_asks_for_them():
    block = "rules: [{when: {args: {a: 1}}, reply: {result: \"{{ seq('n', 10) }}\"}}, {reply: {template: \"{{ seq('n', 1) }}\"}}]"
    session = session_of(mocked(block), "")
    assert [result.value for result in calls(session, {"a": 1}, {}, {"a": 1})] == [10, 11, 12]


def test_draws_differ_from_use_to_use_and_from_call_to_call_and_are_the_same_in_a_session_alike():
    block = 'result: ["{{ uuid() }}", "{{ uuid() }}", "{{ random(1, 1000000) }}"]'
    runtime = keeping(mocked(block) + "---\n" + mocked("result: 1").replace("name: tool", "name: other"), "")
    first = [result.value for result in calls(runtime.session(id="s"), {}, {})]
    assert len({draw for drawn in first for draw in drawn}) == 6
    session = runtime.session(id="s")
    (one,) = calls(session, {})
    calls(session, {}, {}, tool="other")
    (two,) = calls(session, {})
    assert [one.value, two.value] == first
    assert calls(runtime.session(id="t"), {})[0].value != first[0]
