"""Schemas of arguments in the form that compilers read: JSON Schema 2020-12, each subschema with its original position.

**References** are inlined (`schema.dereference`) if that is exact and at most doubles the schema. Otherwise
they stay, if the dialect resolves them. If it does not, they are inlined as far as possible, and the losses
are reported. A reference that cannot be inlined at all becomes a schema that accepts any value.

**Older drafts**: array-valued `items`, `additionalItems`, `dependencies` and `exclusiveMinimum: true` are
converted to 2020-12, since some providers refuse them.

**Dropped** keywords mean nothing to a model: `$schema`, `$id`, `$comment`, `readOnly`, `writeOnly` and
keywords that begin with `x-`. `default` and `examples` of a secret are not shown to models.

The functions for compilers infer types, merge schemas (`schema.all_of`), and compare the branches of `anyOf`
and `oneOf`.
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
    """Part of a tool's schema that a declaration cannot express. Calls are still checked by the tool's own schema.

    Attributes:
        pointer: JSON Pointer into the tool's input schema.
        keyword: The keyword that was dropped or changed.
        message: What happened to it, on one line.
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
"""Type -> keywords that constrain only values of this type."""

_OF_SOME: Final = frozenset().union(*KEYWORDS_OF.values())
_GUESSED: Final = ("object", "array", "string", "number")
"""Types that can be inferred from keywords. `format` is no evidence: it exists for strings and numbers."""


