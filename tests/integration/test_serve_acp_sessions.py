"""Sessions of the ACP agent that outlive it: listed, loaded, resumed; also after a crash."""

from __future__ import annotations

import asyncio
import os
import stat

import pytest
from acp import RequestError

from acp_editors import PATIENCE, editing
from in_memory import runtime_of
from loop_models import TOOLS, Model, asks, loop, says
from toolcrib import Descriptor, Executors
from toolcrib.core.errors import ConfigurationError
from toolcrib.executors.mock import MockExecutor
from toolcrib.provider import FolderConversations
from toolcrib.testing import FunctionExecutor


def tools():
    return runtime_of(TOOLS, executors=Executors({"mock": MockExecutor}), clock=None)


async def test_a_session_is_listed_loaded_and_continued(tmp_path):
    store = FolderConversations(tmp_path / "kept")
    model = Model(asks(("get_order", {"id": "1"}), text="I look. "), says("It is paid."))
    async with editing(tools(), model, store=store) as editor:
        session = await editor.open("/shop")
        await editor.say(session, "Where is my order?\nPlease.")
        before = editor.updates
    later = Model(says("Yes."))
    async with editing(tools(), later, store=FolderConversations(tmp_path / "kept")) as editor:
        listed = await editor.agent.list_sessions()
        assert [(each.session_id, each.title, each.cwd) for each in listed.sessions] == [
            (session, "Where is my order? Please.", "/shop")
        ]
        assert (await editor.agent.list_sessions(cwd="/elsewhere")).sessions == []
        loaded = await editor.agent.load_session(session_id=session, cwd="/shop", mcp_servers=[])
        assert loaded.modes.current_mode_id == "default"
        # The editor is shown what it was shown before, with what its user said.
        first, *rest = editor.updates
        assert (first["sessionUpdate"], first["content"]["text"]) == (
            "user_message_chunk",
            "Where is my order?\nPlease.",
        )
        assert rest == before
        assert (await editor.say(session, "Really?")).stop_reason == "end_turn"
    roles = [message.role for message in later.requests[0].messages]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


async def test_a_resumed_session_is_not_shown_again(tmp_path):
    store = FolderConversations(tmp_path)
    async with editing(tools(), Model(says("one")), store=store) as editor:
        session = await editor.open()
        await editor.say(session, "first")
    model = Model(says("two"))
    async with editing(tools(), model, store=store) as editor:
        await editor.agent.resume_session(session_id=session, cwd="/")
        assert editor.updates == []
        await editor.say(session, "second")
    assert [message.text for message in model.requests[0].messages] == ["first", "one", "second"]


async def test_a_session_can_be_loaded_while_it_is_open(tmp_path):
    async with editing(
        tools(), Model(says("one"), says("two")), store=FolderConversations(tmp_path)
    ) as editor:
        session = await editor.open()
        await editor.say(session, "first")
        await editor.agent.load_session(session_id=session, cwd="/", mcp_servers=[])
        await editor.say(session, "second")
    assert editor.text() == "oneonetwo"


