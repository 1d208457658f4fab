"""Layer `breaker`: an origin that fails in a row is left alone, and then tried once."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reaching import ORIGIN, Script, broken, failed, reaching
from toolcrib import Outcome, Result, VirtualClock
from toolcrib.core.model import Breaker
from toolcrib.engine.middleware.circuit_breaker import Circuit

THREE = "limits: {attempts: 1, breaker: {failures: 3, within: 10s, open_for: 20s}}"


class Line:
    """One call after the other, at times of a virtual clock."""

    def __init__(self, script, *more):
        self.clock = VirtualClock()
        self.runtime = reaching(script, *(more or (THREE,)), clock=self.clock)

    async def call(self, after=0.0, name="tool"):
        await self.clock.advance(after)
        return await self.runtime.call(name)


def codes(script, *pauses, more=THREE):
    async def run():
        line = Line(script, more)
        results = [await line.call(pause) for pause in pauses]
        return [result.outcome.value if result.error is None else result.error.code for result in results]

    return asyncio.run(run())


def test_after_so_many_failures_in_a_row_calls_end_at_once():
    script = Script(failed(503))

    async def run():
        line = Line(script)
        return [await line.call() for _ in range(4)]

    *failures, left = asyncio.run(run())
    assert [each.error.code for each in failures] == ["http_503"] * 3
    assert (left.outcome, left.error.code) == (Outcome.OVERLOADED, "circuit_open")
    assert left.message == f"the circuit of `{ORIGIN}` is open after repeated failures; retry after 20s"
    assert left.error.details == {"origin": ORIGIN, "retry_after": 20.0}
    assert left.error.retryable
    assert left.usage == (0, 0.0)
    assert len(script.calls) == 3


def test_built_in_are_five_failures():
    script = Script(failed(503))
    assert codes(script, *[0] * 6, more="limits: {attempts: 1}") == ["http_503"] * 5 + ["circuit_open"]


def test_a_breaker_that_is_off_never_opens():
    script = Script(failed(503))
    assert codes(script, *[0] * 20, more="limits: {attempts: 1, breaker: off}") == ["http_503"] * 20


def test_failures_that_lie_far_apart_do_not_count_together():
    assert codes(Script(failed(503)), 0, 6, 6, 6, 6) == ["http_503"] * 5
    assert codes(Script(failed(503)), 0, 5, 5, 0) == ["http_503"] * 3 + ["circuit_open"]


FAILURES = [
    failed(502),
    failed(504),
    broken(),
    broken(retryable=False),
    Result.failure(Outcome.UNKNOWN_OUTCOME, "who knows"),
    Result.failure(Outcome.TIMEOUT, "late"),
]


@pytest.mark.parametrize("answer", FAILURES, ids=lambda answer: answer.error.code)
def test_what_counts_as_a_failure_of_the_origin(answer):
    script = Script(answer)
    assert codes(script, *[0] * 4)[-1] == "circuit_open"


SUCCESSES = [
    Result.success(1),
    failed(404, retryable=False),
    failed(429),
    failed(500, retryable=False),
    Result.failure(Outcome.INVALID_RESULT, "no JSON"),
    Result.failure(Outcome.LIMIT_EXCEEDED, "too large"),
    Result.failure(Outcome.TOOL_ERROR, "no status", retryable=True),
]


@pytest.mark.parametrize("answer", SUCCESSES, ids=lambda answer: answer.outcome)
def test_any_other_answer_ends_the_row(answer):
    script = Script(failed(503), failed(503), answer, failed(503), failed(503), answer)
    assert "circuit_open" not in codes(script, *[0] * 6)


NOTHING_SAID = [
    Result.failure(Outcome.DENIED, "guard"),
    Result.failure(Outcome.UNAVAILABLE, "no secret"),
    Result.failure(Outcome.CANCELLED, "by itself"),
    Result.failure(Outcome.INTERNAL, "a bug"),
    Result.failure(
        Outcome.TOOL_ERROR, "no token", code="auth_failed", details={"status": 503}, retryable=True
    ),
]


@pytest.mark.parametrize("answer", NOTHING_SAID, ids=lambda answer: answer.outcome)
def test_what_never_reached_the_origin_neither_counts_nor_ends_the_row(answer):
    script = Script(failed(503), failed(503), answer, failed(503))
    assert codes(script, *[0] * 5)[-1] == "circuit_open"


def test_an_origin_that_keeps_silent_until_the_deadline_has_failed():
    script = Script(takes=3600)
    more = f"timeout: 2s\n{THREE}"
    assert codes(script, *[0] * 4, more=more) == ["timeout"] * 3 + ["circuit_open"]


def test_a_caller_that_gives_up_says_nothing_of_the_origin():
    script = Script(Result.success(1), takes=3600)
    runtime = reaching(script, THREE)

    async def run():
        for number in range(5):
            task = asyncio.ensure_future(runtime.call("tool"))
            while len(script.calls) == number:
                script.begun.clear()
                await script.begun.wait()
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(run())
    assert len(script.calls) == 5


def test_a_bug_says_nothing_of_the_origin():
    async def answer(_call):
        raise KeyError("x")

    assert codes(answer, *[0] * 5) == ["internal"] * 5


# Half open


def test_after_a_while_one_attempt_finds_out_and_a_good_one_closes():
    script = Script(
        failed(503), failed(503), failed(503), Result.success(1), failed(503), failed(503), failed(503)
    )
    assert codes(script, 0, 0, 0, 19.9, 0.1, 0, 0, 0) == [
        *["http_503"] * 3,
        "circuit_open",
        "ok",
        "http_503",
        "http_503",
        "http_503",
    ]


def test_a_bad_one_opens_again():
    script = Script(failed(503))
    assert codes(script, 0, 0, 0, 20, 0, 19, 1) == [
        *["http_503"] * 3,
        "http_503",
        "circuit_open",
        "circuit_open",
        "http_503",
    ]


def test_only_one_attempt_finds_out():
    script = Script(failed(503), failed(503), failed(503), Result.success(1), takes=1)

    async def run():
        line = Line(script)
        await asyncio.gather(*(line.call() for _ in range(3)))
        await line.clock.advance(20)
        results = await asyncio.gather(*(line.runtime.call("tool") for _ in range(4)))
        return results, await line.call()

    results, last = asyncio.run(run())
    assert [each.outcome.value for each in results] == ["ok"] + ["overloaded"] * 3
    assert results[1].error.details["retry_after"] == 1.0
    assert last.outcome is Outcome.OK


def test_a_cancelled_one_lets_another_find_out():
    script = Script(failed(503), failed(503), failed(503), Result.success(1), takes=1)

    async def run():
        line = Line(script)
        await asyncio.gather(*(line.runtime.call("tool") for _ in range(3)))
        await line.clock.advance(20)
        script.begun.clear()
        task = asyncio.ensure_future(line.runtime.call("tool"))
        await script.begun.wait()
        task.cancel()
        await asyncio.wait([task])
        return (await line.runtime.call("tool")).outcome

    assert asyncio.run(run()) is Outcome.OK


def test_what_began_before_says_nothing_after():
    """Two slow answers come when the breaker is open: neither closes it nor counts."""
    slow = {"good": Result.success(1), "bad": failed(503)}

    async def answer(call):
        kind = call.arguments.get("kind")
        if kind is None:
            return failed(503)
        await call.context.session.clock.sleep(5)
        return slow[kind]

    clock = VirtualClock()
    runtime = reaching(answer, THREE, clock=clock)

    async def run():
        tasks = [asyncio.ensure_future(runtime.call("tool", {"kind": kind})) for kind in slow]
        await asyncio.gather(*(runtime.call("tool") for _ in range(3)))
        await asyncio.wait(tasks)
        return (await runtime.call("tool")).error

    error = asyncio.run(run())
    assert (error.code, error.details["retry_after"]) == ("circuit_open", 15.0)


# With its neighbours


def test_the_tools_of_an_origin_share_a_breaker_as_far_as_theirs_is_on():
    script = Script(failed(503))
    off = "limits: {attempts: 1, breaker: off}"
    other = f"{THREE}\nfake: {{origin: 'https://other.example'}}"

    async def run():
        line = Line(script, THREE, THREE, off, other)
        for _ in range(3):
            await line.call()
        return [(await line.call(0, f"tool_{number}")).error.code for number in (2, 3, 4)]

    assert asyncio.run(run()) == ["circuit_open", "http_503", "http_503"]


def test_a_repetition_ends_where_the_breaker_opens():
    script = Script(failed(503))
    more = "limits: {attempts: 5, breaker: {failures: 2}}"
    result = asyncio.run(reaching(script, more).call("tool"))
    assert (result.error.code, result.usage.attempts, len(script.calls)) == ("circuit_open", 2, 2)


@given(st.lists(st.tuples(st.sampled_from([True, False, None]), st.floats(0, 20)), max_size=40))
def test_an_open_breaker_lets_nothing_through_before_its_time(steps):
    circuit, numbers, now, opened = Circuit(), Breaker(2, 5.0, 10.0), 0.0, None
    row = 0
    for failing, pause in steps:
        now += pause
        if circuit.wait(now):
            assert opened is not None
            assert now < opened + 10.0
            continue
        probe = circuit.begin()
        assert probe == (opened is not None)
        circuit.end(numbers, now, failed=failing, probe=probe)
        row = 0 if failing is False else row + (failing is True)
        if circuit.wait(now):
            assert probe or row >= 2
            opened = now
        elif failing is False:
            opened = None
