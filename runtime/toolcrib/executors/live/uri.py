"""URLs and their parameters: compile the `url` of a block, and encode values for every part of a request.

A `url` has a fixed origin, a path with expressions or `{name}`s in its segments and a query with expressions in its
values. A parameter is a text, a list, or `{value, style, explode}`. Every value is encoded for its position,
also in headers and cookies, so that an argument can never change the structure of the request.

Lists and objects are serialized by the styles of OpenAPI 3.1 ("Style Values", "Style Examples").
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, cast
from urllib.parse import quote, unquote, unquote_plus

from toolcrib.core.model import JSON, NOTHING
from toolcrib.core.subschemas import described_names
from toolcrib.executors.live.value_sources import (
    ABSENT,
    Arguments,
    Piece,
    RequestPart,
    ValueSource,
    ValueSources,
    child_pointer,
    interpolated_text,
    json_text,
    kind_of,
    missing_value_error,
    property_schema,
    scalar_text,
)
from toolcrib.expressions.expression import ExpressionBody
from toolcrib.http.headers import COOKIE_SAFE, header_fault
from toolcrib.http.messages import DEFAULT_PORTS
from toolcrib.schema.validation.violations import UnusableArguments
from toolcrib.security.egress import read_host
from toolcrib.security.redaction import is_secret_name, secret_part
from toolcrib.security.secrets import SecretVariable

Write: TypeAlias = Callable[[Arguments, list[str]], None]
"""Adds the `name=value` pieces of one parameter; raises UnusableArguments."""

StyleName: TypeAlias = Literal[
    "form", "spaceDelimited", "pipeDelimited", "tabDelimited", "deepObject", "json"
]

_DELIMITERS: Final = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C", "tabDelimited": "%09"}
_DELIMITED_BY: Final = {"spaceDelimited": " ", "pipeDelimited": "|", "tabDelimited": "\t"}

_PLAIN_SEGMENT: Final = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9_.~-]*")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


# Values, encoded for their position.


class ParameterStyle(NamedTuple):
    """How lists and objects are serialized.

    Attributes:
        name: The OpenAPI name of the style.
        explode: Whether each member is a parameter of its own.
        objects: Whether objects are accepted, which requires a style in the descriptor: their keys, chosen by
            the caller, may become parameter names.
        taken: Parameter names that the descriptor sets, and that no key of an object may overwrite.
    """

    name: StyleName = "form"
    explode: bool = True
    objects: bool = False
    taken: Collection[str] = ()


def quote_value(text: str, source: ValueSource) -> str:
    """A text percent-encoded so completely that it is a single token in any part of a URL.

    Raises:
        UnusableArguments: The text contains a lone surrogate.
    """
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise source.misfit("contains a lone surrogate, which cannot be sent") from None


def write_parameter(name: str, source: ValueSource, style: ParameterStyle) -> Write:
    """The function that writes a query or form parameter. It omits an absent argument, null, and an empty list."""
    lead, read = f"{quote(name, safe='')}=", source.read
    if style.name == "json":
        return _json_parameter(lead, source)

    def write(arguments: Arguments, out: list[str]) -> None:
        value = read(arguments)
        if isinstance(value, str):
            out.append(lead + quote_value(value, source))
        elif value is not ABSENT and value is not None:
            write_value(lead, value, source, style, out)

    return write


def _json_parameter(lead: str, source: ValueSource) -> Write:
    """The function that writes a value as JSON text, as OpenAPI's `content` of a parameter means it."""

    def write(arguments: Arguments, out: list[str]) -> None:
        value = source.read(arguments)
        if value is not ABSENT and value is not None:
            out.append(lead + quote_value(json_text(value, source), source))

    return write


def write_value(lead: str, value: JSON, source: ValueSource, style: ParameterStyle, out: list[str]) -> None:
    """Write a value that is neither absent nor null; `lead` is the encoded name with `=`.

    Raises:
        UnusableArguments: The style cannot serialize the value.
    """
    text = scalar_text(value)
    if text is not None:
        out.append(lead + quote_value(text, source))
    elif isinstance(value, list):
        _write_list(lead, value, source, style, out)
    else:
        _write_object(lead, cast("dict[str, JSON]", value), source, style, out)


def _write_list(
    lead: str, value: list[JSON], source: ValueSource, style: ParameterStyle, out: list[str]
) -> None:
    if style.name == "deepObject":
        _write_deep(lead[:-1], _indexed(value), source, style, out)
        return
    items = [_item(item, source, style) for item in value if item is not None]
    if style.explode:
        out += [lead + item for item in items]
    elif items:
        out.append(lead + _DELIMITERS[style.name].join(items))


