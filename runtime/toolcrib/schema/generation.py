"""Generate values of schemas. The same seed and key give the same value on every machine.

A value is built top down and validated as a whole. The first attempt uses examples and defaults as written and includes
every optional property. If it is invalid, further attempts ignore examples, choose other branches and omit optional
properties.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON, Schema
from toolcrib.core.pointers import pointer_step
from toolcrib.core.subschemas import SchemaIndex, pattern_validator
from toolcrib.core.text import canonical
from toolcrib.schema.all_of import merge_closely
from toolcrib.schema.keyed_random import KeyedRandom
from toolcrib.schema.scalar_generation import (
    Size,
    UnknownSyntax,
    UnsatisfiableKeyword,
    count_of,
    make_number,
    make_text,
    text_matching,
)
from toolcrib.schema.validation import Validator

__all__ = [
    "Choices",
    "ExamplesPolicy",
    "KeyedRandom",
    "Sampler",
    "arguments_for",
    "generate",
    "overlay",
]

_DEEP: Final = 5
"""Depth of nested references beyond which only required parts are generated."""

_TOO_DEEP: Final = 24
"""Depth of nested references beyond which a schema counts as endless."""

_MOST_FLAT: Final = 64
"""Maximum number of schemas merged at one place."""

_AGAIN: Final = 30
"""Attempts to find an item or key that differs from the others."""

_MOST_ITEMS: Final = 10_000

_IN_PLACE: Final = frozenset(("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "then", "else"))

_SIGNS: Final[Mapping[str, list[str]]] = {
    "object": [
        "properties",
        "required",
        "additionalProperties",
        "patternProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "dependentRequired",
        "dependentSchemas",
    ],
    "array": ["items", "prefixItems", "contains", "minItems", "maxItems", "uniqueItems"],
    "string": ["pattern", "format", "minLength", "maxLength"],
    "number": ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"],
}
"""Type -> keywords that imply it if `type` is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """How an attempt decides what the schema leaves open.

    Attributes:
        size: How much is generated.
        examples: Whether `examples` and `default` are used.
        free: Whether optional parts and types are drawn at random; otherwise all parts and the first type are used.
        odd: Whether values need not look natural: any type if none is stated, and strings of a few letters.
    """

    size: Size
    examples: bool
    free: bool
    odd: bool


