"""Python functions run until they first wait before the deadline has a timer; afterwards they continue as ever."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass
from types import coroutine
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, BaseModel, Field

import toolcrib
from toolcrib import Outcome, Partial, Progress, RealClock, Registry, Result, Runtime, VirtualClock
from toolcrib.core.model import TrustedAnswer
from toolcrib.executors.python.bound_function import continued, writes_limits

NEVER = 3600.0


def runtime_with(*tools, **options):
    runtime = Runtime(Registry(), **options)
    for each in tools:
        runtime.add(each)
    return runtime


def call(tool, arguments=None, *, clock=None, **options):
    async def run():
        async with runtime_with(tool, **options) as runtime:
            session = runtime.session(clock=clock or RealClock())
            return await session.call(next(iter(runtime.registry)), arguments)

    return asyncio.run(run())


class TimersOf(RealClock):
    """A clock that counts its timers."""

    def __init__(self):
        self.timers = []

    def timeout(self, seconds):
        self.timers.append(seconds)
        return super().timeout(seconds)


async def double(number: int) -> int:
    return 2 * number


async def double_later(number: int) -> int:
    await asyncio.sleep(0)  # noqa: TID251 -- waits for one turn of the loop
    return 2 * number


@pytest.mark.parametrize(("function", "timers"), [(double, 0), (double_later, 1)])
def test_only_a_call_that_waits_has_a_timer(function, timers):
    clock = TimersOf()
    result = call(function, {"number": 4}, clock=clock)
    assert (result.value, result.usage.attempts, len(clock.timers)) == (8, 1, timers)


def test_both_results_are_equal_but_for_their_duration():
    at_once, later = (call(each, {"number": 4}) for each in (double, double_later))
    assert at_once._replace(usage=None, tool="") == later._replace(usage=None, tool="")


def test_the_first_step_uses_up_time_of_the_deadline():
    class Passing(TimersOf):
        now = 0.0

        def monotonic(self):
            return self.now

    clock = Passing()

    @toolcrib.tool(timeout="5s")
    async def slow_start() -> None:
        clock.now += 3.5
        await asyncio.sleep(0)  # noqa: TID251 -- as above

    assert call(slow_start, clock=clock).outcome is Outcome.OK
    assert clock.timers == [1.5]


def test_code_that_does_not_wait_is_in_time_and_code_that_waits_too_late_is_not():
    class Passing(RealClock):
        now = 0.0

        def monotonic(self):
            return self.now

    clock = Passing()

    @toolcrib.tool(timeout="5s")
    async def busy(then_wait: bool) -> str:
        clock.now += 6
        if then_wait:
            await asyncio.Event().wait()
        return "done"

    assert call(busy, {"then_wait": False}, clock=clock).value == "done"
    late = call(busy, {"then_wait": True}, clock=clock)
    assert (late.outcome, late.message) == (Outcome.TIMEOUT, "`busy` did not answer within 5s")


@pytest.mark.parametrize(("annotations", "acted"), [({}, True), ({"idempotent": True}, False)])
def test_a_deadline_within_a_wait_cancels_the_function(annotations, acted):
    ended = []

    @toolcrib.tool(timeout="5s", annotations=annotations)
    async def endless(context: toolcrib.CallContext) -> None:
        try:
            await context.session.clock.sleep(2)
            await context.session.clock.sleep(NEVER)
        finally:
            ended.append(context.session.clock.monotonic())

    result = call(endless, clock=VirtualClock())
    assert (result.outcome, ended) == (Outcome.TIMEOUT, [5.0])
    details = dict(result.error.details)
    assert details.pop("at").startswith(__file__)
    assert details == {
        "limit": "timeout",
        "value": "5s",
        "measured": 5.0,
        **({"may_have_acted": True} if acted else {}),
    }


def test_a_function_that_takes_exactly_its_time_is_in_time():
    @toolcrib.tool(timeout="5s")
    async def punctual(context: toolcrib.CallContext) -> None:
        await context.session.clock.sleep(5)

    assert call(punctual, clock=VirtualClock()).outcome is Outcome.OK


def cancelled_after(turns):
    """Cancel a call after some turns of the event loop; what the function did."""
    did: list[str] = []

    async def step_by_step() -> None:
        did.append("began")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            did.append("cancelled")
            raise

    async def run():
        async with runtime_with(step_by_step) as runtime:
            task = asyncio.ensure_future(runtime.call("step_by_step"))
            for _ in range(turns):
                await asyncio.sleep(0)  # noqa: TID251 -- one turn of the loop
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

    asyncio.run(run())
    return did


def test_a_call_that_is_cancelled_before_its_first_step_never_begins():
    assert cancelled_after(0) == []


@pytest.mark.parametrize("turns", [1, 3])
def test_a_call_that_is_cancelled_later_cancels_the_function(turns):
    assert cancelled_after(turns) == ["began", "cancelled"]


def test_a_function_may_go_on_after_a_cancellation():
    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)  # noqa: TID251 -- one turn of the loop
        return "cleaned up"

    async def run():
        async with runtime_with(stubborn) as runtime:
            task = asyncio.ensure_future(runtime.call("stubborn"))
            await asyncio.sleep(0)  # noqa: TID251 -- as above
            task.cancel()
            return await task

    assert asyncio.run(run()).value == "cleaned up"


@pytest.mark.parametrize("waits", [False, True])
def test_an_exception_is_the_same_in_every_step(waits):
    async def failing() -> None:
        if waits:
            await asyncio.sleep(0)  # noqa: TID251 -- one turn of the loop
        raise KeyError("lost")

    result = call(failing)
    assert (result.outcome, result.error.code) == (Outcome.TOOL_ERROR, "KeyError")


@pytest.mark.parametrize("waits", [False, True])
def test_a_function_that_cancels_itself_is_not_a_cancelled_caller(waits):
    async def giving_up() -> None:
        if waits:
            await asyncio.sleep(0)  # noqa: TID251 -- one turn of the loop
        raise asyncio.CancelledError

    assert call(giving_up).message == "`giving_up` cancelled itself"


def test_context_variables_and_the_task_are_those_of_the_caller():
    variable: ContextVar[str] = ContextVar("variable")

    async def change() -> list[str]:
        before = variable.get()
        task = asyncio.current_task()
        variable.set("first step")
        await asyncio.sleep(0)  # noqa: TID251 -- one turn of the loop
        same = asyncio.current_task() is task
        return [before, variable.get(), str(same)]

    async def run():
        variable.set("caller")
        async with runtime_with(change) as runtime:
            return (await runtime.call("change")).value, variable.get()

    assert asyncio.run(run()) == (["caller", "first step", "True"], "first step")


def test_timeouts_and_task_groups_of_the_function_work_in_its_first_step():
    async def inner() -> int:
        await asyncio.sleep(0)  # noqa: TID251 -- one turn of the loop
        return 1

    async def impatient() -> list[Any]:
        try:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()
        except TimeoutError:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(inner()) for _ in range(3)]
        return [each.result() for each in tasks]

    result = call(impatient)
    assert result.value == [1, 1, 1], result.message


def test_the_deadline_ends_a_function_within_a_longer_timeout_of_its_own():
    @toolcrib.tool(timeout="10ms")
    async def patient() -> None:
        async with asyncio.timeout(NEVER):
            await asyncio.Event().wait()

    assert call(patient).outcome is Outcome.TIMEOUT


@pytest.mark.parametrize("waits", [False, True])
def test_events_of_a_generator_arrive_in_order(waits):
    async def report() -> AsyncIterator[Progress | Partial | str]:
        yield Progress(1)
        if waits:
            await asyncio.sleep(0)  # noqa: TID251 -- one turn of the loop
        yield Progress(2)
        yield "done"

    async def run():
        async with runtime_with(report) as runtime:
            return [each async for each in runtime.stream("report")]

    *events, result = asyncio.run(run())
    assert (events, result.value) == ([Progress(1), Progress(2)], "done")


def test_a_synchronous_function_in_the_event_loop_needs_no_timer():
    clock = TimersOf()

    @toolcrib.tool(worker="inline")
    def plain() -> int:
        return 1

    assert call(plain, clock=clock).value == 1
    assert clock.timers == []


class Number(BaseModel):
    number: int


class Twice(toolcrib.Tool[Number, int]):
    async def execute(self, input: Number) -> int:  # noqa: A002 -- the name in the docs
        return 2 * input.number


def test_a_method_that_does_not_wait_needs_no_timer_once_its_instance_is_ready():
    clock = TimersOf()

    async def run():
        async with runtime_with(Twice) as runtime:
            session = runtime.session(clock=clock)
            return [(await session.call("twice", {"number": 2})).value for _ in range(3)]

    assert asyncio.run(run()) == [4, 4, 4]
    assert len(clock.timers) == 1


class City(BaseModel):
    name: str = Field(max_length=5)


async def city(name: str) -> City:
    return City.model_construct(name=name)


def test_a_result_is_still_checked():
    result = call(city, {"name": "too long"})
    assert result.outcome is Outcome.INVALID_RESULT
    assert "/name" in result.message


@pytest.mark.parametrize("bad", ["\ud800", 10**5000], ids=["surrogate", "digits"])
def test_a_result_that_is_not_json_is_refused(bad):
    async def give() -> Any:
        return {"deep": [bad]}

    result = call(give)
    assert result.outcome is Outcome.INVALID_RESULT, result


def test_a_result_beyond_its_limit_is_refused():
    @toolcrib.tool(limits={"output_size": "1KiB"})
    async def long() -> str:
        return "x" * 2000

    assert call(long).error.code == "result_too_large"


def test_a_large_result_is_checked_off_the_event_loop_and_arrives():
    async def many() -> list[int]:
        return [*range(50_000)]

    assert call(many).value == [*range(50_000)]


def test_middleware_and_observers_await_a_call_that_ends_at_once():
    seen = []

    async def watching(call, call_next):
        result = await call_next(call)
        seen.append(result.value)
        return result

    events = []
    result = call(double, {"number": 1}, middleware=[watching], observer=events.append)
    assert (result.value, seen) == (2, [2])
    assert [type(each).__name__ for each in events[-2:]] == ["CallStarted", "CallFinished"]


def test_a_deprecated_function_says_so():
    @toolcrib.tool(deprecated="use `new`")
    async def old() -> int:
        return 1

    assert call(old).meta["deprecated"] == "use `new`"


# The limits of calls


def inside_at_most(**keys):
    """The greatest number of calls of a function that ran at the same time, of fifty."""
    inside, most = 0, 0

    @toolcrib.tool(timeout="60s", **keys)
    async def work(context: toolcrib.CallContext) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await context.session.clock.sleep(1)
        inside -= 1

    async def run():
        async with runtime_with(work) as runtime:
            session = runtime.session(clock=VirtualClock())
            return await asyncio.gather(*(session.call("work") for _ in range(50)))

    assert {each.outcome for each in asyncio.run(run())} == {Outcome.OK}
    return most


@pytest.mark.parametrize(
    ("limits", "most"),
    [({}, 50), ({"output_size": "1KiB"}, 50), ({"concurrency": 10}, 10), ({"origin": {"concurrency": 2}}, 2)],
)
def test_only_limits_that_are_written_apply_in_the_event_loop(limits, most):
    assert inside_at_most(limits=limits) == most


def test_the_limits_of_a_project_count_as_written():
    tool = runtime_with(double).registry["double"]
    assert not writes_limits(tool)
    settings = {"limits.concurrency": "toolcrib.yaml:3", "limits.output_size": "toolcrib.yaml:4"}
    assert writes_limits(tool._replace(origin=tool.origin._replace(settings=settings)))
    del settings["limits.concurrency"]
    assert not writes_limits(tool._replace(origin=tool.origin._replace(settings=settings)))


@pytest.mark.parametrize(
    ("limits", "outcome"), [({}, "timeout"), ({"breaker": {"failures": 5}}, "overloaded")]
)
def test_a_circuit_breaker_guards_a_function_only_if_it_is_written(limits, outcome):
    @toolcrib.tool(timeout="1s", limits=limits)
    async def silent(context: toolcrib.CallContext) -> None:
        await context.session.clock.sleep(NEVER)

    async def run():
        async with runtime_with(silent) as runtime:
            session = runtime.session(clock=VirtualClock())
            return [(await session.call("silent")).outcome for _ in range(6)]

    assert asyncio.run(run())[-1] == outcome


# Several arguments at once


@dataclass
class Address:
    street: str
    number: int


async def ship(to: Address, items: list[str], back: Address | None = None, weight: float = 1.5) -> list[Any]:
    return [type(to).__name__, items, back and back.number, weight]


def test_arguments_are_converted_together_as_each_alone():
    to = {"street": "Main", "number": 3.0}
    assert call(ship, {"to": to, "items": ["a"]}).value == ["Address", ["a"], None, 1.5]
    assert call(ship, {"to": to, "items": [], "back": to, "weight": 2}).value == ["Address", [], 3, 2.0]


def odd(number: int) -> int:
    if number % 2 == 0:
        raise ValueError("must be odd")
    return number


Odd = Annotated[int, AfterValidator(odd)]


def test_each_wrong_argument_is_told_with_its_place():
    async def add(first: Odd, second: Odd) -> int:
        return first + second

    result = call(add, {"first": 2, "second": 4})
    assert result.outcome is Outcome.INVALID_ARGUMENTS
    assert [each["pointer"] for each in result.error.details["violations"]] == ["/first", "/second"]


# The coroutine that continues another one


@coroutine
def ask(question):
    return (yield question)


async def conversation(log):
    try:
        log.append(await ask("name?"))
        log.append(await ask("age?"))
    except KeyError as error:
        log.append(f"caught {error}")
        log.append(await ask("again?"))
    finally:
        log.append("end")
    return "bye"


def begun():
    log = []
    work = conversation(log)
    first = work.send(None)
    return log, continued(work, first)


def test_a_continued_coroutine_yields_what_it_waited_for_and_gets_what_is_sent():
    log, rest = begun()
    assert rest.send(None) == "name?"
    assert rest.send("Ada") == "age?"
    with pytest.raises(StopIteration) as ended:
        rest.send("36")
    assert (ended.value.value, log) == ("bye", ["Ada", "36", "end"])


def test_a_continued_coroutine_gets_what_is_thrown():
    log, rest = begun()
    rest.send(None)
    assert rest.throw(KeyError("x")) == "again?"
    with pytest.raises(StopIteration):
        rest.send("now")
    assert log == ["caught 'x'", "now", "end"]


def test_what_a_continued_coroutine_raises_passes_through():
    log, rest = begun()
    rest.send(None)
    with pytest.raises(ZeroDivisionError):
        rest.throw(ZeroDivisionError)
    assert log == ["end"]


def test_a_continued_coroutine_that_is_closed_closes_the_other_one():
    log, rest = begun()
    rest.send(None)
    rest.close()
    assert log == ["end"]


def test_a_continued_coroutine_that_is_dropped_leaves_nothing_open():
    log, rest = begun()
    del rest
    gc.collect()
    assert log == ["end"]


def test_an_executor_without_the_chain_answers_the_same():
    runtime = runtime_with(double)
    chain = runtime._engine.chain_for(runtime.registry["double"])

    async def run(function):
        return await chain.bound.execute(
            toolcrib.Call(chain.tool, {"number": 2}, toolcrib.CallContext(session=runtime.session()))
        )

    result = asyncio.run(run(double))
    assert (type(result), result.value) == (Result, 4)
    begun_call = chain.bound.begin(
        toolcrib.Call(chain.tool, {"number": 2}, toolcrib.CallContext(session=runtime.session()))
    )
    assert begun_call == TrustedAnswer(4)
