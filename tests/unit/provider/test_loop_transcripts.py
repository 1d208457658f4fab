"""What is written down: after every round, and however a turn ends."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest

from in_memory import runtime_of
from loop_models import TOOLS, Model, asks, loop, says, watched
from toolcrib import ClosedRuntime, ConfigurationError
from toolcrib.provider import (
    CallDelta,
    JSONLSink,
    Message,
    ProviderError,
    SinkFailed,
    Stop,
    Text,
    TextDelta,
    ToolCall,
    ToolPolicy,
    load_transcript,
    user,
)
from toolcrib.security.encryption import create_key


class Notes:
    """Remembers what it is given, and how much each time."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.portions: list[list[str]] = []

    async def append(self, messages) -> None:
        self.messages += messages
        self.portions.append([message.role for message in messages])


def results(messages) -> list[tuple[str, str]]:
    return [(result.id, result.outcome.value) for message in messages for result in message.results]


async def test_each_message_is_written_once_after_its_round():
    notes = Notes()
    middleware = loop(
        Model(asks("slow", "get_order"), asks("slow"), says("a")), sink=notes, system="Be brief."
    )
    conversation = await middleware.run("1")
    assert notes.portions == [
        ["system", "user", "assistant", "tool", "tool"],
        ["assistant", "tool"],
        ["assistant"],
    ]
    conversation = await middleware.run(conversation.saying("2"))
    assert notes.portions[3:] == [["user", "assistant"]]
    assert tuple(notes.messages) == conversation.messages


async def test_a_turn_that_waits_is_written_and_so_is_its_end():
    notes, policy = Notes(), ToolPolicy(ask=("refund_*",))
    suspended = await loop(Model(asks(("refund_order", {"amount": 1}), "slow")), policy, sink=notes).run("1")
    assert notes.portions == [["user", "assistant", "tool"]]
    await loop(Model(says("a")), policy, sink=notes).run(suspended, {"call_1": {"approve": True}})
    assert notes.portions[1:] == [["tool"], ["assistant"]]
    assert results(notes.messages) == [("call_2", "ok"), ("call_1", "ok")]


async def test_a_provider_that_fails_leaves_all_before_written():
    def fail(_request):
        raise ProviderError("gone")

    for error in (fail, Model):  # the latter is no answer, which is a bug of the provider's
        notes = Notes()
        conversation = await loop(Model(asks("slow"), error), sink=notes).run("1")
        assert conversation.stop is Stop.PROVIDER_FAILED
        assert notes.portions == [["user", "assistant", "tool"]]
    notes = Notes()
    await loop(Model(fail), sink=notes).run("1")
    assert notes.portions == [["user"]]


