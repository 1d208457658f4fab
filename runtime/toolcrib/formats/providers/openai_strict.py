"""Schemas in OpenAI's strict mode, where the model can't give anything else.

"Structured outputs", supported schemas: every object is closed and all its properties are required, so an optional
one may be null instead, which stands for not being given; the root is an object and no `anyOf`; there are no
`allOf`, `oneOf`, `not`, `if`, `dependentRequired`, `dependentSchemas`, `patternProperties`, lists of `prefixItems`,
and no value of any type; at most 10 levels of objects, 5,000 properties, 1,000 values of `enum` (15,000 characters
in one of more than 250), and 120,000 characters in names and values.

A tool that can't be declared so is declared without strict mode, and the losses say why. What only bounds values
(`minLength`, `uniqueItems` ...) or is for readers (`default`, `examples`) is told in descriptions, and costs no tool
its strict mode. An object that lists properties and says nothing of others is closed.
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
"""Keywords that a description can't stand for."""

_LOOKS_AROUND: Final = ("(?=", "(?!", "(?<=", "(?<!")


class StrictCompiler(NarrowCompiler):
    """Compiles a schema for strict mode.

    Attributes:
        why_not: Why the schema has no form in strict mode; empty where it has.
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
        """The schema of arguments in strict mode; useless where `why_not` is not empty."""
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
        """Arguments of several forms as one property, since the root can't have several."""
        if not objects:
            self.refuse(flat, "type", "no object fits")
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
        """Record why the schema has no form in strict mode."""
        self.why_not[Loss(pointer_of_schema(schema), keyword, f"{why}: declared without strict mode")] = None

    def left_over(self, schema: dict[str, JSON], keyword: str) -> str:
        """As for every dialect; a keyword that a description can't replace costs the tool its strict mode."""
        if keyword in _STRUCTURAL:
            self.refuse(schema, keyword, "strict mode has no such keyword")
            return ""
        return super().left_over(schema, keyword)

    def is_kept(self, keyword: str, value: JSON, kind: str) -> bool:
        """Whether the dialect has a keyword, with this value and at this type."""
        if keyword == "pattern" and isinstance(value, str) and any(sign in value for sign in _LOOKS_AROUND):
            return False
        return super().is_kept(keyword, value, kind) and not is_needless(keyword, value)

    def anything(self, schema: dict[str, JSON]) -> SchemaPart:
        """Nothing that strict mode has."""
        self.refuse(schema, "type", "strict mode has no value of any type")
        return SchemaPart({})

    def values(self, schema: dict[str, JSON], kind: str, values: list[JSON]) -> SchemaPart:
        """One of some values."""
        if kind == "null":
            return SchemaPart({"type": "null"})
        if not values or kind not in {"string", "number", "integer", "boolean"}:
            self.refuse(schema, "enum", "strict mode takes only texts, numbers and booleans here")
        return SchemaPart({"type": kind, "enum": values})

    def properties(self, schema: dict[str, JSON], inner: dict[str, dict[str, JSON]]) -> SchemaPart:
        """A closed object, whose optional properties may be null instead."""
        self._close(schema, inner)
        wanted = schema.get("required")
        required = wanted if isinstance(wanted, list) else []
        declared: dict[str, JSON] = {}
        restoring: dict[str, Restore] = {}
        left_out = set()
        for name, one in inner.items():
            part = self.part(one)
            if name not in required and _takes_null(part.schema):
                self.lose(
                    one, "required", "null is given where it is left out, which the tool can tell apart"
                )
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
            self.lose(
                schema, "additionalProperties", "is not said: properties beyond those named can't be given"
            )
        elif extra is None:
            self.refuse(schema, "properties", "strict mode has no objects with properties of any name")
        else:
            self.refuse(schema, keyword, "strict mode has no properties of any name")

    def nullable(self, part: SchemaPart) -> SchemaPart:
        """What takes null too."""
        told = dict(part.schema)
        branches, kind, values = told.get("anyOf"), told.get("type"), told.get("enum")
        if isinstance(branches, list):
            told["anyOf"] = [*branches, {"type": "null"}]
        elif isinstance(kind, str):
            told["type"] = [kind, "null"]
            if isinstance(values, list):
                told["enum"] = [*values, None]
        return SchemaPart(told, part.restore)

    def union(self, parts: list[SchemaPart], description: str) -> dict[str, JSON]:
        """One of several."""
        told: dict[str, JSON] = {"anyOf": [part.schema for part in parts]}
        return {**told, "description": description} if description else told


def _takes_null(schema: dict[str, JSON]) -> bool:
    branches = schema.get("anyOf")
    if isinstance(branches, list):
        return any(isinstance(branch, dict) and _takes_null(branch) for branch in branches)
    kind = schema.get("type")
    return kind == "null" or (isinstance(kind, list) and "null" in kind)


def _beyond_limits(schema: dict[str, JSON]) -> Iterator[str]:
    """What of a compiled schema is more than strict mode takes."""
    seen = list(_walk(schema, 0))
    names = [name for one, _level in seen for name in _properties(one)]
    enums = [values for one, _level in seen if isinstance(values := one.get("enum"), list)]
    texts = [[value for value in values if isinstance(value, str)] for values in enums]
    counts = {
        f"more than {MOST_LEVELS} levels of objects": max(level for _one, level in seen) > MOST_LEVELS,
        f"more than {MOST_PROPERTIES:,} properties": len(names) > MOST_PROPERTIES,
        f"more than {MOST_VALUES:,} values of `enum`": sum(map(len, enums)) > MOST_VALUES,
        f"more than {MOST_CHARACTERS:,} characters in names and values": sum(map(len, names))
        + sum(len(text) for some in texts for text in some)
        > MOST_CHARACTERS,
        f"more than {MOST_CHARACTERS_OF_LARGE_ENUM:,} characters in an `enum` of more than {LARGE_ENUM} values": any(
            len(some) > LARGE_ENUM and sum(map(len, some)) > MOST_CHARACTERS_OF_LARGE_ENUM for some in texts
        ),
    }
    return (what for what, is_so in counts.items() if is_so)


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    return schema.get("properties") or {}


def _walk(schema: dict[str, Any], level: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Every compiled subschema and how many objects enclose it, itself included."""
    level += "properties" in schema
    yield schema, level
    inner = [*_properties(schema).values(), *schema.get("anyOf", ())]
    for one in [*inner, schema["items"]] if "items" in schema else inner:
        yield from _walk(one, level)
