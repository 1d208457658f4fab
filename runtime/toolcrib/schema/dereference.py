"""JSON Schemas without references, for models and clients that do not follow `$ref`.

What a reference means is put where it stands. The result takes the same values as the schema that was written, with
one exception, recursion, and then it takes more values, never fewer.

**Siblings of `$ref`.** In draft-07 and before nothing beside a `$ref` counts; what is written there for readers
(`title`, `description`, `default`, `examples`, `$comment`) is kept. From 2019-09 on the siblings count as well:
they are merged with what the reference means where no keyword then means anything else, and stand beside an
`allOf` of it where one would. Of two texts for readers the one nearer to the place is kept.

**Recursion.** A schema that refers to itself is written out so many levels deep (`LEVELS`, and fewer where the result
would grow too much). Below that stands an open schema: of the type of what it stands for, and with a description that
names it. Lost is that values nested deeper are checked; whatever the original accepts is accepted. An open schema
would refuse values where it stands under `not`, `oneOf`, `if`, `maxContains` or beside `unevaluated...`; there a `not`
is left out, a `oneOf` becomes an `anyOf`, an `if` with its `then` and `else` becomes an `anyOf` of these two, and
`maxContains` and `unevaluated...` are left out.

**Growth.** The result is at most `FACTOR` times as long as the schema, and at most 64 KiB longer; up to `SMALL`
always. Beyond that the schema is left as it was written. Whatever happens is told by a remark.

**References that stay.** One that leads nowhere or out of the schema stays (as an absolute URI, where a base was
named), and so does the whole schema where a dynamic reference could mean several places. Nothing is ever fetched.

`reference_problems` reports the references of a schema that lead out of it, nowhere, or round in a circle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urljoin

from toolcrib.core.errors import Problem, near_misses
from toolcrib.core.model import JSON, Schema
from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import IN_PLACE, LEGACY, MANY, NAMED, ONE, Key, Path, SchemaIndex, Site, members
from toolcrib.core.text import compact
from toolcrib.schema.all_of import ANNOTATIONS, conjoin
from toolcrib.schema.validation.violations import shorten

LEVELS: Final = 3
"""How often a schema that refers to itself is written out within itself, at most."""

FACTOR: Final = 8
"""How many times longer a schema may become."""

SMALL: Final = 4096
"""Bytes up to which a schema may grow whatever the factor."""

DEPTH: Final = 96
"""Levels of nesting and of references behind references that are followed."""

_DEFINING: Final = frozenset(("$defs", "definitions", "$anchor", "$dynamicAnchor", "$recursiveAnchor"))
"""Keywords that only references have a use for."""

_USUAL: Final = "https://json-schema.org/draft/2020-12/schema"
_OF_2019: Final = "/draft/2019-09/"
_ON_THE_SPOT: Final = frozenset((*IN_PLACE, "if"))
"""Keywords whose subschemas judge the same value, and evaluate parts of it."""

_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
_VALUES: Final = frozenset(("const", "default", "enum", "examples"))
"""Keywords that hold values. A reference may lead there, and they mean something all the same."""

_EXACT, _BELOW, _HERE = 0, 1, 2
"""How a part differs from what it was made of: not at all; it takes more values; it also evaluates less of them."""


class DereferencedSchema(NamedTuple):
    """A schema that was freed of references.

    Attributes:
        schema: The result; it may share parts with the schema that was given.
        remarks: What is different, and which references had to stay; one line each.
    """

    schema: dict[str, JSON]
    remarks: tuple[str, ...] = ()


def dereference(schema: dict[str, JSON], *, most: int = 64 * 1024) -> DereferencedSchema:
    """A schema without references; see the module for the rules.

    `$defs`, `definitions`, anchors, `$id` and unknown keywords that hold nothing but what was referred to are left
    out, since nothing needs them any more; so is a `$schema` that names 2020-12, which is meant without it.

    Args:
        schema: A schema of any dialect from draft-04 to 2020-12. It is not changed.
        most: Bytes by which it may grow, as compact JSON.
    """
    index = SchemaIndex(schema)
    why = _why_not(index)
    if why:
        return DereferencedSchema(schema, (f"{why}; the schema is unchanged",))
    size = len(compact(schema).encode())
    limit = max(SMALL, min(FACTOR * size, size + most))
    for levels in range(LEVELS, 0, -1):
        attempt = _Attempt(index, limit, levels)
        try:
            return attempt.result()
        except _TooMuchError as error:
            why = str(error)
        if not attempt.recursive:
            break
    return DereferencedSchema(schema, (f"{why}; the schema is unchanged",))


class _TooMuchError(Exception):
    """The result would be too long or too deep."""


class _Part(NamedTuple):
    schema: Schema
    vague: int = _EXACT


class _PartialSchema(NamedTuple):
    schema: dict[str, JSON]
    vague: int


class _Attempt:
    """One attempt to write a schema out, recursion so many levels deep.

    Attributes:
        recursive: Whether recursion was met.
    """

    def __init__(self, index: SchemaIndex, limit: int, levels: int) -> None:
        self.recursive = False
        self._index = index
        self._limit = limit
        self._left = limit
        self._levels = levels
        self._keywords = _references_of(index)
        self._id = "id" if LEGACY[0] in _dialect(index) else "$id"
        self._containers = _containers(index)
        self._remarks: dict[str, None] = {}

    def result(self) -> DereferencedSchema:
        """What came of it.

        Raises:
            _TooMuchError: It would be too long or too deep.
        """
        root = self._index.root
        made = self._node(root, (root.key,), 0).schema
        if isinstance(made, bool):
            made = {} if made else {"not": {}}
        dialect = root.get("$schema")
        if isinstance(dialect, str) and dialect.removesuffix("#") != _USUAL:
            made = {"$schema": dialect, **made}
        if len(compact(made).encode()) > self._limit:
            self._spend(self._limit + 1)
        return DereferencedSchema(made, tuple(self._remarks))

    def _node(self, site: Site, trail: tuple[Key, ...], depth: int) -> _Part:
        """A subschema with everything that it refers to."""
        if depth > DEPTH:
            raise _TooMuchError(f"without references it would exceed {DEPTH} levels")
        self._spend(2)
        if isinstance(site.schema, bool):
            return _Part(site.schema)
        own = self._own(site, site.schema, trail, depth)
        meant = [
            self._meant(site, keyword, reference, trail, depth)
            for keyword, reference in self._references(site.schema)
        ]
        return _joined(own, meant) if meant else _Part(*own)

    def _references(self, schema: dict[str, JSON]) -> list[tuple[str, str]]:
        said = ((keyword, schema.get(keyword)) for keyword in self._keywords)
        return [(keyword, reference) for keyword, reference in said if isinstance(reference, str)]

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise _TooMuchError(f"without references it would exceed {self._limit:,} bytes")

    def _meant(self, site: Site, keyword: str, reference: str, trail: tuple[Key, ...], depth: int) -> _Part:
        """What a reference stands for."""
        target = self._index.resolve(reference, site.base)
        if target is None:
            self._remarks[f"`{reference[:200]}` cannot be resolved in the schema and is kept"] = None
            return _Part({keyword: _absolute(site.base, reference)})
        if trail.count(target.key) < self._levels:
            return self._node(target, (*trail, target.key), depth + 1)
        self.recursive = True
        name = _name_of(target)
        levels = f"{self._levels} level{'' if self._levels == 1 else 's'}"
        self._remarks[f"{name} refers to itself: it is expanded {levels} deep and unchecked below that"] = (
            None
        )
        return _Part(self._open(target, name), _HERE)

    def _open(self, target: Site, name: str) -> dict[str, JSON]:
        """What stands for a schema that is not written out once more."""
        described: dict[str, JSON] = {"description": f"Recursive: has the same form as {name}."}
        kind = None if self._index.is_overridden(target) else target.get("type")
        made = described if kind is None else {"type": kind, **described}
        self._spend(len(compact(made)))
        return made

    def _own(self, site: Site, schema: dict[str, JSON], trail: tuple[Key, ...], depth: int) -> _PartialSchema:
        """What a subschema says itself."""
        made: dict[str, JSON] = {}
        vague: dict[str, int] = {}
        references = {keyword for keyword, _reference in self._references(schema)}
        overridden = self._index.is_overridden(site)
        for keyword, value in schema.items():
            gone = keyword in references or keyword in _DEFINING or keyword in {"$schema", self._id}
            dead = overridden and keyword not in ANNOTATIONS
            if not gone and not dead and (site.document, (*site.path, keyword)) not in self._containers:
                self._spend(len(keyword) + 4)
                made[keyword], vague[keyword] = self._value(site, keyword, value, trail, depth)
        return _loosened(made, vague)

    def _value(
        self, site: Site, keyword: str, value: JSON, trail: tuple[Key, ...], depth: int
    ) -> tuple[JSON, int]:
        """The value of a keyword with its subschemas written out, and how much they differ."""
        parts = (
            {
                path: self._node(self._index.child(site, path, inner), trail, depth + 1)
                for path, inner in members(site.schema, keyword)
            }
            if isinstance(site.schema, dict)
            else {}
        )
        if not parts:
            self._spend(len(compact(value)))
            return value, _EXACT
        vague = max(part.vague for part in parts.values())
        if isinstance(value, list):
            return [
                parts[keyword, number].schema if (keyword, number) in parts else inner
                for number, inner in enumerate(value)
            ], vague
        if (keyword,) in parts or not isinstance(value, dict):
            return parts[keyword,].schema, vague
        self._spend(sum(map(len, value)) + 4 * len(value))
        return {
            name: parts[keyword, name].schema if (keyword, name) in parts else inner
            for name, inner in value.items()
        }, vague


def _joined(own: _PartialSchema, meant: Sequence[_Part]) -> _Part:
    """What a subschema says itself, and what its references mean."""
    schema, vague = own.schema, max(own.vague, *(part.vague for part in meant))
    if any(part.vague == _HERE for part in meant):
        schema = _without(schema, *_UNEVALUATED)
    if len(meant) == 1:
        return _Part(conjoin(schema, meant[0].schema), vague)
    # Neither of them sees what the other one evaluates.
    return _Part(conjoin(schema, {"allOf": [part.schema for part in meant]}), vague)


def _loosened(made: dict[str, JSON], vague: Mapping[str, int]) -> _PartialSchema:
    """A schema object some of whose parts take more than was meant, so that it takes no less than was meant."""
    if not any(vague.values()):
        return _PartialSchema(made, _EXACT)
    worst = max(level if keyword in _ON_THE_SPOT else min(level, _BELOW) for keyword, level in vague.items())
    if vague.get("not"):
        made = _without(made, "not")
    if vague.get("contains"):
        made = _without(made, "maxContains")
    if vague.get("oneOf"):
        made = _with_any(_without(made, "oneOf"), made["oneOf"])
    if vague.get("if"):
        worst = _HERE
        branches = [made[keyword] for keyword in ("then", "else") if keyword in made]
        made = _without(made, "if", "then", "else")
        made = _with_any(made, branches) if len(branches) == 2 else made
    return _PartialSchema(_without(made, *_UNEVALUATED) if worst == _HERE else made, worst)


def _with_any(schema: dict[str, JSON], branches: JSON) -> dict[str, JSON]:
    """A schema object with an `anyOf` more."""
    if "anyOf" not in schema:
        return {**schema, "anyOf": branches}
    beside = schema.get("allOf")
    return {**schema, "allOf": [*(beside if isinstance(beside, list) else ()), {"anyOf": branches}]}


def _without(schema: dict[str, JSON], *keywords: str) -> dict[str, JSON]:
    return {key: value for key, value in schema.items() if key not in keywords}


def _absolute(base: str, reference: str) -> str:
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference


def _name_of(site: Site) -> str:
    """How a schema is called where it is not written out."""
    title = site.get("title")
    if isinstance(title, str) and title.strip():
        return f"`{title.strip()[:100]}`"
    return f"`{str(site.path[-1])[:100]}`" if site.path else "the whole schema"


# What is asked of a schema before it is written out.


def _dialect(index: SchemaIndex) -> str:
    named = index.root.get("$schema")
    return named.removesuffix("#") if isinstance(named, str) else _USUAL


def _references_of(index: SchemaIndex) -> tuple[str, ...]:
    """The keywords that refer, in the dialect of a schema."""
    if index.legacy:
        return ("$ref",)
    return ("$ref", "$recursiveRef") if _OF_2019 in _dialect(index) else ("$ref", "$dynamicRef")


def _why_not(index: SchemaIndex) -> str:
    """Why a schema can't be freed of references at all; empty where it can."""
    dialect, keywords = _dialect(index), _references_of(index)
    sites = list(_reachable(index))
    for site in sites:
        named = site.get("$schema")
        if isinstance(named, str) and named.removesuffix("#") != dialect:
            return f"a subschema uses another dialect, `{named[:200]}`"
    anchors = [site for site in sites if _is_dynamic(site, keywords)]
    for site in sites if anchors else ():
        for keyword, reference, target in index.targets(site):
            if keyword in keywords and target is None:
                return f"`{reference[:200]}` is outside the schema and may lead back to a dynamic anchor"
            if (
                keyword == "$ref"
                or keyword not in keywords
                or target is None
                or not _is_dynamic(target, keywords)
            ):
                continue
            name = target.get("$dynamicAnchor")
            if len([each for each in anchors if each.get("$dynamicAnchor") == name]) > 1:
                return f"the meaning of `{keyword}: {reference[:200]}` depends on the path that leads to it"
    return ""


