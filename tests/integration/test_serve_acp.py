"""The agent of the Agent Client Protocol, driven by the client of the official Python SDK.

Every message that the agent sends in these tests is checked against the official schema (`acp_editors.Recorder`).
"""

from __future__ import annotations

import asyncio
import json

import pytest
from acp import RequestError, audio_block, image_block, text_block
from acp.helpers import embedded_text_resource, resource_block

from acp_editors import PATIENCE, Editor, capabilities, editing, in_order
from in_memory import runtime_of
from loop_models import Model, asks, says
from toolcrib import Descriptor, Executors, Outcome, Result
from toolcrib.core.model import Content
from toolcrib.executors.client import ClientExecutor
from toolcrib.executors.mock import MockExecutor
from toolcrib.provider import Finish, ReasoningDelta, TextDelta, Tokens, ToolPolicy
from toolcrib.testing import FunctionExecutor

TOOLS = """
name: get_order
title: Get an order
annotations: {read_only: true, open_world: false}
input_schema: {type: object, properties: {id: {type: string}}}
mock: {result: {status: paid}}
---
name: refund_order
input_schema: {type: object, properties: {id: {type: string}}}
requires_confirmation: true
mock: {result: refunded}
---
name: failing
input_schema: {type: object}
mock: {error: {code: broken, message: it is broken}}
"""


class Held:
    """A tool that waits for the test, and tells whether it was cancelled."""

    def __init__(self):
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self, _call):
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def tools(held=None, text=TOOLS):
    """A runtime with mocks, and one tool that waits."""
    runtime = runtime_of(text, executors=Executors({"mock": MockExecutor}), clock=None)
    if held is not None:
        runtime.add(FunctionExecutor(held), mode="held")
        runtime.add(Descriptor("hold", mode="held", bindings={"held": {}}))
    return runtime


async def test_a_turn_reports_text_reasoning_and_calls_in_order():
    model = Model(
        [ReasoningDelta("let me see"), *asks(("get_order", {"id": "1"}), text="I look it up. ")],
        says("It is paid.", Finish("stop", Tokens(10, 5))),
    )
    async with editing(tools(), model) as editor:
        session = await editor.open()
        ended = await editor.say(session, "Where is my order?")
    assert ended.stop_reason == "end_turn"
    assert (ended.usage.input_tokens, ended.usage.output_tokens, ended.usage.total_tokens) == (10, 5, 15)
    kinds = [update["sessionUpdate"] for update in editor.updates]
    assert kinds == [
        "agent_thought_chunk",
        "agent_message_chunk",
        "tool_call",
        "tool_call_update",
        "tool_call_update",
        "tool_call_update",
        "agent_message_chunk",
    ]
    assert editor.text() == "I look it up. It is paid."
    assert [status for _id, status in editor.calls()] == ["pending", "in_progress", "completed"]
    started = next(each for each in editor.updates if each["sessionUpdate"] == "tool_call")
    assert (started["title"], started["kind"]) == ("Get an order", "read")
    ended_call = editor.updates[-2]
    assert ended_call["rawOutput"] == {"status": "paid"}
    assert json.loads(ended_call["content"][0]["content"]["text"]) == {"status": "paid"}
    assert editor.said == ["serving 3 tools (3 mock) to an editor over ACP"]


@pytest.mark.parametrize(
    ("answer", "statuses", "outcome"),
    [
        ("once", ["pending", "question", "in_progress", "completed"], "ok"),
        ("session", ["pending", "question", "in_progress", "completed"], "ok"),
        ("reject", ["pending", "question", "failed"], "denied"),
        ("reject_session", ["pending", "question", "failed"], "denied"),
        ("who_knows", ["pending", "question", "failed"], "denied"),
    ],
)
async def test_a_question_follows_its_call_and_its_answer_decides(answer, statuses, outcome):
    model = Model(asks("refund_order"), says("Done."))
    editor = Editor()
    editor.answer = answer
    async with editing(tools(), model, editor=editor):
        session = await editor.open()
        ended = await editor.say(session, "Refund it")
    # A rejected call ends the call and not the turn: the model hears of it.
    assert ended.stop_reason == "end_turn"
    assert [status for _id, status in editor.calls()] == statuses
    assert model.requests[1].messages[-1].results[0].outcome == outcome
    (question,) = editor.questions
    assert [(option.option_id, option.kind) for option in question["options"]] == [
        ("once", "allow_once"),
        ("session", "allow_always"),
        ("always", "allow_always"),
        ("reject", "reject_once"),
        ("reject_session", "reject_always"),
    ]


