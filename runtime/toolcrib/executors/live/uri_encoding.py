"""How values are written in a query or form, a path, a header, a cookie: each stays what it is there.

Lists and objects are written by the styles of the OpenAPI 3.1 specification ("Style Values", "Style Examples").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final, Literal, NamedTuple, TypeAlias, cast
from urllib.parse import quote, unquote

from toolcrib.core.model import JSON
from toolcrib.executors.live.scalars import kind_of, scalar_text
from toolcrib.executors.live.templates import ABSENT, Arguments, Source, needed, text_within
from toolcrib.http.headers import COOKIE_SAFE, header_fault

Write: TypeAlias = Callable[[Arguments, list[str]], None]
"""Adds the `name=value` pieces of one parameter; raises Misfit."""

StyleName: TypeAlias = Literal["form", "spaceDelimited", "pipeDelimited", "deepObject"]

_DELIMITERS: Final = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}
_DELIMITED_BY: Final = {"spaceDelimited": " ", "pipeDelimited": "|"}

_PLAIN_SEGMENT: Final = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9_.~-]*")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Style(NamedTuple):
    """How lists and objects are written.

    Attributes:
        name: As OpenAPI has it.
        explode: Whether each member is a parameter of its own.
        objects: Whether the descriptor chose it: only then is an object written by it, for its keys may become names.
        taken: Names that a key of an object can't have, since they are written in the descriptor.
    """

    name: StyleName = "form"
    explode: bool = True
    objects: bool = False
    taken: Collection[str] = ()


def quoted(text: str, source: Source) -> str:
    """A text percent-encoded so that it is one piece in any place of a url.

    Raises:
        Misfit: It holds a lone surrogate.
    """
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise source.misfit("holds a lone surrogate, which can't be sent") from None


def write_parameter(name: str, source: Source, style: Style) -> Write:
    """What writes a parameter of a query or form. An absent argument, null, and an empty list leave it out."""
    lead, read = f"{quote(name, safe='')}=", source.read

    def write(arguments: Arguments, out: list[str]) -> None:
        value = read(arguments)
        if isinstance(value, str):
            out.append(lead + quoted(value, source))
        elif value is not ABSENT and value is not None:
            write_value(lead, value, source, style, out)

    return write


def write_value(lead: str, value: JSON, source: Source, style: Style, out: list[str]) -> None:
    """Write what is neither absent nor null; `lead` is the encoded name with its `=`.

    Raises:
        Misfit: The style can't write it.
    """
    text = scalar_text(value)
    if text is not None:
        out.append(lead + quoted(text, source))
    elif isinstance(value, list):
        _write_list(lead, value, source, style, out)
    else:
        _write_object(lead, cast("dict[str, JSON]", value), source, style, out)


def _write_list(lead: str, value: list[JSON], source: Source, style: Style, out: list[str]) -> None:
    if style.name == "deepObject":
        raise source.misfit("is a list, and style `deepObject` writes objects")
    items = [_item(item, source, style) for item in value if item is not None]
    if style.explode:
        out += [lead + item for item in items]
    elif items:
        out.append(lead + _DELIMITERS[style.name].join(items))


def _item(value: JSON, source: Source, style: Style) -> str:
    text = scalar_text(value)
    if text is None:
        why = f"holds {kind_of(value)} within, and style `{style.name}` has no form for that"
        raise source.misfit(why, "give a flat list or object")
    delimiter = _DELIMITED_BY.get(style.name)
    if delimiter is not None and delimiter in text:
        why = f"holds a `{delimiter}` within an item, where it would divide it in two"
        raise source.misfit(why, "leave the character out")
    return quoted(text, source)


def _write_object(lead: str, value: dict[str, JSON], source: Source, style: Style, out: list[str]) -> None:
    if not style.objects:
        hint = (
            "the descriptor chooses a style for objects: `{value: ..., style: deepObject}` or `style: form`"
        )
        raise source.misfit("is an object, and a parameter takes one value or a list", hint)
    if style.name == "deepObject":
        _write_deep(lead[:-1], value, source, style, out)
        return
    members = [(key, _item(item, source, style)) for key, item in value.items() if item is not None]
    if not style.explode:
        items = [piece for key, item in members for piece in (_item(key, source, style), item)]
        if items:
            out.append(lead + _DELIMITERS[style.name].join(items))
        return
    for key, item in members:
        if key in style.taken:
            raise source.misfit(f"has a key `{key}`, which the descriptor sets itself", "leave the key out")
        out.append(f"{quoted(key, source)}={item}")


def _write_deep(name: str, value: dict[str, JSON], source: Source, style: Style, out: list[str]) -> None:
    for key, item in value.items():
        if "[" in key or "]" in key:
            raise source.misfit("has a key with a bracket, which would name another key", "leave the key out")
        inner = f"{name}%5B{quoted(key, source)}%5D"
        if isinstance(item, dict):
            _write_deep(inner, item, source, style, out)
        elif item is not None:
            out.append(f"{inner}={_item(item, source, style)}")


def segment_text(source: Source, arguments: Arguments) -> str:
    """A value as it stands in a segment of a path, encoded; a list comma-separated (style `simple`).

    Raises:
        Misfit: It is absent, null, an object, an empty list, a list of anything but scalars, or holds controls.
    """
    value = source.read(arguments)
    if value is ABSENT or value is None:
        raise needed(source, value)
    if not isinstance(value, list):
        return _within_segment(value, source)
    if not value:
        raise source.misfit("is an empty list, and the path of the url needs a value")
    return ",".join([_within_segment(item, source) for item in value])


def _within_segment(value: JSON, source: Source) -> str:
    text = scalar_text(value)
    if text is None:
        raise source.misfit(f"is or holds {kind_of(value)}, which can't stand in the path of a url")
    if _PLAIN_SEGMENT.fullmatch(text) is not None:
        return text
    if _CONTROL.search(text) is not None:
        raise source.misfit("holds a control character, which can't stand in the path of a url")
    return quoted(text, source)


def checked_segment(segment: str, source: Source) -> str:
    r"""The encoded segment of a path itself.

    Servers and proxies may decode it before they resolve `.` and `..` (RFC 3986 section 5.2.4), take `\` or an
    encoded slash for a slash, or cut what follows a `;`: it may lead nowhere in any of these readings.

    Raises:
        Misfit: It is empty, or would be read as a step to another folder.
    """
    if _PLAIN_SEGMENT.fullmatch(segment) is not None:
        return segment
    if not segment:
        raise source.misfit("is empty, and a segment of the path would be missing", "give a value")
    if leads_elsewhere(segment):
        raise source.misfit("holds `.` or `..` as a whole step, which would lead to another path")
    return segment


def leads_elsewhere(segment: str) -> bool:
    """Whether an encoded segment of a path has a step `.` or `..` in it, in any reading of it."""
    steps = re.split(r"[/\\]", unquote(segment))
    return any(step.partition(";")[0] in (".", "..") for step in steps)


def header_text(source: Source, arguments: Arguments) -> str | None:
    """The value of a header, without blanks around it; a list comma-separated; None for none.

    Raises:
        Misfit: It is an object, or holds what can't stand in a header (RFC 9110 section 5.5).
    """
    value = source.read(arguments)
    if value is ABSENT or value is None:
        return None
    if isinstance(value, list):
        text = ", ".join([_header_item(item, source) for item in value if item is not None])
        return _clean(text, source) if text else None
    return _clean(_header_scalar(value, source), source)


def _header_scalar(value: JSON, source: Source) -> str:
    text = scalar_text(value)
    if text is None:
        raise source.misfit(f"is or holds {kind_of(value)}, which can't stand in a header")
    return text


def _header_item(value: JSON, source: Source) -> str:
    text = _header_scalar(value, source)
    if "," in text:
        raise source.misfit("holds a comma within an item, where it would divide it in two")
    return text


def _clean(text: str, source: Source) -> str:
    text = text.strip(" \t")
    wrong = header_fault(text)
    if wrong:
        raise source.misfit(wrong, "leave the character out")
    return text


def cookie_text(source: Source, arguments: Arguments) -> str | None:
    """The value of a cookie: arguments percent-encoded, the rest as it is written; None for none.

    Raises:
        Misfit: An argument is a list or object.
    """
    if source.parts:
        return "".join(
            [part if isinstance(part, str) else _cookie_part(part, arguments) for part in source.parts]
        )
    value = source.read(arguments)
    return None if value is ABSENT or value is None else _encoded_for_cookie(value, source)


def _cookie_part(source: Source, arguments: Arguments) -> str:
    text = text_within(source, arguments)
    return text if source.constant else _encoded_for_cookie(text, source)


def _encoded_for_cookie(value: JSON, source: Source) -> str:
    text = scalar_text(value)
    if text is None:
        raise source.misfit(f"is {kind_of(value)}, and a cookie takes one value")
    try:
        return quote(text, safe=COOKIE_SAFE)
    except UnicodeEncodeError:
        raise source.misfit("holds a lone surrogate, which can't be sent") from None
