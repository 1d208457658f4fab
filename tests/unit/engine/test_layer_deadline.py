"""Layer `deadline`: one deadline on the session's clock over everything inside it."""

from __future__ import annotations

import asyncio

import pytest

from in_memory import fake, mocked, runtime_of
from toolcrib import Outcome, Result


def call(runtime):
    return asyncio.run(runtime.call("tool"))


def sleeping(seconds):
    async def answer(call):
        await call.context.session.clock.sleep(seconds)
        return Result.success(call.deadline)

    return answer


def test_a_tool_that_takes_too_long_times_out_on_the_sessions_clock():
    result = call(fake(sleeping(3600), "timeout: 5s"))
    assert result.outcome is Outcome.TIMEOUT
    assert result.message == "`tool` did not answer within 5s"
    assert result.usage == (1, 5.0)


def test_a_tool_that_takes_exactly_its_time_is_in_time():
    assert call(fake(sleeping(5), "timeout: 5s")).outcome is Outcome.OK


def test_the_tool_knows_its_deadline():
    runtime = fake(sleeping(1), "timeout: 5s")

    async def twice():
        return [(await runtime.call("tool")).value for _ in range(2)]

    assert asyncio.run(twice()) == [5.0, 6.0]


def test_without_a_timeout_of_its_own_a_tool_has_thirty_seconds():
    assert call(fake(sleeping(31))).message == "`tool` did not answer within 30s"


@pytest.mark.parametrize(
    ("annotations", "may_have_acted"),
    [
        ("{}", True),
        ("{read_only: true}", False),
        ("{idempotent: true}", False),
        ("{destructive: false}", True),
    ],
)
def test_only_a_call_that_can_not_be_repeated_may_have_acted(annotations, may_have_acted):
    error = call(fake(sleeping(60), f"annotations: {annotations}")).error
    assert error.details == {
        "limit": "timeout",
        "value": "30s",
        "measured": 30.0,
        **({"may_have_acted": True} if may_have_acted else {}),
    }
    assert error.retryable is not may_have_acted


def test_a_timeout_error_of_the_tools_own_is_a_bug_and_no_deadline():
    async def answer(_call):
        raise TimeoutError

    assert call(fake(answer)).outcome is Outcome.INTERNAL


def test_a_tool_that_never_waits_has_no_deadline():
    async def answer(call):
        return Result.success(call.deadline)

    assert call(fake(answer, waits=False)).value is None
    assert call(fake(answer, waits=True)).value == 30.0


def test_progress_and_latency_of_a_mock_count_together():
    text = mocked("result: 1\nprogress: [{progress: 1, after: 3s}]\nlatency: 3s", more="timeout: 5s")
    assert call(runtime_of(text)).outcome is Outcome.TIMEOUT