def _item(value: JSON, source: ValueSource, style: ParameterStyle) -> str:
    text = scalar_text(value)
    if text is None:
        why = f"contains {kind_of(value)}, which style `{style.name}` cannot encode"
        raise source.misfit(why, "provide a flat list or object")
    # Servers decode `%20` and `%7C` before they split: encoding cannot protect a delimiter within an item.
    delimiter = _DELIMITED_BY.get(style.name)
    if delimiter is not None and delimiter in text:
        why = f"contains `{delimiter}` in an item, which would split it in two"
        raise source.misfit(why, "remove the character")
    return quote_value(text, source)


def _write_object(
    lead: str, value: dict[str, JSON], source: ValueSource, style: ParameterStyle, out: list[str]
) -> None:
    if not style.objects:
        hint = "set a style for objects in the descriptor: `{value: ..., style: deepObject}` or `style: form`"
        raise source.misfit("is an object, but a parameter needs a single value or a list", hint)
    if style.name == "deepObject":
        _write_deep(lead[:-1], value, source, style, out)
        return
    members = [(key, _item(item, source, style)) for key, item in value.items() if item is not None]
    if not style.explode:
        items = [piece for key, item in members for piece in (_item(key, source, style), item)]
        if items:
            out.append(lead + _DELIMITERS[style.name].join(items))
        return
    # With `form` and `explode`, keys become parameters: a caller must not add a second `api_key`.
    for key, item in members:
        if key in style.taken:
            raise source.misfit(f"has a key `{key}`, which the descriptor already sets", "remove the key")
        out.append(f"{quote_value(key, source)}={item}")


def _write_deep(
    name: str, value: dict[str, JSON], source: ValueSource, style: ParameterStyle, out: list[str]
) -> None:
    # Servers decode brackets, too: the key `a][admin` would set another member.
    for key, item in value.items():
        if "[" in key or "]" in key:
            raise source.misfit("has a key with a bracket, which would address another key", "remove the key")
        inner = f"{name}%5B{quote_value(key, source)}%5D"
        if isinstance(item, dict | list):
            members = _indexed(item) if isinstance(item, list) else item
            _write_deep(inner, members, source, style, out)
        elif item is not None:
            out.append(f"{inner}={_item(item, source, style)}")


def _indexed(value: list[JSON]) -> dict[str, JSON]:
    """A list as an object of its indexes: OpenAPI does not define lists here, and servers agree on `name[0]=`."""
    return {str(index): item for index, item in enumerate(each for each in value if each is not None)}


class PathStyle(NamedTuple):
    """How a value is written into a path segment.

    Attributes:
        name: The name of the parameter, which style `matrix` writes.
        style: `simple`, `label`, `matrix` or `json`.
        explode: Whether each item or key is written on its own.
    """

    name: str
    style: str
    explode: bool


def styled_segment_text(source: ValueSource, style: PathStyle, arguments: Arguments) -> str:
    """A value encoded for a path segment in one of OpenAPI's styles for paths.

    Raises:
        UnusableArguments: As for `segment_text`, but objects are accepted.
    """
    value = source.read(arguments)
    if value is ABSENT or value is None:
        raise missing_value_error(source, value)
    if style.style == "json":
        return quote_value(json_text(value, source), source)
    if isinstance(value, dict | list) and not value:
        raise source.misfit("is empty, but the URL path needs a value")
    lead, between, named = {
        "simple": ("", ",", ""),
        "label": (".", "." if style.explode else ",", ""),
        "matrix": (";", ";" if style.explode else ",", f"{quote(style.name, safe='')}="),
    }[style.style]
    if isinstance(value, dict):
        pairs = [
            (_within_segment(key, source), _within_segment(item, source))
            for key, item in value.items()
            if item is not None
        ]
        if style.explode:
            return lead + between.join([f"{key}={item}" for key, item in pairs])
        return lead + named + between.join([piece for pair in pairs for piece in pair])
    items = [_within_segment(item, source) for item in (value if isinstance(value, list) else [value])]
    if style.explode:
        return lead + between.join([named + item for item in items])
    return lead + named + between.join(items)


def segment_text(source: ValueSource, arguments: Arguments) -> str:
    """A value encoded for a path segment; a list is comma-separated (style `simple`).

    Raises:
        UnusableArguments: The value is absent, null, an object, an empty list or a list of anything but
            scalars, or it contains control characters.
    """
    if source.write is not None:
        return source.write(arguments)
    value = source.read(arguments)
    if value is ABSENT or value is None:
        raise missing_value_error(source, value)
    if not isinstance(value, list):
        return _within_segment(value, source)
    if not value:
        raise source.misfit("is an empty list, but the URL path needs a value")
    return ",".join([_within_segment(item, source) for item in value])


