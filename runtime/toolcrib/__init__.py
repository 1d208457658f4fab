"""A declarative tool runtime for AI agents: a tool is a file.

    async with toolcrib.Runtime.open("descriptors") as tools:
        result = await tools.call("get_forecast", {"city": "Oslo"})

The whole public API can be imported from this module. Each name is loaded when it is first used.
"""

from __future__ import annotations

from time import time_ns as _time_ns

# Read before all other modules of the package: a source file that is newer than this is not the running code,
# so caches must not record its fingerprint as the code that wrote them.
_IMPORTED = _time_ns()
"""Earliest time at which the running code was read, in nanoseconds since 1970."""

__version__ = "0.1.0"

# Type checkers accept this in place of `typing.TYPE_CHECKING`. Importing `typing` would take longer than
# `toolcrib --version`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from toolcrib.core.clock import RealClock
    from toolcrib.core.errors import (
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
    from toolcrib.core.hooks import load_hook
    from toolcrib.core.model import (
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
    from toolcrib.core.protocols import BoundTool, CallNext, Clock, Executor, Kinds, Middleware, ToolProvider
    from toolcrib.core.running_calls import RunningCall
    from toolcrib.core.server_config import Catalogue, Server
    from toolcrib.core.text import text_for_model
    from toolcrib.core.virtual_clock import VirtualClock
    from toolcrib.engine.approvals import (
        ApprovalAnswered,
        ApprovalError,
        ApprovalRequested,
        Approvals,
        InvalidEdit,
    )
    from toolcrib.engine.call_journal import Journal, JournalError
    from toolcrib.engine.middleware.events import CallFinished, CallProgressed, CallStarted, Event
    from toolcrib.engine.remote_tools import RemoteTool
    from toolcrib.engine.runtime import Runtime
    from toolcrib.engine.session import Session
    from toolcrib.engine.statistics import CallEstimate, Statistics
    from toolcrib.engine.stub import ToolStub
    from toolcrib.engine.telemetry import Telemetry
    from toolcrib.executors import Executors
    from toolcrib.executors.client import ClientCall
    from toolcrib.executors.python.declarations import Tool, simple_tool, tool
    from toolcrib.executors.python.factories import factory
    from toolcrib.loading.packs import Pack
    from toolcrib.loading.projects import Project
    from toolcrib.loading.reload import (
        ReloadReport,
        ToolAppeared,
        ToolChanged,
        ToolDisabled,
        ToolEnabled,
        ToolGone,
    )
    from toolcrib.loading.scenarios.model import Scenario
    from toolcrib.loading.sources import parse_registry
    from toolcrib.provider.middleware import ProviderMiddleware
    from toolcrib.registry.catalog import Card, Hit, Rule
    from toolcrib.registry.registry import Registry
    from toolcrib.scenarios import ScenarioReport, run_scenario, runs_of
    from toolcrib.security.access import AccessDecision, AccessViolation, ViolationLog
    from toolcrib.security.approvals import Answer, Approval, ApprovalRule, Pending, UnusableApprovals
    from toolcrib.security.journal import JournalEntry, UnusableJournal
    from toolcrib.security.tool_policy import ToolPolicy
    from toolcrib.security.trust import Workspace
    from toolcrib.security.trust_needs import Need, make_need
    from toolcrib.servers.a2a.conversion import artifact_from_result, result_from_artifact

_HOMES = {
    "core.clock": ("RealClock",),
    "engine.runtime": ("Runtime",),
    "core.errors": (
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
    "executors.client": ("ClientCall",),
    "executors.python.declarations": ("Tool", "simple_tool", "tool"),
    "executors.python.factories": ("factory",),
    "loading.packs": ("Pack",),
    "loading.projects": ("Project",),
    "loading.scenarios.model": ("Scenario",),
    "loading.sources": ("parse_registry",),
    "engine.middleware.events": ("CallFinished", "CallProgressed", "CallStarted", "Event"),
    "core.model": (
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
    "core.protocols": ("BoundTool", "CallNext", "Clock", "Executor", "Kinds", "Middleware", "ToolProvider"),
    "provider.middleware": ("ProviderMiddleware",),
    "registry.catalog": ("Card", "Hit", "Rule"),
    "registry.registry": ("Registry",),
    "loading.reload": (
        "ReloadReport",
        "ToolAppeared",
        "ToolChanged",
        "ToolDisabled",
        "ToolEnabled",
        "ToolGone",
    ),
    "core.running_calls": ("RunningCall",),
    "core.server_config": ("Catalogue", "Server"),
    "engine.remote_tools": ("RemoteTool",),
    "engine.session": ("Session",),
    "engine.statistics": ("CallEstimate", "Statistics"),
    "engine.stub": ("ToolStub",),
    "engine.telemetry": ("Telemetry",),
    "scenarios": ("ScenarioReport", "run_scenario", "runs_of"),
    "core.text": ("text_for_model",),
    "security.access": ("AccessViolation", "AccessDecision", "ViolationLog"),
    "engine.approvals": (
        "ApprovalAnswered",
        "ApprovalError",
        "ApprovalRequested",
        "Approvals",
        "InvalidEdit",
    ),
    "engine.call_journal": ("Journal", "JournalError"),
    "security.journal": ("JournalEntry", "UnusableJournal"),
    "security.approvals": ("Answer", "Approval", "ApprovalRule", "Pending", "UnusableApprovals"),
    "security.tool_policy": ("ToolPolicy",),
    "security.trust": ("Workspace",),
    "security.trust_needs": ("Need", "make_need"),
    "servers.a2a.conversion": ("artifact_from_result", "result_from_artifact"),
    "core.hooks": ("load_hook",),
    "core.virtual_clock": ("VirtualClock",),
}

_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "JSON",
    "AccessDecision",
    "AccessViolation",
    "Annotations",
    "Answer",
    "Approval",
    "ApprovalAnswered",
    "ApprovalError",
    "ApprovalNeeded",
    "ApprovalRequested",
    "ApprovalRule",
    "Approvals",
    "BoundTool",
    "Call",
    "CallCancelled",
    "CallContext",
    "CallDenied",
    "CallError",
    "CallEstimate",
    "CallFinished",
    "CallNext",
    "CallProgressed",
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
    "Event",
    "Example",
    "Executor",
    "Executors",
    "ExpressionError",
    "Failure",
    "Hit",
    "Icon",
    "InternalError",
    "InvalidArguments",
    "InvalidEdit",
    "InvalidResult",
    "Journal",
    "JournalEntry",
    "JournalError",
    "Kinds",
    "LimitExceeded",
    "Middleware",
    "Need",
    "Origin",
    "Outcome",
    "Overloaded",
    "Pack",
    "Partial",
    "Pending",
    "Problem",
    "Progress",
    "Project",
    "ProviderMiddleware",
    "RealClock",
    "Registry",
    "ReloadReport",
    "RemoteTool",
    "Result",
    "Rule",
    "RunningCall",
    "Runtime",
    "Scenario",
    "ScenarioReport",
    "Server",
    "ServerDown",
    "Session",
    "Statistics",
    "Telemetry",
    "Tool",
    "ToolAppeared",
    "ToolChanged",
    "ToolDisabled",
    "ToolEnabled",
    "ToolFailed",
    "ToolGone",
    "ToolNotFound",
    "ToolPolicy",
    "ToolProvider",
    "ToolStub",
    "ToolUnavailable",
    "ToolcribError",
    "Toolset",
    "TransportError",
    "UnknownMode",
    "UnknownOutcome",
    "UnmatchedMock",
    "UnusableApprovals",
    "UnusableJournal",
    "Usage",
    "ViolationLog",
    "VirtualClock",
    "Workspace",
    "artifact_from_result",
    "factory",
    "load_hook",
    "make_need",
    "parse_registry",
    "result_from_artifact",
    "run_scenario",
    "runs_of",
    "simple_tool",
    "text_for_model",
    "tool",
]


# Hidden from type checkers: with a module `__getattr__` they would accept misspelt names.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module `toolcrib` has no attribute `{name}`")
        from importlib import import_module  # noqa: PLC0415 -- not needed for `toolcrib --version`

        value = globals()[name] = getattr(import_module(f"toolcrib.{_HOME[name]}"), name)
        return value


# The default lists only the names that are loaded already.
def __dir__() -> list[str]:
    return [*__all__, "__version__"]
