"""The kinds of faults, and how one is written: its name alone, or `{name: options}`."""

from __future__ import annotations

from typing import Final

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON

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


_OPTIONS: Final = {
    "inject_text": "{at: /summary, text: ...}",
    "error": "{code: unavailable, retryable: true}",
    "rate_limit": "{limit: 10, per: 1m}",
    "slow": "3s",
}
"""The kinds that do not stand alone -> options that they could have."""


def misnamed(inject: JSON, pointer: str) -> Problem | None:
    """What is wrong with a kind that stands alone; None where nothing is.

    Where one stands with its options its schema has seen to it.
    """
    if isinstance(inject, dict) or (inject in KINDS and inject not in _OPTIONS):
        return None
    if inject in _OPTIONS:
        message = f"`{inject}` does not stand alone: it needs to be told more"
        hint = f"write `{{{inject}: {_OPTIONS[str(inject)]}}}`"
        return Problem(code="missing_options", message=message, pointer=pointer, hint=hint)
    message = f"`{inject}` is no kind of fault"
    hint = did_you_mean(str(inject), KINDS) or f"the kinds are {', '.join(f'`{kind}`' for kind in KINDS)}"
    return Problem(code="unknown_fault", message=message, pointer=pointer, hint=hint)
