"""Function tools for the OpenAI Agents SDK.

A failure is a text for the model, as the SDK's own `failure_error_function` returns it.
"""

from __future__ import annotations

from typing import Any

from agents import FunctionTool, RunContextWrapper, ToolOutputImage, ToolOutputText, custom_span
from agents.tool_context import ToolContext

from toolcrib.core.model import JSON, Content, Outcome, Partial, Progress, Result
from toolcrib.core.text import text_for_model
from toolcrib.frameworks.tool_adapter import ToolAdapter, event_as_json, text_and_media
from toolcrib.security.approvals import Answer


def function_tool_of(adapter: ToolAdapter) -> FunctionTool:
    """Return a tool of a runtime as a function tool."""

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        approved = context.is_tool_approved(adapter.name, context.tool_call_id)
        answer = Answer.approve() if approved else None
        result = await adapter.call(arguments, id=context.tool_call_id, answer=answer, hear=_hear)
        return _output_of(result)

    async def needs_approval(
        _context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str
    ) -> bool:
        return adapter.needs_approval(arguments, call_id)

    return FunctionTool(
        name=adapter.name,
        description=adapter.description,
        params_json_schema=adapter.schema,
        on_invoke_tool=invoke,
        strict_json_schema=adapter.strict,
        # With a function, the SDK also pauses for arguments that are not JSON.
        needs_approval=needs_approval if adapter.may_need_approval else False,
    )


async def _hear(event: Progress | Partial) -> None:
    told: dict[str, JSON] = event_as_json(event)
    with custom_span("toolcrib.content" if isinstance(event, Partial) else "toolcrib.progress", told):
        pass


def _output_of(result: Result) -> str | list[ToolOutputText | ToolOutputImage]:
    if result.outcome is not Outcome.OK:
        return text_for_model(result)
    text, images = text_and_media(result, _image_of)
    return [ToolOutputText(text=text), *images] if images else text


def _image_of(part: Content) -> ToolOutputImage | None:
    address = part.uri if part.data is None else f"data:{part.mime_type};base64,{part.data}"
    return None if part.type != "image" or address is None else ToolOutputImage(image_url=address)
