"""What services of models say when they fail, and what it comes to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from toolcrib.core.clock import format_duration
from toolcrib.http import HTTPFailure

_LOOKED_AT: Final = 65536
"""Bytes of an error that are looked at."""

BY_STATUS: Final[Mapping[int, tuple[str, bool]]] = {
    401: ("key_refused", False),
    403: ("key_refused", False),
    408: ("provider_failed", True),
    409: ("provider_failed", True),
    429: ("rate_limited", True),
    501: ("request_refused", False),
    503: ("provider_overloaded", True),
    529: ("provider_overloaded", True),
}
"""Status -> code of the error, and whether it may pass; others are refused or failed as HTTP has it."""

BY_KIND: Final[Mapping[str, tuple[str, bool]]] = {
    "api_error": ("provider_failed", True),
    "server_error": ("provider_failed", True),
    "timeout_error": ("provider_failed", True),
    "overloaded_error": ("provider_overloaded", True),
    "rate_limit_error": ("rate_limited", True),
    "rate_limit_exceeded": ("rate_limited", True),
    "authentication_error": ("key_refused", False),
    "invalid_request_error": ("request_refused", False),
}
"""What a service calls an error within an answer -> the same."""

OPINIONS: Final[Mapping[str, bool]] = {"true": True, "false": False}
"""What `x-should-retry` says."""

LASTING: Final = frozenset(
    {
        HTTPFailure.BAD_REQUEST,
        HTTPFailure.TLS_FAILED,
        HTTPFailure.UNSUPPORTED_CODING,
        HTTPFailure.RESPONSE_TOO_LARGE,
        HTTPFailure.HEADERS_TOO_LARGE,
    }
)
"""What the same request meets again."""

HINTS: Final[Mapping[HTTPFailure, str]] = {
    HTTPFailure.CONNECT_FAILED: "see whether it runs, and `base_url`",
    HTTPFailure.CONNECT_TIMEOUT: "see whether it runs, and `base_url`",
    HTTPFailure.TLS_FAILED: "see to its certificate, or name the one that signs it in SSL_CERT_FILE",
    HTTPFailure.READ_TIMEOUT: "give it a longer `timeout`",
}


def message_of(raw: bytes) -> str:
    """What a service says in an error, on one line."""
    text = raw[:_LOOKED_AT].decode("utf-8", "replace")
    try:
        found = said_in(json.loads(text))
    except (ValueError, RecursionError):
        found = text
    return " ".join(found.split())


def said_in(value: Any) -> str:
    """The message in an error: `{error: {message}}` of OpenAI and Anthropic, and what compatible services write."""
    for key in ("error", "message", "detail", "type", "code"):
        if isinstance(value, dict) and value.get(key):
            return said_in(value[key])
    return value if isinstance(value, str) else "" if value in ({}, None) else json.dumps(value)


def hint_of(seconds: int | None) -> str:
    """The way out, where the service says how long to wait."""
    return f"retry after {format_duration(seconds)}" if seconds else ""