def _within_segment(value: JSON, source: ValueSource) -> str:
    text = scalar_text(value)
    if text is None:
        raise source.misfit(f"is or contains {kind_of(value)}, which is not allowed in a URL path")
    if _PLAIN_SEGMENT.fullmatch(text) is not None:
        return text
    if _CONTROL.search(text) is not None:
        raise source.misfit("contains a control character, which is not allowed in a URL path")
    return quote_value(text, source)


def check_segment(segment: str, source: ValueSource) -> str:
    """An encoded path segment, after checking that it cannot change the path.

    Raises:
        UnusableArguments: The segment is empty, or would be read as `.` or `..`.
    """
    if _PLAIN_SEGMENT.fullmatch(segment) is not None:
        return segment
    if not segment:
        raise source.misfit("is empty, but a path segment needs a value", "provide a value")
    if has_dot_segment(segment):
        raise source.misfit("contains a `.` or `..` segment, which would change the path")
    return segment


def has_dot_segment(segment: str) -> bool:
    """Whether an encoded path segment contains `.` or `..` in any interpretation."""
    # Servers and proxies may decode a segment before they resolve `.` and `..` (RFC 3986 section 5.2.4),
    # treat a backslash or an encoded slash as a slash, and cut path parameters after `;`.
    steps = re.split(r"[/\\]", unquote(segment))
    return any(step.partition(";")[0] in (".", "..") for step in steps)


def styled_header_text(source: ValueSource, style: str, arguments: Arguments, *, explode: bool) -> str | None:
    """The value of a header in style `simple` or `json`; None to omit the header.

    Raises:
        UnusableArguments: As for `header_text`, but objects are accepted.
    """
    value = source.read(arguments)
    if value is ABSENT or value is None:
        return None
    if style == "json":
        return _clean(_ascii_json(value, source), source)
    if not isinstance(value, dict):
        return header_text(source, arguments)
    pairs = [
        (_header_item(key, source), _header_item(item, source))
        for key, item in value.items()
        if item is not None
    ]
    if any("=" in key for key, _item in pairs):
        raise source.misfit("has a key with `=`, which would split it in two")
    pieces = (
        [f"{key}={item}" for key, item in pairs] if explode else [piece for pair in pairs for piece in pair]
    )
    return _clean(",".join(pieces), source) if pieces else None


def _ascii_json(value: JSON, source: ValueSource) -> str:
    # JSON escapes keep characters outside Latin-1, which a header cannot contain.
    text = json_text(value, source)
    return text if text.isascii() else json.dumps(value, separators=(",", ":"))


def styled_cookie_text(source: ValueSource, style: str, arguments: Arguments) -> str | None:
    """The value of a cookie in style `form` or `json`; None to omit the cookie.

    Raises:
        UnusableArguments: The value contains a list or an object within another.
    """
    value = source.read(arguments)
    if value is ABSENT or value is None:
        return None
    if style == "json":
        return _encoded_for_cookie(json_text(value, source), source)
    if isinstance(value, dict):
        value = [piece for key, item in value.items() if item is not None for piece in (key, item)]
    if not isinstance(value, list):
        return _encoded_for_cookie(value, source)
    # RFC 6265, 4.1.1: a comma is not allowed in a cookie. Servers decode `%2C`.
    return "%2C".join([_encoded_for_cookie(item, source) for item in value if item is not None]) or None


def header_text(source: ValueSource, arguments: Arguments) -> str | None:
    """The value of a header without surrounding whitespace; a list is comma-separated; None to omit the header.

    Raises:
        UnusableArguments: The value is an object, or contains characters that are not allowed in a header
            (RFC 9110 section 5.5).
    """
    value = source.read(arguments)
    if value is ABSENT or value is None:
        return None
    if isinstance(value, list):
        text = ", ".join([_header_item(item, source) for item in value if item is not None])
        return _clean(text, source) if text else None
    return _clean(_header_scalar(value, source), source)


def _header_scalar(value: JSON, source: ValueSource) -> str:
    text = scalar_text(value)
    if text is None:
        raise source.misfit(f"is or contains {kind_of(value)}, which is not allowed in a header")
    return text


def _header_item(value: JSON, source: ValueSource) -> str:
    text = _header_scalar(value, source)
    if "," in text:
        raise source.misfit("contains a comma in an item, which would split it in two")
    return text


def _clean(text: str, source: ValueSource) -> str:
    text = text.strip(" \t")
    wrong = header_fault(text)
    if wrong:
        raise source.misfit(wrong, "remove the character")
    return text


def cookie_text(source: ValueSource, arguments: Arguments) -> str | None:
    """The value of a cookie, with arguments percent-encoded and literal parts unchanged; None to omit the cookie.

    Raises:
        UnusableArguments: An argument is a list or object.
    """
    if source.parts:
        return "".join(
            [part if isinstance(part, str) else _cookie_part(part, arguments) for part in source.parts]
        )
    value = source.read(arguments)
    return None if value is ABSENT or value is None else _encoded_for_cookie(value, source)


