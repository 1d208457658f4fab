"""The kinds of faults, and how one is written: its name alone, or `{name: options}`."""

from __future__ import annotations

from typing import Final

from toolcrib.model import JSON

KINDS: Final = (
    "timeout",
    "hang",
    "disconnect",
    "lost_ack",
    "duplicate_delivery",
    "not_json",
    "truncated",
    "empty",
    "violate_schema",
    "stale",
    "inject_text",
    "error",
    "rate_limit",
    "slow",
)
"""All kinds."""

UNREACHED: Final = frozenset({"timeout", "hang", "disconnect", "error", "stale"})
"""The kinds whose attempts never reach the tool."""

ANY: Final = "any"
"""The violation that stands for one that is drawn."""


def kind_of(inject: JSON) -> tuple[str, JSON, str]:
    """The kind of a fault whose shape is right, its options, and where these stand below it.

    `violate_schema` alone means any violation; the other kinds that stand alone have no options.
    """
    if isinstance(inject, dict):
        kind, options = next(iter(inject.items()))
        return kind, options, f"/{kind}"
    kind = str(inject)
    return kind, ANY if kind == "violate_schema" else None, ""
