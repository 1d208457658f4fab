"""Agents of the official A2A SDK on loopback, for toolcrib to call."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from a2a.helpers import new_data_part, new_text_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCard, Task, TaskState, TaskStatus
from google.protobuf.json_format import MessageToDict, ParseDict
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

EXTENSION = "urn:toolcrib:a2a:tool-descriptors:v1"

INTEGERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
SUM = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}

DESCRIPTORS: dict[str, Any] = {
    "tool-add": {
        "name": "add",
        "inputSchema": INTEGERS,
        "outputSchema": SUM,
        "annotations": {"readOnlyHint": True},
    },
    "tool-note": {"name": "note", "inputSchema": {"type": "object"}},
}
SKILLS: list[dict[str, Any]] = [
    {"id": "tool-add", "name": "add", "description": "Add two integers", "tags": ["tool", "math"]},
    {"id": "tool-note", "name": "note", "description": "Do as the test says", "tags": ["tool"]},
    {"id": "tool-ask", "name": "ask", "description": "Takes a text", "tags": ["tool"]},
    {"id": "chat", "name": "chat", "description": "Not a tool", "tags": ["chat"]},
]


class Store(InMemoryTaskStore):
    """The tasks of an agent.

    Attributes:
        states: ID of a task -> its last state.
    """

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[str, str] = {}

    async def save(self, task: Task, context: Any) -> None:
        self.states[task.id] = TaskState.Name(task.status.state)
        await super().save(task, context)


Handler = Callable[["Turn"], Awaitable[None]]


@dataclass
class Turn:
    """One message to the agent, and the means to answer it."""

    context: RequestContext
    updater: TaskUpdater
    queue: EventQueue
    name: str
    params: Any

    async def result(self, value: Any, *, exact: Any = None, **options: Any) -> None:
        """Answer with a marked artifact."""
        parts = [new_data_part(value, media_type="application/json")]
        parts += [exact] if exact is not None else []
        metadata = {"_tool_result": True, "tool_name": self.name, "execution_time_ms": 1.5}
        await self.updater.add_artifact(
            parts, name=self.name, metadata=metadata, extensions=[EXTENSION], **options
        )


async def _add(turn: Turn) -> None:
    await turn.result({"sum": int(turn.params["a"] + turn.params["b"])}, last_chunk=True)
    await turn.updater.complete()


@dataclass
class Agent(AgentExecutor):
    """An agent whose tool `note` does what a test says."""

    note: Handler | None = None
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    messages: list[Any] = field(default_factory=list)
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    cards: int = 0
    not_modified: int = 0
    reads: asyncio.Queue[None] = field(default_factory=asyncio.Queue)
    cache_control: str = ""
    failing: bool = False
    base: str = ""
    raw: dict[str, Any] = field(default_factory=dict)
    token: str = ""
    break_after: int = 0
    broken: bool = False
    dead: bool = False
    store: Store = field(default_factory=Store)

    async def execute(self, context: RequestContext, queue: EventQueue) -> None:
        self.messages.append(context)
        call = MessageToDict(context.message.metadata).get("_tool_call", {})
        if context.current_task is None:
            task = Task(
                id=context.task_id,
                context_id=context.context_id,
                status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
                history=[context.message],
            )
            await queue.enqueue_event(task)
        updater = TaskUpdater(queue, context.task_id, context.context_id)
        turn = Turn(context, updater, queue, call.get("name", ""), call.get("params", {}))
        await updater.start_work()
        self.started.set()
        if turn.name == "add":
            await _add(turn)
        elif self.note is not None:
            await self.note(turn)
        else:
            await turn.updater.failed(
                turn.updater.new_agent_message([new_text_part("there is nothing to do")])
            )

    async def cancel(self, context: RequestContext, queue: EventQueue) -> None:
        self.cancelled.set()
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


def card_of(base: str, **changes: Any) -> dict[str, Any]:
    """The card of an agent as JSON; `changes` replace its members."""
    card: dict[str, Any] = {
        "name": "calc",
        "description": "tools over A2A",
        "version": "1.2.0",
        "defaultInputModes": ["application/json"],
        "defaultOutputModes": ["application/json"],
        "supportedInterfaces": [
            {"url": f"{base}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": f"{base}/rest", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
        ],
        "capabilities": {
            "streaming": True,
            "extensions": [{"uri": EXTENSION, "description": "tools", "params": {"tools": DESCRIPTORS}}],
        },
        "skills": SKILLS,
    }
    return {**card, **changes}


def guarded(agent: Agent, app: Any) -> Any:
    """The app of an agent, behind its token and the faults that a test wants."""

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {key.decode(): value.decode() for key, value in scope["headers"]}
            agent.headers.append(headers)
            agent.paths.append(scope["path"])
            public = not agent.token or "/.well-known/" in scope["path"]
            if not public and headers.get("authorization") != f"Bearer {agent.token}":
                await Response(status_code=401)(scope, receive, send)
                return
            if agent.dead and not agent.break_after:
                raise ConnectionResetError("dead by the test")

        async def counting(message: Any) -> None:
            agent.not_modified += message["type"] == "http.response.start" and message["status"] == 304
            await send(message)

        await app(scope, receive, breaking(agent, send) if agent.break_after else counting)

    return serve


def breaking(agent: Agent, send: Any) -> Any:
    """Pass some pieces of one body on, and then break the connection."""
    left, agent.break_after = agent.break_after, 0

    async def passing(message: Any) -> None:
        nonlocal left
        if message["type"] == "http.response.body":
            if left == 0:
                agent.broken = True
                raise ConnectionResetError("broken by the test")
            left -= 1
        await send(message)

    return passing


@contextlib.asynccontextmanager
async def sdk_agent(
    note: Handler | None = None,
    *,
    card: Callable[[str], dict[str, Any]] = card_of,
    legacy_path: bool = False,
    token: str = "",
    cache_control: str = "public, max-age=60",
    card_headers: dict[str, str] | None = None,
    extended: Callable[[str], dict[str, Any]] | None = None,
    sdk_card: bool = False,
) -> AsyncIterator[Agent]:
    """Serve an agent of the SDK on a port of its own, in this event loop.

    Its card is `Agent.raw`, which a test may change and which may have members that the SDK's types drop; with `sdk_card`, it is
    what the SDK serves.
    """
    agent = Agent(note, token=token, cache_control=cache_control)
    sock = socket.socket(proto=socket.IPPROTO_TCP)  # else asyncio does not set TCP_NODELAY
    sock.bind(("127.0.0.1", 0))
    agent.base = f"http://127.0.0.1:{sock.getsockname()[1]}"
    agent.raw = card(agent.base)
    parsed = ParseDict(agent.raw, AgentCard(), ignore_unknown_fields=True)
    more = ParseDict(extended(agent.base), AgentCard(), ignore_unknown_fields=True) if extended else None
    handler = DefaultRequestHandler(
        agent_executor=agent, task_store=agent.store, agent_card=parsed, extended_agent_card=more
    )

    async def card_route(request: Request) -> Response:
        agent.cards += 1
        agent.reads.put_nowait(None)
        if agent.failing:
            return Response(status_code=500)
        tag = f'"{hash(str(agent.raw))}"'
        headers = {"ETag": tag, **(card_headers or {})}
        if agent.cache_control:
            headers["Cache-Control"] = agent.cache_control
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return JSONResponse(agent.raw, headers=headers)

    path = "/.well-known/agent.json" if legacy_path else "/.well-known/agent-card.json"
    app = Starlette(
        routes=[
            *(create_agent_card_routes(parsed) if sdk_card else [Route(path, card_route)]),
            *create_jsonrpc_routes(handler, "/rpc", enable_v0_3_compat=True),
            *create_rest_routes(handler, path_prefix="/rest"),
        ]
    )
    # A connection that the agent closes while a message is on its way would make the outcome of a call unknown.
    settings: dict[str, Any] = {"timeout_graceful_shutdown": 1, "timeout_keep_alive": 3600}
    server = uvicorn.Server(
        uvicorn.Config(guarded(agent, app), log_level="critical", lifespan="off", **settings)
    )
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    while not server.started:  # noqa: ASYNC110 -- uvicorn has no event for it
        await asyncio.sleep(0.001)  # noqa: TID251
    try:
        yield agent
    finally:
        server.should_exit = True
        await serving
        sock.close()


async def echoes(turn: Turn) -> None:
    """Answer the arguments, exactly."""
    parts = turn.context.message.parts
    exact = next((part for part in parts if part.WhichOneof("content") == "text"), None)
    await turn.result(turn.params, exact=exact)
    await turn.updater.complete()


@contextlib.contextmanager
def agent_in_a_thread(note: Handler) -> Iterator[Agent]:
    """Serve an agent in an event loop of its own."""
    ready: queue.Queue[tuple[Agent, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def serve() -> None:
        async with sdk_agent(note) as agent:
            done = asyncio.Event()
            ready.put((agent, asyncio.get_running_loop(), done))
            await done.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    agent, loop, done = ready.get(timeout=60)
    try:
        yield agent
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(60)
