"""The combined constraints of several JSON Schemas on one value: types, bounds, members and alternatives.

A keyword that cannot be interpreted is treated as unknown, so too little may be proved, but never too much. `Reason`
explains why a schema may not accept everything that another one accepts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeGuard

from toolcrib.core.model import JSON, Schema
from toolcrib.core.subschemas import REFERENCES, Path, SchemaIndex, Site, is_schema, pattern_validator
from toolcrib.core.text import canonical

TYPES: Final = frozenset(("null", "boolean", "object", "array", "string", "integer", "number"))
"""The types of a value; `number` stands for numbers that are not integers."""

NUMBERS: Final = frozenset(("integer", "number"))

DIALECTS: Final = {
    "https://json-schema.org/draft/2020-12/schema": 2020,
    "https://json-schema.org/draft/2019-09/schema": 2019,
    "http://json-schema.org/draft-07/schema": 7,
    "http://json-schema.org/draft-06/schema": 6,
}
"""The dialects that can be compared. In draft 4, `exclusiveMaximum` is a boolean and 1.0 is not an integer."""

_FOLLOWED: Final = ("allOf", *REFERENCES)

_SINCE_2019: Final = ("dependentRequired", "dependentSchemas", "minContains", "maxContains")

Bound: TypeAlias = tuple[float, bool]
"""A number, and whether it is itself excluded."""


class ComparedSchema:
    """One of the two schemas of a comparison.

    Attributes:
        index: Its subschemas.
        dialect: Year or number of its dialect; 0 for one that cannot be compared.
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
        """Whether it has only static references and a single, known dialect."""
        # The target of a dynamic reference depends on the path of evaluation, which a proof does not follow.
        sites = [*self.index.everything()]
        moving = any(site.get(key) is not None for site in sites for key in REFERENCES[1:])
        mixed = any(site.get("$schema") is not None for site in sites if site.path)
        return bool(self.dialect) and not moving and not mixed


_IMPLIED: Final = ComparedSchema(True)


class ComparedNode(NamedTuple):
    """A subschema of one of the two schemas."""

    side: ComparedSchema
    site: Site

    @property
    def key(self) -> tuple[int, str, Path]:
        """Identifies the node."""
        return id(self.side), self.site.document, self.site.path

    @property
    def said(self) -> Mapping[str, Any]:
        """Its effective keywords: none if it is a boolean or overridden by its `$ref`."""
        # Up to draft 7, `$ref` replaces all keywords next to it.
        schema = self.site.schema
        return {} if isinstance(schema, bool) or self.side.index.is_overridden(self.site) else schema

    def under(self, *path: str | int) -> ComparedNode | None:
        """The subschema at a path below it, if any."""
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
        """The node without a keyword that was handled, and without what `expand_nodes` has followed."""
        # `unevaluated...` depends on the removed keywords, so it is removed with them.
        gone = {keyword, *_FOLLOWED, "unevaluatedProperties", "unevaluatedItems"}
        schema = {key: item for key, item in self.said.items() if key not in gone}
        return ComparedNode(
            self.side, self.site._replace(schema=schema, path=(*self.site.path, f"without {keyword}"))
        )

    def flat(self) -> ComparedNode:
        """The node without references and `allOf`, which `expand_nodes` has already followed."""
        there = isinstance(self.site.schema, dict) and any(key in self.site.schema for key in _FOLLOWED)
        return self.without("allOf") if there else self

    @property
    def values(self) -> dict[str, JSON] | None:
        """The values that `enum` and `const` allow, by `equality_key`; None if it has neither."""
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
        """The subschema as canonical JSON; empty if it is not JSON."""
        if self.side is _IMPLIED:
            return self.site.document
        texts, key = self.side.texts, self.key
        if key not in texts:
            texts[key] = canonical_text(self.site.schema)
        return texts[key]

    def table(self, keyword: str) -> Mapping[str, Any]:
        """The value of a keyword that is a mapping; empty if it is not."""
        found = self.said.get(keyword)
        return found if isinstance(found, dict) else {}


Facts: TypeAlias = tuple[ComparedNode, ...]
"""Schemas that all accept a value."""


def implied_node(schema: dict[str, JSON]) -> ComparedNode:
    """A derived fact that no schema contains, such as `{"type": "string"}` or `{"const": 3}`."""
    return ComparedNode(_IMPLIED, Site(schema, "", canonical_text(schema), ()))


def canonical_text(schema: Schema) -> str:
    """A schema as canonical JSON; empty if it is not JSON."""
    try:
        return canonical(schema)
    except (ValueError, TypeError):
        return ""


def expand_nodes(nodes: Iterable[ComparedNode]) -> Facts:
    """The nodes and all subschemas that always judge the same value: targets of references, and `allOf`."""
    found: dict[object, ComparedNode] = {}
    for node in nodes:
        for site in node.side.index.together([node.site], ("allOf",)):
            each = ComparedNode(node.side, site)
            found[each.key] = each
    return tuple(found.values())


def is_known_keyword(node: ComparedNode, keyword: str) -> bool:
    """Whether a keyword exists in the node's dialect, so that a proof may rely on it."""
    # Only facts are checked. A goal's unknown keyword refuses nothing, but assuming that it does is safe.
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
    """The types that the keyword `type` allows."""
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
    """The same text for values that JSON Schema treats as equal, such as 1 and 1.0."""
    return canonical(_plain(value))


def _plain(value: JSON) -> JSON:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def declared_values(said: Mapping[str, Any]) -> dict[str, JSON] | None:
    """The values that `enum` and `const` allow, by `equality_key`; None without either."""
    found = None
    for listed in (said.get("enum"), [said["const"]] if "const" in said else None):
        if isinstance(listed, list):
            here = {equality_key(value): value for value in listed}
            found = here if found is None else {key: found[key] for key in found if key in here}
    return found


