"""Drive agents of the Agent Client Protocol: their model, with the tools, files, rules and timeline of toolcrib.

This package imports `serve` and the packages below it. The extra `acp` is imported when an agent is started.
"""

from toolcrib.acp.agent import Agent, AgentFailure, Turn, TurnResult
from toolcrib.acp.agent_process import Observer, WireLine
from toolcrib.acp.permissions import Ask, PermissionOption, PermissionQuestion, ReportedCall

__all__ = [
    "Agent",
    "AgentFailure",
    "Ask",
    "Observer",
    "PermissionOption",
    "PermissionQuestion",
    "ReportedCall",
    "Turn",
    "TurnResult",
    "WireLine",
]
