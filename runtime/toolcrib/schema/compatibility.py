"""Prove that every value that one JSON Schema accepts is accepted by another one.

A schema is a conjunction of keywords. For each keyword of the wide schema, the proof shows that it follows from the
keywords of the narrow schema at the same place (`constraints`). Alternatives of the narrow schema are followed one by
one; at least one alternative of the wide schema must follow. A keyword that cannot be shown to follow counts as a
difference, with its reason.

Properties that an object allows without naming them (it lists `properties` and does not mention others) count if the wide
schema closes the object, but not if the wide schema defines one of these names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal

from toolcrib.core.model import Schema
from toolcrib.schema import constraints
from toolcrib.schema.constraints import (
    NUMBERS,
    ComparedNode,
    ComparedSchema,
    Facts,
    Reason,
    alternatives_of,
    cases_of,
    closest_reasons,
    expand_nodes,
    has_keyword_value,
    implied_node,
    is_closed,
    is_impossible,
    is_multiple,
    is_pattern_match,
    is_same_schema,
    reasons_of_size,
    types_of,
    values_of,
)

EFFORT: Final = 20_000
"""Default number of facts that a proof may examine; beyond it nothing is proved."""

LARGEST: Final = 256 * 1024
"""Maximum size of a schema in characters of JSON, as in `check_schema`; nothing is proved about larger ones."""

# Below Python's recursion limit: a proof uses several frames per level.
_DEEPEST: Final = 120


class _TooMuchError(Exception):
    """The limit of effort or depth was reached."""


def incompatibilities(narrow: Schema, wide: Schema, effort: int = EFFORT) -> list[Reason]:
    """Reasons why `wide` may refuse a value that `narrow` accepts; empty if it provably accepts all of them.

    Args:
        narrow: Any schema.
        wide: Any schema. `unevaluatedProperties` and `unevaluatedItems` follow only from an equal schema.
        effort: Maximum number of facts to examine; 10,000 take about a second at most.
    """
    # Every shortcut errs on the safe side: what is not proved is reported as a difference.
    texts = [constraints.canonical_text(schema) for schema in (narrow, wide)]
    if "" in texts or max(map(len, texts)) > LARGEST:
        return [Reason("")]
    if texts[0] == texts[1]:
        return []
    one, other = ComparedSchema(narrow), ComparedSchema(wide)
    if not one.is_comparable or not other.is_comparable:
        return [Reason("")]
    try:
        return [*dict.fromkeys(_Proof(effort).follows((one.root,), other.root, 0))]
    except (_TooMuchError, RecursionError):
        return [Reason("")]


class _Proof:
    """One proof, with its limits."""

    def __init__(self, effort: int) -> None:
        self._left = effort
        self._strict = False
        self._assumed: dict[object, int] = {}

    def follows(self, facts: Facts, goal: ComparedNode, level: int) -> list[Reason]:
        """Reasons why a goal does not follow from facts; empty if it does.

        Args:
            facts: Schemas that accept the value.
            goal: The schema that should accept it.
            level: Depth of the judged place within the value.
        """
        facts = expand_nodes(facts)
        self._left -= 1 + len(facts)
        if self._left < 0 or level > _DEEPEST:
            raise _TooMuchError
        # Everything follows from a contradiction: there is no value to accept.
        if is_impossible(facts):
            return []
        key = frozenset(node.key for node in facts), goal.key, self._strict
        begun = self._assumed.get(key)
        if begun is not None:
            # The same question again, by recursion. Deeper in the value it may be assumed, since values are
            # finite (induction); at the same place the proof would be circular.
            return [] if begun < level else [Reason("$ref", goal.site.path)]
        self._assumed[key] = level
        try:
            reasons = [*self._directly(facts, goal, level)]
            return self._by_cases(facts, goal, level, reasons) if reasons else []
        finally:
            del self._assumed[key]

    def _directly(self, facts: Facts, goal: ComparedNode, level: int) -> Iterator[Reason]:
        for part in expand_nodes((goal,)):
            if part.site.schema is False:
                yield Reason("false", part.site.path)
            if any(is_same_schema(fact, part) for fact in facts):
                continue
            for keyword, _, target in part.side.index.targets(part.site):
                if target is None:
                    yield Reason(keyword, (*part.site.path, keyword))
            for keywords, check in _CHECKS:
                if any(keyword in part.said for keyword in keywords):
                    yield from check(self, facts, part, level)

    def _by_cases(self, facts: Facts, goal: ComparedNode, level: int, reasons: list[Reason]) -> list[Reason]:
        """The reasons that remain when the alternatives of the facts are followed one by one."""
        cases = cases_of(facts, goal)
        if not cases:
            return reasons
        for case in cases:
            found = self.follows(case, goal, level)
            if found:
                return found if len(found) <= len(reasons) else reasons
        return []

    @contextmanager
    def _with_own_facts(self) -> Iterator[None]:
        """Treat properties that the facts do not name as unknown, because some facts come from the wide schema."""
        before, self._strict = self._strict, True
        try:
            yield
        finally:
            self._strict = before

    # Checks: each yields the reasons why some keywords of the goal do not follow.

    def types(self, facts: Facts, goal: ComparedNode, _level: int) -> Iterator[Reason]:
        taken = constraints.declared_types(goal.said)
        there = types_of(facts)
        left = there - taken
        # A narrow schema without `type`: one reason instead of one per type.
        if there == constraints.TYPES and left:
            yield Reason("type", (*goal.site.path, "type"))
            return
        for name in sorted(left - {"integer"} if "number" in left else left):
            yield Reason("type", (*goal.site.path, "type"), name)

    def values(self, facts: Facts, goal: ComparedNode, _level: int) -> Iterator[Reason]:
        taken = goal.values
        if taken is None:
            return
        there = values_of(facts)
        keyword = "enum" if "enum" in goal.said else "const"
        if there is None:
            yield Reason(keyword, (*goal.site.path, keyword))
        for each in there or ():
            if each not in taken:
                yield Reason(keyword, (*goal.site.path, keyword), each)

    def numbers(self, facts: Facts, goal: ComparedNode, _level: int) -> Iterator[Reason]:
        if not types_of(facts) & NUMBERS:
            return
        for keyword, sign, strict in _NUMBER_BOUNDS:
            bound = goal.said.get(keyword)
            if not constraints.is_number(bound):
                continue
            most = constraints.upper_bound(facts, sign)
            if (
                most is None
                or (most[0] > sign * bound)
                or (strict and most[0] == sign * bound and not most[1])
            ):
                yield Reason(keyword, (*goal.site.path, keyword))
        factor = goal.said.get("multipleOf")
        if constraints.is_number(factor) and not is_multiple(facts, factor):
            yield Reason("multipleOf", (*goal.site.path, "multipleOf"))

    def strings(self, facts: Facts, goal: ComparedNode, _level: int) -> Iterator[Reason]:
        if "string" not in types_of(facts):
            return
        texts = [value for value in (values_of(facts) or {}).values() if isinstance(value, str)]
        listed = values_of(facts) is not None
        yield from reasons_of_size(
            facts, goal, "minLength", "maxLength", [len(text) for text in texts] if listed else None
        )
        pattern = goal.said.get("pattern")
        # Inclusion of regular languages is not attempted: only an equal pattern or listed values prove it.
        if isinstance(pattern, str) and not (
            has_keyword_value(facts, "pattern", pattern)
            or (listed and all(is_pattern_match(pattern, text) for text in texts))
        ):
            yield Reason("pattern", (*goal.site.path, "pattern"))
        for keyword in ("format", "contentEncoding", "contentMediaType", "contentSchema"):
            if keyword in goal.said and not has_keyword_value(facts, keyword, goal.said[keyword]):
                yield Reason(keyword, (*goal.site.path, keyword))

    def lists(self, facts: Facts, goal: ComparedNode, level: int) -> Iterator[Reason]:
        if "array" not in types_of(facts):
            return
        yield from reasons_of_size(facts, goal, "minItems", "maxItems", None)
        longest = constraints.max_size(facts, "maxItems")
        if (
            goal.said.get("uniqueItems") is True
            and not has_keyword_value(facts, "uniqueItems", True)
            and (longest is None or longest > 1)
        ):
            yield Reason("uniqueItems", (*goal.site.path, "uniqueItems"))
        ahead, rest = constraints.items_of(goal)
        single = max([len(ahead), *(len(constraints.items_of(node)[0]) for node in facts)])
        for at in range(single + 1):
            wanted = ahead[at] if at < len(ahead) else rest
            if wanted is not None and (longest is None or at < longest):
                yield from self.follows(constraints.item(facts, at), wanted, level + 1)

    def contains(self, facts: Facts, goal: ComparedNode, level: int) -> Iterator[Reason]:
        wanted = goal.under("contains")
        if wanted is None or "array" not in types_of(facts):
            return
        counts = ("minContains", "maxContains")
        for node in facts:
            there = node.under("contains")
            if there is None or any(node.said.get(key) != goal.said.get(key) for key in counts):
                continue
            if is_same_schema(there, wanted):
                return
            if "maxContains" not in goal.said and not self.follows((there,), wanted, level + 1):
                return
        yield Reason("contains", (*goal.site.path, "contains"))

    def objects(self, facts: Facts, goal: ComparedNode, level: int) -> Iterator[Reason]:
        if "object" not in types_of(facts):
            return
        there = constraints.required(facts)
        for name in sorted(constraints.required((goal,)) - there):
            yield Reason("required", (*goal.site.path, "required"), name)
        yield from self._counted(facts, goal)
        yield from self._named(facts, goal, level)
        yield from self._patterned(facts, goal, level)
        yield from self._others(facts, goal, level)
        wanted = goal.under("propertyNames")
        if wanted is not None:
            yield from self._names(facts, goal, wanted, level)

    def _counted(self, facts: Facts, goal: ComparedNode) -> Iterator[Reason]:
        fewest = goal.said.get("minProperties")
        if (
            constraints.is_number(fewest)
            and max(constraints.min_size(facts, "minProperties"), len(constraints.required(facts))) < fewest
        ):
            yield Reason("minProperties", (*goal.site.path, "minProperties"))
        most = goal.said.get("maxProperties")
        if constraints.is_number(most):
            there = constraints.max_size(facts, "maxProperties")
            names = len(constraints.named_properties(facts)) if is_closed(facts) else None
            if not any(number is not None and number <= most for number in (there, names)):
                yield Reason("maxProperties", (*goal.site.path, "maxProperties"))

    def _named(self, facts: Facts, goal: ComparedNode, level: int) -> Iterator[Reason]:
        for name in goal.table("properties"):
            wanted = goal.under("properties", name)
            there, told = constraints.members(facts, name)
            if wanted is not None and (told or self._strict):
                yield from self.follows(there, wanted, level + 1)

    def _patterned(self, facts: Facts, goal: ComparedNode, level: int) -> Iterator[Reason]:
        for pattern, wanted in constraints.pattern_properties((goal,)):
            for name in constraints.named_properties(facts):
                if is_pattern_match(pattern, name) is not False:
                    yield from self.follows(constraints.members(facts, name)[0], wanted, level + 1)
            there = [each for other, each in constraints.pattern_properties(facts) if other == pattern]
            rest = (
                [] if any(constraints.pattern_properties(facts)) else constraints.additional_properties(facts)
            )
            yield from self.follows((*there, *rest), wanted, level + 1)

    def _others(self, facts: Facts, goal: ComparedNode, level: int) -> Iterator[Reason]:
        wanted = goal.under("additionalProperties")
        if wanted is None:
            return
        names, patterns = goal.table("properties"), goal.table("patternProperties")
        for name in constraints.named_properties(facts):
            fits = [is_pattern_match(pattern, name) for pattern in patterns]
            if name not in names and True not in fits:
                found = self.follows(constraints.members(facts, name)[0], wanted, level + 1)
                if found and wanted.site.schema is False:
                    yield Reason("properties", (*goal.site.path, "properties", name), name)
                else:
                    yield from found
        for pattern, each in constraints.pattern_properties(facts):
            if pattern not in patterns:
                yield from self.follows((each,), wanted, level + 1)
        if self.follows(constraints.additional_properties(facts), wanted, level + 1):
            yield Reason("additionalProperties", (*goal.site.path, "additionalProperties"))

    def _names(self, facts: Facts, goal: ComparedNode, wanted: ComparedNode, level: int) -> Iterator[Reason]:
        there = [node.under("propertyNames") for node in facts]
        if not self.follows(tuple(each for each in there if each is not None), wanted, level + 1):
            return
        listed = constraints.named_properties(facts) if is_closed(facts) else None
        if listed is None or any(
            self.follows((implied_node({"const": name}),), wanted, level + 1) for name in listed
        ):
            yield Reason("propertyNames", (*goal.site.path, "propertyNames"))

    def dependents(self, facts: Facts, goal: ComparedNode, level: int) -> Iterator[Reason]:
        if "object" not in types_of(facts):
            return
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name in goal.table(keyword):
                if not self._depends(facts, goal, keyword, name, level):
                    yield Reason(keyword, (*goal.site.path, keyword, name), name)

    def _depends(self, facts: Facts, goal: ComparedNode, keyword: str, name: str, level: int) -> bool:
        """Whether objects with a property that the facts accept meet the goal's requirements for it."""
        with_it = (*facts, implied_node({"required": [name]}))
        for node in facts:
            for other in ("dependentRequired", "dependencies"):
                listed = node.table(other).get(name)
                if isinstance(listed, list) and constraints.is_known_keyword(node, other):
                    with_it = (*with_it, implied_node({"required": listed}))
            for other in ("dependentSchemas", "dependencies"):
                under = node.under(other, name)
                if under is not None and constraints.is_known_keyword(node, other):
                    with_it = (*with_it, under)
        asked = goal.table(keyword)[name]
        wanted = implied_node({"required": asked}) if isinstance(asked, list) else goal.under(keyword, name)
        return wanted is not None and not self.follows(with_it, wanted, level)

    def any_of(self, facts: Facts, goal: ComparedNode, level: int) -> Iterator[Reason]:
        tries = []
        for wanted in alternatives_of(goal, "anyOf"):
            reasons = self.follows(facts, wanted, level)
            if not reasons:
                return
            tries.append(reasons)
        yield from closest_reasons(tries) or [Reason("anyOf", (*goal.site.path, "anyOf"))]

    def one_of(self, facts: Facts, goal: ComparedNode, level: int) -> Iterator[Reason]:
        wanted = alternatives_of(goal, "oneOf")
        if any(self._is_same_choice(facts, alternatives_of(node, "oneOf"), wanted, level) for node in facts):
            return
        tries = []
        for at, each in enumerate(wanted):
            reasons = self.follows(facts, each, level)
            # `oneOf` requires that exactly one alternative matches, so all others must be impossible.
            rest = [*wanted[:at], *wanted[at + 1 :]]
            if not reasons and all(is_impossible(expand_nodes((*facts, other))) for other in rest):
                return
            tries.append(reasons or [Reason("oneOf", (*goal.site.path, "oneOf"))])
        yield from closest_reasons(tries) or [Reason("oneOf", (*goal.site.path, "oneOf"))]

    def _is_same_choice(
        self, facts: Facts, there: list[ComparedNode], wanted: list[ComparedNode], level: int
    ) -> bool:
        """Whether two lists of alternatives are equivalent one by one, so that exactly one of both matches."""
        if not 0 < len(there) == len(wanted):
            return False
        with self._with_own_facts():
            return all(
                not self.follows((*facts, one), other, level)
                and not self.follows((*facts, other), one, level)
                for one, other in zip(there, wanted, strict=True)
            )

    def negated(self, facts: Facts, goal: ComparedNode, level: int) -> Iterator[Reason]:
        wanted = goal.under("not")
        # `not A` follows if A contradicts the facts, or if A implies something that the facts already
        # exclude.
        if wanted is None or is_impossible(expand_nodes((*facts, wanted))):
            return
        there = [each for node in facts if (each := node.under("not")) is not None]
        with self._with_own_facts():
            follows = any(not self.follows((*facts, wanted), each, level) for each in there)
        if not follows:
            yield Reason("not", (*goal.site.path, "not"))

    def conditional(self, facts: Facts, goal: ComparedNode, level: int) -> Iterator[Reason]:
        condition = goal.under("if")
        if condition is None:
            return
        yes, no = (*facts, condition), facts
        for node in facts:
            other = node.under("if")
            if other is not None and is_same_schema(other, condition):
                yes = (*yes, *filter(None, [node.under("then")]))
                no = (*no, *filter(None, [node.under("else")]))
        for keyword, there in (("then", yes), ("else", no)):
            wanted = goal.under(keyword)
            if wanted is not None:
                with self._with_own_facts():
                    reasons = self.follows(there, wanted, level)
                yield from reasons

    def unevaluated(self, _facts: Facts, goal: ComparedNode, _level: int) -> Iterator[Reason]:
        for keyword in ("unevaluatedProperties", "unevaluatedItems"):
            if keyword in goal.said and goal.said[keyword] is not True:
                yield Reason(keyword, (*goal.site.path, keyword))