def _cookie_part(source: ValueSource, arguments: Arguments) -> str:
    text = interpolated_text(source, arguments)
    return text if source.constant else _encoded_for_cookie(text, source)


def _encoded_for_cookie(value: JSON, source: ValueSource) -> str:
    text = scalar_text(value)
    if text is None:
        raise source.misfit(f"is {kind_of(value)}, but a cookie needs a single value")
    try:
        return quote(text, safe=COOKIE_SAFE)
    except UnicodeEncodeError:
        raise source.misfit("contains a lone surrogate, which cannot be sent") from None


# The `url` of a block.

POINTER: Final = "/live/url"

Make: TypeAlias = Callable[[Arguments], str]

_SHAPE: Final = re.compile(r"([^:/?#]*)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?", re.DOTALL)
_MARK: Final = re.compile("\0([0-9]+)\0")
_NAMED: Final = re.compile(r"\{([^{}]*)\}")
_UNFIT: Final = re.compile(r"[\x00-\x20\x7f-\xa0\\{}]")
_PORT: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?", re.ASCII)
_BARE_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_KEPT: Final = "%/:@!$&'()*+,;=?[]"
"""The characters that a literal part keeps (RFC 3986 sections 3.3 and 3.4), in addition to unreserved ones."""


class Parameter(NamedTuple):
    """A query parameter in the `url`.

    Attributes:
        name: The decoded name.
        write: Writes the parameter.
        reads: The arguments that it reads.
    """

    name: str
    write: Write
    reads: tuple[str, ...] = ()


class PathSegment(NamedTuple):
    """A path segment with an expression: the segment as written, and the arguments that it reads."""

    written: str
    reads: tuple[str, ...]


class Url(NamedTuple):
    """A compiled URL.

    Attributes:
        scheme: `http` or `https`.
        host: The host in lower case, without brackets.
        port: The port.
        path: Computes the percent-encoded path.
        segments: The segments with expressions.
        query: The parameters in its query.
    """

    scheme: str
    host: str
    port: int
    path: Make
    segments: tuple[PathSegment, ...] = ()
    query: tuple[Parameter, ...] = ()


NOWHERE: Final = Url("https", "invalid", 443, lambda _arguments: "/")
"""The placeholder for a URL with problems. The host `invalid` never resolves (RFC 2606)."""


def compile_url(text: str, sources: ValueSources, styled: Mapping[str, Any] = NOTHING) -> Url:
    """Compile a `url`; `NOWHERE` if it has problems, which are reported.

    Args:
        text: The `url`.
        sources: Compiles its values.
        styled: The `path` of the block: name -> the value that replaces `{name}`.

    Raises:
        MissingSecret: A variable is not set.
    """
    before = len(sources.problems)
    pieces = sources.split(text, POINTER)
    if len(sources.problems) > before:
        return NOWHERE
    # The URL is split with marks in place of all computed parts, so that no value can act as a separator.
    skeleton, marked = _Skeleton(sources, styled).of(pieces)
    if len(sources.problems) > before:
        return NOWHERE
    match = _SHAPE.fullmatch(skeleton)
    if match is None:
        _refuse_shape(skeleton, text, sources)
        return NOWHERE
    scheme, authority, path, query, fragment = match.groups()
    origin = _origin(scheme, authority, sources)
    if fragment is not None:
        sources.tell("invalid_url", "a fragment (`#...`) is never sent", POINTER, "remove it")
    make, segments = _path(path or "/", marked, sources)
    parameters = tuple(_parameters(query or "", marked, sources))
    if origin is None or any(problem.severity == "error" for problem in sources.problems[before:]):
        return NOWHERE
    return Url(*origin, make, segments, parameters)


class _Placeholder(NamedTuple):
    """The value behind a mark of the skeleton: its source, its text in the document, and its style if it has one."""

    source: ValueSource
    written: str
    style: PathStyle | None = None


