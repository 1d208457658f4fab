"""The SDK's request handler, with what it leaves out: required extensions, and exceptions that stay inside."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from logging import getLogger
from typing import Final

from a2a.server.agent_execution import AgentExecutor
from a2a.server.context import ServerCallContext
from a2a.server.events import Event
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.types import (
    AgentCard,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    ListTasksResponse,
    Message,
    SendMessageRequest,
    SubscribeToTaskRequest,
    Task,
)
from a2a.utils.errors import (
    A2AError,
    ExtensionSupportRequiredError,
    InternalError,
    InvalidParamsError,
    PushNotificationNotSupportedError,
)

from toolcrib.serve.a2a.task_store import BoundedTaskStore
from toolcrib.servers.a2a.cards import EXTENSION

CARD: Final = "card"
"""Key of the function that makes the extended card, in the state of a request."""

_log = getLogger("toolcrib")


class RequestHandler(DefaultRequestHandler):
    """Answers requests of every binding."""

    def __init__(
        self,
        executor: AgentExecutor,
        tasks: BoundedTaskStore,
        card: AgentCard,
        *,
        required: bool,
        idle: float,
    ) -> None:
        """Answer requests.

        Args:
            executor: Makes the calls.
            tasks: The tasks.
            card: A card, for the capabilities and the media types.
            required: Whether peers must declare support of the extension for tool descriptors.
            idle: Seconds after which a task that waits for an answer holds no resources.
        """
        super().__init__(
            executor,
            tasks,
            card,
            extended_agent_card=card,
            extended_card_modifier=_extended_card,
            validate_input_modes=True,
            interrupted_task_timeout=idle,
        )
        self._tasks = tasks
        self._required = required

    async def _admit(self, params: SendMessageRequest, context: ServerCallContext) -> None:
        """Refuse a message that cannot be processed, and complete one that names a task only."""
        if self._required and EXTENSION not in context.requested_extensions:
            raise ExtensionSupportRequiredError(
                f"the extension {EXTENSION} is required; name it in the header A2A-Extensions"
            )
        # The SDK ignores it, and the peer would wait for notifications that never come (A2A 1.0, section 3.3.4).
        if params.configuration.HasField("task_push_notification_config"):
            raise PushNotificationNotSupportedError(
                "push notifications are not supported; follow the task with SubscribeToTask or GetTask"
            )
        empty = [
            {
                "field": f"message.parts[{index}]",
                "message": "Exactly one of text, raw, url and data is required.",
            }
            for index, part in enumerate(params.message.parts)
            if part.WhichOneof("content") is None
        ]
        if empty:
            raise InvalidParamsError("Validation failed", data={"errors": empty})
        if self._tasks.full and not params.message.task_id:
            raise InternalError("too many tasks are in progress; try again later")
        # A2A 1.0, section 3.4.2: the context is that of the task. The SDK would generate one.
        if params.message.task_id and not params.message.context_id:
            task = await self._tasks.get(params.message.task_id, context)
            if task is not None:
                params.message.context_id = task.context_id

    async def on_message_send(self, params: SendMessageRequest, context: ServerCallContext) -> Message | Task:
        """Called by the SDK: SendMessage."""
        await self._admit(params, context)
        with _inside():
            answer: Message | Task = await super().on_message_send(params, context)
        return answer

    async def on_message_send_stream(
        self, params: SendMessageRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        """Called by the SDK: SendStreamingMessage."""
        await self._admit(params, context)
        with _inside():
            async with aclosing(super().on_message_send_stream(params, context)) as events:
                async for event in events:
                    yield event

    async def on_subscribe_to_task(
        self, params: SubscribeToTaskRequest, context: ServerCallContext
    ) -> AsyncGenerator[Event, None]:
        """Called by the SDK: SubscribeToTask."""
        with _inside():
            async with aclosing(super().on_subscribe_to_task(params, context)) as events:
                async for event in events:
                    yield event

    async def on_get_task(self, params: GetTaskRequest, context: ServerCallContext) -> Task | None:
        """Called by the SDK: GetTask."""
        with _inside():
            answer: Task | None = await super().on_get_task(params, context)
        return answer

    async def on_list_tasks(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """Called by the SDK: ListTasks."""
        with _inside():
            answer: ListTasksResponse = await super().on_list_tasks(params, context)
        return answer

    async def on_cancel_task(self, params: CancelTaskRequest, context: ServerCallContext) -> Task | None:
        """Called by the SDK: CancelTask."""
        with _inside():
            answer: Task | None = await super().on_cancel_task(params, context)
        return answer


async def _extended_card(_card: AgentCard, context: ServerCallContext) -> AgentCard:
    made: AgentCard = context.state[CARD]()
    return made


@contextmanager
def _inside() -> Iterator[None]:
    """Replace an unexpected exception, whose text the SDK would send to the peer."""
    try:
        yield
    except A2AError:
        raise
    except Exception as error:
        _log.exception("a bug in a request of A2A")
        raise InternalError from error
