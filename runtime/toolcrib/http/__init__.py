"""HTTP, for every mode that speaks it: messages, connections that the egress guard dialled, bounded reading."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, TypeAlias

from toolcrib.core.errors import ConfigurationError
from toolcrib.http.messages import Bounds, Fault, HTTPError, Request, Response, Sender

if TYPE_CHECKING:
    from toolcrib.security.egress import Guard

Client: TypeAlias = Literal["auto", "stock", "fast"]
"""Which library carries requests."""

__all__ = ["Bounds", "Client", "Fault", "HTTPError", "Request", "Response", "Sender", "open_sender"]


def open_sender(guard: Guard, *, client: Client = "auto") -> Sender:
    """What carries requests over connections of a guard. Both kinds behave alike.

    Args:
        guard: The one way to a socket.
        client: `stock` is httpcore and always there; `fast` is aiohttp, of the extra `fast`; `auto` takes the fast one
            where it is installed.

    Raises:
        ConfigurationError: `missing_extra`: the fast one was asked for and is not installed.
    """
    installed = client != "stock" and find_spec("aiohttp") is not None
    if client == "fast" and not installed:
        message = "the fast HTTP client was asked for, and aiohttp is not installed"
        raise ConfigurationError(message, code="missing_extra", hint="pip install 'toolcrib[fast]'")
    if installed:
        from toolcrib.http.aiohttp_client import FastSender  # noqa: PLC0415 -- an extra

        return FastSender(guard)
    from toolcrib.http.client import StockSender  # noqa: PLC0415 -- only where it is the one

    return StockSender(guard)