def type_of(value: JSON) -> str:
    """The JSON Schema type of a value; `integer` for any number without a fraction."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        # JSON Schema Validation 2020-12, 6.1.1: `1.0` is an integer.
        return "integer" if value == value // 1 else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def named_values(schema: dict[str, JSON]) -> list[JSON] | None:
    """The values in `const` or `enum` of a subschema; None without either."""
    if "const" in schema:
        return [schema["const"]]
    named = schema.get("enum")
    return named if isinstance(named, list) else None


def declared_types(schema: dict[str, JSON]) -> list[str]:
    """The types in `type` of a subschema; empty if it is missing."""
    said = schema.get("type")
    kinds = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    known = [kind for kind in kinds if isinstance(kind, str) and kind in KEYWORDS_OF]
    # `number` includes `integer`.
    return [kind for kind in known if kind != "integer" or "number" not in known]


def infer_types(schema: dict[str, JSON]) -> list[str]:
    """The types that a subschema without `type` constrains by its keywords."""
    return [kind for kind in _GUESSED if (KEYWORDS_OF[kind] - {"format"}) & schema.keys()]


def is_of_type(value: JSON, kind: str) -> bool:
    """Whether a value is of a type; an integer is also a number."""
    own = type_of(value)
    return own == kind or (own == "integer" and kind == "number")


def narrow_to_type(schema: dict[str, JSON], kind: str) -> dict[str, JSON]:
    """The schema for values of one type, without keywords for other types."""
    told: dict[str, JSON] = {
        key: value for key, value in schema.items() if key not in _OF_SOME or key in KEYWORDS_OF[kind]
    }
    values = named_values(told)
    if values is not None:
        told.pop("const", None)
        told["enum"] = [value for value in values if is_of_type(value, kind)]
    return {**told, "type": kind}


PLACE: Final = "$comment"
"""Keyword that carries the position of a subschema. It has no meaning in JSON Schema, so every transformation keeps it."""

COMBINATORS: Final = ("allOf", "anyOf", "oneOf")

_SPARE: Final = 256
"""Number of bytes by which an inlined schema may exceed twice its original length."""

_LATEST: Final = "https://json-schema.org/draft/2020-12/schema"
_LOCAL: Final = ("#/$defs/", "#/definitions/")
_DEFINITIONS: Final = frozenset(("$defs", "definitions"))
_IDENTIFIERS: Final = frozenset(
    ("$id", "id", "$schema", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$vocabulary")
)
_OTHERS: Final = frozenset(("additionalProperties", "unevaluatedItems", "unevaluatedProperties"))
"""Keywords for which a boolean is clearer than a schema."""


class ArgumentSchema(NamedTuple):
    """A schema in the form that compilers read.

    Attributes:
        schema: Every subschema is an object, except booleans of `additionalProperties` and the like.
        losses: Differences from the original schema.
    """

    schema: dict[str, JSON]
    losses: tuple[Loss, ...] = ()


def argument_schema(schema: Schema, *, references: bool) -> ArgumentSchema:
    """Convert a schema of arguments to the form that compilers read.

    Args:
        schema: A schema of any draft from draft-04 to 2020-12; it is not modified.
        references: Whether the dialect resolves references.
    """
    # Positions are added first, because inlining and merging move subschemas.
    marked = _marked(schema if isinstance(schema, dict) else {} if schema else {"not": {}}, "")
    if not has_references(marked):
        return _Reader().read(marked)
    inlined = dereference(marked)
    # Inlining a schema that is used in many places can make it exponentially larger.
    is_short = len(compact(inlined.schema)) <= 2 * len(compact(marked)) + _SPARE
    if references and (inlined.remarks or not is_short) and _may_stay(marked):
        return _Reader(references=True).read(marked)
    found = _Reader().read(inlined.schema)
    remarks = tuple(Loss("", "$ref", remark) for remark in inlined.remarks)
    return ArgumentSchema(found.schema, (*remarks, *found.losses))


def pointer_of_schema(schema: dict[str, JSON]) -> str:
    """JSON Pointer to the original position of a subschema."""
    return str(schema.get(PLACE, ""))


def without_places(schema: dict[str, JSON]) -> dict[str, JSON]:
    """The schema without the positions of its subschemas."""
    return with_subschemas(
        {keyword: value for keyword, value in schema.items() if keyword != PLACE}, without_places
    )


def with_subschemas(
    schema: dict[str, JSON], change: Callable[[dict[str, JSON]], dict[str, JSON]]
) -> dict[str, JSON]:
    """The schema with `change` applied to its direct subschemas; booleans stay."""

    def changed(inner: Schema, _path: Path) -> JSON:
        return change(inner) if isinstance(inner, dict) else inner

    return {keyword: with_members(keyword, value, changed) for keyword, value in schema.items()}


def _marked(schema: dict[str, JSON], pointer: str) -> dict[str, JSON]:
    """The schema with the position of each subschema."""

    def marked(inner: Schema, path: Path) -> JSON:
        return _marked(inner, pointer + pointer_to(path)) if isinstance(inner, dict) else inner

    told = {keyword: with_members(keyword, value, marked) for keyword, value in schema.items()}
    return {**told, PLACE: pointer}


def _may_stay(schema: dict[str, JSON]) -> bool:
    # References may stay only if they mean the same after compilation: into `$defs`, which stay in place, and
    # not across an `$id`, which changes their base (JSON Schema 2020-12, 8.2.1).
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
    """Converts one schema.

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
                self._lose(place, keyword, "dropped, because the field is secret")
            elif keyword in REFERENCES and not self._references:
                self._lose(place, keyword, f"{compact(value)} cannot be inlined; any value is accepted")
            elif not self._is_needless(keyword):
                told[keyword] = self._value(keyword, value, place)
        return told

    def _is_needless(self, keyword: str) -> bool:
        if keyword in _DEFINITIONS:
            return not self._references
        spoken = keyword in _IDENTIFIERS or keyword in {PLACE, "readOnly", "writeOnly"}
        return spoken or keyword.startswith("x-")

    def _value(self, keyword: str, value: JSON, place: str) -> JSON:
        if isinstance(value, bool) and (keyword in _OTHERS or (keyword == "items" and not value)):
            return value
        return with_members(keyword, value, lambda inner, _path: self._subschema(inner, place))

    def _lose(self, place: str, keyword: str, message: str) -> None:
        self._losses[Loss(place, keyword, message)] = None


def _updated(schema: dict[str, JSON]) -> dict[str, JSON]:
    """The keywords of a subschema, converted from older drafts to 2020-12."""
    told: dict[str, Any] = dict(schema)
    if isinstance(told.get("items"), list):
        told["prefixItems"] = told.pop("items")
        if "additionalItems" in told:
            told["items"] = told["additionalItems"]
    told.pop("additionalItems", None)
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        # A boolean `exclusiveMinimum` is from draft-04.
        if isinstance(told.get(exclusive), bool) and told.pop(exclusive) and bound in told:
            told[exclusive] = told.pop(bound)
    for name, wanted in (told.pop("dependencies", None) or {}).items():
        keyword = "dependentRequired" if isinstance(wanted, list) else "dependentSchemas"
        # 2019-09 split `dependencies` by the type of its values.
        told[keyword] = {**told.get(keyword, {}), name: wanted}
    return told


