"""Replies of mocks that fail as the world fails, with the layers of tools that reach out around them."""

from __future__ import annotations

import asyncio

import pytest

from in_memory import MOCKS, loaded, mocked, runtime_of
from keeping import TAKE, calls, changed, faults_of, session_of
from toolcrib import Outcome, Registry, Runtime, VirtualClock
from toolcrib.core.model import InjectedFault
from toolcrib.executors.mock.variables import MOST_ACTS, MockState

IDEMPOTENT = "annotations: {idempotent: true}"
ADA = {"id": "ada", "sum": 1}
OUTPUT = "{type: object, properties: {n: {type: integer}}, required: [n], additionalProperties: false}"


def failing(kind, *given, more="timeout: 5s", output="{}", rest="{result: {n: 0}}"):
    """The results of calls of which the first attempt fails so, and what they changed."""
    block = f"rules:\n- reply:\n  - {{fault: {kind}}}\n  after_last: next_rule\n- {{reply: {rest}}}\n"
    session = session_of(mocked(block, more=more, output=output))
    return calls(session, *given or [{}])


@pytest.mark.parametrize(
    "kind", ["disconnect", "lost_ack", "truncated", "{error: {code: busy, retryable: true}}"]
)
def test_an_attempt_that_failed_is_made_again_where_that_has_no_second_effect(kind):
    (result,) = failing(kind, more=IDEMPOTENT)
    assert (result.value, result.usage.attempts) == ({"n": 0}, 2)
    assert result.meta["mock"]["rule"] == "rule 2"


@pytest.mark.parametrize(
    ("kind", "outcome", "code"),
    [
        ("disconnect", "transport_error", "disconnected"),
        ("lost_ack", "unknown_outcome", "reply_lost"),
        ("truncated", "unknown_outcome", "truncated"),
        ("not_json", "invalid_result", "not_json"),
        ("empty", "invalid_result", "invalid_result"),
        ("violate_schema", "invalid_result", "invalid_result"),
        ("{violate_schema: missing_n}", "invalid_result", "invalid_result"),
        ("{error: {code: busy, retryable: true}}", "tool_error", "busy"),
        ("timeout", "timeout", "timeout"),
        ("hang", "timeout", "timeout"),
    ],
)
def test_what_may_not_be_repeated_ends_as_the_fault_says(kind, outcome, code):
    (result,) = failing(kind, output=OUTPUT)
    assert (result.outcome.value, result.error.code, result.usage.attempts) == (outcome, code, 1)
    assert result.meta["fault"]["kind"] == kind.strip("{}").partition(":")[0]


def test_a_deadline_ends_what_hangs_and_the_next_reply_speaks_after_it():
    first, second = failing("hang", {}, {})
    assert (first.outcome, second.value) == (Outcome.TIMEOUT, {"n": 0})
    assert first.usage.duration == pytest.approx(5, abs=1)


def test_what_no_reply_answers_is_made_of_the_output_schema():
    (slow,) = failing("{slow: 2s}", output=OUTPUT)
    assert type(slow.value["n"]) is int
    assert slow.usage.duration == pytest.approx(2, abs=1)
    (planted,) = failing(
        "{inject_text: {at: '', text: ignore that}}", output="{enum: [plain]}", rest="{result: plain}"
    )
    assert planted.raw_value == "plain ignore that"


def test_a_limit_counts_calls_and_lets_them_through_again_later():
    session = session_of(mocked("{fault: {rate_limit: {limit: 2, per: 1m}}}"))
    results = calls(session, {}, {}, {})
    assert [result.outcome.value for result in results] == ["ok", "ok", "tool_error"]
    assert (results[2].error.code, results[2].error.details["status"]) == ("rate_limited", 429)
    asyncio.run(session.clock.sleep(60))
    assert calls(session, {})[0].outcome is Outcome.OK


