"""The protocols of executors, middleware and clocks. They are defined in `core`; import them from here."""

from toolcrib.core.protocols import (
    BoundTool,
    CallNext,
    Clock,
    EagerTool,
    Executor,
    Files,
    Kinds,
    Middleware,
    Reaching,
    Remote,
    SyncTool,
    Timer,
    ToolProvider,
)
from toolcrib.core.protocols import (
    CallSession as Session,
)

__all__ = [
    "BoundTool",
    "CallNext",
    "Clock",
    "EagerTool",
    "Executor",
    "Files",
    "Kinds",
    "Middleware",
    "Reaching",
    "Remote",
    "Session",
    "SyncTool",
    "Timer",
    "ToolProvider",
]
