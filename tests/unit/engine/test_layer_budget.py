"""Layer `budget`: reserve, settle, give back, and what concurrent calls cannot break."""

from __future__ import annotations

import asyncio
import random
from decimal import Decimal
from threading import Barrier, Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holding import opened
from in_memory import fake
from sampling import THOROUGH
from toolcrib import Outcome, Result, VirtualClock
from toolcrib.core.model import Usage
from toolcrib.engine import engine_of
from toolcrib.loading.budgets import parse_amount
from toolcrib.security.approvals import Answer

PAY = """
name: pay
description: Pays an amount.
estimate: {cost: 0.25}
input_schema: {type: object, properties: {amount: {}, note: {type: string}}}
mock: {result: {total: "{{ args['amount'] }}"}}
---
name: buy
description: Buys.
input_schema: {type: object, properties: {amount: {}}}
mock: {result: {total: 1}}
---
name: look
description: Looks.
mock: {result: 1}
"""


def budget(most=10, amount='"{{ args.amount }}"', more="", tools="[pay, buy]"):
    return f"budgets: {{spending: {{tools: {tools}, amount: {amount}, most: {most}{more}}}}}"


def spend(runtime, *amounts, name="pay", **session):
    async def run():
        one = runtime.session(**session) if session else engine_of(runtime).default_session
        return [await one.call(name, {"amount": amount}) for amount in amounts]

    return asyncio.run(run())


def outcomes(results):
    return [each.outcome.value for each in results]


def test_calls_spend_one_budget_together(tmp_path):
    runtime = opened(tmp_path, budget(), PAY)
    assert outcomes(spend(runtime, 4, 5)) == ["ok", "ok"]
    (refused,) = spend(runtime, 2, name="buy")
    assert (refused.outcome, refused.error.code, refused.usage.attempts) == (
        Outcome.LIMIT_EXCEEDED,
        "budget_reached",
        0,
    )
    assert refused.message == (
        "`buy` would exceed the budget `spending`: it spends 2, and 1 of 10 is left (per run)"
    )
    assert {key: refused.error.details[key] for key in ("budget", "amount", "left", "most", "per")} == {
        "budget": "spending",
        "amount": "2",
        "left": "1",
        "most": "10",
        "per": "run",
    }
    assert refused.error.details["at"].endswith("toolcrib.yaml:2")
    assert outcomes(spend(runtime, 1, 0, 0.01)) == ["ok", "ok", "limit_exceeded"]


def test_tools_outside_the_budget_have_no_layer(tmp_path):
    runtime = opened(tmp_path, budget(), PAY)
    layers = {name: engine_of(runtime).chain_for(tool).layers for name, tool in runtime.registry.items()}
    assert "budget" not in layers["look"]
    assert "budget" in layers["pay"]
    assert engine_of(runtime).chain_for(runtime.registry["pay"]).at_once
    assert runtime.call_sync("pay", {"amount": 10}).outcome is Outcome.OK
    assert runtime.call_sync("pay", {"amount": 1}).outcome is Outcome.LIMIT_EXCEEDED


@pytest.mark.parametrize(
    "amount", [-1, -0.01, "-5", "NaN", "inf", "1e999", True, None, [], {}, "ten", 10**401, "1" * 401]
)
def test_an_amount_that_is_no_finite_number_of_at_least_0_is_denied(tmp_path, amount):
    runtime = opened(tmp_path, budget(), PAY)
    (result,) = spend(runtime, amount)
    assert (result.outcome, result.error.code) == (Outcome.DENIED, "invalid_amount")
    assert outcomes(spend(runtime, 10)) == ["ok"]


def test_an_amount_that_cannot_be_computed_is_denied(tmp_path):
    runtime = opened(tmp_path, budget(), PAY)
    result = runtime.call_sync("pay", {"note": "no amount"})
    assert (result.outcome, result.error.code) == (Outcome.DENIED, "invalid_amount")
    assert "`args` has no key `amount`" in result.message or "amount" in result.message


def test_amounts_are_exact(tmp_path):
    runtime = opened(tmp_path, budget(most=1), PAY)
    assert outcomes(spend(runtime, *[0.1] * 10)) == ["ok"] * 10  # as floats, the sum is 0.9999999999999999
    assert outcomes(spend(runtime, 1e-300)) == ["limit_exceeded"]
    many = opened(tmp_path, budget(most=0.3), PAY)
    assert outcomes(spend(many, 0.1, 0.2, "0.00000000000000000000000000000001")) == [
        "ok",
        "ok",
        "limit_exceeded",
    ]


