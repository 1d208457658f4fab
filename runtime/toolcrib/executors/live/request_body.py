"""Compile the `body` of a block: JSON, a form, raw text, multipart, or the arguments that are used nowhere else.

httpx encodes multipart bodies (RFC 7578).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import unquote_to_bytes

from toolcrib.core.model import JSON
from toolcrib.core.pointers import keys_of
from toolcrib.executors.live.uri import (
    RemainingArguments,
    compile_entries,
    fill_steps,
    merge_steps,
    write_named_parameter,
)
from toolcrib.executors.live.value_sources import (
    ABSENT,
    Arguments,
    RequestPart,
    ValueSource,
    ValueSources,
    child_pointer,
    constant_source,
    json_text,
    kind_of,
    scalar_text,
)
from toolcrib.expressions.jmespath_queries import Select, compile_select
from toolcrib.schema.validation.violations import UnusableArguments

Encoded: TypeAlias = "tuple[bytes, str]"
"""A body and its media type; both empty for no body."""

_BYTES_TYPE: Final = "application/octet-stream"
_TOKEN: Final = r"[A-Za-z0-9!#$&^_.+-]+"  # noqa: S105 -- RFC 6838 section 4.2, not a password
_MEDIA_TYPE: Final = re.compile(
    rf"{_TOKEN}/{_TOKEN}(?:\s*;\s*{_TOKEN}=(?:{_TOKEN}|\"[^\"\\\x00-\x1f\x7f-\U0010ffff]*\"))*"
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_NAME_FAULT: Final = re.compile(r"[\x00-\x1f\x7f/\\]")
_FORMS: Final = "provide a `data:` URI, or `{name, content_type, data}` with the data in base64"


class _File(NamedTuple):
    """A file to send; `content_type` is empty if unknown."""

    name: str
    content_type: str
    data: bytes


_Field: TypeAlias = "tuple[str, tuple[str | None, bytes, str | None]]"
"""A field as httpx accepts it: its name, then file name, content and media type. A text field has no file name."""

_Add: TypeAlias = Callable[[Arguments, "list[_Field]"], None]


def compile_multipart(
    block: dict[str, Any], at: str, sources: ValueSources
) -> tuple[Callable[[Arguments], Encoded], tuple[RequestPart, ...]]:
    """Compile a multipart body: field -> text, or `{file, name, content_type}`.

    Raises:
        MissingSecret: A variable is not set.
    """
    compiled = [_field(name, value, child_pointer(at, name), sources) for name, value in block.items()]
    adding = [add for add, _part in compiled]

    def make(arguments: Arguments) -> Encoded:
        fields: list[_Field] = []
        for add in adding:
            add(arguments, fields)
        return _written(fields)

    return make, tuple(part for _add, part in compiled)


def _written(fields: list[_Field]) -> Encoded:
    """Encode the fields."""
    # Deferred: most tools send no files.
    from httpx import Request  # noqa: PLC0415

    # The boundary is derived from the content, so that every attempt sends the same bytes.
    boundary = sha256(repr(fields).encode("utf-8", "replace")).hexdigest()[:32]
    content_type = f"multipart/form-data; boundary={boundary}"
    # httpx sends no multipart body at all if there are no fields.
    if not fields:
        return f"--{boundary}--\r\n".encode("ascii"), content_type
    request = Request("POST", "http://localhost/", files=fields, headers={"Content-Type": content_type})
    return request.read(), content_type


def _field(name: str, value: Any, at: str, sources: ValueSources) -> tuple[_Add, RequestPart]:
    if _CONTROL.search(name) is not None:
        message = "the name of a field contains a control character"
        sources.tell("wrong_form", message, at, "remove the character")
    if isinstance(value, dict):
        return (_typed_field if "value" in value else _file_field)(name, value, at, sources)
    source = sources.of(value, at)

    def add(arguments: Arguments, fields: list[_Field]) -> None:
        given = source.read(arguments)
        if given is not ABSENT and given is not None:
            values = given if isinstance(given, list) else [given]
            fields += [(name, (None, encoded_text(each, source), None)) for each in values]

    return add, RequestPart("body", name, at, source.reads)


def _typed_field(
    name: str, block: dict[str, Any], at: str, sources: ValueSources
) -> tuple[_Add, RequestPart]:
    """A field with its own media type: one part, also for a list."""
    source = sources.structure(block["value"], child_pointer(at, "value"))
    media_type = block["content_type"]
    check_media_type(media_type, child_pointer(at, "content_type"), sources)
    kind = media_type.partition(";")[0].strip().lower()
    as_json = kind == JSON_TYPE or kind.endswith("+json")

    def add(arguments: Arguments, fields: list[_Field]) -> None:
        given = source.read(arguments)
        if given is ABSENT or given is None:
            return
        data = json_text(given, source).encode() if as_json else encoded_text(given, source)
        fields.append((name, (None, data, media_type)))

    return add, RequestPart("body", name, at, source.reads)


def encoded_text(value: JSON, source: ValueSource) -> bytes:
    """A value as UTF-8 text: scalars as text, lists and objects as JSON.

    Raises:
        UnusableArguments: The value contains a lone surrogate, or is not JSON.
    """
    text = scalar_text(value)
    try:
        return (json_text(value, source) if text is None else text).encode()
    except UnicodeEncodeError:
        raise source.misfit("contains a lone surrogate, which cannot be sent") from None


def _file_field(name: str, block: dict[str, str], at: str, sources: ValueSources) -> tuple[_Add, RequestPart]:
    source = sources.of(block["file"], child_pointer(at, "file"))
    named = sources.of(block.get("name"), child_pointer(at, "name"))
    media_type = block.get("content_type", "")
    if media_type:
        check_media_type(media_type, child_pointer(at, "content_type"), sources)
    written = _written_file(source, sources) if source.constant else None

    def add(arguments: Arguments, fields: list[_Field]) -> None:
        given = source.read(arguments)
        if given is ABSENT or given is None:
            return
        own_name = _own_name(named, arguments)
        for each in given if isinstance(given, list) else [given]:
            file = written or _file(each, source)
            content_type = media_type or file.content_type or _BYTES_TYPE
            fields.append((name, (own_name or file.name, file.data, content_type)))

    return add, RequestPart("body", name, at, (*source.reads, *named.reads))


def _written_file(source: ValueSource, sources: ValueSources) -> _File:
    """A file that the block names: a `data:` URI, or a path relative to the descriptor. Read at bind time."""
    path = str(source.value)
    # A variable could name any file of the machine, and its content would be sent.
    if source.secret:
        message = "a file path cannot contain a variable"
        sources.tell("expression_not_allowed", message, source.at, "write the path literally")
    elif path.lower().startswith("data:"):
        try:
            return _of_uri(path, source)
        except UnusableArguments as misfit:
            sources.tell("wrong_form", misfit.message, source.at, misfit.hint)
    else:
        return _beside(path, source.at, sources)
    return _File("", "", b"")


def _beside(path: str, at: str, sources: ValueSources) -> _File:
    from mimetypes import guess_type  # noqa: PLC0415

    from toolcrib.loading.documents.files import read_bytes  # noqa: PLC0415

    data = read_bytes(sources.tool.origin, path, at, sources.problems)
    return _File(path.rpartition("/")[2], guess_type(path)[0] or "", data)


def _own_name(named: ValueSource, arguments: Arguments) -> str:
    name = named.read(arguments)
    if name is ABSENT or name is None:
        return ""
    if not isinstance(name, str):
        raise named.misfit(f"is {kind_of(name)}, but a file name must be text")
    return _checked_name(name, named)


def _checked_name(name: str, source: ValueSource) -> str:
    # A slash could make the server write elsewhere; a line break would add headers to the part.
    if _NAME_FAULT.search(name) is not None:
        raise source.misfit("contains a file name with a slash, a backslash or a control character")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise source.misfit("contains a file name with a lone surrogate") from None
    return name


def _file(value: JSON, source: ValueSource) -> _File:
    if isinstance(value, dict):
        return _of_object(value, source)
    if not isinstance(value, str):
        raise source.misfit(f"is {kind_of(value)}, but a file is required", _FORMS)
    # A path from a caller would let a model read any file and send it out.
    if value[:5].lower() != "data:":
        raise source.misfit("is not a file: paths and URLs in arguments are never read", _FORMS)
    return _of_uri(value, source)


def _of_object(value: dict[str, JSON], source: ValueSource) -> _File:
    name, content_type, data = value.get("name", "file"), value.get("content_type", ""), value.get("data")
    if not (isinstance(name, str) and isinstance(content_type, str) and isinstance(data, str)):
        raise source.misfit("is not a file: `name`, `content_type` and `data` must be text", _FORMS)
    return _File(
        _checked_name(name, source) or "file", _checked_type(content_type, source), _from_base64(data, source)
    )


def _of_uri(uri: str, source: ValueSource) -> _File:
    """The file of a `data:` URI (RFC 2397)."""
    head, comma, data = uri[5:].partition(",")
    if not comma:
        raise source.misfit("is not a valid `data:` URI: missing comma", _FORMS)
    media_type, coded = (head[:-7], True) if head.lower().endswith(";base64") else (head, False)
    # RFC 2397: the default type is `text/plain`, also if only its parameters are given.
    if media_type.startswith(";"):
        media_type = f"text/plain{media_type}"
    raw = unquote_to_bytes(data.encode("utf-8", "replace"))
    content = _from_base64(raw.decode("ascii", "replace"), source) if coded else raw
    return _File("file", _checked_type(media_type, source), content)


def _from_base64(text: str, source: ValueSource) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise source.misfit("contains data that is not valid base64", _FORMS) from None


def _checked_type(media_type: str, source: ValueSource) -> str:
    if media_type and _MEDIA_TYPE.fullmatch(media_type) is None:
        raise source.misfit("contains an invalid media type", "write it as `image/png`")
    return media_type


def check_media_type(media_type: str, at: str, sources: ValueSources) -> None:
    """Report an invalid media type of the block."""
    if _MEDIA_TYPE.fullmatch(media_type) is None:
        hint = "write it as `image/png` or `text/plain; charset=utf-8`, without expressions"
        sources.tell("wrong_form", f"`{media_type}` is not a valid media type", at, hint)


POINTER: Final = "/live/body"

Make: TypeAlias = Callable[[Arguments], Encoded]

JSON_TYPE: Final = "application/json"
FORM_TYPE: Final = "application/x-www-form-urlencoded"
TEXT_TYPE: Final = "text/plain; charset=utf-8"

NONE: Final[Encoded] = (b"", "")


class RequestBody(NamedTuple):
    """A compiled body.

    Attributes:
        make: Encodes the body of one call; raises UnusableArguments.
        parts: The parts that the descriptor defines.
        left: The remaining arguments, for `from: args`; None otherwise.
        own_type: Whether the body defines its media type, so that `headers` must not.
    """

    make: Make
    parts: tuple[RequestPart, ...]
    left: RemainingArguments | None = None
    own_type: bool = False


def compile_body(block: dict[str, Any], sources: ValueSources) -> RequestBody:
    """Compile a body that its schema has accepted.

    Raises:
        MissingSecret: A variable is not set.
    """
    if "json" in block:
        return _json(block, sources)
    if "form" in block:
        return _form(block["form"], sources)
    if "multipart" in block:
        make, parts = compile_multipart(block["multipart"], f"{POINTER}/multipart", sources)
        return RequestBody(make, parts, own_type=True)
    if "file" in block:
        return _bytes(block, sources)
    return _left(block, sources) if "from" in block else _text(block, sources)


def _json(block: dict[str, Any], sources: ValueSources) -> RequestBody:
    source = sources.structure(block["json"], f"{POINTER}/json")
    select = _select(block, sources)
    parts = tuple(
        RequestPart("body", keys_of(each.at)[-1], each.at, each.reads) for each in source.inner or (source,)
    )
    if source.constant:
        return RequestBody(_once(source, select, sources), parts)

    def make(arguments: Arguments) -> Encoded:
        value = source.read(arguments)
        # An absent argument as the whole body means no body; null is sent as the JSON text `null`.
        return NONE if value is ABSENT else _encoded(source, select, value)

    return RequestBody(make, parts)


def _once(source: ValueSource, select: Select, sources: ValueSources) -> Make:
    """The function that returns a constant body, which is encoded now."""
    try:
        encoded = _encoded(source, select, source.value)
    except UnusableArguments as misfit:
        sources.tell("bad_select", misfit.message, f"{POINTER}/select", "change it or the body")
        encoded = NONE
    return lambda _arguments: encoded


def _encoded(source: ValueSource, select: Select, value: JSON) -> Encoded:
    return json_text(_selected(source, select, value), source).encode(), JSON_TYPE


def _selected(source: ValueSource, select: Select, value: JSON) -> JSON:
    try:
        return select(value)
    except ValueError as error:
        raise source.misfit(f"cannot be reshaped by `select`: {error}") from None


def _unchanged(value: JSON) -> JSON:
    return value


def _select(block: dict[str, Any], sources: ValueSources) -> Select:
    if "select" not in block:
        return _unchanged
    return compile_select(block["select"], f"{POINTER}/select", sources.problems) or _unchanged


def _form(block: dict[str, JSON], sources: ValueSources) -> RequestBody:
    entries = compile_entries(block, f"{POINTER}/form", sources, kind="body", taken=tuple(block))
    steps = merge_steps(entry.step for entry in entries)

    def make(arguments: Arguments) -> Encoded:
        return _form_of(fill_steps(steps, arguments))

    return RequestBody(make, tuple(entry.part for entry in entries))


def _form_of(pieces: list[str]) -> Encoded:
    return "&".join(pieces).encode("ascii"), FORM_TYPE


def _left(block: dict[str, Any], sources: ValueSources) -> RequestBody:
    as_json = block.get("as", "json") == "json"
    left = RemainingArguments(f"{POINTER}/from", sources, named=not as_json and "select" not in block)
    select = _select(block, sources)
    whole = constant_source(None, left.at)._replace(subject="the value derived from the arguments")
    if as_json:
        return RequestBody(lambda arguments: _encoded(whole, select, left.of(arguments)), (), left)

    def make(arguments: Arguments) -> Encoded:
        fields = _selected(whole, select, left.of(arguments))
        if not isinstance(fields, dict):
            raise whole.misfit(f"is {kind_of(fields)}, but a form needs an object")
        pieces: list[str] = []
        for name, value in fields.items():
            write_named_parameter(name, value, left.source(name), pieces)
        return _form_of(pieces)

    return RequestBody(make, (), left)


def _bytes(block: dict[str, Any], sources: ValueSources) -> RequestBody:
    """A file as the whole body."""
    source = sources.of(block["file"], f"{POINTER}/file")
    media_type = block.get("content_type", "")
    if media_type:
        check_media_type(media_type, f"{POINTER}/content_type", sources)
    written = _written_file(source, sources) if source.constant else None

    def make(arguments: Arguments) -> Encoded:
        given = source.read(arguments)
        if given is ABSENT or given is None:
            return NONE
        file = written or _file(given, source)
        return file.data, media_type or file.content_type or _BYTES_TYPE

    part = RequestPart("body", "file", source.at, source.reads)
    return RequestBody(make, (part,), own_type="content_type" in block)


def _text(block: dict[str, Any], sources: ValueSources) -> RequestBody:
    at = f"{POINTER}/text"
    source = sources.of(block["text"], at)
    media_type = block.get("content_type", TEXT_TYPE)
    check_media_type(media_type, f"{POINTER}/content_type", sources)

    def make(arguments: Arguments) -> Encoded:
        value = source.read(arguments)
        if value is ABSENT or value is None:
            return NONE
        return encoded_text(value, source), media_type

    return RequestBody(
        make, (RequestPart("body", "text", at, source.reads),), own_type="content_type" in block
    )
