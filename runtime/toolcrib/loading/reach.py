"""What a project lets tools reach: hosts with special addresses, and origins in place of others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolcrib.errors import Problem
from toolcrib.pointers import pointer_step


def check_reach(said: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    """What is wrong with `egress` and `origins` of a project or profile that stands at `pointer`."""
    for index, entry in enumerate(said.get("egress", {}).get("allow", ())):
        fault, _, hint = _fault_of_entry(entry).partition("; ")
        if fault:
            place = f"{pointer}/egress/allow/{index}"
            yield Problem(code="bad_egress", message=fault, pointer=place, hint=hint)
    for written, instead in said.get("origins", {}).items():
        place = f"{pointer}/origins/{pointer_step(written)}"
        for text in (written, instead):
            if not _is_origin(text):
                message = f"`{text}` is no origin"
                hint = "an origin is a scheme, a host and perhaps a port: `http://127.0.0.1:8080`"
                yield Problem(code="bad_origin", message=message, pointer=place, hint=hint)


def _fault_of_entry(entry: str) -> str:
    """What is wrong, then the way out; empty for nothing."""
    from toolcrib.egress import Guard  # noqa: PLC0415 -- most projects allow nothing

    try:
        Guard((entry,))
    except ValueError as error:
        return str(error)
    return ""


def _is_origin(text: str) -> bool:
    from toolcrib.http.messages import parse_origin  # noqa: PLC0415 -- most projects put nothing in the place of others

    try:
        parse_origin(text)
    except ValueError:
        return False
    return True
