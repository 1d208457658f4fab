"""Find the violations of large values one by one, as far as they are read.

Members are validated in small chunks. A keyword about a large container itself is checked first, and then explained on a
small witness value that violates the same keyword. `ErrorBudget` estimates the number of errors beforehand.
"""

# Two properties of jsonschema-rs make this module necessary. It builds all errors before it returns the
# first, with a copy of the value in each, so asking for the errors of a list of 100,000 items takes quadratic
# memory. And it collects the errors of every branch of every `anyOf` and `oneOf`: under a schema that is
# recursive through two branches, such as one of expressions, they double with each level of the value.

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Any, Final, NamedTuple

import jsonschema_rs
from jsonschema_rs import ValidationErrorKind as Kind

from toolcrib.core.model import JSON
from toolcrib.core.subschemas import IN_PLACE, Key, Path, SchemaIndex, Site, children, members
from toolcrib.schema.validation.json_values import count_elements

_BEARABLE: Final = 2_000
"""Number of checks that is always acceptable, for any schema."""

_OVERLAP: Final = 4
"""Acceptable number of checks per pair of subschema and place; 1 means that no check is repeated."""

_PAIRS: Final = 20_000
"""Maximum number of pairs to count."""


class _TooManyError(Exception):
    """There are too many pairs to count."""


class ErrorBudget:
    """Estimates the number of checks that explaining a value takes."""

    def __init__(self, index: SchemaIndex) -> None:
        self._index = index

    def too_much(self, site: Site, value: JSON) -> bool:
        """Whether explaining a value under a subschema takes too much work."""
        # Without recursion the schema itself bounds the work, so nothing needs to be counted.
        if self.ways:
            return False
        counts: dict[tuple[Key, int], int] = {}
        try:
            total = self._count(site, value, counts)
        except (_TooManyError, RecursionError):
            return True
        return total > _BEARABLE + _OVERLAP * len(counts)

    @cached_property
    def ways(self) -> int:
        """The number of paths through the schema; 0 if it is recursive or there are too many."""
        # Depth first with an explicit stack: chains of references can exceed Python's recursion limit.
        ways: dict[Key, int] = {}
        under_way: set[Key] = set()
        stack: list[tuple[Site, bool]] = [(self._index.root, False)]
        while stack:
            site, left = stack.pop()
            if left:
                under_way.discard(site.key)
                ways[site.key] = 1 + sum(ways[inner.key] for inner in self._onward(site))
                if ways[site.key] > _BEARABLE:
                    return 0
            elif site.key in under_way:
                return 0
            elif site.key not in ways:
                under_way.add(site.key)
                stack.append((site, True))
                stack += [(inner, False) for inner in self._onward(site)]
        return ways[self._index.root.key]

    def _onward(self, site: Site) -> Iterator[Site]:
        yield from (target for _, _, target in self._index.targets(site) if target is not None)
        yield from (self._index.child(site, path, schema) for path, schema in children(site.schema))

    def _count(self, site: Site, value: JSON, counts: dict[tuple[Key, int], int]) -> int:
        # By identity: all parts of the value stay alive during the count, and hashing them would take longer.
        pair = (site.key, id(value))
        if pair not in counts:
            if len(counts) >= _PAIRS:
                raise _TooManyError
            counts[pair] = 1
            counts[pair] += sum(self._count(each, value, counts) for each in self._beside(site))
            counts[pair] += sum(
                self._count(each, item, counts)
                for key, item in members_of(value)
                for each in self._index.below([site], key)
            )
        return counts[pair]

    def _beside(self, site: Site) -> Iterator[Site]:
        yield from (target for _, _, target in self._index.targets(site) if target is not None)
        yield from self._index.at_keywords(site, IN_PLACE)


def members_of(value: object) -> Iterator[tuple[str | int, JSON]]:
    """The members of an object or array with their keys; empty for other values."""
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)


