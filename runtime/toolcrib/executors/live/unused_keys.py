"""Keys that a descriptor writes and that have no effect, which is told rather than passed over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from toolcrib.core.clock import format_duration, parse_duration
from toolcrib.core.errors import Problem
from toolcrib.core.model import Descriptor

_OF_REPETITIONS = ("attempts", "backoff", "retry_budget")
_OF_PAGES = re.compile(r"\s*(items|next_cursor)\s*(?=[.\[]|$)")


def is_repeatable(tool: Descriptor) -> bool:
    """Whether an attempt may follow another one that may have acted."""
    said = tool.annotations
    block: Any = tool.bindings["live"]
    return said.idempotent or said.read_only or bool(block.get("idempotency_key"))


def needless_keys(tool: Descriptor) -> Iterator[Problem]:
    """Warnings of the keys that can do nothing; of those alone that the descriptor itself writes."""
    block: Any = tool.bindings["live"]
    if not is_repeatable(tool):
        yield from _limits_of_repetitions(tool)
    if _writes(tool, "cache") and tool.limits.cache and not _is_kept(tool, block):
        why = "what is kept are whole answers, without `pagination`, to a GET or HEAD that only reads"
        yield _needless(why, "/limits/cache", "leave it out")
    yield from _timeouts(tool, block.get("timeouts", {}))
    if "pagination" not in block:
        yield from _selected(block.get("select", ""))


def _limits_of_repetitions(tool: Descriptor) -> Iterator[Problem]:
    for key in _OF_REPETITIONS:
        # One attempt is what such a tool has: to say so is no mistake.
        if _writes(tool, key) and not (key == "attempts" and tool.limits.attempts == 1):
            hint = "leave it out, or write `idempotency_key`, or `annotations: {idempotent: true}` where it is so"
            yield _needless("calls that may act twice are not repeated", f"/limits/{key}", hint)


def _is_kept(tool: Descriptor, block: dict[str, Any]) -> bool:
    reads = tool.annotations.read_only and block.get("method", "GET") in {"GET", "HEAD"}
    return reads and "pagination" not in block


def _selected(select: str) -> Iterator[Problem]:
    """Where an expression begins with what only pages have, and names nothing to take instead."""
    found = _OF_PAGES.match(select)
    if found is not None and "||" not in select:
        name = found.group(1)
        message = f"`select` finds nothing: `{name}` is there only beside `pagination`"
        hint = f"write `body.{name}` for what the answer holds, or `pagination`"
        yield Problem(
            code="needless_key", message=message, pointer="/live/select", hint=hint, severity="warning"
        )


def _timeouts(tool: Descriptor, written: dict[str, str]) -> Iterator[Problem]:
    """Waits that the deadline of the call always ends. A project may change one that the descriptor leaves open."""
    if "timeout" not in tool.origin.written:
        return
    whole = format_duration(tool.timeout)
    for key, text in written.items():
        if parse_duration(text) > tool.timeout:
            message = f"`timeout` ends the call after {whole}, before `{key}` has passed"
            yield _needless(message, f"/live/timeouts/{key}", f"leave it out, or write `timeout: {text}`")


def _writes(tool: Descriptor, key: str) -> bool:
    """Whether the descriptor writes a limit, or a part of it: `backoff.first` is one of `backoff`."""
    name = f"limits.{key}"
    return any(each == name or each.startswith(f"{name}.") for each in tool.origin.written)


def _needless(why: str, pointer: str, hint: str) -> Problem:
    key = pointer.rpartition("/")[2]
    message = f"`{key}` has no effect: {why}"
    return Problem(code="needless_key", message=message, pointer=pointer, hint=hint, severity="warning")
