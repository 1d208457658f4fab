"""Schemas of a description as JSON Schema 2020-12.

Schema objects of Swagger 2 and OpenAPI 3.0 are not JSON Schema: `nullable`, `exclusiveMinimum: true`, `example` and
`type: file` have other names or forms there. Those of OpenAPI 3.1 and 3.2 are, apart from `discriminator`, `xml` and
`example`. Properties that are `readOnly` do not belong to requests, those that are `writeOnly` not to responses.

A schema that others refer to is converted once, with its references left open as `SchemaLink`s. `Schemas.closed` puts a
schema of a tool together: a referenced schema is inlined if it is short or has a single use, and becomes a definition in
`$defs` otherwise. Schemas that nest too much are cut: below the limit, any value is accepted, which is reported.
"""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from toolcrib.core.model import JSON
from toolcrib.core.subschemas import pattern_validator
from toolcrib.core.text import canonical, compact
from toolcrib.formats.openapi_import.references import Node, References, Refused, place_of, shown
from toolcrib.schema.all_of import conjoin

Direction: TypeAlias = Literal["request", "response"]
Key: TypeAlias = tuple[str, str]
"""Identifies a referenced schema: its file and pointer."""

MOST: Final = 48 * 1024
"""Maximum size of a schema of a tool, in bytes of compact JSON; nested schemas beyond it are cut."""

SHORT: Final = 160
"""A referenced schema up to this size is inlined wherever it is used."""

HEIGHT: Final = 44
"""Maximum number of levels of a schema with inlined ones. The loader reads 64 levels of a document."""

_DEPTH: Final = 56
_WAYS: Final = 20_000
_LINK: Final = 20
_FACTOR: Final = 4096

TYPES: Final = frozenset(("string", "number", "integer", "boolean", "array", "object", "null"))
_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "integer": ("int", "int32", "int64", "long", "short", "bigint"),
    "number": ("float", "double", "decimal", "numeric"),
    "boolean": ("bool",),
    "object": ("dict", "map", "hash", "json", "struct"),
    "array": ("list", "tuple", "set"),
    "string": ("str", "text", "char", "enum", "file", "binary", "byte", "url", "uri"),
}
_MEANT: Final[Mapping[str, dict[str, JSON]]] = {
    **{name: {"type": kind} for kind, names in _NAMES.items() for name in names},
    "date": {"type": "string", "format": "date"},
    "uuid": {"type": "string", "format": "uuid"},
    **{name: {"type": "string", "format": "date-time"} for name in ("datetime", "date-time", "timestamp")},
    **{name: {} for name in ("any", "mixed", "unknown")},
}
"""Types that descriptions use and JSON Schema does not have -> what they mean."""

_NUMBERS: Final = ("maximum", "minimum", "multipleOf")
_COUNTS: Final = (
    "maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties", "maxContains", "minContains",
)  # fmt: skip
_ONE: Final = frozenset(
    (
        "additionalProperties", "contains", "contentSchema", "else", "if", "items", "not", "propertyNames", "then",
        "unevaluatedItems", "unevaluatedProperties",
    )
)  # fmt: skip
_MANY: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_NAMED: Final = frozenset(("dependentSchemas", "patternProperties"))
_IN_PLACE: Final = frozenset(("allOf", "anyOf", "oneOf", "not", "if", "then", "else"))
"""Keywords whose schemas judge the same value."""
_TEXTS: Final = frozenset(
    ("title", "description", "format", "contentEncoding", "contentMediaType", "$comment")
)
_FLAGS: Final = frozenset(("uniqueItems", "deprecated"))
_ANY_VALUE: Final = frozenset(("const", "dependentRequired", "x-mcp-header", "x-secret"))
_ENUM_TEXTS: Final = frozenset(
    ("x-enum-varnames", "x-enumNames", "x-enum-descriptions", "x-enumDescriptions")
)
_DONE: Final = frozenset(
    (
        "$ref", "$dynamicRef", "$schema", "$id", "$anchor", "$dynamicAnchor", "$vocabulary", "$defs", "definitions", "type",
        "nullable", "x-nullable", "properties", "required", "enum", "exclusiveMinimum", "exclusiveMaximum", "example",
        "examples", "x-example", "x-examples", "discriminator", "readOnly", "writeOnly", "xml", "externalDocs",
        "default", "allowEmptyValue", "collectionFormat",
    )
)  # fmt: skip
"""Keywords that are not converted one by one."""


