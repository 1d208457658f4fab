"""What the compilers of narrow dialects have in common: dialects in which a schema is of one type, or one of several.

A compiler goes through a schema once. Each subschema is taken apart into **options** of one type each: `allOf` is
merged, `anyOf` and `oneOf` are multiplied out with what stands beside them, several types become several options.
Then each option is written as the dialect has it. A keyword that the dialect lacks is told in the description, and
is a loss; so is whatever else can't be said. Unless a loss says otherwise, every value that the tool takes can be
given: what is declared takes more than the tool does, not less.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from typing import ClassVar, Final, NamedTuple

from toolcrib.core.model import JSON
from toolcrib.formats.providers.argument_restorers import Restore, each, keep, one_of
from toolcrib.formats.providers.declarations import Loss
from toolcrib.formats.providers.descriptions import extended, phrase, says_nothing
from toolcrib.formats.providers.normalized_schema import PLACE, place_of, unmarked
from toolcrib.formats.providers.schema_merge import (
    ANNOTATIONS,
    are_disjoint,
    are_of_other_types,
    is_refinement,
    merged,
    without,
)
from toolcrib.formats.providers.value_types import (
    KEYWORDS_OF,
    declared,
    fits,
    guessed,
    kind_of,
    narrowed,
    values_of,
)

MOST_OPTIONS: Final = 32
"""Options of one subschema; one with more is not taken apart."""

_ALTERNATIVES: Final = ("anyOf", "oneOf")
_NOTED: Final = ("default", "examples", "deprecated")
"""Annotations that no narrow dialect has a place for."""


_OF_OTHERS: Final = frozenset(
    ("additionalProperties", "patternProperties", "propertyNames", "minProperties", "unevaluatedProperties")
)
"""Keywords of an object that has properties which it does not name."""


class Part(NamedTuple):
    """A compiled subschema.

    Attributes:
        schema: As the dialect has it.
        restore: A value of it -> the same in the tool's own form.
    """

    schema: dict[str, JSON]
    restore: Restore = keep


class Option(NamedTuple):
    """What a value may be.

    Attributes:
        kind: Its type; empty for any.
        schema: What is said of it, in the tool's own form.
    """

    kind: str
    schema: dict[str, JSON]


class TooManyOptionsError(Exception):
    """A subschema has too many options to be taken apart."""


class Compiler(ABC):
    """Compiles one schema.

    Attributes:
        losses: What the dialect can't say, as far as was compiled.
        kept: The keywords that the dialect has, beside those that the compiler writes itself.
        formats: Type -> the formats that the dialect has.
        object_keywords: The keywords that `properties` takes care of.
    """

    kept: ClassVar[frozenset[str]]
    formats: ClassVar[Mapping[str, frozenset[str]]]
    object_keywords: ClassVar = ("properties", "required", "additionalProperties", "unevaluatedProperties")

    def __init__(self) -> None:
        self.losses: dict[Loss, None] = {}

    @abstractmethod
    def anything(self, schema: dict[str, JSON]) -> Part:
        """What takes values of all types."""

    @abstractmethod
    def values(self, schema: dict[str, JSON], kind: str, values: list[JSON]) -> Part:
        """What takes the values that a schema names; all are of one type."""

    @abstractmethod
    def properties(self, schema: dict[str, JSON], inner: dict[str, dict[str, JSON]]) -> Part:
        """An object, of all the properties that the schema names."""

    @abstractmethod
    def nullable(self, part: Part) -> Part:
        """What takes null too."""

    @abstractmethod
    def union(self, parts: list[Part], description: str) -> dict[str, JSON]:
        """One of several."""

    def lose(self, schema: dict[str, JSON], keyword: str, message: str) -> None:
        """Say what the dialect can't say."""
        self.losses[Loss(place_of(schema), keyword, message)] = None

    def left_over(self, schema: dict[str, JSON], keyword: str) -> str:
        """A sentence for the description that says what a keyword says which the dialect lacks."""
        return self.in_words(schema, keyword)

    def in_words(self, schema: dict[str, JSON], keyword: str) -> str:
        """A sentence that says what a keyword says; empty where it says nothing, or too much."""
        if says_nothing(keyword, schema[keyword]):
            return ""
        said = phrase(keyword, schema[keyword])
        self.lose(schema, keyword, "is told in the description" if said else "is left out")
        return said

    def is_kept(self, keyword: str, value: JSON, kind: str) -> bool:
        """Whether the dialect has a keyword, with this value and at this type."""
        if keyword == "format":
            return value in self.formats.get(kind, ())
        return keyword in self.kept and (keyword == "title" or keyword in KEYWORDS_OF.get(kind, ()))

    # From here on, all dialects do alike.

    def part(self, schema: dict[str, JSON]) -> Part:
        """A subschema, compiled."""
        flat = self.flat(schema)
        options = self.options(flat)
        if options is None:
            return self.described(flat, self.anything(flat), _ALTERNATIVES)
        rest = [option for option in options if option.kind != "null"]
        if not rest:
            return self.described(flat, self.values(flat, "null", [None]), ("enum", "const", *_ALTERNATIVES))
        part = self.only(flat, rest[0]) if len(rest) == 1 else self.several(flat, rest)
        return part if len(rest) == len(options) else self.nullable(part)

    def flat(self, schema: dict[str, JSON]) -> dict[str, JSON]:
        """The schema without `allOf`, and without branches that only say more of what stands beside them."""
        told, apart = merged(schema)
        notes = [self.left_over({PLACE: place_of(schema), "allOf": [one]}, "allOf") for one in apart]
        for keyword in _ALTERNATIVES:
            branches = told.get(keyword)
            if isinstance(branches, list) and all(is_refinement(branch, told) for branch in branches):
                notes.append(self.in_words(told, keyword))
                told = without(told, keyword)
        return {**told, "description": extended(told.get("description"), notes)} if any(notes) else told

    def options(self, flat: dict[str, JSON]) -> list[Option] | None:
        """What a value may be; None where there are too many options."""
        try:
            found = list(self._multiplied(flat, [MOST_OPTIONS]))
        except TooManyOptionsError:
            self.lose(flat, "anyOf", f"has more than {MOST_OPTIONS} options: any value is taken")
            return None
        is_open = any(not option.kind for option in found)
        return [Option("", flat)] if not found or (is_open and len(found) > 1) else found

    def _multiplied(self, flat: dict[str, JSON], left: list[int]) -> Iterator[Option]:
        keyword = next((keyword for keyword in _ALTERNATIVES if isinstance(flat.get(keyword), list)), "")
        branches = flat.get(keyword)
        if not isinstance(branches, list):
            yield from self.by_type(flat)
            return
        if keyword == "oneOf" and not are_disjoint(branches):
            self.lose(
                flat, keyword, "is told as `anyOf`: a value that fits two branches is refused all the same"
            )
        if "unevaluatedProperties" in flat and not are_disjoint(branches):
            self.lose(
                flat, "unevaluatedProperties", "holds for each branch: properties of several can't be given"
            )
        own = without(flat, keyword, *ANNOTATIONS, PLACE)
        for branch in branches:
            left[0] -= 1
            if left[0] < 0:
                raise TooManyOptionsError
            if isinstance(branch, dict) and not are_of_other_types(own, branch):
                both: dict[str, JSON] = {PLACE: place_of(branch), **own, "allOf": [branch]}
                yield from self._multiplied(self.flat(both if own else branch), left)

    def by_type(self, flat: dict[str, JSON]) -> Iterator[Option]:
        """A schema without alternatives, for each type that it takes."""
        kinds = declared(flat)
        values = values_of(flat)
        if values is not None:
            own = [next((kind for kind in kinds if fits(value, kind)), kind_of(value)) for value in values]
            kinds = [kind for kind in dict.fromkeys(own) if not kinds or kind in kinds]
        elif not kinds:
            kinds = guessed(flat)
            if kinds:
                told = " or ".join(f"`{kind}`" for kind in kinds)
                self.lose(flat, "type", f"is not said: taken for {told}, which the other keywords are about")
        yield from (Option(kind, narrowed(flat, kind)) for kind in kinds)
        if not kinds:
            yield Option("", flat)

    def several(self, flat: dict[str, JSON], options: list[Option]) -> Part:
        """What takes what one of several takes."""
        parts = [self.only(option.schema, option) for option in options]
        notes = [self.left_over(flat, keyword) for keyword in _NOTED if keyword in flat]
        judged = [
            (part.restore, unmarked(option.schema)) for part, option in zip(parts, options, strict=True)
        ]
        return Part(
            self.union(parts, extended(flat.get("description", flat.get("title")), notes)), one_of(judged)
        )

    def only(self, flat: dict[str, JSON], option: Option) -> Part:
        """The only option of a schema, whose annotations count before those of the option."""
        nearer: dict[str, JSON] = {key: flat[key] for key in ANNOTATIONS if key in flat}
        told = {**option.schema, **nearer}
        values = values_of(told)
        if values is not None:
            return self.described(told, self.values(told, option.kind, values), ("enum", "const"))
        if option.kind == "object":
            return self.object(told)
        if option.kind == "array":
            return self.described(told, self.items(told), ("items",))
        return self.described(told, Part({"type": option.kind}) if option.kind else self.anything(told), ())

    def arguments(self, schema: dict[str, JSON]) -> dict[str, JSON]:
        """The object at the root; one that says nothing of properties is that of a tool without arguments."""
        if named(schema) or _OF_OTHERS & schema.keys():
            return schema
        self.lose(schema, "additionalProperties", "is not said: no arguments can be given")
        return {**schema, "additionalProperties": False}

    def object(self, schema: dict[str, JSON]) -> Part:
        """An object."""
        return self.described(schema, self.properties(schema, named(schema)), self.object_keywords)

    def items(self, schema: dict[str, JSON]) -> Part:
        """A list, as far as one schema goes that holds for all its items."""
        said, first = schema.get("items"), schema.get("prefixItems")
        rest = [said] if isinstance(said, dict) else []
        branches = [*first, *rest] if isinstance(first, list) else rest
        inner: dict[str, JSON] = {PLACE: place_of(schema)}
        part = self.part({**inner, "anyOf": [*branches]} if branches else inner)
        return Part({"type": "array", "items": part.schema}, each(part.restore))

    def described(self, schema: dict[str, JSON], part: Part, done: Collection[str]) -> Part:
        """What was compiled, with the keywords that the dialect has; the others, but those of `done`, are told."""
        kind = part.schema.get("type")
        kept: dict[str, JSON] = {}
        notes: list[str] = []
        for keyword, value in schema.items():
            if keyword in done or keyword in {PLACE, "type", "description"}:
                continue
            if self.is_kept(keyword, value, kind if isinstance(kind, str) else ""):
                kept[keyword] = value
            else:
                notes.append(self.left_over(schema, keyword))
        own = part.schema.get("description")
        described = extended(schema.get("description"), (own if isinstance(own, str) else "", *notes))
        told = {**part.schema, **kept}
        return Part({**told, "description": described} if described else told, part.restore)


def of_objects(schema: dict[str, JSON]) -> dict[str, JSON]:
    """The schema at the root, where values are always objects."""
    kinds = declared(schema)
    return {**schema, "type": "object"} if not kinds or "object" in kinds else schema


def named(schema: dict[str, JSON]) -> dict[str, dict[str, JSON]]:
    """The properties that an object's schema names, also those that it only requires."""
    said = schema.get("properties")
    inner = (
        {name: one for name, one in said.items() if isinstance(one, dict)} if isinstance(said, dict) else {}
    )
    extra = schema.get("additionalProperties")
    free: dict[str, JSON] = {PLACE: place_of(schema)}
    other = extra if isinstance(extra, dict) else free
    wanted = schema.get("required")
    for name in wanted if isinstance(wanted, list) else ():
        if isinstance(name, str):
            inner.setdefault(name, other)
    return inner
