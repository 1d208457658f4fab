"""Whether every value that one JSON Schema takes is taken by another one: shown step by step, or not.

A schema is a conjunction of keywords. Of each keyword of the wide schema it is shown that it follows from what the
narrow one says of the same place (`facts`). Alternatives of the narrow schema are followed one by one; of the wide
schema's, one has to follow. What can't be shown counts as not so, and the reason is told.

Of properties that an object may have but does not name (it lists `properties`, and says nothing of others), nobody was
told: they count where the wide schema closes the object, and not where it gives one of those names a meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal, NamedTuple

from toolcrib.lock import facts as known
from toolcrib.lock.facts import (
    NUMBERS,
    Facts,
    Node,
    Side,
    expanded,
    made,
    matches,
    sameness,
    types_of,
    values_of,
)
from toolcrib.model import JSON, Schema
from toolcrib.subschemas import Path
from toolcrib.text import canonical

STEPS: Final = 20_000
"""So many steps are taken for one pair of schemas; then it can't be shown."""

_CASES: Final = 64
"""Values that are followed one by one."""

_DEEPEST: Final = 120


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


class _TooMuchError(Exception):
    """The bound of steps or of depth was reached."""


def missing(narrow: Schema, wide: Schema) -> list[Reason]:
    """Why not everything that `narrow` takes is taken by `wide`; empty where it is shown to be.

    Args:
        narrow: A schema, in any form.
        wide: Another one. `unevaluatedProperties` and `unevaluatedItems` follow only from a schema that is the same.
    """
    one, other = Side(narrow), Side(wide)
    if same(one.root, other.root):
        return []
    if not one.is_comparable or not other.is_comparable:
        return [Reason("")]
    try:
        return [*dict.fromkeys(_Proof().follows((one.root,), other.root, 0))]
    except (_TooMuchError, RecursionError):
        return [Reason("")]


def same(one: Node, other: Node) -> bool:
    """Whether two subschemas are the same in all that they say and refer to."""
    pairs, seen = [(one, other)], set()
    while pairs:
        first, second = pairs.pop()
        if (first.key, second.key) in seen:
            continue
        seen.add((first.key, second.key))
        if first.side.dialect != second.side.dialect or not _equal(first.site.schema, second.site.schema):
            return False
        for mine, theirs in zip(_references(first), _references(second), strict=True):
            if mine is None or theirs is None:
                return False
            pairs.append((mine, theirs))
    return True


def _equal(one: Schema, other: Schema) -> bool:
    try:
        return canonical(one) == canonical(other)
    except (ValueError, TypeError):
        return False


def _references(node: Node) -> Iterator[Node | None]:
    for site in node.side.index.walk(node.site):
        for _, _, target in node.side.index.targets(site):
            yield None if target is None else Node(node.side, target)


