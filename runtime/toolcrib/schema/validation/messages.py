"""What a keyword of a schema expects, in words."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Final

from jsonschema_rs import ValidationErrorKind as Kind

from toolcrib.core.errors import did_you_mean, near_misses
from toolcrib.schema.validation.violation_search import Unexplained
from toolcrib.schema.validation.violations import count, shorten, show

LISTED: Final = 10
"""Options, names or forms that a text lists."""

_COMPARED: Final = 200
"""Names that are compared in search of a near miss, and characters that such a name may have."""

_NOUNS: Final = {
    "array": "an array",
    "boolean": "true or false",
    "integer": "an integer",
    "null": "null",
    "number": "a number",
    "object": "an object",
    "string": "a string",
}


def nouns(types: Sequence[str]) -> str:
    """`a string or null`."""
    return " or ".join(_NOUNS.get(name, name) for name in types)


def one_of(options: Sequence[object]) -> str:
    """`one of "metric", "imperial"`; the value itself where there is one alone."""
    texts = [show(option) for option in options[:LISTED]]
    more = f" ({len(options)} in all)" if len(options) > LISTED else ""
    return texts[0] if len(options) == 1 else f"one of {', '.join(texts)}{more}"


def nearest_option(value: object, options: Sequence[object]) -> str:
    """A hint that names the option which a text, or a number instead of a text, may have meant."""
    texts = [option for option in options[:_COMPARED] if isinstance(option, str)]
    if isinstance(value, str):
        bare = value.strip()[:_COMPARED]
        close = [bare] if bare in texts else near_misses(bare, texts, most=1)
    elif isinstance(value, bool | int | float):
        close = [text for text in texts if text == json.dumps(value)]
    else:
        close = []
    return f"did you mean {show(close[0])}?" if close else ""


def misspelt(name: str, names: Sequence[str]) -> str:
    """A hint that names the near misses of a name among the first names of a list, or nothing."""
    compared = [each for each in names[:_COMPARED] if len(each) <= _COMPARED]
    return did_you_mean(name, compared) if len(name) <= _COMPARED else ""


def known(names: Sequence[str]) -> str:
    """A hint that lists the known names."""
    if not names:
        return "no property is allowed"
    return (
        f"known: {', '.join(f'`{each}`' for each in names[:LISTED])}{' ...' if len(names) > LISTED else ''}"
    )


def expectation(kind: Kind | Unexplained) -> str:
    """What the keyword expects, as a noun: `at most 7`."""
    if isinstance(kind, Unexplained):
        return kind.expected
    tell = _EXPECTATIONS.get(type(kind).__name__)
    return tell(kind) if tell is not None else f"a value that fits `{kind.name}`"


def advice(kind: Kind | Unexplained, value: object) -> str:
    """What else helps to mend a value, or nothing."""
    match kind:
        case Kind.BacktrackLimitExceeded():
            return "the pattern took too many steps"
        case Kind.MinLength() | Kind.MaxLength() if isinstance(value, str):
            return f"it has {len(value)}"
        case Kind.MultipleOf(step) if isinstance(step, int) and isinstance(value, int):
            below = value // step * step
            return f"nearest: {show(below)} or {show(below + step)}"
        case _:
            return ""


def _bound(text: str, attribute: str) -> Callable[[Kind], str]:
    return lambda kind: f"{text} {show(getattr(kind, attribute))}"


def _sized(text: str, noun: str) -> Callable[[Kind], str]:
    return lambda kind: f"{text} {count(getattr(kind, 'limit'), noun)}"  # noqa: B009 -- only the kinds in the table have it


_EXPECTATIONS: Final[dict[str, Callable[[Kind], str]]] = {
    "AdditionalItems": _sized("at most", "item"),
    "BacktrackLimitExceeded": lambda _kind: "text on which the pattern takes fewer steps",
    "Contains": lambda _kind: "items of which enough, and not too many, fit `contains`",
    "ContentEncoding": _bound("text in the encoding", "content_encoding"),
    "ContentMediaType": _bound("text of the media type", "content_media_type"),
    "ExclusiveMaximum": _bound("less than", "limit"),
    "ExclusiveMinimum": _bound("more than", "limit"),
    "FalseSchema": lambda _kind: "nothing here",
    "MaxItems": _sized("at most", "item"),
    "MaxLength": _sized("at most", "character"),
    "MaxProperties": _sized("at most", "property"),
    "Maximum": _bound("at most", "limit"),
    "MinItems": _sized("at least", "item"),
    "MinLength": _sized("at least", "character"),
    "MinProperties": _sized("at least", "property"),
    "Minimum": _bound("at least", "limit"),
    "MultipleOf": _bound("a multiple of", "multiple_of"),
    "Not": lambda _kind: "a value that the schema under `not` refuses",
    "Pattern": lambda kind: f"text that matches {shorten(getattr(kind, 'pattern'), 200)}",  # noqa: B009 -- as above
    "Type": lambda kind: nouns(getattr(kind, "types")),  # noqa: B009 -- as above
    "UnevaluatedItems": lambda _kind: "no further items",
    "UniqueItems": lambda _kind: "items that all differ",
}
