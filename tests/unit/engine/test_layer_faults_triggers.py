"""When faults are due: each trigger, all together, and why one was not."""

from __future__ import annotations

import pytest

from faulty import REPEATABLE, acted, failing, ordered
from toolcrib import Call, CallContext, Outcome, VirtualClock
from toolcrib.engine.middleware.faults import fired, why_not_due
from toolcrib.simulation.fault_history import records_of
from toolcrib.simulation.store import MOST, CallCounter

OTHER = "---\n" + ordered(name="other")


def session_with(when, *, inject="disconnect", more="", **options):
    return failing(
        ordered(more=more) + OTHER, f"- {{name: f, tool: tool, inject: {inject}, when: {when}}}", **options
    )


async def hits(session, calls, tool="tool"):
    """The numbers of the calls to which the fault happened."""
    results = [await session.call(tool, {"n": number}) for number in range(1, calls + 1)]
    return [number for number, result in enumerate(results, start=1) if "fault" in result.meta]


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("{call: 2}", [2]),
        ("{call: {$gt: 3}}", [4, 5, 6]),
        ("{args: {n: {$in: [1, 6]}}}", [1, 6]),
        ("{if: '{{ args.n % 2 == 0 }}'}", [2, 4, 6]),
        ("{if: '{{ call == args.n and attempt == 1 }}', call: {$lt: 3}}", [1, 2]),
        ("{first: 2}", [1, 2]),
        ("{every: 2}", [2, 4, 6]),
        ("{every: 2, first: 5}", [2, 4, 6]),
        ("{first: 2, every: 2}", [2, 4]),
        ("{first: 1, every: 5}", [5]),
        ("{call: {$gt: 2}, every: 3}", [5]),
        ("{call: {$gt: 2}, first: 1}", [3]),
        ("{probability: 1, call: {$lt: 5}}", [1, 2, 3, 4]),
    ],
)
async def test_a_fault_is_due_where_all_that_is_given_holds(when, expected):
    session = session_with(when)
    assert await hits(session, 6) == expected
    assert fired(session) == {"f": len(expected)}


async def test_the_number_of_a_call_is_the_same_at_all_its_attempts():
    session = session_with("{call: 2, attempt: {$lte: 2}}", more=REPEATABLE)
    attempts = [(await session.call("tool")).usage.attempts for _ in range(3)]
    assert attempts == [1, 3, 1]


async def test_calls_of_other_tools_have_numbers_of_their_own():
    session = session_with("{call: 2}")
    await session.call("other")
    assert await hits(session, 2) == [2]


async def test_a_glob_is_for_all_tools_that_it_fits_and_their_calls_count_apart():
    session = failing(ordered() + OTHER, "- {name: f, tool: '*', inject: disconnect, when: {call: 2}}")
    assert await hits(session, 2) == [2]
    assert await hits(session, 2, "other") == [2]
    assert fired(session) == {"f": 2}


async def test_between_is_measured_since_the_session_began():
    clock = VirtualClock()
    await clock.advance(100)
    session = session_with("{between: [5s, 1m]}", session={"clock": clock})
    seen = []
    for wait in (0, 4.9, 0.1, 54.9, 0.1):
        await clock.advance(wait)
        seen.append(bool(await hits(session, 1)))
    assert seen == [False, False, True, True, False]


@pytest.mark.parametrize(
    "ends", ['["01:00", "01:30:30"]', "[2030-01-01T01:00:00Z, 2030-01-01T02:30:30+01:00]"]
)
async def test_between_may_be_times_of_day_or_moments(ends):
    session = session_with(f"{{between: {ends}}}")
    seen = []
    for wait in (3599, 1, 1829, 1):
        await session.clock.advance(wait)
        seen.append(bool(await hits(session, 1)))
    assert seen == [False, True, True, False]


async def test_a_time_of_day_comes_every_day():
    session = session_with('{between: ["09:00", "17:00"]}')
    for _ in range(3):
        await session.clock.advance(10 * 3600)
        assert await hits(session, 1) == [1]
        await session.clock.advance(14 * 3600)
        assert await hits(session, 1) == []


async def test_a_time_of_day_may_lead_over_midnight():
    session = session_with('{between: ["22:00", "06:00"]}')
    seen = []
    for hours in (0, 5.99, 0.01, 15.99, 0.01, 1.99, 0.01, 5.99, 0.01):
        await session.clock.advance(hours * 3600)
        seen.append(bool(await hits(session, 1)))
    assert seen == [True, True, False, False, True, True, True, True, False]