@pytest.mark.parametrize(
    ("answer", "questions"), [("once", 2), ("session", 1), ("reject", 2), ("reject_session", 1)]
)
async def test_a_decision_holds_as_long_as_it_says(answer, questions):
    model = Model(asks("refund_order"), says("."), asks(("refund_order", {"id": "2"})), says("."))
    editor = Editor()
    editor.answer = answer
    async with editing(tools(), model, editor=editor):
        session = await editor.open()
        await editor.say(session, "one")
        await editor.say(session, "two")
        assert len(editor.questions) == questions
        # Another session of the editor decides anew.
        other = await editor.open()
        model._answers = [asks("refund_order"), says(".")]
        await editor.say(other, "three")
        assert len(editor.questions) == questions + 1


async def test_a_cancelled_question_cancels_the_turn_and_ends_its_calls():
    model = Model(asks("refund_order", "get_order"), says("never"), says("still here"))
    editor = Editor()
    editor.answer = "cancelled"
    async with editing(tools(), model, editor=editor):
        session = await editor.open()
        ended = await editor.say(session, "Refund it")
        assert ended.stop_reason == "cancelled"
        assert {statuses[-1] for statuses in in_order(editor.calls()).values()} == {"completed", "failed"}
        model._answers = [says("still here")]
        again = await editor.say(session, "And now?")
    assert again.stop_reason == "end_turn"
    results = [part for message in model.requests[-1].messages for part in message.results]
    assert [part.outcome for part in results] == [Outcome.CANCELLED, Outcome.OK]


async def test_cancel_ends_running_calls_before_the_prompt_is_answered():
    held = Held()
    model = Model(asks("hold"))
    async with editing(tools(held), model) as editor:
        session = await editor.open()
        prompt = asyncio.create_task(editor.say(session, "Hold"))
        await asyncio.wait_for(held.started.wait(), PATIENCE)
        await editor.until(lambda each: each.get("status") == "in_progress")
        await editor.agent.cancel(session_id=session)
        ended = await prompt
        assert ended.stop_reason == "cancelled"
        await asyncio.wait_for(held.cancelled.wait(), PATIENCE)
        assert [status for _id, status in editor.calls()] == ["pending", "in_progress", "failed"]
        assert editor.updates[-1]["rawOutput"]["outcome"] == "cancelled"


async def test_cancel_while_the_user_is_asked():
    class Slow(Editor):
        async def decide(self):
            await asyncio.Event().wait()

    editor = Slow()
    async with editing(tools(), Model(asks("refund_order")), editor=editor):
        session = await editor.open()
        prompt = asyncio.create_task(editor.say(session, "Refund it"))
        await editor.until(lambda each: each["sessionUpdate"] == "question")
        await editor.agent.cancel(session_id=session)
        assert (await prompt).stop_reason == "cancelled"
    assert [status for _id, status in editor.calls()] == ["pending", "question", "failed"]


async def test_a_disconnected_editor_ends_running_calls():
    held = Held()
    async with editing(tools(held), Model(asks("hold"))) as editor:
        session = await editor.open()
        prompt = asyncio.create_task(editor.say(session, "Hold"))
        await asyncio.wait_for(held.started.wait(), PATIENCE)
    assert held.cancelled.is_set()
    with pytest.raises(ConnectionError):
        await prompt


async def test_a_tool_that_fails_or_raises_ends_failed():
    async def broken(_call):
        raise RuntimeError("a bug")

    async with editing(tools(broken), Model(asks("failing", "hold"), says("oh"))) as editor:
        session = await editor.open()
        assert (await editor.say(session, "Try")).stop_reason == "end_turn"
    ended = [each for each in editor.updates if each.get("status") == "failed"]
    assert sorted(each["rawOutput"]["outcome"] for each in ended) == ["internal", "tool_error"]


