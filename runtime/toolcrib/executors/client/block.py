"""What a `client` block says, read once, and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from toolcrib.core.clock import format_duration, parse_duration
from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, Descriptor
from toolcrib.schema.validation import Validator

LONGEST_TIMEOUT = 86400.0
"""Seconds."""

Strategy: TypeAlias = Literal["error", "retry", "fallback"]


class Terms(NamedTuple):
    """What is asked of the caller.

    Attributes:
        consent: Whether a person must agree.
        message: What the person is asked; not empty where one must agree.
        strategy: What becomes of a call that is declined.
        timeout: Seconds that the caller may take.
        categories: What the call touches.
        fallback: What a declined call is answered with.
        falls_back: Whether there is a fallback.
    """

    consent: bool
    message: str
    strategy: Strategy
    timeout: float
    categories: tuple[str, ...]
    fallback: JSON = None
    falls_back: bool = False

    @classmethod
    def of(cls, tool: Descriptor) -> Terms:
        """The terms of a tool, whose block has the right shape."""
        block: Any = tool.bindings["client"]
        consent: Mapping[str, Any] = block.get("consent", {})
        required = consent.get("required", False)
        asking = f"May `{tool.title or tool.name}` be used?" if required else ""
        return cls(
            consent=required,
            message=consent.get("message", asking),
            strategy=consent.get("decline_strategy", "error"),
            timeout=parse_duration(block["timeout"]) if "timeout" in block else tool.timeout,
            categories=tuple(block.get("categories", ())),
            fallback=block.get("fallback"),
            falls_back="fallback" in block,
        )

    def as_json(self) -> dict[str, JSON]:
        """What is told of them to whoever decides: `{consent, message, categories, timeout}`."""
        return {
            "consent": self.consent,
            "message": self.message,
            "categories": list(self.categories),
            "timeout": format_duration(self.timeout),
        }


def check(tool: Descriptor) -> Iterator[Problem]:
    """What is wrong with a block that the schema of blocks can't say."""
    terms = Terms.of(tool)
    block: Any = tool.bindings["client"]
    if "timeout" in block and not 0 < terms.timeout <= LONGEST_TIMEOUT:
        longest = format_duration(LONGEST_TIMEOUT)
        message = (
            f"the caller may take longer than 0s and at most {longest}, and this is `{block['timeout']}`"
        )
        hint = f"write at most {longest}, or leave it out for {format_duration(tool.timeout)}"
        yield Problem(code="out_of_range", message=message, pointer="/client/timeout", hint=hint)
    if terms.falls_back:
        yield from _check_fallback(tool, terms)


def _check_fallback(tool: Descriptor, terms: Terms) -> Iterator[Problem]:
    if terms.strategy != "fallback":
        message = f"`fallback` has no effect where `decline_strategy` is `{terms.strategy}`"
        hint = "write `consent: {decline_strategy: fallback}`, or leave `fallback` out"
        yield Problem(code="needless_key", message=message, pointer="/client/fallback", hint=hint)
    if tool.output_schema is None:
        return
    for fault in Validator(tool.output_schema).faults(terms.fallback):
        yield Problem(
            code="result_breaks_schema",
            message=f"the fallback does not fit `output_schema`: {fault.for_model()}",
            pointer=f"/client/fallback{fault.pointer}",
            hint=fault.hint,
        )