@pytest.mark.parametrize(
    ("amount", "written"), [(250, "250"), (0.05, "0.05"), (1e308, "1E+308"), (1e-99, "1E-99")]
)
def test_a_message_shows_an_amount_shortly(tmp_path, amount, written):
    result = opened(tmp_path, budget(most=0), PAY).call_sync("pay", {"amount": amount})
    assert result.error.details["amount"] == written
    assert f"it spends {written}, and 0 of 0 is left" in result.message


@given(st.floats(0, 1e300, allow_nan=False) | st.integers(0, 10**300))
def test_numbers_become_the_decimals_that_are_written(number):
    assert parse_amount(number) == Decimal(repr(number))


def test_an_estimate_or_a_constant_is_an_amount(tmp_path):
    runtime = opened(tmp_path, budget(most=1, amount='"{{ estimate.cost }}"', tools="[pay]"), PAY)
    assert outcomes(spend(runtime, *[7] * 5)) == ["ok"] * 4 + ["limit_exceeded"]
    calls = opened(tmp_path, budget(most=2, amount=1), PAY)
    assert outcomes(spend(calls, 100, 100, 100)) == ["ok", "ok", "limit_exceeded"]


@pytest.mark.parametrize(
    ("per", "one", "other"),
    [
        ("session", {}, {}),
        ("user", {"user": "a"}, {"user": "b"}),
        ("caller", {"caller": "a"}, {"caller": "b"}),
    ],
)
def test_a_budget_is_shared_per_session_user_or_caller(tmp_path, per, one, other):
    runtime = opened(tmp_path, budget(more=f", per: {per}"), PAY)
    assert outcomes(spend(runtime, 10, 1, id="x", **one)) == ["ok", "limit_exceeded"]
    assert outcomes(spend(runtime, 10, 1, id="y", **other)) == ["ok", "limit_exceeded"]
    if per != "session":
        assert outcomes(spend(runtime, 1, id="z", **one)) == ["limit_exceeded"]


def test_a_budget_of_a_period_is_free_again(tmp_path):
    clock = VirtualClock()
    runtime = opened(tmp_path, budget(more=", per: 1h"), PAY, clock=clock)
    assert outcomes(spend(runtime, 6)) == ["ok"]
    asyncio.run(clock.advance(1800))
    assert outcomes(spend(runtime, 4, 1)) == ["ok", "limit_exceeded"]
    asyncio.run(clock.advance(1800))
    assert outcomes(spend(runtime, 6, 1)) == ["ok", "limit_exceeded"]


def test_a_simulation_spends_nothing_of_the_real_budget(tmp_path):
    runtime = opened(tmp_path, budget(), PAY)
    assert outcomes(spend(runtime, 10, clock=VirtualClock())) == ["ok"]
    assert outcomes(spend(runtime, 10)) == ["ok"]


def test_a_profile_replaces_or_removes_a_budget_and_a_reload_keeps_what_was_spent(tmp_path):
    settings = f"""{budget()}
profiles:
  free: {{budgets: {{spending: off}}}}
  small: {{extends: free, budgets: {{spending: {{tools: [pay], amount: 1, most: 1}}}}}}
"""
    assert outcomes(spend(opened(tmp_path, settings, PAY, profile="free"), 50)) == ["ok"]
    small = opened(tmp_path, settings, PAY, profile="small")
    assert outcomes(spend(small, 50, 50)) == ["ok", "limit_exceeded"]
    runtime = opened(tmp_path, settings, PAY)
    assert outcomes(spend(runtime, 6)) == ["ok"]
    file = tmp_path / "project" / "toolcrib.yaml"
    file.write_text(file.read_text().replace("most: 10", "most: 12"))
    asyncio.run(runtime.reload())
    assert outcomes(spend(runtime, 6, 1)) == ["ok", "limit_exceeded"]


# Settle and give back


