"""Replies of mocks that hand calls on to another binding of their tool, where the run allows it."""

from __future__ import annotations

import asyncio

import pytest

from in_memory import loaded, mocked, problems_of
from keeping import ACCOUNTS, calls, changed, keeping
from toolcrib import Executors, Outcome, Result, VirtualClock
from toolcrib.core.errors import NotReady
from toolcrib.executors.mock import MockExecutor
from toolcrib.testing import FunctionExecutor

RULES = """
    rules:
    - {when: {args: {a: 1}}, reply: {result: mocked}}
    - {reply: {passthrough: real}}
"""


async def real(call):
    if call.arguments.get("a") == "lost" and call.attempt == 1:
        return Result.failure(Outcome.TRANSPORT_ERROR, "lost", retryable=True)
    return Result.success({"real": call.arguments, "attempt": call.attempt})


def session_of(block, *, more="", function=real, passthrough=True, output="{}", executor=None):
    executors = Executors(
        {"mock": MockExecutor, "real": lambda: FunctionExecutor(function) if executor is None else executor}
    )
    text = mocked(block, more=f"{more}\nmode: mock\nreal: {{}}", output=output)
    runtime = keeping(text, ACCOUNTS, executors=executors, passthrough=passthrough)
    return runtime.session(clock=VirtualClock())


def test_the_other_binding_answers():
    mocked_one, passed = calls(session_of(RULES), {"a": 1}, {"a": 2})
    assert mocked_one.value == "mocked"
    assert passed.value == {"real": {"a": 2}, "attempt": 1}
    assert passed.meta["mock"] == {"rule": "rule 2", "reply": 1, "passthrough": "real"}


def test_a_run_that_does_not_allow_it_denies_the_call_and_says_what_would():
    session = session_of(RULES, passthrough=False)
    passed, mocked_one = calls(session, {"a": 2}, {"a": 1})
    assert (passed.outcome, passed.error.code) == (Outcome.DENIED, "passthrough_not_allowed")
    assert passed.message == (
        "the mock of `tool` forwards this call to `real:` (tools.yaml:9), which this run does not allow;"
        " use `--allow-passthrough` or `Runtime(..., passthrough=True)`"
    )
    assert mocked_one.value == "mocked"


def test_a_denied_call_uses_no_reply_up():
    block = "sequence: [{passthrough: real}, {result: last}]"
    denied = calls(session_of(block, passthrough=False), {}, {})
    assert [result.outcome.value for result in denied] == ["denied", "denied"]
    allowed = calls(session_of(block), {}, {})
    assert [result.value for result in allowed] == [{"real": {}, "attempt": 1}, "last"]


def test_an_attempt_that_was_lost_is_made_again_where_the_tool_says_so():
    (once,) = calls(session_of(RULES), {"a": "lost"})
    assert (once.outcome, once.usage.attempts) == (Outcome.TRANSPORT_ERROR, 1)
    (again,) = calls(session_of(RULES, more="annotations: {read_only: true}"), {"a": "lost"})
    assert (again.value["attempt"], again.usage.attempts) == (2, 2)


def test_the_output_schema_judges_what_the_other_binding_answers():
    (result,) = calls(session_of(RULES, output="{type: string}"), {"a": 2})
    assert (result.outcome, result.raw_value) == (Outcome.INVALID_RESULT, {"real": {"a": 2}, "attempt": 1})


def test_an_answer_is_not_kept_past_the_mock():
    async def fresh(_call):
        return Result.success("real").with_meta(freshness={"lifetime": 60.0, "age": 0.0, "validators": {}})

    block = "sequence: [{passthrough: real}, {result: mocked}]"
    session = session_of(block, more="annotations: {read_only: true}", function=fresh)
    first, second = calls(session, {}, {})
    assert (first.value, second.value) == ("real", "mocked")
    assert "freshness" not in first.meta


def test_guards_and_effects_come_before_the_call_is_handed_on():
    block = """
        rows: {it: {in: accounts, key: "{{ args.id }}", missing: no such account}}
        guard: [{if: "{{ it.balance < 1 }}", error: poor}]
        effects: [{decrement: it.balance}]
        passthrough: real
    """
    session = session_of(block)
    results = calls(session, {"id": "eve"}, {"id": "bob"}, {"id": "ada"})
    assert [result.message for result in results[:2]] == ["no such account", "poor"]
    assert results[2].value["real"] == {"id": "ada"}
    assert changed(session) == {"accounts": {"ada": {"id": "ada", "balance": 9}}}


def test_latency_and_progress_come_before_the_call_is_handed_on():
    session = session_of(
        "{passthrough: real, latency: 2s, progress: [{progress: 1, message: soon, after: 1s}]}"
    )

    async def streamed():
        return [item async for item in session.stream("tool", {})]

    seen, result = asyncio.run(streamed())
    assert (seen.message, result.outcome) == ("soon", Outcome.OK)
    assert result.usage.duration == pytest.approx(3, abs=0.5)


class Later(FunctionExecutor):
    """A mode that is not ready at first."""

    def __init__(self):
        super().__init__(real)
        self.missing = 2

    def bind(self, descriptor):
        if self.missing:
            self.missing -= 1
            raise NotReady("the secret is missing")
        return super().bind(descriptor)


def test_what_the_other_binding_lacks_may_be_there_at_a_later_call():
    session = session_of(RULES, executor=Later())
    results = calls(session, {"a": 2}, {"a": 1}, {"a": 2}, {"a": 2})
    assert [result.outcome.value for result in results] == ["unavailable", "ok", "unavailable", "ok"]
    assert "the secret is missing" in results[0].message


@pytest.mark.parametrize(
    ("passthrough", "code", "hint"),
    [
        ("true", "no_such_block", "blocks other than `mock:`: `real:`"),
        ("live", "no_such_block", "blocks other than `mock:`: `real:`"),
        ("rael", "no_such_block", "did you mean `real`?"),
        ("mock", "no_such_block", "blocks other than `mock:`: `real:`"),
    ],
)
def test_the_block_must_be_there(passthrough, code, hint):
    executors = Executors({"mock": MockExecutor, "real": lambda: FunctionExecutor(real)})
    text = mocked(f"passthrough: {passthrough}", more="mode: mock\nreal: {}")
    (problem,) = loaded(text, executors=executors).problems
    assert (problem.code, problem.pointer, problem.hint) == (code, "/mock/passthrough", hint)


@pytest.mark.parametrize("value", ["false", "1", "''", "[live]"])
def test_it_is_the_name_of_a_block_or_true(value):
    ((_code, pointer),) = problems_of(mocked(f"passthrough: {value}"))
    assert pointer == "/mock/passthrough"


@pytest.mark.parametrize("key", ['idempotent_by: "{{ args.a }}"', "content: [{type: text, text: hi}]"])
def test_what_is_not_the_mocks_to_answer_is_refused_beside_it(key):
    found = problems_of(mocked(f"passthrough: mock\n{key}"))
    assert ("needless_key", f"/mock/{key.partition(':')[0]}") in found


def test_explaining_tells_where_the_call_would_go():
    for allowed in (True, False):
        session = session_of(RULES, passthrough=allowed)
        plan = asyncio.run(session.dry_run("tool", {"a": 2})).value["plan"]
        assert (plan["kind"], plan["passthrough"], plan["allowed"]) == ("passthrough", "real", allowed)
