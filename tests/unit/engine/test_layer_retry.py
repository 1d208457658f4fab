"""Layer `retry`: which failures are tried again, when, how often, and what is told of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from random import Random
from threading import RLock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reaching import Script, broken, failed, reaching
from toolcrib import Outcome, RealClock, Result, VirtualClock
from toolcrib.engine.middleware.retry import RESERVE, RESERVE_COMES_BACK, RetryBudget

QUIET = "limits: {breaker: off}"


def call(runtime, name="tool"):
    return asyncio.run(runtime.call(name))


def test_a_failure_that_may_pass_is_tried_again():
    script = Script(failed(503), broken(), Result.success(7))
    result = call(reaching(script))
    assert (result.outcome, result.value, result.usage.attempts) == (Outcome.OK, 7, 3)
    assert [each.attempt for each in script.calls] == [1, 2, 3]
    assert len({each.id for each in script.calls}) == 1


def test_after_the_last_attempt_the_failure_is_told_as_it_is():
    script = Script(failed(503))
    result = call(reaching(script))
    assert result._replace(usage=None, tool="") == failed(503)._replace(usage=None)
    assert (result.usage.attempts, len(script.calls)) == (3, 3)


NEVER_AGAIN = [
    Result.success(1),
    failed(404, retryable=False),
    broken(retryable=False),
    Result.failure(Outcome.UNKNOWN_OUTCOME, "who knows", retryable=True),
    Result.failure(Outcome.OVERLOADED, "full", retryable=True),
    Result.failure(Outcome.LIMIT_EXCEEDED, "large", retryable=True),
    Result.failure(Outcome.DENIED, "no", retryable=True),
    Result.failure(Outcome.TIMEOUT, "late", retryable=True),
]


@pytest.mark.parametrize("answer", NEVER_AGAIN, ids=lambda answer: answer.outcome)
def test_another_end_is_final(answer):
    script = Script(answer)
    assert call(reaching(script)).outcome is answer.outcome
    assert len(script.calls) == 1


@pytest.mark.parametrize("more", ["fake: {once: true}", "limits: {attempts: 1}"])
def test_what_may_not_be_repeated_is_not(more):
    script = Script(failed(503))
    result = call(reaching(script, more))
    assert (len(script.calls), result.usage.attempts) == (1, 1)


@pytest.mark.parametrize("attempts", [2, 5])
def test_a_descriptor_says_how_often(attempts):
    script = Script(failed(503))
    call(reaching(script, f"limits: {{attempts: {attempts}, breaker: off}}"))
    assert len(script.calls) == attempts


def test_a_final_failure_of_a_later_attempt_is_told():
    result = call(reaching(Script(failed(503), failed(404, retryable=False))))
    assert (result.error.code, result.usage.attempts) == ("http_404", 2)


def waits_of(script):
    return [later - earlier for earlier, later in zip(script.times, script.times[1:], strict=False)]


@given(st.integers(0, 2**32))
def test_waits_are_random_parts_of_a_time_that_doubles(seed):
    script = Script(failed(503))
    more = "timeout: 10m\nlimits: {attempts: 8, breaker: off, backoff: {first: 1s, longest: 10s}}"
    call(reaching(script, more, seed=seed))
    for wait, most in zip(waits_of(script), [1, 2, 4, 8, 10, 10, 10], strict=True):
        assert 0 <= wait <= most + 1e-6


def test_with_a_seed_the_same_waits_come_again_and_with_another_others():
    def waits(seed):
        script = Script(failed(503))
        call(reaching(script, QUIET, seed=seed))
        return waits_of(script)

    assert waits(1) == waits(1)
    assert waits(1) != waits(2)


def test_other_sessions_change_no_wait_and_each_call_waits_for_itself():
    script = Script(failed(503))
    runtime = reaching(script, QUIET)

    async def waits():
        session = runtime.session(id="one", seed=7, clock=VirtualClock())
        script.times.clear()
        await session.call("tool")
        first = waits_of(script)
        script.times.clear()
        await session.call("tool")
        return first, waits_of(script)

    async def twice():
        return await waits(), await waits()

    before, after = asyncio.run(twice())
    assert before == after
    assert before[0] != before[1]


def test_on_real_time_the_waits_are_not_those_of_the_seed():
    def ended():
        script = Script(failed(503))
        more = "limits: {attempts: 10, breaker: off, backoff: {first: 1ms, longest: 1ms}}"
        result = call(reaching(script, more, clock=RealClock()))
        return result.usage.attempts, len(script.calls)

    assert ended() == (10, 10)


def test_what_the_server_asks_for_is_waited():
    script = Script(failed(429, retry_after=3), Result.success(1))
    result = call(reaching(script))
    assert result.outcome is Outcome.OK
    assert 3 <= waits_of(script)[0] <= 3.2


@pytest.mark.parametrize("told", [-5, 0, "soon", None])
def test_what_is_no_time_to_wait_is_passed_over(told):
    script = Script(failed(429, retry_after=told), Result.success(1))
    assert call(reaching(script)).outcome is Outcome.OK
    assert waits_of(script)[0] <= 0.2


def test_a_wait_that_does_not_fit_the_deadline_is_not_begun():
    script = Script(failed(429, retry_after=31))
    result = call(reaching(script))
    assert (result.message, result.error.message) == ("status 429; retry after 31s",) * 2
    assert result.error.details == {"status": 429, "retry_after": 31, "retry": "deadline"}
    assert result.error.retryable
    assert result.usage == (1, 0.0)


def test_a_wait_that_the_message_tells_is_not_told_again():
    said = failed(429, retry_after=60)
    error = said.error._replace(message="slow down; retry after 1m")
    result = call(reaching(Script(said._replace(message=error.message, error=error))))
    assert result.message == "slow down; retry after 1m"


def test_a_backoff_that_does_not_fit_the_deadline_is_not_begun_either():
    script = Script(failed(503), takes=4.5)
    result = call(reaching(script, "timeout: 5s\nlimits: {backoff: {first: 1h, longest: 1h}}"))
    assert result.message == "status 503"
    assert result.error.details == {"status": 503, "retry": "deadline"}
    assert result.usage == (1, 4.5)


def test_a_tool_without_a_deadline_waits_as_long_as_it_takes():
    script = Script(failed(429, retry_after=3600), Result.success(1))
    assert call(reaching(script, waits=False)).outcome is Outcome.OK


def test_a_timeout_in_a_later_attempt_tells_how_many_there_were():
    async def answer(call):
        if call.attempt < 3:
            return failed(503)
        await call.context.session.clock.sleep(3600)
        raise AssertionError("the deadline is earlier")

    result = call(reaching(answer))
    assert (result.outcome, result.usage.attempts) == (Outcome.TIMEOUT, 3)


def test_a_bug_in_a_later_attempt_is_told_as_one():
    async def answer(call):
        if call.attempt == 1:
            return failed(503)
        raise KeyError("x")

    assert call(reaching(answer)).error.details == {"exception": "KeyError"}


def test_a_caller_that_cancels_while_it_is_waited_ends_it():
    script = Script(failed(429, retry_after=20))
    runtime = reaching(script)

    async def run():
        session = runtime.session()  # on real time
        task = asyncio.ensure_future(session.call("tool"))
        await script.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert len(script.calls) == 1


# The budget


def many(runtime, count, name="tool"):
    async def run():
        return await asyncio.gather(*(runtime.call(name) for _ in range(count)))

    return asyncio.run(run())


def test_single_calls_may_be_repeated_out_of_the_reserve():
    script = Script(failed(503))
    assert call(reaching(script, "limits: {retry_budget: 0%}")).usage.attempts == 3


def test_when_the_budget_is_spent_the_failure_says_so():
    script = Script(failed(503))
    runtime = reaching(script, "limits: {retry_budget: 0%, breaker: off}")
    results = many(runtime, 20)
    assert len(script.calls) == 20 + RESERVE
    spent = [each for each in results if each.error.details.get("retry") == "budget"]
    assert spent
    assert {each.message for each in spent} == {"status 503"}


def test_the_tools_of_an_origin_have_one_budget():
    script = Script(failed(503))
    more = "limits: {retry_budget: 0%, breaker: off}"
    runtime = reaching(script, more, more, f"{more}\nfake: {{origin: 'https://other.example'}}")
    many(runtime, 10)
    before = len(script.calls)
    assert before == 10 + RESERVE
    assert many(runtime, 1, "tool_2")[0].usage.attempts == 1
    assert many(runtime, 1, "tool_3")[0].usage.attempts == 3


def test_each_virtual_clock_has_a_budget_of_its_own():
    script = Script(failed(503))
    runtime = reaching(script, "limits: {retry_budget: 0%, breaker: off}")
    many(runtime, 20)
    other = runtime.session(clock=VirtualClock())
    assert asyncio.run(other.call("tool")).usage.attempts == 3


@given(
    st.floats(0, 1),
    st.lists(st.tuples(st.integers(0, 4), st.floats(0, 20)), max_size=60),
)
def test_repetitions_are_never_more_than_share_and_reserve(share, steps):
    """Each step is a call, some repetitions that it asks for, and a time until the next."""
    budget, now, spent = RetryBudget(RLock()), 0.0, 0
    for begun, (wanted, pause) in enumerate(steps, 1):
        budget.earn(share, now)
        spent += sum(budget.spend() for _ in range(wanted))
        assert spent <= share * begun + RESERVE + now / RESERVE_COMES_BACK + 1e-6
        now += pause


def test_a_flaky_origin_gets_at_most_a_fifth_more_requests():
    """30% answer 503 and 5% break; a thousand calls, a hundred at once."""
    draws = Random(4)

    async def flaky(call):
        requests.append(call)
        await call.context.session.clock.sleep(0.01)
        draw = draws.random()
        return failed(503) if draw < 0.3 else broken() if draw < 0.35 else Result.success(1)

    requests = []
    runtime = reaching(flaky, "limits: {concurrency: 100, queue: 1000, breaker: off}")
    results = many(runtime, 1000)
    assert len(requests) <= 1.2 * 1000 + RESERVE + 1
    assert sum(each.outcome is Outcome.OK for each in results) > 750
    assert sum(each.usage.attempts for each in results) == len(requests)


def test_a_flaky_origin_sees_each_call_once_that_may_not_be_repeated():
    effects = []

    async def flaky(call):
        effects.append(call.id)
        return failed(503) if len(effects) % 3 else broken()

    runtime = reaching(flaky, "limits: {breaker: off, queue: 1000}\nfake: {once: true}")
    many(runtime, 300)
    assert len(effects) == len(set(effects)) == 300


def test_what_repeats_is_imported_at_the_first_repetition(root):
    code = """
import asyncio, sys
from reaching import Script, failed, reaching
from toolcrib import Result
runtime = reaching(Script(Result.success(1), failed(503)))
asyncio.run(runtime.call("tool"))
assert "tenacity" not in sys.modules
asyncio.run(runtime.call("tool"))
assert "tenacity" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root / "tests")


def test_a_mocked_tool_imports_none_of_these_layers(root):
    code = """
import asyncio, sys
from in_memory import mocked, runtime_of
assert asyncio.run(runtime_of(mocked("result: 1\\nlatency: 1s")).call("tool")).value == 1
found = {"retry", "limits", "circuit_breaker", "cache"} & {
    name.rpartition(".")[2] for name in sys.modules if name.startswith("toolcrib.engine.middleware.")
}
assert not found, found
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root / "tests")
