"""The `url` of a block: a fixed origin, a path with expressions in its segments, a query with expressions in its values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import quote, unquote_plus

from toolcrib.executors.live.templates import Arguments, Piece, Source, Sources, text_within
from toolcrib.executors.live.uri_encoding import (
    Style,
    Write,
    checked_segment,
    leads_elsewhere,
    quoted,
    segment_text,
    write_parameter,
)
from toolcrib.expressions.delimiters import ExpressionBody
from toolcrib.http.messages import DEFAULT_PORTS
from toolcrib.schema.validation.violations import UnusableArguments
from toolcrib.security.egress import read_host
from toolcrib.security.redaction import is_secret_name, secret_part
from toolcrib.security.secrets import SecretVariable

POINTER: Final = "/live/url"

Make: TypeAlias = Callable[[Arguments], str]

_SHAPE: Final = re.compile(r"([^:/?#]*)://([^/?#]*)([^?#]*)(?:\?([^#]*))?(#.*)?", re.DOTALL)
_MARK: Final = re.compile("\0([0-9]+)\0")
_UNFIT: Final = re.compile(r"[\x00-\x20\x7f-\xa0\\{}]")
_PORT: Final = re.compile(r"[0-9]{1,5}", re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?", re.ASCII)
_BARE_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_KEPT: Final = "%/:@!$&'()*+,;=?[]"
"""What a literal part keeps as it is written (RFC 3986 section 3.3 and 3.4), besides what is never encoded."""


class Parameter(NamedTuple):
    """A parameter of the query that is written in the url.

    Attributes:
        name: Decoded.
        write: Adds it.
        reads: The arguments that it reads.
    """

    name: str
    write: Write
    reads: tuple[str, ...] = ()


class Segment(NamedTuple):
    """A segment of the path with an expression in it: as it was written, and the arguments that it reads."""

    written: str
    reads: tuple[str, ...]


class Url(NamedTuple):
    """A compiled url.

    Attributes:
        scheme: `http` or `https`.
        host: Lower case, without brackets.
        port: The port.
        path: Makes the path, percent-encoded.
        segments: What in it is computed.
        query: The parameters that are written in it.
    """

    scheme: str
    host: str
    port: int
    path: Make
    segments: tuple[Segment, ...] = ()
    query: tuple[Parameter, ...] = ()


NOWHERE: Final = Url("https", "invalid", 443, lambda _arguments: "/")
"""What stands in for a url that can't be read."""


def compile_url(text: str, sources: Sources) -> Url:
    """Compile a url; `NOWHERE` where it has faults, which are reported.

    Raises:
        MissingSecret: Something is not there to be looked up.
    """
    before = len(sources.problems)
    pieces = sources.split(text, POINTER)
    if len(sources.problems) > before:
        return NOWHERE
    skeleton, marked = _Skeleton(sources).of(pieces)
    if len(sources.problems) > before:
        return NOWHERE
    match = _SHAPE.fullmatch(skeleton)
    if match is None:
        _refuse_shape(skeleton, text, sources)
        return NOWHERE
    scheme, authority, path, query, fragment = match.groups()
    origin = _origin(scheme, authority, sources)
    if fragment is not None:
        sources.tell("invalid_url", "a fragment (`#...`) is never sent", POINTER, "leave it out")
    make, segments = _path(path or "/", marked, sources)
    parameters = tuple(_parameters(query or "", marked, sources))
    if origin is None or any(problem.severity == "error" for problem in sources.problems[before:]):
        return NOWHERE
    return Url(*origin, make, segments, parameters)


class _Marked(NamedTuple):
    """What stands at a mark of the skeleton: its source, and how it was written."""

    source: Source
    written: str


