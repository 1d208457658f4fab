"""A declarative tool runtime for AI agents: a tool is a file.

    async with toolcrib.Runtime.open("descriptors") as tools:
        result = await tools.call("get_forecast", {"city": "Oslo"})

Everything public is importable from here; a name is loaded when it is first used.
"""

from __future__ import annotations

from time import time_ns as _time_ns

_IMPORTED = _time_ns()
"""When the code that runs was read, at the earliest: what changed later is not what runs."""

__version__ = "0.1.0"

TYPE_CHECKING = False  # as `typing` has it, whose import costs more than `toolcrib --version`
if TYPE_CHECKING:
    from toolcrib.clock import RealClock
    from toolcrib.engine import Runtime
    from toolcrib.errors import (
        ApprovalNeeded,
        CallCancelled,
        CallDenied,
        CallError,
        CallTimeout,
        ClosedRuntime,
        ConfigurationError,
        DocumentError,
        ExpressionError,
        InternalError,
        InvalidArguments,
        InvalidResult,
        LimitExceeded,
        Overloaded,
        Problem,
        ServerDown,
        ToolcribError,
        ToolFailed,
        ToolNotFound,
        ToolUnavailable,
        TransportError,
        UnknownMode,
        UnknownOutcome,
        UnmatchedMock,
    )
    from toolcrib.executors import Executors
    from toolcrib.executors.client.calls import ClientCall
    from toolcrib.loading.packs import Pack
    from toolcrib.loading.projects import Project
    from toolcrib.loading.scenarios import Scenario
    from toolcrib.middleware.events import CallFinished, CallStarted
    from toolcrib.model import (
        JSON,
        Annotations,
        Call,
        CallContext,
        Client,
        Content,
        Descriptor,
        Example,
        Failure,
        Icon,
        Origin,
        Outcome,
        Partial,
        Progress,
        Result,
        Toolset,
        Usage,
    )
    from toolcrib.protocols import BoundTool, CallNext, Clock, Executor, Kinds, Middleware
    from toolcrib.provider.middleware import ProviderMiddleware
    from toolcrib.queries import Card, Hit, Rule
    from toolcrib.registry import Registry
    from toolcrib.reloading import ReloadReport, ToolAppeared, ToolChanged, ToolGone
    from toolcrib.scenarios import ScenarioReport, run_scenario, runs_of
    from toolcrib.servers import Catalogue, Server
    from toolcrib.session import Session
    from toolcrib.text import text_for_model
    from toolcrib.tool_policy import ToolPolicy
    from toolcrib.virtual_clock import VirtualClock

_HOMES = {
    "clock": ("RealClock",),
    "engine": ("Runtime",),
    "errors": (
        "ApprovalNeeded",
        "CallCancelled",
        "CallDenied",
        "CallError",
        "CallTimeout",
        "ClosedRuntime",
        "ConfigurationError",
        "DocumentError",
        "ExpressionError",
        "InternalError",
        "InvalidArguments",
        "InvalidResult",
        "LimitExceeded",
        "Overloaded",
        "Problem",
        "ServerDown",
        "ToolFailed",
        "ToolNotFound",
        "ToolUnavailable",
        "ToolcribError",
        "TransportError",
        "UnknownMode",
        "UnknownOutcome",
        "UnmatchedMock",
    ),
    "executors": ("Executors",),
    "executors.client.calls": ("ClientCall",),
    "loading.packs": ("Pack",),
    "loading.projects": ("Project",),
    "loading.scenarios": ("Scenario",),
    "middleware.events": ("CallFinished", "CallStarted"),
    "model": (
        "JSON",
        "Annotations",
        "Call",
        "CallContext",
        "Client",
        "Content",
        "Descriptor",
        "Example",
        "Failure",
        "Icon",
        "Origin",
        "Outcome",
        "Partial",
        "Progress",
        "Result",
        "Toolset",
        "Usage",
    ),
    "protocols": ("BoundTool", "CallNext", "Clock", "Executor", "Kinds", "Middleware"),
    "provider.middleware": ("ProviderMiddleware",),
    "queries": ("Card", "Hit", "Rule"),
    "registry": ("Registry",),
    "reloading": ("ReloadReport", "ToolAppeared", "ToolChanged", "ToolGone"),
    "servers": ("Catalogue", "Server"),
    "session": ("Session",),
    "scenarios": ("ScenarioReport", "run_scenario", "runs_of"),
    "text": ("text_for_model",),
    "tool_policy": ("ToolPolicy",),
    "virtual_clock": ("VirtualClock",),
}

_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "JSON",
    "Annotations",
    "ApprovalNeeded",
    "BoundTool",
    "Call",
    "CallCancelled",
    "CallContext",
    "CallDenied",
    "CallError",
    "CallFinished",
    "CallNext",
    "CallStarted",
    "CallTimeout",
    "Card",
    "Catalogue",
    "Client",
    "ClientCall",
    "Clock",
    "ClosedRuntime",
    "ConfigurationError",
    "Content",
    "Descriptor",
    "DocumentError",
    "Example",
    "Executor",
    "Executors",
    "ExpressionError",
    "Failure",
    "Hit",
    "Icon",
    "InternalError",
    "InvalidArguments",
    "InvalidResult",
    "Kinds",
    "LimitExceeded",
    "Middleware",
    "Origin",
    "Outcome",
    "Overloaded",
    "Pack",
    "Partial",
    "Problem",
    "Progress",
    "Project",
    "ProviderMiddleware",
    "RealClock",
    "Registry",
    "ReloadReport",
    "Result",
    "Rule",
    "Runtime",
    "Scenario",
    "ScenarioReport",
    "Server",
    "ServerDown",
    "Session",
    "ToolAppeared",
    "ToolChanged",
    "ToolFailed",
    "ToolGone",
    "ToolNotFound",
    "ToolPolicy",
    "ToolUnavailable",
    "ToolcribError",
    "Toolset",
    "TransportError",
    "UnknownMode",
    "UnknownOutcome",
    "UnmatchedMock",
    "Usage",
    "VirtualClock",
    "run_scenario",
    "runs_of",
    "text_for_model",
]


if not TYPE_CHECKING:  # to a type checker a misspelt name is one

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module `toolcrib` has no attribute `{name}`")
        from importlib import import_module  # noqa: PLC0415 -- `toolcrib --version` needs none of it

        value = globals()[name] = getattr(import_module(f"toolcrib.{_HOME[name]}"), name)
        return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