class _Proof:
    """One search for reasons, with its bounds."""

    def __init__(self) -> None:
        self._steps = 0
        self._strict = False
        self._assumed: dict[object, int] = {}

    def follows(self, facts: Facts, goal: Node, level: int) -> list[Reason]:
        """Why a goal does not follow from facts.

        Args:
            facts: What takes the value.
            goal: What should take it.
            level: How deep in the value the place is that they judge.
        """
        self._steps += 1
        if self._steps > STEPS or level > _DEEPEST:
            raise _TooMuchError
        facts = expanded(facts)
        if _is_impossible(facts):
            return []
        key = frozenset(node.key for node in facts), goal.key, self._strict
        begun = self._assumed.get(key)
        if begun is not None:
            # Deeper in the value it may be assumed: values end. At the same place it would prove itself.
            return [] if begun < level else [Reason("$ref", goal.site.path)]
        self._assumed[key] = level
        try:
            reasons = [*self._directly(facts, goal, level)]
            return self._by_cases(facts, goal, level, reasons) if reasons else []
        finally:
            del self._assumed[key]

    def _directly(self, facts: Facts, goal: Node, level: int) -> Iterator[Reason]:
        for part in expanded((goal,)):
            if part.site.schema is False:
                yield Reason("false", part.site.path)
            if any(same(fact, part) for fact in facts):
                continue
            for keyword, _, target in part.side.index.targets(part.site):
                if target is None:
                    yield Reason(keyword, (*part.site.path, keyword))
            for keywords, check in _CHECKS:
                if any(keyword in part.said for keyword in keywords):
                    yield from check(self, facts, part, level)

    def _by_cases(self, facts: Facts, goal: Node, level: int, reasons: list[Reason]) -> list[Reason]:
        """The reasons that are left when alternatives of the facts are followed one by one."""
        cases = _cases(facts, goal)
        if not cases:
            return reasons
        for case in cases:
            found = self.follows(case, goal, level)
            if found:
                return found if len(found) <= len(reasons) else reasons
        return []

    @contextmanager
    def _with_own_facts(self) -> Iterator[None]:
        """Among the facts are some of the wide schema, so nothing follows from what they don't name."""
        before, self._strict = self._strict, True
        try:
            yield
        finally:
            self._strict = before

    # Checks: each tells why some keywords of the goal do not follow.

    def types(self, facts: Facts, goal: Node, _level: int) -> Iterator[Reason]:
        taken = known.types_said(goal.said)
        there = types_of(facts)
        left = there - taken
        if there == known.TYPES and left:
            yield Reason("type", (*goal.site.path, "type"))
            return
        for name in sorted(left - {"integer"} if "number" in left else left):
            yield Reason("type", (*goal.site.path, "type"), name)

    def values(self, facts: Facts, goal: Node, _level: int) -> Iterator[Reason]:
        taken = known.values_said(goal.said)
        if taken is None:
            return
        there = values_of(facts)
        keyword = "enum" if "enum" in goal.said else "const"
        if there is None:
            yield Reason(keyword, (*goal.site.path, keyword))
        for each in there or ():
            if each not in taken:
                yield Reason(keyword, (*goal.site.path, keyword), each)

    def numbers(self, facts: Facts, goal: Node, _level: int) -> Iterator[Reason]:
        if not types_of(facts) & NUMBERS:
            return
        for keyword, sign, strict in _NUMBER_BOUNDS:
            bound = goal.said.get(keyword)
            if not known.is_number(bound):
                continue
            most = known.upper(facts, sign)
            if (
                most is None
                or (most[0] > sign * bound)
                or (strict and most[0] == sign * bound and not most[1])
            ):
                yield Reason(keyword, (*goal.site.path, keyword))
        factor = goal.said.get("multipleOf")
        if known.is_number(factor) and not _is_multiple(facts, factor):
            yield Reason("multipleOf", (*goal.site.path, "multipleOf"))

    def strings(self, facts: Facts, goal: Node, _level: int) -> Iterator[Reason]:
        if "string" not in types_of(facts):
            return
        texts = [value for value in (values_of(facts) or {}).values() if isinstance(value, str)]
        listed = values_of(facts) is not None
        yield from _size(
            facts, goal, "minLength", "maxLength", [len(text) for text in texts] if listed else None
        )
        pattern = goal.said.get("pattern")
        if isinstance(pattern, str) and not (
            _says(facts, "pattern", pattern) or (listed and all(matches(pattern, text) for text in texts))
        ):
            yield Reason("pattern", (*goal.site.path, "pattern"))
        for keyword in ("format", "contentEncoding", "contentMediaType", "contentSchema"):
            if keyword in goal.said and not _says(facts, keyword, goal.said[keyword]):
                yield Reason(keyword, (*goal.site.path, keyword))

    def lists(self, facts: Facts, goal: Node, level: int) -> Iterator[Reason]:
        if "array" not in types_of(facts):
            return
        yield from _size(facts, goal, "minItems", "maxItems", None)
        longest = known.most(facts, "maxItems")
        if (
            goal.said.get("uniqueItems") is True
            and not _says(facts, "uniqueItems", True)
            and (longest is None or longest > 1)
        ):
            yield Reason("uniqueItems", (*goal.site.path, "uniqueItems"))
        ahead, rest = known.items_of(goal)
        single = max([len(ahead), *(len(known.items_of(node)[0]) for node in facts)])
        for at in range(single + 1):
            wanted = ahead[at] if at < len(ahead) else rest
            if wanted is not None and (longest is None or at < longest):
                yield from self.follows(known.item(facts, at), wanted, level + 1)

    def contains(self, facts: Facts, goal: Node, level: int) -> Iterator[Reason]:
        wanted = goal.under("contains")
        if wanted is None or "array" not in types_of(facts):
            return
        counts = ("minContains", "maxContains")
        for node in facts:
            there = node.under("contains")
            if there is None or any(node.said.get(key) != goal.said.get(key) for key in counts):
                continue
            if same(there, wanted):
                return
            if "maxContains" not in goal.said and not self.follows((there,), wanted, level + 1):
                return
        yield Reason("contains", (*goal.site.path, "contains"))

    def objects(self, facts: Facts, goal: Node, level: int) -> Iterator[Reason]:
        if "object" not in types_of(facts):
            return
        there = known.required(facts)
        for name in sorted(known.required((goal,)) - there):
            yield Reason("required", (*goal.site.path, "required"), name)
        yield from self._counted(facts, goal)
        yield from self._named(facts, goal, level)
        yield from self._patterned(facts, goal, level)
        yield from self._others(facts, goal, level)
        wanted = goal.under("propertyNames")
        if wanted is not None:
            yield from self._names(facts, goal, wanted, level)

    def _counted(self, facts: Facts, goal: Node) -> Iterator[Reason]:
        fewest = goal.said.get("minProperties")
        if (
            known.is_number(fewest)
            and max(known.least(facts, "minProperties"), len(known.required(facts))) < fewest
        ):
            yield Reason("minProperties", (*goal.site.path, "minProperties"))
        most = goal.said.get("maxProperties")
        if known.is_number(most):
            there = known.most(facts, "maxProperties")
            names = len(known.named(facts)) if _is_closed(facts) else None
            if not any(number is not None and number <= most for number in (there, names)):
                yield Reason("maxProperties", (*goal.site.path, "maxProperties"))

    def _named(self, facts: Facts, goal: Node, level: int) -> Iterator[Reason]:
        for name in goal.table("properties"):
            wanted = goal.under("properties", name)
            there, told = known.members(facts, name)
            if wanted is not None and (told or self._strict):
                yield from self.follows(there, wanted, level + 1)

    def _patterned(self, facts: Facts, goal: Node, level: int) -> Iterator[Reason]:
        for pattern, wanted in known.patterned((goal,)):
            for name in known.named(facts):
                if matches(pattern, name) is not False:
                    yield from self.follows(known.members(facts, name)[0], wanted, level + 1)
            there = [each for other, each in known.patterned(facts) if other == pattern]
            rest = [] if any(known.patterned(facts)) else known.others(facts)
            yield from self.follows((*there, *rest), wanted, level + 1)

    def _others(self, facts: Facts, goal: Node, level: int) -> Iterator[Reason]:
        wanted = goal.under("additionalProperties")
        if wanted is None:
            return
        names, patterns = goal.table("properties"), goal.table("patternProperties")
        for name in known.named(facts):
            fits = [matches(pattern, name) for pattern in patterns]
            if name not in names and True not in fits:
                found = self.follows(known.members(facts, name)[0], wanted, level + 1)
                if found and wanted.site.schema is False:
                    yield Reason("properties", (*goal.site.path, "properties", name), name)
                else:
                    yield from found
        for pattern, each in known.patterned(facts):
            if pattern not in patterns:
                yield from self.follows((each,), wanted, level + 1)
        if self.follows(known.others(facts), wanted, level + 1):
            yield Reason("additionalProperties", (*goal.site.path, "additionalProperties"))

    def _names(self, facts: Facts, goal: Node, wanted: Node, level: int) -> Iterator[Reason]:
        there = [node.under("propertyNames") for node in facts]
        if not self.follows(tuple(each for each in there if each is not None), wanted, level + 1):
            return
        listed = known.named(facts) if _is_closed(facts) else None
        if listed is None or any(
            self.follows((made({"const": name}),), wanted, level + 1) for name in listed
        ):
            yield Reason("propertyNames", (*goal.site.path, "propertyNames"))

    def dependents(self, facts: Facts, goal: Node, level: int) -> Iterator[Reason]:
        if "object" not in types_of(facts):
            return
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for name in goal.table(keyword):
                if not self._depends(facts, goal, keyword, name, level):
                    yield Reason(keyword, (*goal.site.path, keyword, name), name)

    def _depends(self, facts: Facts, goal: Node, keyword: str, name: str, level: int) -> bool:
        """Whether what a goal asks of objects with a property holds for those that the facts take."""
        with_it = (*facts, made({"required": [name]}))
        for node in facts:
            for other in ("dependentRequired", "dependencies"):
                listed = node.table(other).get(name)
                if isinstance(listed, list) and known.knows(node, other):
                    with_it = (*with_it, made({"required": listed}))
            for other in ("dependentSchemas", "dependencies"):
                under = node.under(other, name)
                if under is not None and known.knows(node, other):
                    with_it = (*with_it, under)
        asked = goal.table(keyword)[name]
        wanted = made({"required": asked}) if isinstance(asked, list) else goal.under(keyword, name)
        return wanted is not None and not self.follows(with_it, wanted, level)

    def any_of(self, facts: Facts, goal: Node, level: int) -> Iterator[Reason]:
        tries = []
        for wanted in _alternatives(goal, "anyOf"):
            reasons = self.follows(facts, wanted, level)
            if not reasons:
                return
            tries.append(reasons)
        yield from _nearest(tries) or [Reason("anyOf", (*goal.site.path, "anyOf"))]

    def one_of(self, facts: Facts, goal: Node, level: int) -> Iterator[Reason]:
        wanted = _alternatives(goal, "oneOf")
        if any(self._is_same_choice(facts, _alternatives(node, "oneOf"), wanted, level) for node in facts):
            return
        tries = []
        for at, each in enumerate(wanted):
            reasons = self.follows(facts, each, level)
            rest = [*wanted[:at], *wanted[at + 1 :]]
            if not reasons and all(_is_impossible(expanded((*facts, other))) for other in rest):
                return
            tries.append(reasons or [Reason("oneOf", (*goal.site.path, "oneOf"))])
        yield from _nearest(tries) or [Reason("oneOf", (*goal.site.path, "oneOf"))]

    def _is_same_choice(self, facts: Facts, there: list[Node], wanted: list[Node], level: int) -> bool:
        """Whether two lists of alternatives are the same one by one, so that just one of both fits."""
        if not 0 < len(there) == len(wanted):
            return False
        with self._with_own_facts():
            return all(
                not self.follows((*facts, one), other, level)
                and not self.follows((*facts, other), one, level)
                for one, other in zip(there, wanted, strict=True)
            )

    def negated(self, facts: Facts, goal: Node, level: int) -> Iterator[Reason]:
        wanted = goal.under("not")
        if wanted is None or _is_impossible(expanded((*facts, wanted))):
            return
        there = [each for node in facts if (each := node.under("not")) is not None]
        with self._with_own_facts():
            follows = any(not self.follows((*facts, wanted), each, level) for each in there)
        if not follows:
            yield Reason("not", (*goal.site.path, "not"))

    def conditional(self, facts: Facts, goal: Node, level: int) -> Iterator[Reason]:
        condition = goal.under("if")
        if condition is None:
            return
        yes, no = (*facts, condition), facts
        for node in facts:
            other = node.under("if")
            if other is not None and same(other, condition):
                yes = (*yes, *filter(None, [node.under("then")]))
                no = (*no, *filter(None, [node.under("else")]))
        for keyword, there in (("then", yes), ("else", no)):
            wanted = goal.under(keyword)
            if wanted is not None:
                with self._with_own_facts():
                    reasons = self.follows(there, wanted, level)
                yield from reasons

    def unevaluated(self, _facts: Facts, goal: Node, _level: int) -> Iterator[Reason]:
        for keyword in ("unevaluatedProperties", "unevaluatedItems"):
            if keyword in goal.said and goal.said[keyword] is not True:
                yield Reason(keyword, (*goal.site.path, keyword))


