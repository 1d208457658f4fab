"""What the result of a call says about a limit: its name, its value, what was measured, and where it is declared."""

from __future__ import annotations

from toolcrib.core.model import JSON, Descriptor


def place_of_limit(tool: Descriptor, name: str) -> str:
    """Where a limit of a tool is declared: `toolcrib.yaml:12 (profile ci)`; empty for a built-in default.

    Args:
        tool: The tool.
        name: Key of `limits`, with dots, or `timeout`.
    """
    key = name if name == "timeout" else f"limits.{name}"
    origin = tool.origin
    if key in origin.settings:
        return origin.settings[key]
    return origin.place(f"/{key.replace('.', '/')}") if key in origin.written else ""


def limit_details(tool: Descriptor, name: str, value: JSON, measured: JSON) -> dict[str, JSON]:
    """The details of a result: `{limit, value, measured, at}`, without `at` for a built-in default."""
    place = place_of_limit(tool, name)
    return {"limit": name, "value": value, "measured": measured, **({"at": place} if place else {})}


def limit_phrase(tool: Descriptor, name: str, value: str) -> str:
    """A limit in a sentence: `` `limits.memory` is 256MiB (shop.tool.yaml:7) ``."""
    place = place_of_limit(tool, name)
    key = f"`{name}`" if name == "timeout" else f"`limits.{name}`"
    return f"{key} is {value}{in_parentheses(place)}"


def in_parentheses(place: str) -> str:
    """A place after what it declares: ` (toolcrib.yaml:12, profile ci)`; empty for no place."""
    # It may end with a profile and a rule that are in parentheses themselves.
    return f" ({place.replace(' (', ', ').replace(')', '')})" if place else ""
