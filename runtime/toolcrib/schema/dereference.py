"""Inline the references of JSON Schemas, for models and clients that do not follow `$ref`.

Each reference is replaced by its target. The result accepts the same values as the original. Recursive schemas are the one
exception: their result accepts more values, never fewer.

**Siblings of `$ref`.** Up to draft-07, keywords next to a `$ref` have no effect; only annotations (`title`, `description`,
`default`, `examples`, `$comment`) are kept. From 2019-09 on, siblings count: they are merged with the target if every
keyword keeps its meaning, otherwise the target becomes an `allOf` next to them. Of two annotations the inner one counts.

**Recursion.** A recursive schema is expanded `LEVELS` levels deep, or less if the result would grow too much. Below that,
an open schema takes its place, which has the same type and a description that names the original. Values nested deeper are
no longer checked. Under `not`, `oneOf`, `if` and `maxContains` and next to `unevaluated...`, an open schema would refuse
valid values. There, `not`, `maxContains` and `unevaluated...` are removed, `oneOf` becomes `anyOf`, and `if` with `then` and
`else` becomes an `anyOf` of these two.

**Growth.** The result is at most `FACTOR` times as long as the schema and at most 64 KiB longer; results up to `SMALL` are
always allowed. Beyond these limits the schema is returned unchanged. A remark explains every difference.

**Remaining references.** A reference that cannot be resolved within the schema is kept (as an absolute URI if a base is
known). If a dynamic reference has several possible targets, the whole schema is returned unchanged. Nothing is fetched.

`reference_problems` reports references that are remote, unresolved or circular.
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
"""Maximum number of levels to which a recursive schema is expanded."""

FACTOR: Final = 8
"""Maximum growth factor of a schema."""

SMALL: Final = 4096
"""Size in bytes up to which a schema may grow regardless of the factor."""

DEPTH: Final = 96
"""Maximum depth of nesting and of chained references."""

_DEFINING: Final = frozenset(("$defs", "definitions", "$anchor", "$dynamicAnchor", "$recursiveAnchor"))
"""Keywords that only serve as targets of references."""

_USUAL: Final = "https://json-schema.org/draft/2020-12/schema"
_OF_2019: Final = "/draft/2019-09/"
_ON_THE_SPOT: Final = frozenset((*IN_PLACE, "if"))
"""Keywords whose subschemas judge the same value and evaluate parts of it."""

_UNEVALUATED: Final = ("unevaluatedProperties", "unevaluatedItems")
_VALUES: Final = frozenset(("const", "default", "enum", "examples"))
"""Keywords that contain values. They are kept even if a reference leads into them."""

_EXACT, _BELOW, _HERE = 0, 1, 2
"""How a part differs from its original: not at all; it accepts more values; it also evaluates fewer members."""


class DereferencedSchema(NamedTuple):
    """A schema without references.

    Attributes:
        schema: The result; it may share parts with the original.
        remarks: Differences from the original and remaining references, one line each.
    """

    schema: dict[str, JSON]
    remarks: tuple[str, ...] = ()


def dereference(schema: dict[str, JSON], *, most: int = 64 * 1024) -> DereferencedSchema:
    """Inline the references of a schema; the module docstring has the rules.

    `$defs`, `definitions`, anchors, `$id` and unknown keywords that only contain definitions are removed, and so is a
    `$schema` that names 2020-12, the default.

    Args:
        schema: A schema of any dialect from draft-04 to 2020-12. It is not modified.
        most: Maximum growth in bytes of compact JSON.
    """
    index = SchemaIndex(schema)
    why = _why_not(index)
    if why:
        return DereferencedSchema(schema, (f"{why}; the schema is unchanged",))
    size = len(compact(schema).encode())
    limit = max(SMALL, min(FACTOR * size, size + most))
    # Fewer levels only help if there is recursion; otherwise the size does not depend on them.
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
    """The result exceeds a limit."""


class _Part(NamedTuple):
    schema: Schema
    vague: int = _EXACT


class _PartialSchema(NamedTuple):
    schema: dict[str, JSON]
    vague: int


class _Attempt:
    """One attempt to expand a schema, with a given number of levels for recursion.

    Attributes:
        recursive: Whether the schema is recursive.
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
        """Expand the schema.

        Raises:
            _TooMuchError: The result exceeds a limit.
        """
        root = self._index.root
        made = self._node(root, (root.key,), 0).schema
        # Tool declarations and MCP require an object where JSON Schema also allows a boolean.
        if isinstance(made, bool):
            made = {} if made else {"not": {}}
        dialect = root.get("$schema")
        if isinstance(dialect, str) and dialect.removesuffix("#") != _USUAL:
            made = {"$schema": dialect, **made}
        if len(compact(made).encode()) > self._limit:
            self._spend(self._limit + 1)
        return DereferencedSchema(made, tuple(self._remarks))

    def _node(self, site: Site, trail: tuple[Key, ...], depth: int) -> _Part:
        """A subschema with its references expanded; `trail` lists the targets on the way to it."""
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
        # Counted while the result is built: two references per level would need exponential memory before a
        # final check.
        self._left -= size
        if self._left < 0:
            raise _TooMuchError(f"without references it would exceed {self._limit:,} bytes")

    def _meant(self, site: Site, keyword: str, reference: str, trail: tuple[Key, ...], depth: int) -> _Part:
        """The expanded target of a reference."""
        target = self._index.resolve(reference, site.base)
        if target is None:
            self._remarks[f"`{reference[:200]}` cannot be resolved in the schema and is kept"] = None
            return _Part({keyword: _absolute(site.base, reference)})
        # `trail` contains the targets on the path to here; a repeated one is a recursion.
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
        """The open schema that replaces a target beyond the last level."""
        described: dict[str, JSON] = {"description": f"Recursive: has the same form as {name}."}
        kind = None if self._index.is_overridden(target) else target.get("type")
        made = described if kind is None else {"type": kind, **described}
        self._spend(len(compact(made)))
        return made

    def _own(self, site: Site, schema: dict[str, JSON], trail: tuple[Key, ...], depth: int) -> _PartialSchema:
        """The keywords of a subschema itself, without its references."""
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
        """The value of a keyword with expanded subschemas, and how much they differ from the original."""
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
    """The keywords of a subschema merged with the targets of its references."""
    schema, vague = own.schema, max(own.vague, *(part.vague for part in meant))
    if any(part.vague == _HERE for part in meant):
        schema = _without(schema, *_UNEVALUATED)
    if len(meant) == 1:
        return _Part(conjoin(schema, meant[0].schema), vague)
    # Under one `allOf`, neither target sees what the other one evaluates, as with two references.
    return _Part(conjoin(schema, {"allOf": [part.schema for part in meant]}), vague)


