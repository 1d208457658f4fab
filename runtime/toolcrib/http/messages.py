"""HTTP messages: requests as drafts and as sent, responses, limits of an exchange, and its errors."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import quote, urlsplit

KIB = 1024


class HTTPRequest(NamedTuple):
    """A request, encoded for the wire. Its `repr` shows method, origin and path; the rest may be secret.

    Attributes:
        method: In upper case.
        scheme: `http` or `https`.
        host: As in the `Host` header and in TLS: lower case, without brackets or port.
        port: The port to connect to.
        target: Path and query, percent-encoded, beginning with `/`.
        headers: (name, value) in order, without `Host`, `Content-Length` and `Accept-Encoding`, which the client adds.
        body: The body; empty for none.
    """

    method: str
    scheme: str
    host: str
    port: int
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""

    def __repr__(self) -> str:
        return f"HTTPRequest({self.method} {self.origin}{self.target.partition('?')[0]})"

    @property
    def origin(self) -> str:
        """`https://api.example.com`, with the port unless it is the default of the scheme."""
        return origin_of(self.scheme, self.host, self.port)

    @property
    def url(self) -> str:
        """The full URL."""
        return self.origin + self.target


DEFAULT_PORTS = {"http": 80, "https": 443}

HOST = re.compile(r"[a-z0-9_.-]{1,253}|[0-9a-f:.]{2,45}")
"""A host as sent: a name or an address without brackets, in lower case."""


def origin_of(scheme: str, host: str, port: int) -> str:
    """An origin as text (RFC 6454 section 6.2)."""
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}" if DEFAULT_PORTS.get(scheme) == port else f"{scheme}://{shown}:{port}"


def parse_origin(text: str) -> tuple[str, str, int]:
    """Parse an origin into scheme, host (lower case, without brackets) and port.

    Raises:
        ValueError: Invalid origin: another scheme, no host, or a path, query, fragment or user name.
    """
    parts = urlsplit(text)
    host, port = parts.hostname, parts.port
    bare = not (parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme not in DEFAULT_PORTS or not host or not bare or any(each.isspace() for each in text):
        raise ValueError(f"`{text}` is not a valid origin")
    return parts.scheme, host, DEFAULT_PORTS[parts.scheme] if port is None else port


class HTTPResponse(NamedTuple):
    """A complete response.

    Attributes:
        status: The final status code.
        headers: (lower-case name, value) in order; values decoded as latin-1.
        body: The decompressed body.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """A header by its lower-case name; several values are joined by `, ` (RFC 9110 section 5.2)."""
        values = [value for each, value in self.headers if each == name]
        return ", ".join(values) if values else None


class ExchangeBounds(NamedTuple):
    """Limits of an exchange.

    Attributes:
        connect: Seconds for look-up, connection and TLS together.
        read: Seconds without data.
        body: Bytes of the body, both compressed and decompressed.
        headers: Bytes before the body, including interim responses.
    """

    connect: float = 5.0
    read: float = 15.0
    body: int = 8 * KIB * KIB
    headers: int = 64 * KIB


class HTTPFailure(StrEnum):
    """How an exchange failed. The values are stable codes that appear in results."""

    CONNECT_FAILED = "connect_failed"
    CONNECT_TIMEOUT = "connect_timeout"
    TLS_FAILED = "tls_failed"
    WRITE_FAILED = "write_failed"
    READ_TIMEOUT = "read_timeout"
    CONNECTION_BROKEN = "connection_broken"
    BAD_RESPONSE = "bad_response"
    UNSUPPORTED_CODING = "unsupported_coding"
    RESPONSE_TOO_LARGE = "response_too_large"
    HEADERS_TOO_LARGE = "headers_too_large"
    BAD_REQUEST = "bad_request"


class HTTPError(Exception):
    """A failed exchange. The message contains nothing of headers, query or body.

    Attributes:
        fault: The kind of failure.
        sent: Whether any part of the request may have reached the server.
        measured: Size in bytes of what was too large, as far as it was received; 0 for another failure.
    """

    def __init__(self, fault: HTTPFailure, message: str, *, sent: bool, measured: int = 0) -> None:
        super().__init__(message)
        self.measured = measured
        self.fault = fault
        self.message = message
        self.sent = sent


def client_closed() -> HTTPError:
    """The error of a client that is already closed."""
    return HTTPError(HTTPFailure.CONNECT_FAILED, "the runtime is closed", sent=False)


def bad_response(what: str) -> HTTPError:
    """The error of a response that is not valid HTTP."""
    return HTTPError(HTTPFailure.BAD_RESPONSE, f"the server's response is not valid HTTP: {what}", sent=True)


def connection_broken() -> HTTPError:
    """The error of a connection that closed too early."""
    message = "the connection closed before the response was complete"
    return HTTPError(HTTPFailure.CONNECTION_BROKEN, message, sent=True)


@dataclass(slots=True, repr=False)
class RequestDraft:
    """A request under construction; its parts are already encoded. Its `repr` shows method, origin and path.

    Attributes:
        method: In upper case.
        scheme: `http` or `https`.
        host: Lower case, without brackets.
        port: The port.
        path: Percent-encoded, beginning with `/`.
        query: Percent-encoded `name=value` pieces, in order.
        headers: (name, value) in order; names as written.
        cookies: `name=value` pieces, in order.
        body: The body.
    """

    method: str
    scheme: str
    host: str
    port: int
    path: str
    query: list[str] = field(default_factory=list)
    headers: list[tuple[str, str]] = field(default_factory=list)
    cookies: list[str] = field(default_factory=list)
    body: bytes = b""

    @classmethod
    def of(cls, request: HTTPRequest) -> RequestDraft:
        """The parts of a finished request, to change it."""
        path, _mark, query = request.target.partition("?")
        headers = [header for header in request.headers if header[0].lower() != "cookie"]
        cookies = [value for name, value in request.headers if name.lower() == "cookie"]
        return cls(
            *request[:4],
            path,
            query.split("&") if query else [],
            headers,
            [piece.strip() for value in cookies for piece in value.split(";")],
            request.body,
        )

    def __repr__(self) -> str:
        return f"RequestDraft({self.method} {self.origin}{self.path})"

    @property
    def origin(self) -> str:
        """The origin of the request."""
        return origin_of(self.scheme, self.host, self.port)

    def copied(self) -> RequestDraft:
        """An independent copy."""
        return replace(
            self,
            query=[*self.query],
            headers=[*self.headers],
            cookies=[*self.cookies],
        )

    def finished(self) -> HTTPRequest:
        """The request as sent."""
        headers = self.headers
        # RFC 6265 section 5.4: one `Cookie` header, however many cookies there are.
        if self.cookies:
            headers = [*headers, ("Cookie", "; ".join(self.cookies))]
        target = f"{self.path}?{'&'.join(self.query)}" if self.query else self.path
        return HTTPRequest(self.method, self.scheme, self.host, self.port, target, tuple(headers), self.body)

    def add_query(self, name: str, value: str) -> None:
        """Append a query parameter; name and value are percent-encoded."""
        self.query.append(f"{quote(name, safe='')}={quote(value, safe='')}")

    def set_query(self, name: str, value: str) -> None:
        """Set a query parameter, replacing all of the same name."""
        start = f"{quote(name, safe='')}="
        self.query = [piece for piece in self.query if not piece.startswith(start)]
        self.add_query(name, value)
