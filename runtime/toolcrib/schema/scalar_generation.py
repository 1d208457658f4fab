"""Generate strings and numbers within the limits of a schema, and strings that match a regular expression.

Patterns may contain literals, classes, groups, alternation and repetition; look-around and back-references are not
supported.
"""

# No library is used: exrex and hypothesis draw from a sequential random source, so that every value would
# depend on all earlier ones. Each draw here has a key of its own (see `keyed_random`).

from __future__ import annotations

import ipaddress
import math
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from string import hexdigits
from typing import Final, Literal, TypeAlias

from toolcrib.core.model import JSON
from toolcrib.schema.keyed_random import KeyedRandom

_TRIES = 24
_USUAL_EXTRA = 3
_MOST_REPEATS = 10_000

_Ranges: TypeAlias = list[tuple[int, int]]

_DIGITS: _Ranges = [(48, 57)]
_LOWER: _Ranges = [(97, 122)]
_UPPER: _Ranges = [(65, 90)]
# Ordered by preference: `.` and negated classes draw letters and digits before punctuation and the space.
_PRINTABLE: _Ranges = [
    *_LOWER,
    *_DIGITS,
    *_UPPER,
    (45, 46),
    (95, 95),
    (33, 44),
    (47, 47),
    (58, 64),
    (91, 94),
    (96, 96),
    (123, 126),
    (32, 32),
]
_CLASSES: dict[str, _Ranges] = {
    "d": _DIGITS,
    "w": [*_LOWER, *_DIGITS, *_UPPER, (95, 95)],
    "s": [(32, 32), (9, 10), (13, 13)],
}
# ASCII only: generated data should be readable, and any ASCII letter is in the class as well.
_PROPERTIES: dict[str, _Ranges] = {
    "L": [*_LOWER, *_UPPER],
    "Letter": [*_LOWER, *_UPPER],
    "Alphabetic": [*_LOWER, *_UPPER],
    "Ll": _LOWER,
    "Lu": _UPPER,
    "N": _DIGITS,
    "Nd": _DIGITS,
}
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}


class UnknownSyntax(ValueError):
    """The pattern contains syntax that is not supported here."""


def text_matching(pattern: str, draw: KeyedRandom, least: int = 0, most: int | None = None) -> str:
    """Generate a string that matches a pattern, of `least` to `most` characters.

    Raises:
        UnknownSyntax: The pattern contains look-around, a back-reference or other unsupported syntax, or no string of this
            length was found.
    """
    try:
        return _fitting(_Parser(pattern).parse(), draw, least, most)
    except RecursionError:
        raise UnknownSyntax("the pattern nests its groups too deeply") from None