class _Skeleton:
    """The URL as one text, with a mark in place of every computed value."""

    def __init__(self, sources: ValueSources, styled: Mapping[str, Any]) -> None:
        self._sources = sources
        self._styled = styled
        self._unused = dict.fromkeys(styled)
        self._marked: list[_Placeholder] = []
        self._text = ""

    def of(self, pieces: list[Piece]) -> tuple[str, list[_Placeholder]]:
        """The text, and the values behind its marks."""
        # Before the `?`, variables are inserted: they may hold the base URL. In the query they are values.
        for place, piece in enumerate(pieces):
            if isinstance(piece, ExpressionBody):
                self._mark(self._sources.source(piece, POINTER), f"{{{{{piece.source}}}}}")
            elif isinstance(piece, str):
                self._literal(piece)
            elif "?" in self._text:
                self._mark(self._sources.source(piece, POINTER), piece.text)
            else:
                self._variable(piece, pieces[place + 1 :])
        for name in self._unused:
            message = f"`url` has no `{{{name}}}` in its path"
            hint = f"write `{{{name}}}` there, or remove the value"
            self._sources.tell("invalid_url", message, child_pointer("/live/path", name), hint)
        return self._text, self._marked

    def _mark(self, source: ValueSource, written: str, style: PathStyle | None = None) -> None:
        self._text += f"\0{len(self._marked)}\0"
        self._marked.append(_Placeholder(source, written, style))

    def _literal(self, text: str) -> None:
        last = 0
        for match in _NAMED.finditer(text) if self._styled else ():
            if match[1] in self._styled and "?" not in self._text + text[: match.start()]:
                self._plain(text[last : match.start()])
                self._named(match[1])
                last = match.end()
        self._plain(text[last:])

    def _named(self, name: str) -> None:
        """Insert a value of `path`."""
        value, at = self._styled[name], child_pointer("/live/path", name)
        source = self._sources.structure(value["value"], child_pointer(at, "value"))
        style = PathStyle(name, value["style"], value.get("explode", False))
        if style.style == "json" and "explode" in value:
            message = "style `json` does not support `explode`"
            self._sources.tell("wrong_style", message, child_pointer(at, "explode"), "remove it")
        self._unused.pop(name, None)
        self._mark(source, f"{{{name}}}", style)

    def _plain(self, text: str) -> None:
        unfit = _UNFIT.search(text)
        if unfit is None:
            self._text += text
            return
        if unfit[0] in "{}":
            message, hint = (
                "contains a brace",
                "write an argument as `{{ args.name }}`, a literal brace as `%7B` or `%7D`",
            )
        else:
            message, hint = (
                "contains a space, a backslash or a control character",
                "percent-encode it: `%20`, `%5C` ...",
            )
        self._sources.tell("invalid_url", f"`url` {message}", POINTER, hint)

    def _variable(self, variable: SecretVariable, after: list[Piece]) -> None:
        """Insert the value of a variable, which may contain several parts of the URL."""
        value = self._sources.looked_up(variable, POINTER, secret=False)
        if variable.default is None and not self._sources.looks_up:
            value = _stand_in(self._text, after)
        if value != variable.default:
            named = variable.source == "keyring" or is_secret_name(variable.name)
            self._sources.hide(secret_part(self._text, value, whole=named))
        if _UNFIT.search(value) is not None or "?" in value or "#" in value:
            message = f"the value of `{variable.text}` cannot be part of the URL: it contains a space, a brace, `?`, `#` or a similar character"
            hint = "use it for scheme, host, port and path only; write the query after it"
            self._sources.tell("invalid_url", message, POINTER, hint)
            return
        # `${BASE_URL}/v1` works for a base URL with and without a trailing slash.
        if value.endswith("/") and after and isinstance(after[0], str) and after[0].startswith("/"):
            value = value.removesuffix("/")
        self._text += value


def _stand_in(before: str, after: list[Piece]) -> str:
    """A plausible text for a variable that is not resolved yet, so that the URL can be checked."""
    if before:
        return "443" if before.endswith(":") else "variable"
    follows = after[0] if after and isinstance(after[0], str) else ""
    return "https" if follows.startswith("://") else "https://variable.invalid"


def _refuse_shape(skeleton: str, written: str, sources: ValueSources) -> None:
    if skeleton.startswith("\0"):
        _refuse_computed_origin(sources)
        return
    message = f"`{written}` is not an absolute URL" if len(written) < 200 else "not an absolute URL"
    sources.tell("invalid_url", message, POINTER, "write `https://host/path`")


def _refuse_computed_origin(sources: ValueSources) -> None:
    hint = (
        "write them literally, or as `${VAR}`, which is resolved once; for several hosts, write several tools"
    )
    message = "an expression cannot set the scheme, host or port, only path segments and query values"
    sources.tell("expression_in_origin", message, POINTER, hint)


def _origin(scheme: str, authority: str, sources: ValueSources) -> tuple[str, str, int] | None:
    if "\0" in scheme + authority:
        _refuse_computed_origin(sources)
        return None
    scheme = scheme.lower()
    if scheme not in DEFAULT_PORTS:
        sources.tell(
            "invalid_url", f"`{scheme}` is not `https` or `http`", POINTER, "write `https://host/path`"
        )
        return None
    # RFC 3986 section 3.2.1 deprecates `user:password@` for this reason.
    if "@" in authority:
        message = "credentials are not allowed in the URL, where logs would show them"
        hint = "use `auth: {type: http, scheme: basic, username: ..., password: ...}`"
        sources.tell("invalid_url", message, POINTER, hint)
        return None
    host, port = _host_and_port(authority)
    if host is None:
        hint = "write an internationalized name in its ASCII form: `xn--...`"
        sources.tell("invalid_url", f"`{authority}` is not a valid host", POINTER, hint)
        return None
    if port and (_PORT.fullmatch(port) is None or not 0 < int(port) < 65536):
        sources.tell("invalid_url", f"`{port}` is not a valid port", POINTER, "use a number from 1 to 65535")
        return None
    return scheme, host, int(port) if port else DEFAULT_PORTS[scheme]


