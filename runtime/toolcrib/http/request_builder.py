"""A request that is not finished: what the block, the authentication and the pages of a call add to it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from urllib.parse import quote

from toolcrib.http import Request
from toolcrib.http.messages import origin_of


@dataclass(slots=True, repr=False)
class Draft:
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
    def of(cls, request: Request) -> Draft:
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
        return f"Draft({self.method} {self.origin}{self.path})"

    @property
    def origin(self) -> str:
        """Where it goes."""
        return origin_of(self.scheme, self.host, self.port)

    def copied(self) -> Draft:
        """A draft of its own with the same parts."""
        return replace(
            self,
            query=[*self.query],
            headers=[*self.headers],
            cookies=[*self.cookies],
        )

    def finished(self) -> Request:
        """The request as it is sent."""
        headers = self.headers
        if self.cookies:
            headers = [*headers, ("Cookie", "; ".join(self.cookies))]
        target = f"{self.path}?{'&'.join(self.query)}" if self.query else self.path
        return Request(self.method, self.scheme, self.host, self.port, target, tuple(headers), self.body)

    def add_query(self, name: str, value: str) -> None:
        """Add a parameter, encoded so that it stays one."""
        self.query.append(f"{quote(name, safe='')}={quote(value, safe='')}")

    def set_query(self, name: str, value: str) -> None:
        """Put a parameter in place of those of the same name."""
        start = f"{quote(name, safe='')}="
        self.query = [piece for piece in self.query if not piece.startswith(start)]
        self.add_query(name, value)