class SchemaLink(NamedTuple):
    """A reference to another schema that is still open.

    Attributes:
        key: The referenced schema.
        beside: The keywords next to the reference.
    """

    key: Key
    beside: dict[str, Any]


class _OpenObject(dict[str, Any]):
    """An object with open references in it. All other parts of a schema are shared, and never changed."""


class _OpenList(list[Any]):
    """A list with open references in it."""


class _Found(NamedTuple):
    """Something to report about a schema, wherever it is used."""

    kind: str
    place: str
    message: str


class Part(NamedTuple):
    """A converted schema whose references are open.

    Attributes:
        schema: The schema; a `SchemaLink`, or with `SchemaLink`s in it.
        name: The name for its definition.
        links: How often it refers to each other schema.
        judging: How often these judge the same value as the schema itself, as in an `allOf`.
        size: Its size in bytes, with references instead of them.
        height: Its levels.
        found: What there is to report.
    """

    schema: Any
    name: str = ""
    links: Mapping[Key, int] = {}
    judging: Mapping[Key, int] = {}
    size: int = 0
    height: int = 0
    found: tuple[_Found, ...] = ()


class Closed(NamedTuple):
    """A schema of a tool.

    Attributes:
        schema: The schema, whose references lead to its own `$defs`.
        cut: The names of schemas that were replaced by one that accepts any value, because it would be too large.
        size: Its size in bytes, without definitions that are repeated.
        doubtful: Whether it may have no end, or too many ways to judge a value.
        used: The referenced schemas that are part of it.
    """

    schema: Any
    cut: tuple[str, ...] = ()
    size: int = 0
    doubtful: bool = False
    used: tuple[Part, ...] = ()


class Schemas:
    """Converts the schemas of one description.

    Args:
        references: Follows references.
        legacy: Whether it is Swagger 2 or OpenAPI 3.0, where siblings of `$ref` do not count.
    """

    def __init__(self, references: References, *, legacy: bool) -> None:
        self.references = references
        self.legacy = legacy
        self._known: dict[tuple[Key, Direction], Part] = {}
        self._parts: dict[tuple[str, str, Direction], Part] = {}

    def part(self, node: Node, direction: Direction) -> Part:
        """Convert a schema, without those that it refers to."""
        # Many operations share parameters and responses.
        place = (node.file, node.pointer, direction)
        if place not in self._parts:
            self._parts[place] = _Conversion(self, node.file, direction).part(node)
        return self._parts[place]

    def linked(self, key: Key, direction: Direction) -> Part:
        """The converted schema that a link leads to."""
        known = self._known.get((key, direction))
        if known is None:
            known = self._known[key, direction] = self._convert(key, direction)
        return known

    def _convert(self, key: Key, direction: Direction) -> Part:
        file, pointer = key
        node = self.references.target(f"#{pointer}", Node(None, file))
        name = re.sub(r"[^A-Za-z0-9_.-]+", "_", _last_name(pointer)).strip("_.") or "schema"
        return self.part(replace(node, file=file, pointer=pointer), direction)._replace(name=name)

    def solved(self, schema: Any, direction: Direction) -> Any:
        """A converted schema, or the one that it is only a link to."""
        seen: set[Key] = set()
        while isinstance(schema, SchemaLink) and schema.key not in seen:
            seen.add(schema.key)
            target = self.linked(schema.key, direction).schema
            if isinstance(target, SchemaLink):
                schema = SchemaLink(target.key, {**target.beside, **schema.beside})
            elif not schema.beside:
                schema = target
            elif isinstance(target, dict) and not schema.beside.keys() - _ANNOTATIONS:
                schema = _opened({**target, **schema.beside})
            else:
                return schema
        return schema

    def closed(self, parts: Iterable[Part], schema: Any, direction: Direction, most: int = MOST) -> Closed:
        """Put a schema of a tool together.

        Args:
            parts: The parts that `schema` consists of.
            schema: The schema, with links.
            direction: Which properties belong to it.
            most: Maximum size; nested schemas beyond it are cut.
        """
        return _Assembly(self, direction, most).closed([*parts], schema)


def opened(schema: dict[str, Any]) -> dict[str, Any]:
    """An object of converted schemas, marked if it has links in it."""
    return _opened(schema)


