"""Where a JSON Schema keeps its subschemas, and which of them speak about a place in a value.

jsonschema-rs judges values; this index answers the questions that it does not: what kind of value
is wanted at a path, which properties are known there, whether the place is marked as secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias, TypeGuard
from urllib.parse import unquote, urldefrag, urljoin

import jsonschema_rs

from toolcrib.model import JSON, NOTHING, Schema

Path: TypeAlias = tuple[str | int, ...]
"""Keys and indexes from the root of a value to a place in it."""

LINEAR: Final = jsonschema_rs.RegexOptions(size_limit=1 << 20)
"""Patterns that run in linear time; look-around and back-references do not compile."""

BACKTRACKING: Final = jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000, size_limit=1 << 20)
"""For the patterns that need look-around or back-references: a bounded number of steps."""

ONE: Final = frozenset(
    ["additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"]
)
MANY: Final = frozenset(("allOf", "anyOf", "items", "oneOf", "prefixItems"))
NAMED: Final = frozenset(
    ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
)
REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
LEGACY: Final = ("/draft-04/", "/draft-06/", "/draft-07/")


def is_schema(value: object) -> TypeGuard[Schema]:
    """Whether a value has the form of a schema: an object or a boolean."""
    return isinstance(value, dict | bool)


def pointer_to(path: Sequence[str | int]) -> str:
    """The JSON Pointer (RFC 6901) of a path."""
    return "".join(f"/{str(key).replace('~', '~0').replace('/', '~1')}" for key in path)


def children(schema: Schema) -> Iterator[tuple[tuple[str | int, ...], Schema]]:
    """The direct subschemas of a schema with their paths, at the keywords of all supported drafts."""
    if isinstance(schema, bool):
        return
    for keyword, inner in schema.items():
        if keyword in ONE and is_schema(inner):
            yield (keyword,), inner
        elif keyword in MANY and isinstance(inner, list):
            yield from (((keyword, index), item) for index, item in enumerate(inner) if is_schema(item))
        elif keyword in NAMED and isinstance(inner, dict):
            yield from (((keyword, name), item) for name, item in inner.items() if is_schema(item))


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

    def child(self, path: Path, schema: Schema) -> Site:
        """The site of a subschema of this one."""
        return Site(schema, _base_of(schema, self.base), self.document, self.path + path)

    @property
    def key(self) -> tuple[str, Path]:
        """Tells sites apart."""
        return self.document, self.path


def _base_of(schema: Schema, base: str) -> str:
    if isinstance(schema, bool):
        return base
    name = schema.get("$id", schema.get("id"))
    if not isinstance(name, str) or name.startswith("#"):
        return base
    return urldefrag(urljoin(base, name)).url


class SchemaIndex:
    """The sites of a schema and of the documents that it may refer to. Never fetches anything."""

    def __init__(self, schema: Schema, remotes: Mapping[str, JSON] = NOTHING) -> None:
        self.root = Site(schema, _base_of(schema, ""), "", ())
        self.legacy = isinstance(schema, dict) and any(
            draft in str(schema.get("$schema")) for draft in LEGACY
        )
        self._resources: dict[str, Site] = {}
        self._anchors: dict[tuple[str, str], Site] = {}
        self._resources[""] = self.root
        for uri, remote in remotes.items():
            if is_schema(remote):
                self._register(Site(remote, _base_of(remote, uri), uri, ()))
                self._resources.setdefault(uri, Site(remote, _base_of(remote, uri), uri, ()))
        self._register(self.root)

    def _register(self, top: Site) -> None:
        for site in self.walk(top):
            if isinstance(site.schema, bool):
                continue
            if not site.path or "$id" in site.schema or "id" in site.schema:
                self._resources.setdefault(site.base, site)
            for keyword in ("$anchor", "$dynamicAnchor", "$id", "id"):
                name = site.schema.get(keyword)
                if isinstance(name, str) and (keyword.endswith("nchor") or name.startswith("#")):
                    self._anchors.setdefault((site.base, name.removeprefix("#")), site)

    def walk(self, top: Site | None = None) -> Iterator[Site]:
        """Every subschema at and under a site, outermost first, in the order written."""
        stack = [top or self.root]
        while stack:
            site = stack.pop()
            yield site
            inner = [site.child(path, schema) for path, schema in children(site.schema)]
            stack.extend(reversed(inner))

    def everything(self) -> Iterator[Site]:
        """Every subschema of the schema and of the other documents at hand."""
        documents = {site.document: site for site in self._resources.values() if not site.path}
        for site in documents.values():
            yield from self.walk(site)

    def knows(self, reference: str, base: str) -> bool:
        """Whether the document of a reference is among those at hand."""
        return self._target_uri(reference, base)[0] in self._resources

    def _target_uri(self, reference: str, base: str) -> tuple[str, str]:
        if reference.startswith("#"):
            return base, unquote(reference[1:])
        uri, fragment = urldefrag(urljoin(base, reference))
        return uri, unquote(fragment)

    def resolve(self, reference: str, base: str) -> Site | None:
        """The site that a reference means, or None where it dangles or lies in an unknown document."""
        uri, fragment = self._target_uri(reference, base)
        if fragment and not fragment.startswith("/"):
            return self._anchors.get((uri, fragment))
        site = self._resources.get(uri)
        for token in fragment.split("/")[1:]:
            site = site and _descend(site, token.replace("~1", "/").replace("~0", "~"))
        return site if site is not None and is_schema(site.schema) else None

    def targets(self, site: Site) -> Iterator[tuple[str, str, Site | None]]:
        """The references of a site: keyword, text, and the site meant (None: unknown)."""
        if isinstance(site.schema, bool):
            return
        for keyword in REFERENCES:
            reference = site.schema.get(keyword)
            if isinstance(reference, str):
                yield keyword, reference, self.resolve(reference, site.base)

    def in_place(self, site: Site) -> Iterator[Site]:
        """The sites that judge the very value that this one judges; `not` and `if` are left out."""
        if isinstance(site.schema, bool):
            return
        yield from (target for _, _, target in self.targets(site) if target is not None)
        if self.legacy and "$ref" in site.schema:
            return
        for path, schema in children(site.schema):
            if path[0] in _IN_PLACE:
                yield site.child(path, schema)

    def together(self, sites: Sequence[Site]) -> list[Site]:
        """The sites and all that judge the same value with them, each once."""
        found = {site.key: site for site in sites}
        queue = list(found.values())
        for site in queue:
            for other in self.in_place(site):
                if other.key not in found:
                    found[other.key] = other
                    queue.append(other)
        return queue

    def conjuncts(self, sites: Sequence[Site]) -> list[Site]:
        """The sites and all that hold wherever these hold: through references and `allOf` alone."""
        found = {site.key: site for site in sites}
        queue = list(found.values())
        for site in queue:
            for other in self.in_place(site):
                step = other.path[len(site.path) :] if other.path[: len(site.path)] == site.path else ()
                by_reference = other.key in {target.key for _, _, target in self.targets(site) if target}
                if other.key not in found and (by_reference or step[:1] == ("allOf",)):
                    found[other.key] = other
                    queue.append(other)
        return queue

    def below(self, sites: Sequence[Site], key: str | int) -> list[Site]:
        """The sites that judge the member `key` of a value that `sites` judge."""
        found: dict[tuple[str, Path], Site] = {}
        for site in sites:
            if isinstance(site.schema, dict) and not (self.legacy and "$ref" in site.schema):
                inner = _of_property(site.schema, key) if isinstance(key, str) else _of_item(site.schema, key)
                for path, schema in inner:
                    child = site.child(path, schema)
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


_IN_PLACE: Final = frozenset(("allOf", "anyOf", "oneOf", "then", "else", "dependentSchemas", "dependencies"))


def _descend(site: Site, token: str) -> Site | None:
    node: object = site.schema
    if isinstance(node, dict) and token in node:
        inner: JSON = node[token]
        base = _base_of(inner, site.base) if is_schema(inner) else site.base
        return Site(inner, base, site.document, (*site.path, token))  # type: ignore[arg-type] # may pass through lists
    if isinstance(node, list) and token.isdecimal() and int(token) < len(node):
        return site.child((int(token),), node[int(token)])
    return None


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
