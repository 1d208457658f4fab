"""Where a JSON Schema keeps its subschemas, and which of them speak about a place in a value.

jsonschema-rs judges values; this index answers the questions that it does not: what kind of value
is wanted at a path, which properties are known there, whether the place is marked as secret.
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

LINEAR: Final = jsonschema_rs.RegexOptions(size_limit=1 << 20)
"""Patterns that run in linear time; look-around and back-references do not compile."""

STEPS: Final = 100_000
"""Steps that a pattern with look-around or back-references may take on one text."""

BACKTRACKING: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=STEPS, size_limit=1 << 20)
"""For the patterns that need look-around or back-references: a bounded number of steps."""

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
"""Keywords whose subschemas judge the same value; `not` and `if` do not say what it should be."""

LEGACY: Final = ("/draft-04/", "/draft-06/", "/draft-07/")
"""Dialects in which nothing beside a `$ref` counts."""

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")
"""A position in a list, as a JSON Pointer writes it."""


def is_schema(value: object) -> TypeGuard[Schema]:
    """Whether a value has the form of a schema: an object or a boolean."""
    return isinstance(value, dict | bool)


def members(schema: dict[str, JSON], keyword: str) -> Iterator[tuple[Path, Schema]]:
    """The subschemas at one keyword with their paths."""
    inner = schema.get(keyword)
    if keyword in ONE and is_schema(inner):
        yield (keyword,), inner
    elif keyword in MANY and isinstance(inner, list):
        yield from (((keyword, index), item) for index, item in enumerate(inner) if is_schema(item))
    elif keyword in NAMED and isinstance(inner, dict):
        yield from (((keyword, name), item) for name, item in inner.items() if is_schema(item))


def children(schema: Schema) -> Iterator[tuple[Path, Schema]]:
    """The direct subschemas of a schema with their paths, at the keywords of all supported drafts."""
    if isinstance(schema, dict):
        for keyword in schema:
            yield from members(schema, keyword)


def with_members(keyword: str, value: JSON, change: Callable[[Schema, Path], JSON]) -> JSON:
    """The value of a keyword with each of its subschemas changed; `change` is given their paths in the schema, too."""
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
    """Whether there is a reference in a schema, so that it may mean something else where it stands alone."""
    if isinstance(schema, dict) and any(keyword in schema for keyword in REFERENCES):
        return True
    return any(has_references(inner) for _path, inner in children(schema))


def cached_per_schema(make: Callable[[Schema | None], T], most: int = 256) -> Callable[[Schema | None], T]:
    """What is made of a schema, made once for each schema object, of which so many are remembered.

    A schema can't be looked up by its value, and need not be: descriptors that share one share the object.
    """
    made: dict[int, tuple[Schema | None, T]] = {}

    def find(schema: Schema | None) -> T:
        known = made.get(id(schema))
        if known is None:
            if len(made) >= most:
                made.clear()
            # The schema is held, so no other object can have its identity while it is remembered.
            known = made[id(schema)] = (schema, make(schema))
        return known[1]

    return find


@lru_cache(maxsize=512)
def pattern_validator(pattern: str) -> jsonschema_rs.Validator:
    """A validator of texts that match a pattern anywhere, in linear time where the pattern allows.

    Raises:
        ValueError: The pattern is no regular expression.
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
"""Tells sites apart: the document, and the path within it."""


class Site(NamedTuple):
    """A subschema and where it stands.

    Attributes:
        schema: The subschema.
        base: URI that its references resolve against; empty where the schema names none.
        document: URI of the document that holds it; empty for the schema itself.
        path: Path within that document.
    """

    schema: Schema
    base: str
    document: str
    path: Path

    @property
    def key(self) -> Key:
        """Tells sites apart."""
        return self.document, self.path

    def get(self, keyword: str) -> JSON:
        """What the subschema says at a keyword; None where it says nothing."""
        return None if isinstance(self.schema, bool) else self.schema.get(keyword)


def _joined(base: str, reference: str) -> tuple[str, str]:
    """A reference against its base: URI and fragment; as it was written, where it is no URI."""
    try:
        uri, fragment = urldefrag(urljoin(base, reference))
    except ValueError:
        return reference, ""
    return uri, fragment