_WHOLE: Final = 250
"""Number of elements (the value and all nested values) from which on a value is large."""

_JUDGEMENTS: Final = 20_000
"""Maximum number of checks to explain a value that is not large: its elements times the paths of the schema."""

_BRANCH: Final = 11
"""Number of errors that are read from each branch of an `anyOf` or `oneOf`."""

_STEPS: Final = 20_000
"""Maximum number of pairs of a subschema and a large container that a search examines."""

_STEPS_OF_MANY: Final = 2_000
"""The same for a recursive schema, where they may double with each level of the value."""

_OWN: Final = (
    "type",
    "enum",
    "const",
    "minItems",
    "maxItems",
    "uniqueItems",
    "contains",
    "minProperties",
    "maxProperties",
    "required",
    "dependentRequired",
    "not",
)
"""Keywords about a container as a whole."""

_SIMPLER: Final[dict[str, dict[str, JSON]]] = {"not": {"not": {}}, "contains": {"contains": {}}}
"""Keyword -> a schema with an equivalent error that every small witness violates."""

_OF_PROPERTIES: Final = ("properties", "patternProperties", "additionalProperties", "propertyNames")
_DYNAMIC: Final = ("$dynamicRef", "$recursiveRef")
_NEVER: Final[JSON] = {"not": {}}
_UNLISTED: Final = "\0"
"""A string that no `enum` lists."""

_PROBES: Final[dict[str, tuple[dict[str, JSON], JSON]]] = {
    "if": ({"if": {}, "then": _NEVER}, None),
    "prefixItems": ({"prefixItems": [_NEVER]}, [None]),
    "dependentSchemas": ({"dependentSchemas": {"a": _NEVER}}, {"a": None}),
    "dependencies": ({"dependencies": {"a": _NEVER}}, {"a": None}),
}
"""Keyword -> a schema with it, and a value that it refuses in the dialects that have the keyword."""

# jsonschema-rs reports object keys that look like numbers as list indexes; see `true_path`.
_NUMBER: Final = re.compile(r"\+?0*([0-9]{1,20})")


class BranchErrors(NamedTuple):
    """An error of `anyOf` or `oneOf` in a large value.

    Attributes:
        name: The keyword.
        context: The first errors of each branch; empty for a branch that matches.
    """

    name: str
    context: list[list[LocatedError]]


class UnexplainedError(NamedTuple):
    """An error of which only the keyword is known.

    Attributes:
        name: The keyword.
        expected: What it expects, as a noun phrase.
    """

    name: str
    expected: str


class LocatedError(NamedTuple):
    """An error at its place in a large value, with the fields of `ValidationError` that are used."""

    instance_path: Path
    kind: Kind | BranchErrors | UnexplainedError
    evaluation_path: Sequence[str | int] = ()
    instance: object = None


_UNEVALUATED: Final = {
    list: UnexplainedError("unevaluatedItems", "no additional items"),
    dict: UnexplainedError("unevaluatedProperties", "no additional properties"),
}


class SearchExhausted(Exception):
    """The search takes too long, or the schema has subschemas that cannot be validated separately."""


def true_path(value: object, keys: Iterable[str | int]) -> Path:
    """The path of an error in a value."""
    # jsonschema-rs reports the object keys `"1"`, `"01"` and `"+1"` as the index 1.
    path: Path = ()
    there: Any = value  # jsonschema-rs went this way
    for key in keys:
        known = key
        if isinstance(key, int) and isinstance(there, dict):
            numbers = (name for name in there if (match := _NUMBER.fullmatch(name)) and int(match[1]) == key)
            known = str(key) if str(key) in there else next(numbers)
        there = there[known]
        path = (*path, known)
    return path


