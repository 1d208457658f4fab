"""Tools for LangChain and LangGraph.

A failure is a `ToolException`, which the tool itself turns into a message with the status `error`, so that the model can
correct its call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import Any, ClassVar, Literal

from langchain_core.callbacks.manager import adispatch_custom_event, dispatch_custom_event
from langchain_core.tools import BaseTool, ToolException
from langgraph.config import get_config, get_stream_writer
from langgraph.types import interrupt
from pydantic import ConfigDict, PrivateAttr

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, Content, Outcome, Partial, Progress, Result
from toolcrib.core.text import text_for_model
from toolcrib.frameworks.tool_adapter import ToolAdapter, event_as_json, text_and_media
from toolcrib.security.approvals import Answer

EVENT = "toolcrib"
"""Name of the custom events."""


class LangChainTool(BaseTool):
    """A tool of a runtime. The artifact of its messages is the result as JSON (`Result.as_json`)."""

    model_config: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True)

    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    _adapter: ToolAdapter = PrivateAttr()

    def __init__(self, adapter: ToolAdapter) -> None:
        # `BaseTool.args` reads `properties` without looking whether they are there.
        schema: dict[str, Any] = {"properties": {}, **adapter.schema}
        super().__init__(
            name=adapter.name, description=adapter.description, args_schema=schema, handle_tool_error=True
        )
        self._adapter = adapter

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        # LangChain would pass the arguments by name, so that an argument `config` would replace its own.
        return (tool_input, tool_call_id or ""), {}

    def _run(self, arguments: str | dict[str, Any], id: str) -> Any:  # noqa: A002
        """Call the tool without an event loop."""
        # The call runs in a loop of the runtime, where the context variables of LangChain are not set.
        write, context = _writer(), copy_context()

        async def hear(event: Progress | Partial) -> None:
            told = self._event(id, event)
            context.run(write, told)
            context.run(dispatch_custom_event, EVENT, told)

        result = self._adapter.call_sync(arguments, id=id, hear=hear)
        while result.outcome is Outcome.NEEDS_APPROVAL:
            answer, code = self._answer(arguments, result, id)
            result = self._adapter.call_sync(arguments, id=id, answer=answer, code=code, hear=hear)
        return _content_and_artifact(result)

    async def _arun(self, arguments: str | dict[str, Any], id: str) -> Any:  # noqa: A002
        """Call the tool."""
        write = _writer()

        async def hear(event: Progress | Partial) -> None:
            told = self._event(id, event)
            write(told)
            await adispatch_custom_event(EVENT, told)

        result = await self._adapter.call(arguments, id=id, hear=hear)
        while result.outcome is Outcome.NEEDS_APPROVAL:
            answer, code = self._answer(arguments, result, id)
            result = await self._adapter.call(arguments, id=id, answer=answer, code=code, hear=hear)
        return _content_and_artifact(result)

    def _event(self, id: str, event: Progress | Partial) -> dict[str, JSON]:  # noqa: A002
        return {"tool": self.name, "tool_call_id": id, **event_as_json(event)}

    def _answer(self, arguments: str | dict[str, Any], result: Result, id: str) -> tuple[Answer, str]:  # noqa: A002
        """Interrupt the graph; when it is resumed, return the answer."""
        if not _can_interrupt():
            raise ToolException(text_for_model(result))
        pending = self._adapter.pending(arguments, result, id)
        value = interrupt({**pending._asdict(), "details": dict(pending.details)})
        try:
            return Answer.parse({"approve": True} if value is True else value), pending.code
        except ConfigurationError as error:
            raise ConfigurationError(
                error.message, code=error.code, hint=f"resume with an answer: {error.hint}"
            ) from None


def _can_interrupt() -> bool:
    """Whether the call is made by a graph that can be resumed."""
    try:
        return get_config()["configurable"].get("thread_id") is not None
    except (KeyError, RuntimeError):
        return False


def _writer() -> Callable[[Any], None]:
    """Writes to the stream of the graph; outside a graph it does nothing."""
    try:
        writer: Callable[[Any], None] = get_stream_writer()
    except (KeyError, RuntimeError):
        return lambda _event: None
    return writer


def _content_and_artifact(result: Result) -> tuple[str | list[dict[str, Any]], dict[str, Any]]:
    if result.outcome is not Outcome.OK:
        raise ToolException(text_for_model(result))
    text, media = text_and_media(result, _block_of)
    return [{"type": "text", "text": text}, *media] if media else text, result.as_json()


def _block_of(part: Content) -> dict[str, Any] | None:
    """An image or audio as a standard content block of LangChain."""
    if part.type not in {"image", "audio"}:
        return None
    if part.data is not None:
        return {"type": part.type, "base64": part.data, "mime_type": part.mime_type}
    return None if part.uri is None else {"type": part.type, "url": part.uri}
