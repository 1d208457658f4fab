"""HTTP for everything that calls out: messages, clients over connections that the egress guard dialled, authentication.

It imports `security` and the rooms below it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolcrib.http.messages import ExchangeBounds, HTTPError, HTTPFailure, HTTPRequest, HTTPResponse

if TYPE_CHECKING:
    from toolcrib.http.client import HTTPClient
    from toolcrib.security.egress import EgressGuard

__all__ = ["ExchangeBounds", "HTTPError", "HTTPFailure", "HTTPRequest", "HTTPResponse", "open_client"]


def open_client(guard: EgressGuard) -> HTTPClient:
    """The client whose connections a guard dials."""
    from toolcrib.http.client import HTTPClient  # noqa: PLC0415 -- slow to import; a mock needs no client

    return HTTPClient(guard)