async def test_two_prompts_at_once_are_refused():
    held = Held()
    async with editing(tools(held), Model(asks("hold"))) as editor:
        session = await editor.open()
        prompt = asyncio.create_task(editor.say(session, "Hold"))
        await asyncio.wait_for(held.started.wait(), PATIENCE)
        with pytest.raises(RequestError, match="is answering another prompt; wait for it or send") as caught:
            await editor.say(session, "Me too")
        assert caught.value.code == -32600
        await editor.agent.cancel(session_id=session)
        assert (await prompt).stop_reason == "cancelled"


async def test_unknown_sessions_methods_and_modes_get_their_error():
    async with editing(tools(), Model()) as editor:
        for call in (
            editor.say("nobody", "hello"),
            editor.agent.set_session_mode(session_id="nobody", mode_id="ask"),
            editor.agent.close_session(session_id="nobody"),
        ):
            with pytest.raises(RequestError, match="unknown session `nobody`") as caught:
                await call
            assert caught.value.code == -32002
        with pytest.raises(RequestError, match="Method not found: `_toolcrib/nothing`") as caught:
            await editor.agent.ext_method("toolcrib/nothing", {})
        assert caught.value.code == -32601
        with pytest.raises(RequestError, match="Method not found: `session/fork`"):
            await editor.agent.fork_session(session_id="nobody", cwd="/")
        session = await editor.open()
        with pytest.raises(RequestError, match=r"unknown mode `asks`; did you mean `ask`\?") as caught:
            await editor.agent.set_session_mode(session_id=session, mode_id="asks")
        assert caught.value.code == -32602
        with pytest.raises(RequestError, match="`cwd` must be an absolute path, got `here`"):
            await editor.open("here")
        # Notifications have no answer; an unknown session must not end the connection.
        await editor.agent.cancel(session_id="nobody")
        assert (await editor.say(session, "hello")).stop_reason == "end_turn"


async def test_a_closed_session_is_unknown():
    async with editing(tools(), Model()) as editor:
        session = await editor.open()
        await editor.agent.close_session(session_id=session)
        with pytest.raises(RequestError, match="unknown session"):
            await editor.say(session, "hello")


@pytest.mark.parametrize(
    ("mode", "statuses"),
    [
        ("default", {"get_order": "completed", "refund_order": "asked"}),
        ("ask", {"get_order": "asked", "refund_order": "asked"}),
        ("read_only", {"get_order": "completed", "refund_order": "failed"}),
    ],
)
async def test_the_mode_decides_what_is_asked_and_allowed(mode, statuses):
    model = Model(asks("get_order", "refund_order"), says("."))
    async with editing(tools(), model) as editor:
        opened = await editor.agent.new_session(cwd="/", mcp_servers=[])
        assert opened.modes.current_mode_id == "default"
        assert [each.id for each in opened.modes.available_modes] == ["default", "ask", "read_only"]
        await editor.agent.set_session_mode(session_id=opened.session_id, mode_id=mode)
        await editor.say(opened.session_id, "Both")
    asked = {question["call"]["toolCallId"] for question in editor.questions}
    titles = {"get_order": "Get an order", "refund_order": "refund_order"}
    for name, expected in statuses.items():
        # While an answer streams in, the name of the tool may come before its title is known.
        (id_,) = {each["toolCallId"] for each in editor.updates if each.get("title") == titles[name]}
        assert ("asked" if id_ in asked else in_order(editor.calls())[id_][-1]) == expected


