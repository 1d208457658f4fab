"""The constraints that several JSON Schemas put on a value at once: its types, bounds, members and alternatives.

Nothing here guesses: a keyword that can't be read is unknown, so less is proved and never too much. `Reason` says
why it can't be shown that a schema accepts everything that another one accepts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeGuard

from toolcrib.core.model import JSON, Schema
from toolcrib.core.subschemas import REFERENCES, Path, SchemaIndex, Site, is_schema, pattern_validator
from toolcrib.core.text import canonical

TYPES: Final = frozenset(("null", "boolean", "object", "array", "string", "integer", "number"))
"""`number` are the numbers that are no integers."""

NUMBERS: Final = frozenset(("integer", "number"))

DIALECTS: Final = {
    "https://json-schema.org/draft/2020-12/schema": 2020,
    "https://json-schema.org/draft/2019-09/schema": 2019,
    "http://json-schema.org/draft-07/schema": 7,
    "http://json-schema.org/draft-06/schema": 6,
}
"""Those that can be compared. In draft 4, `exclusiveMaximum` is a boolean and 1.0 no integer."""

_FOLLOWED: Final = ("allOf", *REFERENCES)

_SINCE_2019: Final = ("dependentRequired", "dependentSchemas", "minContains", "maxContains")

Bound: TypeAlias = tuple[float, bool]
"""A number, and whether it is itself left out."""


class ComparedSchema:
    """One of two schemas that are compared.

    Attributes:
        index: Its subschemas.
        dialect: Year or number of its dialect; 0 for one that can't be compared.
    """

    def __init__(self, schema: Schema) -> None:
        self.index = SchemaIndex(schema)
        self.texts: dict[object, str] = {}
        self.values: dict[object, dict[str, JSON] | None] = {}
        named = self.index.root.get("$schema")
        default = 2020 if named is None else 0
        self.dialect = DIALECTS.get(str(named).removesuffix("#"), default)

    @property
    def root(self) -> ComparedNode:
        """The whole schema."""
        return ComparedNode(self, self.index.root)

    @property
    def is_comparable(self) -> bool:
        """Whether its references mean the same wherever they are met, and its dialect is one and known."""
        sites = [*self.index.everything()]
        moving = any(site.get(key) is not None for site in sites for key in REFERENCES[1:])
        mixed = any(site.get("$schema") is not None for site in sites if site.path)
        return bool(self.dialect) and not moving and not mixed


_IMPLIED: Final = ComparedSchema(True)


class ComparedNode(NamedTuple):
    """A subschema, and which of the two schemas it stands in."""

    side: ComparedSchema
    site: Site

    @property
    def key(self) -> tuple[int, str, Path]:
        """Tells nodes apart."""
        return id(self.side), self.site.document, self.site.path

    @property
    def said(self) -> Mapping[str, Any]:
        """Its keywords that count: none where it is a boolean, or nothing counts but its `$ref`."""
        schema = self.site.schema
        return {} if isinstance(schema, bool) or self.side.index.is_overridden(self.site) else schema

    def under(self, *path: str | int) -> ComparedNode | None:
        """The subschema at a path below it; None where there is none."""
        schema: Any = self.said
        for key in path:
            try:
                schema = schema[key]
            except (KeyError, IndexError, TypeError):
                return None
        return (
            ComparedNode(self.side, self.side.index.child(self.site, path, schema))
            if is_schema(schema)
            else None
        )

    def without(self, keyword: str) -> ComparedNode:
        """The same without a keyword that was dealt with, what `expand_nodes` has followed, and what depends on either."""
        gone = {keyword, *_FOLLOWED, "unevaluatedProperties", "unevaluatedItems"}
        schema = {key: item for key, item in self.said.items() if key not in gone}
        return ComparedNode(
            self.side, self.site._replace(schema=schema, path=(*self.site.path, f"without {keyword}"))
        )

    def flat(self) -> ComparedNode:
        """The same, so that what `expand_nodes` has followed is not followed once more."""
        there = isinstance(self.site.schema, dict) and any(key in self.site.schema for key in _FOLLOWED)
        return self.without("allOf") if there else self

    @property
    def values(self) -> dict[str, JSON] | None:
        """The values that `enum` and `const` leave over, by their `equality_key`; None where neither is there."""
        said = self.said
        if "enum" not in said and "const" not in said:
            return None
        if self.side is _IMPLIED:
            return declared_values(said)
        known, key = self.side.values, self.key
        if key not in known:
            known[key] = declared_values(said)
        return known[key]

    @property
    def text(self) -> str:
        """The subschema as canonical JSON; empty where it is none."""
        if self.side is _IMPLIED:
            return self.site.document
        texts, key = self.side.texts, self.key
        if key not in texts:
            texts[key] = canonical_text(self.site.schema)
        return texts[key]

    def table(self, keyword: str) -> Mapping[str, Any]:
        """A keyword whose value maps names to something; empty where it does not."""
        found = self.said.get(keyword)
        return found if isinstance(found, dict) else {}


Facts: TypeAlias = tuple[ComparedNode, ...]
"""Schemas that all take a value."""


def implied_node(schema: dict[str, JSON]) -> ComparedNode:
    """A fact that was not written anywhere: `{"type": "string"}`, `{"const": 3}`."""
    return ComparedNode(_IMPLIED, Site(schema, "", canonical_text(schema), ()))


def canonical_text(schema: Schema) -> str:
    """A schema as canonical JSON; empty where it is none."""
    try:
        return canonical(schema)
    except (ValueError, TypeError):
        return ""


def expand_nodes(nodes: Iterable[ComparedNode]) -> Facts:
    """Nodes with all that judges the same value in any case: what they refer to, and `allOf`."""
    found: dict[object, ComparedNode] = {}
    for node in nodes:
        for site in node.side.index.together([node.site], ("allOf",)):
            each = ComparedNode(node.side, site)
            found[each.key] = each
    return tuple(found.values())


def is_known_keyword(node: ComparedNode, keyword: str) -> bool:
    """Whether a keyword means something in the node's dialect, so that it may be relied on."""
    if keyword in _SINCE_2019:
        return node.side.dialect >= 2019
    if keyword == "prefixItems":
        return node.side.dialect >= 2020
    if keyword in {"additionalItems", "items as a list"}:
        return node.side.dialect < 2020
    return keyword != "dependencies" or node.side.dialect < 2019


