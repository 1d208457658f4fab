"""From the errors of jsonschema-rs to faults: what was expected, what is there, what would be near."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from jsonschema_rs import ValidationError, ValidationErrorKind

from toolcrib.errors import did_you_mean, near_misses
from toolcrib.model import JSON
from toolcrib.subschemas import Path, SchemaIndex
from toolcrib.validation.faults import Fault, count, fault, nouns, shorten, show

Kind: TypeAlias = ValidationErrorKind
Hides: TypeAlias = Callable[[Path, object], bool]

_OPTIONS: Final = 10
_MISSING: Final = object()


class Explanation:
    """Tells the faults of one value.

    Args:
        value: The value that was judged.
        index: The subschemas of its schema.
        hides: Whether a place (path, what stands there) is secret.
    """

    def __init__(self, value: JSON, index: SchemaIndex, hides: Hides) -> None:
        self._value = value
        self._index = index
        self._hides = hides

    def of(self, errors: Iterable[ValidationError], most: int) -> list[Fault]:
        """The faults, outermost places first, each once."""
        found: dict[tuple[str, str, str], Fault] = {}
        for error in sorted(errors, key=_order):
            for each in self._explain(error):
                found.setdefault((each.pointer, each.keyword, each.expected), each)
                if len(found) >= most:
                    return list(found.values())
        return list(found.values())

    def _explain(self, error: ValidationError) -> Iterator[Fault]:
        kind, path = error.kind, tuple(error.instance_path)
        match kind:
            case ValidationErrorKind.Required(name):
                yield self._missing(path, name)
            case ValidationErrorKind.AdditionalProperties(names) | ValidationErrorKind.UnevaluatedProperties(
                names
            ):
                yield from (self._stray(path, kind.name, name) for name in names)
            case ValidationErrorKind.AnyOf(branches) | ValidationErrorKind.OneOfNotValid(branches):
                yield from self._nearest(path, kind.name, branches)
            case ValidationErrorKind.OneOfMultipleValid(branches):
                yield self._several(path, branches)
            case ValidationErrorKind.PropertyNames(inner):
                yield self._misnamed(path, inner)
            case ValidationErrorKind.Enum(options):
                yield self._option(path, "enum", options)
            case ValidationErrorKind.Constant(option):
                yield self._option(path, "const", [option])
            case _:
                yield fault(path, kind.name, _expected(kind), self._got(path), _hint(kind, self._at(path)))

    def _at(self, path: Path) -> object:
        value: object = self._value
        for key in path:
            value = value[key]  # type: ignore[index] # jsonschema-rs went this way
        return value

    def _got(self, path: Path) -> str:
        value = self._at(path)
        return show(value, hidden=self._hides(path, value))

    def _known(self, path: Path) -> list[str]:
        tables = (
            site.schema.get("properties") for site in self._index.at(path) if isinstance(site.schema, dict)
        )
        return list(dict.fromkeys(name for table in tables if isinstance(table, dict) for name in table))

    def _missing(self, path: Path, name: str) -> Fault:
        place = (*path, name)
        types = wanted_types(self._index, place)
        expected = f"a required value: {nouns(types)}" if types else "a required value"
        known = set(self._known(path))
        there = self._at(path)
        stray = [key for key in there if key not in known] if isinstance(there, dict) else []
        close = near_misses(name, stray, most=1)
        return fault(
            place, "required", expected, "nothing", f"is `{shorten(close[0])}` meant for it?" if close else ""
        )

    def _stray(self, path: Path, keyword: str, name: str) -> Fault:
        known = self._known(path)
        hint = did_you_mean(name[:200], known)
        if not hint:
            listed = ", ".join(f"`{each}`" for each in known[:_OPTIONS])
            hint = (
                f"known: {listed}{' ...' if len(known) > _OPTIONS else ''}"
                if known
                else "no property is allowed"
            )
        return fault((*path, name), keyword, "no property of this name", f"`{shorten(name)}`", hint)

    def _misnamed(self, path: Path, inner: ValidationError) -> Fault:
        name = str(inner.instance)
        expected = f"property names that are {_expected(inner.kind)}"
        return fault((*path, name), "propertyNames", expected, f"`{shorten(name)}`")

    def _option(self, path: Path, keyword: str, options: Sequence[JSON]) -> Fault:
        value = self._at(path)
        if self._hides(path, value) or any(self._hides(path, option) for option in options):
            return fault(path, keyword, "one of the values that the schema names", show(value, hidden=True))
        return fault(path, keyword, _one_of(options), show(value), _nearest_option(value, options))

    def _several(self, path: Path, branches: Sequence[Sequence[ValidationError]]) -> Fault:
        fitting = [str(number) for number, errors in enumerate(branches, start=1) if not errors]
        expected = f"a value that fits exactly one of {len(branches)} forms"
        return fault(
            path, "oneOf", expected, self._got(path), f"it fits forms {', '.join(fitting[:_OPTIONS])}"
        )

    def _nearest(
        self, path: Path, keyword: str, branches: Sequence[Sequence[ValidationError]]
    ) -> Iterator[Fault]:
        ranked = sorted(branches, key=lambda errors: _distance(path, errors))
        if not ranked:
            yield fault(path, keyword, "one of no forms", self._got(path))
        elif _distance(path, ranked[0])[0]:
            yield self._none_fits(path, keyword, branches)
        else:
            faults = self._merged(path, ranked)
            hint = f"nearest of {len(branches)} forms" if len(branches) > 1 else ""
            for each in faults:
                yield fault(each.path, each.keyword, each.expected, each.got, each.hint or hint)

    def _merged(self, path: Path, ranked: Sequence[Sequence[ValidationError]]) -> list[Fault]:
        options: list[JSON] = []
        for errors in ranked:
            if len(errors) != 1 or tuple(errors[0].instance_path) != path:
                break
            match errors[0].kind:
                case ValidationErrorKind.Enum(values):
                    options += values
                case ValidationErrorKind.Constant(value):
                    options.append(value)
                case _:
                    break
        if options:
            return [self._option(path, "enum", options)]
        return self.of(ranked[0], _OPTIONS)

    def _none_fits(self, path: Path, keyword: str, branches: Sequence[Sequence[ValidationError]]) -> Fault:
        types: dict[str, None] = {}
        for errors in branches:
            for error in errors:
                if isinstance(error.kind, ValidationErrorKind.Type) and tuple(error.instance_path) == path:
                    types.update(dict.fromkeys(error.kind.types))
        return fault(path, keyword, nouns(list(types)) or "a value that is allowed", self._got(path))


def wanted_types(index: SchemaIndex, path: Path) -> list[str]:
    """The types that the schema names for a place, each once; empty where it names none."""
    found: dict[str, None] = {}
    for site in index.at(path):
        types = site.schema.get("type") if isinstance(site.schema, dict) else None
        found.update(dict.fromkeys([types] if isinstance(types, str) else _texts(types)))
    return list(found)


def _texts(values: JSON) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []


def _order(error: ValidationError) -> tuple[tuple[tuple[bool, int, str], ...], str]:
    path = tuple((True, key, "") if isinstance(key, int) else (False, 0, key) for key in error.instance_path)
    return path, error.kind.name


def _distance(path: Path, errors: Sequence[ValidationError]) -> tuple[bool, bool, int]:
    """How far a branch is from fitting: another type, another discriminator, the number of errors."""
    type_differs = other = False
    for error in errors:
        depth = len(error.instance_path) - len(path)
        if isinstance(error.kind, ValidationErrorKind.Type | ValidationErrorKind.FalseSchema) and depth == 0:
            type_differs = True
        if isinstance(error.kind, ValidationErrorKind.Enum | ValidationErrorKind.Constant) and depth == 1:
            other = True
    return type_differs, other, len(errors)


def _one_of(options: Sequence[JSON]) -> str:
    texts = [show(option) for option in options[:_OPTIONS]]
    more = f" ({len(options)} in all)" if len(options) > _OPTIONS else ""
    return texts[0] if len(options) == 1 else f"one of {', '.join(texts)}{more}"


def _nearest_option(value: object, options: Sequence[JSON]) -> str:
    texts = [option for option in options if isinstance(option, str)]
    if isinstance(value, str):
        close = near_misses(value.strip()[:200], texts, most=1)
    else:
        close = (
            [text for text in texts if text == json.dumps(value)]
            if not isinstance(value, dict | list)
            else []
        )
    return f"did you mean {show(close[0])}?" if close else ""


def _bound(text: str, key: str) -> Callable[[Kind], str]:
    return lambda kind: f"{text} {show(getattr(kind, key))}"


def _sized(text: str, noun: str) -> Callable[[Kind], str]:
    return lambda kind: f"{text} {count(kind.limit, noun)}"  # type: ignore[attr-defined] # the kinds in the table have it


_EXPECTATIONS: Final[dict[str, Callable[[Kind], str]]] = {
    "AdditionalItems": _sized("at most", "item"),
    "BacktrackLimitExceeded": lambda _kind: "text on which the pattern takes fewer steps",
    "Contains": lambda _kind: "items of which enough, and not too many, fit `contains`",
    "ContentEncoding": _bound("text in encoding", "content_encoding"),
    "ContentMediaType": _bound("text of media type", "content_media_type"),
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
    "Pattern": lambda kind: f"text that matches {shorten(kind.pattern, 200)}",  # type: ignore[attr-defined] # as above
    "Type": lambda kind: nouns(kind.types),  # type: ignore[attr-defined] # as above
    "UnevaluatedItems": lambda _kind: "no further items",
    "UniqueItems": lambda _kind: "items that all differ",
}


def _expected(kind: Kind) -> str:
    tell = _EXPECTATIONS.get(type(kind).__name__)
    return tell(kind) if tell is not None else f"a value that fits `{kind.name}`"


def _hint(kind: Kind, value: object) -> str:
    match kind:
        case ValidationErrorKind.BacktrackLimitExceeded():
            return "the pattern took too many steps"
        case ValidationErrorKind.MinLength() | ValidationErrorKind.MaxLength() if isinstance(value, str):
            return f"it has {len(value)}"
        case ValidationErrorKind.MultipleOf(step) if isinstance(step, int) and isinstance(value, int):
            below = value // step * step
            return f"nearest: {below} or {below + step}"
        case _:
            return ""
