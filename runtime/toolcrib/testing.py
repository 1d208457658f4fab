"""Test helpers for authors of modes: the contract of executors as tests to inherit, and fakes.

class TestEcho(ExecutorContract):
    case = ExecutorCase(mode="echo", block={"prefix": "> "}, arguments={"text": "hi"}, value="> hi",
                        broken_blocks=[{"prefix": 1}])

    def executor(self):
        return EchoExecutor()
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolcrib.core.clock import RealClock
from toolcrib.core.model import (
    JSON,
    NOTHING,
    Call,
    CallContext,
    Descriptor,
    Outcome,
    Result,
    Schema,
    TrustedAnswer,
)
from toolcrib.core.protocols import BoundTool, Executor
from toolcrib.engine.runtime import Runtime, loaded_runtime
from toolcrib.executors import Executors
from toolcrib.loading.sources import parse
from toolcrib.schema.validation import check_schema, json_violation
from toolcrib.security.trust import UNTRUSTED, Trust, Untrusted

__all__ = ["ExecutorCase", "ExecutorContract", "FunctionExecutor", "runtime_for"]


@dataclass(frozen=True, kw_only=True)
class ExecutorCase:
    """One tool in the mode under test.

    Attributes:
        mode: Name of the mode.
        block: A valid block.
        arguments: Arguments of a call.
        value: Expected value of the call.
        broken_blocks: Blocks that loading must refuse, each for a different reason.
        input_schema: Input schema of the tool (default: accepts everything).
        output_schema: Output schema of the tool (default: accepts everything).
        options: Options of the runtime, such as `egress` and `origins` to reach a server of the test.
    """

    mode: str
    block: JSON
    arguments: Mapping[str, JSON]
    value: JSON
    broken_blocks: Sequence[JSON] = ()
    input_schema: Schema = True
    output_schema: Schema = True
    options: Mapping[str, Any] = field(default_factory=lambda: NOTHING)


def runtime_for(
    case: ExecutorCase, executor: Executor, block: JSON = None, *, trust: Trust | None = None
) -> Runtime:
    """Build a runtime with a single tool, `tool`, in the mode of the case.

    Args:
        case: The tool.
        executor: The mode.
        block: Replaces the block of the case.
        trust: Decides what the tool may do (default: everything).
    """
    document: dict[str, Any] = {
        "name": "tool",
        "input_schema": case.input_schema,
        "output_schema": case.output_schema,
        "mode": case.mode,
        case.mode: case.block if block is None else block,
    }
    executors = Executors({case.mode: lambda: executor})
    loaded = parse("contract.json", document, executors)
    return loaded_runtime(loaded, executors=executors, trust=trust, **case.options)


class ExecutorContract:
    """The contract of every executor, as tests: inherit it and define `case` and `executor()`."""

    case: ExecutorCase

    def executor(self) -> Executor:
        """Create an executor of the mode under test."""
        raise NotImplementedError

    def test_its_block_schema_is_a_schema(self) -> None:
        """The block schema is valid, so editors and the loader can use it."""
        # Editors read the schema without the loader, so an invalid one would only fail there.
        assert check_schema(self.executor().block_schema) == []

    def test_a_right_block_loads(self) -> None:
        """The block of the case has no problems."""
        runtime = runtime_for(self.case, self.executor())
        assert [str(problem) for problem in runtime.problems] == []
        assert list(runtime.registry) == ["tool"]

    def test_broken_blocks_are_refused_with_a_pointer(self) -> None:
        """Every problem points into the block."""
        for block in self.case.broken_blocks:
            runtime = runtime_for(self.case, self.executor(), block)
            # Warnings are not enough: the loader would still offer the tool.
            errors = [problem for problem in runtime.problems if problem.severity == "error"]
            assert errors, f"{block} was accepted"
            assert all(problem.pointer.startswith(f"/{self.case.mode}") for problem in errors)

    def test_a_call_answers(self) -> None:
        """The value passes through all layers."""
        result = self._call(lambda runtime: runtime.call("tool", self.case.arguments))
        assert (result.outcome, result.value) == (Outcome.OK, self.case.value), result.message

    def test_arguments_are_left_as_they_are(self) -> None:
        """The arguments of the caller are not modified."""
        arguments = copy.deepcopy(dict(self.case.arguments))
        self._call(lambda runtime: runtime.call("tool", arguments))
        assert arguments == self.case.arguments

    def test_a_changed_answer_hurts_no_later_call(self) -> None:
        """Modifying a result does not change later results."""

        async def twice(runtime: Runtime) -> Result:
            first = await runtime.session(id="one").call("tool", self.case.arguments)
            # A mode that returns a shared object fails here: its next call returns the emptied one.
            if isinstance(first.value, dict | list):
                first.value.clear()
            return await runtime.session(id="two").call("tool", self.case.arguments)

        assert self._call(twice).value == self.case.value

    def test_calls_side_by_side_answer_each_its_own(self) -> None:
        """Fifty concurrent sessions do not affect each other."""

        async def many(runtime: Runtime) -> list[Result]:
            sessions = [runtime.session() for _number in range(50)]
            return await asyncio.gather(*(session.call("tool", self.case.arguments) for session in sessions))

        assert all(result.value == self.case.value for result in self._run(many))

    def test_a_dry_run_explains_and_changes_nothing(self) -> None:
        """A dry run does not change what the next call returns."""

        async def dry_then_call(runtime: Runtime) -> tuple[Result, Result]:
            return await runtime.dry_run("tool", self.case.arguments), await runtime.call(
                "tool", self.case.arguments
            )

        dry, real = self._run(dry_then_call)
        assert dry.outcome is Outcome.OK
        assert real.value == self.case.value

    def test_a_cancelled_call_ends(self) -> None:
        """A call that is cancelled on its way ends, and the next call works."""

        async def cancel_then_call(runtime: Runtime) -> Result:
            task = asyncio.ensure_future(runtime.call("tool", self.case.arguments))
            await RealClock().sleep(0)  # let the call start; a fast one may already have ended
            if task.cancel():
                await asyncio.wait([task])
                assert task.cancelled()
            return await runtime.session().call("tool", self.case.arguments)

        assert self._call(cancel_then_call).value == self.case.value

    def test_an_answer_at_once_keeps_its_word(self) -> None:
        """`answer_now` (`SyncTool`) returns what `execute` returns; a `TrustedAnswer` is unshared JSON."""
        executor = self.executor()
        runtime = runtime_for(self.case, executor)
        tool = runtime.registry["tool"]
        bound: Any = executor.bind(tool)
        arguments = dict(self.case.arguments)
        if getattr(bound, "answer_now", None) is not None:
            for name in ("one", "two"):
                answer = bound.answer_now(
                    Call(tool, arguments, CallContext(session=runtime.session(id=name)))
                )
                _keeps_word(answer.value, self.case.value, vouched=isinstance(answer, TrustedAnswer))

    def test_a_tool_that_nobody_trusts_is_not_bound(self) -> None:
        """A call of an untrusted tool is denied before its mode binds it, unless it is `contained`."""
        watched = _Watched(self.executor())
        trust = Trust(UNTRUSTED)

        async def call() -> Result:
            async with runtime_for(self.case, watched, trust=trust) as runtime:
                return await runtime.call("tool", self.case.arguments)

        result = asyncio.run(call())
        if getattr(watched, "contained", False):
            assert (result.outcome, result.value) == (Outcome.OK, self.case.value), result.message
            return
        assert (result.outcome, result.error and result.error.code) == (Outcome.DENIED, Untrusted.code)
        assert not watched.was_bound

    def test_it_closes_more_than_once(self) -> None:
        """Closing twice is allowed."""

        async def close_twice(runtime: Runtime) -> None:
            await runtime.aclose()
            await runtime.aclose()

        self._run(close_twice)

    def _call(self, work: Callable[[Runtime], Awaitable[Result]]) -> Result:
        result: Result = self._run(work)
        return result

    def _run(self, work: Callable[[Runtime], Awaitable[Any]]) -> Any:
        # A new event loop for each test: an executor must not depend on a loop that is closed.
        async def within() -> Any:
            async with runtime_for(self.case, self.executor()) as runtime:
                return await work(runtime)

        return asyncio.run(within())


def _keeps_word(value: JSON, wanted: JSON, *, vouched: bool) -> None:
    assert value == wanted
    assert not vouched or json_violation(value) is None
    if isinstance(value, dict | list):
        value.clear()  # an answer that shares this object with the next one fails there


class _Watched:
    """An executor that records whether it was asked to bind a tool."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.was_bound = False

    def bind(self, descriptor: Descriptor) -> BoundTool:
        self.was_bound = True
        return self._executor.bind(descriptor)

    # The runtime looks for optional attributes, such as `contained`, which must be those of the executor.
    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)


class FunctionExecutor:
    """A fake mode that answers with a Python function, for tests of layers and interfaces.

    Args:
        answer: Receives the call and returns its result.
        waits: Whether calls may wait.
    """

    def __init__(self, answer: Callable[[Call], Awaitable[Result]], *, waits: bool = True) -> None:
        self._answer = answer
        self._waits = waits

    @property
    def block_schema(self) -> Schema:
        """Accepts any object."""
        return {"type": "object"}

    def check(self, _descriptor: Descriptor) -> Sequence[Any]:
        """Accepts every descriptor."""
        return ()

    def bind(self, _descriptor: Descriptor) -> BoundTool:
        """Bind the function."""
        return _BoundFunction(self._answer, self._waits)

    async def aclose(self) -> None:
        """Do nothing; there is nothing to release."""


@dataclass
class _BoundFunction:
    answer: Callable[[Call], Awaitable[Result]]
    waits: bool

    async def execute(self, call: Call) -> Result:
        return await self.answer(call)

    def explain(self, _call: Call) -> JSON:
        return {"mode": "function"}