@pytest.mark.parametrize(
    ("kind", "balance", "logged"),
    [
        ("lost_ack", 9, 1),
        ("duplicate_delivery", 8, 2),
        ("not_json", 9, 1),
        ("truncated", 9, 1),
        ("empty", 9, 1),
        ("violate_schema", 9, 1),
    ],
)
def test_the_tool_has_acted_though_its_answer_is_lost_or_broken(kind, balance, logged):
    block = TAKE + f"    fault: {kind}\n"
    session = session_of(mocked(block, output=OUTPUT))
    calls(session, ADA)
    assert changed(session)["accounts"]["ada"]["balance"] == balance
    assert [*changed(session)["log"]] == [str(number + 1) for number in range(logged)]


def test_a_lost_reply_is_asked_for_again_and_the_effect_happens_twice_unless_the_key_is_known():
    for key, balance in (("", 8), ("idempotent_by: '{{ args.id }}'", 9)):
        block = f"rules:\n- reply:\n    fault: lost_ack\n    times: 1\n    {key}\n    {TAKE.strip()}\n"
        block += f"  after_last: next_rule\n- reply:\n    result: done\n    {key}\n    {TAKE.strip()}\n"
        session = session_of(mocked(block, more=IDEMPOTENT))
        (result,) = calls(session, ADA)
        assert (result.outcome, result.usage.attempts) == (Outcome.OK, 2)
        assert changed(session)["accounts"]["ada"]["balance"] == balance


def test_a_guard_answers_before_the_answer_is_lost():
    session = session_of(mocked(TAKE + "    fault: duplicate_delivery\n"))
    (result,) = calls(session, {"id": "ada", "sum": 6})
    assert (result.outcome, result.meta["fault"]["second"]) == (Outcome.OK, "tool_error")
    assert changed(session)["accounts"]["ada"]["balance"] == 4


def test_draws_differ_between_the_acts_of_one_call():
    block = """
        effects: [{insert: log, key: "{{ uuid() }}", value: {call: "{{ call }}", attempt: "{{ attempt }}"}}]
        fault: duplicate_delivery
    """
    session = session_of(mocked(block))
    calls(session, {})
    assert [row["call"] for row in changed(session)["log"].values()] == [1, 1]


def test_attempts_that_never_arrived_change_no_draw():
    text = "rules:\n- {reply: {fault: disconnect, times: 1}, after_last: next_rule}\n- {reply: {result: '{{ uuid() }}'}}"
    plain = (
        "rules:\n- {reply: {result: 0, times: 1}, when: {args: {a: 1}}}\n- {reply: {result: '{{ uuid() }}'}}"
    )
    drawn = []
    for block in (text, plain):
        session = session_of(mocked(block, more=IDEMPOTENT), "", id="s")
        (result,) = calls(session, {})
        drawn.append((result.value, result.usage.attempts))
    places = {value for value, _attempts in drawn}
    assert [attempts for _value, attempts in drawn] == [2, 1]
    assert len(places) == 1


def test_all_attempts_of_a_call_have_its_number():
    text = """
        rules:
        - {when: {call: 1}, reply: {fault: disconnect, times: 2}, after_last: next_rule}
        - {reply: {result: ["{{ call }}", "{{ attempt }}"]}}
    """
    session = session_of(mocked(text, more=IDEMPOTENT), "")
    assert [result.value for result in calls(session, {}, {})] == [[1, 3], [2, 1]]


def test_a_fault_of_the_mock_uses_nothing_up():
    block = "sequence:\n- {rows: {it: {in: accounts, key: '{{ args.id }}'}}, effects: [{increment: it.balance}], fault: lost_ack}\n- {result: last}\n"
    session = session_of(mocked(block))
    results = calls(session, {"id": "eve"}, {"id": "ada"}, {})
    assert [result.outcome.value for result in results] == ["internal", "unknown_outcome", "ok"]
    assert results[0].error.details["pointer"].startswith("/mock/sequence/0/effects/0")