def _host_and_port(authority: str) -> tuple[str | None, str]:
    """The host, normalized, or None if it is invalid; and the port as text."""
    if authority.startswith("["):
        inner, closing, rest = authority[1:].partition("]")
        if not closing or (rest and not rest.startswith(":")) or not _is_ipv6(inner):
            return None, ""
        return read_host(inner).name, rest[1:]
    host, _colon, port = authority.partition(":")
    host = host.lower()
    return (host if _NAME.fullmatch(host) is not None else None), port


def _is_ipv6(text: str) -> bool:
    # Deferred: IPv6 hosts are rare.
    from ipaddress import AddressValueError, IPv6Address  # noqa: PLC0415

    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    # `IPv6Address` accepts a zone id (`fe80::1%eth0`), which has no meaning on the server.
    return "%" not in text


def literal_part(text: str) -> str:
    """A literal part of a URL. Existing percent-encoding is kept, and everything else is encoded if necessary."""
    return quote(_BARE_PERCENT.sub("%25", text), safe=_KEPT)


# The path of the URL.


def _path(
    text: str, marked: list[_Placeholder], sources: ValueSources
) -> tuple[Make, tuple[PathSegment, ...]]:
    pieces: list[str | Make] = []
    segments: list[PathSegment] = []
    for segment in text.split("/")[1:]:
        pieces.append("/")
        parts = list(_parts(segment, marked))
        if not any(isinstance(part, ValueSource) for part in parts):
            pieces.append(_literal_segment(segment, sources))
            continue
        # An omitted segment would shift all later ones, so its arguments are required.
        for source in _sources_in(parts):
            sources.expect(source)
        pieces.append(_segment(parts))
        written = _MARK.sub(lambda match: marked[int(match[1])].written, segment)
        segments.append(PathSegment(written, _reads(parts)))
    return _joined_path(pieces), tuple(segments)


def _parts(text: str, marked: list[_Placeholder]) -> Iterator[str | ValueSource]:
    for place, part in enumerate(_MARK.split(text)):
        if place % 2:
            yield _styled_source(marked[int(part)])
        elif part:
            yield literal_part(part)


def _styled_source(placeholder: _Placeholder) -> ValueSource:
    source, style = placeholder.source, placeholder.style
    if style is None:
        return source
    return source._replace(write=lambda arguments: styled_segment_text(source, style, arguments))


def _sources_in(parts: list[str | ValueSource]) -> list[ValueSource]:
    return [part for part in parts if isinstance(part, ValueSource)]


def _reads(parts: list[str | ValueSource]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for source in _sources_in(parts) for name in source.reads))


def _literal_segment(text: str, sources: ValueSources) -> str:
    segment = literal_part(text)
    if has_dot_segment(segment):
        message = f"the path of `url` has a segment `{text}`, which would change the path"
        sources.tell("invalid_url", message, POINTER, "write the resolved path")
    return segment


def _segment(parts: list[str | ValueSource]) -> Make:
    source = _sources_in(parts)[0]
    if len(parts) == 1:
        return lambda arguments: check_segment(segment_text(source, arguments), source)

    def make(arguments: Arguments) -> str:
        texts = [part if isinstance(part, str) else segment_text(part, arguments) for part in parts]
        return check_segment("".join(texts), source)

    return make


def _joined_path(pieces: list[str | Make]) -> Make:
    merged: list[str | Make] = []
    for piece in pieces:
        if isinstance(piece, str) and merged and isinstance(merged[-1], str):
            merged[-1] += piece
        else:
            merged.append(piece)
    if len(merged) == 1 and isinstance(merged[0], str):
        whole = merged[0]
        return lambda _arguments: whole
    slashes = sum(piece == "/" for piece in pieces)

    def make(arguments: Arguments) -> str:
        path = "".join([piece if isinstance(piece, str) else piece(arguments) for piece in merged])
        return check_path_shape(path, slashes)

    return make


def check_path_shape(path: str, slashes: int) -> str:
    """The path, after a final check that is independent of the encoding of its values.

    Raises:
        UnusableArguments: The path does not have as many segments as the template, or contains a query or
            fragment.
    """
    if path.count("/") != slashes or "?" in path or "#" in path:
        raise UnusableArguments(
            "the URL path would not have the shape that the descriptor defines", at=POINTER
        )
    return path


# The query of the URL.


