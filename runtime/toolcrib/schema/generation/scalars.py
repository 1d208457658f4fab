"""Texts and numbers within the bounds of a schema."""

from __future__ import annotations

import ipaddress
import math
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from toolcrib.core.model import JSON
from toolcrib.schema.generation.keyed_random import Draw
from toolcrib.schema.generation.patterns import UnknownSyntax, text_matching

Size: TypeAlias = Literal["minimal", "usual", "maximal"]

_SPAN: Final = 100
"""How far numbers go from the one bound that is given, or from 0."""

_WORDS: Final = [
    "amber",
    "anchor",
    "basil",
    "birch",
    "cedar",
    "cobalt",
    "copper",
    "coral",
    "delta",
    "ember",
    "fern",
    "flint",
    "garnet",
    "harbor",
    "hazel",
    "indigo",
    "ivory",
    "juniper",
    "lark",
    "linen",
    "maple",
    "meadow",
    "mint",
    "olive",
    "onyx",
    "opal",
    "pearl",
    "pine",
    "plum",
    "quartz",
    "reed",
    "river",
    "sable",
    "sage",
    "slate",
    "spruce",
    "thistle",
    "topaz",
    "violet",
    "walnut",
    "willow",
]

_NAMED: Final[Mapping[str, tuple[str, ...]]] = {
    "city": ("Oslo", "Lima", "Kyoto", "Nairobi", "Porto", "Quito"),
    "country": ("Norway", "Peru", "Japan", "Kenya", "Portugal", "Ecuador"),
    "country_code": ("NO", "PE", "JP", "KE", "PT", "EC"),
    "currency": ("EUR", "NOK", "JPY", "KES", "USD", "PEN"),
    "first_name": ("Ada", "Bo", "Chidi", "Dana", "Eiko", "Farid"),
    "last_name": ("Aune", "Berg", "Castro", "Duarte", "Endo", "Fofana"),
    "language": ("en", "nb", "es", "ja", "sw", "pt"),
    "name": ("Ada Aune", "Bo Berg", "Chidi Castro", "Dana Duarte", "Eiko Endo", "Farid Fofana"),
}
"""What properties of these names are given where nothing in the schema forbids it."""

_NAMED_FORMATS: Final = {"email": "email", "url": "uri", "uri": "uri"}


class Unreachable(Exception):
    """No value was found that keeps a keyword; internal to this folder.

    Attributes:
        keyword: The keyword.
        reason: Why, in words.
    """

    def __init__(self, keyword: str, reason: str, pointer: str = "") -> None:
        super().__init__(reason)
        self.keyword = keyword
        self.reason = reason
        self.pointer = pointer


def make_text(schema: Mapping[str, JSON], draw: Draw, size: Size | Literal["odd"], name: str = "") -> str:
    """A text that keeps `pattern`, `minLength`, `maxLength` and, where there is room for it, `format`.

    Raises:
        Unreachable: The pattern is not understood, or no text of this length matches it.
    """
    least = count_of(schema, "minLength") or 0
    most = count_of(schema, "maxLength")
    if most is not None and least > most:
        raise Unreachable("minLength", f"it is above `maxLength` ({least} and {most})")
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        try:
            return text_matching(pattern, draw, least, most)
        except UnknownSyntax as error:
            raise Unreachable("pattern", str(error)) from None
    if size == "odd":
        return draw.text(draw.integer(least, least + 3 if most is None else most))
    text = _meant_text(schema, draw, name)
    if text is not None and least <= len(text) and (most is None or len(text) <= most):
        return text
    return _sized_text(draw, size, least, most)


def _meant_text(schema: Mapping[str, JSON], draw: Draw, name: str) -> str | None:
    given = schema.get("format", _NAMED_FORMATS.get(name))
    if isinstance(given, str) and given in FORMATS:
        return FORMATS[given](draw)
    return draw.choice(_NAMED[name]) if name in _NAMED else None


def _sized_text(draw: Draw, size: Size, least: int, most: int | None) -> str:
    words = {"minimal": 1, "usual": 2, "maximal": 8}[size]
    text = " ".join(draw.at("word", number).choice(_WORDS) for number in range(words))
    if len(text) < least:
        text += draw.at("rest").text(least - len(text))
    # A cut must not leave a blank at the end: it looks like a fault.
    return text if most is None or len(text) <= most else text[:most].replace(" ", "-")