def type_of(value: JSON) -> str:
    """The type of a value; a number without a fraction is an `integer`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    return {float: "number", str: "string", list: "array"}.get(type(value), "object")


def declared_types(said: Mapping[str, Any]) -> frozenset[str]:
    """The types that the keyword `type` takes."""
    named = said.get("type")
    if isinstance(named, str):
        return _TYPES_NAMED.get(named) or frozenset((named,))
    if not isinstance(named, list):
        return TYPES
    found = frozenset(name for name in named if isinstance(name, str))
    return found | (NUMBERS if "number" in found else frozenset())


_TYPES_NAMED: Final = {name: NUMBERS if name == "number" else frozenset((name,)) for name in TYPES}


def types_of(facts: Facts) -> frozenset[str]:
    """The types that a value may have."""
    found = TYPES
    for node in facts:
        found &= declared_types(node.said)
        values = node.values
        if values is not None:
            found &= {type_of(value) for value in values.values()}
    return found


def equality_key(value: JSON) -> str:
    """Equal texts for values that are equal to JSON Schema, to which 1 and 1.0 are."""
    return canonical(_plain(value))


def _plain(value: JSON) -> JSON:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def declared_values(said: Mapping[str, Any]) -> dict[str, JSON] | None:
    """The values that `enum` and `const` leave over, by their `equality_key`; None where neither says any."""
    found = None
    for listed in (said.get("enum"), [said["const"]] if "const" in said else None):
        if isinstance(listed, list):
            here = {equality_key(value): value for value in listed}
            found = here if found is None else {key: found[key] for key in found if key in here}
    return found


def values_of(facts: Facts) -> dict[str, JSON] | None:
    """All values that there may be, by their `equality_key`; None where they are not known one by one."""
    types = types_of(facts)
    found: dict[str, JSON] | None = None
    for node in facts:
        here = node.values
        if here is not None:
            found = here if found is None else {key: found[key] for key in found if key in here}
    if found is None and types <= {"null", "boolean"}:
        few: Sequence[JSON] = (None, False, True)
        found = {equality_key(value): value for value in few}
    return None if found is None else {key: value for key, value in found.items() if type_of(value) in types}


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a keyword's value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def upper_bound(facts: Facts, sign: Literal[1, -1]) -> Bound | None:
    """The greatest number that there may be; with the sign -1, the least one, negated.

    Where there are integers only, it is one of them.
    """
    plain, strict = ("maximum", "exclusiveMaximum") if sign == 1 else ("minimum", "exclusiveMinimum")
    found: list[Bound] = []
    for node in facts:
        for key, is_strict in ((plain, False), (strict, True)):
            if is_number(node.said.get(key)):
                found.append((sign * node.said[key], is_strict))
    values = [value for value in (values_of(facts) or {}).values() if is_number(value)]
    if values:
        found.append((max(sign * value for value in values), False))
    if not found:
        return None
    greatest, left_out = min(found, key=lambda bound: (bound[0], not bound[1]))
    if "number" in types_of(facts):
        return greatest, left_out
    return (math.ceil(greatest) - 1 if left_out else math.floor(greatest)), False


def min_size(facts: Facts, keyword: str) -> int:
    """The greatest lower bound of a size: `minLength`, `minItems`, `minProperties`."""
    return max((int(node.said[keyword]) for node in facts if is_number(node.said.get(keyword))), default=0)


def max_size(facts: Facts, keyword: str) -> int | None:
    """The least upper bound of a size; None where there is none."""
    return min((int(node.said[keyword]) for node in facts if is_number(node.said.get(keyword))), default=None)


def required(facts: Iterable[ComparedNode]) -> set[str]:
    """The properties that an object has in any case."""
    lists = [node.said.get("required") for node in facts]
    return {name for listed in lists if isinstance(listed, list) for name in listed if isinstance(name, str)}


def is_pattern_match(pattern: str, text: str) -> bool | None:
    """Whether a text fits a pattern; None where that can't be said."""
    try:
        return bool(pattern_validator(pattern).is_valid(text))
    except ValueError:
        return None


