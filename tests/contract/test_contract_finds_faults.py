"""The contract suite itself: an executor that breaks a promise fails the test of that promise."""

from __future__ import annotations

import asyncio

import pytest

from toolcrib import Result
from toolcrib.testing import ExecutorCase, ExecutorContract, FunctionExecutor

VALUE = {"said": ["hi"]}


def contract_of(executor, **keys):
    """The suite, fed with an executor."""

    class Contract(ExecutorContract):
        case = ExecutorCase(mode="fake", block={}, arguments={"text": "hi"}, value={"said": ["hi"]}, **keys)

        def executor(self):
            return executor() if isinstance(executor, type) else executor

    return Contract()


PROMISES = sorted(name for name in vars(ExecutorContract) if name.startswith("test_"))


async def good(call):
    return Result.success({"said": [call.arguments["text"]]})


@pytest.mark.parametrize("promise", PROMISES)
def test_an_executor_that_keeps_its_promises_passes(promise):
    getattr(contract_of(FunctionExecutor(good)), promise)()


def fails(promise, executor, **keys):
    with pytest.raises(AssertionError):
        getattr(contract_of(executor, **keys), f"test_{promise}")()


def test_a_shared_answer_is_found():
    async def shared(_call):
        return Result.success(VALUE)

    fails("a_changed_answer_hurts_no_later_call", FunctionExecutor(shared))


def test_a_wrong_answer_is_found():
    async def wrong(_call):
        return Result.success("hi")

    fails("a_call_answers", FunctionExecutor(wrong))


def test_an_executor_that_changes_the_arguments_is_found():
    async def changes(call):
        call.arguments["seen"] = True
        return await good(call)

    fails("arguments_are_left_as_they_are", FunctionExecutor(changes))


def test_sessions_that_see_each_other_are_found():
    async def counts(call):
        if call.context.session.id == "session-50":
            return Result.success("late")
        return await good(call)

    fails("calls_side_by_side_answer_each_its_own", FunctionExecutor(counts))


def test_a_swallowed_cancellation_is_found():
    async def swallows(call):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return await good(call)

    fails("a_cancelled_call_ends", FunctionExecutor(swallows))


def test_a_block_that_should_be_refused_and_is_not_is_found():
    fails(
        "broken_blocks_are_refused_with_a_pointer", FunctionExecutor(good), broken_blocks=[{"any": "thing"}]
    )


def test_a_block_schema_that_is_none_is_found():
    class Wrong(FunctionExecutor):
        @property
        def block_schema(self):
            return {"type": "objekt"}

        def __init__(self):
            super().__init__(good)

    fails("its_block_schema_is_a_schema", Wrong)


def test_a_dry_run_that_leaves_traces_is_found():
    class Leaving(FunctionExecutor):
        def __init__(self):
            self.dry = False
            super().__init__(self.answer)

        async def answer(self, call):
            return Result.success("dry") if self.dry else await good(call)

        def bind(self, descriptor):
            bound = super().bind(descriptor)
            return type("Bound", (), {"waits": False, "execute": bound.execute, "explain": self.explain})()

        def explain(self, _call):
            self.dry = True
            return

    fails("a_dry_run_explains_and_changes_nothing", Leaving)


def test_closing_twice_that_fails_is_found():
    class Once(FunctionExecutor):
        def __init__(self):
            super().__init__(good)

        async def aclose(self):
            raise OSError("it is closed")

    with pytest.raises(ExceptionGroup):
        contract_of(Once).test_it_closes_more_than_once()


def test_the_suite_needs_an_executor():
    with pytest.raises(NotImplementedError):
        ExecutorContract().executor()