async def test_a_cancelled_turn_is_written_whole():
    notes = Notes()
    tools = runtime_of(TOOLS, clock=None)
    task = asyncio.create_task(
        loop(Model(asks("get_order", "slow", "slower")), tools=tools, sink=notes).run("1")
    )
    while not notes.portions and tools._engine.default_session.calls != 3:
        await asyncio.wait([task], timeout=0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert notes.portions == [["user", "assistant", "tool", "tool", "tool"]]
    assert results(notes.messages) == [("call_1", "ok"), ("call_2", "cancelled"), ("call_3", "cancelled")]
    told = notes.messages[-1].results[0].text
    assert told == "the call of `slower` was cancelled; it had started and may have had an effect"


async def test_whoever_stops_watching_cancels():
    notes = Notes()
    tools = runtime_of(TOOLS, clock=None)
    middleware = loop(Model(asks("slow", "get_order")), ToolPolicy(max_parallel=1), tools, sink=notes)
    told = []
    async with aclosing(middleware.stream("1", broken_off=lambda *last: told.append(last))) as items:
        async for item in items:
            if getattr(item, "status", "") == "running":
                break
    assert results(notes.messages) == [("call_1", "cancelled"), ("call_2", "cancelled")]
    ((events, conversation),) = told
    assert events[-1].type == "turn_ended"
    assert {(event.id, event.outcome) for event in events if event.outcome} == {
        ("call_1", "cancelled"),
        ("call_2", "cancelled"),
    }
    assert (conversation.stop, conversation.rounds, len(conversation.calls)) == (Stop.CANCELLED, 1, 2)
    assert [*conversation.messages] == notes.messages
    assert notes.messages[-1].results[0].text == "the call of `get_order` was cancelled"
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_waiting_for_the_model_may_be_cancelled():
    notes, asked = Notes(), asyncio.Event()

    class Silent:
        async def respond(self, request):
            yield TextDelta("half")
            asked.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(loop(Silent(), sink=notes).run("1"))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert notes.messages == [user("1"), Message("assistant", (Text("half"),))]


async def test_a_message_is_written_once_also_where_writing_is_cancelled():
    begun = asyncio.Event()

    class Slow(Notes):
        async def append(self, messages):
            begun.set()
            await asyncio.wait([asyncio.create_task(asyncio.Event().wait())], timeout=0.01)
            await super().append(messages)

    notes = Slow()
    task = asyncio.create_task(loop(Model(asks("get_order")), sink=notes).run("1"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert notes.portions == [["user", "assistant", "tool"]]


async def test_a_provider_that_cancels_itself_ends_the_turn():
    class Hasty:
        async def respond(self, request):
            yield CallDelta(0, "x", "slow")
            raise asyncio.CancelledError

    events, conversation = await watched(loop(Hasty()), "1")
    assert conversation.stop is Stop.CANCELLED
    assert conversation.messages == (user("1"),)
    assert [(event.type, event.status) for event in events[-2:]] == [
        ("call_updated", "failed"),
        ("turn_ended", ""),
    ]


async def test_a_turn_over_a_closed_runtime_is_written_and_raises():
    notes = Notes()
    tools = runtime_of(TOOLS)
    middleware = loop(Model(asks("slow", "get_order")), tools=tools, sink=notes)
    await tools.aclose()
    with pytest.raises(ClosedRuntime):
        await middleware.run("1")
    assert results(notes.messages) == [("call_1", "cancelled"), ("call_2", "cancelled")]


async def test_a_sink_that_fails_is_told():
    class Full:
        async def append(self, messages):
            raise OSError("no space")

    with pytest.raises(SinkFailed, match="cannot write the conversation: OSError: no space") as caught:
        await loop(Model(asks("slow")), sink=Full()).run("1")
    failed = caught.value
    assert isinstance(failed.__cause__, OSError)
    assert [message.role for message in failed.unwritten] == ["user", "assistant", "tool"]
    assert (failed.conversation.messages, failed.conversation.stop) == (failed.unwritten, None)
    again = await loop(Model(says("done"))).run(failed.conversation)
    assert (again.stop, again.text) == (Stop.ANSWERED, "done")


async def test_a_sink_that_fails_leaves_what_waits_waiting():
    class Full:
        async def append(self, messages):
            raise asyncio.CancelledError

    policy = ToolPolicy(ask=("refund_*",))
    with pytest.raises(SinkFailed) as caught:
        await loop(Model(asks(("refund_order", {"amount": 1}), "slow")), policy, sink=Full()).run("1")
    suspended = caught.value.conversation
    assert (suspended.stop, [each.id for each in suspended.pending]) == (Stop.PENDING, ["call_1"])
    ended = await loop(Model(), policy).run(suspended, {"call_1": {"approve": True}})
    assert results(ended.messages) == [("call_1", "ok"), ("call_2", "ok")]


async def test_a_sink_that_fails_hides_no_other_error(caplog):
    class Full:
        async def append(self, messages):
            raise OSError("no space")

    tools = runtime_of(TOOLS)
    middleware = loop(Model(asks("slow")), tools=tools, sink=Full())
    await tools.aclose()
    with pytest.raises(ClosedRuntime):
        await middleware.run("1")
    assert "OSError: no space" in caplog.text


async def test_a_file_has_a_line_for_each_message(tmp_path):
    file = tmp_path / "talk.jsonl"
    middleware = loop(Model(asks("get_order", text="é"), says("\u2028b")), sink=JSONLSink(file))
    conversation = await middleware.run("half of a character: \ud83d")
    assert load_transcript(file) == conversation.messages
    lines = file.read_text(encoding="utf-8").split("\n")
    assert [json.loads(line)["role"] for line in lines[:-1]] == ["user", "assistant", "tool", "assistant"]
    assert '"é"' in lines[1]
    again = await loop(Model(says("c"))).run([*load_transcript(file), user("more")])
    assert again.text == "c"
    file.write_text('{"role": "user", "content": "a"}\n\n{"role": ', encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"talk\.jsonl:3: "):
        load_transcript(file)


SECRETS = """
name: log_in
input_schema:
  type: object
  properties: {user: {type: string}, pin: {type: string, x-secret: true}}
output_schema: {type: object, properties: {token: {type: string, x-secret: true}, id: {type: integer}}}
mock: {result: {token: canary-token-4711, id: 7}}
---
name: note
input_schema: {type: object, properties: {text: {type: string}}}
mock: {result: "{{ args.text }}"}
"""


@pytest.fixture
def talk(tmp_path, monkeypatch):
    """A conversation with secrets in arguments, results and texts, written by a sink."""
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("TOOLCRIB_KEY", raising=False)

    async def run(file):
        model = Model(
            asks(("log_in", {"user": "ada", "pin": "canary-pin-0815"})),
            asks(("note", {"text": "the token is canary-token-4711"})),
            says("I wrote canary-token-4711 down."),
        )
        return await loop(model, tools=runtime_of(SECRETS), sink=JSONLSink(file)).run("Log in.")

    return run


async def test_messages_with_secrets_are_encrypted(tmp_path, talk, caplog):
    create_key()
    file = tmp_path / "talk.jsonl"
    conversation = await talk(file)
    written = file.read_text(encoding="utf-8")
    assert "canary" not in written
    lines = [json.loads(line) for line in written.splitlines()]
    assert ["sealed" in line for line in lines] == [False, True, True, True, True, True]
    assert lines[1]["parts"][0]["arguments"] == {"user": "ada", "pin": "***"}
    assert json.loads(lines[2]["parts"][0]["text"]) == {"token": "***", "id": 7}
    assert lines[5]["parts"][0]["text"] == "I wrote *** down."
    assert load_transcript(file) == conversation.messages
    assert not caplog.records
    # Another key cannot read it.
    (tmp_path / "state" / "encryption.key").unlink()
    with pytest.raises(ConfigurationError, match=r"talk\.jsonl:2: no encryption key") as error:
        load_transcript(file)
    assert error.value.code == "no_key"
    create_key()
    with pytest.raises(
        ConfigurationError, match=r"talk\.jsonl:2: a stored secret cannot be decrypted"
    ) as error:
        load_transcript(file)
    assert error.value.code == "cannot_decrypt"


async def test_without_a_key_secrets_stay_in_memory(tmp_path, talk, caplog):
    file = tmp_path / "talk.jsonl"
    conversation = await talk(file)
    assert "canary" not in file.read_text(encoding="utf-8")
    assert conversation.messages[2].results[0].text == '{"token":"canary-token-4711","id":7}'
    (record,) = caplog.records  # once, and not for each message
    assert "the secrets stay in the memory of this process: no encryption key" in record.message
    assert "run `toolcrib approvals key` to create one" in record.message
    caplog.clear()
    loaded = load_transcript(file)
    assert loaded[0] == conversation.messages[0]
    assert loaded[1].calls[0].arguments == {"user": "ada", "pin": "***"}
    assert "5 messages are without secrets" in caplog.text


async def test_a_sink_without_a_loop_finds_secrets_by_their_names(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    file, sink = tmp_path / "talk.jsonl", JSONLSink(tmp_path / "talk.jsonl")
    call = ToolCall("c1", "log_in", {"password": "canary-4711"}, '{"password": "canary-4711"}')
    create_key()
    messages = (Message("assistant", (call,)), user("It was canary-4711."))
    await sink.append(messages)
    assert "canary" not in file.read_text(encoding="utf-8")
    assert load_transcript(file) == messages
    file.write_text('{"role": "user", "parts": [], "sealed": 1}', encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"talk\.jsonl:1: `sealed` is not a text"):
        load_transcript(file)