_NUMBER_BOUNDS: Final[tuple[tuple[str, Literal[1, -1], bool], ...]] = (
    ("maximum", 1, False),
    ("exclusiveMaximum", 1, True),
    ("minimum", -1, False),
    ("exclusiveMinimum", -1, True),
)

_Check = Callable[[_Proof, Facts, ComparedNode, int], Iterator[Reason]]

_CHECKS: Final[tuple[tuple[tuple[str, ...], _Check], ...]] = (
    (("type",), _Proof.types),
    (("enum", "const"), _Proof.values),
    ((*(name for name, _, _ in _NUMBER_BOUNDS), "multipleOf"), _Proof.numbers),
    (
        (
            "minLength",
            "maxLength",
            "pattern",
            "format",
            "contentEncoding",
            "contentMediaType",
            "contentSchema",
        ),
        _Proof.strings,
    ),
    (("minItems", "maxItems", "uniqueItems", "items", "prefixItems", "additionalItems"), _Proof.lists),
    (("contains",), _Proof.contains),
    (
        (
            "required",
            "minProperties",
            "maxProperties",
            "properties",
            "patternProperties",
            "additionalProperties",
            "propertyNames",
        ),
        _Proof.objects,
    ),
    (("dependentRequired", "dependentSchemas", "dependencies"), _Proof.dependents),
    (("anyOf",), _Proof.any_of),
    (("oneOf",), _Proof.one_of),
    (("not",), _Proof.negated),
    (("if",), _Proof.conditional),
    (("unevaluatedProperties", "unevaluatedItems"), _Proof.unevaluated),
)
"""Every keyword that can refuse a value, with the check that proves it does not."""