class Sampler:
    """One attempt. `depth` counts the references on the path to a place."""

    def __init__(self, index: SchemaIndex, choices: Choices) -> None:
        self._index = index
        self._choices = choices

    def grow(
        self, schema: JSON, draw: KeyedRandom, pointer: str = "", depth: int = 0, name: str = ""
    ) -> JSON:
        """Generate a value for a schema.

        Raises:
            UnsatisfiableKeyword: This attempt failed; contains the place and the reason.
        """
        try:
            flat, depth = self._flat(schema, draw, depth)
            given = self._given(flat, draw)
            return given[0] if given else self._typed(flat, draw, pointer, depth, name)
        except UnsatisfiableKeyword as error:
            error.pointer = error.pointer or pointer
            raise

    def _flat(self, schema: JSON, draw: KeyedRandom, depth: int) -> tuple[dict[str, JSON], int]:
        """The schema merged with all subschemas that apply to the same value."""
        whole: JSON = {}
        queue: list[tuple[JSON, KeyedRandom]] = [(schema, draw)]
        folded = 0
        while queue:
            part, place = queue.pop(0)
            folded += 1
            if isinstance(part, dict):
                if "$ref" in part or "$dynamicRef" in part:
                    depth += 1
                # In front of the queue: nested parts are merged before later siblings, in document order.
                queue[:0] = self._parts(part, place, depth)
                part = {key: value for key, value in part.items() if key not in _IN_PLACE}
            if depth > _TOO_DEEP or folded > _MOST_FLAT:
                raise UnsatisfiableKeyword("$ref", "the schema refers to itself endlessly")
            whole = merge_closely(whole, part)
        if not isinstance(whole, dict):
            raise UnsatisfiableKeyword("false", "the schema `false` accepts nothing")
        return whole, depth

    def _parts(
        self, schema: dict[str, JSON], draw: KeyedRandom, depth: int
    ) -> list[tuple[JSON, KeyedRandom]]:
        parts: list[tuple[JSON, KeyedRandom]] = []
        for keyword in ("$ref", "$dynamicRef"):
            reference = schema.get(keyword)
            if isinstance(reference, str):
                parts.append((self._target(keyword, reference), draw.at(keyword)))
        every = schema.get("allOf")
        if isinstance(every, list):
            parts += [(part, draw.at("allOf", index)) for index, part in enumerate(every)]
        for keyword in ("anyOf", "oneOf"):
            branches = schema.get(keyword)
            if isinstance(branches, list) and branches:
                place = draw.at(keyword)
                parts.append((self._branch(branches, place, depth), place.at("branch")))
        if "if" in schema:
            parts += self._conditional(schema, draw.at("if"))
        return parts

    def _target(self, keyword: str, reference: str) -> JSON:
        site = self._index.resolve(reference, self._index.root.base)
        if site is None:
            raise UnsatisfiableKeyword(keyword, f"unresolved reference `{reference}`")
        return site.schema

    def _branch(self, branches: Sequence[JSON], draw: KeyedRandom, depth: int) -> JSON:
        if depth < _DEEP:
            return draw.choice(branches)
        # A branch without references ends the recursion.
        ends = [branch for branch in branches if '"$ref"' not in canonical(branch)]
        return draw.choice(ends or branches)

    def _conditional(self, schema: dict[str, JSON], draw: KeyedRandom) -> list[tuple[JSON, KeyedRandom]]:
        if not self._choices.free or draw.integer(0, 1):
            return [(schema["if"], draw), (schema.get("then", True), draw.at("then"))]
        return [(schema.get("else", True), draw.at("else"))]

    def _given(self, schema: dict[str, JSON], draw: KeyedRandom) -> list[JSON]:
        """The value that the schema states (`const`, `enum`, examples), as a list of at most one."""
        if "const" in schema:
            return [schema["const"]]
        options = schema.get("enum")
        if isinstance(options, list) and options:
            preferred = schema.get("default")
            # A default outside of `enum` would only cost an attempt.
            usual = self._choices.examples and "default" in schema and preferred in options
            return [preferred if usual else draw.at("enum").choice(options)]
        if not self._choices.examples:
            return []
        examples = schema.get("examples")
        if isinstance(examples, list) and examples:
            return [draw.at("examples").choice(examples)]
        return [schema[key] for key in ("example", "default") if key in schema][:1]

    def _typed(self, schema: dict[str, JSON], draw: KeyedRandom, pointer: str, depth: int, name: str) -> JSON:
        kind = self._kind(schema, draw)
        if kind == "object":
            return self._object(schema, draw, pointer, depth)
        if kind == "array":
            return self._array(schema, draw, pointer, depth)
        if kind in {"integer", "number"}:
            return make_number(schema, draw, self._choices.size, whole=kind == "integer")
        if kind == "boolean":
            return bool(draw.integer(0, 1))
        if kind == "null":
            return None
        return make_text(schema, draw, "odd" if self._choices.odd else self._choices.size, name)

    def _kind(self, schema: dict[str, JSON], draw: KeyedRandom) -> str:
        named = schema.get("type")
        kinds = [named] if isinstance(named, str) else named
        if not isinstance(kinds, list):
            if self._choices.odd:
                return draw.at("type").choice(["null", "boolean", *_SIGNS])
            return next((kind for kind, signs in _SIGNS.items() if schema.keys() & signs), "string")
        if not kinds:
            raise UnsatisfiableKeyword("type", "no type is allowed by all parts of the schema")
        if self._choices.free:
            return str(draw.at("type").choice(kinds))
        # `null` is the least useful choice of a nullable type.
        return str(next((kind for kind in kinds if kind != "null"), "null"))

    def _array(self, schema: dict[str, JSON], draw: KeyedRandom, pointer: str, depth: int) -> list[JSON]:
        first, rest = _items_of(schema)
        least, most = count_of(schema, "minItems") or 0, count_of(schema, "maxItems")
        wanted = self._wanted_contained(schema)
        least = max(least, wanted)
        if rest is False:
            most = len(first) if most is None else min(most, len(first))
        if least > (_MOST_ITEMS if most is None else most):
            raise UnsatisfiableKeyword("minItems", f"{least} items cannot be generated")
        length = self._length(
            draw.at("length"), max(least, len(first)) if depth < _DEEP else least, least, most, depth
        )
        items: list[JSON] = []
        for index in range(length):
            inner = first[index] if index < len(first) else rest
            if index < wanted:
                inner = merge_closely(inner, schema["contains"])
            try:
                taken = items if schema.get("uniqueItems") is True else []
                items.append(self._different(taken, inner, draw.at(index), f"{pointer}/{index}", depth))
            except UnsatisfiableKeyword:
                # An optional item that cannot be generated ends the list.
                if index < least:
                    raise
                break
        return items

    def _wanted_contained(self, schema: dict[str, JSON]) -> int:
        if "contains" not in schema:
            return 0
        least = count_of(schema, "minContains")
        return 1 if least is None else least

    def _length(self, draw: KeyedRandom, usual: int, least: int, most: int | None, depth: int) -> int:
        size = self._choices.size
        if size == "minimal" or depth >= _DEEP:
            wanted = least
        elif size == "maximal":
            wanted = usual + 4
        else:
            wanted = draw.integer(max(usual, 1), max(usual, 1) + 2)
        wanted = max(wanted, least)
        return wanted if most is None else min(wanted, most)

    def _different(
        self, taken: list[JSON], schema: JSON, draw: KeyedRandom, pointer: str, depth: int
    ) -> JSON:
        """A value that differs from those taken."""
        known = {canonical(value) for value in taken}
        for number in range(_AGAIN):
            value = self.grow(schema, draw.at("again", number) if number else draw, pointer, depth)
            if canonical(value) not in known:
                return value
        reason = f"no item was found that differs from the other {len(taken)}"
        raise UnsatisfiableKeyword("uniqueItems", reason, pointer)

    def _object(
        self, schema: dict[str, JSON], draw: KeyedRandom, pointer: str, depth: int
    ) -> dict[str, JSON]:
        schema = self._with_dependents(schema, draw)
        properties = schema.get("properties")
        known: dict[str, JSON] = properties if isinstance(properties, dict) else {}
        required = _texts(schema.get("required"))
        value: dict[str, JSON] = {}
        for name in [*known, *(name for name in required if name not in known)]:
            if name not in required and not self._gives(name, draw, depth):
                continue
            inner = known[name] if name in known else self._further(schema, name)
            place = f"{pointer}/{pointer_step(name)}"
            try:
                value[name] = self.grow(inner, draw.at(name), place, depth, name)
            except UnsatisfiableKeyword:
                if name in required:
                    raise
        self._add_further(value, schema, draw.at("", "further"), pointer, depth)
        # Dropped from the end, so that adding a property to the schema keeps the earlier ones.
        most = count_of(schema, "maxProperties")
        optional = [name for name in value if name not in required]
        for name in optional[::-1][: 0 if most is None else max(0, len(value) - most)]:
            del value[name]
        return value

    def _gives(self, name: str, draw: KeyedRandom, depth: int) -> bool:
        """Whether an optional property is generated."""
        if self._choices.size == "minimal" or depth >= _DEEP:
            return False
        return not self._choices.free or bool(draw.at(name, "given").integer(0, 1))

    def _with_dependents(self, schema: dict[str, JSON], draw: KeyedRandom) -> dict[str, JSON]:
        """The schema merged with the dependents of the properties that will be generated."""
        for keyword in ("dependentSchemas", "dependentRequired", "dependencies"):
            table = schema.get(keyword)
            for name, wanted in (table if isinstance(table, dict) else {}).items():
                properties = schema.get("properties")
                optional = (
                    isinstance(properties, dict) and name in properties and self._choices.size != "minimal"
                )
                if name in _texts(schema.get("required")) or (optional and not self._choices.free):
                    needed: JSON = {"required": wanted} if isinstance(wanted, list) else wanted
                    folded, _ = self._flat({"allOf": [schema, needed]}, draw.at(keyword, name), 0)
                    schema = folded
        return schema

    def _further(self, schema: dict[str, JSON], name: str) -> JSON:
        """The schema of a property that `properties` does not name."""
        table = schema.get("patternProperties")
        patterned = table if isinstance(table, dict) else {}
        found = [inner for pattern, inner in patterned.items() if pattern_validator(pattern).is_valid(name)]
        if not found:
            return schema.get("additionalProperties", True)
        return {"allOf": found}

    def _add_further(
        self, value: dict[str, JSON], schema: dict[str, JSON], draw: KeyedRandom, pointer: str, depth: int
    ) -> None:
        """Add properties without fixed names: as many as required, and a few if the object is a map."""
        least, most = count_of(schema, "minProperties") or 0, count_of(schema, "maxProperties")
        is_table = not schema.get("properties") and (
            "patternProperties" in schema or isinstance(schema.get("additionalProperties"), dict)
        )
        wanted = self._length(draw, 1, least, most, depth) if is_table else least
        number = 0
        while len(value) < wanted and number < _AGAIN + wanted:
            place = draw.at(number)
            number += 1
            try:
                name = self._key(schema, place.at("key"))
                if name not in value:
                    value[name] = self.grow(self._further(schema, name), place, f"{pointer}/{name}", depth)
            except UnsatisfiableKeyword:
                if number >= _AGAIN and len(value) < least:
                    raise

    def _key(self, schema: dict[str, JSON], draw: KeyedRandom) -> str:
        table = schema.get("patternProperties")
        if isinstance(table, dict) and table:
            try:
                return text_matching(draw.choice(sorted(table)), draw)
            except UnknownSyntax as error:
                raise UnsatisfiableKeyword("patternProperties", str(error)) from None
        names = merge_closely({"type": "string", "maxLength": 24}, schema.get("propertyNames", True))
        key = self.grow(names, draw)
        return key.replace(" ", "_") if isinstance(key, str) and "propertyNames" not in schema else str(key)


