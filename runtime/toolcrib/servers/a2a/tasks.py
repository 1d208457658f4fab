"""One call as a task of an agent: send the message, follow the task to its end, and cancel it.

A broken stream is resumed (A2A 1.0, section 3.1.6, SubscribeToTask), and an agent that does not stream is polled, until the
caller cancels. States that move backwards and repeated events change nothing once the task has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from contextvars import Context
from typing import Any, Final, cast

from a2a.client import A2AClientError, ClientCallContext
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    Message,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
)
from a2a.utils.errors import JSON_RPC_ERROR_CODE_MAP, A2AError
from google.protobuf.json_format import ParseError

from toolcrib.core.clock import RealClock
from toolcrib.core.model import NOTHING, Content, Partial, Progress
from toolcrib.core.text import format_size
from toolcrib.servers.a2a.agents import AgentConnection
from toolcrib.servers.a2a.artifacts import ArtifactParts, content_of_part, to_json
from toolcrib.servers.a2a.cards import EXTENSION
from toolcrib.servers.a2a.messages import EXTENSIONS_HEADER, SkillCall, text_of_message
from toolcrib.servers.a2a.transport import RequestTrace
from toolcrib.servers.endpoint import ExchangeFailure
from toolcrib.servers.mcp.failures import InvalidAnswer, clean_text
from toolcrib.servers.mcp.transports import LinkTrouble

_SDK_FAULTS: Final = (ParseError, ValueError, KeyError, TypeError, AttributeError)
"""What the SDK raises for an answer that is not valid."""

TASK_NOT_FOUND: Final = -32001
_NOT_CANCELABLE: Final = -32002
_UNSUPPORTED: Final = -32004

TERMINAL: Final = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_REJECTED,
    }
)
INTERRUPTED: Final = frozenset({TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED})

_CLOSING: Final = 0.25
"""Seconds for an agent to end a stream after its last event, so that the connection can be used again."""

_CANCEL: Final = 2.0
"""Seconds that a call waits for the cancellation of its task, including the wait for an agent that has not named it yet."""

_LONGEST_CANCEL: Final = 30.0
"""Seconds for the cancellation of a task, most of them in the background.