def _parameters(text: str, marked: list[_Placeholder], sources: ValueSources) -> Iterator[Parameter]:
    for piece in filter(None, text.split("&")):
        name, equals, value = piece.partition("=")
        if "\0" in name:
            hint = "write the name literally; to send all remaining arguments, use `query: {from: args}`"
            message = "the name of a parameter cannot be computed, only its value"
            sources.tell("expression_in_origin", message, POINTER, hint)
            continue
        parts = list(_parts(value, marked))
        decoded = unquote_plus(name)
        found = _sources_in(parts)
        if not found:
            yield Parameter(decoded, _always(literal_part(name) + equals + "".join(map(str, parts))))
        elif len(parts) == 1:
            yield Parameter(decoded, write_parameter(decoded, found[0], ParameterStyle()), found[0].reads)
        else:
            for source in found:
                sources.expect(source)
            yield Parameter(decoded, _mixed(literal_part(name) + equals, parts), _reads(parts))


def _always(piece: str) -> Write:
    return lambda _arguments, out: out.append(piece)


def _mixed(lead: str, parts: list[str | ValueSource]) -> Write:
    """The function that writes a value of literal parts, which are already encoded, and computed ones."""

    def write(arguments: Arguments, out: list[str]) -> None:
        texts = [
            part if isinstance(part, str) else quote_value(interpolated_text(part, arguments), part)
            for part in parts
        ]
        out.append(lead + "".join(texts))

    return write


# The parameters of a query or form.

Step: TypeAlias = "tuple[str, ...] | Write"
"""Constant `name=value` pieces, or the function that adds those of one parameter."""

Kind: TypeAlias = Literal["query", "body"]

_OBJECT: Final = frozenset({"object"})

_EXPLODED: Final = {
    "form": True,
    "deepObject": True,
    "spaceDelimited": False,
    "pipeDelimited": False,
    "tabDelimited": False,
    "json": False,
}


class ParameterEntry(NamedTuple):
    """A compiled parameter: its step, and its place in the descriptor."""

    step: Step
    part: RequestPart


def compile_entries(
    block: dict[str, JSON], at: str, sources: ValueSources, *, kind: Kind, taken: Collection[str]
) -> list[ParameterEntry]:
    """Compile the parameters of a block.

    Args:
        block: Name -> value.
        at: JSON Pointer of the block.
        sources: Compiles texts.
        kind: `query` or `body`.
        taken: All names that the descriptor sets there.
    """
    return [
        _entry(name, value, child_pointer(at, name), sources, kind=kind, taken=taken)
        for name, value in block.items()
    ]


def _entry(
    name: str, value: Any, at: str, sources: ValueSources, *, kind: Kind, taken: Collection[str]
) -> ParameterEntry:
    if "{{" in name or "${" in name:
        hint = "write the name literally; to send all remaining arguments, use `from: args`"
        sources.tell("expression_not_allowed", "names are literal text and cannot be computed", at, hint)
    styled: dict[str, Any] = value if isinstance(value, dict) else {"value": value}
    inner = child_pointer(at, "value") if isinstance(value, dict) else at
    source = sources.structure(styled["value"], inner)
    style = ParameterStyle(
        styled.get("style", "form"),
        styled.get("explode", _EXPLODED[styled.get("style", "form")]),
        objects="style" in styled or "explode" in styled,
        taken=frozenset(taken),
    )
    _check_style(source, style, at, sources)
    if style.name == "deepObject":
        _check_deep_names(name, taken, at, sources)
    write = write_parameter(name, source, style)
    return ParameterEntry(
        _fixed(write) if source.constant else write, RequestPart(kind, name, at, source.reads)
    )


def _fixed(write: Write) -> tuple[str, ...]:
    pieces: list[str] = []
    write({}, pieces)
    return tuple(pieces)


def _check_deep_names(name: str, taken: Collection[str], at: str, sources: ValueSources) -> None:
    for other in taken:
        if other.startswith(f"{name}["):
            message = f"`{name}`, which has style `deepObject`, may also write `{other}`"
            sources.tell("duplicate_parameter", message, at, "keep one of them")


def _check_style(source: ValueSource, style: ParameterStyle, at: str, sources: ValueSources) -> None:
    expected = style.explode if style.name == "form" else _EXPLODED[style.name]
    if style.explode is not expected:
        message = f"style `{style.name}` does not support `explode: {'true' if style.explode else 'false'}`"
        sources.tell(
            "wrong_style",
            message,
            child_pointer(at, "explode"),
            "remove `explode`, or use `style: form`",
        )
    types = value_types(source, sources)
    if types is not None:
        _check_types(types, style, at, sources)