class SchemaIndex:
    """The sites of a schema and of the documents that it may refer to. Never fetches anything.

    Args:
        schema: A schema; where its form is wrong, the wrong parts are passed over.
        remotes: Further documents by their URI.
    """

    def __init__(self, schema: Schema, remotes: Mapping[str, JSON] = NOTHING) -> None:
        dialect = str(schema.get("$schema")) if isinstance(schema, dict) else ""
        self.legacy = any(draft in dialect for draft in LEGACY)
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
        if not isinstance(schema, dict) or (self.legacy and "$ref" in schema):
            return base
        name = schema.get(self._id)
        if not isinstance(name, str) or name.startswith("#"):
            return base
        return _joined(base, name)[0]

    def child(self, site: Site, path: Path, schema: Schema) -> Site:
        """The site of a subschema of a site."""
        return Site(schema, self._base(schema, site.base), site.document, site.path + path)

    def walk(self, top: Site) -> Iterator[Site]:
        """Every subschema at and under a site, outermost first, in the order written."""
        stack = [top]
        while stack:
            site = stack.pop()
            yield site
            inner = [self.child(site, path, schema) for path, schema in children(site.schema)]
            stack.extend(reversed(inner))

    def everything(self) -> Iterator[Site]:
        """Every subschema of the schema and of the other documents at hand."""
        for site in [site for uri, site in self._resources.items() if site.document == uri and not site.path]:
            yield from self.walk(site)

    def knows(self, reference: str, base: str) -> bool:
        """Whether the document of a reference is among those at hand."""
        return self.address(reference, base)[0] in self._resources

    def address(self, reference: str, base: str) -> tuple[str, str]:
        """The URI of the document that a reference means, and its fragment, decoded."""
        if reference.startswith("#"):
            return base, unquote(reference[1:])
        uri, fragment = _joined(base, reference)
        return uri, unquote(fragment)

    def resolve(self, reference: str, base: str) -> Site | None:
        """The site that a reference means, or None where it dangles or lies in an unknown document."""
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
            base = self._base(node, base)
        return Site(node, base, top.document, path) if is_schema(node) else None

    def targets(self, site: Site) -> Iterator[tuple[str, str, Site | None]]:
        """The references of a site: keyword, text, and the site meant (None: unknown)."""
        for keyword in REFERENCES:
            reference = site.get(keyword)
            if isinstance(reference, str):
                yield keyword, reference, self.resolve(reference, site.base)

    def is_overridden(self, site: Site) -> bool:
        """Whether nothing but its `$ref` counts of a site, as in the older dialects."""
        return self.legacy and isinstance(site.schema, dict) and "$ref" in site.schema

    def at_keywords(self, site: Site, keywords: Sequence[str]) -> Iterator[Site]:
        """The direct subschemas at some keywords; none beside a `$ref` in the older dialects."""
        if isinstance(site.schema, dict) and not self.is_overridden(site):
            for keyword in keywords:
                for path, schema in members(site.schema, keyword):
                    yield self.child(site, path, schema)

    def together(self, sites: Sequence[Site], keywords: Sequence[str] = IN_PLACE) -> list[Site]:
        """The sites and all that judge the same value, by reference or by `keywords`; each once."""
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
        """The sites that judge the member `key` of a value that `sites` judge."""
        found: dict[Key, Site] = {}
        for site in sites:
            if isinstance(site.schema, dict) and not self.is_overridden(site):
                inner = _of_property(site.schema, key) if isinstance(key, str) else _of_item(site.schema, key)
                for path, schema in inner:
                    child = self.child(site, path, schema)
                    found[child.key] = child
        return list(found.values())

    def heads(self, path: Path) -> list[Site]:
        """The outermost sites that judge the place `path` of a value."""
        heads = [self.root]
        for key in path:
            heads = self.below(self.together(heads), key)
        return heads

    def at(self, path: Path) -> list[Site]:
        """All sites that judge the place `path` of a value, branches of `anyOf` and `oneOf` included."""
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
    """The names of the properties that a schema describes at its top."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties.keys() if isinstance(properties, dict) else ()


def may_name_elsewhere(schema: Schema) -> bool:
    """Whether a schema may name properties elsewhere than in its `properties`."""
    return isinstance(schema, dict) and not _NAMES_ELSEWHERE.isdisjoint(schema)


def closed_names(schema: Schema) -> Collection[str] | None:
    """The names that an object may have at its top, where the schema is sound and allows no others; else None."""
    if not isinstance(schema, dict) or schema.get("additionalProperties") is not False:
        return None
    sound = isinstance(schema.get("properties", {}), dict)
    return described_names(schema) if sound and "patternProperties" not in schema else None
