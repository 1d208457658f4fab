"""The trace that a client sends in `_meta`: W3C Trace Context and Baggage, in MCP and in ACP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolcrib.core.model import NOTHING

_KEYS: Final = ("traceparent", "tracestate", "baggage")
_LONGEST: Final = 8192


def trace_in(meta: Mapping[str, Any]) -> Mapping[str, str]:
    """The trace in the metadata of a message, for the calls that it causes.

    A live tool sends it as headers, so a value that no header can carry is dropped: it could inject another header.
    """
    found = {key: meta[key] for key in _KEYS if key in meta}
    return {
        key: value
        for key, value in found.items()
        if isinstance(value, str) and len(value) <= _LONGEST and value.isascii() and value.isprintable()
    } or NOTHING
