"""HTTP, for every mode that speaks it: messages, connections that the egress guard dialled, bounded reading."""

from toolcrib.http.messages import Bounds, Fault, HTTPError, Request, Response, Sender

__all__ = ["Bounds", "Fault", "HTTPError", "Request", "Response", "Sender"]
