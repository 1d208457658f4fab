"""A tool source for Inspect.

A failure is a `ToolError`, which the model reads; a deadline that has passed is a `TimeoutError`, as for Inspect's own tools.
Inspect can express only a part of JSON Schema. It checks arguments against this part before toolcrib validates them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import finalize

from inspect_ai.event import ApprovalEvent
from inspect_ai.log import transcript
from inspect_ai.tool import (
    ContentAudio,
    ContentImage,
    ContentText,
    Tool,
    ToolDef,
    ToolError,
    ToolParams,
    ToolResult,
)
from inspect_ai.util import store

from toolcrib.core.model import JSON, Content, Outcome, Partial, Progress, Result
from toolcrib.core.text import text_for_model
from toolcrib.engine.session import Session
from toolcrib.frameworks.tool_adapter import ToolAdapter, ToolSelection, event_as_json, text_and_media
from toolcrib.schema.dereference import dereference
from toolcrib.security.approvals import Answer


class RuntimeToolSource:
    """The tools of a runtime or session; Inspect lists them at the start of a sample."""

    def __init__(self, selection: ToolSelection) -> None:
        self._selection = selection
        self._sessions: dict[int, Session] = {}

    async def tools(self) -> list[Tool]:
        """List the tools."""
        adapters = await self._selection.discovered()
        return [self._tool_of(each) for each in adapters]

    def _tool_of(self, adapter: ToolAdapter) -> Tool:
        # Inspect passes the arguments of such a function on without converting them.
        async def execute(**kwargs: Any) -> ToolResult:
            of_sample = adapter if not self._selection.is_runtime else adapter.with_session(self._session())
            result = await of_sample.call(kwargs, hear=_hear_for(adapter))
            if result.outcome is Outcome.NEEDS_APPROVAL and _is_approved(adapter.name, kwargs):
                result = await of_sample.call(kwargs, answer=Answer.approve(), hear=_hear_for(adapter))
            return _returned(result)

        params = ToolParams.model_validate(_params_of(adapter.schema))
        definition = ToolDef(
            execute, name=adapter.name, description=adapter.description, parameters=params, parallel=True
        )
        return definition.as_tool()

    def _session(self) -> Session:
        """The session of the sample that is running."""
        # Inspect gives each sample a store, which lives as long as the sample and cannot be hashed.
        sample = store()
        key = id(sample)
        if key not in self._sessions:
            self._sessions[key] = self._selection.new_session()
            finalize(sample, self._sessions.pop, key, None)
        return self._sessions[key]


def _hear_for(adapter: ToolAdapter) -> Any:
    async def hear(event: Progress | Partial) -> None:
        transcript().info({"tool": adapter.name, **event_as_json(event)}, source="toolcrib")

    return hear


def _is_approved(name: str, arguments: Mapping[str, Any]) -> bool:
    """Whether an approval policy of Inspect, which decides before a call, has approved this one."""
    for event in reversed(transcript().events):
        if isinstance(event, ApprovalEvent) and event.call.function == name:
            call = event.modified or event.call
            if call.arguments == arguments:
                return event.decision in {"approve", "modify"}
    return False


def _returned(result: Result) -> ToolResult:
    if result.outcome is not Outcome.OK:
        text = text_for_model(result)
        if result.outcome is Outcome.TIMEOUT:
            raise TimeoutError(text)
        pending = result.outcome is Outcome.NEEDS_APPROVAL
        raise ToolError(f"{text}; no approval policy has approved the call" if pending else text)
    text, media = text_and_media(result, _media_of)
    return [ContentText(text=text), *media] if media else text


def _media_of(part: Content) -> ContentImage | ContentAudio | None:
    address = part.uri if part.data is None else f"data:{part.mime_type};base64,{part.data}"
    if part.type == "image" and address is not None:
        return ContentImage(image=address)
    kind = (part.mime_type or "").rpartition("/")[2].removeprefix("x-")
    if part.type == "audio" and address is not None and kind in {"wav", "mp3", "mpeg"}:
        return ContentAudio(audio=address, format="wav" if kind == "wav" else "mp3")
    return None


def _params_of(schema: Mapping[str, JSON]) -> dict[str, Any]:
    """A schema of arguments as far as Inspect can express it; unlike JSON Schema, it refuses other arguments by default."""
    told = {"additionalProperties": True, "properties": {}, **_expressible(dereference(dict(schema)).schema)}
    for name, each in told["properties"].items():
        # Inspect refuses a parameter without a description.
        each["description"] = each.get("description") or each.get("title") or name.replace("_", " ")
    return told


def _expressible(schema: JSON) -> dict[str, Any]:
    if not isinstance(schema, dict):
        return {}
    made: dict[str, Any] = dict(schema)
    if "const" in made:
        made["enum"] = [made["const"]]
    if "oneOf" in made and "anyOf" not in made:
        made["anyOf"] = made["oneOf"]
    if isinstance(properties := made.get("properties"), dict):
        made["properties"] = {name: _expressible(each) for name, each in properties.items()}
    if isinstance(branches := made.get("anyOf"), list):
        made["anyOf"] = [_expressible(each) for each in branches]
    if "items" in made:
        made["items"] = _expressible(made["items"])
    if isinstance(others := made.get("additionalProperties"), dict):
        made["additionalProperties"] = _expressible(others)
    return made