def _opened(value: dict[str, Any]) -> dict[str, Any]:
    if any(isinstance(each, (SchemaLink, _OpenObject, _OpenList)) for each in value.values()):
        return _OpenObject(value)
    return value


def _opened_list(value: list[Any]) -> list[Any]:
    if any(isinstance(each, (SchemaLink, _OpenObject, _OpenList)) for each in value):
        return _OpenList(value)
    return value


def opened_list(schemas: list[Any]) -> list[Any]:
    """A list of converted schemas, marked if it has links in it."""
    return _opened_list(schemas)


_ANNOTATIONS: Final = frozenset(("title", "description", "default", "examples", "deprecated", "$comment"))


def _last_name(pointer: str) -> str:
    steps = [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")]
    named = [step for step in steps if step not in _PLACES and not step.isdigit()]
    return named[-1] if named else "schema"


_PLACES: Final = frozenset(
    ("", "schema", "schemas", "properties", "items", "content", "components", "definitions", "allOf")
)


class _Conversion:
    """The conversion of one schema."""

    def __init__(self, schemas: Schemas, file: str, direction: Direction) -> None:
        self._schemas = schemas
        self._file = file
        self._direction = direction
        self._links: Counter[Key] = Counter()
        self._judging: Counter[Key] = Counter()
        self._found: dict[_Found, None] = {}
        self._height = 0

    def part(self, node: Node) -> Part:
        schema = self._schema(node.value, node.pointer, 0, judging=True)
        size = _size(schema) + _LINK * sum(self._links.values())
        return Part(schema, "", self._links, self._judging, size, self._height, tuple(self._found))

    def _tell(self, kind: str, pointer: str, message: str) -> None:
        self._found[_Found(kind, place_of(self._file, pointer), message)] = None

    def _schema(self, raw: Any, pointer: str, depth: int, *, judging: bool) -> Any:
        if isinstance(raw, bool):
            return raw
        if not isinstance(raw, dict):
            if raw is not None:
                self._tell(
                    "repaired", pointer, f"a schema is not an object: {shown(raw)}; any value is accepted"
                )
            return {}
        self._height = max(self._height, depth)
        if depth > _DEPTH:
            self._tell(
                "lost", pointer, f"the schema has more than {_DEPTH} levels; below, any value is accepted"
            )
            return {}
        reference = raw.get("$ref", raw.get("$dynamicRef"))
        if isinstance(reference, str):
            return self._link(reference, raw, pointer, depth, judging=judging)
        return self._own(raw, pointer, depth, judging=judging)

    def _link(self, reference: str, raw: dict[str, Any], pointer: str, depth: int, *, judging: bool) -> Any:
        try:
            target = self._schemas.references.target(reference, Node(raw, self._file, pointer))
        except Refused as refused:
            self._tell("lost", pointer, f"{refused.message}; any value is accepted")
            return {key: raw[key] for key in ("title", "description") if isinstance(raw.get(key), str)}
        if self._schemas.legacy:
            # OpenAPI 3.0.3, "Reference Object": siblings are ignored. Texts change nothing, and models need them.
            beside = {key: raw[key] for key in ("title", "description") if isinstance(raw.get(key), str)}
        else:
            rest = {key: value for key, value in raw.items() if key not in {"$ref", "$dynamicRef", "$defs"}}
            own = self._own(rest, pointer, depth, judging=judging) if rest else {}
            beside = own if isinstance(own, dict) else _OpenObject({"allOf": _OpenList([own])})
        key = (target.file, target.pointer)
        self._links[key] += 1
        if judging:
            self._judging[key] += 1
        link = SchemaLink(key, beside)
        return _nullable(link) if self._schemas.legacy and raw.get("nullable") is True else link

    def _own(self, raw: dict[str, Any], pointer: str, depth: int, *, judging: bool) -> Any:
        made: dict[str, Any] = self._type(raw, pointer)
        for keyword, value in raw.items():
            if keyword in _DONE:
                continue
            if keyword in _ONE:
                self._one(made, keyword, value, pointer, depth, judging=judging and keyword in _IN_PLACE)
            elif keyword in _MANY:
                self._many(made, keyword, value, pointer, depth, judging=judging and keyword in _IN_PLACE)
            elif keyword in _NAMED:
                if isinstance(value, dict):
                    made[keyword] = _opened(
                        {
                            name: self._below(inner, pointer, depth, keyword, name)
                            for name, inner in value.items()
                        }
                    )
            else:
                self._plain(made, keyword, value, pointer)
        self._properties(made, raw, pointer, depth)
        self._bounds(made, raw)
        self._values(made, raw, pointer)
        self._texts(made, raw)
        made = _opened(_ordered(made))
        nullable = raw.get("nullable") is True or raw.get("x-nullable") is True
        return _nullable(_simple(made)) if nullable else _simple(made)

    def _below(self, raw: Any, pointer: str, depth: int, *steps: str | int, judging: bool = False) -> Any:
        for step in steps:
            pointer += (
                f"/{step}" if isinstance(step, int) else "/" + step.replace("~", "~0").replace("/", "~1")
            )
        return self._schema(raw, pointer, depth + len(steps), judging=judging)

    def _type(self, raw: dict[str, Any], pointer: str) -> dict[str, Any]:
        said = raw.get("type")
        if said is None:
            return {}
        if isinstance(said, str) and said in TYPES:
            return {"type": said}
        if isinstance(said, list) and said and all(isinstance(each, str) and each in TYPES for each in said):
            types = [*dict.fromkeys(said)]
            return {"type": types[0] if len(types) == 1 else types}
        if isinstance(said, str) and said.lower() in TYPES:
            self._tell("repaired", pointer, f"the type `{shown(said)}` is read as `{said.lower()}`")
            return {"type": said.lower()}
        meant = _MEANT.get(said.lower()) if isinstance(said, str) else None
        if said == "file":
            return {"type": "string", "format": "binary"}
        if meant is None:
            self._tell("repaired", pointer, f"the type `{shown(said)}` does not exist; any type is accepted")
            return {}
        told = f"`{meant['type']}`" if meant else "any type"
        self._tell("repaired", pointer, f"the type `{shown(said)}` is read as {told}")
        return {"format": said, **meant} if said in {"int32", "int64"} else dict(meant)

    def _one(
        self, made: dict[str, Any], keyword: str, value: Any, pointer: str, depth: int, *, judging: bool
    ) -> None:
        if keyword == "items" and isinstance(value, list):
            # A tuple of drafts before 2020-12.
            self._many(made, "prefixItems", value, pointer, depth, judging=False)
        elif isinstance(value, dict | bool):
            converted = self._below(value, pointer, depth, keyword, judging=judging)
            if keyword != "additionalProperties" or converted is not True:
                made[keyword] = converted
        elif value is not None:
            self._tell("repaired", pointer, f"`{keyword}` is not a schema and was removed")

    def _many(
        self, made: dict[str, Any], keyword: str, value: Any, pointer: str, depth: int, *, judging: bool
    ) -> None:
        if isinstance(value, dict):
            value = [value]
        if not isinstance(value, list) or not value:
            self._tell("repaired", pointer, f"`{keyword}` is not a list of schemas and was removed")
            return
        made[keyword] = _opened_list(
            [
                self._below(item, pointer, depth, keyword, index, judging=judging)
                for index, item in enumerate(value)
            ]
        )

    def _plain(self, made: dict[str, Any], keyword: str, value: Any, pointer: str) -> None:
        if keyword in _TEXTS:
            if isinstance(value, str) and value.strip():
                made[keyword] = value.strip() if keyword == "description" else value
        elif keyword in _NUMBERS or keyword in _COUNTS:
            self._size_or_bound(made, keyword, value, pointer)
        elif keyword == "pattern":
            self._pattern(made, value, pointer)
        elif keyword in _FLAGS:
            if value is True:
                made[keyword] = True
        elif keyword in _ANY_VALUE:
            made[keyword] = _lists_of_names(value) if keyword == "dependentRequired" else value
        elif keyword in _ENUM_TEXTS:
            self._enum_texts(made, value)
        elif not keyword.startswith("x-"):
            self._tell("lost", pointer, f"`{shown(keyword)}` is no keyword of a schema and was removed")

    def _size_or_bound(self, made: dict[str, Any], keyword: str, value: Any, pointer: str) -> None:
        number = _number(value, whole=keyword in _COUNTS)
        if number is None or (keyword == "multipleOf" and number <= 0) or (keyword in _COUNTS and number < 0):
            if value is not None:
                self._tell("repaired", pointer, f"`{keyword}: {shown(value)}` is invalid and was removed")
            return
        if isinstance(value, str):
            self._tell("repaired", pointer, f"`{keyword}: {shown(value)}` is read as a number")
        made[keyword] = number

    def _enum_texts(self, made: dict[str, Any], value: Any) -> None:
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            made["x-names"] = value
        elif isinstance(value, dict) and all(isinstance(each, str) for each in value.values()):
            made["x-names"] = [*value.values()]

    def _pattern(self, made: dict[str, Any], value: Any, pointer: str) -> None:
        if not isinstance(value, str):
            self._tell("repaired", pointer, "`pattern` is not a text and was removed")
            return
        pattern = value
        # `/^a$/` is JavaScript's notation: as a pattern, it can never match.
        if len(value) > 2 and value.startswith("/^") and value.rstrip("gimsuy").endswith("$/"):
            pattern = value.rstrip("gimsuy")[1:-1]
            self._tell("repaired", pointer, f"the pattern `{shown(value)}` is read without its slashes")
        try:
            pattern_validator(pattern)
        except ValueError:
            self._tell("repaired", pointer, f"the pattern `{shown(value)}` is invalid and was removed")
            return
        made["pattern"] = pattern

    def _properties(self, made: dict[str, Any], raw: dict[str, Any], pointer: str, depth: int) -> None:
        said = raw.get("properties")
        required = self._required(raw, pointer)
        if isinstance(said, dict):
            hidden = "readOnly" if self._direction == "request" else "writeOnly"
            kept: dict[str, Any] = {}
            for name, inner in said.items():
                if self._is(inner, hidden, pointer):
                    required = [each for each in required if each != name]
                    continue
                if isinstance(inner, dict) and inner.get("required") is True and name not in required:
                    required.append(name)
                kept[name] = self._below(inner, pointer, depth, "properties", name)
            if kept or said:
                made["properties"] = _opened(kept)
        elif said is not None:
            self._tell("repaired", pointer, "`properties` is not an object and was removed")
        if required:
            made["required"] = required

    def _required(self, raw: dict[str, Any], pointer: str) -> list[str]:
        said = raw.get("required")
        if isinstance(said, list):
            names = [*dict.fromkeys(each for each in said if isinstance(each, str))]
            if len(names) != len(said):
                self._tell("repaired", pointer, "`required` had values that are no or equal names")
            return names
        if said is not None and not isinstance(said, bool):
            self._tell("repaired", pointer, "`required` is not a list of names and was removed")
        return []

    def _is(self, raw: Any, keyword: str, pointer: str) -> bool:
        """Whether a property, or the schema that it refers to, is `readOnly` or `writeOnly`."""
        if not isinstance(raw, dict):
            return False
        if "$ref" not in raw:
            return raw.get(keyword) is True
        if not self._schemas.legacy and raw.get(keyword) is True:
            return True
        try:
            target = self._schemas.references.resolve(Node(raw, self._file, pointer))
        except Refused:
            return False
        return isinstance(target.value, dict) and target.value.get(keyword) is True

    @staticmethod
    def _bounds(made: dict[str, Any], raw: dict[str, Any]) -> None:
        for keyword, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
            said = raw.get(keyword)
            if said is True and inclusive in made:
                made[keyword] = made.pop(inclusive)
            elif not isinstance(said, bool) and (number := _number(said)) is not None:
                made[keyword] = number

    def _values(self, made: dict[str, Any], raw: dict[str, Any], pointer: str) -> None:
        if "enum" in raw:
            self._enum(made, raw["enum"], pointer)
        if "default" in raw:
            self._value(made, "default", raw["default"], pointer)
        if "const" in made and made["const"] is None and made.get("type") not in {None, "null"}:
            del made["const"]
        examples = raw["examples"] if isinstance(raw.get("examples"), list) else []
        for keyword in ("example", "x-example"):
            examples = examples or ([raw[keyword]] if raw.get(keyword) is not None else [])
        good = []
        for example in examples[:3]:
            found: dict[str, Any] = {"type": made["type"]} if "type" in made else {}
            self._value(found, "example", example, pointer, made.get("enum"))
            if "example" in found:
                good.append(found["example"])
        # Of an object or list, its members have their own; the whole would repeat them.
        if good and "properties" not in made and "items" not in made:
            made["examples"] = good

    def _enum(self, made: dict[str, Any], said: Any, pointer: str) -> None:
        values = said if isinstance(said, list) else [said]
        kind = made.get("type")
        fitted = [
            value if fits(value, kind) or value is None else _converted(value, kind) for value in values
        ]
        if any(value is _NONE for value in fitted):
            self._tell(
                "repaired", pointer, f"`enum` has values that are not of the type `{kind}`; they were removed"
            )
            fitted = [value for value in fitted if value is not _NONE]
        elif any(new is not old for new, old in zip(fitted, values, strict=True)):
            self._tell("repaired", pointer, f"the values of `enum` are read as `{kind}`")
        unique: dict[str, Any] = {canonical(value): value for value in fitted}
        if not unique:
            self._tell("repaired", pointer, "`enum` is empty and was removed")
            return
        made["enum"] = [*unique.values()]
        if None in made["enum"] and isinstance(kind, str) and kind != "null":
            made["type"] = [kind, "null"]

    def _value(
        self, made: dict[str, Any], keyword: str, value: Any, pointer: str, options: list[Any] | None = None
    ) -> None:
        """Add a default or example if it has the type of the schema, also after a conversion."""
        kind = made.get("type")
        options = options or made.get("enum")
        if value is None and not fits(None, kind):
            return
        good = value if fits(value, kind) else _converted(value, kind)
        # The values of a list parameter are described by its items.
        if good is _NONE or (options is not None and not any(_same(good, option) for option in options)):
            self._tell(
                "repaired",
                pointer,
                f"the {keyword} {shown(compact_or_text(value))} does not match its schema",
            )
            return
        if good is not value:
            self._tell(
                "repaired", pointer, f"the {keyword} {shown(compact_or_text(value))} is read as `{kind}`"
            )
        made[keyword] = good

    def _texts(self, made: dict[str, Any], raw: dict[str, Any]) -> None:
        """What only a text can say: what selects the form, names of values, documentation."""
        more = []
        names = made.pop("x-names", None)
        if names and len(names) == len(made.get("enum", ())):
            told = ", ".join(
                f"{compact_or_text(value)}: {name}" for value, name in zip(made["enum"], names, strict=True)
            )
            if any(str(value) != name for value, name in zip(made["enum"], names, strict=True)):
                more.append(f"Values: {told}.")
        selector = _selector(raw.get("discriminator"))
        if selector:
            more.append(selector)
        documentation = raw.get("externalDocs")
        if isinstance(documentation, dict) and isinstance(documentation.get("url"), str):
            more.append(f"See {documentation['url']}.")
        if raw.get("format") == "byte" and made.get("type") == "string":
            made["contentEncoding"] = "base64"
        if more:
            made["description"] = "\n\n".join(filter(None, (made.get("description"), *more)))


_NONE: Final = object()
"""A value that cannot be converted."""

_ORDER: Final = ("title", "description", "type", "format", "enum", "properties", "required")


def _ordered(made: dict[str, Any]) -> dict[str, Any]:
    """The keywords in the order in which people read them."""
    first: dict[str, Any] = {keyword: made[keyword] for keyword in _ORDER if keyword in made}
    return {**first, **{keyword: value for keyword, value in made.items() if keyword not in first}}


def _simple(made: dict[str, Any]) -> Any:
    """A schema that only wraps another one, as OpenAPI 3.0 has to do it to add a text to a reference."""
    branches = made.get("allOf")
    if isinstance(branches, list) and len(branches) == 1 and isinstance(branches[0], SchemaLink):
        rest = {key: value for key, value in made.items() if key != "allOf"}
        (link,) = branches
        # The type of the wrapper repeats that of the reference.
        if not rest.keys() - _ANNOTATIONS and not link.beside:
            return SchemaLink(link.key, rest)
    return made


def _nullable(schema: Any) -> Any:
    if isinstance(schema, SchemaLink):
        lifted = {key: value for key, value in schema.beside.items() if key in _ANNOTATIONS}
        rest = {key: value for key, value in schema.beside.items() if key not in _ANNOTATIONS}
        return _OpenObject({**lifted, "anyOf": _OpenList([SchemaLink(schema.key, rest), {"type": "null"}])})
    if not isinstance(schema, dict):
        return schema
    kind = schema.get("type")
    combined = any(keyword in schema for keyword in ("allOf", "anyOf", "oneOf", "const", "not"))
    if kind is None and not combined and "enum" not in schema:
        return schema  # any value, null included
    if combined or kind is None:
        lifted = {key: value for key, value in schema.items() if key in _ANNOTATIONS}
        rest = {key: value for key, value in schema.items() if key not in _ANNOTATIONS}
        if set(rest) in ({"anyOf"}, {"oneOf"}):
            (keyword,) = rest
            return _opened({**lifted, keyword: _opened_list([*rest[keyword], {"type": "null"}])})
        return _opened({**lifted, "anyOf": _opened_list([_opened(rest), {"type": "null"}])})
    types = kind if isinstance(kind, list) else [kind]
    made = {**schema, "type": types if "null" in types else [*types, "null"]}
    if "enum" in made and None not in made["enum"]:
        made["enum"] = [*made["enum"], None]
    return _opened(made)


def _lists_of_names(value: Any) -> dict[str, list[str]]:
    if not isinstance(value, dict):
        return {}
    return {
        name: [each for each in names if isinstance(each, str)]
        for name, names in value.items()
        if isinstance(names, list)
    }


def _selector(discriminator: Any) -> str:
    """What a `discriminator` says. It must not change which values are valid (OpenAPI 3.1.1, 4.8.25)."""
    if isinstance(discriminator, str):
        return f"`{discriminator}` selects the form."
    name = discriminator.get("propertyName") if isinstance(discriminator, dict) else None
    if not isinstance(name, str):
        return ""
    mapping = discriminator.get("mapping")
    if not isinstance(mapping, dict) or not mapping:
        return f"`{name}` selects the form."
    told = ", ".join(f"`{value}`" for value in [*mapping][:40])
    return f"`{name}` selects the form: {told}."


def _number(value: Any, *, whole: bool = False) -> int | float | None:
    if isinstance(value, str):
        try:
            value = float(value) if "." in value or "e" in value.lower() else int(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if whole:
        return int(value) if value == int(value) else None
    return value


_FITS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: (
        not isinstance(value, bool)
        and (isinstance(value, int) or (isinstance(value, float) and value.is_integer()))
    ),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}


def fits(value: Any, kind: Any) -> bool:
    """Whether a value has a type of JSON Schema, or one of a list of them."""
    if kind is None:
        return True
    return any(_FITS[each](value) for each in (kind if isinstance(kind, list) else [kind]))


def _converted(value: Any, kind: Any) -> Any:
    """A value as another type if it can only mean one value; `_NONE` otherwise."""
    kinds = [each for each in (kind if isinstance(kind, list) else [kind]) if each != "null"]
    if len(kinds) != 1:
        return _NONE
    if kinds[0] == "string" and isinstance(value, int | float | bool):
        return compact(value)
    if kinds[0] in {"integer", "number"} and isinstance(value, str):
        number = _number(value.strip())
        return number if number is not None and fits(number, kinds[0]) else _NONE
    if kinds[0] == "boolean" and value in ("true", "false", "True", "False"):
        return value.lower() == "true"
    return _NONE


def _same(one: Any, other: Any) -> bool:
    return bool(one == other) and isinstance(one, bool) is isinstance(other, bool)


def compact_or_text(value: Any) -> str:
    """A value for a message."""
    try:
        return compact(value)
    except (ValueError, TypeError):
        return str(value)


def _size(schema: Any) -> int:
    """The size of a schema without its links."""
    try:
        return len(compact(_unlinked(schema)).encode())
    except ValueError:
        raise Refused(
            "invalid_schema", "", "a schema is nested too deeply, or has a number or text that is not JSON"
        ) from None


def _unlinked(schema: Any) -> Any:
    if isinstance(schema, SchemaLink):
        return _unlinked(schema.beside)
    if isinstance(schema, _OpenObject):
        return {key: _unlinked(value) for key, value in schema.items()}
    if isinstance(schema, _OpenList):
        return [_unlinked(value) for value in schema]
    return schema


class _Assembly:
    """Puts the schema of a tool together."""

    def __init__(self, schemas: Schemas, direction: Direction, most: int) -> None:
        self._schemas = schemas
        self._direction: Direction = direction
        self._most = most
        self._cut: dict[Key, None] = {}
        self._inline: set[Key] = set()
        self._names: dict[Key, str] = {}
        self._defined: deque[Key] = deque()

    def closed(self, parts: list[Part], schema: Any) -> Closed:
        self._plan(parts)
        made = self._built(schema, 0)
        definitions: dict[str, Any] = {}
        while self._defined:
            key = self._defined.popleft()
            definitions[self._names[key]] = self._built(self._part(key).schema, 2)
        if definitions and isinstance(made, dict):
            made = {**made, "$defs": definitions}
        used = tuple(self._part(key) for key in self._reached if key not in self._cut)
        cut = tuple(self._part(key).name for key in self._cut)
        return Closed(made, cut, self._size, self._is_doubtful(), used)

    def _is_doubtful(self) -> bool:
        """Whether the referenced schemas judge a value in a circle, or in so many ways that the loader must count them."""
        ways: dict[Key, int] = {}
        left = dict.fromkeys(self._reached)
        while left:
            ready = [key for key in left if all(link in ways for link in self._part(key).judging)]
            if not ready:
                return True
            for key in ready:
                judging = self._part(key).judging
                ways[key] = 1 + sum(number * ways[link] for link, number in judging.items())
                del left[key]
        return sum(ways.values()) > _WAYS

    def _part(self, key: Key) -> Part:
        return self._schemas.linked(key, self._direction)

    def _plan(self, parts: list[Part]) -> None:
        """Decide which referenced schemas are inlined, which become definitions, and which are cut."""
        uses: Counter[Key] = Counter()
        size = sum(part.size for part in parts)
        most = max(self._most, size + self._most // 2)
        waiting: deque[Key] = deque()
        self._reached: dict[Key, None] = {}

        def meet(links: Mapping[Key, int]) -> None:
            for key, number in links.items():
                uses[key] += number
                if key not in self._reached:
                    self._reached[key] = None
                    waiting.append(key)

        for part in parts:
            meet(part.links)
        while waiting:  # the outer schemas first: those are the ones that stay
            key = waiting.popleft()
            part = self._part(key)
            if size + part.size > most:
                self._cut[key] = None
                continue
            size += part.size
            meet(part.links)
        self._size = size
        kept = [key for key in self._reached if key not in self._cut]
        circling = self._circling(kept)
        for key in kept:
            part = self._part(key)
            # Only one without references: those within it would be repeated as often, and so on.
            short = not part.links and part.size <= SHORT and part.size * uses[key] <= _FACTOR
            if key not in circling and (uses[key] == 1 or short):
                self._inline.add(key)

    def _circling(self, keys: list[Key]) -> set[Key]:
        """The schemas on cycles, or between them."""
        left = set(keys)
        while True:
            outer = {key for key in left if any(link in left for link in self._part(key).links)}
            if outer == left:
                break
            left = outer
        while True:
            entered = {link for key in left for link in self._part(key).links if link in left}
            if entered == left:
                return left
            left = entered

    def _built(self, schema: Any, depth: int) -> Any:
        if isinstance(schema, SchemaLink):
            return self._linked(schema, depth)
        if isinstance(schema, _OpenObject):
            return {key: self._built(value, depth + 1) for key, value in schema.items()}
        if isinstance(schema, _OpenList):
            return [self._built(value, depth + 1) for value in schema]
        return schema

    def _linked(self, link: SchemaLink, depth: int) -> Any:
        beside = self._built(_opened(link.beside), depth)
        if link.key in self._cut:
            return beside
        part = self._part(link.key)
        if link.key in self._inline and depth + part.height < HEIGHT:
            return _combined(beside, self._built(part.schema, depth))
        return {"$ref": f"#/$defs/{self._name(link.key, part)}", **beside}

    def _name(self, key: Key, part: Part) -> str:
        if key not in self._names:
            taken = set(self._names.values())
            name, number = part.name, 1
            while name in taken:
                number += 1
                name = f"{part.name}_{number}"
            self._names[key] = name
            self._defined.append(key)
        return self._names[key]


def _combined(beside: dict[str, Any], target: Any) -> Any:
    if not beside:
        return target
    if isinstance(target, dict) and not beside.keys() - _ANNOTATIONS:
        return _ordered({**target, **beside})
    return conjoin(beside, target)
