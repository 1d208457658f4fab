"""Schemas for providers that accept nearly all of JSON Schema, and do not enforce it.

Two of them refuse the whole request, with all of its tools, for some schemas:

- OpenAI requires `type: object` and `properties` at the root, without `allOf`, `anyOf`, `oneOf`, `enum` or `not`, and
  `items` in every array.
- Anthropic requires `type: object` at the root, without `allOf`, `anyOf` or `oneOf`, and names of properties there that
  match `^[a-zA-Z0-9_.-]{1,64}$`.

`allOf` is merged into the root. Branches that only refine the properties next to them are moved to the
description of the tool, which is a loss. Arguments of several forms are declared as one property `arguments`.
That is not a loss, because its value becomes the arguments.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from toolcrib.core.model import JSON, Schema
from toolcrib.formats.providers.argument_schema import (
    PLACE,
    Loss,
    argument_schema,
    declared_types,
    is_refinement,
    merge_all_of,
    pointer_of_schema,
    with_subschemas,
    without_keywords,
    without_places,
)
from toolcrib.formats.providers.compiler import (
    DialectSchema,
    Restore,
    aliases_for,
    restore_as_is,
    restore_members,
    restore_unwrapped,
    sentence_for,
    with_sentences,
    wrapper_for,
)


class RootRules(NamedTuple):
    """Keywords that a provider refuses at the root.

    Attributes:
        refused: Forbidden keywords.
        names: Pattern of valid property names; None for any name.
        explicit: Whether `properties` is required at the root, and `items` in arrays.
    """

    refused: frozenset[str] = frozenset()
    names: re.Pattern[str] | None = None
    explicit: bool = False


PLAIN: Final = RootRules()
OPENAI: Final = RootRules(frozenset(("allOf", "anyOf", "oneOf", "enum", "not")), explicit=True)
ANTHROPIC: Final = RootRules(frozenset(("allOf", "anyOf", "oneOf")), re.compile("[a-zA-Z0-9_.-]{1,64}"))

_NAMING: Final = frozenset(
    ("dependentSchemas", "if", "then", "else", "not", "patternProperties", "propertyNames")
)
"""Keywords that refer to properties by name, in ways that renaming cannot follow."""


def compile_open(schema: Schema, rules: RootRules) -> DialectSchema:
    """A schema of arguments for a provider that accepts nearly all of JSON Schema."""
    read = argument_schema(schema, references=True)
    opener = _Opener(rules)
    # Arguments are always objects, so the type changes nothing, and both providers insist on it.
    root, restore = opener.root({**read.schema, "type": "object"})
    if rules.explicit:
        root = _explicit({"properties": {}, **root})
    told: dict[str, JSON] = {"type": "object", **without_places(root)}
    note = with_sentences("", opener.notes)
    return DialectSchema(told, note, losses=(*read.losses, *opener.losses), restore=restore)


class _Opener:
    """Adapts the root of one schema to a provider.

    Attributes:
        losses: Constraints that the provider cannot express.
        notes: Constraints moved to the description.
    """

    def __init__(self, rules: RootRules) -> None:
        self._rules = rules
        self.losses: dict[Loss, None] = {}
        self.notes: list[str] = []

    def root(self, schema: dict[str, JSON]) -> tuple[dict[str, JSON], Restore]:
        told, apart = merge_all_of(schema) if "allOf" in self._rules.refused else (schema, [])
        refining = [
            keyword
            for keyword in ("anyOf", "oneOf")
            if isinstance(branches := told.get(keyword), list)
            and all(is_refinement(branch, told) for branch in branches)
        ]
        forms = {"anyOf", "oneOf"} & told.keys() & self._rules.refused - set(refining)
        # A union at the root can be neither merged nor described in words.
        if forms or apart:
            return self._wrapped(schema)
        for keyword in (*refining, "enum", "const", "not"):
            if keyword in told and keyword in self._rules.refused:
                told = self._told_in_words(told, keyword)
        return self._renamed(told)

    def _wrapped(self, schema: dict[str, JSON]) -> tuple[dict[str, JSON], Restore]:
        wrapper = wrapper_for(schema)
        told: dict[str, JSON] = {
            "type": "object",
            "properties": {wrapper: schema},
            "required": [wrapper],
            "additionalProperties": False,
        }
        return told, restore_unwrapped(wrapper, restore_as_is)

    def _renamed(self, schema: dict[str, JSON]) -> tuple[dict[str, JSON], Restore]:
        """The root with valid property names."""
        inner = schema.get("properties")
        names = aliases_for(inner, self._rules.names) if self._rules.names and isinstance(inner, dict) else {}
        if not names or not isinstance(inner, dict):
            return schema, restore_as_is
        # These keywords could contradict the new names, so they become text before the properties are
        # renamed.
        for keyword in sorted(_NAMING & schema.keys()):
            schema = self._told_in_words(schema, keyword)
        told = {**schema, "properties": {names.get(name, name): one for name, one in inner.items()}}
        if isinstance(wanted := schema.get("required"), list):
            told["required"] = [names.get(str(name), name) for name in wanted]
        if isinstance(needs := schema.get("dependentRequired"), dict):
            told["dependentRequired"] = {
                names.get(name, name): [names.get(str(one), one) for one in some]
                for name, some in needs.items()
                if isinstance(some, list)
            }
        return told, restore_members({}, {alias: name for name, alias in names.items()}, ())

    def _told_in_words(self, schema: dict[str, JSON], keyword: str) -> dict[str, JSON]:
        said = sentence_for(keyword, schema[keyword])
        message = "moved to the description" if said else "dropped"
        self.losses[Loss(pointer_of_schema(schema), keyword, message)] = None
        self.notes.append(said)
        return without_keywords(schema, keyword)


def _explicit(schema: dict[str, JSON]) -> dict[str, JSON]:
    """The schema with `items` in every array."""
    told = with_subschemas(schema, _explicit)
    return (
        # `items: {}` accepts everything, as a missing `items` does.
        {**told, "items": {PLACE: pointer_of_schema(schema)}}
        if "array" in declared_types(told) and "items" not in told
        else told
    )
