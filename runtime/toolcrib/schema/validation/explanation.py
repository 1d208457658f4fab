"""Turn the errors of jsonschema-rs into violations: the expected value, the actual value, and a hint."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeAlias

from jsonschema_rs import ValidationError
from jsonschema_rs import ValidationErrorKind as Kind

from toolcrib.core.errors import did_you_mean, near_misses
from toolcrib.core.model import JSON
from toolcrib.core.subschemas import Path, SchemaIndex, Site
from toolcrib.schema.validation.violation_search import (
    BranchErrors,
    LocatedError,
    UnexplainedError,
    true_path,
)
from toolcrib.schema.validation.violations import Violation, count, describe_value, make_violation, shorten

LISTED: Final = 10
"""Maximum number of options, names or forms that a message lists."""

_MOST_COMPARED: Final = 200
"""Maximum number of names compared for a near miss, and the maximum length of such a name."""

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
    """`one of "metric", "imperial"`; a single option by itself."""
    texts = [describe_value(option) for option in options[:LISTED]]
    more = f" ({len(options)} in total)" if len(options) > LISTED else ""
    return texts[0] if len(options) == 1 else f"one of {', '.join(texts)}{more}"


def nearest_option(value: object, options: Sequence[object]) -> str:
    """A hint with the option that was probably meant; empty if none is close."""
    # A number may stand for an option that is text: 5 for "5".
    texts = [option for option in options[:_MOST_COMPARED] if isinstance(option, str)]
    if isinstance(value, str):
        bare = value.strip()[:_MOST_COMPARED]
        close = [bare] if bare in texts else near_misses(bare, texts, most=1)
    elif isinstance(value, bool | int | float):
        close = [text for text in texts if text == json.dumps(value)]
    else:
        close = []
    return f"did you mean {describe_value(close[0])}?" if close else ""


def near_miss_hint(name: str, names: Sequence[str]) -> str:
    """A hint with names that are close to a misspelt one; empty if none is."""
    # Comparing takes quadratic time in the length of the names, and both come from outside.
    compared = [each for each in names[:_MOST_COMPARED] if len(each) <= _MOST_COMPARED]
    return did_you_mean(name, compared) if len(name) <= _MOST_COMPARED else ""


def known_names_hint(names: Sequence[str]) -> str:
    """A hint that lists the known names."""
    if not names:
        return "no property is allowed"
    return (
        f"known: {', '.join(f'`{each}`' for each in names[:LISTED])}{' ...' if len(names) > LISTED else ''}"
    )


def expectation(kind: Kind | UnexplainedError) -> str:
    """What a keyword expects, as a noun phrase: `at most 7`."""
    if isinstance(kind, UnexplainedError):
        return kind.expected
    tell = _EXPECTATIONS.get(type(kind).__name__)
    return tell(kind) if tell is not None else f"a value that matches `{kind.name}`"


def correction_hint(kind: Kind | UnexplainedError, value: object) -> str:
    """Further help to correct a value; may be empty."""
    match kind:
        case Kind.BacktrackLimitExceeded():
            return "the pattern took too many steps"
        case Kind.MinLength() | Kind.MaxLength() if isinstance(value, str):
            return f"it has {len(value)}"
        case Kind.MultipleOf(step) if isinstance(step, int) and isinstance(value, int):
            below = value // step * step
            return f"nearest: {describe_value(below)} or {describe_value(below + step)}"
        case _:
            return ""


def _bound(text: str, attribute: str) -> Callable[[Kind], str]:
    return lambda kind: f"{text} {describe_value(getattr(kind, attribute))}"


def _sized(text: str, noun: str) -> Callable[[Kind], str]:
    return lambda kind: f"{text} {count(getattr(kind, 'limit'), noun)}"  # noqa: B009 -- only the kinds in the table have it


_EXPECTATIONS: Final[dict[str, Callable[[Kind], str]]] = {
    "AdditionalItems": _sized("at most", "item"),
    "BacktrackLimitExceeded": lambda _kind: "text that the pattern matches in fewer steps",
    "Contains": lambda _kind: "items of which the required number matches `contains`",
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
    "Not": lambda _kind: "a value that does not match the schema under `not`",
    "Pattern": lambda kind: f"text that matches {shorten(getattr(kind, 'pattern'), 200)}",  # noqa: B009 -- as above
    "Type": lambda kind: nouns(getattr(kind, "types")),  # noqa: B009 -- as above
    "UnevaluatedItems": lambda _kind: "no additional items",
    "UniqueItems": lambda _kind: "unique items",
}


Hides: TypeAlias = Callable[[Path, object], bool]
"""Whether a place is secret, given its path and its value."""

Error: TypeAlias = ValidationError | LocatedError

Context: TypeAlias = Sequence[Sequence[Error]]
"""The errors of each branch of an `anyOf` or `oneOf`."""

_COMPARED = 50
"""Maximum number of stray properties that are compared with a missing one."""


class Explanation:
    """Explains why a value is invalid.

    Args:
        value: The invalid value.
        index: The subschemas of its schema.
        hides: Which places are secret; their values are never shown.
    """

    def __init__(self, value: JSON, index: SchemaIndex, hides: Hides) -> None:
        self._value = value
        self._index = index
        self._hides = hides

    def of(self, errors: Iterable[Error], most: int) -> list[Violation]:
        """The violations, outermost places first, without duplicates, at most `most`."""
        # Branches of an `anyOf` often repeat the same violation with different schema paths.
        found: dict[tuple[str, str, str], Violation] = {}
        for error in sorted(errors, key=_order):
            for each in self._explain(error):
                found.setdefault((each.pointer, each.keyword, each.expected), each)
                if len(found) >= most:
                    return list(found.values())
        return list(found.values())

    def _explain(self, error: Error) -> Iterator[Violation]:
        kind, path = error.kind, true_path(self._value, error.instance_path)
        match kind:
            case Kind.Required(name):
                yield self._missing(path, name)
            case Kind.AdditionalProperties(names) | Kind.UnevaluatedProperties(names):
                yield from (self._stray(path, kind.name, name) for name in names)
            case (
                Kind.AnyOf(branches)
                | Kind.OneOfNotValid(branches)
                | Kind.OneOfMultipleValid(branches)
                | BranchErrors(_, branches)
            ):
                told = (
                    self._nearest(path, kind.name, branches)
                    if all(branches)
                    else self._several(path, branches)
                )
                yield from told
            case Kind.PropertyNames(inner):
                yield self._misnamed(path, inner)
            case Kind.Enum(options):
                yield self._option(path, "enum", options)
            case Kind.Constant(option):
                yield self._option(path, "const", [option])
            case Kind.FalseSchema() if names := self._unwanted(error, path):
                yield from (self._stray(path, "additionalProperties", name) for name in names)
            case _:
                yield self._refused(path, kind)

    def _at(self, path: Path) -> object:
        value: object = self._value
        for key in path:
            value = value[key]  # type: ignore[index] # jsonschema-rs went this way
        return value

    def _unwanted(self, error: Error, path: Path) -> list[str]:
        """The names in an object that may have no properties at all."""
        # With `additionalProperties: false` alone, jsonschema-rs reports a false schema instead of the stray
        # names.
        there, way = self._at(path), tuple(error.evaluation_path)[-2:]
        own_name = way[:1] in (("properties",), ("patternProperties",)) and path[-1:] == way[-1:]
        closed = way[-1:] == ("additionalProperties",) and not own_name
        return [*islice(there, _COMPARED)] if closed and isinstance(there, dict) else []

    def _refused(self, path: Path, kind: Kind | UnexplainedError) -> Violation:
        value = self._at(path)
        hidden = self._hides(path, value)
        # Hints such as "it has 12 characters" or "nearest: 40" would reveal part of a secret.
        hint = (
            ""
            if hidden and not isinstance(kind, Kind.BacktrackLimitExceeded)
            else correction_hint(kind, value)
        )
        return make_violation(path, kind.name, expectation(kind), describe_value(value, hidden=hidden), hint)

    def _known(self, path: Path) -> list[str]:
        tables = (site.get("properties") for site in self._index.at(path))
        return list(dict.fromkeys(name for table in tables if isinstance(table, dict) for name in table))

    def _missing(self, path: Path, name: str) -> Violation:
        types = wanted_types(self._index, (*path, name))
        there, names = self._at(path), set(self._known(path))
        strays = (
            (key for key in there if key not in names and len(key) < 200) if isinstance(there, dict) else ()
        )
        close = near_misses(name, [*islice(strays, _COMPARED)], most=1)
        hint = f"is `{shorten(close[0])}` a misspelling of it?" if close else ""
        expected = f"{nouns(types) or 'a value'} (required)"
        return make_violation((*path, name), "required", expected, "nothing", hint)

    def _stray(self, path: Path, keyword: str, name: str) -> Violation:
        names = self._known(path)
        hint = near_miss_hint(name, names) or known_names_hint(names)
        return make_violation((*path, name), keyword, "no property of this name", f"`{shorten(name)}`", hint)

    def _misnamed(self, path: Path, inner: ValidationError) -> Violation:
        name = str(inner.instance)
        expected = f"a valid property name: {expectation(inner.kind)}"
        return make_violation((*path, name), "propertyNames", expected, f"`{shorten(name)}`")

    def _option(self, path: Path, keyword: str, options: Sequence[object]) -> Violation:
        value = self._at(path)
        # The options of a secret place are secret, too, even if a number was given in place of the text.
        if any(self._hides(path, each) for each in (value, *options)):
            return make_violation(
                path, keyword, "a value that the schema allows", describe_value(value, hidden=True)
            )
        return make_violation(
            path, keyword, one_of(options), describe_value(value), nearest_option(value, options)
        )

    def _several(self, path: Path, branches: Context) -> Iterator[Violation]:
        fitting = [str(number) for number, errors in enumerate(branches, start=1) if not errors]
        expected = f"a value that matches exactly one of {len(branches)} forms"
        value = self._at(path)
        got = describe_value(value, hidden=self._hides(path, value))
        yield make_violation(
            path, "oneOf", expected, got, f"it matches the forms {', '.join(fitting[:LISTED])}"
        )

    def _nearest(self, path: Path, keyword: str, branches: Context) -> Iterator[Violation]:
        """The violations of the closest branch; a single one if no branch has the right type or all list options."""
        # All branches together would be unreadable: a union of ten objects has dozens of errors, one branch
        # has two.
        ranked = sorted(branches, key=lambda errors: _distance(path, errors))
        options = _options(path, ranked)
        if not ranked or _distance(path, ranked[0])[0]:
            yield self._none_fits(path, keyword, branches)
        elif options:
            yield self._option(path, "enum", options)
        else:
            hint = f"nearest of {len(branches)} forms" if len(branches) > 1 else ""
            for each in self.of(ranked[0], LISTED):
                yield make_violation(each.path, each.keyword, each.expected, each.got, each.hint or hint)

    def _none_fits(self, path: Path, keyword: str, branches: Context) -> Violation:
        types: dict[str, None] = {}
        for errors in branches:
            for error in errors:
                if isinstance(error.kind, Kind.Type) and len(error.instance_path) == len(path):
                    types.update(dict.fromkeys(error.kind.types))
        value = self._at(path)
        expected = nouns(list(types)) or "a value that matches one of the forms"
        return make_violation(path, keyword, expected, describe_value(value, hidden=self._hides(path, value)))


def wanted_types(index: SchemaIndex, path: Path) -> list[str]:
    """The types that the schema allows at a place, without duplicates; empty if it does not state any."""
    return types_named(index.at(path))


def types_named(sites: Iterable[Site]) -> list[str]:
    """The types that subschemas state, without duplicates."""
    found: dict[str, None] = {}
    for site in sites:
        types = site.get("type")
        listed = types if isinstance(types, list) else [types]
        found.update(dict.fromkeys(name for name in listed if isinstance(name, str)))
    return list(found)


def _order(error: Error) -> tuple[tuple[tuple[bool, int, str], ...], str]:
    keys = error.instance_path
    path = tuple((True, key, "") if isinstance(key, int) else (False, 0, key) for key in keys)
    return path, error.kind.name


def _distance(path: Path, errors: Sequence[Error]) -> tuple[bool, bool, bool, int]:
    """How far a branch is from matching: other type, no option, other discriminator, number of errors."""
    # A `const` or `enum` one level down, such as `kind: circle`, usually discriminates the branches of a
    # union.
    type_differs = no_option = other = False
    for error in errors:
        depth = len(error.instance_path) - len(path)
        if isinstance(error.kind, Kind.Type | Kind.FalseSchema) and depth == 0:
            type_differs = True
        if isinstance(error.kind, Kind.Enum | Kind.Constant) and depth == 0:
            # Options are mostly scalars; a list or object was probably meant for another branch.
            no_option = isinstance(error.instance, dict | list)
        if isinstance(error.kind, Kind.Enum | Kind.Constant) and depth == 1:
            other = True
    return type_differs, no_option, other, len(errors)


def _options(path: Path, ranked: Context) -> list[object]:
    """The options of the closest branches, as long as these only list values."""
    options: list[object] = []
    for errors in ranked:
        kind = errors[0].kind if len(errors) == 1 and len(errors[0].instance_path) == len(path) else None
        if isinstance(kind, Kind.Enum):
            options += kind.options
        elif isinstance(kind, Kind.Constant):
            options.append(kind.expected_value)
        else:
            break
    return options