async def test_prompts_have_text_images_files_and_links():
    model = Model(says("seen"))
    async with editing(tools(), model) as editor:
        session = await editor.open()
        await editor.say(
            session,
            "Look: ",
            image_block("iVBORw0KGgo=", "image/png"),
            resource_block(embedded_text_resource("file:///a.txt", "first line")),
            {"type": "resource_link", "name": "b.txt", "uri": "file:///b.txt"},
            audio_block("AAAA", "audio/wav"),
        )
        with pytest.raises(RequestError, match="the prompt is empty"):
            await editor.say(session, "  ")
    (message,) = model.requests[0].messages
    assert [part.text if not isinstance(part, Content) else part.mime_type for part in message.parts] == [
        "Look: ",
        "image/png",
        "Contents of file:///a.txt:\nfirst line",
        "[b.txt](file:///b.txt)",
        "audio/wav",
    ]


async def test_messages_of_64_mib_survive():
    model = Model(lambda request: says(request.messages[-1].text[-3:]), says("again"))
    async with editing(tools(), model) as editor:
        session = await editor.open()
        await editor.say(session, "x" * (64 << 20) + "end")
        assert editor.text() == "end"
        await editor.say(session, "and then")
    assert editor.text() == "endagain"


async def test_lines_that_are_no_messages_are_answered_and_survived():
    async with editing(tools(), Model()) as editor:
        session = await editor.open()
        for line in (b"no JSON", b"[1, 2]", b'{"jsonrpc": "2.0", "id": 7, "id": 8}'):
            editor.writer.write(line + b"\n")
        editor.writer.write(
            b'{"jsonrpc": "2.0", "id": "late", "result": {"outcome": {"outcome": "cancelled"}}}\n'
        )
        await editor.say(session, "hello")
    codes = [message["error"]["code"] for message in editor.sent if "error" in message]
    assert codes == [-32700, -32600, -32600]


async def test_the_trace_of_a_prompt_reaches_its_calls_and_its_updates():
    seen = []

    async def look(call):
        seen.append(call.context.trace)
        return Result.success("looked")

    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with editing(tools(look), Model(asks("hold", "refund_order"), says("."))) as editor:
        session = await editor.open()
        await editor.say(session, "Hold", traceparent=parent, other="ignored")
    assert seen == [{"traceparent": parent}]
    updates = [message["params"]["_meta"] for message in editor.sent if "method" in message]
    assert updates == [{"traceparent": parent}] * len(updates)


PLANNED = """
name: update_plan
input_schema:
  type: object
  properties:
    entries:
      type: array
      x-plan: true
      items:
        type: object
        required: [content]
        properties:
          content: {type: string}
          status: {enum: [pending, in_progress, completed]}
          priority: {enum: [high, low]}
mock: {result: shown}
"""


async def test_an_argument_that_is_a_plan_is_shown_once_its_call_has_completed():
    entries = [{"content": "Look", "status": "completed", "priority": "high"}, {"content": "Mend"}]
    invalid = [{"content": "Look", "status": "soon"}]
    model = Model(
        asks(("update_plan", {"entries": entries})),
        asks(("update_plan", {"entries": invalid})),
        asks(("update_plan", {})),
        says("done"),
    )
    async with editing(tools(text=PLANNED), model) as editor:
        await editor.say(await editor.open(), "go")
    plans = [at for at, update in enumerate(editor.updates) if update["sessionUpdate"] == "plan"]
    assert len(plans) == 1
    assert editor.updates[plans[0]]["entries"] == [
        {"content": "Look", "status": "completed", "priority": "high"},
        {"content": "Mend", "status": "pending", "priority": "medium"},
    ]
    before = editor.updates[plans[0] - 1]
    assert (before["sessionUpdate"], before["status"]) == ("tool_call_update", "completed")


async def test_a_failing_model_is_an_error_and_the_session_goes_on():
    from toolcrib.provider import ProviderError  # noqa: PLC0415

    def refuse(_request):
        raise ProviderError("the service is down", code="http_503", retryable=True)

    async with editing(tools(), Model(refuse, says("back"))) as editor:
        session = await editor.open()
        with pytest.raises(RequestError, match="the service is down") as caught:
            await editor.say(session, "hello")
        assert (caught.value.code, caught.value.data["code"]) == (-32603, "http_503")
        assert (await editor.say(session, "hello")).stop_reason == "end_turn"