def _fitting(piece: _Piece, draw: KeyedRandom, least: int, most: int | None) -> str:
    # Every fourth attempt lets the first repetition fill the whole missing length, as `^[a-z]+-[0-9]{2}$`
    # needs.
    shortest = piece(draw, _Room(0, eager=True))
    for number in range(_TRIES):
        eager = number % 4 == 3
        extra = max(0, least - len(shortest)) if eager else _USUAL_EXTRA + number * (least // 8)
        text = piece(draw.at(number), _Room(extra, eager=eager))
        if least <= len(text) and (most is None or len(text) <= most):
            return text
    maximum = "" if most is None else f", maximum {most}"
    raise UnknownSyntax(
        f"no matching string of the required length was found (minimum {least}{maximum} characters)"
    )


class _Room:
    """How many repetitions beyond the minimum are generated: a few for each, or (`eager`) all for the first."""

    def __init__(self, extra: int, *, eager: bool) -> None:
        self._extra = extra
        self._eager = eager
        self._spent = 0

    def spent(self, times: int) -> int:
        """Count repetitions, and return the total."""
        self._spent += times
        return self._spent

    def take(self, limit: int | None, draw: KeyedRandom) -> int:
        """The number of repetitions beyond the minimum, at most `limit`."""
        most = self._extra if limit is None else min(limit, self._extra)
        if not self._eager:
            return draw.integer(0, most)
        self._extra -= most
        return most


_Piece: TypeAlias = Callable[[KeyedRandom, _Room], str]


class _Parser:
    """Parses a pattern into closures that generate matching strings."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def parse(self) -> _Piece:
        piece = self._alternatives()
        if self._at < len(self._pattern):
            raise self._unknown("a closing bracket without an opening one")
        return piece

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _next(self) -> str:
        if self._at >= len(self._pattern):
            raise self._unknown("an unexpected end")
        self._at += 1
        return self._pattern[self._at - 1]

    def _skip(self, text: str) -> bool:
        if not self._pattern.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _unknown(self, what: str) -> UnknownSyntax:
        return UnknownSyntax(f"`{self._pattern}` contains {what}")

    def _alternatives(self) -> _Piece:
        branches = [self._sequence()]
        while self._skip("|"):
            branches.append(self._sequence())
        if len(branches) == 1:
            return branches[0]
        return lambda draw, room: draw.choice(branches)(draw.at("branch"), room)

    def _sequence(self) -> _Piece:
        pieces: list[_Piece] = []
        while self._peek() not in {"", "|", ")"}:
            pieces.append(self._repeated(self._atom()))
        return lambda draw, room: "".join(piece(draw.at(index), room) for index, piece in enumerate(pieces))

    def _repeated(self, piece: _Piece) -> _Piece:
        bounds = self._quantifier()
        if bounds is None:
            return piece
        least, limit = bounds
        if not self._skip("?") and self._peek() == "+":
            raise self._unknown("a possessive quantifier")

        def write(draw: KeyedRandom, room: _Room) -> str:
            times = least + room.take(limit, draw)
            # Nested repetitions multiply: `((a{100}){100}){100}` is a million characters.
            if room.spent(times) > _MOST_REPEATS:
                raise UnknownSyntax(f"a matching string would need more than {_MOST_REPEATS:,} repetitions")
            return "".join(piece(draw.at(number), room) for number in range(times))

        return write

    def _quantifier(self) -> tuple[int, int | None] | None:
        """The minimum number of repetitions and how many more are allowed (None for any number)."""
        if self._skip("*"):
            return 0, None
        if self._skip("+"):
            return 1, None
        if self._skip("?"):
            return 0, 1
        if self._peek() != "{":
            return None
        end = self._pattern.find("}", self._at)
        low, comma, high = self._pattern[self._at + 1 : end].partition(",")
        # ECMA-262 (Annex B) reads a brace that is not a quantifier as a literal.
        if end < 0 or not _is_count(low) or (high and not _is_count(high)):
            return None
        self._at = end + 1
        if not comma:
            return int(low), 0
        return int(low), (int(high) - int(low) if high else None)

    def _atom(self) -> _Piece:
        char = self._next()
        # Anchors match the empty string; a generated string is always matched as a whole.
        if char in "^$":
            return lambda _draw, _room: ""
        if char == "(":
            return self._group()
        if char == "[":
            return _any_of(self._set(), self._pattern)
        if char == ".":
            return _any_of(_PRINTABLE[:2], self._pattern)
        if char == "\\":
            return self._escape()
        if char in "*+?":
            raise self._unknown("a quantifier with nothing to repeat")
        return lambda _draw, _room: char

    def _group(self) -> _Piece:
        if self._skip("?"):
            if self._skip("P<") or (
                self._peek() == "<" and self._pattern[self._at + 1 : self._at + 2] not in {"=", "!"}
            ):
                self._until(">")
            elif not self._skip(":"):
                raise self._unknown("a group other than `(...)`, `(?:...)` and `(?<name>...)`")
        piece = self._alternatives()
        if not self._skip(")"):
            raise self._unknown("an opening bracket without a closing one")
        return piece

    def _escape(self) -> _Piece:
        char = self._next()
        if char in "bB":
            return lambda _draw, _room: ""
        ranges = self._class(char)
        if ranges is not None:
            return _any_of(ranges, self._pattern)
        literal = self._literal(char)
        return lambda _draw, _room: literal

    def _class(self, char: str) -> _Ranges | None:
        r"""The characters of a class such as `\d` or `\P{L}`; None for the escape of a single character."""
        if char in "pP":
            name = self._property()
            if name not in _PROPERTIES:
                raise self._unknown(f"the unknown character class `{name}`")
            ranges = _PROPERTIES[name]
        elif char.lower() in _CLASSES:
            ranges = _CLASSES[char.lower()]
        else:
            return None
        return _without(ranges) if char.isupper() else ranges

    def _property(self) -> str:
        if not self._skip("{"):
            return self._next()
        return self._until("}").rpartition("=")[2]

    def _until(self, mark: str) -> str:
        """The text before the next `mark`, which is consumed, too."""
        text, found, _ = self._pattern[self._at :].partition(mark)
        if not found:
            raise self._unknown(f"an unexpected end: missing `{mark}`")
        self._at += len(text) + len(mark)
        return text

    def _literal(self, char: str) -> str:
        """The character that an escape stands for."""
        if char in "xu":
            width = 2 if char == "x" else 4
            digits = self._pattern[self._at : self._at + width]
            if len(digits) < width or not set(digits) <= set(hexdigits):
                raise self._unknown(f"the unknown escape `\\{char}{digits}`")
            self._at += width
            return chr(int(digits, 16))
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char.isalnum():
            raise self._unknown(f"the unknown escape `\\{char}`")
        return char

    def _set(self) -> _Ranges:
        """The characters of a class, up to its `]`."""
        negated = self._skip("^")
        ranges: _Ranges = []
        # A `]` directly after `[` or `[^` is a literal.
        first = True
        while first or self._peek() != "]":
            first = False
            ranges += self._member()
        self._next()
        return _without(ranges) if negated else ranges

    def _member(self) -> _Ranges:
        char = self._next()
        if char == "\\":
            char = self._next()
            ranges = self._class(char)
            if ranges is not None:
                return ranges
            char = "\b" if char == "b" else self._literal(char)
        elif char == "[" or self._pattern.startswith(("&&", "--", "~~"), self._at - 1):
            raise self._unknown("a character class operation")
        following = self._pattern[self._at + 1 : self._at + 2]
        if self._peek() != "-" or following in {"]", ""}:
            return [(ord(char), ord(char))]
        self._next()
        last = self._next()
        if last == "\\":
            last = self._literal(self._next())
        return [(ord(char), ord(last))]


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _without(ranges: _Ranges) -> _Ranges:
    """The printable characters outside the ranges, letters first."""
    kept = [
        code
        for low, high in _PRINTABLE
        for code in range(low, high + 1)
        if not any(first <= code <= last for first, last in ranges)
    ]
    return [(code, code) for code in kept]


def _any_of(ranges: _Ranges, pattern: str) -> _Piece:
    """Generates one character of the ranges, all with equal probability."""
    sizes = [high - low + 1 for low, high in ranges]
    if not sizes or min(sizes) < 1:
        raise UnknownSyntax(f"`{pattern}` contains a character class without printable characters")
    total = sum(sizes)

    def write(draw: KeyedRandom, _room: _Room) -> str:
        place = draw.integer(0, total - 1)
        for (low, _), size in zip(ranges, sizes, strict=True):
            if place < size:
                return chr(low + place)
            place -= size
        raise AssertionError("the place lies in one of the ranges")

    return write


Size: TypeAlias = Literal["minimal", "usual", "maximal"]

_SPAN: Final = 100
"""Distance that numbers keep from the only given bound, or from 0."""

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
"""Property name -> natural values, used if the schema allows them."""

_NAMED_FORMATS: Final = {"email": "email", "url": "uri", "uri": "uri"}


class UnsatisfiableKeyword(Exception):
    """No value was found that satisfies a keyword; internal to this folder.

    Attributes:
        keyword: The keyword.
        reason: Why, in words.
    """

    def __init__(self, keyword: str, reason: str, pointer: str = "") -> None:
        super().__init__(reason)
        self.keyword = keyword
        self.reason = reason
        self.pointer = pointer


def make_text(
    schema: Mapping[str, JSON], draw: KeyedRandom, size: Size | Literal["odd"], name: str = ""
) -> str:
    """Generate a string that satisfies `pattern`, `minLength`, `maxLength` and, if the length allows it, `format`.

    Raises:
        UnsatisfiableKeyword: The pattern is not supported, or no string of this length matches it.
    """
    least = count_of(schema, "minLength") or 0
    most = count_of(schema, "maxLength")
    if most is not None and least > most:
        raise UnsatisfiableKeyword("minLength", f"it exceeds `maxLength` ({least} > {most})")
    pattern = schema.get("pattern")
    if isinstance(pattern, str):
        try:
            return text_matching(pattern, draw, least, most)
        except UnknownSyntax as error:
            raise UnsatisfiableKeyword("pattern", str(error)) from None
    if size == "odd":
        return draw.text(draw.integer(least, least + 3 if most is None else most))
    text = _meant_text(schema, draw, name)
    if text is not None and least <= len(text) and (most is None or len(text) <= most):
        return text
    return _sized_text(draw, size, least, most)


def _meant_text(schema: Mapping[str, JSON], draw: KeyedRandom, name: str) -> str | None:
    given = schema.get("format", _NAMED_FORMATS.get(name))
    if isinstance(given, str) and given in FORMATS:
        return FORMATS[given](draw)
    return draw.choice(_NAMED[name]) if name in _NAMED else None


def _sized_text(draw: KeyedRandom, size: Size, least: int, most: int | None) -> str:
    words = {"minimal": 1, "usual": 2, "maximal": 8}[size]
    text = " ".join(draw.at("word", number).choice(_WORDS) for number in range(words))
    if len(text) < least:
        text += draw.at("rest").text(least - len(text))
    # A space at the cut would look like a mistake in the data.
    return text if most is None or len(text) <= most else text[:most].replace(" ", "-")


def make_number(schema: Mapping[str, JSON], draw: KeyedRandom, size: Size, *, whole: bool) -> int | float:
    """Generate a number that satisfies `minimum`, `maximum`, their exclusive forms and `multipleOf`.

    Raises:
        UnsatisfiableKeyword: No number is within the bounds.
    """
    # Fractions, because multiples of 0.1 are not exact as floats: 0.3 is not 3 * 0.1.
    low, high = _bounds(schema)
    step = _step(schema, low, high, whole=whole)
    first, last = math.ceil(low / step), math.floor(high / step)
    if first * step in _excluded(schema, "exclusiveMinimum"):
        first += 1
    if last * step in _excluded(schema, "exclusiveMaximum"):
        last -= 1
    if first > last:
        raise UnsatisfiableKeyword(
            "minimum" if "multipleOf" not in schema else "multipleOf", "no number is within the bounds"
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
    """The exclusive bounds; in draft 4, `true` makes `minimum` or `maximum` exclusive."""
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
    # Hundredths, as people write numbers; finer steps only if the bounds are close together.
    step = Fraction(1, 100)
    while 0 < high - low < 2 * step:
        step /= 10
    return step


def count_of(schema: Mapping[str, JSON], keyword: str) -> int | None:
    """The value of a keyword such as `minItems`, if it is a number."""
    value = schema.get(keyword)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


# A fixed year: a time relative to today would change the value from day to day.
def _moment(draw: KeyedRandom) -> datetime:
    return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=draw.integer(0, 365 * 86400 - 1))


def _uuid(draw: KeyedRandom) -> str:
    return str(uuid.UUID(int=draw.integer(0, 2**128 - 1), version=4))


def _host(draw: KeyedRandom) -> str:
    return f"{draw.choice(_WORDS)}.example.com"


def _duration(draw: KeyedRandom) -> str:
    return f"PT{draw.integer(1, 90)}M"


FORMATS: Final[Mapping[str, Callable[[KeyedRandom], str]]] = {
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
"""Format -> generator. Hosts and addresses are reserved for documentation (RFC 2606, RFC 5737, RFC 3849)."""
