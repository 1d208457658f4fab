"""Recorded HTTP requests, as importers of recordings pass them on, and how their parts are understood.

A sample is one request, with its response if that was recorded: a curl command, an entry of a HAR file, a request of a
Postman collection.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from email import message_from_bytes
from email.policy import HTTP
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote, unquote_plus

from toolcrib.core.model import JSON
from toolcrib.core.text import decode_json

_OPEN, _CLOSE = "\ue000", "\ue001"
"""Characters for private use, which mark a variable of the source in a text."""

VARIABLE: Final = re.compile(f"{_OPEN}([^{_CLOSE}]*){_CLOSE}")
"""The mark of a variable; its group is the name."""


def variable(name: str) -> str:
    """The mark of a variable of the source without a known value, such as `$TOKEN` of a shell."""
    return f"{_OPEN}{name}{_CLOSE}"


def damage(error: Exception) -> str:
    """What is wrong with a part of a source whose reading failed."""
    return f"`{error.args[0]}` is missing" if isinstance(error, KeyError) else "a member has the wrong type"


class HttpField(NamedTuple):
    """A field of a form.

    Attributes:
        name: Its name.
        value: Its text; None if it was not recorded.
        is_file: Whether it is a file.
        file_name: Name of the file.
        content_type: Media type of the field; empty if none was given.
    """

    name: str
    value: str | None
    is_file: bool = False
    file_name: str = ""
    content_type: str = ""


class HttpBody(NamedTuple):
    """A body of a request.

    Attributes:
        content_type: The header; empty if there is none.
        text: The text; None if it was not recorded.
        fields: The fields of a form, if they were recorded as such.
    """

    content_type: str
    text: str | None = None
    fields: Sequence[HttpField] | None = None


class HttpAnswer(NamedTuple):
    """A response.

    Attributes:
        status: Its status.
        content_type: The header; empty if there is none.
        text: The body; None if it was not recorded or is binary.
    """

    status: int
    content_type: str
    text: str | None


class HttpSample(NamedTuple):
    """A request, and its response if that was recorded. Texts may contain the marks of `variable`.

    Attributes:
        pointer: JSON Pointer of the sample in its source.
        method: The method in upper case.
        url: The URL with its query.
        headers: The headers in their order, without cookies.
        query: Query parameters in addition to those of the URL.
        cookies: The cookies.
        body: The body, if there is one.
        answer: The response.
        auth: Schemes of `live.auth` that the source describes as such, with their secrets as recorded.
        path_values: Values of placeholders of the path, such as `{id}` and `:id`.
        optional_query: Parameters that the source describes and does not send.
        descriptions: Name of a parameter, field or placeholder -> its description.
    """

    pointer: str
    method: str
    url: str
    headers: Sequence[tuple[str, str]] = ()
    query: Sequence[tuple[str, str]] = ()
    cookies: Sequence[tuple[str, str]] = ()
    body: HttpBody | None = None
    answer: HttpAnswer | None = None
    auth: Sequence[Mapping[str, JSON]] = ()
    path_values: Mapping[str, str] = MappingProxyType({})
    optional_query: Sequence[tuple[str, str]] = ()
    descriptions: Mapping[str, str] = MappingProxyType({})


class Unconvertible(Exception):
    """A sample that has no descriptor; see `ImportRefusal`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(?:\?([^#]*))?")


class UrlParts(NamedTuple):
    """A URL.

    Attributes:
        origin: Scheme, host and port, or the mark of a variable.
        path: The path with its first slash, as written.
        query: The parameters; the value is None without `=`.
    """

    origin: str
    path: str
    query: tuple[tuple[str, str | None], ...]


def split_url(url: str) -> UrlParts:
    """Split a URL.

    Raises:
        Unconvertible: It is not a URL of HTTP.
    """
    address, _, _fragment = url.partition("#")
    if address.startswith(_OPEN):
        origin, _, rest = address.partition(_CLOSE)
        path, _, query = rest.partition("?")
        host = ""
        if not path.startswith("/") and path:
            # What follows a variable up to the path belongs to the origin: `$SCHEME://host`, `$HOST:8080`.
            end = path.find("/", 3 if path.startswith("://") else 0)
            host, path = (path, "") if end < 0 else (path[:end], path[end:])
        return UrlParts(origin + _CLOSE + host, path or "/", _parameters(query))
    match = _URL.match(address)
    if match is None:
        raise Unconvertible("invalid_url", f"`{_shown(url)}` is not a URL with a scheme and a host")
    scheme, host, path, query = match.groups()
    if scheme.lower() not in {"http", "https"}:
        raise Unconvertible("scheme", f"a request with the scheme `{scheme}` is not one of HTTP")
    host = host.rpartition("@")[2]
    if not host:
        raise Unconvertible("invalid_url", f"`{_shown(url)}` has no host")
    return UrlParts(f"{scheme.lower()}://{host.lower()}", path or "/", _parameters(query or ""))


def credentials_of(url: str) -> tuple[str, str] | None:
    """User and password in a URL (`https://user:password@host/`)."""
    match = _URL.match(url)
    user, at, _host = match[2].rpartition("@") if match is not None else ("", "", "")
    if not at:
        return None
    name, _, password = user.partition(":")
    return unquote(name), unquote(password)


def _parameters(query: str) -> tuple[tuple[str, str | None], ...]:
    found: list[tuple[str, str | None]] = []
    for part in query.split("&"):
        name, equals, value = part.partition("=")
        if name or equals:
            found.append((unquote_plus(name), unquote_plus(value) if equals else None))
    return tuple(found)


def _shown(url: str) -> str:
    # A URL may contain credentials in any part but the path.
    return VARIABLE.sub(r"${\1}", url).partition("?")[0].rpartition("@")[2][:80]


class BodyContent(NamedTuple):
    """A body as it is understood.

    Attributes:
        kind: `json`, `form`, `multipart`, `text`, or empty for none.
        value: JSON value, list of fields, or text (None: not recorded).
        content_type: The header.
    """

    kind: str
    value: Any = None
    content_type: str = ""


ABSENT: Final = object()
"""The value of a part that a sample does not have."""

_FORM: Final = "application/x-www-form-urlencoded"


def content_of(body: HttpBody | None) -> BodyContent:
    """A body as it is understood."""
    if body is None or (body.fields is None and body.text == ""):
        return BodyContent("")
    essence = body.content_type.partition(";")[0].strip().lower()
    if essence == _FORM:
        fields = body.fields
        if fields is None and body.text is not None and "=" in body.text:
            pairs = parse_qsl(body.text, keep_blank_values=True, max_num_fields=10_000)
            fields = [HttpField(name, value) for name, value in pairs]
        if fields is not None:
            return BodyContent("form", fields, body.content_type)
    if essence.startswith("multipart/"):
        fields = body.fields if body.fields is not None else _parts_of(body)
        if fields:
            return BodyContent("multipart", fields, body.content_type)
    if body.text is not None and (essence.endswith(("/json", "+json")) or not essence):
        try:
            return BodyContent("json", decode_json(body.text), body.content_type)
        except (ValueError, RecursionError):
            pass
    return BodyContent("text", body.text, body.content_type)


def _parts_of(body: HttpBody) -> list[HttpField]:
    """The fields of a multipart body that was recorded as text."""
    if body.text is None:
        return []
    head = f"Content-Type: {body.content_type}\r\n\r\n".encode("utf-8", "replace")
    message = message_from_bytes(head + body.text.encode("utf-8", "replace"), policy=HTTP)
    fields = []
    for part in message.iter_parts() if message.is_multipart() else ():
        name = part.get_param("name", header="content-disposition")
        file = part.get_filename()
        if isinstance(name, str):
            text = None if file is not None else str(part.get_payload())
            kind = part.get_content_type() if "content-type" in part else ""
            fields.append(HttpField(name, text, file is not None, file or "", kind))
    return fields


def is_graphql(value: Mapping[str, JSON]) -> bool:
    """Whether a JSON body is a request of GraphQL."""
    query, variables = value.get("query"), value.get("variables")
    return (
        isinstance(query, str)
        and re.match(r"\s*(#.*\s*)*(query\b|mutation\b|subscription\b|fragment\b|\{)", query) is not None
        and "{" in query
        and (variables is None or isinstance(variables, dict))
    )


def value_of(answer: HttpAnswer) -> Any:
    """The value that `live` makes of a response; `ABSENT` if it was not recorded."""
    essence = answer.content_type.partition(";")[0].strip().lower()
    if answer.status in {204, 205}:
        return None
    if answer.text is None:
        return ABSENT
    if essence.endswith(("/json", "+json")):
        try:
            return decode_json(answer.text) if answer.text.strip() else None
        except (ValueError, RecursionError):
            return ABSENT
    if not answer.text:
        return None
    return answer.text if essence.startswith("text/") or essence.endswith(("/xml", "+xml")) else ABSENT


_QUOTED: Final = re.compile('"(?:[^"\\\\]|\\\\.)*"|\ue000[^\ue001]*\ue001', re.DOTALL)


def json_with_variables(text: str) -> str:
    """JSON in which the variables outside of strings are strings."""
    return _QUOTED.sub(lambda match: f'"{match[0]}"' if match[0][0] == "\ue000" else match[0], text)
