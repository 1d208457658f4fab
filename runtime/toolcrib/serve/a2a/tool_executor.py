"""Run the SDK's tasks over a runtime: a message becomes a call, and its events and its result become updates of the task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from logging import getLogger
from typing import TYPE_CHECKING, Any, Final

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.types import (
    Artifact,
    Part,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, Outcome, Partial, Progress, Result
from toolcrib.engine import engine_of
from toolcrib.engine.access_control import Principal
from toolcrib.engine.session import Session
from toolcrib.registry.registry import Registry
from toolcrib.security.approvals import Approval, Pending
from toolcrib.security.encryption import NoKey
from toolcrib.serve.a2a.task_messages import (
    PARTIAL_ID,
    InvalidCall,
    RequestedCall,
    TaskEnd,
    agent_message,
    end_of_task,
    form_in_message,
    named_tool,
    rejection,
    requested_call,
    unknown_tool,
)
from toolcrib.serve.http_common.approval_form import (
    FORM,
    FORM_FOR_ONE_CALL,
    answer_in_form,
    approval_in,
    question,
)
from toolcrib.serve.http_common.calls_in_flight import CallsInFlight
from toolcrib.servers.a2a.artifacts import data_part, part_of_content, to_json
from toolcrib.servers.a2a.cards import EXTENSION

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Runtime

CALLER: Final = "a2a"
"""Caller of all calls of peers, as access rules name it. Their user is the principal of the peer."""

LEGACY: Final = "legacy"
"""Key in the state of a request: whether it is one of A2A 0.3."""

TOOLSET: Final = "toolset"
"""Key of the toolset in the state of a request."""

TRACE: Final = "trace"
"""Key of the trace headers in the state of a request."""

_MOST_TEXTS: Final = 1000
"""Number of texts of progress after which a task reports numbers only: the SDK keeps every text in the history of the task."""

_CANCEL: Final = 1.0
"""Seconds that a cancelled call gets to release what it holds."""

_log = getLogger("toolcrib")


class TaskEvents:
    """The updates of a task that a message begins or continues."""

    def __init__(self, context: RequestContext, queue: EventQueue) -> None:
        self._queue = queue
        self._task = context.task_id or ""
        self._context = context.context_id or ""
        self._message = context.message
        # A stream of 0.3 ends with a status that is marked as final (0.3, section 7.2.2).
        self._whole = not context.call_context.state.get(LEGACY)
        self.begun = context.current_task is not None

    async def begin(self) -> None:
        """Say that work has begun, so that the peer knows the ID of the task."""
        if self.begun:
            await self.status(TaskStatus(state=TaskState.TASK_STATE_WORKING))
        else:
            await self._create(TaskEnd(TaskStatus(state=TaskState.TASK_STATE_WORKING)))

    async def end(self, end: TaskEnd) -> None:
        """Say how the task ends. A task that has not begun is sent whole, as one event, to peers of A2A 1.0."""
        if not self.begun and self._whole:
            await self._create(end)
            return
        if not self.begun:
            await self.begin()
        if end.artifact is not None:
            await self.artifact(end.artifact, last=True)
        await self.status(end.status)

    async def _create(self, end: TaskEnd) -> None:
        self._complete(end.status)
        artifacts = [] if end.artifact is None else [end.artifact]
        history = [] if self._message is None else [self._message]
        self.begun = True
        await self._queue.enqueue_event(
            Task(
                id=self._task,
                context_id=self._context,
                status=end.status,
                artifacts=artifacts,
                history=history,
            )
        )

    async def status(self, status: TaskStatus, metadata: Mapping[str, Any] | None = None) -> None:
        """Send a state."""
        self._complete(status)
        await self._queue.enqueue_event(
            TaskStatusUpdateEvent(
                task_id=self._task, context_id=self._context, status=status, metadata=metadata
            )
        )

    async def artifact(self, artifact: Artifact, *, append: bool = False, last: bool = False) -> None:
        """Send an artifact, or a chunk of one."""
        await self._queue.enqueue_event(
            TaskArtifactUpdateEvent(
                task_id=self._task,
                context_id=self._context,
                artifact=artifact,
                append=append,
                last_chunk=last,
            )
        )

    def _complete(self, status: TaskStatus) -> None:
        status.timestamp.GetCurrentTime()
        if status.HasField("message"):
            status.message.task_id, status.message.context_id = self._task, self._context


class ToolExecutor(AgentExecutor):
    """Makes the calls that messages ask for.

    Attributes:
        calls: The calls in flight.
    """

    def __init__(self, runtime: Runtime, toolset: str = "") -> None:
        """Serve a runtime.

        Args:
            runtime: The tools.
            toolset: Name of the only toolset that is served; empty for all listed tools.
        """
        self.calls = CallsInFlight()
        self._runtime = runtime
        self._toolset = toolset
        self._sessions: dict[str, Session] = {}
        self._running: dict[str, asyncio.Task[Result]] = {}

    def seen_by(self, principal: str) -> Registry:
        """The tools that access lets a principal see."""
        return engine_of(self._runtime).seen_by(self._runtime.registry, Principal(CALLER, principal))

    def session(self, principal: str) -> Session:
        """The session of a principal. It never ends."""
        session = self._sessions.get(principal)
        if session is None:
            session = self._runtime.session(caller=CALLER, user=principal)
            self._sessions[principal] = session
        return session

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Called by the SDK: make the call of a message, or continue a task that waits for an answer."""
        events = TaskEvents(context, event_queue)
        try:
            if context.current_task is None:
                await self._call(context, events)
            else:
                await self._answer(context, events)
        # The SDK would send the text of the exception to the peer.
        except Exception:  # noqa: BLE001 -- as it says
            _log.exception("a bug in a task of A2A")
            await events.end(end_of_task("", _INTERNAL))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Called by the SDK: cancel the call of a task."""
        running = self._running.get(context.task_id or "")
        if running is not None:
            running.cancel()
            await asyncio.wait([running], timeout=_CANCEL)
        events = TaskEvents(context, event_queue)
        events.begun = True
        await events.status(TaskStatus(state=TaskState.TASK_STATE_CANCELED))

    async def _call(self, context: RequestContext, events: TaskEvents) -> None:
        tools = self._tools(context)
        try:
            call = requested_call(context, tools)
        except InvalidCall as error:
            await events.end(rejection(str(error), "tool_call_missing"))
            return
        name = named_tool(call.name, tools)
        if name is None:
            await events.end(end_of_task(call.name, await self._unlisted(call, tools, context)))
            return
        await self._make(name, call, context, events)

    def _tools(self, context: RequestContext) -> Registry:
        tools = self.seen_by(_principal_of(context))
        toolset = context.call_context.state.get(TOOLSET) or self._toolset
        return tools.within(toolset) if toolset else tools

    async def _unlisted(self, call: RequestedCall, tools: Registry, context: RequestContext) -> Result:
        """The result of a call of a tool that is not listed, which a server that was unreachable may still provide."""
        if tools.toolset is not None or engine_of(self._runtime).awaited(call.name) is None:
            # No call is made, but statistics count it like those that find no tool in other ways.
            unknown = unknown_tool(call.name, tools)
            statistics = engine_of(self._runtime).call_statistics
            statistics.add(statistics.series("", CALLER, _principal_of(context)), unknown)
            return unknown
        session = self.session(_principal_of(context))
        return await self.calls.run(session.call(call.name, call.arguments))

    async def _make(
        self, name: str, call: RequestedCall, context: RequestContext, events: TaskEvents
    ) -> None:
        principal = _principal_of(context)
        session = self.session(principal)
        trace = context.call_context.state.get(TRACE, {})
        if not call.key and not self.calls.ending:
            # A tool that never waits needs no updates.
            result = session.call_at_once(name, call.arguments, trace=trace)
            if result is not None:
                await self._finish(name, result, context, events)
                return
        await events.begin()
        # All peers have the same caller: a key belongs to the token that was presented with it.
        key = f"{principal}/{call.key}" if principal and call.key else call.key
        stream = session.stream(name, call.arguments, trace=trace, idempotency_key=key)
        result = await self._run(context, _followed(stream, name, events))
        if result is not None:
            await self._finish(name, result, context, events)

    async def _run(self, context: RequestContext, call: Any) -> Result | None:
        """Run a call that the peer may cancel; None if it did."""
        task_id = context.task_id or ""
        running = self._running[task_id] = asyncio.ensure_future(self.calls.run(call))
        try:
            await asyncio.wait([running])
        finally:
            running.cancel()  # no effect on a finished task
            del self._running[task_id]
        return None if running.cancelled() else running.result()

    async def _finish(self, name: str, result: Result, context: RequestContext, events: TaskEvents) -> None:
        asked = self._question(result, context)
        await events.end(asked or end_of_task(name, result))

    # Approvals.

    def _question(self, result: Result, context: RequestContext, problem: str = "") -> TaskEnd | None:
        """What a person is asked before the call is made; None if nobody is."""
        id_ = approval_in(result)
        approval = self._runtime.approvals.find(id_) if id_ else None
        if approval is None:
            return None
        asked = Pending(approval.id, approval.tool, approval.shown, approval.code, approval.message)
        form = self._form(approval, context)
        facts: dict[str, JSON] = {"id": approval.id, "tool": approval.tool, "form": form}
        decisions = " or ".join(f"`{each}`" for each in form["properties"]["decision"]["enum"])
        text = f"{question(asked, problem)}\nAnswer in this task with {decisions}."
        message = agent_message(
            [Part(text=text), data_part({"approval": facts})], {EXTENSION: {"approval": approval.id}}
        )
        return TaskEnd(TaskStatus(state=TaskState.TASK_STATE_INPUT_REQUIRED, message=message))

    def _form(self, approval: Approval, context: RequestContext) -> dict[str, Any]:
        # Peers without a token share a session, and nobody decides for the others.
        shared = not _principal_of(context) and approval.session == self.session("").id
        return FORM_FOR_ONE_CALL if shared else FORM

    async def _answer(self, context: RequestContext, events: TaskEvents) -> None:
        """Continue a task that waits for the decision of a person."""
        approvals, principal = self._runtime.approvals, _principal_of(context)
        approval = approvals.find(_approval_of(context.current_task))
        if approval is None:
            await events.end(rejection("the task does not wait for an answer any more", "nothing_asked"))
            return
        problem = ""
        if approvals.state(approval) == "pending":
            assert context.message is not None  # noqa: S101 -- the SDK requires it in a request
            try:
                said = answer_in_form(form_in_message(context.message), self._form(approval, context))
                approvals.answer(approval.id, said, by=f"{CALLER} {principal}".strip(), here=True)
            except (ValueError, RecursionError, NoKey) as error:
                problem = str(error)
            except ConfigurationError as error:
                # Somebody else has answered: `resume` reports it.
                problem = error.message if error.code == "invalid_edit" else ""
        if not problem:
            await events.begin()
        result = await self._run(context, self.session(principal).resume(approval.id))
        if result is None:
            return
        asked = self._question(result, context, problem)
        await events.end(asked or end_of_task(approval.tool, result))


async def _followed(
    stream: AsyncIterator[Progress | Partial | Result], name: str, events: TaskEvents
) -> Result:
    """Report the events of a call, and return its result."""
    chunks = texts = 0
    async with aclosing(stream) as items:  # type: ignore[type-var]
        async for item in items:
            if isinstance(item, Result):
                return item
            if isinstance(item, Partial):
                part = part_of_content(item.content)
                artifact = Artifact(artifact_id=PARTIAL_ID, name=name, parts=[part], extensions=[EXTENSION])
                await events.artifact(artifact, append=chunks > 0)
                chunks += 1
                continue
            status = TaskStatus(state=TaskState.TASK_STATE_WORKING)
            if item.message and texts < _MOST_TEXTS:
                status.message.CopyFrom(agent_message([Part(text=item.message)]))
                texts += 1
            numbers = {"progress": item.progress, "total": item.total}
            known = {key: value for key, value in numbers.items() if value is not None}
            await events.status(status, {EXTENSION: known})
    raise AssertionError("a stream ends with a result")


def _principal_of(context: RequestContext) -> str:
    return context.call_context.user.user_name


def _approval_of(task: Task | None) -> str:
    """The approval that a task waits for; empty if it waits for none."""
    if task is None or not task.status.HasField("message"):
        return ""
    told = to_json(task.status.message.metadata).get(EXTENSION)
    approval = told.get("approval") if isinstance(told, dict) else None
    return approval if isinstance(approval, str) else ""


_INTERNAL: Final = Result.failure(Outcome.INTERNAL, "a bug in a task of A2A")
