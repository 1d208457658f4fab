"""Schemas of arguments as compilers read them: in JSON Schema 2020-12, each subschema with the place it was written at.

**References** are written out (`schema.dereference`) where that is exact and at most doubles the schema. Else they
stay, where the dialect follows them; where it does not, they are written out as far as that goes, and what is lost
is reported. A reference that can't be written out at all becomes a schema that takes any value.

**Older drafts**: `items` as a list, `additionalItems`, `dependencies` and `exclusiveMinimum: true` become what 2020-12
has for them, since some providers refuse them.

**Left out** is what has no meaning for a model that gives arguments: `$schema`, `$id`, `$comment`, `readOnly`,
`writeOnly` and keywords that begin with `x-`. `default` and `examples` of a place that is marked as secret are not
shown to models.

Compilers also need the types of values, schemas that must all hold as one (`schema.all_of`), and how the branches of
`anyOf` and `oneOf` relate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Any, Final, NamedTuple

from toolcrib.core.model import JSON, Schema
from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import REFERENCES, Path, SchemaIndex, has_references, with_members
from toolcrib.core.text import canonical, compact
from toolcrib.schema.all_of import APART, TIGHTER, Join, MergeRules, first, merge
from toolcrib.schema.dereference import dereference
from toolcrib.security.redaction import is_secret_schema


class Loss(NamedTuple):
    """Something of the tool's own schema that a declaration can't express. Calls are checked by that schema all the same.

    Attributes:
        pointer: JSON Pointer into the tool's input schema.
        keyword: The keyword that is left out or changed.
        message: What became of it, on one line.
    """

    pointer: str
    keyword: str
    message: str


KEYWORDS_OF: Final[Mapping[str, frozenset[str]]] = {
    "object": frozenset(
        (
            "properties",
            "patternProperties",
            "additionalProperties",
            "required",
            "minProperties",
            "maxProperties",
            "propertyNames",
            "dependentRequired",
            "dependentSchemas",
            "unevaluatedProperties",
        )
    ),
    "array": frozenset(
        (
            "items",
            "prefixItems",
            "contains",
            "minContains",
            "maxContains",
            "minItems",
            "maxItems",
            "uniqueItems",
            "unevaluatedItems",
        )
    ),
    "string": frozenset(
        (
            "minLength",
            "maxLength",
            "pattern",
            "format",
            "contentEncoding",
            "contentMediaType",
            "contentSchema",
        )
    ),
    "integer": frozenset(
        ("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format")
    ),
    "number": frozenset(
        ("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format")
    ),
    "boolean": frozenset(),
    "null": frozenset(),
}
"""Type -> keywords that say something of its values only."""

_OF_SOME: Final = frozenset().union(*KEYWORDS_OF.values())
_GUESSED: Final = ("object", "array", "string", "number")
"""Types that keywords may tell; `format` tells none."""


def type_of(value: JSON) -> str:
    """The type of a value; `integer` of any number without a fraction."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == value // 1 else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def named_values(schema: dict[str, JSON]) -> list[JSON] | None:
    """The values that a subschema names; None where it names none."""
    if "const" in schema:
        return [schema["const"]]
    named = schema.get("enum")
    return named if isinstance(named, list) else None


def declared_types(schema: dict[str, JSON]) -> list[str]:
    """The types that a subschema says; empty where it says none."""
    said = schema.get("type")
    kinds = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    known = [kind for kind in kinds if isinstance(kind, str) and kind in KEYWORDS_OF]
    return [kind for kind in known if kind != "integer" or "number" not in known]


def infer_types(schema: dict[str, JSON]) -> list[str]:
    """The types that the keywords of a subschema are about, where it says none."""
    return [kind for kind in _GUESSED if (KEYWORDS_OF[kind] - {"format"}) & schema.keys()]


def is_of_type(value: JSON, kind: str) -> bool:
    """Whether a value is of a type."""
    own = type_of(value)
    return own == kind or (own == "integer" and kind == "number")


def narrow_to_type(schema: dict[str, JSON], kind: str) -> dict[str, JSON]:
    """The schema for values of one type, without the keywords that say nothing of it."""
    told: dict[str, JSON] = {
        key: value for key, value in schema.items() if key not in _OF_SOME or key in KEYWORDS_OF[kind]
    }
    values = named_values(told)
    if values is not None:
        told.pop("const", None)
        told["enum"] = [value for value in values if is_of_type(value, kind)]
    return {**told, "type": kind}


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