class _Skeleton:
    """The url as one text, with a mark for everything that is no part of its structure."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._marked: list[_Marked] = []
        self._text = ""

    def of(self, pieces: list[Piece]) -> tuple[str, list[_Marked]]:
        """The text and what its marks stand for."""
        for place, piece in enumerate(pieces):
            if isinstance(piece, ExpressionBody):
                self._mark(self._sources.source(piece, POINTER), f"{{{{{piece.source}}}}}")
            elif isinstance(piece, str):
                self._literal(piece)
            elif "?" in self._text:
                self._mark(self._sources.source(piece, POINTER), piece.text)
            else:
                self._variable(piece, pieces[place + 1 :])
        return self._text, self._marked

    def _mark(self, source: Source, written: str) -> None:
        self._text += f"\0{len(self._marked)}\0"
        self._marked.append(_Marked(source, written))

    def _literal(self, text: str) -> None:
        unfit = _UNFIT.search(text)
        if unfit is None:
            self._text += text
            return
        if unfit[0] in "{}":
            message, hint = (
                "holds a brace",
                "an argument is written `{{ args.name }}`, a brace itself `%7B`, `%7D`",
            )
        else:
            message, hint = (
                "holds a blank, a backslash or a control character",
                "write it as `%20`, `%5C` ...",
            )
        self._sources.tell("invalid_url", f"`url` {message}", POINTER, hint)

    def _variable(self, variable: SecretVariable, after: list[Piece]) -> None:
        """Put a part of the address in; its value is the operator's and may have structure."""
        value = self._sources.looked_up(variable, POINTER, secret=False)
        if variable.default is None and not self._sources.looks_up:
            value = _stand_in(self._text, after)
        if value != variable.default:
            named = variable.source == "keyring" or is_secret_name(variable.name)
            self._sources.hide(secret_part(self._text, value, whole=named))
        if _UNFIT.search(value) is not None or "?" in value or "#" in value:
            message = f"what `{variable.text}` stands for can't be a part of the address: it holds a blank, a brace, `?`, `#` or the like"
            hint = "it may hold scheme, host, port and path; the query is written behind it"
            self._sources.tell("invalid_url", message, POINTER, hint)
            return
        if value.endswith("/") and after and isinstance(after[0], str) and after[0].startswith("/"):
            value = value.removesuffix("/")
        self._text += value


def _stand_in(before: str, after: list[Piece]) -> str:
    """A text that makes sense in the place of a value that is not looked up yet."""
    if before:
        return "443" if before.endswith(":") else "variable"
    follows = after[0] if after and isinstance(after[0], str) else ""
    return "https" if follows.startswith("://") else "https://variable.invalid"


def _refuse_shape(skeleton: str, written: str, sources: Sources) -> None:
    if skeleton.startswith("\0"):
        _refuse_computed_origin(sources)
        return
    message = f"`{written}` is no absolute url" if len(written) < 200 else "this is no absolute url"
    sources.tell("invalid_url", message, POINTER, "write `https://host/path`")


def _refuse_computed_origin(sources: Sources) -> None:
    hint = "write them as they are, or as `${VAR}`, which is looked up once; for several hosts write several tools"
    message = "an expression can't choose the scheme, host or port: only segments of the path and values of the query"
    sources.tell("expression_in_origin", message, POINTER, hint)


def _origin(scheme: str, authority: str, sources: Sources) -> tuple[str, str, int] | None:
    if "\0" in scheme + authority:
        _refuse_computed_origin(sources)
        return None
    scheme = scheme.lower()
    if scheme not in DEFAULT_PORTS:
        sources.tell(
            "invalid_url", f"`{scheme}` is not `https` or `http`", POINTER, "write `https://host/path`"
        )
        return None
    if "@" in authority:
        message = "a user or password can't stand in the url, where logs would show it"
        hint = "write `auth: {type: http, scheme: basic, username: ..., password: ...}`"
        sources.tell("invalid_url", message, POINTER, hint)
        return None
    host, port = _host_and_port(authority)
    if host is None:
        hint = "a name in another script is written in its ASCII form: `xn--...`"
        sources.tell("invalid_url", f"`{authority}` is no host", POINTER, hint)
        return None
    if port and (_PORT.fullmatch(port) is None or not 0 < int(port) < 65536):
        sources.tell("invalid_url", f"`{port}` is no port", POINTER, "a port is a number up to 65535")
        return None
    return scheme, host, int(port) if port else DEFAULT_PORTS[scheme]


def _host_and_port(authority: str) -> tuple[str | None, str]:
    """The host in lower case, an IPv6 address in its short form, None where it is none; and what is written as port."""
    if authority.startswith("["):
        inner, closing, rest = authority[1:].partition("]")
        if not closing or (rest and not rest.startswith(":")) or not _is_ipv6(inner):
            return None, ""
        return read_host(inner).name, rest[1:]
    host, _colon, port = authority.partition(":")
    host = host.lower()
    return (host if _NAME.fullmatch(host) is not None else None), port