def whole_for(effort: ErrorBudget) -> int:
    """The number of elements from which on a value is large; smaller for a schema with more paths."""
    return max(10, min(_WHOLE, _JUDGEMENTS // effort.ways)) if effort.ways else _WHOLE


class ViolationSearch:
    """A search for the violations of one large value.

    Attributes:
        judged: Number of elements that were validated in chunks so far.

    Args:
        index: The subschemas of the schema.
        effort: Estimates the work of explaining a chunk.
        compile_schema: Compiles a schema with references into the schema. Raises ValueError if one is unresolved.
        reference: Creates a schema that refers to a site.
        whole: Number of elements from which on a value is large.
    """

    def __init__(
        self,
        index: SchemaIndex,
        effort: ErrorBudget,
        compile_schema: Callable[[dict[str, JSON]], jsonschema_rs.Validator],
        reference: Callable[[Site], dict[str, JSON]],
        whole: int,
    ) -> None:
        self.judged = 0
        self._index = index
        self._effort = effort
        self._compile_schema = compile_schema
        self._reference = reference
        self._whole = whole
        self._steps = _STEPS if effort.ways else _STEPS_OF_MANY

    def errors(self, site: Site, value: JSON, path: Path = ()) -> Iterator[LocatedError]:
        """The errors of a value under a subschema, those of the value itself first; empty if it is valid.

        Raises:
            SearchExhausted: The errors cannot be found in this way.
        """
        self._steps -= 1
        # The target of a dynamic reference depends on the path to it, so the subschema cannot be validated
        # separately.
        if self._steps < 0 or any(site.get(keyword) is not None for keyword in _DYNAMIC):
            raise SearchExhausted
        if count_elements(value, self._whole) < self._whole:
            yield from self._of_chunk(site, self._judge(self._reference(site)), value, path)
            return
        found = False
        for error in chain(
            self._of_container(site, value, path),
            self._of_members(site, value, path),
            self._of_applicators(site, value, path),
        ):
            found = True
            yield error
        unevaluated = _UNEVALUATED[dict if isinstance(value, dict) else list]
        if found or site.get(unevaluated.name) is None:
            return
        # All adjacent keywords decide what is evaluated, so `unevaluated...` is validated together with them.
        if not self._judge(self._reference(site)).is_valid(value):
            yield LocatedError(path, unevaluated, (unevaluated.name,), value)

    def _judge(self, schema: dict[str, JSON]) -> jsonschema_rs.Validator:
        try:
            return self._compile_schema(schema)
        except ValueError:
            raise SearchExhausted from None

    def _inner(self, site: Site, keyword: str) -> dict[Path, Site]:
        """The subschemas at a keyword, by path within the site; empty if the dialect does not have the keyword."""
        if isinstance(site.schema, bool) or keyword not in site.schema:
            return {}
        # Asking jsonschema-rs is simpler and safer than a table of the keywords of each dialect.
        if keyword in _PROBES:
            schema, refused = _PROBES[keyword]
            if self._judge(schema).is_valid(refused):
                return {}
        return {path: self._index.child(site, path, inner) for path, inner in members(site.schema, keyword)}

    def _keywords(self, site: Site, *keywords: str) -> dict[str, JSON]:
        """Keywords of a site, with references in place of their subschemas."""
        written: dict[str, JSON] = {}
        for keyword in keywords:
            if isinstance(site.schema, bool) or keyword not in site.schema:
                continue
            value = site.schema[keyword]
            inner = {
                path[1:]: each.schema if isinstance(each.schema, bool) else self._reference(each)
                for path, each in self._inner(site, keyword).items()
            }
            if () in inner:
                written[keyword] = inner[()]
            elif isinstance(value, dict) and inner:
                written[keyword] = {str(name): schema for (name,), schema in inner.items()}
            else:
                written[keyword] = value
        return written

    def _of_container(self, site: Site, value: JSON, path: Path) -> Iterator[LocatedError]:
        """The errors of keywords about the container itself."""
        if isinstance(site.schema, bool):
            schemas = [] if site.schema else [("false", self._reference(site))]
        elif self._index.is_overridden(site):
            return
        else:
            schemas = [
                (keyword, self._keywords(site, keyword, "minContains", "maxContains"))
                for keyword in _OWN
                if keyword in site.schema
            ]
            lists = site.schema.get("dependencies")
            if isinstance(lists, dict):
                needs: dict[str, JSON] = {
                    name: need for name, need in lists.items() if isinstance(need, list)
                }
                schemas.append(("dependencies", {"dependencies": needs}))
        for keyword, schema in schemas:
            judge = self._judge(schema)
            if judge.is_valid(value):
                continue
            # A witness gives the same error without a copy of the large value in it.
            simpler = self._judge(_SIMPLER.get(keyword, schema))
            explained = ([*simpler.iter_errors(witness)] for witness in _witnesses(schema, value))
            errors = next(filter(None, explained), ())
            yield from (LocatedError(path, each.kind, each.evaluation_path, value) for each in errors)
            if not errors:
                unexplained = UnexplainedError(keyword, f"a value that matches `{keyword}`")
                yield LocatedError(path, unexplained, (keyword,), value)

    def _of_members(self, site: Site, value: JSON, path: Path) -> Iterator[LocatedError]:
        if self._index.is_overridden(site):
            return
        if isinstance(value, dict):
            yield from self._of_properties(site, value, path)
        elif isinstance(value, list):
            yield from self._of_items(site, value, path)

    def _of_properties(self, site: Site, value: dict[str, JSON], path: Path) -> Iterator[LocatedError]:
        schema = self._keywords(site, *_OF_PROPERTIES)
        if not schema:
            return
        judge, names = self._judge(schema), self._judge(self._keywords(site, "propertyNames"))
        chunk: dict[str, JSON] = {}
        room = self._whole
        for name, item in value.items():
            size = count_elements(item, self._whole)
            if size == self._whole:
                inner = [
                    each
                    for each in self._index.below([site], name)
                    if each.path[len(site.path)] != _UNEVALUATED[dict].name
                ]
                if any(each.schema is False for each in inner):
                    # Refused for its name alone, so None can stand for the large member.
                    yield from self._of_chunk(site, judge, {name: None}, path)
                    continue
                yield from self._of_chunk(site, names, {name: None}, path)
                for each in inner:
                    yield from self.errors(each, item, (*path, name))
                continue
            if size > room:
                yield from self._of_chunk(site, judge, chunk, path)
                chunk, room = {}, self._whole
            chunk[name] = item
            room -= size
        yield from self._of_chunk(site, judge, chunk, path)

    def _of_items(self, site: Site, value: list[JSON], path: Path) -> Iterator[LocatedError]:
        prefix = [*self._inner(site, "prefixItems").values()]
        behind = self._inner(site, "items")
        if isinstance(site.get("items"), list):
            prefix, behind = [*behind.values()], self._inner(site, "additionalItems")
            if site.get("additionalItems") is False and len(value) > len(prefix):
                behind = {}
                closed: dict[str, JSON] = {"items": [{} for _ in prefix], "additionalItems": False}
                for error in self._judge(closed).iter_errors([None] * (len(prefix) + 1)):
                    yield LocatedError(path, error.kind, error.evaluation_path, value)
        for position, (each, item) in enumerate(zip(prefix, value, strict=False)):
            yield from self.errors(each, item, (*path, position))
        for rest in behind.values():
            judge = self._judge({"items": self._reference(rest)})
            chunk: list[JSON] = []
            room = self._whole
            start = len(prefix)
            for position in range(start, len(value)):
                item = value[position]
                size = count_elements(item, self._whole) if isinstance(item, dict | list) else 1
                if size > room:
                    yield from self._of_chunk(site, judge, chunk, path, start)
                    chunk, room, start = [], self._whole, position
                if size == self._whole:
                    yield from self.errors(rest, item, (*path, position))
                    start = position + 1
                else:
                    chunk.append(item)
                    room -= size
            yield from self._of_chunk(site, judge, chunk, path, start)

    def _of_chunk(
        self, site: Site, judge: jsonschema_rs.Validator, chunk: JSON, path: Path, start: int = 0
    ) -> Iterator[LocatedError]:
        """The errors of a small value or of a few members of a large one, whose first item has the index `start`."""
        self.judged += count_elements(chunk, self._whole)
        if not self._effort.ways:
            if judge.is_valid(chunk):
                return
            if self._effort.too_much(site, chunk):
                raise SearchExhausted
        for error in judge.iter_errors(chunk):
            yield located(error, chunk, path, start=start)

    def _of_applicators(self, site: Site, value: JSON, path: Path) -> Iterator[LocatedError]:
        """The errors of the subschemas that validate the same value."""
        for each in self._applied(site, value):
            yield from self.errors(each, value, path)
        for keyword in ("anyOf", "oneOf") if not self._index.is_overridden(site) else ():
            yield from self._of_branches(site, keyword, value, path)

    def _applied(self, site: Site, value: JSON) -> Iterator[Site]:
        """The subschemas that the same value must match."""
        for _keyword, _text, target in self._index.targets(site):
            if target is None:
                raise SearchExhausted
            yield target
        if self._index.is_overridden(site):
            return
        yield from self._inner(site, "allOf").values()
        for condition in self._inner(site, "if").values():
            holds = self._judge(self._reference(condition)).is_valid(value)
            yield from self._inner(site, "then" if holds else "else").values()
        for keyword in ("dependentSchemas", "dependencies"):
            for (_, name), each in self._inner(site, keyword).items():
                if isinstance(value, dict) and name in value:
                    yield each

    def _of_branches(self, site: Site, keyword: str, value: JSON, path: Path) -> Iterator[LocatedError]:
        branches = self._inner(site, keyword).values()
        found = [[*islice(self.errors(branch, value, path), _BRANCH)] for branch in branches]
        fitting = sum(not errors for errors in found)
        if found and (fitting == 0 or (keyword == "oneOf" and fitting > 1)):
            yield LocatedError(path, BranchErrors(keyword, found), (keyword,), value)


def located(
    error: jsonschema_rs.ValidationError, piece: JSON, path: Path = (), *, start: int = 0, depth: int = 0
) -> LocatedError:
    """Convert an error in a piece of a large value to its place in the whole value.

    Args:
        error: The error.
        piece: The validated piece.
        path: The place of the piece.
        start: Index of the first item if the piece has only some items of a list.
        depth: Number of keys that lead to that list within the piece.
    """
    keys, kind = true_path(piece, error.instance_path), error.kind
    if start and len(keys) > depth:
        keys = (*keys[:depth], int(keys[depth]) + start, *keys[depth + 1 :])
    place = (*path, *keys)
    if isinstance(kind, Kind.AnyOf | Kind.OneOfNotValid | Kind.OneOfMultipleValid):
        context = [
            [located(each, piece, path, start=start, depth=depth) for each in branch]
            for branch in kind.context
        ]
        return LocatedError(place, BranchErrors(kind.name, context), error.evaluation_path, error.instance)
    return LocatedError(place, kind, error.evaluation_path, error.instance)


def _witnesses(schema: dict[str, JSON], value: JSON) -> Iterator[JSON]:
    """Small values that may violate a keyword in the same way as a large container."""
    if isinstance(value, dict):
        named = {*_texts(schema)}
        yield {name: None for name in value if name in named}  # lacks the same required properties
        yield dict.fromkeys(value)
    elif isinstance(value, list):
        yield []
        yield [None, None]
        yield [None] * len(value)
    yield _UNLISTED


def _texts(schema: JSON) -> Iterator[str]:
    """The names in `required` and similar keywords."""
    if isinstance(schema, str):
        yield schema
    elif isinstance(schema, dict | list):
        for each in [*schema, *schema.values()] if isinstance(schema, dict) else schema:
            yield from _texts(each)