def _check_types(types: frozenset[str], style: ParameterStyle, at: str, sources: ValueSources) -> None:
    scalar = types.isdisjoint({"array", "object"})
    if types == _OBJECT and not style.objects:
        message = "an object needs a `style` here"
        hint = "use `{value: ..., style: deepObject}`, or `style: form` to send its keys as parameters"
    elif style.name == "deepObject" and scalar:
        message, hint = "style `deepObject` needs an object or a list", "remove `style`"
    elif style.name in _DELIMITED_BY and scalar:
        message, hint = f"style `{style.name}` needs a list", "remove `style`"
    else:
        return
    sources.tell("wrong_style", f"{message}, but the value has type {_listed(types)}", at, hint)


def _listed(types: Collection[str]) -> str:
    return " or ".join(f"`{name}`" for name in sorted(types))


def value_types(source: ValueSource, sources: ValueSources) -> frozenset[str] | None:
    """The types that a value may have, without null, if the schema declares them directly; None if unknown."""
    schema: JSON = sources.tool.input_schema
    for name in source.path:
        schema = property_schema(schema, name)
    said = schema.get("type") if isinstance(schema, dict) and source.path else None
    if isinstance(said, list):
        return frozenset(map(str, said)) - {"null"} or None
    return frozenset({said}) - {"null"} or None if isinstance(said, str) else None


T = TypeVar("T")


def merge_steps(
    steps: Iterable[tuple[T, ...] | Callable[[Arguments, list[T]], None]],
) -> tuple[tuple[T, ...] | Callable[[Arguments, list[T]], None], ...]:
    """The same steps, with adjacent constant ones merged."""
    # Most of a request is constant, and joined once instead of for every call.
    merged: list[tuple[T, ...] | Callable[[Arguments, list[T]], None]] = []
    for step in steps:
        last = merged[-1] if merged else None
        if isinstance(step, tuple) and isinstance(last, tuple):
            merged[-1] = last + step
        else:
            merged.append(step)
    return tuple(merged)


def fill_steps(
    steps: tuple[tuple[T, ...] | Callable[[Arguments, list[T]], None], ...], arguments: Arguments
) -> list[T]:
    """The pieces of all steps for one call.

    Raises:
        UnusableArguments: A value cannot be serialized.
    """
    out: list[T] = []
    for step in steps:
        if isinstance(step, tuple):
            out += step
        else:
            step(arguments, out)
    return out


class RemainingArguments(NamedTuple):
    """The arguments that are used nowhere else, which `from: args` sends.

    Attributes:
        at: JSON Pointer of `from`.
        sources: Knows which arguments are used, once the whole block is compiled.
        taken: The names that the descriptor sets.
        named: Whether each argument becomes a parameter of its name.
    """

    at: str
    sources: ValueSources
    taken: frozenset[str] = frozenset()
    named: bool = False

    def of(self, arguments: Arguments) -> Arguments:
        """The remaining arguments of one call."""
        # Read at call time: parts of the block that are compiled later may use further arguments.
        used = self.sources.read
        return {name: value for name, value in arguments.items() if name not in used}

    @property
    def described(self) -> tuple[str, ...]:
        """The names of the remaining arguments that the input schema describes."""
        return tuple(
            name for name in described_names(self.sources.tool.input_schema) if name not in self.sources.read
        )

    def check(self) -> None:
        """Report arguments that cannot be parameters. Called after the whole block is compiled."""
        for name in self.described if self.named else ():
            if name in self.taken:
                message = f"argument `{name}` conflicts with the parameter `{name}` defined here"
                hint = f'use the argument: `{name}: "{{{{ args.{name} }}}}"`, or rename one of them'
                self.sources.tell("duplicate_parameter", message, self.at, hint)
            elif value_types(self.source(name), self.sources) == _OBJECT:
                message = f"argument `{name}` is an object, which needs a `style` here"
                hint = f'write `{name}: {{value: "{{{{ args.{name} }}}}", style: deepObject}}`'
                self.sources.tell("wrong_style", message, self.at, hint)

    def writer(self) -> Write:
        """The function that writes them as parameters."""
        known = {name: self.source(name) for name in described_names(self.sources.tool.input_schema)}

        def write(arguments: Arguments, out: list[str]) -> None:
            for name, value in self.of(arguments).items():
                source = known.get(name) or self.source(name)
                if name in self.taken:
                    raise source.misfit("is set by the descriptor", "remove it")
                write_named_parameter(name, value, source, out)

        return write

    def source(self, name: str) -> ValueSource:
        """The source of one argument."""
        return ValueSource(
            self.at, lambda arguments: arguments.get(name, ABSENT), reads=(name,), path=(name,)
        )


def write_named_parameter(name: str, value: JSON, source: ValueSource, out: list[str]) -> None:
    """Write a parameter whose name is given by the arguments; null omits it.

    Raises:
        UnusableArguments: The value cannot be serialized, or the name contains a lone surrogate.
    """
    if value is not None:
        write_value(f"{quote_value(name, source)}=", value, source, ParameterStyle(), out)