Giving up closes the connection, and a busy agent that finds it closed never reads the request (uvicorn, for one).
"""

_FIRST_RETRY: Final = 0.1
"""Seconds before a cancellation that did not reach the agent is repeated; three times as long with each failure."""

_FIRST_POLL: Final = 0.02
_LONGEST_POLL: Final = 2.0
"""Seconds between two looks at a task that is not streamed, from the first to the longest."""

_MOST_FAILURES: Final = 4
"""Failures in a row to reach the agent of a task, after which the outcome of the task is unknown."""


class AgentError(Exception):
    """An agent answered with an error of the protocol.

    Attributes:
        number: Its number (A2A 1.0, section 5.4; JSON-RPC 2.0, section 5.1); None if the SDK does not know it.
        message: The message of the agent.
    """

    def __init__(self, number: int | None, message: str) -> None:
        super().__init__(message)
        self.number = number
        self.message = message


class AgentTask:
    """A task of an agent.

    Attributes:
        id: ID of the task; empty until the agent has named it.
        context_id: ID of its context.
        state: The last state.
        said: The message of the last state; None if it has none.
        artifacts: ID -> artifact.
        message: The message with which the agent answered instead of a task; None if it made a task.
        answers: Whether the call answers the task, whose first state is then the one in which it asked.
    """

    def __init__(
        self,
        connection: AgentConnection,
        call: SkillCall,
        *,
        headers: Mapping[str, str],
        trace: RequestTrace,
        most: int,
        report: Callable[[Progress], None],
        emit: Callable[[Partial], None] | None,
    ) -> None:
        """Create the task of a call; `run` sends it.

        Args:
            connection: The agent.
            call: What to send.
            headers: Further headers of each request.
            trace: Records what was sent.
            most: Maximum size of all artifacts together, in bytes.
            report: Receives the texts of its states.
            emit: Receives chunks of artifacts; None if nobody listens.
        """
        self.id = call.task_id
        self.context_id = call.context_id
        self.state: int = TaskState.TASK_STATE_UNSPECIFIED
        self.said: Message | None = None
        self.artifacts: dict[str, ArtifactParts] = {}
        self.message: Message | None = None
        self._connection = connection
        self._call = call
        self._trace = trace
        self._left = most
        self._most = most
        self._report = report
        self._emit = emit
        self._reports = 0
        self._known = asyncio.Event()
        self.answers = bool(call.task_id)
        parameters = {EXTENSIONS_HEADER: EXTENSION, **headers}
        self._context = ClientCallContext(service_parameters=parameters)
        self._clock = RealClock()

    @property
    def over(self) -> bool:
        """Whether the task has ended or waits for the caller."""
        return self.message is not None or self.state in TERMINAL or self.state in INTERRUPTED

    @property
    def begun(self) -> bool:
        """Whether any part of the call may have reached the agent."""
        return self._trace.begun

    async def run(self) -> None:
        """Send the message, and follow the task until it is over.

        Raises:
            ExchangeFailure: The agent cannot be reached, or no longer.
            AgentError: The agent answered with an error.
            InvalidAnswer: An answer violates the protocol.
        """
        # A task that was interrupted is over again only with its next state.
        client = self._connection.client
        call = self._call._replace(wait=self._connection.card.streaming)
        sent = client.send_message(call.request(), context=self._context)
        try:
            await self._follow(sent)
        except ExchangeFailure:
            if not self._named or self.over:
                raise
        if self.over:
            return
        if not self._named:
            raise InvalidAnswer("it ended its answer without a task or a message")
        await self._resumed()

    @property
    def _named(self) -> bool:
        return self._known.is_set()

    async def _resumed(self) -> None:
        """Follow a task whose stream broke off, or that is not streamed, until it is over."""
        failures, wait = 0, _FIRST_POLL
        while not self.over:
            await self._clock.sleep(wait)
            wait = min(wait * 1.5, _LONGEST_POLL)
            try:
                if self._connection.card.streaming:
                    await self._subscribe()
                else:
                    await self.look()
            except ExchangeFailure:
                failures += 1
                if failures == _MOST_FAILURES:
                    raise
            else:
                failures = 0

    async def _subscribe(self) -> None:
        request = SubscribeToTaskRequest(id=self.id)
        try:
            await self._follow(self._connection.client.subscribe(request, context=self._context))
        except AgentError as error:
            # The task has ended, or the agent cannot resume streams.
            if error.number != _UNSUPPORTED:
                raise
            await self.look()

    async def look(self) -> None:
        """Ask for the state of the task, and its artifacts.

        Raises:
            ExchangeFailure: The agent cannot be reached.
            AgentError: The agent answered with an error, such as that it does not know the task.
            InvalidAnswer: The answer violates the protocol.
        """
        with _sdk_errors():
            task = await self._connection.client.get_task(GetTaskRequest(id=self.id), context=self._context)
        self._take_task(task)

    async def _follow(self, events: AsyncIterator[StreamResponse]) -> None:
        """Take the events of a stream until it ends."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as closing, aclosing(cast("Any", events)):
                while (event := await self._next(events)) is not None:
                    if self.over and closing.when() is not None:
                        continue  # the task has ended; what the agent still says of it does not count
                    self._take(event)
                    if self.over:
                        closing.reschedule(loop.time() + _CLOSING)
        except TimeoutError:
            if not closing.expired():
                raise

    async def _next(self, events: AsyncIterator[StreamResponse]) -> StreamResponse | None:
        with _sdk_errors():
            return await anext(events, None)

    def _take(self, event: StreamResponse) -> None:
        kind = event.WhichOneof("payload")
        if kind == "task":
            self._take_task(event.task)
        elif kind == "message":
            self.message = event.message
            self.context_id = event.message.context_id
            self._known.set()
        elif kind == "status_update":
            self._take_id(event.status_update.task_id, event.status_update.context_id)
            self._take_status(event.status_update.status, to_json(event.status_update.metadata))
        elif kind == "artifact_update":
            self._take_id(event.artifact_update.task_id, event.artifact_update.context_id)
            self._take_chunk(event.artifact_update)
        else:
            raise InvalidAnswer("it sent an event of an unknown kind")

    def _take_task(self, task: Task) -> None:
        self._take_id(task.id, task.context_id)
        self.artifacts.clear()
        self._left = self._most
        for artifact in task.artifacts:
            self._count(artifact.ByteSize())
            self.artifacts[artifact.artifact_id] = ArtifactParts(artifact)
        asked, self.answers = self.answers, False
        if not (asked and task.status.state in INTERRUPTED):
            self._take_status(task.status)

    def _take_id(self, task_id: str, context_id: str) -> None:
        if not task_id:
            raise InvalidAnswer("it sent a task without an ID")
        if self.id and task_id != self.id:
            raise InvalidAnswer("it sent an event of another task")
        self.id, self.context_id = task_id, context_id or self.context_id
        self._known.set()

    def _take_status(self, status: TaskStatus, metadata: Mapping[str, Any] = NOTHING) -> None:
        self.state = status.state
        self.said = status.message if status.HasField("message") else None
        if self.over:
            return
        text = "" if self.said is None else clean_text(text_of_message(self.said))
        marks = metadata.get(EXTENSION)
        done, total = (
            (_number(marks.get(key)) for key in ("progress", "total"))
            if isinstance(marks, dict)
            else (None, None)
        )
        if done is not None:
            self._report(Progress(done, total, text))
        elif text:
            self._reports += 1
            self._report(Progress(float(self._reports), None, text))

    def _take_chunk(self, update: TaskArtifactUpdateEvent) -> None:
        artifact = update.artifact
        self._count(artifact.ByteSize())
        known = self.artifacts.get(artifact.artifact_id)
        if update.append and known is not None:
            known.append(artifact)
        else:
            self.artifacts[artifact.artifact_id] = ArtifactParts(artifact)
        # An artifact that arrives at once is the result itself.
        if self._emit is not None and (update.append or not update.last_chunk):
            for part in artifact.parts:
                if part.WhichOneof("content") is not None:
                    self._emit(Partial(_clean(content_of_part(part))))

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            message = f"its artifacts are larger than {format_size(self._most)}"
            raise ExchangeFailure(LinkTrouble("response_too_large", message), sent=True)

    async def end(self) -> None:
        """Ask the agent to cancel the task, and take its last state.

        Raises:
            ExchangeFailure: The agent cannot be reached.
            AgentError: The agent answered with an error, such as that the task has ended.
            InvalidAnswer: The answer violates the protocol.
        """
        with _sdk_errors():
            request = CancelTaskRequest(id=self.id)
            task = await self._connection.client.cancel_task(request, context=self._context)
        self.answers = False
        self._take_task(task)

    async def cancel(self, running: asyncio.Task[None]) -> str:
        """Cancel the task for a caller that has left; why it may still run, or an empty text.

        An agent that does not answer in time is still asked in the background.

        Args:
            running: The task of the event loop that runs `run`. It is ended.
        """
        # An empty context: what it sends is not part of the call.
        ending = asyncio.create_task(self._cancelled(running), context=Context())
        try:
            return await asyncio.wait_for(asyncio.shield(ending), _CANCEL)
        except TimeoutError:
            why = f"the agent did not answer within {_CANCEL:g}s"
            if not self._connection.finish_later(ending, self.id):
                return why
            return f"{why}; the cancellation continues in the background for up to {_LONGEST_CANCEL:g}s"
        except asyncio.CancelledError:
            self._connection.finish_later(ending, self.id)
            raise

    async def _cancelled(self, running: asyncio.Task[None]) -> str:
        """As `cancel`, for as long as it takes."""
        try:
            if not self._trace.begun or running.done():
                return ""
            async with asyncio.timeout(_LONGEST_CANCEL):
                # Closing the connection would not stop the remote task, so its ID must arrive first.
                named = asyncio.ensure_future(self._known.wait())
                try:
                    await asyncio.wait({named, running}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    named.cancel()
                if not self.id or (self.over and self.state not in INTERRUPTED):
                    return ""
                return await self._ended()
        except TimeoutError:
            return f"the agent did not answer within {_LONGEST_CANCEL:g}s"
        finally:
            running.cancel()
            await asyncio.wait([running])
            if not running.cancelled():
                running.exception()  # retrieved, so that the loop does not report it

    async def _ended(self) -> str:
        """Ask the agent to cancel the task, again if it cannot be reached; why that failed, or an empty text."""
        wait, why = _FIRST_RETRY, ""
        for attempt in range(_MOST_FAILURES):
            if attempt:
                await self._clock.sleep(wait)
                wait *= 3
            try:
                await self.end()
            except ExchangeFailure as failure:
                why = failure.trouble.message
            except AgentError as error:
                # It may have ended in the meantime.
                return "" if error.number == _NOT_CANCELABLE else clean_text(error.message)
            except InvalidAnswer as invalid:
                return invalid.message
            else:
                return ""
        return why


def _number(value: Any) -> float | None:
    """A number of the metadata; None if it is something else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _clean(content: Content) -> Content:
    return content if content.text is None else content._replace(text=clean_text(content.text))


@contextmanager
def _sdk_errors() -> Iterator[None]:
    """Translate what the SDK raises.

    Raises:
        AgentError: The agent answered with an error of the protocol.
        ExchangeFailure: The agent answered with a status that is no success.
        InvalidAnswer: The answer is not valid.
    """
    try:
        yield
    except A2AClientError as error:
        status = getattr(getattr(error.__cause__, "response", None), "status_code", None)
        if isinstance(status, int):
            raise _status_failure(status) from None
        if error.message.startswith(_IS_ERROR):
            raise AgentError(None, error.message.removeprefix(_IS_ERROR)) from None
        raise InvalidAnswer(clean_text(error.message)) from None
    except A2AError as error:
        raise AgentError(JSON_RPC_ERROR_CODE_MAP.get(type(error)), error.message) from None
    except _SDK_FAULTS as error:
        raise InvalidAnswer(f"its answer does not have the form of A2A ({type(error).__name__})") from None


_IS_ERROR: Final = "JSON-RPC Error "
"""In the text of the SDK's error for a JSON-RPC error with a number that it does not know."""


def _status_failure(status: int) -> ExchangeFailure:
    message = f"the agent answered with status {status}"
    if status in (401, 403):
        return ExchangeFailure(LinkTrouble("unauthorized", message, "check `auth` of the agent"), sent=True)
    return ExchangeFailure(LinkTrouble("http_status", message), sent=True)