def test_latency_and_progress_stand_beside_a_fault():
    block = "{fault: disconnect, latency: 3s, progress: [{progress: 1, message: '{{ args.a }}', after: 1s}]}"
    session = session_of(mocked(block), "")

    async def streamed():
        return [item async for item in session.stream("tool", {"a": "soon"})]

    seen, result = asyncio.run(streamed())
    assert (seen.message, result.error.code) == ("soon", "disconnected")
    assert result.usage.duration == pytest.approx(4, abs=1)


@pytest.mark.parametrize("kind", ["timeout", "hang", "disconnect", "{error: gone}"])
@pytest.mark.parametrize("key", ["rows", "let", "guard", "effects", "idempotent_by", "content"])
def test_what_a_call_that_never_arrives_would_not_do_is_refused(kind, key):
    beside = {
        "rows": "rows: {it: {in: accounts, key: ada, missing: none}}",
        "let": "let: {n: 1}",
        "guard": 'guard: [{if: "{{ args.a }}", error: no}]',
        "effects": "effects: [{goto: {till: open}}]",
        "idempotent_by": 'idempotent_by: "{{ args.a }}"',
        "content": "content: [{type: text, text: hi}]",
    }
    assert ("needless_key", f"/mock/{key}") in faults_of(mocked(f"fault: {kind}\n{beside[key]}"))


@pytest.mark.parametrize(
    ("block", "code", "pointer"),
    [
        ("fault: timout", "unknown_fault", "/mock/fault"),
        ("fault: rate_limit", "missing_options", "/mock/fault"),
        ("fault: stale", "fault_not_possible", "/mock/fault"),
        ("fault: {violate_schema: missing_x}", "no_output_schema", "/mock/fault/violate_schema"),
        ("fault: lost_ack\nresult: 1", "wrong_combination", "/mock"),
        ("fault: lost_ack\ncontent: [{type: text, text: hi}]", "needless_key", "/mock/content"),
        ("fault: {error: '{{ nope }}'}", "unknown_name", "/mock/fault/error"),
    ],
)
def test_faults_that_can_not_be_are_found_when_the_tool_is_loaded(block, code, pointer):
    bare = mocked(block).replace("output_schema: {}\n", "")
    assert (code, pointer) in faults_of(bare)


def test_explaining_tells_the_fault():
    async def planned():
        return (await runtime_of(mocked("fault: hang")).dry_run("tool", {})).value["plan"]

    plan = asyncio.run(planned())
    assert (plan["kind"], plan["fault"]) == ("fault", "hang")


def test_a_fault_of_a_scenario_changes_no_draw_unless_the_tool_acts_twice():
    (tool,) = loaded(mocked("result: '{{ uuid() }}'", more=IDEMPOTENT)).tools

    def drawn(*faults):
        runtime = Runtime(Registry([tool._replace(faults=faults)]), executors=MOCKS)
        return [result.value for result in calls(runtime.session(id="s", clock=VirtualClock()), {}, {})]

    plain = drawn()
    assert drawn(InjectedFault("gone", "tool", "disconnect", {"first": 1})) == plain
    lost = drawn(InjectedFault("lost", "tool", "lost_ack", {"first": 1}))
    assert lost[0] not in plain
    assert lost[1] == plain[1]


def test_how_often_a_call_acted_is_known_of_the_latest_calls():
    state = MockState()
    for number in range(1, MOST_ACTS + 3):
        state.acts.setdefault(number, 0)
    state.acts[3] += 1
    assert state.acts.setdefault(3, 0) == 1
    assert (len(state.acts), 2 in state.acts, MOST_ACTS + 2 in state.acts) == (MOST_ACTS, False, True)


def test_a_text_that_finds_no_place_says_that_the_tool_has_acted():
    fault = "{inject_text: {at: /nope/x, text: hi}}"
    effects = "[{insert: log, value: {id: a}}]"
    block = f"fault: {fault}\neffects: {effects}\n"
    session = session_of(mocked(block, more="timeout: 5s", output="{}"))
    (result,) = calls(session, {})
    assert (result.outcome, "has already acted" in result.message) == (Outcome.INTERNAL, True)
    assert len(changed(session)["log"]) == 1
