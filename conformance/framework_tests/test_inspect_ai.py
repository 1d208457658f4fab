"""Inspect with the tools of a runtime and a scripted model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from inspect_ai import Task, eval_async
from inspect_ai.approval import Approval, ApprovalPolicy, Approver, approver, auto_approver
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageTool, ContentImage, ContentText, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import ToolCall
from shop import CALLS, hanging_tool, new_runtime, run_how_to, with_listing_server

from toolcrib import Executors, Runtime, parse_registry
from toolcrib.frameworks import to_inspect


def script(*calls: tuple[str, dict[str, Any]]) -> list[ModelOutput]:
    outputs = [ModelOutput.for_tool_call("mockllm", name, arguments) for name, arguments in calls]
    outputs.append(ModelOutput.from_content("mockllm", "done"))
    for output in outputs:
        output.usage = ModelUsage()  # without it, Inspect downloads a tokenizer to count
    return outputs


async def evaluate(tools: Any, folder: Any, *calls: Any, samples: int = 1, **options: Any) -> Any:
    """The log of an evaluation; each sample makes the calls."""
    outputs = [output for _ in range(samples) for output in script(*calls)]
    dataset = [Sample(input=f"hello {number}", target="done") for number in range(samples)]
    task = Task(dataset=dataset, solver=[use_tools(tools), generate()], scorer=includes())
    model = get_model("mockllm/model", custom_outputs=outputs, memoize=False)
    (log,) = await eval_async(task, model=model, log_dir=str(folder), max_samples=1, **options)
    return log


def runtime_of(text: str) -> Runtime:
    kinds = Executors.installed()
    return Runtime(parse_registry("tools.yaml", text, kinds=kinds), executors=kinds)


def results(log: Any, sample: int = 0) -> list[ChatMessageTool]:
    return [message for message in log.samples[sample].messages if isinstance(message, ChatMessageTool)]


def run(tmp_path: Any, *calls: Any, ask: Any = (), approval: Any = None, add: Any = ()) -> Any:
    async def evaluated():
        async with new_runtime() as runtime:
            for tool in add:
                runtime.add(tool)
            return await evaluate(to_inspect(runtime, ask=ask), tmp_path, *calls, approval=approval)

    return asyncio.run(evaluated())


def test_a_sample_calls_a_tool(tmp_path):
    log = run(tmp_path, ("get_forecast", {"city": "Oslo"}))
    assert log.status == "success", log.error
    assert [message.text for message in results(log)] == ['{"city":"Oslo","days":3}']


def test_models_get_the_schema_of_the_tool(tmp_path):
    log = run(tmp_path)
    (event,) = [event for event in log.samples[0].events if event.event == "model"]
    found = {tool.name: tool for tool in event.tools}["find_items"]
    config = found.parameters.properties["config"]
    assert (found.description, config.properties["kind"].enum) == ("Find items.", ["book"])
    assert config.additionalProperties is None
    assert found.parameters.additionalProperties is False


def test_a_model_reads_what_is_wrong_and_calls_again(tmp_path):
    log = run(
        tmp_path,
        ("get_forecast", {"city": "Oslo", "days": 9}),
        ("find_items", {"config": {"self": 1.5}}),
        ("get_forecast", {"city": "Oslo", "days": "3"}),
        ("get_forecast", {"city": "Atlantis"}),
    )
    refused, mistyped, unrepaired, failed = results(log)
    assert {each.error.type for each in (refused, mistyped, unrepaired)} == {"parsing"}
    assert (
        "'3' is not of type 'integer'" in unrepaired.error.message
    )  # the words of Inspect, which checks first
    assert (failed.error.type, failed.error.message) == ("unknown", "LookupError: this city is under water")


def test_toolcrib_validates_what_inspect_cannot_express(tmp_path):
    text = "name: pick\ninput_schema: {type: object, properties: {n: {type: integer, multipleOf: 5}}}\nmock: {result: 1}\n"

    async def evaluated():
        async with runtime_of(text) as runtime:
            return await evaluate(to_inspect(runtime), tmp_path, ("pick", {"n": 7}))

    (message,) = results(asyncio.run(evaluated()))
    assert message.error.message.startswith("invalid arguments for `pick`")


def test_a_bug_fails_the_sample(tmp_path):
    log = run(tmp_path, ("broken", {}))
    assert log.status == "error"
    assert "InternalError" in log.error.traceback


def test_progress_and_content_are_in_the_transcript(tmp_path):
    log = run(tmp_path, ("count", {}))
    told = [
        event.data for event in log.samples[0].events if event.event == "info" and event.source == "toolcrib"
    ]
    assert told == [
        {"tool": "count", "progress": 1, "total": 2, "message": "first"},
        {"tool": "count", "content": {"type": "text", "text": "half"}},
        {"tool": "count", "progress": 2, "total": 2, "message": "second"},
    ]


def test_a_limit_of_the_sample_cancels_the_call(tmp_path):
    hang, state = hanging_tool()

    async def evaluated():
        async with new_runtime() as runtime:
            runtime.add(hang)
            return await evaluate(to_inspect(runtime), tmp_path, ("hang", {}), time_limit=1)

    log = asyncio.run(evaluated())
    assert state.cancelled.is_set()
    assert log.samples[0].limit.type == "time"


def test_a_deadline_is_a_timeout_of_inspect(tmp_path):
    hang, state = hanging_tool("10ms")
    (message,) = results(run(tmp_path, ("hang", {}), add=[hang]))
    assert message.error.type == "timeout"
    assert state.cancelled.is_set()


@approver(name="refuse")
def refuse() -> Approver:
    async def approve(message: str, call: ToolCall, view: Any, history: Any) -> Approval:
        return Approval(decision="reject", explanation="too late")

    return approve


@approver(name="edit")
def edit() -> Approver:
    async def approve(message: str, call: ToolCall, view: Any, history: Any) -> Approval:
        edited = ToolCall(id=call.id, function=call.function, arguments={"order": "A2"})
        return Approval(decision="modify", modified=edited)

    return approve


@pytest.mark.parametrize(
    ("policy", "calls", "text"),
    [
        (auto_approver, ["A1"], "refunded A1"),
        (edit, ["A2"], "refunded A2"),
        (refuse, [], "too late"),
        (None, [], "refund A1?; no approval policy has approved the call"),
    ],
    ids=["approve", "edit", "reject", "no policy"],
)
def test_a_call_that_needs_approval_is_made_if_a_policy_approved_it(tmp_path, policy, calls, text):
    approval = None if policy is None else [ApprovalPolicy(policy(), "*")]
    (message,) = results(run(tmp_path, ("refund", {"order": "A1"}), approval=approval))
    assert (CALLS, message.error.message if message.error else message.text) == (calls, text)


def test_names_to_ask_about_need_a_policy(tmp_path):
    (message,) = results(run(tmp_path, ("get_forecast", {"city": "Oslo"}), ask="get_*"))
    assert (
        message.error.message == "`get_forecast` requires approval; no approval policy has approved the call"
    )


def test_each_sample_has_a_session_of_its_own(tmp_path):
    text = """
