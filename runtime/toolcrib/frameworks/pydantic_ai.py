"""A toolset for Pydantic AI.

Failures that a better call may avoid are retries (`ModelRetry`), which count against the retries of the agent. Other
failures are failed results (`ToolFailed`).
"""

from __future__ import annotations

from base64 import b64decode
from dataclasses import dataclass
from typing import Any, Final

from pydantic_ai.exceptions import ApprovalRequired, CallDeferred, ModelRetry, ToolFailed, UserError
from pydantic_ai.messages import BinaryContent, CustomEvent, ToolReturn
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from toolcrib.core.model import JSON, Content, Outcome, Partial, Progress, Result
from toolcrib.core.text import text_for_model
from toolcrib.executors.client import DEFERRED
from toolcrib.frameworks.tool_adapter import ToolAdapter, ToolSelection, text_and_media
from toolcrib.security.approvals import Answer

_RETRIED: Final = frozenset({Outcome.INVALID_ARGUMENTS, Outcome.TOOL_ERROR, Outcome.TIMEOUT})
# toolcrib validates the arguments. Pydantic AI only has to read an object.
_ANY_OBJECT: Final = SchemaValidator(core_schema.dict_schema(core_schema.str_schema()))


@dataclass(kw_only=True, repr=False)
class ToolcribProgressEvent(CustomEvent):
    """Progress of a call.

    Attributes:
        progress: Work done so far.
        total: Total work; None if unknown.
        message: Status text for a person.
    """

    progress: float
    total: float | None = None
    message: str = ""


@dataclass(kw_only=True, repr=False)
class ToolcribContentEvent(CustomEvent):
    """Partial content of a call.

    Attributes:
        content: The part as JSON (`Content.as_json`).
    """

    content: dict[str, JSON]


class RuntimeToolset(AbstractToolset[Any]):
    """The tools of a runtime or session. The metadata of their results is `Result.as_json`."""

    def __init__(self, selection: ToolSelection, id: str | None = None) -> None:  # noqa: A002
        self._selection = selection
        self._id = id
        self._adapters: dict[str, ToolAdapter] = {}

    @property
    def id(self) -> str | None:
        """The ID of the toolset."""
        return self._id

    @property
    def tool_name_conflict_hint(self) -> str:
        """How to avoid that two toolsets have a tool of the same name."""
        return "Pass the names of the tools to `to_pydantic_ai`, or use `.prefixed(...)`."

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """List the tools."""
        self._adapters = {each.name: each for each in await self._selection.discovered()}
        return {
            name: ToolsetTool(
                toolset=self,
                tool_def=_definition_of(each),
                max_retries=ctx.max_retries,
                args_validator=_ANY_OBJECT,
            )
            for name, each in self._adapters.items()
        }

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[Any],
        tool: ToolsetTool[Any],  # noqa: ARG002
    ) -> Any:
        """Call a tool."""
        if name not in self._adapters:  # a process that resumes a run has not listed them
            await self.get_tools(ctx)
        adapter = self._adapters[name]
        id = ctx.tool_call_id or ""  # noqa: A001

        async def hear(event: Progress | Partial) -> None:
            made = (
                ToolcribProgressEvent(progress=event.progress, total=event.total, message=event.message)
                if isinstance(event, Progress)
                else ToolcribContentEvent(content=event.content.as_json())
            )
            try:
                await ctx.emit(made)
            except UserError:  # the toolset is called outside a run, where nobody listens
                return

        answer = Answer.approve() if ctx.tool_call_approved else None
        result = await adapter.call(tool_args, id=id, answer=answer, hear=hear)
        return _returned(adapter, tool_args, result, id)


def _definition_of(adapter: ToolAdapter) -> ToolDefinition:
    tool = adapter.tool
    output = tool.output_schema
    return ToolDefinition(
        name=adapter.name,
        description=adapter.description,
        parameters_json_schema=adapter.schema,
        strict=adapter.strict or None,
        return_schema=output if isinstance(output, dict) else None,
        metadata={"annotations": tool.annotations._asdict(), "tags": list(tool.tags)},
    )


def _returned(adapter: ToolAdapter, arguments: dict[str, Any], result: Result, id: str) -> Any:  # noqa: A002
    if result.outcome is Outcome.NEEDS_APPROVAL:
        pending = adapter.pending(arguments, result, id)
        metadata = {**pending._asdict(), "details": dict(pending.details)}
        raise CallDeferred(metadata) if pending.code == DEFERRED else ApprovalRequired(metadata)
    if result.outcome is not Outcome.OK:
        text = text_for_model(result)
        acted = result.error is not None and result.error.details.get("may_have_acted")
        raise ModelRetry(text) if result.outcome in _RETRIED and not acted else ToolFailed(text)
    text, media = text_and_media(result, _binary_of)
    return ToolReturn(return_value=[text, *media] if media else text, metadata=result.as_json())


def _binary_of(part: Content) -> BinaryContent | None:
    if part.data is None or part.mime_type is None:
        return None
    return BinaryContent(b64decode(part.data), media_type=part.mime_type)
