"""The tool loop of a model over a runtime: the model's calls run like all other calls, under one policy.

This package imports `engine` and the packages below it; `scenarios`, `serve` and `cli` may import it.
"""

from toolcrib.provider.config import Config
from toolcrib.provider.conversation_store import ConversationFacts, ConversationStore, FolderConversations
from toolcrib.provider.conversations import (
    CallRecord,
    Conversation,
    JSONLSink,
    Sink,
    SinkFailed,
    Stop,
    load_transcript,
)
from toolcrib.provider.loop.timeline import Event, Segment, Timeline, View
from toolcrib.provider.messages import Message, Reasoning, Text, ToolCall, ToolResult, system, user
from toolcrib.provider.middleware import ProviderMiddleware
from toolcrib.provider.models.installed_providers import open_provider
from toolcrib.provider.models.protocol import (
    CallDelta,
    Delta,
    Finish,
    Prices,
    Provider,
    ProviderError,
    ReasoningDelta,
    Request,
    TextDelta,
    Tokens,
)
from toolcrib.security.approvals import Answer, Claim, FolderClaims, Pending
from toolcrib.security.tool_policy import ToolPolicy

__all__ = [
    "Answer",
    "CallDelta",
    "CallRecord",
    "Claim",
    "Config",
    "Conversation",
    "ConversationFacts",
    "ConversationStore",
    "Delta",
    "Event",
    "Finish",
    "FolderClaims",
    "FolderConversations",
    "JSONLSink",
    "Message",
    "Pending",
    "Prices",
    "Provider",
    "ProviderError",
    "ProviderMiddleware",
    "Reasoning",
    "ReasoningDelta",
    "Request",
    "Segment",
    "Sink",
    "SinkFailed",
    "Stop",
    "Text",
    "TextDelta",
    "Timeline",
    "Tokens",
    "ToolCall",
    "ToolPolicy",
    "ToolResult",
    "View",
    "load_transcript",
    "open_provider",
    "system",
    "user",
]
