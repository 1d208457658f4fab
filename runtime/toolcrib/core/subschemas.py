"""The subschemas of a JSON Schema, and an index that finds those that apply to a place in a value.

jsonschema-rs validates values. This index answers other questions: which type is expected at a path, which
properties are known there, and whether the place is marked as secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias, TypeGuard, TypeVar
from urllib.parse import unquote, urldefrag, urljoin

import jsonschema_rs

from toolcrib.core.model import JSON, NOTHING, Schema
from toolcrib.core.pointers import keys_of

T = TypeVar("T")

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indexes from the root of a value to a place in it."""

# Patterns can come from an MCP server and run on arguments of a model. The limits keep a pattern with exponential
# backtracking, or with a large repetition count, from blocking the process.
LINEAR: Final = jsonschema_rs.RegexOptions(size_limit=1 << 20)
"""Options for patterns that are matched in linear time. Look-around and back-references do not compile."""

STEPS: Final = 100_000
"""Maximum number of steps for matching a pattern with look-around or back-references."""

BACKTRACKING: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=STEPS, size_limit=1 << 20)
"""Options for patterns with look-around or back-references: the number of steps is limited."""

ONE: Final = frozenset(
    [
        "additionalItems",
        "additionalProperties",
        "contains",
        "contentSchema",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)
MANY: Final = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
NAMED: Final = frozenset(
    ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
)
REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_NAMES_ELSEWHERE: Final = frozenset({*REFERENCES, "allOf", "anyOf", "oneOf", "if", "patternProperties"})
IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "then", "else", "dependentSchemas", "dependencies")
"""Keywords whose subschemas describe the same value. `not` and `if` do not describe what it should be."""

LEGACY: Final = ("/draft-04/", "/draft-06/", "/draft-07/")
"""Dialects in which keywords next to a `$ref` are ignored."""

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
"""An array index in a JSON Pointer: no leading zeros (RFC 6901, section 4)."""


PLAN_MARK: Final = "x-plan"
"""Marks the argument of a tool that is the plan of a model: a list of entries, which front ends show."""


