"""Schemas for OpenAI's strict mode, in which the model cannot produce anything else.

From "Structured outputs", supported schemas: every object is closed and all its properties are required, so
an optional one may be null instead, which means that it is omitted; the root is an object and not `anyOf`;
`allOf`, `oneOf`, `not`, `if`, `dependentRequired`, `dependentSchemas`, `patternProperties`, `prefixItems` and
values of any type are not supported; at most 10 levels of objects, 5,000 properties, 1,000 `enum` values
(15,000 characters in an `enum` of more than 250), and 120,000 characters in names and values.

A tool that does not fit is declared without strict mode, and its losses give the reasons. Keywords that only
bound values (`minLength`, `uniqueItems` ...) or inform readers (`default`, `examples`) are moved to
descriptions and do not prevent strict mode. An object that lists its properties and does not set
`additionalProperties` is closed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final

from toolcrib.core.model import JSON
from toolcrib.formats.providers.argument_schema import Loss, pointer_of_schema
from toolcrib.formats.providers.compiler import (
    NarrowCompiler,
    Restore,
    SchemaPart,
    TypeOption,
    is_needless,
    restore_as_is,
    restore_members,
    restore_unwrapped,
    wrapper_for,
)

MOST_LEVELS: Final = 10
MOST_PROPERTIES: Final = 5_000
MOST_VALUES: Final = 1_000
MOST_CHARACTERS: Final = 120_000
LARGE_ENUM: Final = 250
MOST_CHARACTERS_OF_LARGE_ENUM: Final = 15_000

_STRUCTURAL: Final = frozenset(
    (
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "dependentSchemas",
        "patternProperties",
        "propertyNames",
        "prefixItems",
        "contains",
        "minContains",
        "maxContains",
        "unevaluatedItems",
    )
)
"""Keywords whose meaning would be lost in a description."""

# The grammars of strict mode have no look-around.
_LOOKS_AROUND: Final = ("(?=", "(?!", "(?<=", "(?<!")


class StrictCompiler(NarrowCompiler):
    """Compiles a schema for strict mode.

    Attributes:
        why_not: The reasons why strict mode is impossible; empty if it is possible.
    """

    kept: ClassVar[frozenset[str]] = frozenset(
        (
            "title",
            "pattern",
            "multipleOf",
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "minItems",
            "maxItems",
        )
    )
    formats: ClassVar[Mapping[str, frozenset[str]]] = {
        "string": frozenset(
            ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
        )
    }

    def __init__(self) -> None:
        super().__init__()
        self.why_not: dict[Loss, None] = {}

    def compile(self, schema: dict[str, JSON]) -> SchemaPart:
        """The schema of arguments in strict mode; not usable unless `why_not` is empty."""
        flat = self.flat(schema)
        options = self.options(flat) or []
        objects = [option for option in options if option.kind == "object"]
        if len(objects) == 1:
            part = self.only(flat, TypeOption("object", self.arguments(objects[0].schema)))
        else:
            part = self._wrapped(flat, objects)
        for problem in _beyond_limits(part.schema):
            self.refuse(schema, "", problem)
        return part

    def _wrapped(self, flat: dict[str, JSON], objects: list[TypeOption]) -> SchemaPart:
        # The root must not be `anyOf`, so arguments of several forms become one property.
        if not objects:
            self.refuse(flat, "type", "no object is valid")
            return SchemaPart({})
        part = self.several(flat, objects)
        wrapper = wrapper_for(flat)
        told: dict[str, JSON] = {
            "type": "object",
            "properties": {wrapper: part.schema},
            "required": [wrapper],
            "additionalProperties": False,
        }
        return SchemaPart(told, restore_unwrapped(wrapper, part.restore))

    def refuse(self, schema: dict[str, JSON], keyword: str, why: str) -> None:
        """Record why strict mode is impossible."""
        self.why_not[Loss(pointer_of_schema(schema), keyword, f"{why}: declared without strict mode")] = None

    def left_over(self, schema: dict[str, JSON], keyword: str) -> str:
        """Move a keyword to the description, or give up strict mode if a description cannot replace it."""
        if keyword in _STRUCTURAL:
            self.refuse(schema, keyword, "strict mode does not support this keyword")
            return ""
        return super().left_over(schema, keyword)

    def is_kept(self, keyword: str, value: JSON, kind: str) -> bool:
        """Whether the dialect supports a keyword with this value and for this type."""
        if keyword == "pattern" and isinstance(value, str) and any(sign in value for sign in _LOOKS_AROUND):
            return False
        return super().is_kept(keyword, value, kind) and not is_needless(keyword, value)

    def anything(self, schema: dict[str, JSON]) -> SchemaPart:
        """Refuse: strict mode does not support values of any type."""
        self.refuse(schema, "type", "strict mode does not support values of any type")
        return SchemaPart({})

    def values(self, schema: dict[str, JSON], kind: str, values: list[JSON]) -> SchemaPart:
        """An `enum`."""
        if kind == "null":
            return SchemaPart({"type": "null"})
        if not values or kind not in {"string", "number", "integer", "boolean"}:
            self.refuse(schema, "enum", "strict mode accepts only strings, numbers and booleans here")
        return SchemaPart({"type": kind, "enum": values})

    def properties(self, schema: dict[str, JSON], inner: dict[str, dict[str, JSON]]) -> SchemaPart:
        """A closed object, in which optional properties may be null."""
        self._close(schema, inner)
        wanted = schema.get("required")
        required = wanted if isinstance(wanted, list) else []
        declared: dict[str, JSON] = {}
        restoring: dict[str, Restore] = {}
        left_out = set()
        for name, one in inner.items():
            part = self.part(one)
            # If the tool accepts null, a null of the model could mean either; it is passed on as null.
            if name not in required and _takes_null(part.schema):
                self.lose(one, "required", "null is given if it is omitted, and the tool also accepts null")
            elif name not in required:
                part = self.nullable(part)
                left_out.add(name)
            declared[name] = part.schema
            if part.restore is not restore_as_is:
                restoring[name] = part.restore
        told: dict[str, JSON] = {
            "type": "object",
            "properties": declared,
            "required": list(declared),
            "additionalProperties": False,
        }
        return SchemaPart(told, restore_members(restoring, {}, left_out))

    def _close(self, schema: dict[str, JSON], inner: Mapping[str, object]) -> None:
        keyword = "additionalProperties" if "additionalProperties" in schema else "unevaluatedProperties"
        extra = schema.get(keyword)
        if extra is False:
            return
        if extra is None and inner:
            self.lose(schema, "additionalProperties", "is not set; undeclared properties cannot be given")
        elif extra is None:
            self.refuse(
                schema, "properties", "strict mode does not support objects with arbitrary properties"
            )
        else:
            self.refuse(schema, keyword, "strict mode does not support arbitrary properties")

    def nullable(self, part: SchemaPart) -> SchemaPart:
        """The same, or null."""
        told = dict(part.schema)
        branches, kind, values = told.get("anyOf"), told.get("type"), told.get("enum")
        if isinstance(branches, list):
            told["anyOf"] = [*branches, {"type": "null"}]
        elif isinstance(kind, str):
            told["type"] = [kind, "null"]
            # `enum` excludes a null that it does not list, whatever `type` allows.
            if isinstance(values, list):
                told["enum"] = [*values, None]
        return SchemaPart(told, part.restore)

    def union(self, parts: list[SchemaPart], description: str) -> dict[str, JSON]:
        """An `anyOf`."""
        told: dict[str, JSON] = {"anyOf": [part.schema for part in parts]}
        return {**told, "description": description} if description else told


def _takes_null(schema: dict[str, JSON]) -> bool:
    branches = schema.get("anyOf")
    if isinstance(branches, list):
        return any(isinstance(branch, dict) and _takes_null(branch) for branch in branches)
    kind = schema.get("type")
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def _beyond_limits(schema: dict[str, JSON]) -> Iterator[str]:
    """The limits of strict mode that a compiled schema exceeds."""
    seen = list(_walk(schema, 0))
    names = [name for one, _level in seen for name in _properties(one)]
    enums = [values for one, _level in seen if isinstance(values := one.get("enum"), list)]
    texts = [[value for value in values if isinstance(value, str)] for values in enums]
    counts = {
        f"exceeds {MOST_LEVELS} levels of objects": max(level for _one, level in seen) > MOST_LEVELS,
        f"exceeds {MOST_PROPERTIES:,} properties": len(names) > MOST_PROPERTIES,
        f"exceeds {MOST_VALUES:,} values of `enum`": sum(map(len, enums)) > MOST_VALUES,
        f"exceeds {MOST_CHARACTERS:,} characters in names and values": sum(map(len, names))
        + sum(len(text) for some in texts for text in some)
        > MOST_CHARACTERS,
        f"exceeds {MOST_CHARACTERS_OF_LARGE_ENUM:,} characters in an `enum` of more than {LARGE_ENUM} values": any(
            len(some) > LARGE_ENUM and sum(map(len, some)) > MOST_CHARACTERS_OF_LARGE_ENUM for some in texts
        ),
    }
    return (what for what, is_so in counts.items() if is_so)


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    return schema.get("properties") or {}


def _walk(schema: dict[str, Any], level: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Every compiled subschema, and the number of objects around it including itself."""
    level += "properties" in schema
    yield schema, level
    inner = [*_properties(schema).values(), *schema.get("anyOf", ())]
    for one in [*inner, schema["items"]] if "items" in schema else inner:
        yield from _walk(one, level)
