"""The body of an answer as a value, by its content type.

JSON becomes its value; text, XML, CSV and HTML become text; everything else stays bytes, as a part beside the value.
"""

from __future__ import annotations

import base64
import codecs
import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from toolcrib.core.model import JSON, Content
from toolcrib.core.text import JSON_DECODER, DuplicateKey, NotFinite
from toolcrib.http import HTTPResponse

Form: TypeAlias = Literal["auto", "json", "text", "binary"]

Body: TypeAlias = tuple[JSON, tuple[Content, ...]]
"""The value of a body, and the parts beside it."""

BINARY = "application/octet-stream"

_CHARSETS = {
    "ascii": "utf-8",
    "iso-8859-1": "latin-1",
    "iso8859-1": "latin-1",
    "latin-1": "latin-1",
    "latin1": "latin-1",
    "us-ascii": "utf-8",
    "utf-16": "utf-16",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
    "utf-8": "utf-8",
    "utf8": "utf-8",
}
_TEXTS = frozenset(
    f"application/{name}"
    for name in (
        "ecmascript", "graphql", "javascript", "json-seq", "jsonl", "jsonlines", "rtf", "sql", "toml",
        "x-javascript", "x-ndjson", "x-www-form-urlencoded", "x-yaml", "xml", "yaml",
    )
)  # fmt: skip
_CHARSET = re.compile(r';\s*charset\s*=\s*"?([^";,\s]+)', re.IGNORECASE)
_TYPE = re.compile(r"\s*([a-z0-9!#$&^_.+-]+/[a-z0-9!#$&^_.+-]+)\s*(?:[;,]|$)")
_NO_CONTENT = (204, 205)
_AS_TEXT = "`response: {as: text}` takes it as text"


class Unreadable(Exception):
    """A body is not what was promised. Nothing of the body is in it.

    Attributes:
        code: `not_json`, `duplicate_key`, `bad_text` or `unsupported_charset`.
        message: What is wrong.
        hint: The way out.
        place: Where: `line` and `column` from 1, `offset` from 0.
    """

    def __init__(self, code: str, message: str, hint: str, place: dict[str, JSON] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.place = place or {}


class MediaType(NamedTuple):
    """What a `Content-Type` says.

    Attributes:
        name: `type/subtype` in lower case; empty where none is told.
        charset: In lower case; empty where none is told.
        form: How its bodies are read; `auto` where nothing is told.
    """

    name: str
    charset: str
    form: Form


@lru_cache(maxsize=256)
def media_type(header: str) -> MediaType:
    """Read a `Content-Type` (RFC 9110 section 8.3); one that is none counts as not told."""
    found = _TYPE.match(header.lower())
    if found is None:
        return MediaType("", "", "auto")
    charset = _CHARSET.search(header)
    return MediaType(found[1], charset[1].lower() if charset else "", _form(found[1]))


def _form(name: str) -> Form:
    if name in {"application/json", "text/json"} or name.endswith("+json"):
        return "json"
    if name.startswith("text/") or name in _TEXTS or name.endswith(("+xml", "+yaml")):
        return "text"
    return "binary"


def read_body(response: HTTPResponse, form: Form) -> Body:
    """The body as it was asked for, or by its content type. An empty one is null.

    Raises:
        Unreadable: It is not what was promised.
    """
    if not response.body or response.status in _NO_CONTENT:
        return None, ()
    told = media_type(response.header("content-type") or "")
    return _READERS[told.form if form == "auto" else form](response.body, told)


def read_any_body(response: HTTPResponse) -> Body:
    """The body of a failure, which is read with indulgence: JSON where it is JSON, else text, else bytes."""
    if not response.body or response.status in _NO_CONTENT:
        return None, ()
    told = media_type(response.header("content-type") or "")
    if told.form == "binary":
        return _bytes(response.body, told)
    try:
        return _READERS[told.form](response.body, told)
    except Unreadable:
        return response.body.decode("utf-8", "replace"), ()


def json_in(text: str) -> JSON:
    """The object or list that a text is in JSON; None where it is neither. RecursionError where it is too deep."""
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        value: JSON = JSON_DECODER.decode(text.strip())
    except ValueError:
        return None
    return value


def _json(raw: bytes, told: MediaType) -> Body:
    try:
        text = _decoded(raw, told.charset)
    except UnicodeDecodeError as error:
        why = f"from byte {error.start} on it is no {error.encoding}"
        raise _not_json(told, why, {"offset": error.start}) from None
    try:
        return JSON_DECODER.decode(text), ()
    except json.JSONDecodeError as error:
        place: dict[str, JSON] = {"line": error.lineno, "column": error.colno, "offset": error.pos}
        why = f"it breaks the grammar from line {error.lineno}, column {error.colno} on"
        raise _not_json(told, why, place) from None
    except DuplicateKey as error:
        message = f"{error} of the answer, and readers disagree on which one counts"
        raise Unreadable("duplicate_key", message, _AS_TEXT) from None
    except NotFinite:
        raise _not_json(told, "it holds `NaN` or `Infinity`, which JSON does not have") from None
    except RecursionError:
        raise _not_json(told, "it is nested too deeply") from None
    except ValueError:
        raise _not_json(told, "it holds a number with too many digits") from None


def _not_json(told: MediaType, why: str, place: dict[str, JSON] | None = None) -> Unreadable:
    promised = f", and its content type is `{told.name}`" if told.name else ""
    return Unreadable("not_json", f"the answer is no JSON{promised}: {why}", _AS_TEXT, place)


def _text(raw: bytes, told: MediaType) -> Body:
    try:
        return _decoded(raw, told.charset), ()
    except UnicodeDecodeError as error:
        message = f"the answer is text, and from byte {error.start} on it is no {error.encoding}"
        hint = "`response: {as: binary}` takes it as bytes"
        raise Unreadable("bad_text", message, hint, {"offset": error.start}) from None


def _bytes(raw: bytes, told: MediaType) -> Body:
    mime = told.name or BINARY
    kind: Literal["image", "audio", "resource"] = "resource"
    if mime.startswith("image/"):
        kind = "image"
    elif mime.startswith("audio/"):
        kind = "audio"
    part = Content(kind, data=base64.b64encode(raw).decode("ascii"), mime_type=mime)
    return {"type": kind, "mime_type": mime, "size": len(raw)}, (part,)


def _guessed(raw: bytes, told: MediaType) -> Body:
    """The body of an answer that does not say what it is, and so promised nothing."""
    for read in (_json, _text):
        try:
            return read(raw, told)
        except Unreadable as error:
            if error.code == "duplicate_key":
                raise
    return _bytes(raw, told)


def _decoded(raw: bytes, charset: str) -> str:
    """The text of bytes: UTF-8 unless another charset is told; a byte order mark is left out."""
    if raw.startswith(codecs.BOM_UTF8):
        return raw[3:].decode("utf-8")
    name = _CHARSETS.get(charset or "utf-8")
    if name is None:
        message = (
            f"the answer is in the charset `{charset[:40]}`, and read are utf-8, us-ascii, iso-8859-1, utf-16"
        )
        raise Unreadable("unsupported_charset", message, "`response: {as: binary}` takes it as bytes")
    return raw.decode(name).removeprefix("\ufeff")


_READERS: dict[Form, Callable[[bytes, MediaType], Body]] = {
    "auto": _guessed,
    "json": _json,
    "text": _text,
    "binary": _bytes,
}