def values_of(facts: Facts) -> dict[str, JSON] | None:
    """All possible values, by `equality_key`; None if they cannot be enumerated."""
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
    """The upper bound of the possible numbers; with sign -1, the negated lower bound.

    If only integers are possible, the bound is an integer.
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
    """The least upper bound of a size, if any."""
    return min((int(node.said[keyword]) for node in facts if is_number(node.said.get(keyword))), default=None)


def required(facts: Iterable[ComparedNode]) -> set[str]:
    """The properties that an object must have."""
    lists = [node.said.get("required") for node in facts]
    return {name for listed in lists if isinstance(listed, list) for name in listed if isinstance(name, str)}


def is_pattern_match(pattern: str, text: str) -> bool | None:
    """Whether a string matches a pattern; None if the pattern is not supported."""
    try:
        return bool(pattern_validator(pattern).is_valid(text))
    except ValueError:
        return None


def members(facts: Facts, name: str) -> tuple[Facts, bool]:
    """The subschemas that judge a property, and whether the schemas describe it.

    A property is described by name, by pattern, by `additionalProperties`, or if the object lists no properties at all.
    """
    # A schema that lists its properties and does not mention others was published without this one: its users
    # cannot rely on it, and a later schema may define it.
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
    """The subschemas that judge a property without a name or matching pattern in any schema."""
    found = (node.under("additionalProperties") for node in facts if "additionalProperties" in node.said)
    return tuple(each for each in found if each is not None)


def named_properties(facts: Facts) -> list[str]:
    """The properties that the schemas name, in order."""
    return [*dict.fromkeys(name for node in facts for name in node.table("properties"))]


def pattern_properties(facts: Facts) -> Iterator[tuple[str, ComparedNode]]:
    """The patterns of property names, each with its subschema."""
    for node in facts:
        for pattern in node.table("patternProperties"):
            under = node.under("patternProperties", pattern)
            if under is not None:
                yield pattern, under


def items_of(node: ComparedNode) -> tuple[list[ComparedNode], ComparedNode | None]:
    """The subschemas of the first items of a list, and that of the rest."""
    listed = node.said.get("items")
    if isinstance(listed, list):
        first, rest = ("items", len(listed)), "additionalItems"
    else:
        prefix = node.said.get("prefixItems")
        first, rest = ("prefixItems", len(prefix) if isinstance(prefix, list) else 0), "items"
    ahead = [node.under(first[0], number) for number in range(first[1])]
    return [each for each in ahead if each is not None], node.under(rest)


def item(facts: Facts, at: int) -> Facts:
    """The subschemas that judge an item of a list, in the dialects of the facts."""
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
    """Whether two subschemas are equal, including everything that they refer to."""
    # Pairs that were seen are assumed equal, which ends recursive schemas; a difference elsewhere still
    # decides.
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
"""Maximum number of values that are followed one by one."""


def is_impossible(facts: Facts, *, deep: bool = True) -> bool:
    """Whether no value can satisfy the facts, because of its types and values or those of a required property."""
    if any(node.site.schema is False for node in facts) or not types_of(facts) or values_of(facts) == {}:
        return True
    return (
        deep
        and types_of(facts) == {"object"}
        and any(is_impossible(expand_nodes(members(facts, name)[0]), deep=False) for name in required(facts))
    )


def is_closed(facts: Facts) -> bool:
    """Whether an object can only have properties that are named."""
    return any(node.site.schema is False for node in additional_properties(facts)) and not any(
        pattern_properties(facts)
    )


def alternatives_of(node: ComparedNode, keyword: str) -> list[ComparedNode]:
    """The schemas in `anyOf` or `oneOf`; empty if one of them is invalid."""
    listed = node.said.get(keyword)
    found = [node.under(keyword, at) for at in range(len(listed) if isinstance(listed, list) else 0)]
    return [] if None in found else [each for each in found if each is not None]


def cases_of(facts: Facts, goal: ComparedNode) -> list[Facts]:
    """Case distinction: the facts extended by one more fact each, of which one must hold; empty if there are no cases."""
    for at, node in enumerate(facts):
        for keyword in ("anyOf", "oneOf"):
            alternatives = alternatives_of(node, keyword)
            if alternatives:
                flat = [each.flat() for each in (*facts[:at], *facts[at + 1 :])] + [node.without(keyword)]
                rest = [each for each in flat if each.said or each.site.schema is False]
                return [(*rest, each) for each in alternatives]
    # Splitting by value or type only helps if the goal distinguishes cases, too.
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
    """Why a value may be refused.

    Attributes:
        keyword: The keyword of the wide schema that is not proved; empty if the proof exceeded its limits.
        path: The path of the keyword in the wide schema.
        detail: A type, a property name or a value (as JSON) that is refused; empty if not applicable.
    """

    keyword: str
    path: Path = ()
    detail: str = ""


def is_multiple(facts: Facts, factor: float) -> bool:
    """Whether the facts allow only multiples of a number."""
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
    """Reasons why the bounds of a size do not follow; `sizes` lists all possible sizes, if known."""
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
    """Whether one of the facts has this value of a keyword."""
    return any(
        keyword in node.said and equality_key(node.said[keyword]) == equality_key(value) for node in facts
    )


def closest_reasons(tries: list[list[Reason]]) -> list[Reason]:
    """The reasons of the closest alternative: of the right type, with the fewest reasons."""
    if len(tries) > 1 and all(any(reason.keyword == "type" for reason in each) for each in tries):
        return []
    return min(
        tries, key=lambda each: (any(reason.keyword == "type" for reason in each), len(each)), default=[]
    )