class ArgumentSchema(NamedTuple):
    """A schema as compilers read it.

    Attributes:
        schema: Every subschema of it is an object, but booleans that open or close something.
        losses: What is different from what was written.
    """

    schema: dict[str, JSON]
    losses: tuple[Loss, ...] = ()


def argument_schema(schema: Schema, *, references: bool) -> ArgumentSchema:
    """A schema of arguments in the form that compilers read.

    Args:
        schema: A schema of any draft from draft-04 to 2020-12. It is not changed.
        references: Whether references may stay.
    """
    marked = _marked(schema if isinstance(schema, dict) else {} if schema else {"not": {}}, "")
    if not has_references(marked):
        return _Reader().read(marked)
    inlined = dereference(marked)
    is_short = len(compact(inlined.schema)) <= 2 * len(compact(marked)) + _SPARE
    if references and (inlined.remarks or not is_short) and _may_stay(marked):
        return _Reader(references=True).read(marked)
    found = _Reader().read(inlined.schema)
    remarks = tuple(Loss("", "$ref", remark) for remark in inlined.remarks)
    return ArgumentSchema(found.schema, (*remarks, *found.losses))


def pointer_of_schema(schema: dict[str, JSON]) -> str:
    """JSON Pointer to where a subschema was written."""
    return str(schema.get(PLACE, ""))


def without_places(schema: dict[str, JSON]) -> dict[str, JSON]:
    """The schema, without saying where its subschemas were written."""
    return with_subschemas(
        {keyword: value for keyword, value in schema.items() if keyword != PLACE}, without_places
    )


def with_subschemas(
    schema: dict[str, JSON], change: Callable[[dict[str, JSON]], dict[str, JSON]]
) -> dict[str, JSON]:
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

    def read(self, schema: dict[str, JSON]) -> ArgumentSchema:
        made = self._subschema(schema, "")
        return ArgumentSchema(made, tuple(self._losses))

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


ANNOTATIONS: Final = ("title", "description", "default", "examples", "deprecated")
"""Keywords for readers. Of two, the one nearer to the place counts."""

_REFINING: Final = frozenset(
    ("required", "dependentRequired", "minProperties", "maxProperties", "not", "properties", "type", PLACE)
) | frozenset(ANNOTATIONS)
"""What a branch says that brings nothing new to the schema that it stands in."""


def without_keywords(schema: dict[str, JSON], *keywords: str) -> dict[str, JSON]:
    """The schema without some keywords."""
    return {key: value for key, value in schema.items() if key not in keywords}


def merge_all_of(schema: dict[str, JSON]) -> tuple[dict[str, JSON], list[dict[str, JSON]]]:
    """The schema with its `allOf` merged into it, and the branches that can't be."""
    branches = schema.get("allOf")
    told = without_keywords(schema, "allOf")
    apart: list[dict[str, JSON]] = []
    for branch in branches if isinstance(branches, list) else ():
        if isinstance(branch, dict):
            inner, more = merge_all_of(branch)
            both = intersect_schemas(told, inner)
            told = told if both is None else both
            apart += more if both is not None else [inner, *more]
    return told, apart


def intersect_schemas(own: dict[str, JSON], other: dict[str, JSON]) -> dict[str, JSON] | None:
    """A schema that takes what both take; None where none can be written without `allOf`."""
    if not _can_join_names(own, other) or "unevaluatedProperties" in other or "unevaluatedItems" in other:
        return None
    told: dict[str, Any] | None = merge(own, other, _rules_at(pointer_of_schema(own)))
    if told is not None and "const" in told and "enum" in told:
        values = [told.pop("const")]
        told["enum"] = [value for value in told["enum"] if value in values]
    return told


def _can_join_names(own: dict[str, JSON], other: dict[str, JSON]) -> bool:
    """Whether properties of both may stand side by side, so that what is said of all others means the same."""
    for one, another in ((own, other), (other, own)):
        if one.get("additionalProperties", True) is True:
            continue
        if "patternProperties" in another or set(_names(another)) - set(_names(one)):
            return False
    return not ("prefixItems" in own or "prefixItems" in other) or not ("items" in own and "items" in other)


