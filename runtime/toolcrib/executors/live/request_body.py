"""The `body` of a block: JSON, a form, raw text, multipart, or the arguments that are used nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib.core.model import JSON
from toolcrib.core.pointers import keys_of
from toolcrib.executors.live.multipart import Encoded, check_media_type, compile_multipart, encoded_text
from toolcrib.executors.live.parameters import Left, compile_entries, filled, steps_of, write_one
from toolcrib.executors.live.scalars import kind_of
from toolcrib.executors.live.templates import (
    ABSENT,
    Arguments,
    Part,
    Source,
    Sources,
    fixed,
    json_text,
)
from toolcrib.expressions.jmespath_queries import Select, compile_select
from toolcrib.schema.validation.violations import UnusableArguments

POINTER: Final = "/live/body"

Make: TypeAlias = Callable[[Arguments], Encoded]

JSON_TYPE: Final = "application/json"
FORM_TYPE: Final = "application/x-www-form-urlencoded"
TEXT_TYPE: Final = "text/plain; charset=utf-8"

NONE: Final[Encoded] = (b"", "")


class Body(NamedTuple):
    """A compiled body.

    Attributes:
        make: Encodes the body of one call; raises Misfit.
        parts: What of it the descriptor writes.
        left: Set where it takes the arguments that are left.
        own_type: Whether its media type can't be written in `headers`.
    """

    make: Make
    parts: tuple[Part, ...]
    left: Left | None = None
    own_type: bool = False


def compile_body(block: dict[str, Any], sources: Sources) -> Body:
    """Compile a body whose shape the block's schema has accepted.

    Raises:
        MissingSecret: Something is not there to be looked up.
    """
    if "json" in block:
        return _json(block, sources)
    if "form" in block:
        return _form(block["form"], sources)
    if "multipart" in block:
        make, parts = compile_multipart(block["multipart"], f"{POINTER}/multipart", sources)
        return Body(make, parts, own_type=True)
    return _left(block, sources) if "from" in block else _text(block, sources)


def _json(block: dict[str, Any], sources: Sources) -> Body:
    source = sources.structure(block["json"], f"{POINTER}/json")
    select = _select(block, sources)
    parts = tuple(
        Part("body", keys_of(each.at)[-1], each.at, each.reads) for each in source.inner or (source,)
    )
    if source.constant:
        return Body(_once(source, select, sources), parts)

    def make(arguments: Arguments) -> Encoded:
        value = source.read(arguments)
        return NONE if value is ABSENT else _encoded(source, select, value)

    return Body(make, parts)


def _once(source: Source, select: Select, sources: Sources) -> Make:
    """The same body for every call, encoded now."""
    try:
        encoded = _encoded(source, select, source.value)
    except UnusableArguments as misfit:
        sources.tell("bad_select", misfit.message, f"{POINTER}/select", "change it, or the body")
        encoded = NONE
    return lambda _arguments: encoded


def _encoded(source: Source, select: Select, value: JSON) -> Encoded:
    return json_text(_selected(source, select, value), source).encode(), JSON_TYPE


def _selected(source: Source, select: Select, value: JSON) -> JSON:
    try:
        return select(value)
    except ValueError as error:
        raise source.misfit(f"can't be reshaped by `select`: {error}") from None


def _unchanged(value: JSON) -> JSON:
    return value


def _select(block: dict[str, Any], sources: Sources) -> Select:
    if "select" not in block:
        return _unchanged
    return compile_select(block["select"], f"{POINTER}/select", sources.problems) or _unchanged


def _form(block: dict[str, JSON], sources: Sources) -> Body:
    entries = compile_entries(block, f"{POINTER}/form", sources, kind="body", taken=tuple(block))
    steps = steps_of(entry.step for entry in entries)

    def make(arguments: Arguments) -> Encoded:
        return _form_of(filled(steps, arguments))

    return Body(make, tuple(entry.part for entry in entries))


def _form_of(pieces: list[str]) -> Encoded:
    return "&".join(pieces).encode("ascii"), FORM_TYPE


def _left(block: dict[str, Any], sources: Sources) -> Body:
    as_json = block.get("as", "json") == "json"
    left = Left(f"{POINTER}/from", sources, named=not as_json and "select" not in block)
    select = _select(block, sources)
    whole = fixed(None, left.at)._replace(subject="what is made of the arguments")
    if as_json:
        return Body(lambda arguments: _encoded(whole, select, left.of(arguments)), (), left)

    def make(arguments: Arguments) -> Encoded:
        fields = _selected(whole, select, left.of(arguments))
        if not isinstance(fields, dict):
            raise whole.misfit(f"is {kind_of(fields)}, and a form has fields")
        pieces: list[str] = []
        for name, value in fields.items():
            write_one(name, value, left.source(name), pieces)
        return _form_of(pieces)

    return Body(make, (), left)


def _text(block: dict[str, Any], sources: Sources) -> Body:
    at = f"{POINTER}/text"
    source = sources.of(block["text"], at)
    media_type = block.get("content_type", TEXT_TYPE)
    check_media_type(media_type, f"{POINTER}/content_type", sources)

    def make(arguments: Arguments) -> Encoded:
        value = source.read(arguments)
        if value is ABSENT or value is None:
            return NONE
        return encoded_text(value, source), media_type

    return Body(make, (Part("body", "text", at, source.reads),), own_type="content_type" in block)