def _is_dynamic(site: Site, keywords: Sequence[str]) -> bool:
    """Whether a dynamic reference may find a schema on the way to it."""
    if "$recursiveRef" in keywords:
        return site.get("$recursiveAnchor") is True
    return "$dynamicRef" in keywords and isinstance(site.get("$dynamicAnchor"), str)


def _reachable(index: SchemaIndex) -> Iterator[Site]:
    """Every subschema, also those at unknown keywords that only a reference finds; each once."""
    seen: set[Key] = set()
    pending = [index.root]
    while pending:
        for site in index.walk(pending.pop()):
            if site.key not in seen:
                seen.add(site.key)
                yield site
                pending += [target for _, _, target in index.targets(site) if target is not None]


def _containers(index: SchemaIndex) -> frozenset[Key]:
    """Where unknown keywords stand below which references lead: they hold definitions, as `components` does."""
    found: set[Key] = set()
    for site in _reachable(index):
        for _keyword, _reference, target in index.targets(site):
            if target is not None:
                found.update(_container_of(target))
    return frozenset(found)


def _container_of(target: Site) -> Iterator[Key]:
    path = target.path
    place = 0
    while place < len(path):
        keyword = path[place]
        listed = keyword in MANY and isinstance(next(iter(path[place + 1 :]), None), int)
        if keyword in NAMED or listed:
            place += 2
        elif keyword in ONE:
            place += 1
        else:
            if keyword not in _VALUES:
                yield target.document, path[: place + 1]
            return