ANNOTATIONS: Final = ("title", "description", "default", "examples", "deprecated")
"""Keywords for readers. The outer one wins when schemas are merged."""

_REFINING: Final = frozenset(
    ("required", "dependentRequired", "minProperties", "maxProperties", "not", "properties", "type", PLACE)
) | frozenset(ANNOTATIONS)
"""Keywords of a branch that only refines the schema around it."""


def without_keywords(schema: dict[str, JSON], *keywords: str) -> dict[str, JSON]:
    """The schema without the given keywords."""
    return {key: value for key, value in schema.items() if key not in keywords}


def merge_all_of(schema: dict[str, JSON]) -> tuple[dict[str, JSON], list[dict[str, JSON]]]:
    """The schema with `allOf` merged into it, and the branches that cannot be merged."""
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
    """A schema that accepts the values that both accept; None if that needs `allOf`."""
    # The `unevaluated...` keywords depend on the subschema that contains them (JSON Schema 2020-12, 11), so
    # they cannot be moved to another one.
    if not _can_join_names(own, other) or "unevaluatedProperties" in other or "unevaluatedItems" in other:
        return None
    told: dict[str, Any] | None = merge(own, other, _rules_at(pointer_of_schema(own)))
    if told is not None and "const" in told and "enum" in told:
        values = [told.pop("const")]
        told["enum"] = [value for value in told["enum"] if value in values]
    return told


def _can_join_names(own: dict[str, JSON], other: dict[str, JSON]) -> bool:
    # `additionalProperties` applies to the properties that its own schema does not name. With names from both
    # schemas, it would apply to fewer.
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
    """Rules for the tighter of two values of each keyword; `place` is the position of the first schema."""

    def properties(_keyword: str, mine: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
        return {name: _together(name, mine, theirs, place) for name in {**mine, **theirs}}

    return MergeRules({**_TIGHTEST, "properties": properties}, _same)


def _together(name: str, mine: dict[str, Any], theirs: dict[str, Any], place: str) -> Any:
    if name not in mine or name not in theirs:
        return mine.get(name, theirs.get(name))
    return {PLACE: pointer_of_schema(mine[name]) or place, "allOf": [mine[name], theirs[name]]}


def _same(keyword: str, mine: Any, theirs: Any) -> Any:
    # Equal values merge, even if they come from different positions.
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
    """The types that both accept; None if there is no common one."""
    mine, theirs = declared_types(own), declared_types(other)
    common: list[JSON] = [kind for kind in mine if kind in theirs]
    # Every integer is a number.
    if "number" in theirs and "integer" in mine and "integer" not in common:
        common.append("integer")
    if "number" in mine and "integer" in theirs:
        common.append("integer")
    return common[0] if len(common) == 1 else common or None


def are_of_other_types(one: dict[str, JSON], other: dict[str, JSON]) -> bool:
    """Whether both schemas declare types, and none in common."""
    return bool(declared_types(one) and declared_types(other)) and _common_types(one, other) is None


def is_refinement(branch: JSON, beside: dict[str, JSON]) -> bool:
    """Whether a branch only refines properties that are declared next to it."""
    if not isinstance(branch, dict) or not _names(beside):
        return False
    return not branch.keys() - _REFINING and not _names(branch).keys() - _names(beside).keys()


def are_disjoint(branches: Sequence[JSON]) -> bool:
    """Whether no value matches two branches: their types differ, or a required property has different values in each."""
    schemas = [branch for branch in branches if isinstance(branch, dict)]
    return not any(_share(one, other) for one, other in combinations(schemas, 2))


def _share(one: dict[str, JSON], other: dict[str, JSON]) -> bool:
    """Whether a value may match both, as far as it can be seen without solving the schemas."""
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
        # A property that may be missing distinguishes nothing.
        wanted = schema.get("required")
        if not isinstance(wanted, list) or name not in wanted:
            return False
    mine, theirs = _names(one).get(name), _names(other).get(name)
    return isinstance(mine, dict) and isinstance(theirs, dict) and not _share(mine, theirs)