async def test_a_draw_depends_on_nothing_but_its_own_call():
    async def drawn(seed, others, name="s"):
        session = session_with("{probability: 0.5}", session={"seed": seed, "id": name})
        seen = []
        for number in range(20):
            if number in others:
                await session.call("other")
            seen.append(bool(await hits(session, 1)))
        return seen

    plain = await drawn(1, ())
    assert plain == await drawn(1, (0, 5, 6, 19))
    assert plain != await drawn(2, ())
    assert plain != await drawn(1, (), "t")
    assert 4 < sum(plain) < 16


async def test_two_faults_draw_apart():
    session = failing(
        ordered(),
        """
        - {name: one, tool: tool, inject: disconnect, when: {probability: 0.5}}
        - {name: two, tool: tool, inject: empty, when: {probability: 0.5}}
        """,
    )
    names = [(await session.call("tool")).meta.get("fault", {}).get("name") for _ in range(30)]
    assert {*names} == {"one", "two", None}


async def test_the_store_and_the_states_of_mocks_can_be_asked():
    text = "name: pay\ninput_schema: {}\nmock: {result: {}}\n"
    more = """
        store: {tills: {rows: {main: {sum: 0}}}}
        state: {shop: idle}
        mocks:
          pay:
            rows: {till: {in: tills, key: main}}
            effects: [{increment: till.sum, by: 10}, {goto: {shop: busy}}]
            result: {}
    """
    full = "{{ store.tills['main'].sum >= 20 }}"
    session = failing(
        text,
        f"""
        - {{name: full, tool: pay, inject: {{error: "{{{{ store.tills['main'].sum }}}}"}}, when: {{if: "{full}"}}}}
        - {{name: busy, tool: pay, inject: disconnect, when: {{if: "{{{{ state.shop == 'busy' }}}}"}}}}
        """,
        more=more,
    )
    results = [await session.call("pay") for _ in range(2)]
    assert [result.meta.get("fault", {}).get("name") for result in results] == [None, "busy"]


async def test_a_stale_mock_answers_from_its_store_before_the_last_change():
    more = """
        store: {tills: {rows: {main: {sum: 0}}}}
        mocks:
          pay:
            rows: {till: {in: tills, key: main}}
            effects: [{increment: till.sum, by: 10}]
            result: "{{ till.sum }}"
          look: {rows: {till: {in: tills, key: main}}, result: "{{ till.sum }}"}
    """
    tools = "".join(
        f"name: {name}\ninput_schema: {{}}\nmock: {{result: 0}}\n---\n" for name in ("pay", "look")
    )
    session = failing(tools, "- {tool: look, inject: stale, when: {first: 1}}", more=more)
    values = [(await session.call(name)).value for name in ("look", "pay", "pay", "look", "look")]
    assert values == [0, 10, 20, 10, 20]
    assert fired(session) == {"stale": 1}


async def test_a_mock_that_reads_no_store_is_stale_where_equal_arguments_were_answered():
    more = """
        store: {tills: {rows: {main: {sum: 0}}}}
        mocks: {pay: {rows: {till: {in: tills, key: main}}, effects: [{increment: till.sum, by: 10}], result: 1}}
    """
    tools = "".join(
        f"name: {name}\ninput_schema: {{}}\nmock: {{result: 0}}\n---\n" for name in ("pay", "plain")
    )
    session = failing(tools, "- {name: f, tool: plain, inject: stale}", more=more)
    for name in ("pay", "plain"):
        await session.call(name)
    assert fired(session) == {"f": 0}
    await session.call("plain")
    assert fired(session) == {"f": 1}


@pytest.mark.parametrize(
    ("when", "calls", "why"),
    [
        ("{call: 3}", 2, "it waits for call 3, but there were 2 calls"),
        ("{call: 3}", 1, "it waits for call 3, but there was 1 call"),
        ("{call: {$gt: 7}}", 2, 'it waits for calls {"$gt":7}, but there were 2 calls'),
        ("{attempt: 2}", 2, "it waits for attempt 2, but no call had more than 1 attempt"),
        ("{args: {n: 9}}", 2, "its `args` matched none of 2 attempts"),
        ("{if: '{{ args.n > 9 }}'}", 1, "its `if` was never true in 1 attempt"),
        ("{probability: 0.0001}", 2, "its probability of 0.0001 never triggered in 2 attempts"),
        (
            "{between: [5s, 1m]}",
            2,
            "it waits for the time from 5s to 1m, but the attempts came 0s into the session",
        ),
        ("{every: 5}", 4, "it happens on every 5th matching attempt, and there were 4"),
        ("{every: 2, first: 1}", 1, "it happens on every 2nd matching attempt, and there was 1"),
        ("{every: 12}", 1, "it happens on every 12th matching attempt, and there was 1"),
        ("{every: 23}", 1, "it happens on every 23rd matching attempt, and there was 1"),
        ("{every: 31}", 1, "it happens on every 31st matching attempt, and there was 1"),
        (
            "{call: 3, args: {n: 9}}",
            2,
            "it waits for call 3, but there were 2 calls and its `args` matched none of 2 attempts",
        ),
        ("{call: 1, args: {n: 2}}", 2, "`call` and `args` were never met together in 2 attempts"),
    ],
)
async def test_why_a_fault_was_never_due_is_told_in_words(when, calls, why):
    session = session_with(when)
    await hits(session, calls)
    assert why_not_due(session, "f") == f"fault `f` was never due: {why}"


