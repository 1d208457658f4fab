"""HTTP for all outgoing requests: messages, clients over guarded connections, authentication.

Imports `security` and the rooms below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolcrib.http.messages import ExchangeBounds, HTTPError, HTTPFailure, HTTPRequest, HTTPResponse

if TYPE_CHECKING:
    from toolcrib.http.client import HTTPClient
    from toolcrib.security.egress import EgressGuard

__all__ = ["ExchangeBounds", "HTTPError", "HTTPFailure", "HTTPRequest", "HTTPResponse", "open_client"]


def open_client(guard: EgressGuard) -> HTTPClient:
    """Create a client that opens its connections through a guard."""
    # httpcore takes long to import, and a run of mocks never needs it.
    from toolcrib.http.client import HTTPClient  # noqa: PLC0415

    return HTTPClient(guard)