def make_number(schema: Mapping[str, JSON], draw: Draw, size: Size, *, whole: bool) -> int | float:
    """A number that keeps `minimum`, `maximum`, their exclusive forms and `multipleOf`.

    Raises:
        Unreachable: No number lies within the bounds.
    """
    low, high = _bounds(schema)
    step = _step(schema, low, high, whole=whole)
    first, last = math.ceil(low / step), math.floor(high / step)
    if first * step in _excluded(schema, "exclusiveMinimum"):
        first += 1
    if last * step in _excluded(schema, "exclusiveMaximum"):
        last -= 1
    if first > last:
        raise Unreachable(
            "minimum" if "multipleOf" not in schema else "multipleOf", "no number lies within the bounds"
        )
    place = {"minimal": first, "maximal": last}.get(size)
    number = (draw.integer(first, last) if place is None else place) * step
    return int(number) if whole else _as_float(number)


def _as_float(number: Fraction) -> int | float:
    try:
        return float(number)
    except OverflowError:
        return int(number)


def _bounds(schema: Mapping[str, JSON]) -> tuple[Fraction, Fraction]:
    lows = [*_fractions(schema, "minimum"), *_excluded(schema, "exclusiveMinimum")]
    highs = [*_fractions(schema, "maximum"), *_excluded(schema, "exclusiveMaximum")]
    step = max([Fraction(_SPAN), *(_SPAN * multiple for multiple in _fractions(schema, "multipleOf"))])
    if lows:
        return max(lows), min(highs, default=max(lows) + step)
    high = min(highs, default=step)
    return (Fraction(0) if high >= 0 else high - step), high


def _excluded(schema: Mapping[str, JSON], keyword: str) -> list[Fraction]:
    """The bounds that the value must not touch; draft 4 marks `minimum` itself by `true`."""
    if schema.get(keyword) is True:
        return _fractions(schema, "minimum" if keyword == "exclusiveMinimum" else "maximum")
    return _fractions(schema, keyword)


def _fractions(schema: Mapping[str, JSON], keyword: str) -> list[Fraction]:
    value = schema.get(keyword)
    return [Fraction(str(value))] if isinstance(value, int | float) and not isinstance(value, bool) else []


def _step(schema: Mapping[str, JSON], low: Fraction, high: Fraction, *, whole: bool) -> Fraction:
    multiples = _fractions(schema, "multipleOf")
    if multiples:
        return Fraction(multiples[0].numerator) if whole else multiples[0]
    if whole:
        return Fraction(1)
    # Hundredths, as people write numbers; finer only where the bounds are close together.
    step = Fraction(1, 100)
    while 0 < high - low < 2 * step:
        step /= 10
    return step


def count_of(schema: Mapping[str, JSON], keyword: str) -> int | None:
    """The number that a counting keyword gives; None where it gives none."""
    value = schema.get(keyword)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _moment(draw: Draw) -> datetime:
    return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=draw.integer(0, 365 * 86400 - 1))


def _uuid(draw: Draw) -> str:
    return str(uuid.UUID(int=draw.integer(0, 2**128 - 1), version=4))


def _host(draw: Draw) -> str:
    return f"{draw.choice(_WORDS)}.example.com"


def _duration(draw: Draw) -> str:
    return f"PT{draw.integer(1, 90)}M"


FORMATS: Final[Mapping[str, Callable[[Draw], str]]] = {
    "date": lambda draw: _moment(draw).strftime("%Y-%m-%d"),
    "date-time": lambda draw: _moment(draw).strftime("%Y-%m-%dT%H:%M:%SZ"),
    "time": lambda draw: _moment(draw).strftime("%H:%M:%SZ"),
    "duration": _duration,
    "email": lambda draw: f"{draw.choice(_WORDS)}@example.com",
    "idn-email": lambda draw: f"{draw.choice(_WORDS)}@example.com",
    "hostname": _host,
    "idn-hostname": _host,
    "ipv4": lambda draw: str(ipaddress.IPv4Address("203.0.113.0") + draw.integer(1, 254)),
    "ipv6": lambda draw: str(ipaddress.IPv6Address("2001:db8::") + draw.integer(1, 2**64)),
    "uri": lambda draw: f"https://example.com/{draw.choice(_WORDS)}",
    "iri": lambda draw: f"https://example.com/{draw.choice(_WORDS)}",
    "uri-reference": lambda draw: f"/{draw.choice(_WORDS)}",
    "iri-reference": lambda draw: f"/{draw.choice(_WORDS)}",
    "uri-template": lambda draw: f"https://example.com/{draw.choice(_WORDS)}/{{id}}",
    "json-pointer": lambda draw: f"/{draw.choice(_WORDS)}",
    "relative-json-pointer": lambda draw: f"1/{draw.choice(_WORDS)}",
    "regex": lambda draw: f"^{draw.choice(_WORDS)}$",
    "uuid": _uuid,
}
"""Texts of the formats of JSON Schema; hosts and addresses are those reserved for documentation."""