@pytest.mark.parametrize("inject", ["stale", "{rate_limit: {limit: 5, per: 1m}}"])
async def test_a_kind_that_found_nothing_to_do_says_so(inject):
    session = session_with("{call: {$gte: 1}}", inject=inject)
    await session.call("tool")
    assert why_not_due(session, "f") == (
        "fault `f` was never due: it was not possible yet: no earlier result to repeat, or the rate limit was"
        " not reached"
    )


async def test_after_a_fault_the_tool_answers_again():
    session = session_with("{first: 1}", more=REPEATABLE)
    result = await session.call("tool")
    assert (result.outcome, result.usage.attempts) == (Outcome.OK, 2)


async def test_an_expression_is_not_asked_where_something_else_does_not_hold():
    session = session_with("{if: '{{ args.late > 1 }}', args: {late: {$exists: true}}}")
    assert (await session.call("tool", {"n": 1})).outcome is Outcome.OK
    assert (await session.call("tool", {"late": 2})).error.code == "disconnected"


async def test_an_expression_that_fails_says_where_it_stands():
    session = session_with("{if: '{{ args.late > 1 }}'}")
    result = await session.call("tool", {"n": 1})
    line = result.error.details["at"].rpartition(":")[2]
    assert (result.outcome, result.error.code, int(line) > 20) == (Outcome.INTERNAL, "fault_failed", True)


async def test_a_fault_that_could_not_be_judged_says_so_and_others_know_of_the_attempt():
    session = failing(
        ordered(),
        """
        - {name: before, tool: tool, inject: hang}
        - {name: broken, tool: tool, inject: disconnect, when: {if: "{{ args.late > 1 }}"}}
        - {name: other, tool: tool, inject: empty, when: {if: "{{ args.early > 1 }}"}}
        - {name: after, tool: tool, inject: empty, when: {call: 3}}
        """,
    )
    result = await session.call("tool", {"early": 1})
    assert (result.outcome, result.error.code, acted(session)) == (Outcome.INTERNAL, "fault_failed", 0)
    assert "the fault `broken` of `tool` failed at" in result.message
    assert [why_not_due(session, name) for name in ("before", "other", "after")] == [
        "fault `before` never happened: it was due on call 1 of `tool`, but `broken` could not be evaluated",
        "fault `other` was never due: its `if` was never true in 1 attempt",
        "fault `after` was never due: it waits for call 3, but there was 1 call",
    ]
    why = why_not_due(session, "broken")
    assert why.startswith("fault `broken` never happened: it could not be evaluated on call 1 of `tool`: ")
    assert "late" in why
    assert fired(session) == {"before": 0, "broken": 0, "other": 0, "after": 0}


async def test_of_many_attempts_the_first_are_remembered_and_all_are_counted():
    session = failing(
        ordered(),
        """
        - {name: first, tool: tool, inject: {error: no}}
        - {name: second, tool: tool, inject: empty}
        """,
        session={"clock": VirtualClock()},
    )
    await hits(session, 300)
    first, second = (records_of(session)[name] for name in ("first", "second"))
    assert (first.times, len(first.fired) < 100, len(second.missed) < 100) == (300, True, True)
    assert fired(session) == {"first": 300, "second": 0}
    assert str(first.fired[-1]) == f"call {len(first.fired)} of `tool`"


async def test_the_numbers_of_calls_that_are_long_over_are_forgotten():
    session = session_with("{call: 2}")
    (tool, _other) = session.registry.values()
    numbers = CallCounter()
    calls = [Call(tool, {}, CallContext(session), id=str(number)) for number in range(MOST + 2)]
    assert [numbers.of(call) for call in calls] == [*range(1, MOST + 3)]
    assert numbers.of(calls[2]) == 3
    assert numbers.would_be(calls[1]) == MOST + 3