def _names(schema: dict[str, JSON]) -> Mapping[str, JSON]:
    said = schema.get("properties")
    return said if isinstance(said, dict) else {}


def _rules_at(place: str) -> MergeRules:
    """The tighter of two values at each keyword; `place` is where the first schema was written."""

    def properties(_keyword: str, mine: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
        return {name: _together(name, mine, theirs, place) for name in {**mine, **theirs}}

    return MergeRules({**_TIGHTEST, "properties": properties}, _same)


def _together(name: str, mine: dict[str, Any], theirs: dict[str, Any], place: str) -> Any:
    if name not in mine or name not in theirs:
        return mine.get(name, theirs.get(name))
    return {PLACE: pointer_of_schema(mine[name]) or place, "allOf": [mine[name], theirs[name]]}


def _same(keyword: str, mine: Any, theirs: Any) -> Any:
    """The value that both have, wherever its subschemas were written."""
    return (
        mine
        if canonical(without_places({keyword: mine})) == canonical(without_places({keyword: theirs}))
        else APART
    )


def _subschemas(keyword: str, mine: Any, theirs: Any) -> Any:
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return {PLACE: pointer_of_schema(mine), "allOf": [mine, theirs]}
    return _same(keyword, mine, theirs)


def _values(_keyword: str, mine: list[JSON], theirs: list[JSON]) -> Any:
    texts = {canonical(value) for value in theirs}
    return [value for value in mine if canonical(value) in texts] or APART


def _types(_keyword: str, mine: JSON, theirs: JSON) -> Any:
    common = _common_types({"type": mine}, {"type": theirs})
    return APART if common is None else common


_TIGHTEST: Final[Mapping[str, Join]] = {
    **TIGHTER,
    **dict.fromkeys((PLACE, *ANNOTATIONS), first),
    "type": _types,
    "enum": _values,
    "items": _subschemas,
    "propertyNames": _subschemas,
}


def _common_types(own: dict[str, JSON], other: dict[str, JSON]) -> JSON:
    """The types that both take; None where there is none."""
    mine, theirs = declared_types(own), declared_types(other)
    common: list[JSON] = [kind for kind in mine if kind in theirs]
    if "number" in theirs and "integer" in mine and "integer" not in common:
        common.append("integer")
    if "number" in mine and "integer" in theirs:
        common.append("integer")
    return common[0] if len(common) == 1 else common or None


def are_of_other_types(one: dict[str, JSON], other: dict[str, JSON]) -> bool:
    """Whether the types that two schemas say have none in common."""
    return bool(declared_types(one) and declared_types(other)) and _common_types(one, other) is None


def is_refinement(branch: JSON, beside: dict[str, JSON]) -> bool:
    """Whether a branch only says more of properties that stand beside it."""
    if not isinstance(branch, dict) or not _names(beside):
        return False
    return not branch.keys() - _REFINING and not _names(branch).keys() - _names(beside).keys()


def are_disjoint(branches: Sequence[JSON]) -> bool:
    """Whether no value fits two branches: by their types, or by a property of each that has other values in each."""
    schemas = [branch for branch in branches if isinstance(branch, dict)]
    return not any(_share(one, other) for one, other in combinations(schemas, 2))


def _share(one: dict[str, JSON], other: dict[str, JSON]) -> bool:
    """Whether some value may fit both, as far as one can see."""
    if are_of_other_types(one, other):
        return False
    values, others = named_values(one), named_values(other)
    if values is not None and others is not None:
        return bool({canonical(value) for value in values} & {canonical(value) for value in others})
    if declared_types(one) != ["object"] or declared_types(other) != ["object"]:
        return True
    return not any(_tells_apart(name, one, other) for name in _names(one))


def _tells_apart(name: str, one: dict[str, JSON], other: dict[str, JSON]) -> bool:
    for schema in (one, other):
        wanted = schema.get("required")
        if not isinstance(wanted, list) or name not in wanted:
            return False
    mine, theirs = _names(one).get(name), _names(other).get(name)
    return isinstance(mine, dict) and isinstance(theirs, dict) and not _share(mine, theirs)