def members(facts: Facts, name: str) -> tuple[Facts, bool]:
    """What judges a property, and whether the schemas speak of it or of all that they don't name.

    An object that lists its properties and says nothing of others has told nobody of this one.
    """
    found: list[ComparedNode] = []
    listing = False
    for node in facts:
        here = [_at(node, "properties", name)] if name in node.table("properties") else []
        patterns = {pattern: is_pattern_match(pattern, name) for pattern in node.table("patternProperties")}
        here += [_at(node, "patternProperties", pattern) for pattern, fits in patterns.items() if fits]
        if not here and None not in patterns.values():
            here.append(node.under("additionalProperties"))
        found += [each for each in here if each is not None]
        listing = listing or "properties" in node.said
    return tuple(found), bool(found) or not listing


def _at(node: ComparedNode, keyword: str, name: str) -> ComparedNode | None:
    return node.under(keyword, name)


def additional_properties(facts: Facts) -> Facts:
    """What judges a property that no schema names and no pattern fits."""
    found = (node.under("additionalProperties") for node in facts if "additionalProperties" in node.said)
    return tuple(each for each in found if each is not None)


def named_properties(facts: Facts) -> list[str]:
    """The properties that schemas name, in the order written."""
    return [*dict.fromkeys(name for node in facts for name in node.table("properties"))]


def pattern_properties(facts: Facts) -> Iterator[tuple[str, ComparedNode]]:
    """The patterns of names of properties, each with what judges those."""
    for node in facts:
        for pattern in node.table("patternProperties"):
            under = node.under("patternProperties", pattern)
            if under is not None:
                yield pattern, under


def items_of(node: ComparedNode) -> tuple[list[ComparedNode], ComparedNode | None]:
    """What judges the first items of a list one by one, and what judges the rest."""
    listed = node.said.get("items")
    if isinstance(listed, list):
        first, rest = ("items", len(listed)), "additionalItems"
    else:
        prefix = node.said.get("prefixItems")
        first, rest = ("prefixItems", len(prefix) if isinstance(prefix, list) else 0), "items"
    ahead = [node.under(first[0], number) for number in range(first[1])]
    return [each for each in ahead if each is not None], node.under(rest)


def item(facts: Facts, at: int) -> Facts:
    """What judges an item of a list, as far as the dialects of the facts say so."""
    found = []
    for node in facts:
        if "prefixItems" in node.said and not is_known_keyword(node, "prefixItems"):
            continue
        if isinstance(node.said.get("items"), list) and not is_known_keyword(node, "items as a list"):
            continue
        ahead, rest = items_of(node)
        found.append(ahead[at] if at < len(ahead) else rest)
    return tuple(each for each in found if each is not None)


def is_same_schema(one: ComparedNode, other: ComparedNode) -> bool:
    """Whether two subschemas are the same in all that they say and refer to."""
    pairs, seen = [(one, other)], set()
    while pairs:
        first, second = pairs.pop()
        if (first.key, second.key) in seen:
            continue
        seen.add((first.key, second.key))
        if first.side.dialect != second.side.dialect or first.text != second.text:
            return False
        for mine, theirs in zip(_references(first), _references(second), strict=True):
            if mine is None or theirs is None:
                return False
            pairs.append((mine, theirs))
    return True