def test_the_actual_amount_replaces_the_reserved_one(tmp_path, caplog):
    runtime = opened(tmp_path, budget(more=', actual: "{{ result.total }}"'), PAY)
    assert outcomes(spend(runtime, *[9] * 10, name="buy")) == ["ok"] + ["ok"] + ["limit_exceeded"] * 8
    assert caplog.text == ""
    wrong = opened(tmp_path, budget(more=', actual: "{{ result.paid }}"'), PAY)
    assert outcomes(spend(wrong, 9, 9, name="buy")) == ["ok", "limit_exceeded"]
    assert "`actual` of the budget `spending` has no amount for a call of `buy`" in caplog.text


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (Result.failure(Outcome.TOOL_ERROR, "no money"), False),
        (Result.failure(Outcome.TOOL_ERROR, "bad gateway", details={"status": 502}), True),
        (Result.failure(Outcome.TOOL_ERROR, "x", details={"may_have_acted": True}), True),
        (Result.failure(Outcome.TRANSPORT_ERROR, "refused")._replace(usage=Usage(0, 0.0)), False),
        (Result.failure(Outcome.UNKNOWN_OUTCOME, "broken"), True),
        (Result.failure(Outcome.UNAVAILABLE, "not there"), False),
        (Result.failure(Outcome.UNMATCHED_MOCK, "no rule"), False),
        (ValueError("a bug"), True),
    ],
    ids=str,
)
def test_a_failed_call_gives_back_unless_it_may_have_acted(tmp_path, answer, kept):
    async def answered(_call):
        if isinstance(answer, Exception):
            raise answer
        return answer

    runtime = _function_runtime(answered, tmp_path)
    spend(runtime, 10, name="tool")
    (second,) = spend(runtime, 10, name="tool")
    assert (second.error.code == "budget_reached") is kept, second


def _function_runtime(answer, tmp_path):
    """A runtime whose tool `tool` is a function, with the budget of a project."""
    runtime = fake(answer)
    engine_of(runtime).settings = engine_of(opened(tmp_path, budget(tools="[tool]", amount=10), PAY)).settings
    return runtime


def test_a_cancelled_call_keeps_what_it_may_have_spent(tmp_path):
    runtime = opened(
        tmp_path,
        budget(),
        PAY.replace("mock: {result: {total: 1}}", "mock: {result: {total: 1}, latency: 1h}"),
    )

    async def cancelled():
        task = asyncio.ensure_future(runtime.call("buy", {"amount": 10}))
        await asyncio.sleep(0)  # noqa: TID251 -- lets the call begin
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(cancelled())
    assert outcomes(spend(runtime, 1)) == ["limit_exceeded"]


# Approval


def test_a_call_beyond_the_budget_needs_approval_if_the_budget_asks(tmp_path):
    both = """
    budgets:
      spending: {tools: [pay], amount: "{{ args.amount }}", most: 10, on_reach: ask}
      calls: {tools: [pay], amount: 1, most: 1, on_reach: ask}
    """
    asked = []

    async def approver(pending):
        asked.append(pending.message)
        return Answer.approve()

    runtime = opened(tmp_path, both, PAY, approver=approver)
    assert outcomes(spend(runtime, 5, 20, 1)) == ["ok", "ok", "ok"]
    assert asked == [
        "`pay` requires approval (`budget spending`): it spends 20, and 5 of 10 is left (per run)",
        "`pay` requires approval (`budget calls`): it spends 1, and 0 of 1 is left (per run)",
        "`pay` requires approval (`budget spending`): it spends 1, and 0 of 10 is left (per run)",
        "`pay` requires approval (`budget calls`): it spends 1, and 0 of 1 is left (per run)",
    ]


def test_edited_arguments_reserve_their_own_amount(tmp_path):
    async def approver(_pending):
        return Answer.approve({"amount": 3})

    runtime = opened(tmp_path, budget(more=", on_reach: ask"), PAY, approver=approver)
    assert [each.value for each in spend(runtime, 20, 7)] == [{"total": 3}, {"total": 7}]


# Races


def test_two_concurrent_calls_never_both_take_the_last(tmp_path):
    races = 1000 if THOROUGH else 100
    runtime = opened(tmp_path, budget(most=1, more=", per: session"), PAY)
    sessions = [runtime.session() for _ in range(races)]
    start, ends = Barrier(2), {0: [], 1: []}

    def run(number):
        for session in sessions:
            start.wait(60)
            ends[number].append(session.call_at_once("pay", {"amount": 1}).outcome.value)

    threads = [Thread(target=run, args=(number,)) for number in ends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [pair for pair in zip(*ends.values(), strict=True) if sorted(pair) == ["limit_exceeded", "ok"]]
    assert len(winners) == races


async def test_any_number_of_calls_at_once_spend_at_most_the_cap(tmp_path):
    runtime = opened(
        tmp_path,
        budget(most=50),
        PAY.replace("total: 1}}", "total: 1}, latency: 10ms}"),
        clock=VirtualClock(),
    )
    amounts = random.Random(7).choices(range(1, 10), k=40)
    results = await asyncio.gather(*(runtime.call("buy", {"amount": amount}) for amount in amounts))
    spent = sum(amount for amount, each in zip(amounts, results, strict=True) if each.outcome is Outcome.OK)
    least = min(
        amount for amount, each in zip(amounts, results, strict=True) if each.outcome is not Outcome.OK
    )
    assert 50 - 9 < spent <= 50
    assert least + spent > 50
