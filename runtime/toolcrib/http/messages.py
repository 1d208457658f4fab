"""Requests, while they are built and as they are sent; responses; the bounds of an exchange, and how it fails."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import quote, urlsplit

KIB = 1024


class HTTPRequest(NamedTuple):
    """A request, encoded for the wire. Its `repr` shows method, origin and path: the rest may be secret.

    Attributes:
        method: In upper case.
        scheme: `http` or `https`.
        host: As the `Host` header and TLS name it: lower case, without brackets or port.
        port: The port that is dialled.
        target: Path and query, percent-encoded, beginning with `/`.
        headers: (name, value) in order, without `Host`, `Content-Length` and `Accept-Encoding`, which the client writes.
        body: What is sent; empty for none.
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
        """`https://api.example.com`, with the port where it is not the scheme's own."""
        return origin_of(self.scheme, self.host, self.port)

    @property
    def url(self) -> str:
        """The whole address."""
        return self.origin + self.target


DEFAULT_PORTS = {"http": 80, "https": 443}

HOST = re.compile(r"[a-z0-9_.-]{1,253}|[0-9a-f:.]{2,45}")
"""A host as it is sent: a name, or an address without brackets, in lower case."""


def origin_of(scheme: str, host: str, port: int) -> str:
    """An origin as text (RFC 6454 section 6.2)."""
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}" if DEFAULT_PORTS.get(scheme) == port else f"{scheme}://{shown}:{port}"


def parse_origin(text: str) -> tuple[str, str, int]:
    """Scheme, host in lower case and without brackets, and port of an origin.

    Raises:
        ValueError: The text is no origin: it has another scheme, no host, or something behind it.
    """
    parts = urlsplit(text)
    host, port = parts.hostname, parts.port
    bare = not (parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme not in DEFAULT_PORTS or not host or not bare or any(each.isspace() for each in text):
        raise ValueError(f"`{text}` is not a valid origin")
    return parts.scheme, host, DEFAULT_PORTS[parts.scheme] if port is None else port


class HTTPResponse(NamedTuple):
    """A whole answer.

    Attributes:
        status: The final status code.
        headers: (name in lower case, value) in order; values read as latin-1.
        body: What was sent, its content coding undone.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        """The value of a header, named in lower case; several are joined by `, ` (RFC 9110 section 5.2)."""
        values = [value for each, value in self.headers if each == name]
        return ", ".join(values) if values else None


class ExchangeBounds(NamedTuple):
    """What an exchange may take.

    Attributes:
        connect: Seconds for look-up, connection and TLS together.
        read: Seconds of silence.
        body: Bytes of the body, before and after its coding is undone.
        headers: Bytes of everything before the body, interim answers included.
    """

    connect: float = 5.0
    read: float = 15.0
    body: int = 8 * KIB * KIB
    headers: int = 64 * KIB


class HTTPFailure(StrEnum):
    """How an exchange fails: the stable code that a result carries."""

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
    """An exchange failed. Its text holds nothing of headers, query or body.

    Attributes:
        fault: How.
        sent: Whether any of the request may have reached the server.
    """

    def __init__(self, fault: HTTPFailure, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.fault = fault
        self.message = message
        self.sent = sent


def client_closed() -> HTTPError:
    """Nothing is sent any more."""
    return HTTPError(HTTPFailure.CONNECT_FAILED, "the runtime is closed", sent=False)


def bad_response(what: str) -> HTTPError:
    """The error of an answer that is no HTTP as it should be."""
    return HTTPError(HTTPFailure.BAD_RESPONSE, f"the server's response is not valid HTTP: {what}", sent=True)


def connection_broken() -> HTTPError:
    """The error of a connection that ended too early."""
    message = "the connection closed before the response was complete"
    return HTTPError(HTTPFailure.CONNECTION_BROKEN, message, sent=True)


@dataclass(slots=True, repr=False)
class RequestDraft:
    """The parts of a request, each in its own encoding already. Its `repr` shows method, origin and path.

    Attributes:
        method: In upper case.
        scheme: `http` or `https`.
        host: Lower case, without brackets.
        port: The port.
        path: Percent-encoded, beginning with `/`.
        query: Percent-encoded `name=value` pieces, in order.
        headers: (name, value) in order; names as they were written.
        cookies: `name=value` pieces, in order.
        body: What is sent.
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
        """The parts of a request that is finished, to be changed and finished again."""
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
        """Where it goes."""
        return origin_of(self.scheme, self.host, self.port)

    def copied(self) -> RequestDraft:
        """A draft of its own with the same parts."""
        return replace(
            self,
            query=[*self.query],
            headers=[*self.headers],
            cookies=[*self.cookies],
        )

    def finished(self) -> HTTPRequest:
        """The request as it is sent."""
        headers = self.headers
        if self.cookies:
            headers = [*headers, ("Cookie", "; ".join(self.cookies))]
        target = f"{self.path}?{'&'.join(self.query)}" if self.query else self.path
        return HTTPRequest(self.method, self.scheme, self.host, self.port, target, tuple(headers), self.body)

    def add_query(self, name: str, value: str) -> None:
        """Add a parameter, encoded so that it stays one."""
        self.query.append(f"{quote(name, safe='')}={quote(value, safe='')}")

    def set_query(self, name: str, value: str) -> None:
        """Put a parameter in place of those of the same name."""
        start = f"{quote(name, safe='')}="
        self.query = [piece for piece in self.query if not piece.startswith(start)]
        self.add_query(name, value)
