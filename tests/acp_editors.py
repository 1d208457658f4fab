"""Editors that tests of the ACP agent make up: the official SDK's client, in this process, at the other end of pipes.

async with editing(runtime, Model(...)) as editor:
    session = await editor.open()
    ended = await editor.say(session, "hello")
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from acp import PROTOCOL_VERSION, connect_to_agent, text_block
from acp.client.connection import ClientSideConnection
from acp.connection import StreamEvent
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    RequestPermissionResponse,
)
from jsonschema_rs import Draft202012Validator

from npm_packages import installed
from toolcrib import Runtime
from toolcrib.serve.acp import EditorAgent
from toolcrib.serve.acp.agent import LONGEST_LINE, serve_pipes
from toolcrib.serve.http_common.lifecycle import Shutdown
from toolcrib.serve.http_common.stdio_pipes import StdioPipes

PATIENCE = 60.0

TYPESCRIPT_SDK = ("@agentclientprotocol/sdk", "2.4.0", "zod")
"""The official SDK for TypeScript, which has the schema of the protocol."""

Update = dict[str, Any]


class Editor:
    """What the user of an editor does, and what the agent has sent.

    Attributes:
        agent: The SDK's connection to the agent.
        sent: Every message of the agent, as it was on the wire.
        updates: The updates of all sessions, in order.
        questions: The requests for permission, in order.
        answer: ID of the option that the user selects; `cancelled` for none.
        faults: What does not match the official schema.
        said: What the agent has said to people, on stderr.
    """

    agent: ClientSideConnection

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.updates: list[Update] = []
        self.questions: list[dict[str, Any]] = []
        self.answer = "once"
        self.faults: list[str] = []
        self.said: list[str] = []
        self._news = asyncio.Condition()

    # What the SDK calls.

    def on_connect(self, _connection: Any) -> None:
        """Nothing: the connection is known."""

    async def session_update(self, session_id: str, update: Any, **_meta: Any) -> None:
        told = update.model_dump(mode="json", by_alias=True, exclude_none=True)
        async with self._news:
            self.updates.append({"session": session_id, **told})
            self._news.notify_all()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: list[Any], **_meta: Any
    ) -> RequestPermissionResponse:
        call = tool_call.model_dump(mode="json", by_alias=True, exclude_none=True)
        async with self._news:
            self.questions.append({"session": session_id, "call": call, "options": options})
            # The place of the question among the updates.
            self.updates.append({"session": session_id, "sessionUpdate": "question", **call})
            self._news.notify_all()
        return await self.decide()

    async def decide(self) -> RequestPermissionResponse:
        """The decision of the user."""
        if self.answer == "cancelled":
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=self.answer))

    # What tests do.

    async def open(self, cwd: str = "/", **keys: Any) -> str:
        """Open a session, and return its ID."""
        opened = await self.agent.new_session(cwd=cwd, mcp_servers=[], **keys)
        return opened.session_id

    async def say(self, session: str, *blocks: Any, **meta: Any) -> Any:
        """Send a prompt, and return its answer."""
        prompt = [text_block(block) if isinstance(block, str) else block for block in blocks]
        return await asyncio.wait_for(self.agent.prompt(session_id=session, prompt=prompt, **meta), PATIENCE)

    async def until(self, there: Callable[[Update], bool]) -> Update:
        """Wait for an update."""
        async with asyncio.timeout(PATIENCE), self._news:
            while not (found := [update for update in self.updates if there(update)]):
                await self._news.wait()
            return found[0]

    def calls(self) -> list[tuple[str, str]]:
        """ID and status of each update of a call, in order; `question` where the user was asked."""
        return [
            (each["toolCallId"], "question" if each["sessionUpdate"] == "question" else each["status"])
            for each in self.updates
            if each["sessionUpdate"] in {"tool_call", "tool_call_update", "question"}
            and ("status" in each or each["sessionUpdate"] == "question")
        ]

    def text(self, kind: str = "agent_message_chunk") -> str:
        """All text of one kind."""
        return "".join(each["content"]["text"] for each in self.updates if each["sessionUpdate"] == kind)


def capabilities(*, read: bool = False, write: bool = False, terminal: bool = False) -> ClientCapabilities:
    """What an editor announces."""
    files = FileSystemCapabilities(read_text_file=read, write_text_file=write)
    return ClientCapabilities(fs=files, terminal=terminal)


@asynccontextmanager
async def connected(
    runtime: Runtime, options: EditorAgent, editor: Editor
) -> AsyncIterator[tuple[ClientSideConnection, asyncio.StreamWriter]]:
    """Serve an agent in this process, and connect the SDK's client to it.

    Yields:
        The SDK's connection, and the pipe to the agent's stdin.
    """
    to_agent, from_editor = os.pipe()
    to_editor, from_agent = os.pipe()
    loop = asyncio.get_running_loop()
    pipes = StdioPipes(to_agent, from_agent, limit=LONGEST_LINE)
    reader = asyncio.StreamReader(limit=1 << 20)
    read_end, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(to_editor, "rb", 0)
    )
    write_end, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(from_editor, "wb", 0)
    )
    writer = asyncio.StreamWriter(write_end, protocol, None, loop)
    serving = asyncio.create_task(serve_pipes(runtime, options, editor.said.append, pipes, Shutdown()))
    connection = connect_to_agent(
        editor, writer, reader, use_unstable_protocol=True, observers=[Recorder(editor)]
    )
    try:
        yield connection, writer
    finally:
        await connection.close()
        write_end.close()
        assert editor.faults == []
        async with asyncio.timeout(PATIENCE):
            await serving
        read_end.close()
        os.close(from_agent)
        os.close(to_agent)


@cache
def _schema() -> dict[str, Any]:
    with installed(*TYPESCRIPT_SDK) as package:
        read: dict[str, Any] = json.loads((package / "schema" / "v1" / "schema.json").read_text())
    return read


@cache
def _validator(method: str, kind: str) -> Draft202012Validator:
    definitions = _schema()["$defs"]
    named = [
        name for name, said in definitions.items() if said.get("x-method") == method and name.endswith(kind)
    ]
    assert len(named) == 1, (method, kind, named)
    return Draft202012Validator({"$defs": definitions, "$ref": f"#/$defs/{named[0]}"})


class Recorder:
    """Keeps what the agent sends, after a check against the official schema."""

    def __init__(self, editor: Editor) -> None:
        self._editor = editor
        self._asked: dict[Any, str] = {}

    def __call__(self, event: StreamEvent) -> None:
        message = event.message
        if event.direction.value == "outgoing":
            if "method" in message and "id" in message:
                self._asked[message["id"]] = message["method"]
            return
        self._editor.sent.append(message)
        try:
            check_message(message, self._asked)
        except Exception as error:  # noqa: BLE001 -- the SDK would only log it
            self._editor.faults.append(f"{error}: {message}")


def check_message(message: Mapping[str, Any], asked: Mapping[Any, str]) -> None:
    """Check a message of the agent.

    Args:
        message: The message.
        asked: The methods of the requests by ID.
    """
    assert message["jsonrpc"] == "2.0"
    if "error" in message:
        Draft202012Validator({"$defs": _schema()["$defs"], "$ref": "#/$defs/Error"}).validate(
            message["error"]
        )
    elif "result" in message:
        _validator(asked[message["id"]], "Response").validate(message["result"])
    else:
        _validator(message["method"], "Request" if "id" in message else "Notification").validate(
            message["params"]
        )


@asynccontextmanager
async def editing(
    runtime: Runtime,
    model: Any,
    *,
    editor: Editor | None = None,
    announced: ClientCapabilities | None = None,
    **options: Any,
) -> AsyncIterator[Editor]:
    """An editor that has initialized its agent."""
    editor = Editor() if editor is None else editor
    async with runtime:
        told = EditorAgent(lambda: model, **options)
        async with connected(runtime, told, editor) as (connection, writer):
            editor.agent, editor.writer = connection, writer
            await connection.initialize(
                protocol_version=PROTOCOL_VERSION,
                client_capabilities=capabilities() if announced is None else announced,
            )
            yield editor


def in_order(calls: list[tuple[str, str]]) -> Mapping[str, list[str]]:
    """The statuses of each call, in order."""
    found: dict[str, list[str]] = {}
    for id_, status in calls:
        found.setdefault(id_, []).append(status)
    return found