def _items_of(schema: dict[str, JSON]) -> tuple[list[JSON], JSON]:
    """The schemas of the first items and that of the rest; before 2020-12, `items` may be a list."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    first = schema.get("prefixItems")
    return (first if isinstance(first, list) else []), items


def _texts(value: JSON) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


ExamplesPolicy: TypeAlias = Literal["prefer", "ignore"]

_TRIES: Final = 50
_FREE: Final = 2
_ODD: Final = 40
"""The attempts from which `Choices.free` and `Choices.odd` apply."""

_COMPILED: Final = 256
"""Number of compiled schemas that are cached."""


def generate(schema: Schema, draw: KeyedRandom, *, examples: ExamplesPolicy = "prefer") -> JSON:
    """Generate a valid value; the same for the same schema and draw.

    Args:
        schema: A schema that passed `check_schema`.
        draw: Source of randomness. Each property and item has a place of its own, so adding a property to the schema
            does not change the others.
        examples: Whether valid `examples` and `default` of the schema are used.

    Raises:
        ExpressionError: `can_not_generate`: no valid value was found; the message names the place and the keyword.
        DocumentError: The schema cannot be compiled.
    """
    # The cached generator returns parts of its schema (examples, defaults), which callers must not be able to
    # change.
    return copy.deepcopy(_generator(json.dumps(schema)).make(draw, "usual", examples))


def arguments_for(schema: Schema, draw: KeyedRandom, count: int) -> list[JSON]:
    """Generate up to `count` different valid values: the usual, the minimal and the maximal one, then random ones.

    Returns:
        Fewer than `count` if the schema does not have as many.

    Raises:
        ExpressionError: As `generate`, if not even one was found.
        DocumentError: The schema cannot be compiled.
    """
    generator = _generator(json.dumps(schema))
    made: dict[str, JSON] = {}
    refusal: ExpressionError | None = None
    plans: list[tuple[Size, ExamplesPolicy]] = [
        ("usual", "prefer"),
        ("minimal", "ignore"),
        ("maximal", "ignore"),
    ]
    for number in range(len(plans) + 4 * count):
        size, examples = plans[number] if number < len(plans) else ("usual", "ignore")
        if len(made) == count:
            break
        try:
            value = generator.make(
                draw.at("variant", number), size, examples, first=0 if number < len(plans) else _FREE
            )
        except ExpressionError as error:
            refusal = refusal or error
        else:
            made.setdefault(canonical(value), value)
    if refusal is not None and not made:
        raise refusal
    return copy.deepcopy(list(made.values()))


# Keyed by JSON text, because schemas are dicts and not hashable.
@lru_cache(maxsize=_COMPILED)
def _generator(schema: str) -> _Generator:
    return _Generator(json.loads(schema))


class _Generator:
    """Generates and validates the values of one schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._validator = Validator(schema)

    def make(self, draw: KeyedRandom, size: Size, examples: ExamplesPolicy, first: int = 0) -> JSON:
        """The first valid value; later attempts use more randomness."""
        failure: UnsatisfiableKeyword | None = None
        for number in range(first, _TRIES):
            choices = Choices(
                size=size,
                examples=examples == "prefer" and number == 0,
                free=number >= _FREE,
                odd=number >= _ODD,
            )
            place = draw if number == 0 else draw.at("try", number)
            try:
                value = Sampler(self._validator.index, choices).grow(self._schema, place)
            except UnsatisfiableKeyword as error:
                failure = failure or error
                continue
            if self._validator.is_valid(value):
                return value
            # The first failure is reported: it belongs to the most natural attempt.
            if failure is None:
                fault = self._validator.faults(value, most=1)[0]
                failure = UnsatisfiableKeyword(
                    fault.keyword, f"expected {fault.expected}, generated {fault.got}", fault.pointer
                )
        raise _refusal(failure)


def _refusal(failure: UnsatisfiableKeyword | None) -> ExpressionError:
    keyword, reason, pointer = (failure.keyword, failure.reason, failure.pointer) if failure else ("", "", "")
    return ExpressionError(
        f"cannot generate a value for the schema because of `{keyword}` at `{pointer or '/'}`: {reason}",
        code="can_not_generate",
        hint="add valid `examples` to the schema, or write the value yourself",
        pointer=pointer,
    )


def overlay(value: JSON, patch: JSON) -> JSON:
    """Merge a patch into a value: objects key by key, anything else is replaced.

    Neither argument is modified; the result may share parts of both.
    """
    if not isinstance(value, dict) or not isinstance(patch, dict):
        return patch
    laid = dict(value)
    for key, item in patch.items():
        laid[key] = overlay(value[key], item) if key in value else item
    return laid
