"""What the body of a failure says, in the shapes that APIs commonly use; problem details are RFC 9457."""

from __future__ import annotations

import re
from typing import NamedTuple

from toolcrib.core.model import JSON
from toolcrib.core.text import compact, escape_terminal, truncate

MOST = 4096
"""Bytes that are told of what the other side says."""

_TELLING = (
    "message", "detail", "error_description", "error_message", "title", "reason", "description", "msg",
    "error", "errors", "details",
)  # fmt: skip
_PROBLEM = ("type", "title", "status", "detail", "instance")
_CODES = ("code", "error_code", "errorCode", "error", "type")
_CODE = re.compile(r"[A-Za-z0-9][\w.:/-]{0,127}")
_DEPTH = 4
_LISTED = 5


class Said(NamedTuple):
    """What a body says.

    Attributes:
        message: On one line, without controls, in at most `MOST` bytes; empty for nothing.
        details: `code`, as the API calls it; `problem`, the members of problem details; `body`, where nothing in it
            was understood.
    """

    message: str
    details: dict[str, JSON]


def what_is_said(body: JSON) -> Said:
    """What the body of a failure says."""
    if body is None or body == "":
        return Said("", {})
    message = one_line(_message(body, _DEPTH))
    if not isinstance(body, dict):
        return Said(message, {} if message else _whole(body))
    if _is_problem(body):
        told = {key: body[key] for key in _PROBLEM if isinstance(body.get(key), str | int)}
        problem: JSON = {
            key: one_line(value) if isinstance(value, str) else value for key, value in told.items()
        }
        return Said(one_line(_title_and_detail(body)), {"problem": problem})
    code = _code(body, _DEPTH)
    details: dict[str, JSON] = {} if code is None else {"code": code}
    return Said(message, details if message else {**details, **_whole(body)})


def one_line(text: str) -> str:
    """A text of the other side as it may be told: on one line, without controls, in at most `MOST` bytes."""
    return truncate(escape_terminal(" ".join(text.split())), MOST)


def _is_problem(body: dict[str, JSON]) -> bool:
    """Whether it is problem details: a title, and what only they have beside it."""
    return isinstance(body.get("title"), str) and any(
        key in body for key in ("type", "status", "detail", "instance")
    )


def _title_and_detail(body: dict[str, JSON]) -> str:
    texts = [body[key] for key in ("title", "detail") if isinstance(body.get(key), str)]
    return ": ".join(str(text) for text in texts if text)


def _message(value: JSON, depth: int) -> str:
    """The message in a value; empty where there is none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and depth:
        return "; ".join(text for item in value[:_LISTED] if (text := _message(item, depth - 1)))
    if isinstance(value, dict) and depth:
        for key in _TELLING:
            text = _message(value.get(key), depth - 1)
            if text:
                return text
    return ""


def _code(value: JSON, depth: int) -> str | int | None:
    """The code in a value, the innermost `error` first."""
    if isinstance(value, list) and value and depth:
        return _code(value[0], depth - 1)
    if not isinstance(value, dict) or not depth:
        return None
    for key in ("error", "errors"):
        code = _code(value.get(key), depth - 1)
        if code is not None:
            return code
    named = [value.get(key) for key in _CODES]
    return next(
        (each for each in named if type(each) is int or (isinstance(each, str) and _CODE.fullmatch(each))),
        None,
    )


def _whole(body: JSON) -> dict[str, JSON]:
    """A body that was not understood, where it is small enough to be told."""
    try:
        return {"body": body} if len(compact(body)) <= MOST else {}
    except ValueError:
        return {}