# What is wrong with references.

WAYS: Final = 100_000
"""Ways through references and combinators that a schema may offer for judging one value."""

_JUDGING: Final = (*IN_PLACE, "not", "if")


def reference_problems(
    index: SchemaIndex, sites: Mapping[Key, Site], bundled: Callable[[str], bool]
) -> Iterator[Problem]:
    """What is wrong with the references between the sites of a schema.

    Args:
        index: The index of the schema.
        sites: All its sites.
        bundled: Whether a reference, as an absolute URI, is known without being fetched.
    """
    for site in sites.values():
        for keyword, reference, target in index.targets(site):
            if target is None and not bundled("#".join(index.address(reference, site.base))):
                yield _unresolved(index, reference, site, (*site.path, keyword))
    edges = {key: [other.key for other in _judges(index, site)] for key, site in sites.items()}
    ways, circling = _ways(edges)
    for key in circling:
        yield from _circles(index, sites[key], circling)
    if any(number > WAYS for number in ways.values()):
        message = f"references and combinators create more than {WAYS:,} ways to validate one value"
        hint = (
            "avoid chains of subschemas that each refer to the next one twice; every link doubles the number"
        )
        yield Problem(code="schema_too_branchy", message=message, hint=hint)


def _unresolved(index: SchemaIndex, reference: str, site: Site, path: Path) -> Problem:
    shown, place = f"`{shorten(reference)}`", pointer_to(path)
    if not index.knows(reference, site.base):
        message = f"{shown} is outside the schema; remote schemas are not fetched"
        hint = "copy it under `$defs` and refer to it as `#/$defs/NAME`"
        return Problem(code="remote_ref", message=message, pointer=place, hint=hint)
    there = dict(_definitions(index.root))
    close = [there[name] for name in near_misses(reference.rpartition("/")[2][:200], there)]
    named = " or ".join(f"`{each}`" for each in close or [*there.values()][:10])
    hint = (
        f"{'did you mean' if close else 'the definitions are'} {named}{'?' if close else ''}" if named else ""
    )
    return Problem(code="dangling_ref", message=f"unresolved reference {shown}", pointer=place, hint=hint)