@pytest.mark.parametrize(
    ("policy", "model", "reason"),
    [
        (ToolPolicy(max_rounds=1), Model(asks("get_order")), "max_turn_requests"),
        (ToolPolicy(), Model([TextDelta("half a"), Finish("length")]), "max_tokens"),
        (ToolPolicy(), Model([TextDelta("no"), Finish("refused")]), "refusal"),
    ],
)
async def test_the_stop_reason_says_why_the_turn_ended(policy, model, reason):
    async with editing(tools(), model, policy=policy) as editor:
        ended = await editor.say(await editor.open(), "hello")
    assert ended.stop_reason == reason


CLIENT_TOOLS = """
name: read
mock: {result: built in}
---
name: editor_read
input_schema: {type: object}
client: {requires: [client.fs.read_text_file], replaces: read, pre_approved: true}
---
name: editor_write
input_schema: {type: object}
client: {requires: [client.fs.write_text_file]}
---
name: editor_run
input_schema: {type: object}
client: {requires: [client.terminal], replaces: Bash}
"""


@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("terminal", [False, True])
async def test_the_capabilities_of_the_editor_decide_which_tools_exist(read, write, terminal):
    runtime = runtime_of(CLIENT_TOOLS, executors=Executors({"mock": MockExecutor, "client": ClientExecutor}))
    announced = capabilities(read=read, write=write, terminal=terminal)
    model = Model(says("hello"))
    async with editing(runtime, model, announced=announced) as editor:
        opened = await editor.agent.new_session(cwd="/", mcp_servers=[])
        await editor.say(opened.session_id, "hello")
    expected = {"editor_read"} if read else {"read"}
    expected |= {"editor_write"} if write else set()
    expected |= {"editor_run"} if terminal else set()
    assert {tool.name for tool in model.requests[0].tools} == expected
    told = opened.field_meta["toolcrib"]
    missing = {name: why["code"] for name, why in told.pop("missing").items()}
    without = dict.fromkeys({"editor_read", "editor_write", "editor_run"} - expected, "capability_missing")
    assert missing == without | ({"read": "replaced"} if read else {})
    assert told == {
        "tools": sorted(expected),
        "replaced": ({"read": "editor_read"} if read else {}) | ({"Bash": "editor_run"} if terminal else {}),
        "preApproved": ["editor_read"] if read else [],
    }


async def test_a_tool_of_the_editor_is_asked_about_unless_it_is_pre_approved():
    async def client(call):
        return call.tool

    runtime = runtime_of(CLIENT_TOOLS, executors=Executors({"mock": MockExecutor, "client": ClientExecutor}))
    model = Model(asks("editor_read", "editor_write"), says("."))
    announced = capabilities(read=True, write=True)
    async with editing(runtime, model, announced=announced, client=client) as editor:
        await editor.say(await editor.open(), "Both")
    (question,) = editor.questions
    assert "editor_write" in question["call"]["content"][0]["content"]["text"]
    assert [statuses[-1] for statuses in in_order(editor.calls()).values()] == ["completed", "completed"]


async def test_the_use_of_the_context_is_reported_if_its_size_is_known():
    model = Model(
        asks("get_order", finish=Finish("tool_calls", Tokens(10, 5))),
        says("ok", Finish("stop", Tokens(30, 7))),
    )
    async with editing(tools(), model, context_size=1000) as editor:
        await editor.say(await editor.open(), "hello")
    assert editor.updates[-1] == {
        "session": editor.updates[0]["session"],
        "sessionUpdate": "usage_update",
        "used": 37,
        "size": 1000,
    }


async def test_servers_of_the_editor_are_not_dropped_silently():
    async with editing(tools(), Model()) as editor:
        server = {"name": "files", "command": "files-server", "args": [], "env": []}
        await editor.agent.new_session(cwd="/", mcp_servers=[server])
        assert "the MCP servers of the editor are not used: `files`" in editor.said[-1]


def test_text_blocks_are_those_of_the_sdk():
    from toolcrib.serve.acp.updates import text_block as ours  # noqa: PLC0415

    assert text_block("hello").model_dump(mode="json", exclude_none=True) == ours("hello")
