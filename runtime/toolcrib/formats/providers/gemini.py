"""Schemas for Gemini's function declarations: a subset of OpenAPI 3.0 (`Schema` of the Gemini API).

A schema has one type, or `anyOf` and no other keyword. `nullable` allows null. Values of `enum` are strings.
An object has at least one property, and property names consist of letters, digits and `_` and do not begin
with a digit.

- Values without a fixed form (an object with arbitrary properties, a map, a value of any type) are given as JSON text.
- Values of `enum` that are not strings are declared as their JSON text.
- Undeclared properties can be neither forbidden nor declared.
- Other keywords are moved to the description.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar, Final

from toolcrib.core.model import JSON
from toolcrib.core.text import compact
from toolcrib.formats.providers.argument_schema import ANNOTATIONS, PLACE, declared_types, named_values
from toolcrib.formats.providers.compiler import (
    NarrowCompiler,
    Restore,
    SchemaPart,
    TypeOption,
    aliases_for,
    named_properties,
    restore_as_is,
    restore_json_text,
    restore_members,
    restore_named_values,
    restore_unwrapped,
    sentence_for,
    with_sentences,
    wrapper_for,
)

NAMES: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
"""Pattern of valid property names."""


class GeminiCompiler(NarrowCompiler):
    """Compiles a schema for Gemini."""

    kept: ClassVar[frozenset[str]] = frozenset(
        (
            "title",
            "minLength",
            "maxLength",
            "pattern",
            "minimum",
            "maximum",
            "minItems",
            "maxItems",
            "minProperties",
            "maxProperties",
        )
    )
    formats: ClassVar[Mapping[str, frozenset[str]]] = {
        "string": frozenset(("date-time",)),
        "integer": frozenset(("int32", "int64")),
        "number": frozenset(("float", "double")),
    }

    def compile(self, schema: dict[str, JSON]) -> SchemaPart:
        """The schema of arguments; without properties if the tool has no arguments."""
        flat = self.flat(schema)
        options = [] if named_values(flat) is not None else self.options(flat) or []
        objects = [option for option in options if option.kind == "object"]
        if not objects:
            return self._wrapped(self.described(flat, self.text(flat, "an object"), ()), flat)
        if len(objects) > 1:
            return self._wrapped(self.several(flat, objects), flat)
        whole = self.arguments(objects[0].schema)
        if not named_properties(whole) and is_closed(whole):
            return self.described(
                whole, SchemaPart({"type": "object", "properties": {}}), self.object_keywords
            )
        # Without named properties, Gemini could not express the object, so it is wrapped as JSON text.
        part = self.only(flat, TypeOption("object", whole))
        return part if named_properties(whole) else self._wrapped(part, flat)

    def _wrapped(self, part: SchemaPart, schema: dict[str, JSON]) -> SchemaPart:
        wrapper = wrapper_for(schema)
        told: dict[str, JSON] = {
            "type": "object",
            "properties": {wrapper: part.schema},
            "required": [wrapper],
        }
        return SchemaPart(told, restore_unwrapped(wrapper, part.restore))

    def by_type(self, flat: dict[str, JSON]) -> Iterator[TypeOption]:
        """The options of each type; all named values are declared as strings."""
        values = named_values(flat)
        if values is None:
            yield from super().by_type(flat)
            return
        kinds = declared_types(flat)
        given = [value for value in values if value is not None]
        if given:
            rest: dict[str, JSON] = {key: flat[key] for key in (PLACE, *ANNOTATIONS) if key in flat}
            yield TypeOption("string", {**rest, "enum": [*given]})
        if len(given) < len(values) and (not kinds or "null" in kinds):
            yield TypeOption("null", flat)

    def anything(self, schema: dict[str, JSON]) -> SchemaPart:
        """JSON text."""
        return self.text(schema, "a value of any type")

    def text(self, schema: dict[str, JSON], what: str) -> SchemaPart:
        """A value that is given as JSON text."""
        self.lose(schema, "type", f"{what} is given as JSON text")
        return SchemaPart({"type": "string", "description": f"JSON text of {what}."}, restore_json_text)

    def values(self, schema: dict[str, JSON], kind: str, values: list[JSON]) -> SchemaPart:
        """An `enum` of strings."""
        if kind == "null":
            # `nullable` is how Gemini expresses null.
            return self.nullable(
                SchemaPart({"type": "string", "description": "Always null."}, lambda _value: None)
            )
        texts: dict[str, JSON] = {}
        # Strings first: of `"1"` and `1`, which have the same text, the string keeps it.
        for value in sorted(values, key=lambda value: not isinstance(value, str)):
            text = value if isinstance(value, str) else compact(value)
            if text in texts:
                self.lose(
                    schema,
                    "enum",
                    f"`{text}` stands for the string; another value with the same text cannot be given",
                )
            else:
                texts[text] = value
        restore = restore_named_values(texts)
        # Gemini refuses an empty string in `enum`.
        if "" in texts:
            self.lose(schema, "enum", "contains an empty string; the values are moved to the description")
            return SchemaPart({"type": "string", "description": sentence_for("enum", values)}, restore)
        order = [value if isinstance(value, str) else compact(value) for value in values]
        return SchemaPart({"type": "string", "enum": list(dict.fromkeys(order))}, restore)

    def properties(self, schema: dict[str, JSON], inner: dict[str, dict[str, JSON]]) -> SchemaPart:
        """An object, or JSON text if it has no named property."""
        extra = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
        if not inner:
            note = sentence_for("additionalProperties", extra) if isinstance(extra, dict) else ""
            part = self.text(schema, "an object")
            return SchemaPart(
                {**part.schema, "description": with_sentences("JSON text of an object.", [note])},
                part.restore,
            )
        if extra is not None:
            what = "forbidden" if extra is False else "declared"
            self.lose(schema, "additionalProperties", f"undeclared properties cannot be {what}")
        names = aliases_for(inner, NAMES)
        parts = {names.get(name, name): self.part(one) for name, one in inner.items()}
        wanted = schema.get("required")
        required: list[JSON] = (
            [names.get(name, name) for name in wanted if isinstance(name, str)]
            if isinstance(wanted, list)
            else []
        )
        told: dict[str, JSON] = {
            "type": "object",
            "properties": {name: part.schema for name, part in parts.items()},
        }
        restoring: dict[str, Restore] = {
            name: part.restore for name, part in parts.items() if part.restore is not restore_as_is
        }
        restore = restore_members(restoring, {alias: name for name, alias in names.items()}, ())
        return SchemaPart({**told, "required": required} if required else told, restore)

    def nullable(self, part: SchemaPart) -> SchemaPart:
        """The same, or null. In a union, `nullable` is set on the first branch."""
        branches = part.schema.get("anyOf")
        if isinstance(branches, list) and isinstance(branches[0], dict):
            first: dict[str, JSON] = {**branches[0], "nullable": True}
            return SchemaPart({"anyOf": [first, *branches[1:]]}, part.restore)
        return SchemaPart({**part.schema, "nullable": True}, part.restore)

    def union(self, parts: list[SchemaPart], description: str) -> dict[str, JSON]:
        """An `anyOf`. It must have no siblings, so the description is moved to the first branch."""
        first, *rest = (part.schema for part in parts)
        if description:
            first = {**first, "description": with_sentences(description, [str(first.get("description", ""))])}
        return {"anyOf": [first, *rest]}


def is_closed(schema: dict[str, JSON]) -> bool:
    """Whether an object without named properties accepts none at all."""
    extra = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
    return extra is False and "patternProperties" not in schema
