"""The public names as a user's program has them: `make lint` checks its types; nothing runs it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, assert_type

import toolcrib
from toolcrib import (
    JSON,
    AccessDecision,
    AccessViolation,
    ApprovalAnswered,
    ApprovalRequested,
    Call,
    CallFinished,
    CallNext,
    CallProgressed,
    CallStarted,
    Card,
    Client,
    ClientCall,
    Content,
    Descriptor,
    Event,
    Executors,
    Failure,
    Hit,
    Outcome,
    Pack,
    Partial,
    Pending,
    Problem,
    Progress,
    Registry,
    Result,
    Runtime,
    Scenario,
    ScenarioReport,
    Session,
    ToolAppeared,
    ToolChanged,
    ToolDisabled,
    ToolEnabled,
    ToolGone,
    Toolset,
    Usage,
    VirtualClock,
    parse_registry,
)


def watch(event: Event) -> None:
    match event:
        case CallStarted():
            assert_type(event.call, Call)
        case CallFinished():
            assert_type(event.result, Result)
        case ToolGone():
            assert_type(event.before, Descriptor)
        case CallProgressed():
            assert_type(event.update, Progress | Partial)
        case AccessViolation():
            assert_type(event.decision, AccessDecision)
        case ApprovalRequested() | ApprovalAnswered():
            assert_type(event.pending, Pending)
        case ToolAppeared() | ToolChanged() | ToolEnabled() | ToolDisabled():
            assert_type(event.tool, Descriptor)


async def located(call: ClientCall) -> JSON | Result:
    assert_type(call.tool, str)
    assert_type(call.timeout, float)
    if call.consent and "location" in call.categories:
        return call.decline(f"{call.message} No.")
    return call.defer() if not call.arguments else {"lat": 59.9}


async def fulfilled(tools: Runtime) -> Result:
    client: Client = located
    session = tools.session(client=client)
    return await session.call("locate", {}, client=located, grants={"approve:locate"})


async def cached(call: Call, call_next: CallNext) -> Result:
    assert_type(call.tool, Descriptor)
    assert_type(call.arguments, dict[str, JSON])
    changed = call._replace(arguments={**call.arguments, "city": "Oslo"})
    return (await call_next(changed)).with_meta(cached=False)


async def refused(call: Call, _call_next: CallNext) -> Result:
    return Result.failure(
        Outcome.DENIED, f"`{call.tool.name}` is not for you", code="not_yours", retryable=False
    )


async def calls() -> None:
    async with Runtime.open("descriptors", middleware=[cached, refused, "audit"], observer=watch) as tools:
        assert_type(tools, Runtime)
        result = await tools.call("get_forecast", {"city": "Oslo", "days": 3})
        assert_type(result, Result)
        assert_type(result.outcome, Outcome)
        assert_type(result.ok, bool)
        assert_type(result.value, Any)
        assert_type(result.content, tuple[Content, ...])
        assert_type(result.error, Failure | None)
        assert_type(result.usage, Usage)
        assert_type(result.meta, Mapping[str, Any])
        assert_type(result.raise_for_outcome(), Result)
        assert_type(result.as_json(), dict[str, Any])
        assert_type(toolcrib.text_for_model(result), str)
        assert_type(await tools.dry_run("get_forecast"), Result)
        assert_type(await tools["get_forecast"](city="Oslo"), Result)
        assert_type(list(tools), list[str])
        assert_type(tools.observe(watch), Callable[[], None])
        assert_type([each.decision.place for each in tools.violations], list[str])


async def streams(tools: Runtime) -> None:
    stream = tools.stream("get_forecast", {"city": "Oslo"})
    assert_type(stream, AsyncIterator[Progress | Partial | Result])
    async for event in stream:
        if isinstance(event, Progress):
            assert_type(event.total, float | None)


async def sessions(tools: Runtime) -> None:
    session = tools.session(seed=7, clock=VirtualClock(), user="ada")
    assert_type(session, Session)
    assert_type(await session.call("get_forecast"), Result)
    for scenario in tools.scenarios:
        assert_type(scenario, Scenario)
        report = await toolcrib.run_scenario(tools, scenario)
        assert_type(report, ScenarioReport)


def reading() -> None:
    kinds = Executors.installed()
    problems: list[Problem] = []
    registry = parse_registry(
        "memory", {"name": "hello", "mock": {"result": 1}}, kinds=kinds, problems=problems
    )
    assert_type(registry, Registry)
    assert_type(registry["hello"], Descriptor)
    assert_type(registry.select(tag="smoke"), list[Descriptor])
    assert_type(registry.query(tag=["smoke", "!slow"], mode="mock", match="any"), list[Card])
    assert_type(registry.search("hello world", limit=3, deprecated=False), list[Hit])
    assert_type(
        registry.disabled("legacy_*", place="settings").within(Toolset(name="all", tools=("*",))), Registry
    )
    assert_type(registry.without("hello"), Registry)
    assert_type(Pack.parse("pack.yaml", "name: p\nversion: 1.0.0", kinds=kinds), Pack)


def errors(result: Result) -> str:
    try:
        result.raise_for_outcome()
    except toolcrib.ToolFailed as error:
        assert_type(error.result, Result)
        return error.code
    except toolcrib.CallError as error:
        return error.outcome
    return ""


with Runtime.open("descriptors", mode="mock", modes={"pay_*": "mock"}, strict=True) as tools:
    assert_type(tools.call_sync("get_forecast"), Result)


@toolcrib.tool
async def forecast(city: str, days: int = 3) -> list[float]:
    return [float(len(city))] * days


@toolcrib.tool(name="refund_order", annotations={"read_only": True}, timeout="5s")
def refund(order: str, *, amount: float = 1.0) -> bool:
    return bool(order) and amount > 0


class Counter(toolcrib.Tool[dict[str, int], int]):
    async def initialise(self, config: dict[str, int]) -> None:
        self.start = config["start"]

    async def execute(self, given: dict[str, int], context: toolcrib.CallContext | None = None) -> int:
        return self.start + given["by"]


@toolcrib.tool(title="Plain")
class PlainCounter(toolcrib.Tool[dict[str, int], int]):
    def execute(self, given: dict[str, int]) -> int:
        return given["by"]

    def close(self) -> None:
        return None


async def typed_tools(runtime: Runtime) -> None:
    assert_type(await forecast("Oslo", days=2), list[float])
    assert_type(refund("o1", amount=2), bool)
    assert_type(PlainCounter().execute({"by": 1}), int)
    for each in (forecast, refund, Counter, PlainCounter(), toolcrib.simple_tool("ping", "Answers.")):
        assert_type(runtime.add(each), Descriptor)
    runtime.add(lambda: None, replace=True)
    runtime.remove("ping")
    await forecast(7)  # type: ignore[arg-type]
    refund("o1", amuont=2)  # type: ignore[call-arg]
    runtime.add(3)  # type: ignore[call-overload]


@toolcrib.factory(timeout="5s")
def created(database: str) -> PlainCounter:
    return PlainCounter()


async def factories(runtime: Runtime) -> None:
    assert_type(created("main"), PlainCounter)
    assert_type(runtime.add(created), Descriptor)
    assert_type(runtime.add(refund, schema={"type": "object"}, replace=True), Descriptor)