def _definitions(root: Site) -> Iterator[tuple[str, str]]:
    """The names of the definitions, each with the reference to it."""
    for keyword in ("$defs", "definitions"):
        table = root.get(keyword)
        if isinstance(table, dict):
            yield from ((name, f"#{pointer_to((keyword, name))}") for name in table)


def _judges(index: SchemaIndex, site: Site) -> Iterator[Site]:
    yield from (target for _, _, target in index.targets(site) if target is not None)
    yield from index.at_keywords(site, _JUDGING)


def _ways(edges: Mapping[Key, Sequence[Key]]) -> tuple[dict[Key, int], set[Key]]:
    """The number of ways on from each site, and the sites on or between circles, which have no end."""
    into: dict[Key, list[Key]] = {key: [] for key in edges}
    for key, others in edges.items():
        for other in others:
            into[other].append(key)
    waiting = {key: len(others) for key, others in edges.items()}
    ready = deque(key for key, number in waiting.items() if number == 0)
    ways: dict[Key, int] = {}
    while ready:
        key = ready.popleft()
        ways[key] = 1 + sum(ways[other] for other in edges[key])
        for other in into[key]:
            waiting[other] -= 1
            if waiting[other] == 0:
                ready.append(other)
    circling = set(edges) - set(ways)
    while (entered := {other for key in circling for other in edges[key]} & circling) != circling:
        circling = entered
    return ways, circling


def _circles(index: SchemaIndex, site: Site, circling: set[Key]) -> Iterator[Problem]:
    for keyword, reference, target in index.targets(site):
        if target is not None and target.key in circling:
            message = f"`{shorten(reference)}` refers back to itself without descending into the value"
            hint = "a schema may refer to itself only below keywords such as `properties` or `items`"
            place = pointer_to((*site.path, keyword))
            yield Problem(code="endless_ref", message=message, pointer=place, hint=hint)
