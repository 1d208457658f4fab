"""Calls of functions and classes: typed arguments, results as JSON, exceptions, progress, deadlines, one instance."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
from collections.abc import AsyncIterator, Generator, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, SecretStr

import toolcrib
from sampling import examples
from toolcrib import (
    CallContext,
    Executors,
    Outcome,
    Partial,
    Progress,
    Registry,
    Result,
    Runtime,
    parse_registry,
)
from toolcrib.core.model import Content
from toolcrib.schema.from_types import JsonType
from typed_values import TYPES


@dataclass
class Order:
    item: str
    due: date


class Receipt(BaseModel):
    item: str
    due: date


def runtime_with(*tools, **options):
    runtime = Runtime(Registry(), **options)
    for each in tools:
        runtime.add(each)
    return runtime


def call(tool, arguments=None, **options):
    async def run():
        async with runtime_with(tool, **options) as runtime:
            return await runtime.call(next(iter(runtime.registry)), arguments)

    return asyncio.run(run())


async def order(order: Order, *, copies: int = 1) -> list[Receipt]:
    assert type(order.due) is date
    return [Receipt(item=order.item, due=order.due)] * copies


def test_arguments_arrive_as_types_and_results_become_json():
    result = call(order, {"order": {"item": "tea", "due": "2026-01-02"}, "copies": 2})
    assert result.value == [{"item": "tea", "due": "2026-01-02"}] * 2


def test_the_default_of_the_function_applies():
    assert len(call(order, {"order": {"item": "tea", "due": "2026-01-02"}}).value) == 1


def test_every_argument_that_only_python_can_refuse_is_told():
    result = call(order, {"order": {"item": "tea", "due": "yesterday"}, "copies": 1})
    assert result.outcome is Outcome.INVALID_ARGUMENTS
    assert result.message.startswith("invalid arguments for `order`:\n/order/due: expected a valid date")
    [told] = result.error.details["violations"]
    assert told["pointer"] == "/order/due"


def test_all_fields_are_told_at_once():
    result = call(order, {"order": {"item": []}, "copies": "many", "colour": "red"})
    assert result.outcome is Outcome.INVALID_ARGUMENTS
    told = {each["pointer"] for each in result.error.details["violations"]}
    assert told == {"/order/item", "/order/due", "/copies", "/colour"}


@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_arguments_of_random_types_arrive_as_they_were(data):
    types = data.draw(st.dictionaries(st.sampled_from(["a", "b", "given"]), TYPES, min_size=1), label="types")
    sent = {name: data.draw(values, label=name) for name, (_declared, values) in types.items()}
    received = []

    async def receive(**arguments):
        received.append(arguments)
        return arguments.get("a")

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=declared)
        for name, (declared, _values) in types.items()
    ]
    receive.__signature__ = inspect.Signature(parameters)
    receive.__annotations__ = {name: declared for name, (declared, _values) in types.items()}
    if "a" in types:
        receive.__annotations__["return"] = types["a"][0]
    kinds = {
        name: JsonType(declared, subject=name, place="here") for name, (declared, _values) in types.items()
    }
    result = call(receive, {name: kinds[name].write(value) for name, value in sent.items()})
    assert result.outcome is Outcome.OK, result.message
    assert received == [sent]
    # Read again: the elements of a set have no order.
    assert "a" not in kinds or kinds["a"].read(result.value) == sent["a"]


def secretive(key: SecretStr, n: Annotated[int, AfterValidator(lambda n: 1 / n)]) -> int:
    raise KeyError(f"no such key: {key.get_secret_value()}")


def test_an_exception_becomes_a_tool_error_without_secrets(caplog):
    result = call(
        toolcrib.tool(
            schema={
                "type": "object",
                "properties": {"key": {"type": "string", "writeOnly": True, "format": "password"}, "n": {}},
                "required": ["key", "n"],
            },
        )(secretive),
        {"key": "hunter22", "n": 1},
    )
    assert (result.outcome, result.error.code) == (Outcome.TOOL_ERROR, "KeyError")
    assert "no such key" in result.message
    assert "hunter22" not in result.message
    assert "Traceback" in caplog.text


def wrong() -> int:
    return "three"


def alien() -> dict[str, Any]:
    return {"thing": object()}


def binary() -> bytes:
    return b"\xff"


@pytest.mark.parametrize("function", [wrong, alien, binary])
def test_a_result_that_breaks_its_type_is_an_invalid_result(function):
    assert call(function).outcome is Outcome.INVALID_RESULT


def whole() -> Result:
    return Result.failure(Outcome.TOOL_ERROR, "no", code="mine")


def test_a_function_may_return_a_complete_result():
    assert call(whole).error.code == "mine"


def in_thread() -> str:
    return threading.current_thread().name


async def in_loop() -> str:
    return threading.current_thread().name


@toolcrib.tool(worker="inline")
def inline() -> str:
    return threading.current_thread().name


def test_synchronous_functions_run_in_a_thread_unless_they_are_inline():
    assert call(in_thread).value == "toolcrib in_thread"
    assert call(in_loop).value == "MainThread"
    assert call(inline).value == "MainThread"


def returning(n: int) -> Generator[Progress, None, int]:
    for step in range(n):
        yield Progress(step, n)
    return n


def yielding(n: int) -> Iterator[Progress | Partial | int]:
    yield Progress(1)
    yield Partial(Content("text", text="half"))
    yield n


async def streaming(n: int) -> AsyncIterator[Progress | int]:
    yield Progress(0)
    yield n - 1
    yield Progress(1)
    yield n


@pytest.mark.parametrize(
    ("function", "events"),
    [
        (returning, [Progress(0, 2), Progress(1, 2)]),
        (yielding, [Progress(1), Partial(Content("text", text="half"))]),
        (streaming, [Progress(0), Progress(1)]),
        (toolcrib.tool(worker="inline", name="other")(returning), None),
    ],
)
def test_a_generator_emits_its_events_and_ends_with_its_result(function, events):
    async def run():
        async with runtime_with(function) as runtime:
            name = next(iter(runtime.registry))
            return [event async for event in runtime.stream(name, {"n": 2})]

    *told, result = asyncio.run(run())
    assert result.value == 2
    assert events is None or told == events


def told(n: int, context: CallContext) -> str:
    context.emit(Progress(n))
    return context.user


def test_the_context_is_injected_and_its_events_arrive_from_a_thread():
    async def run():
        async with runtime_with(told) as runtime, runtime.session(user="ada") as session:
            return [event async for event in session.stream("told", {"n": 7})]

    progress, result = asyncio.run(run())
    assert (progress, result.value) == (Progress(7), "ada")


def test_an_asynchronous_function_is_cancelled_at_the_deadline():
    ended = []

    @toolcrib.tool(timeout="20ms")
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    result = call(endless)
    assert (result.outcome, result.error.details["may_have_acted"], ended) == (Outcome.TIMEOUT, True, [True])


def test_a_thread_runs_on_after_the_deadline_and_the_result_says_so():
    release, finished = threading.Event(), threading.Event()

    @toolcrib.tool(timeout="20ms")
    def endless() -> None:
        release.wait()
        finished.set()

    result = call(endless)  # returns although the thread still runs
    assert (result.outcome, result.error.details["may_have_acted"]) == (Outcome.TIMEOUT, True)
    assert not finished.is_set()
    release.set()
    assert finished.wait(60)


def test_the_cancellation_of_the_caller_passes_through():
    async def run():
        started = asyncio.Event()

        async def endless() -> None:
            started.set()
            await asyncio.Event().wait()

        async with runtime_with(endless) as runtime:
            task = asyncio.ensure_future(runtime.call("endless"))
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(run())


# Classes.


class Config(BaseModel):
    start: int = 0


class Given(BaseModel):
    by: int = 1


class Count(toolcrib.Tool[Given, int]):
    """Counts."""

    made: ClassVar[list[Count]] = []

    async def initialise(self, config: Config) -> None:
        self.made.append(self)
        self.value, self.closed = config.start, 0

    async def execute(self, given: Given, context: CallContext | None = None) -> int:
        assert context is not None
        self.value += given.by
        return self.value

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture(autouse=True)
def _forgotten():
    Count.made.clear()


def test_an_instance_is_made_once_and_closed_once():
    async def run():
        async with runtime_with(toolcrib.tool(config={"start": 10})(Count)) as runtime:
            first = await asyncio.gather(*(runtime.call("count") for _ in range(3)))
            return [result.value for result in first]

    try:
        assert sorted(asyncio.run(run())) == [11, 12, 13]
    finally:
        del Count.__toolcrib_tool__
    [made] = Count.made
    assert made.closed == 1


def test_a_given_instance_is_used_itself():
    mine = Count()
    assert call(mine, {"by": 2}).value == 2
    assert (Count.made, mine.closed) == ([mine], 1)


def test_runtimes_do_not_share_instances():
    assert [call(Count).value, call(Count).value] == [1, 1]
    assert len(Count.made) == 2


class Plain(toolcrib.Tool[Given, int]):
    def execute(self, given: Given) -> int:
        return threading.current_thread().name.startswith("toolcrib") + 2 * given.by


def test_methods_may_be_synchronous():
    assert call(Plain).value == 3


class Broken(toolcrib.Tool[Given, int]):
    tries = 0

    async def initialise(self, config: dict[str, Any]) -> None:
        Broken.tries += 1
        raise ConnectionError("no database")

    async def execute(self, given: Given) -> int: ...


def test_a_class_that_cannot_be_initialised_is_unavailable_and_tried_again():
    async def run():
        async with runtime_with(Broken) as runtime:
            return [await runtime.call("broken") for _ in range(2)]

    for result in asyncio.run(run()):
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "initialise_failed")
        assert result.message == "cannot initialise `broken`: no database"
    assert Broken.tries == 2


# Descriptors in files.

MODULE = '''
from dataclasses import dataclass
import toolcrib

@dataclass
class Refund:
    order: str
    amount: float

def refund(order: str, amount: float = 1.0) -> Refund:
    """Refund an order."""
    return Refund(order, amount)

def bare(order):
    return order

class Teller(toolcrib.Tool[Refund, str]):
    def initialise(self, config: dict[str, int]) -> None:
        self.limit = config["limit"]

    def execute(self, given: Refund) -> str:
        return f"{given.order} of {self.limit}"

number = 3
'''


def from_file(tmp_path, monkeypatch, text, name="tool", arguments=None):
    (tmp_path / "shop_tools.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "shop_tools", raising=False)
    registry = parse_registry("tools.yaml", f"name: tool\nmode: python\n{text}", kinds=Executors.installed())

    async def run():
        async with Runtime(registry) as runtime:
            return runtime.registry, await runtime.call(name, arguments)

    return asyncio.run(run())


def test_a_descriptor_takes_the_schemas_of_its_function(tmp_path, monkeypatch):
    registry, result = from_file(
        tmp_path, monkeypatch, 'python: {call: "shop_tools:refund"}', arguments={"order": "o1"}
    )
    assert result.value == {"order": "o1", "amount": 1.0}
    tool = registry["tool"]
    assert tool.description == "Refund an order."
    assert [*tool.input_schema["properties"]] == ["order", "amount"]
    assert tool.output_schema["required"] == ["order", "amount"]


def test_a_class_gets_its_config(tmp_path, monkeypatch):
    text = 'python: {call: "shop_tools:Teller", config: {limit: 5}}'
    _registry, result = from_file(tmp_path, monkeypatch, text, arguments={"order": "o1", "amount": 1})
    assert result.value == "o1 of 5"


SCHEMA = "input_schema: {type: object, properties: {order: {type: string}}, required: [order]}\n"


def test_a_descriptor_with_its_own_schema_may_name_a_bare_function(tmp_path, monkeypatch):
    text = SCHEMA + 'python: {call: "shop_tools:bare"}'
    assert from_file(tmp_path, monkeypatch, text, arguments={"order": "o1"})[1].value == "o1"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ('python: {call: "shop_tools:nothing"}', "missing_hook", "does not define `nothing`"),
        ('python: {call: "no_such_shop:refund"}', "missing_hook", "cannot be imported"),
        ('python: {call: "shop_tools:number"}', "missing_hook", "is not a function"),
        ('python: {call: "shop_tools:bare"}', "bad_signature", "has no annotation"),
        (SCHEMA.replace("order:", "ordr:") + 'python: {call: "shop_tools:refund"}', "not_bound", "no parameter `ordr`"),
        (SCHEMA.replace(", required: [order]", "") + 'python: {call: "shop_tools:refund"}', "not_bound", "requires `order`"),
        ('python: {call: "shop_tools:refund", config: {a: 1}}', "not_bound", "`config` has no effect"),
        ('python: {call: "shop_tools:Teller", config: {limit: many}}', "not_bound", "/limit: expected a valid integer"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_unavailable_with_the_reason(tmp_path, monkeypatch, text, code, said):
    _registry, result = from_file(tmp_path, monkeypatch, text, arguments={"order": "x"})
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, code)
    assert said in result.message


@pytest.mark.parametrize(
    "block", ["{}", "{call: refund}", '{call: "a:b", worker: fork}', '{call: "a:b", confg: {}}']
)
def test_a_wrong_block_is_refused_when_it_is_read(block):
    problems = []
    parse_registry(
        "t.yaml", f"name: t\nmode: python\npython: {block}", kinds=Executors.installed(), problems=problems
    )
    assert [each.pointer.startswith("/python") for each in problems] == [True]


def test_a_reload_that_changes_nothing_reports_nothing(tmp_path, monkeypatch):
    (tmp_path / "reloaded_tools.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = 'name: refund\nmode: python\npython: {call: "reloaded_tools:refund"}\n'
    (tmp_path / "a.tool.yaml").write_text(text)
    events = []

    async def run():
        async with Runtime.open(str(tmp_path), index=False, observer=events.append) as runtime:
            report = await runtime.reload()
            return report, runtime.registry["refund"].input_schema

    report, schema = asyncio.run(run())
    assert (report.changed, events) == ((), [])
    assert [*schema["properties"]] == ["order", "amount"]


def test_a_decorator_may_hide_that_a_function_is_asynchronous():
    async def inner(n: int) -> int:
        return n

    @functools.wraps(inner)
    def outer(n: int) -> int:
        return inner(n)

    assert call(outer, {"n": 3}).value == 3


def test_a_dry_run_calls_nothing():
    async def run():
        async with runtime_with(Broken, inline) as runtime:
            return (await runtime.dry_run("inline")).value["plan"], (await runtime.dry_run("broken")).value[
                "plan"
            ]

    first, second = asyncio.run(run())
    assert first == {"call": f"{__name__}:inline", "worker": "inline"}
    assert second["worker"] == "inline"


class Leaver(toolcrib.Tool[dict[str, int], int]):
    """Ends the program."""

    def __init__(self, when: str = "initialise") -> None:
        self.when = when

    async def initialise(self, config: dict[str, Any]) -> None:
        if self.when == "initialise":
            raise SystemExit(5)

    def execute(self, given: dict[str, int]) -> int:
        raise SystemExit(6)


@pytest.mark.parametrize("worker", ["inline", "thread"])
def test_a_function_that_calls_exit_does_not_end_the_program(worker):
    @toolcrib.tool(worker=worker)
    def leave() -> int:
        raise SystemExit(3)

    result = call(leave)
    assert (result.outcome, result.error.code) == (Outcome.TOOL_ERROR, "SystemExit")
    assert result.message == "the function called `sys.exit(3)`"


def test_an_asynchronous_function_that_calls_exit_does_not_end_the_program():
    async def leave() -> int:
        raise SystemExit("bye")

    assert call(leave).message == "the function called `sys.exit(bye)`"


def test_an_instance_that_calls_exit_does_not_end_the_program():
    failed = call(Leaver())
    assert (failed.outcome, failed.error.code) == (Outcome.UNAVAILABLE, "initialise_failed")
    assert failed.message == "cannot initialise `leaver`: the function called `sys.exit(5)`"
    assert call(Leaver("execute")).error.code == "SystemExit"


def test_a_number_that_json_cannot_express_is_refused_with_its_place():
    def measure() -> Any:
        return {"values": [1, float("nan")]}

    result = call(measure)
    assert result.outcome is Outcome.INVALID_RESULT
    assert result.message.endswith("/values/1: expected a finite number, got NaN")


def test_an_interrupt_that_a_function_raises_in_its_thread_does_not_end_the_program():
    def interrupt() -> int:
        raise KeyboardInterrupt

    result = call(toolcrib.tool(worker="thread")(interrupt))
    assert (result.outcome, result.error.code) == (Outcome.TOOL_ERROR, "KeyboardInterrupt")
    # In the event loop of the main thread, it may be the Ctrl-C of a person.
    with pytest.raises(KeyboardInterrupt):
        call(toolcrib.tool(worker="inline")(interrupt))


def test_an_instance_that_calls_exit_when_it_is_closed_does_not_keep_others_open():
    closed = []

    class First(toolcrib.Tool[dict[str, int], int]):
        def execute(self, given: dict[str, int]) -> int:
            return 1

        def close(self) -> None:
            closed.append(type(self).__name__)
            raise SystemExit(4)

    class Second(First):
        pass

    async def run():
        runtime = runtime_with(First, Second)
        assert [(await runtime.call(name)).value for name in ("first", "second")] == [1, 1]
        await runtime.aclose()

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(run())
    expected = ["`sys.exit(4)` in `First`", "`sys.exit(4)` in `Second`"]
    [of_executor] = caught.value.exceptions
    assert [str(each) for each in of_executor.exceptions] == expected
    assert closed == ["First", "Second"]
