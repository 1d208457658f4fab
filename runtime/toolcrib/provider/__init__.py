"""A model's tool loop over a runtime: the calls that a model asks for run like all others, under one policy."""

from toolcrib.provider.conversations import Answer, CallRecord, Conversation, Pending, Stop
from toolcrib.provider.messages import Message, Reasoning, Text, ToolCall, ToolResult, system, user
from toolcrib.provider.requests import (
    CallDelta,
    Delta,
    Finish,
    Provider,
    ProviderError,
    ReasoningDelta,
    Request,
    TextDelta,
    Tokens,
)
from toolcrib.provider.timeline import Event, Segment, Timeline, View
from toolcrib.tool_policy import ToolPolicy

__all__ = [
    "Answer",
    "CallDelta",
    "CallRecord",
    "Conversation",
    "Delta",
    "Event",
    "Finish",
    "Message",
    "Pending",
    "Provider",
    "ProviderError",
    "Reasoning",
    "ReasoningDelta",
    "Request",
    "Segment",
    "Stop",
    "Text",
    "TextDelta",
    "Timeline",
    "Tokens",
    "ToolCall",
    "ToolPolicy",
    "ToolResult",
    "View",
    "system",
    "user",
]