def _loosened(made: dict[str, JSON], vague: Mapping[str, int]) -> _PartialSchema:
    """Adapt a schema to parts that accept more than their originals, so that it still accepts every valid value."""
    if not any(vague.values()):
        return _PartialSchema(made, _EXACT)
    worst = max(level if keyword in _ON_THE_SPOT else min(level, _BELOW) for keyword, level in vague.items())
    # A negated part that accepts more makes the whole refuse more; two branches of a `oneOf` could both
    # match.
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
    """A schema with an additional `anyOf`."""
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
    """The name of a schema in descriptions and remarks."""
    title = site.get("title")
    if isinstance(title, str) and title.strip():
        return f"`{title.strip()[:100]}`"
    return f"`{str(site.path[-1])[:100]}`" if site.path else "the whole schema"


# Checks before expansion.


def _dialect(index: SchemaIndex) -> str:
    named = index.root.get("$schema")
    return named.removesuffix("#") if isinstance(named, str) else _USUAL


def _references_of(index: SchemaIndex) -> tuple[str, ...]:
    """The reference keywords of the schema's dialect."""
    if index.legacy:
        return ("$ref",)
    return ("$ref", "$recursiveRef") if _OF_2019 in _dialect(index) else ("$ref", "$dynamicRef")


def _why_not(index: SchemaIndex) -> str:
    """Why the references of a schema cannot be inlined at all; empty if they can."""
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
    """Whether a schema can be the target of a dynamic reference."""
    if "$recursiveRef" in keywords:
        return site.get("$recursiveAnchor") is True
    return "$dynamicRef" in keywords and isinstance(site.get("$dynamicAnchor"), str)


def _reachable(index: SchemaIndex) -> Iterator[Site]:
    """All subschemas, including those under unknown keywords that only a reference reaches; each once."""
    seen: set[Key] = set()
    pending = [index.root]
    while pending:
        for site in index.walk(pending.pop()):
            if site.key not in seen:
                seen.add(site.key)
                yield site
                pending += [target for _, _, target in index.targets(site) if target is not None]


def _containers(index: SchemaIndex) -> frozenset[Key]:
    """The unknown keywords into which references lead: they contain definitions, like `components` in OpenAPI."""
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


# Problems of references.

WAYS: Final = 100_000
"""Maximum number of paths through references and combinators for validating one value."""

_JUDGING: Final = (*IN_PLACE, "not", "if")


def reference_problems(
    index: SchemaIndex, sites: Mapping[Key, Site], bundled: Callable[[str], bool]
) -> Iterator[Problem]:
    """The problems of the references between the subschemas of a schema.

    Args:
        index: The index of the schema.
        sites: All its subschemas.
        bundled: Whether an absolute URI is known without fetching it, such as that of a meta-schema.
    """
    for site in sites.values():
        for keyword, reference, target in index.targets(site):
            if target is None and not bundled("#".join(index.address(reference, site.base))):
                yield _unresolved(index, reference, site, (*site.path, keyword))
    edges = {key: [other.key for other in _judges(index, site)] for key, site in sites.items()}
    ways, circling = _ways(edges)
    for key in circling:
        yield from _circles(index, sites[key], circling)
    # Thirty definitions of two references each make a billion paths: a validator would hang on any value.
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
    """The names of the definitions, each with its reference."""
    for keyword in ("$defs", "definitions"):
        table = root.get(keyword)
        if isinstance(table, dict):
            yield from ((name, f"#{pointer_to((keyword, name))}") for name in table)


def _judges(index: SchemaIndex, site: Site) -> Iterator[Site]:
    yield from (target for _, _, target in index.targets(site) if target is not None)
    yield from index.at_keywords(site, _JUDGING)


def _ways(edges: Mapping[Key, Sequence[Key]]) -> tuple[dict[Key, int], set[Key]]:
    """The number of paths from each subschema, and the subschemas on or between cycles, which have none."""
    # Topological sorting from the leaves: what is left over is on a cycle or leads to one.
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
    # Drop subschemas that lead to a cycle but are not reached from one.
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