name: next_number
input_schema: {type: object}
mock: {sequence: [{result: first}, {result: second}]}
"""

    async def evaluated():
        async with runtime_of(text) as runtime:
            own = await evaluate(to_inspect(runtime), tmp_path, ("next_number", {}), samples=2)
            async with runtime.session() as session:
                shared = await evaluate(to_inspect(session), tmp_path, ("next_number", {}), samples=2)
        return own, shared

    own, shared = asyncio.run(evaluated())
    assert [results(own, sample)[0].text for sample in (0, 1)] == ["first", "first"]
    assert [results(shared, sample)[0].text for sample in (0, 1)] == ["first", "second"]


def test_images_are_content(tmp_path):
    (message,) = results(run(tmp_path, ("draw", {})))
    text, image = message.content
    assert (type(text), text.text) == (ContentText, "drawn")
    assert isinstance(image, ContentImage)


def test_a_server_is_listed_before_its_tools_are_passed_on(tmp_path):
    async def evaluated():
        runtime = with_listing_server(tmp_path)
        try:
            return await evaluate(to_inspect(runtime), tmp_path)
        finally:
            await runtime.aclose()

    log = asyncio.run(evaluated())
    (event,) = [event for event in log.samples[0].events if event.event == "model"]
    found = {tool.name: list(tool.parameters.properties) for tool in event.tools}
    assert found == {"say": ["text"], "docs__echo": ["text"]}


def test_the_how_to(tmp_path):
    run_how_to("use-from-inspect.md", tmp_path)
