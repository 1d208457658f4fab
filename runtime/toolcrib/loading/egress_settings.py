"""What a project lets tools reach: hosts with special addresses, and origins in place of others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from toolcrib.core.errors import Problem
from toolcrib.core.pointers import pointer_step


def check_reach(said: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    """What is wrong with `egress` and `origins` of a project or profile that stands at `pointer`."""
    allowed, origins = said.get("egress", {}).get("allow", ()), said.get("origins", {})
    if allowed:
        from toolcrib.security.egress import read_allowed  # noqa: PLC0415 -- most projects allow nothing

        for index, entry in enumerate(allowed):
            yield from _refused(read_allowed, entry, "bad_egress", f"{pointer}/egress/allow/{index}")
    if origins:
        from toolcrib.servers.environment import normal_origin  # noqa: PLC0415 -- most projects put nothing in the place of others

        for written, instead in origins.items():
            for text in (written, instead):
                yield from _refused(
                    normal_origin, text, "bad_origin", f"{pointer}/origins/{pointer_step(written)}"
                )


def _refused(read: Callable[[str], object], text: str, code: str, pointer: str) -> Iterator[Problem]:
    """The problem of a text that can't be read; the way out stands behind the last semicolon of the message."""
    try:
        read(text)
    except ValueError as error:
        message, _, hint = str(error).rpartition("; ")
        yield Problem(code=code, message=message, pointer=pointer, hint=hint)