_NUMBER_BOUNDS: Final[tuple[tuple[str, Literal[1, -1], bool], ...]] = (
    ("maximum", 1, False),
    ("exclusiveMaximum", 1, True),
    ("minimum", -1, False),
    ("exclusiveMinimum", -1, True),
)

_Check = Callable[[_Proof, Facts, Node, int], Iterator[Reason]]

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
"""Every keyword that can refuse a value, and what shows that it does not."""


def _is_impossible(facts: Facts, *, deep: bool = True) -> bool:
    """Whether no value at all fits the facts: for its types or values, or those of a property that it must have."""
    if any(node.site.schema is False for node in facts) or not types_of(facts) or values_of(facts) == {}:
        return True
    return (
        deep
        and types_of(facts) == {"object"}
        and any(
            _is_impossible(expanded(known.members(facts, name)[0]), deep=False)
            for name in known.required(facts)
        )
    )


def _is_closed(facts: Facts) -> bool:
    """Whether an object has no properties but those that are named."""
    return any(node.site.schema is False for node in known.others(facts)) and not any(known.patterned(facts))


def _is_multiple(facts: Facts, factor: Any) -> bool:
    if factor == 1 and "number" not in types_of(facts):
        return True
    there = [node.said.get("multipleOf") for node in facts]
    whole = [each for each in there if isinstance(each, int) and not isinstance(each, bool)]
    return factor in there or (isinstance(factor, int) and any(each % factor == 0 for each in whole))