def plan_argument(schema: Schema) -> str:
    """The name of the argument that is marked as the plan of a model; empty for none."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, part in properties.items() if isinstance(properties, dict) else ():
        if isinstance(part, dict) and PLAN_MARK in part:
            return name
    return ""


def is_schema(value: object) -> TypeGuard[Schema]:
    """Whether a value can be a schema: an object or a boolean."""
    return isinstance(value, dict | bool)


def members(schema: dict[str, JSON], keyword: str) -> Iterator[tuple[Path, Schema]]:
    """Yield the subschemas at a keyword, with their paths."""
    # `items` is in both ONE and MANY: it is a list in drafts before 2020-12. A `dependencies` entry can also be a list
    # of names, which `is_schema` excludes.
    inner = schema.get(keyword)
    if keyword in ONE and is_schema(inner):
        yield (keyword,), inner
    elif keyword in MANY and isinstance(inner, list):
        yield from (((keyword, index), item) for index, item in enumerate(inner) if is_schema(item))
    elif keyword in NAMED and isinstance(inner, dict):
        yield from (((keyword, name), item) for name, item in inner.items() if is_schema(item))


def children(schema: Schema) -> Iterator[tuple[Path, Schema]]:
    """Yield the direct subschemas of a schema, with their paths, at the keywords of all supported drafts."""
    if isinstance(schema, dict):
        for keyword in schema:
            yield from members(schema, keyword)


def with_members(keyword: str, value: JSON, change: Callable[[Schema, Path], JSON]) -> JSON:
    """Return the value of a keyword with each subschema replaced by `change(subschema, path)`."""
    if keyword in ONE and is_schema(value):
        return change(value, (keyword,))
    if keyword in MANY and isinstance(value, list):
        return [
            change(item, (keyword, index)) if is_schema(item) else item for index, item in enumerate(value)
        ]
    if keyword in NAMED and isinstance(value, dict):
        return {
            name: change(item, (keyword, name)) if is_schema(item) else item for name, item in value.items()
        }
    return value


def has_references(schema: Schema) -> bool:
    """Whether a schema contains a reference, so that its meaning can depend on the document around it."""
    if isinstance(schema, dict) and any(keyword in schema for keyword in REFERENCES):
        return True
    return any(has_references(inner) for _path, inner in children(schema))


def cached_per_schema(make: Callable[[Schema | None], T], most: int = 256) -> Callable[[Schema | None], T]:
    """Cache a function of a schema by the identity of the schema object.

    Args:
        make: Function to cache.
        most: Maximum number of schemas in the cache.
    """
    # By identity: a dictionary is not hashable, and descriptors with the same schema share one object.
    made: dict[int, tuple[Schema | None, T]] = {}

    def find(schema: Schema | None) -> T:
        known = made.get(id(schema))
        if known is None:
            if len(made) >= most:
                made.clear()
            # The entry keeps the schema alive, so that no other object can get the same `id`.
            known = made[id(schema)] = (schema, make(schema))
        return known[1]

    return find


@lru_cache(maxsize=512)
def pattern_validator(pattern: str) -> jsonschema_rs.Validator:
    """Return a validator for text that matches a pattern anywhere, in linear time if the pattern allows it.

    Raises:
        ValueError: The pattern is not a valid regular expression.
    """
    schema = {"type": "string", "pattern": pattern}
    try:
        return jsonschema_rs.validator_for(schema, pattern_options=LINEAR, offline=True)
    except ValueError:
        return jsonschema_rs.validator_for(schema, pattern_options=BACKTRACKING, offline=True)


def _matches(pattern: str, name: str) -> bool:
    try:
        return pattern_validator(pattern).is_valid(name)
    except ValueError:
        return False


Key: TypeAlias = tuple[str, Path]
"""Identifies a site: its document, and the path within it."""


class Site(NamedTuple):
    """A subschema and its location.

    Attributes:
        schema: The subschema.
        base: Base URI of its references; empty if the schema sets none.
        document: URI of the document that contains it; empty for the schema itself.
        path: Path within that document.
    """

    schema: Schema
    base: str
    document: str
    path: Path

    @property
    def key(self) -> Key:
        """Identifies the site."""
        return self.document, self.path

    def get(self, keyword: str) -> JSON:
        """Return the value of a keyword; None if it is not set."""
        return None if isinstance(self.schema, bool) else self.schema.get(keyword)


def _joined(base: str, reference: str) -> tuple[str, str]:
    """Resolve a reference against its base, into URI and fragment; an invalid URI is returned as written."""
    try:
        uri, fragment = urldefrag(urljoin(base, reference))
    except ValueError:
        return reference, ""
    return uri, fragment


class SchemaIndex:
    """Index of a schema and of the documents that it can refer to. It never fetches a document.

    Args:
        schema: The schema. Parts with an invalid form are skipped.
        remotes: Additional documents by URI.
    """

    def __init__(self, schema: Schema, remotes: Mapping[str, JSON] = NOTHING) -> None:
        dialect = str(schema.get("$schema")) if isinstance(schema, dict) else ""
        self.legacy = any(draft in dialect for draft in LEGACY)
        # Draft 4 calls the keyword `id`; all later drafts call it `$id`.
        self._id = "id" if LEGACY[0] in dialect else "$id"
        self._resources: dict[str, Site] = {}
        self._anchors: dict[tuple[str, str], Site] = {}
        self.root = self._enter(schema, "")
        for uri, remote in remotes.items():
            if is_schema(remote):
                self._enter(remote, uri)

    def _enter(self, schema: Schema, uri: str) -> Site:
        top = Site(schema, self._base(schema, uri), uri, ())
        self._resources[uri] = top
        for site in self.walk(top):
            if site.get(self._id) is not None:
                self._resources.setdefault(site.base, site)
            for keyword in ("$anchor", "$dynamicAnchor", self._id):
                name = site.get(keyword)
                if isinstance(name, str) and (keyword != self._id or name.startswith("#")):
                    self._anchors.setdefault((site.base, name.removeprefix("#")), site)
        return top

    def _base(self, schema: JSON, base: str) -> str:
        # In draft 7 and earlier, an `$id` next to a `$ref` is ignored, and one that starts with `#` is an anchor.
        if not isinstance(schema, dict) or (self.legacy and "$ref" in schema):
            return base
        name = schema.get(self._id)
        if not isinstance(name, str) or name.startswith("#"):
            return base
        return _joined(base, name)[0]

    def child(self, site: Site, path: Path, schema: Schema) -> Site:
        """Return the site of a subschema of `site`."""
        return Site(schema, self._base(schema, site.base), site.document, site.path + path)

    def walk(self, top: Site) -> Iterator[Site]:
        """Yield every subschema at and below a site, outermost first, in document order."""
        # An explicit stack, because the nesting of a schema could exceed Python's recursion limit.
        stack = [top]
        while stack:
            site = stack.pop()
            yield site
            inner = [self.child(site, path, schema) for path, schema in children(site.schema)]
            stack.extend(reversed(inner))

    def everything(self) -> Iterator[Site]:
        """Yield every subschema of the schema and of the additional documents."""
        for site in [site for uri, site in self._resources.items() if site.document == uri and not site.path]:
            yield from self.walk(site)

    def knows(self, reference: str, base: str) -> bool:
        """Whether the document of a reference is in the index."""
        return self.address(reference, base)[0] in self._resources

    def address(self, reference: str, base: str) -> tuple[str, str]:
        """Return the document URI and the decoded fragment of a reference."""
        if reference.startswith("#"):
            return base, unquote(reference[1:])
        uri, fragment = _joined(base, reference)
        return uri, unquote(fragment)

    def resolve(self, reference: str, base: str) -> Site | None:
        """Return the target of a reference; None if it does not exist or its document is unknown."""
        uri, fragment = self.address(reference, base)
        if fragment and not fragment.startswith("/"):
            return self._anchors.get((uri, fragment))
        top = self._resources.get(uri)
        return self._descend(top, fragment) if top is not None else None

    def _descend(self, top: Site, pointer: str) -> Site | None:
        node: JSON = top.schema
        base, path = top.base, top.path
        for name in keys_of(pointer):
            if isinstance(node, dict) and name in node:
                node, path = node[name], (*path, name)
            elif isinstance(node, list) and _INDEX.fullmatch(name) and int(name) < len(node):
                node, path = node[int(name)], (*path, int(name))
            else:
                return None
            # Each `$id` on the way changes the base of the references below it.
            base = self._base(node, base)
        return Site(node, base, top.document, path) if is_schema(node) else None

    def targets(self, site: Site) -> Iterator[tuple[str, str, Site | None]]:
        """Yield the references of a site: keyword, reference and target (None if unknown)."""
        for keyword in REFERENCES:
            reference = site.get(keyword)
            if isinstance(reference, str):
                yield keyword, reference, self.resolve(reference, site.base)

    def is_overridden(self, site: Site) -> bool:
        """Whether a `$ref` makes all other keywords of a site ineffective, as in draft 7 and earlier."""
        return self.legacy and isinstance(site.schema, dict) and "$ref" in site.schema

    def at_keywords(self, site: Site, keywords: Sequence[str]) -> Iterator[Site]:
        """Yield the direct subschemas at the given keywords; none next to a `$ref` in draft 7 and earlier."""
        if isinstance(site.schema, dict) and not self.is_overridden(site):
            for keyword in keywords:
                for path, schema in members(site.schema, keyword):
                    yield self.child(site, path, schema)

    def together(self, sites: Sequence[Site], keywords: Sequence[str] = IN_PLACE) -> list[Site]:
        """Return the sites and all others that describe the same value, by reference or `keywords`, each once."""
        # `found` also ends the walk of recursive references.
        found = {site.key: site for site in sites}
        queue = list(found.values())
        for site in queue:
            referred = [target for _, _, target in self.targets(site) if target is not None]
            for other in (*referred, *self.at_keywords(site, keywords)):
                if other.key not in found:
                    found[other.key] = other
                    queue.append(other)
        return queue

    def below(self, sites: Sequence[Site], key: str | int) -> list[Site]:
        """Return the sites that describe the member `key` of the value that `sites` describe."""
        found: dict[Key, Site] = {}
        for site in sites:
            if isinstance(site.schema, dict) and not self.is_overridden(site):
                inner = _of_property(site.schema, key) if isinstance(key, str) else _of_item(site.schema, key)
                for path, schema in inner:
                    child = self.child(site, path, schema)
                    found[child.key] = child
        return list(found.values())

    def heads(self, path: Path) -> list[Site]:
        """Return the outermost sites that describe the place `path` of a value."""
        heads = [self.root]
        for key in path:
            heads = self.below(self.together(heads), key)
        return heads

    def at(self, path: Path) -> list[Site]:
        """Return all sites that describe the place `path` of a value, including branches of `anyOf` and `oneOf`."""
        return self.together(self.heads(path))


def _of_property(schema: dict[str, JSON], name: str) -> Iterator[tuple[Path, Schema]]:
    known = False
    for keyword in ("properties", "patternProperties"):
        table = schema.get(keyword)
        if not isinstance(table, dict):
            continue
        for key, inner in table.items():
            if is_schema(inner) and (key == name if keyword == "properties" else _matches(key, name)):
                known = True
                yield (keyword, key), inner
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        extra = schema.get(keyword)
        if not known and is_schema(extra):
            yield (keyword,), extra


def _of_item(schema: dict[str, JSON], index: int) -> Iterator[tuple[Path, Schema]]:
    for keyword in ("prefixItems", "items"):
        inner = schema.get(keyword)
        if isinstance(inner, list) and index < len(inner):
            item = inner[index]
            if is_schema(item):
                yield (keyword, index), item
            return
    for keyword in ("items", "additionalItems", "unevaluatedItems"):
        rest = schema.get(keyword)
        if is_schema(rest):
            yield (keyword,), rest


def described_names(schema: Schema) -> Collection[str]:
    """Return the names in the top-level `properties` of a schema."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties.keys() if isinstance(properties, dict) else ()


def may_name_elsewhere(schema: Schema) -> bool:
    """Whether a schema can describe properties outside its own `properties`."""
    return isinstance(schema, dict) and not _NAMES_ELSEWHERE.isdisjoint(schema)


def closed_names(schema: Schema) -> Collection[str] | None:
    """Return the property names that a valid closed schema allows; None if the schema is open or invalid."""
    if not isinstance(schema, dict) or schema.get("additionalProperties") is not False:
        return None
    sound = isinstance(schema.get("properties", {}), dict)
    return described_names(schema) if sound and "patternProperties" not in schema else None
