"""Pydantic AI with the tools of a runtime and a scripted model."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from pydantic_ai import Agent, BinaryContent, DeferredToolRequests, DeferredToolResults, ToolDenied
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from shop import CALLS, hanging_tool, new_runtime, run_how_to, with_listing_server

from toolcrib import ConfigurationError, InternalError, Outcome, Result
from toolcrib.frameworks import to_pydantic_ai


def call(name: str, arguments: dict[str, Any], number: str = "c1") -> ToolCallPart:
    return ToolCallPart(name, arguments, number)


class Script:
    """A model that says what was written for it, and keeps what it was told."""

    def __init__(self, *parts: ToolCallPart) -> None:
        self._parts = iter([*parts, TextPart("done")])
        self.told: list[Any] = []
        self.infos: list[AgentInfo] = []

    def _next(self, messages: Any, info: AgentInfo) -> Any:
        self.told.extend(messages[-1].parts)
        self.infos.append(info)
        return next(self._parts)

    @property
    def model(self) -> FunctionModel:
        async def stream(messages: Any, info: AgentInfo) -> Any:
            part = self._next(messages, info)
            if isinstance(part, TextPart):
                yield part.content
            else:
                yield {
                    0: DeltaToolCall(part.tool_name, json.dumps(part.args), tool_call_id=part.tool_call_id)
                }

        return FunctionModel(
            lambda messages, info: ModelResponse(parts=[self._next(messages, info)]), stream_function=stream
        )

    @property
    def results(self) -> list[ToolReturnPart]:
        return [part for part in self.told if isinstance(part, ToolReturnPart)]

    def agent(self, toolset: Any, **options: Any) -> Any:
        return Agent(self.model, toolsets=[toolset], retries=3, **options)


def test_an_agent_calls_a_tool():
    async def run():
        script = Script(call("get_forecast", {"city": "Oslo"}))
        async with new_runtime() as runtime:
            await script.agent(to_pydantic_ai(runtime)).run("hello")
        return script

    script = asyncio.run(run())
    (result,) = script.results
    assert result.content == '{"city":"Oslo","days":3}'
    assert result.metadata["result"] == {"city": "Oslo", "days": 3}


def test_models_get_the_schema_of_the_tool():
    async def run():
        script = Script()
        async with new_runtime() as runtime:
            await script.agent(to_pydantic_ai(runtime, "find.*")).run("hello")
        return script.infos[0].function_tools

    (tool,) = asyncio.run(run())
    assert (tool.name, tool.description) == ("find_items", "Find items.")
    assert tool.parameters_json_schema["properties"]["config"]["properties"]["kind"] == {"const": "book"}


def test_a_toolset_follows_the_runtime():
    async def run():
        script = Script()
        async with new_runtime() as runtime:
            toolset = to_pydantic_ai(runtime, "get_*")
            runtime.remove("get_forecast")
            with pytest.raises(ConfigurationError, match="`get_\\*` matches no tool"):
                await script.agent(toolset).run("hello")

    asyncio.run(run())


def test_a_model_reads_what_is_wrong_and_calls_again():
    async def run():
        script = Script(
            call("get_forecast", {"city": "Oslo", "days": 9}),
            call("get_forecast", {"city": "Oslo", "days": "7"}, "c2"),
            call("get_forecast", {"city": "Atlantis"}, "c3"),
        )
        async with new_runtime() as runtime:
            await script.agent(to_pydantic_ai(runtime)).run("hello")
        return script.results

    refused, repaired, failed = asyncio.run(run())
    assert (refused.outcome, "/days" in refused.content) == ("retried", True)
    assert repaired.content == '{"city":"Oslo","days":7}'
    assert (failed.outcome, failed.content) == ("retried", "LookupError: this city is under water")


def test_a_failure_that_a_better_call_cannot_avoid_is_no_retry():
    async def run():
        script = Script(call("get_forecast", {"city": "Oslo"}))
        async with new_runtime(middleware=[_denied]) as runtime:
            await script.agent(to_pydantic_ai(runtime)).run("hello")
        return script.results

    (failed,) = asyncio.run(run())
    assert (failed.outcome, failed.content) == ("failed", "not today")


async def _denied(_call: Any, _call_next: Any) -> Result:
    return Result.failure(Outcome.DENIED, "not today")


def test_a_bug_raises():
    async def run():
        async with new_runtime() as runtime:
            await Script(call("broken", {})).agent(to_pydantic_ai(runtime)).run("hello")

    with pytest.raises(InternalError):
        asyncio.run(run())


def test_progress_and_content_are_events_of_the_run():
    async def run():
        async with new_runtime() as runtime:
            agent = Script(call("count", {})).agent(to_pydantic_ai(runtime))
            async with agent.run_stream_events("hello") as events:
                return [event async for event in events if getattr(event, "event_kind", "") == "custom"]

    first, partial, second = asyncio.run(run())
    assert (first.name, first.tool_name, first.tool_call_id) == ("toolcrib_progress", "count", "c1")
    assert (first.progress, first.total, first.message) == (1, 2, "first")
    assert (partial.name, partial.content) == ("toolcrib_content", {"type": "text", "text": "half"})
    assert second.message == "second"


def test_cancelling_the_run_cancels_the_call():
    async def run():
        hang, state = hanging_tool()
        async with new_runtime() as runtime:
            runtime.add(hang)
            agent = Script(call("hang", {})).agent(to_pydantic_ai(runtime))
            task = asyncio.create_task(agent.run("hello"))
            await asyncio.wait_for(state.started.wait(), 30)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert state.cancelled.is_set()

    asyncio.run(run())


def test_a_deadline_is_a_retry():
    async def run():
        hang, state = hanging_tool("10ms")
        script = Script(call("hang", {}))
        async with new_runtime() as runtime:
            runtime.add(hang)
            await script.agent(to_pydantic_ai(runtime)).run("hello")
        assert state.cancelled.is_set()
        return script.results

    (result,) = asyncio.run(run())
    assert result.outcome in {"retried", "failed"}
    assert "10ms" in result.content


@pytest.mark.parametrize("ask", [(), ("refund",)], ids=["middleware", "ask"])
@pytest.mark.parametrize(
    ("decision", "calls", "content"),
    [(True, ["A1"], "refunded A1"), (ToolDenied("too late"), [], "too late")],
    ids=["approve", "deny"],
)
def test_a_call_that_needs_approval_is_deferred(ask, decision, calls, content):
    async def run():
        script = Script(call("refund", {"order": "A1"}))
        async with new_runtime() as runtime:
            agent = script.agent(to_pydantic_ai(runtime, ask=ask), output_type=[str, DeferredToolRequests])
            first = await agent.run("hello")
            assert [part.tool_name for part in first.output.approvals] == ["refund"]
            assert first.output.metadata["c1"]["arguments"] == {"order": "A1"}
            assert CALLS == []
            decided = DeferredToolResults(approvals={"c1": decision})
            second = await agent.run(message_history=first.all_messages(), deferred_tool_results=decided)
            assert second.output == "done"
        return script.results

    results = asyncio.run(run())
    assert calls == CALLS
    assert [part.content for part in results] == [content]


def test_a_call_of_the_client_is_deferred():
    async def run():
        script = Script(call("ask_person", {"question": "Size?"}))
        async with new_runtime() as runtime:
            agent = script.agent(to_pydantic_ai(runtime), output_type=[str, DeferredToolRequests])
            first = await agent.run("hello")
            assert [part.args for part in first.output.calls] == [{"question": "Size?"}]
            decided = DeferredToolResults(calls={"c1": "XL"})
            await agent.run(message_history=first.all_messages(), deferred_tool_results=decided)
        return script.results

    (result,) = asyncio.run(run())
    assert result.content == "XL"


def test_images_are_binary_content():
    async def run():
        script = Script(call("draw", {}))
        async with new_runtime() as runtime:
            await script.agent(to_pydantic_ai(runtime)).run("hello")
        return script.results

    (result,) = asyncio.run(run())
    text, image = result.content
    assert (text, image.data, image.media_type) == ("drawn", b"hello", "image/png")
    assert isinstance(image, BinaryContent)


def test_a_server_is_listed_before_its_tools_are_passed_on(tmp_path):
    async def run():
        script = Script()
        runtime = with_listing_server(tmp_path)
        try:
            await script.agent(to_pydantic_ai(runtime)).run("hello")
        finally:
            await runtime.aclose()
        return {tool.name: tool.parameters_json_schema for tool in script.infos[0].function_tools}

    expected = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    assert asyncio.run(run()) == {"say": expected, "docs__echo": expected}


def test_the_how_to(tmp_path):
    run_how_to("use-from-pydantic-ai.md", tmp_path)