def _references(node: ComparedNode) -> Iterator[ComparedNode | None]:
    for site in node.side.index.walk(node.site):
        for _, _, target in node.side.index.targets(site):
            yield None if target is None else ComparedNode(node.side, target)


CASES: Final = 64
"""Values that are followed one by one."""


def is_impossible(facts: Facts, *, deep: bool = True) -> bool:
    """Whether no value at all fits the facts: for its types or values, or those of a property that it must have."""
    if any(node.site.schema is False for node in facts) or not types_of(facts) or values_of(facts) == {}:
        return True
    return (
        deep
        and types_of(facts) == {"object"}
        and any(is_impossible(expand_nodes(members(facts, name)[0]), deep=False) for name in required(facts))
    )


def is_closed(facts: Facts) -> bool:
    """Whether an object has no properties but those that are named."""
    return any(node.site.schema is False for node in additional_properties(facts)) and not any(
        pattern_properties(facts)
    )


def alternatives_of(node: ComparedNode, keyword: str) -> list[ComparedNode]:
    """The schemas that `anyOf` or `oneOf` lists; none where one of them is no schema."""
    listed = node.said.get(keyword)
    found = [node.under(keyword, at) for at in range(len(listed) if isinstance(listed, list) else 0)]
    return [] if None in found else [each for each in found if each is not None]


def cases_of(facts: Facts, goal: ComparedNode) -> list[Facts]:
    """Facts with one more fact each, of which one is true in any case; none where nothing is left to tell apart."""
    for at, node in enumerate(facts):
        for keyword in ("anyOf", "oneOf"):
            alternatives = alternatives_of(node, keyword)
            if alternatives:
                flat = [each.flat() for each in (*facts[:at], *facts[at + 1 :])] + [node.without(keyword)]
                rest = [each for each in flat if each.said or each.site.schema is False]
                return [(*rest, each) for each in alternatives]
    choices = ("anyOf", "oneOf", "if", "not")
    if not any(keyword in part.said for part in expand_nodes((goal,)) for keyword in choices):
        return []
    values, types = values_of(facts), types_of(facts)
    if values is not None and 1 < len(values) <= CASES:
        return [(*facts, implied_node({"const": value})) for value in values.values()]
    if 1 < len(types) < len(TYPES) and not types <= NUMBERS:
        kinds = sorted((types - NUMBERS) | ({"number"} if "number" in types else types & {"integer"}))
        return [(*facts, implied_node({"type": kind})) for kind in kinds]
    return []


class Reason(NamedTuple):
    """Why it can't be shown that everything is taken.

    Attributes:
        keyword: The keyword of the wide schema that stands in the way; empty where it took too long.
        path: Where that stands, in the wide schema.
        detail: A type, the name of a property or a value as JSON that is not taken; empty where it is none of these.
    """

    keyword: str
    path: Path = ()
    detail: str = ""


def is_multiple(facts: Facts, factor: float) -> bool:
    """Whether facts let only multiples of a number through."""
    if factor == 1 and "number" not in types_of(facts):
        return True
    there = [node.said.get("multipleOf") for node in facts]
    whole = [each for each in there if isinstance(each, int) and not isinstance(each, bool)]
    return factor in there or (
        isinstance(factor, int) and factor > 0 and any(each % factor == 0 for each in whole)
    )


def reasons_of_size(
    facts: Facts, goal: ComparedNode, low: str, high: str, sizes: list[int] | None
) -> Iterator[Reason]:
    """Why bounds of a size do not follow; `sizes` are all that there are, where that is known."""
    bound = goal.said.get(low)
    if is_number(bound):
        there = min_size(facts, low) if sizes is None else min(sizes, default=bound)
        if there < bound:
            yield Reason(low, (*goal.site.path, low))
    bound = goal.said.get(high)
    if is_number(bound):
        largest = max_size(facts, high) if sizes is None else max(sizes, default=0)
        if largest is None or largest > bound:
            yield Reason(high, (*goal.site.path, high))


def has_keyword_value(facts: Facts, keyword: str, value: JSON) -> bool:
    """Whether one of the facts says just this at a keyword."""
    return any(
        keyword in node.said and equality_key(node.said[keyword]) == equality_key(value) for node in facts
    )


def closest_reasons(tries: list[list[Reason]]) -> list[Reason]:
    """The reasons of the alternative that is nearest: of the right type, and with the fewest faults."""
    if len(tries) > 1 and all(any(reason.keyword == "type" for reason in each) for each in tries):
        return []
    return min(
        tries, key=lambda each: (any(reason.keyword == "type" for reason in each), len(each)), default=[]
    )
