"""Schemas of arguments as compilers read them: in JSON Schema 2020-12, each subschema with the place it was written at.

**References** are written out (`schema.dereference`) where that is exact and at most doubles the schema. Else they
stay, where the dialect follows them; where it does not, they are written out as far as that goes, and what is lost
is told. A reference that can't be written out at all becomes a schema that takes any value.

**Older drafts**: `items` as a list, `additionalItems`, `dependencies` and `exclusiveMinimum: true` become what 2020-12
has for them, since some providers refuse them.

**Left out** is what speaks to nobody who gives arguments: `$schema`, `$id`, `$comment`, `readOnly`, `writeOnly` and
keywords that begin with `x-`. `default` and `examples` of a place that is marked as secret are not told to models.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from toolcrib.core.model import JSON, Schema
from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import REFERENCES, Path, SchemaIndex, refers, with_members
from toolcrib.core.text import compact
from toolcrib.formats.providers.declarations import Loss
from toolcrib.schema.dereference import inline
from toolcrib.security.redaction import is_secret_schema

PLACE: Final = "$comment"
"""Where a subschema says where it was written. The keyword is for readers, so that it survives what is done to others."""

COMBINATORS: Final = ("allOf", "anyOf", "oneOf")

_SPARE: Final = 256
"""Bytes by which a schema without references may be longer than twice its length."""

_LATEST: Final = "https://json-schema.org/draft/2020-12/schema"
_LOCAL: Final = ("#/$defs/", "#/definitions/")
_DEFINITIONS: Final = frozenset(("$defs", "definitions"))
_IDENTIFIERS: Final = frozenset(
    ("$id", "id", "$schema", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary")
)
_OTHERS: Final = frozenset(("additionalProperties", "unevaluatedItems", "unevaluatedProperties"))
"""Keywords of whatever is not named, at which a boolean says more plainly what is meant than a schema does."""


class Current(NamedTuple):
    """A schema as compilers read it.

    Attributes:
        schema: Every subschema of it is an object, but booleans that open or close something.
        losses: What is different from what was written.
    """

    schema: dict[str, JSON]
    losses: tuple[Loss, ...] = ()


def current(schema: Schema, *, references: bool) -> Current:
    """A schema of arguments in the form that compilers read.

    Args:
        schema: A schema of any draft from draft-04 to 2020-12. It is not changed.
        references: Whether references may stay.
    """
    marked = _marked(schema if isinstance(schema, dict) else {} if schema else {"not": {}}, "")
    if not refers(marked):
        return _Reader().read(marked)
    inlined = inline(marked)
    is_short = len(compact(inlined.schema)) <= 2 * len(compact(marked)) + _SPARE
    if references and (inlined.remarks or not is_short) and _may_stay(marked):
        return _Reader(references=True).read(marked)
    found = _Reader().read(inlined.schema)
    remarks = tuple(Loss("", "$ref", remark) for remark in inlined.remarks)
    return Current(found.schema, (*remarks, *found.losses))


def place_of(schema: dict[str, JSON]) -> str:
    """JSON Pointer to where a subschema was written."""
    return str(schema.get(PLACE, ""))


def unmarked(schema: dict[str, JSON]) -> dict[str, JSON]:
    """The schema, without saying where its subschemas were written."""
    return rebuilt({keyword: value for keyword, value in schema.items() if keyword != PLACE}, unmarked)


def rebuilt(schema: dict[str, JSON], change: Callable[[dict[str, JSON]], dict[str, JSON]]) -> dict[str, JSON]:
    """The schema with each of its direct subschemas changed; booleans stay."""

    def changed(inner: Schema, _path: Path) -> JSON:
        return change(inner) if isinstance(inner, dict) else inner

    return {keyword: with_members(keyword, value, changed) for keyword, value in schema.items()}


def _marked(schema: dict[str, JSON], pointer: str) -> dict[str, JSON]:
    """The schema, each of whose subschemas says where it stands."""

    def marked(inner: Schema, path: Path) -> JSON:
        return _marked(inner, pointer + pointer_to(path)) if isinstance(inner, dict) else inner

    told = {keyword: with_members(keyword, value, marked) for keyword, value in schema.items()}
    return {**told, PLACE: pointer}


def _may_stay(schema: dict[str, JSON]) -> bool:
    """Whether the references of a schema mean the same wherever it is read, and nothing is done to where they lead."""
    if schema.get("$schema", _LATEST) != _LATEST or any(
        keyword in schema for keyword in (*COMBINATORS, "$ref")
    ):
        return False
    index = SchemaIndex(schema)
    return all(
        keyword == "$ref" and reference.startswith(_LOCAL) and target is not None
        for site in index.walk(index.root)
        for keyword, reference, target in index.targets(site)
    ) and not any(site.get("$id") for site in index.walk(index.root) if site.path)


class _Reader:
    """Reads one schema.

    Args:
        references: Whether references and definitions stay.
    """

    def __init__(self, *, references: bool = False) -> None:
        self._references = references
        self._losses: dict[Loss, None] = {}

    def read(self, schema: dict[str, JSON]) -> Current:
        made = self._subschema(schema, "")
        return Current(made, tuple(self._losses))

    def _subschema(self, schema: Schema, place: str) -> dict[str, JSON]:
        if isinstance(schema, bool):
            return {PLACE: place} if schema else {PLACE: place, "not": {PLACE: place}}
        place = str(schema.get(PLACE, place))
        secret = is_secret_schema(schema)
        told: dict[str, JSON] = {PLACE: place}
        for keyword, value in _updated(schema).items():
            if secret and keyword in {"default", "examples"}:
                self._lose(place, keyword, "is not told, since the place is secret")
            elif keyword in REFERENCES and not self._references:
                self._lose(
                    place, keyword, f"{compact(value)} can't be written out, so that any value is taken"
                )
            elif not self._is_needless(keyword):
                told[keyword] = self._value(keyword, value, place)
        return told

    def _is_needless(self, keyword: str) -> bool:
        if keyword in _DEFINITIONS:
            return not self._references
        spoken = keyword in _IDENTIFIERS or keyword in {PLACE, "readOnly", "writeOnly"}
        return spoken or keyword.startswith("x-")

    def _value(self, keyword: str, value: JSON, place: str) -> JSON:
        """The value of a keyword, its subschemas in the form that compilers read."""
        if isinstance(value, bool) and (keyword in _OTHERS or (keyword == "items" and not value)):
            return value
        return with_members(keyword, value, lambda inner, _path: self._subschema(inner, place))

    def _lose(self, place: str, keyword: str, message: str) -> None:
        self._losses[Loss(place, keyword, message)] = None


def _updated(schema: dict[str, JSON]) -> dict[str, JSON]:
    """The keywords of a subschema, those of older drafts as 2020-12 writes them."""
    told: dict[str, Any] = dict(schema)
    if isinstance(told.get("items"), list):
        told["prefixItems"] = told.pop("items")
        if "additionalItems" in told:
            told["items"] = told["additionalItems"]
    told.pop("additionalItems", None)
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(told.get(exclusive), bool) and told.pop(exclusive) and bound in told:
            told[exclusive] = told.pop(bound)
    for name, wanted in (told.pop("dependencies", None) or {}).items():
        keyword = "dependentRequired" if isinstance(wanted, list) else "dependentSchemas"
        told[keyword] = {**told.get(keyword, {}), name: wanted}
    return told
