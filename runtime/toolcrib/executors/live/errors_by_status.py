"""What an answer with a status of failure becomes: what `errors` says of it, or what is understood of its body."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from toolcrib.core.clock import format_duration
from toolcrib.core.errors import ExpressionError, Problem
from toolcrib.core.model import JSON, Descriptor, Outcome, Result
from toolcrib.core.pointers import pointer_step
from toolcrib.core.subschemas import closed_names
from toolcrib.core.text import compact
from toolcrib.executors.live.error_bodies import Said, one_line, what_is_said
from toolcrib.expressions import Rendering, compile_value
from toolcrib.http.headers import seconds_to_wait

Envelope = dict[str, JSON]
"""`status`, `headers` (names in lower case), `body`."""

RETRYABLE = frozenset({429, 502, 503, 504})
"""Statuses after which the same request may succeed later."""

_CODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}")


class Part(NamedTuple):
    """One thing that `errors` says of a status.

    Attributes:
        key: `code`, `message`, `retryable` or `details`.
        pointer: Where it stands in the descriptor.
        value: The compiled value.
    """

    key: str
    pointer: str
    value: Rendering


Entry = tuple[Part, ...]
"""What `errors` says of a status."""


class Errors:
    """The compiled `errors` of a block; without any, bodies are understood as far as they can be."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = entries

    def result(
        self, envelope: Envelope, arguments: Mapping[str, JSON], now: Callable[[], datetime] | None
    ) -> Result:
        """The result of an answer with a status of failure.

        Args:
            envelope: The answer.
            arguments: Those of the call.
            now: The time of day, with which a `Retry-After` date is compared.
        """
        status: Any = envelope["status"]
        entry = self._entry(status)
        written, warnings = _written(entry, {"args": arguments, **envelope}) if entry else ({}, [])
        code, message, details = _plain(envelope)
        code = written.get("code", code)
        message = written.get("message", message)
        details |= written.get("details", {})
        wait = _wait(envelope, now)
        if wait is not None:
            details["retry_after"] = wait
            message += f"; retry after {format_duration(wait)}"
        failed = Result.failed(
            Outcome.TOOL_ERROR,
            message,
            code=code,
            details=details,
            retryable=written.get("retryable", status in RETRYABLE),
        )
        return failed.with_meta(warnings=warnings) if warnings else failed

    def _entry(self, status: int) -> Entry | None:
        for key in (str(status), f"{status // 100}xx", "default"):
            if key in self._entries:
                return self._entries[key]
        return None


def compile_errors(block: Mapping[str, Any], tool: Descriptor, problems: list[Problem]) -> Errors:
    """Compile `errors`: status (`404`), class (`4xx`) or `default` -> a message, or its parts.

    Args:
        block: As it is written; valid under its schema.
        tool: Whose it is.
        problems: Receives what is wrong with its expressions, which read `args`, `status`, `headers`, `body`.
    """
    names = {"args": closed_names(tool.input_schema), "status": None, "headers": None, "body": None}
    entries = {}
    for key, written in block.items():
        pointer = f"/live/errors/{pointer_step(key)}"
        if isinstance(written, str):
            said = [("message", pointer, written)]
        else:
            said = [(name, f"{pointer}/{name}", value) for name, value in written.items()]
        entries[key] = tuple(
            Part(name, place, compile_value(value, names, problems, place)) for name, place, value in said
        )
    return Errors(entries)


def _written(entry: Entry, scope: Mapping[str, Any]) -> tuple[dict[str, Any], list[JSON]]:
    """What an entry says of this answer, and why something of it can't be said: that part is then understood."""
    written: dict[str, Any] = {}
    warnings: list[JSON] = []
    for key, pointer, part in entry:
        try:
            value, good = _READ[key](part.render(scope))
        except ExpressionError as error:
            warnings.append(f"{pointer} could not be worked out: {one_line(error.message)}")
            continue
        if good:
            written[key] = value
        else:
            warnings.append(f"{pointer} came to what is no {_NOUNS[key]}")
    return written, warnings


def _read_code(value: JSON) -> tuple[Any, bool]:
    text = value if isinstance(value, str) else compact(value)
    return text, _CODE.fullmatch(text) is not None


def _read_message(value: JSON) -> tuple[Any, bool]:
    text = one_line(value if isinstance(value, str) else compact(value))
    return text, bool(text)


_READ: dict[str, Callable[[JSON], tuple[Any, bool]]] = {
    "code": _read_code,
    "message": _read_message,
    "retryable": lambda value: (value, isinstance(value, bool)),
    "details": lambda value: (value, isinstance(value, dict)),
}
_NOUNS = {"code": "code", "message": "text", "retryable": "boolean", "details": "object"}


def _plain(envelope: Envelope) -> tuple[str, str, dict[str, JSON]]:
    """Code, message and details of an answer of which nothing is written."""
    status: Any = envelope["status"]
    headers: Any = envelope["headers"]
    if status < 400 and "location" in headers:
        return _redirected(status, headers["location"])
    said: Said = what_is_said(envelope["body"])
    message = f"HTTP {status}{_phrase(status)}" + (f": {said.message}" if said.message else "")
    return f"http_{status}", message, {"status": status, **said.details}


def _redirected(status: int, location: str) -> tuple[str, str, dict[str, JSON]]:
    place = _bare(location)
    points = f"the answer points to {place or 'no address'}, which is not followed"
    message = f"HTTP {status}{_phrase(status)}: {points}; `redirects` of the descriptor says how many are"
    return "redirected", message, {"status": status, **({"location": place} if place else {})}


def _phrase(status: int) -> str:
    try:
        return f" {HTTPStatus(status).phrase}"
    except ValueError:
        return ""


def _bare(location: str) -> str:
    """An address without what may be secret: only scheme, host, port and path are told; empty for none."""
    try:
        parts = urlsplit(location)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    shown = f"[{host}]" if ":" in host else host
    place = f"{parts.scheme}://{shown}" if parts.scheme and host else f"//{shown}" if host else ""
    return one_line(f"{place}{f':{port}' if port is not None and place else ''}{parts.path}")


def _wait(envelope: Envelope, now: Callable[[], datetime] | None) -> int | None:
    headers: Any = envelope["headers"]
    if "retry-after" not in headers:
        return None
    return seconds_to_wait(headers, now() if now is not None else None)
