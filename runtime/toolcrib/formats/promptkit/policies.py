"""From PromptKit's policies of tools to ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from toolcrib.core.errors import Problem
from toolcrib.formats.promptkit.source_nodes import Made, Node, made, made_list

_BOUNDS: Final[Mapping[str, str]] = {
    "max_rounds": "max_rounds",
    "max_tool_calls_per_turn": "max_calls_per_turn",
    "max_total_tool_calls": "max_calls",
    "max_calls_per_minute": "max_calls_per_minute",
    "max_parallel_tool_calls": "max_parallel",
    "max_identical_tool_calls": "max_identical",
    "max_cost_usd": "max_cost",
}
"""Their key -> ours. None or less is their way to say nothing."""

_IDLE_THERE: Final = ("max_tool_calls_per_turn", "max_total_tool_calls", "max_calls_per_minute")
"""Bounds that PromptKit reads and never enforces."""


def policy(sources: Sequence[Node], allowed: Made | None) -> dict[str, Made | None]:
    """The policy of a conversation.

    Args:
        sources: Their policies; the first that says something counts.
        allowed: The globs of the tools that are offered; None for all.
    """
    parts: dict[str, Made | None] = {"allow": allowed}
    for theirs, ours in _BOUNDS.items():
        node = _first(sources, theirs, lambda node: node.value > 0)
        parts[ours] = None if node is None else made(node.value, node)
    choice = _first(sources, "tool_choice", lambda node: bool(node.text))
    parts["tool_choice"] = None if choice is None else made(choice.text, choice)
    for theirs, ours in (("blocklist", "deny"), ("stop_on_tool", "stop_on_tool")):
        node = _first(sources, theirs, lambda node: bool(node.value))
        parts[ours] = None if node is None else names(node)
    return parts


def _first(sources: Sequence[Node], key: str, counts: Callable[[Node], bool]) -> Node | None:
    found = (source.part(key) for source in sources)
    return next((node for node in found if node and counts(node)), None)


def names(node: Node) -> Made:
    """A list of names, or one of them alone, each once."""
    items = list(node.each()) if isinstance(node.value, list) else [node]
    texts = {item.text: item for item in items if item.text}
    return made_list(node, [made(text, item) for text, item in texts.items()])


def enforced(sources: Sequence[Node]) -> Iterator[Problem]:
    """A notice for each bound that PromptKit never enforces."""
    for source in sources:
        for key in _IDLE_THERE:
            node = source.part(key)
            if node and node.value > 0:
                message = (
                    f"PromptKit reads `{key}` and never enforces it; here a call beyond it ends the turn"
                )
                hint = f"`policy.{_BOUNDS[key]}` of the scenario"
                yield node.problem("enforced_here", message, hint, "notice")