def _size(facts: Facts, goal: Node, low: str, high: str, sizes: list[int] | None) -> Iterator[Reason]:
    """Why bounds of a size do not follow; `sizes` are all that there are, where that is known."""
    bound = goal.said.get(low)
    if known.is_number(bound):
        there = known.least(facts, low) if sizes is None else min(sizes, default=bound)
        if there < bound:
            yield Reason(low, (*goal.site.path, low))
    bound = goal.said.get(high)
    if known.is_number(bound):
        most = known.most(facts, high) if sizes is None else max(sizes, default=0)
        if most is None or most > bound:
            yield Reason(high, (*goal.site.path, high))


def _says(facts: Facts, keyword: str, value: JSON) -> bool:
    return any(keyword in node.said and sameness(node.said[keyword]) == sameness(value) for node in facts)


def _alternatives(node: Node, keyword: str) -> list[Node]:
    listed = node.said.get(keyword)
    found = [node.under(keyword, at) for at in range(len(listed) if isinstance(listed, list) else 0)]
    return [each for each in found if each is not None]


def _nearest(tries: list[list[Reason]]) -> list[Reason]:
    """The reasons of the alternative that is nearest: of the right type, and with the fewest faults."""
    if len(tries) > 1 and all(any(reason.keyword == "type" for reason in each) for each in tries):
        return []
    return min(
        tries, key=lambda each: (any(reason.keyword == "type" for reason in each), len(each)), default=[]
    )


def _cases(facts: Facts, goal: Node) -> list[Facts]:
    """Facts with one more fact each, of which one is true in any case; none where nothing is left to tell apart."""
    for at, node in enumerate(facts):
        for keyword in ("anyOf", "oneOf"):
            alternatives = _alternatives(node, keyword)
            if alternatives:
                rest = (*facts[:at], node.without(keyword), *facts[at + 1 :])
                return [(*rest, each) for each in alternatives]
    choices = ("anyOf", "oneOf", "if", "not")
    if not any(keyword in part.said for part in expanded((goal,)) for keyword in choices):
        return []
    values, types = values_of(facts), types_of(facts)
    if values is not None and 1 < len(values) <= _CASES:
        return [(*facts, made({"const": value})) for value in values.values()]
    if 1 < len(types) < len(known.TYPES) and not types <= NUMBERS:
        kinds = sorted((types - NUMBERS) | ({"number"} if "number" in types else types & {"integer"}))
        return [(*facts, made({"type": kind})) for kind in kinds]
    return []
