"""What a model may do with tools in a conversation, as a value. `provider.enforcing` enforces it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from toolcrib.model import NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPolicy:
    """What a model may do with tools. None is no bound.

    Attributes:
        tool_choice: In the first round of a turn: `auto`, `required`, `none`, or the name of a tool; then `auto`.
        allow: Globs of the tools that are offered and may be called.
        deny: Globs of those that are not, whatever `allow` says.
        ask: Globs of those whose calls wait for an approval.
        max_rounds: Requests to the model in one turn.
        max_calls: Calls in the conversation.
        max_calls_per_turn: Calls between two messages of the user.
        max_calls_per_tool: Tool glob -> calls in the conversation; the first that fits counts.
        max_calls_per_minute: Calls in any 60 seconds of the session's clock.
        max_parallel: Calls under way at once.
        max_identical: Equal calls one after another; a tool of `polling` is not counted.
        polling: Globs of the tools that are asked the same again and again.
        max_failures: Calls of one tool, one after another, that fail for one cause.
        max_cost: US dollars in the conversation.
        stop_on_tool: Globs of the tools after whose call the turn ends.
        requires_before: Tool glob -> tools of which each must have been called well before.
        exclusive: Groups of tool globs; who has called a tool of one member may call no tool of another.
        cooldown: Tool glob -> seconds between two calls of a tool.
    """

    tool_choice: str = "auto"
    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    max_rounds: int = 50
    max_calls: int | None = None
    max_calls_per_turn: int | None = None
    max_calls_per_tool: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    max_calls_per_minute: int | None = None
    max_parallel: int = 10
    max_identical: int | None = 3
    polling: tuple[str, ...] = ()
    max_failures: int | None = 5
    max_cost: float | None = None
    stop_on_tool: tuple[str, ...] = ()
    requires_before: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NOTHING)
    exclusive: tuple[tuple[str, ...], ...] = ()
    cooldown: Mapping[str, float] = field(default_factory=lambda: NOTHING)


NO_POLICY = ToolPolicy()
"""What holds where nobody says anything."""