def _is_ipv6(text: str) -> bool:
    from ipaddress import AddressValueError, IPv6Address  # noqa: PLC0415 -- hosts are rarely written so

    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return "%" not in text


def literal_part(text: str) -> str:
    """A literal part of a url: what is encoded stays so, and what has to be is."""
    return quote(_BARE_PERCENT.sub("%25", text), safe=_KEPT)


# The path.


def _path(text: str, marked: list[_Marked], sources: Sources) -> tuple[Make, tuple[Segment, ...]]:
    pieces: list[str | Make] = []
    segments: list[Segment] = []
    for segment in text.split("/")[1:]:
        pieces.append("/")
        parts = list(_parts(segment, marked))
        if not any(isinstance(part, Source) for part in parts):
            pieces.append(_literal_segment(segment, sources))
            continue
        for source in _sources_in(parts):
            sources.expect(source)
        pieces.append(_segment(parts))
        written = _MARK.sub(lambda match: marked[int(match[1])].written, segment)
        segments.append(Segment(written, _reads(parts)))
    return _joined_path(pieces), tuple(segments)


def _parts(text: str, marked: list[_Marked]) -> Iterator[str | Source]:
    for place, part in enumerate(_MARK.split(text)):
        if place % 2:
            yield marked[int(part)].source
        elif part:
            yield literal_part(part)


def _sources_in(parts: list[str | Source]) -> list[Source]:
    return [part for part in parts if isinstance(part, Source)]


def _reads(parts: list[str | Source]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for source in _sources_in(parts) for name in source.reads))


def _literal_segment(text: str, sources: Sources) -> str:
    segment = literal_part(text)
    if leads_elsewhere(segment):
        message = f"the path of `url` has a step `{text}`, which would lead to another path"
        sources.tell("invalid_url", message, POINTER, "write the path that it leads to")
    return segment


def _segment(parts: list[str | Source]) -> Make:
    source = _sources_in(parts)[0]
    if len(parts) == 1:
        return lambda arguments: checked_segment(segment_text(source, arguments), source)

    def make(arguments: Arguments) -> str:
        texts = [part if isinstance(part, str) else segment_text(part, arguments) for part in parts]
        return checked_segment("".join(texts), source)

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
        return same_shape(path, slashes)

    return make


def same_shape(path: str, slashes: int) -> str:
    """The path itself: the last door behind everything that encodes.

    Raises:
        Misfit: It has not as many segments as the template, or is not only a path.
    """
    if path.count("/") != slashes or "?" in path or "#" in path:
        raise UnusableArguments(
            "the path of the url would have another shape than the descriptor gives it", at=POINTER
        )
    return path


# The query.


def _parameters(text: str, marked: list[_Marked], sources: Sources) -> Iterator[Parameter]:
    for piece in filter(None, text.split("&")):
        name, equals, value = piece.partition("=")
        if "\0" in name:
            hint = "write the name; for all arguments that are left: `query: {from: args}`"
            message = "the name of a parameter can't be computed, only its value"
            sources.tell("expression_in_origin", message, POINTER, hint)
            continue
        parts = list(_parts(value, marked))
        decoded = unquote_plus(name)
        found = _sources_in(parts)
        if not found:
            yield Parameter(decoded, _always(literal_part(name) + equals + "".join(map(str, parts))))
        elif len(parts) == 1:
            yield Parameter(decoded, write_parameter(decoded, found[0], Style()), found[0].reads)
        else:
            for source in found:
                sources.expect(source)
            yield Parameter(decoded, _mixed(literal_part(name) + equals, parts), _reads(parts))


def _always(piece: str) -> Write:
    return lambda _arguments, out: out.append(piece)


def _mixed(lead: str, parts: list[str | Source]) -> Write:
    """A value of literal parts, which are encoded already, and computed ones."""

    def write(arguments: Arguments, out: list[str]) -> None:
        texts = [
            part if isinstance(part, str) else quoted(text_within(part, arguments), part) for part in parts
        ]
        out.append(lead + "".join(texts))

    return write
