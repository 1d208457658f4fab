"""Messages of clients, read strictly: a request with a key that is there twice is refused, for two readers may read two calls."""

from __future__ import annotations

import json
from typing import Final

from mcp.types import INVALID_REQUEST, PARSE_ERROR

from toolcrib.core.model import JSON
from toolcrib.core.text import DuplicateKey, decode_json
from toolcrib.schema.validation import json_fault

_DEPTH: Final = 200


class InvalidMessage(Exception):
    """A text is no message. Its text says why.

    Attributes:
        code: Of JSON-RPC.
        request: The number of the request, where it can be read.
    """

    def __init__(self, code: int, message: str, request: str | int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.request = request


def parse_message(text: bytes) -> JSON:
    """The JSON value of a message.

    Raises:
        InvalidMessage: It is no JSON, nested deeper than 200 levels, or has a key twice.
    """
    try:
        value = decode_json(text)
    except DuplicateKey as error:
        raise InvalidMessage(INVALID_REQUEST, f"Invalid Request: {error}", _request_in(text)) from None
    except (ValueError, RecursionError):
        raise InvalidMessage(PARSE_ERROR, "Parse error") from None
    if json_fault(value, depth=_DEPTH) is not None:
        raise InvalidMessage(PARSE_ERROR, "Parse error")
    return value


def _request_in(text: bytes) -> str | int | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    number = value.get("id") if isinstance(value, dict) else None
    return number if isinstance(number, str | int) and json_fault(number) is None else None