async def test_after_a_crash_open_calls_are_failed_and_the_model_is_told(tmp_path):
    held = asyncio.Event()

    async def hold(_call):
        held.set()
        await asyncio.Event().wait()

    runtime = tools()
    runtime.add(FunctionExecutor(hold), mode="held")
    runtime.add(Descriptor("hold", mode="held", bindings={"held": {}}))
    crashed = tmp_path / "crashed"
    async with editing(runtime, Model(asks("hold")), store=FolderConversations(tmp_path / "kept")) as editor:
        session = await editor.open()
        prompt = asyncio.create_task(editor.say(session, "Hold on"))
        await asyncio.wait_for(held.wait(), PATIENCE)
        await editor.until(lambda each: each.get("status") == "in_progress")
        # What is on the disk now is what a crash leaves; and the beginning of a line.
        (crashed / session).mkdir(parents=True, mode=0o700)
        for file in (tmp_path / "kept" / session).iterdir():
            (crashed / session / file.name).write_bytes(file.read_bytes())
        with (crashed / session / "shown.jsonl").open("ab") as file:
            file.write(b'{"sessionUpdate": "agent_mess')
        await editor.agent.cancel(session_id=session)
        await prompt
    model = Model(says("I see."))
    store = FolderConversations(crashed)
    async with editing(tools(), model, store=store) as editor:
        await editor.agent.load_session(session_id=session, cwd="/", mcp_servers=[])
        assert [status for _id, status in editor.calls()] == ["pending", "in_progress", "failed"]
        assert editor.updates[-1]["rawOutput"]["outcome"] == "unknown_outcome"
        await editor.say(session, "What happened?")
    *_before, call, result, question = model.requests[0].messages
    assert [each.name for each in call.calls] == ["hold"]
    assert [each.outcome for each in result.results] == ["unknown_outcome"]
    assert question.text == "What happened?"
    assert model.requests[0].messages[0].text == "Hold on"
    # Loading once more changes nothing.
    async with editing(tools(), Model(), store=store) as editor:
        await editor.agent.load_session(session_id=session, cwd="/", mcp_servers=[])
        assert [status for _id, status in editor.calls()] == ["pending", "in_progress", "failed"]
    assert [message.role for message in store.load(session).messages] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]


async def test_unknown_sessions_are_refused(tmp_path):
    async with editing(tools(), Model(), store=FolderConversations(tmp_path)) as editor:
        for id_ in ("nobody", "../nobody"):
            with pytest.raises(RequestError, match="nobody") as caught:
                await editor.agent.load_session(session_id=id_, cwd="/", mcp_servers=[])
            assert caught.value.code == -32002


async def test_without_a_store_sessions_are_neither_announced_nor_loaded():
    async with editing(tools(), Model()) as editor:
        with pytest.raises(RequestError, match="Method not found: `session/load`"):
            await editor.agent.load_session(session_id="x", cwd="/", mcp_servers=[])
        (answer,) = [message["result"] for message in editor.sent if "result" in message]
        assert answer["agentCapabilities"]["loadSession"] is False
        assert answer["agentCapabilities"]["sessionCapabilities"] == {"close": {}}


async def test_a_conversation_is_resumed_by_its_id_in_python(tmp_path):
    first = await loop(Model(says("one")), store=FolderConversations(tmp_path)).run("first")
    model = Model(says("two"))
    again = loop(model, store=FolderConversations(tmp_path))
    conversation = await again.resume(first.id)
    assert conversation.messages == first.messages
    second = await again.run(conversation.saying("second"))
    assert second.text == "two"
    assert FolderConversations(tmp_path).load(first.id).messages == second.messages
    with pytest.raises(ConfigurationError) as caught:
        await again.resume("unknown")
    assert caught.value.code == "unknown_conversation"
    with pytest.raises(ConfigurationError) as caught:
        await loop(Model()).resume(first.id)
    assert caught.value.code == "no_store"


@pytest.mark.skipif(os.name != "posix", reason="Windows has no permission bits")
async def test_conversations_are_private(tmp_path):
    folder = tmp_path / "kept"
    first = await loop(Model(says("one")), store=FolderConversations(folder)).run("first")
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE((folder / first.id).stat().st_mode) == 0o700
    folder.chmod(0o777)
    with pytest.raises(ConfigurationError, match="others can write to it"):
        FolderConversations(folder).load(first.id)


async def test_a_session_is_deleted(tmp_path):
    store = FolderConversations(tmp_path)

    async with editing(tools(), Model(says("one")), store=store) as editor:

        async def delete(session):
            # The client of the SDK has no method for it.
            return await editor.agent._conn.send_request("session/delete", {"sessionId": session})

        kept, session, silent = await editor.open(), await editor.open(), await editor.open()
        await editor.say(session, "first")
        assert await delete(session) == {}
        # It is closed, forgotten, and unknown from now on.
        assert (await editor.agent.list_sessions()).sessions == []
        for unknown in (session, "nobody"):
            with pytest.raises(RequestError) as refused:
                await delete(unknown)
            assert refused.value.code == -32002
        with pytest.raises(RequestError):
            await editor.say(session, "again")
        assert await delete(silent) == {}
        assert [*tmp_path.iterdir()] == []
        assert kept
