"""Shared types and functions of the dialect compilers, and the base of the compilers for narrow dialects.

In a narrow dialect, a schema has one type or is a union. A compiler visits a schema once. It splits each
subschema into **options** of one type each: `allOf` is merged, `anyOf` and `oneOf` are combined with the
keywords next to them, and several types become several options. Each option is then written in the dialect. A
keyword that the dialect lacks is moved to the description and recorded as a loss, as is anything else that
cannot be expressed. Unless a loss says otherwise, the declaration accepts every value that the tool accepts,
and possibly more.

Every compiled part restores values: the `restore_...` functions build a `Restore`, which converts an argument
to the tool's own form. A value that does not have the declared form is passed on unchanged, and the tool's
own schema reports the error. Arguments that a model gives in the tool's own form therefore also work.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from typing import ClassVar, Final, NamedTuple, TypeAlias

from toolcrib.core.model import JSON, Schema
from toolcrib.core.subschemas import children
from toolcrib.core.text import compact, decode_json
from toolcrib.formats.providers.argument_schema import (
    ANNOTATIONS,
    KEYWORDS_OF,
    PLACE,
    Loss,
    are_disjoint,
    are_of_other_types,
    declared_types,
    infer_types,
    is_of_type,
    is_refinement,
    merge_all_of,
    named_values,
    narrow_to_type,
    pointer_of_schema,
    type_of,
    without_keywords,
    without_places,
)
from toolcrib.schema.validation import Validator

Restore: TypeAlias = Callable[[JSON], JSON]
"""Converts a value in its declared form to the tool's own form."""


def restore_as_is(value: JSON) -> JSON:
    """Return the value itself."""
    return value


def restore_members(
    inner: Mapping[str, Restore], names: Mapping[str, str], left_out: Collection[str]
) -> Restore:
    """Restore objects.

    Args:
        inner: Declared name -> restores its value; names with unchanged values are omitted.
        names: Declared name -> the tool's own name, if they differ.
        left_out: Declared names whose null means that the property is omitted.
    """
    if not (inner or names or left_out):
        return restore_as_is

    def restore(value: JSON) -> JSON:
        if not isinstance(value, dict):
            return value
        return {
            # A model may have used both names. The tool's own one wins, and its schema reports the other.
            names.get(key, key) if names.get(key, key) not in value else key: inner.get(key, restore_as_is)(
                item
            )
            for key, item in value.items()
            if item is not None or key not in left_out
        }

    return restore


def restore_each(inner: Restore) -> Restore:
    """Restore lists whose items all have one declaration."""
    if inner is restore_as_is:
        return restore_as_is
    return lambda value: [inner(item) for item in value] if isinstance(value, list) else value


def restore_named_values(values: Mapping[str, JSON]) -> Restore:
    """Restore values that are declared as strings."""
    if all(text == value for text, value in values.items()):
        return restore_as_is
    return lambda value: values.get(value, value) if isinstance(value, str) else value


def restore_json_text(value: JSON) -> JSON:
    """Restore a value that is declared as JSON text; a text that is not valid JSON is the value itself."""
    if not isinstance(value, str):
        return value
    try:
        return decode_json(value)
    # Also raised by a text that only looks like JSON, and by one nested too deep.
    except (ValueError, RecursionError):
        return value


def restore_one_of(choices: Sequence[tuple[Restore, Schema]]) -> Restore:
    """Restore values of a union, by the first branch whose result the tool's own schema accepts.

    Args:
        choices: Restores a value, and the tool's own schema for the restored value.
    """
    if all(restore is restore_as_is for restore, _schema in choices):
        return restore_as_is
    return _FirstFit(choices)


class _FirstFit:
    def __init__(self, choices: Sequence[tuple[Restore, Schema]]) -> None:
        self._choices = choices

    # Validators are compiled on the first call: most declarations are never called.
    @cached_property
    def _judges(self) -> list[Validator]:
        return [Validator(schema) for _restore, schema in self._choices]

    def __call__(self, value: JSON) -> JSON:
        candidates = [restore(value) for restore, _schema in self._choices]
        for candidate, judge in zip(candidates, self._judges, strict=True):
            if judge.is_valid(candidate):
                return candidate
        # No branch is valid. The converted value gives the more helpful error.
        return next((candidate for candidate in candidates if candidate != value), value)


def restore_unwrapped(name: str, inner: Restore) -> Restore:
    """Restore arguments that are declared as one property."""

    def restore(value: JSON) -> JSON:
        # Some models ignore the wrapper and give the arguments directly.
        if not isinstance(value, dict) or value.keys() != {name}:
            return value
        whole = inner(value[name])
        return whole if isinstance(whole, dict) else value

    return restore


LONGEST_SENTENCE: Final = 200
"""Maximum length of the JSON in a sentence, in characters."""

_PHRASES: Final[Mapping[str, str]] = {
    "contains": "At least one item matches {}",
    "contentEncoding": "Encoded as {}",
    "contentMediaType": "Media type: {}",
    "const": "Always {}",
    "default": "Default: {}",
    "dependentRequired": "Dependent properties: {}",
    "deprecated": "Deprecated",
    "enum": "One of {}",
    "examples": "Examples: {}",
    "exclusiveMaximum": "Less than {}",
    "exclusiveMinimum": "Greater than {}",
    "format": "Format: {}",
    "maxItems": "Maximum items: {}",
    "maxLength": "Maximum length: {}",
    "maxProperties": "Maximum properties: {}",
    "maximum": "At most {}",
    "minItems": "Minimum items: {}",
    "minLength": "Minimum length: {}",
    "minProperties": "Minimum properties: {}",
    "minimum": "At least {}",
    "multipleOf": "Multiple of {}",
    "not": "Not: {}",
    "pattern": "Pattern: {}",
    "patternProperties": "Properties by pattern: {}",
    "prefixItems": "Items in order: {}",
    "propertyNames": "Property names: {}",
    "uniqueItems": "Items are unique",
}

_PLAIN: Final = frozenset(
    (
        "additionalProperties",
        "allOf",
        "anyOf",
        "contentSchema",
        "dependentSchemas",
        "else",
        "if",
        "maxContains",
        "minContains",
        "oneOf",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    )
)
"""Keywords that are quoted with their JSON. Unknown keywords are dropped, because their meaning is unknown."""

_CHOICES: Final[Mapping[str, str]] = {"anyOf": "Give at least one of", "oneOf": "Give exactly one of"}
_REQUIRING: Final = frozenset(("required", "type", PLACE))

_NEEDLESS: Final[Mapping[str, JSON]] = {
    "deprecated": False,
    "examples": [],
    "minItems": 0,
    "minLength": 0,
    "minProperties": 0,
    "uniqueItems": False,
}
"""Values with which a keyword has no effect."""


def is_needless(keyword: str, value: JSON) -> bool:
    """Whether a keyword has no effect with this value."""
    return keyword in _NEEDLESS and _NEEDLESS[keyword] == value


def sentence_for(keyword: str, value: JSON) -> str:
    """A sentence for a keyword; empty if it would be too long."""
    forms = _required(value) if keyword in _CHOICES else []
    if forms:
        return f"{_CHOICES[keyword]}: {'; '.join(forms)}."
    text = (
        value
        if isinstance(value, str) and keyword != "default"
        else compact(without_places({keyword: value})[keyword])
    )
    if len(text) > LONGEST_SENTENCE:
        return ""
    form = _PHRASES.get(keyword, f"{keyword}: {{}}" if keyword in _PLAIN else "")
    return form and form.format(text) + "."


def _required(branches: JSON) -> list[str]:
    # Branches that only have `required` become plain words instead of JSON.
    forms: list[str] = []
    for branch in branches if isinstance(branches, list) else ():
        wanted = (
            branch.get("required") if isinstance(branch, dict) and not branch.keys() - _REQUIRING else None
        )
        if not isinstance(wanted, list) or not wanted:
            return []
        forms.append(" and ".join(map(str, wanted)))
    return forms if len("; ".join(forms)) <= LONGEST_SENTENCE else []


def with_sentences(description: JSON, notes: Iterable[str]) -> str:
    """A description followed by further sentences."""
    said = description.strip() if isinstance(description, str) else ""
    more = " ".join(note for note in notes if note)
    if not said or not more:
        return said or more
    return f"{said} {more}" if said.endswith((".", "!", "?", ":", "\n")) else f"{said}. {more}"


MOST_OPTIONS: Final = 32
"""Maximum number of options of a subschema. Nested unions multiply, so a small schema can have millions."""

_ALTERNATIVES: Final = ("anyOf", "oneOf")
_NOTED: Final = ("default", "examples", "deprecated")
"""Annotations that no narrow dialect supports."""


_OF_OTHERS: Final = frozenset(
    ("additionalProperties", "patternProperties", "propertyNames", "minProperties", "unevaluatedProperties")
)
"""Keywords of an object that has properties without naming them."""


class SchemaPart(NamedTuple):
    """A compiled subschema.

    Attributes:
        schema: The subschema in the dialect.
        restore: Converts a value to the tool's own form.
    """

    schema: dict[str, JSON]
    restore: Restore = restore_as_is


class TypeOption(NamedTuple):
    """One type of the values that a subschema accepts.

    Attributes:
        kind: The type; empty for any.
        schema: Its constraints, in the tool's own form.
    """

    kind: str
    schema: dict[str, JSON]


class TooManyOptionsError(Exception):
    """A subschema has more than `MOST_OPTIONS` options."""


class NarrowCompiler(ABC):
    """Compiles one schema.

    Attributes:
        losses: Constraints that the dialect cannot express, collected during compilation.
        kept: Keywords that the dialect supports, in addition to those that the compiler writes itself.
        formats: Type -> formats that the dialect supports.
        object_keywords: Keywords that `properties` handles.
    """

    kept: ClassVar[frozenset[str]]
    formats: ClassVar[Mapping[str, frozenset[str]]]
    object_keywords: ClassVar = ("properties", "required", "additionalProperties", "unevaluatedProperties")

    def __init__(self) -> None:
        self.losses: dict[Loss, None] = {}

    @abstractmethod
    def anything(self, schema: dict[str, JSON]) -> SchemaPart:
        """A schema for values of all types."""

    @abstractmethod
    def values(self, schema: dict[str, JSON], kind: str, values: list[JSON]) -> SchemaPart:
        """A schema for named values of one type."""

    @abstractmethod
    def properties(self, schema: dict[str, JSON], inner: dict[str, dict[str, JSON]]) -> SchemaPart:
        """An object with all properties that the schema names."""

    @abstractmethod
    def nullable(self, part: SchemaPart) -> SchemaPart:
        """The same, or null."""

    @abstractmethod
    def union(self, parts: list[SchemaPart], description: str) -> dict[str, JSON]:
        """A union."""

    def lose(self, schema: dict[str, JSON], keyword: str, message: str) -> None:
        """Record what the dialect cannot express."""
        self.losses[Loss(pointer_of_schema(schema), keyword, message)] = None

    def left_over(self, schema: dict[str, JSON], keyword: str) -> str:
        """A sentence for the description that replaces a keyword which the dialect lacks."""
        return self.in_words(schema, keyword)

    def in_words(self, schema: dict[str, JSON], keyword: str) -> str:
        """A sentence for a keyword; empty if the keyword has no effect or the sentence would be too long."""
        if is_needless(keyword, schema[keyword]):
            return ""
        said = sentence_for(keyword, schema[keyword])
        self.lose(schema, keyword, "moved to the description" if said else "dropped")
        return said

    def is_kept(self, keyword: str, value: JSON, kind: str) -> bool:
        """Whether the dialect supports a keyword with this value and for this type."""
        if keyword == "format":
            return value in self.formats.get(kind, ())
        return keyword in self.kept and (keyword == "title" or keyword in KEYWORDS_OF.get(kind, ()))

    # The methods below are the same for all dialects.

    def part(self, schema: dict[str, JSON]) -> SchemaPart:
        """Compile a subschema."""
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
        """The schema without `allOf`, and without branches that only refine the keywords next to them."""
        told, apart = merge_all_of(schema)
        notes = [self.left_over({PLACE: pointer_of_schema(schema), "allOf": [one]}, "allOf") for one in apart]
        for keyword in _ALTERNATIVES:
            branches = told.get(keyword)
            if isinstance(branches, list) and all(is_refinement(branch, told) for branch in branches):
                notes.append(self.in_words(told, keyword))
                told = without_keywords(told, keyword)
        return {**told, "description": with_sentences(told.get("description"), notes)} if any(notes) else told

    def options(self, flat: dict[str, JSON]) -> list[TypeOption] | None:
        """The options of a schema; None if there are too many."""
        try:
            found = list(self._multiplied(flat, [MOST_OPTIONS]))
        except TooManyOptionsError:
            self.lose(flat, "anyOf", f"has more than {MOST_OPTIONS} options; any value is accepted")
            return None
        # One branch without a type accepts everything, so the union does.
        is_open = any(not option.kind for option in found)
        return [TypeOption("", flat)] if not found or (is_open and len(found) > 1) else found

    def _multiplied(self, flat: dict[str, JSON], left: list[int]) -> Iterator[TypeOption]:
        keyword = next((keyword for keyword in _ALTERNATIVES if isinstance(flat.get(keyword), list)), "")
        branches = flat.get(keyword)
        if not isinstance(branches, list):
            yield from self.by_type(flat)
            return
        # Narrow dialects only have `anyOf`.
        if keyword == "oneOf" and not are_disjoint(branches):
            self.lose(
                flat, keyword, "declared as `anyOf`; a value that matches two branches is still refused"
            )
        if "unevaluatedProperties" in flat and not are_disjoint(branches):
            self.lose(
                flat,
                "unevaluatedProperties",
                "applies to each branch; properties of several branches cannot be combined",
            )
        own = without_keywords(flat, keyword, *ANNOTATIONS, PLACE)
        for branch in branches:
            # One counter for the whole recursion: the branches of nested unions multiply.
            left[0] -= 1
            if left[0] < 0:
                raise TooManyOptionsError
            if isinstance(branch, dict) and not are_of_other_types(own, branch):
                # As `allOf`, so that `flat` merges the branch with the keywords next to the union.
                both: dict[str, JSON] = {PLACE: pointer_of_schema(branch), **own, "allOf": [branch]}
                yield from self._multiplied(self.flat(both if own else branch), left)

    def by_type(self, flat: dict[str, JSON]) -> Iterator[TypeOption]:
        """The options of a schema without alternatives, one per type."""
        kinds = declared_types(flat)
        values = named_values(flat)
        if values is not None:
            own = [
                next((kind for kind in kinds if is_of_type(value, kind)), type_of(value)) for value in values
            ]
            kinds = [kind for kind in dict.fromkeys(own) if not kinds or kind in kinds]
        elif not kinds:
            # Narrow dialects require a type.
            kinds = infer_types(flat)
            if kinds:
                told = " or ".join(f"`{kind}`" for kind in kinds)
                self.lose(flat, "type", f"is not set; assumed to be {told} from the other keywords")
        yield from (TypeOption(kind, narrow_to_type(flat, kind)) for kind in kinds)
        if not kinds:
            yield TypeOption("", flat)

    def several(self, flat: dict[str, JSON], options: list[TypeOption]) -> SchemaPart:
        """A union of several options."""
        parts = [self.only(option.schema, option) for option in options]
        notes = [self.left_over(flat, keyword) for keyword in _NOTED if keyword in flat]
        judged = [
            (part.restore, without_places(option.schema)) for part, option in zip(parts, options, strict=True)
        ]
        return SchemaPart(
            self.union(parts, with_sentences(flat.get("description", flat.get("title")), notes)),
            restore_one_of(judged),
        )

    def only(self, flat: dict[str, JSON], option: TypeOption) -> SchemaPart:
        """The only option of a schema, whose annotations override those of the option."""
        nearer: dict[str, JSON] = {key: flat[key] for key in ANNOTATIONS if key in flat}
        told = {**option.schema, **nearer}
        values = named_values(told)
        if values is not None:
            return self.described(told, self.values(told, option.kind, values), ("enum", "const"))
        if option.kind == "object":
            return self.object(told)
        if option.kind == "array":
            return self.described(told, self.items(told), ("items",))
        return self.described(
            told, SchemaPart({"type": option.kind}) if option.kind else self.anything(told), ()
        )

    def arguments(self, schema: dict[str, JSON]) -> dict[str, JSON]:
        """The object at the root. Without any keyword about properties, the tool has no arguments."""
        if named_properties(schema) or _OF_OTHERS & schema.keys():
            return schema
        self.lose(schema, "additionalProperties", "is not set; no arguments can be given")
        return {**schema, "additionalProperties": False}

    def object(self, schema: dict[str, JSON]) -> SchemaPart:
        """An object."""
        return self.described(schema, self.properties(schema, named_properties(schema)), self.object_keywords)

    def items(self, schema: dict[str, JSON]) -> SchemaPart:
        """An array, with one schema for all its items."""
        said, first = schema.get("items"), schema.get("prefixItems")
        rest = [said] if isinstance(said, dict) else []
        # Narrow dialects have no tuples. The union of all item schemas accepts every tuple that the tool
        # accepts.
        branches = [*first, *rest] if isinstance(first, list) else rest
        inner: dict[str, JSON] = {PLACE: pointer_of_schema(schema)}
        part = self.part({**inner, "anyOf": [*branches]} if branches else inner)
        return SchemaPart({"type": "array", "items": part.schema}, restore_each(part.restore))

    def described(self, schema: dict[str, JSON], part: SchemaPart, done: Collection[str]) -> SchemaPart:
        """Add the keywords that the dialect supports; the others, except those in `done`, become sentences."""
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
        described = with_sentences(schema.get("description"), (own if isinstance(own, str) else "", *notes))
        told = {**part.schema, **kept}
        return SchemaPart({**told, "description": described} if described else told, part.restore)


def as_object_schema(schema: dict[str, JSON]) -> dict[str, JSON]:
    """The schema at the root, where every value is an object."""
    kinds = declared_types(schema)
    return {**schema, "type": "object"} if not kinds or "object" in kinds else schema


def named_properties(schema: dict[str, JSON]) -> dict[str, dict[str, JSON]]:
    """The properties that an object's schema names, including those that it only requires."""
    said = schema.get("properties")
    inner = (
        {name: one for name, one in said.items() if isinstance(one, dict)} if isinstance(said, dict) else {}
    )
    extra = schema.get("additionalProperties")
    free: dict[str, JSON] = {PLACE: pointer_of_schema(schema)}
    other = extra if isinstance(extra, dict) else free
    wanted = schema.get("required")
    # Narrow dialects refuse a required name without a declaration.
    for name in wanted if isinstance(wanted, list) else ():
        if isinstance(name, str):
            inner.setdefault(name, other)
    return inner


class Declaration(NamedTuple):
    """A tool in a provider's form.

    Attributes:
        name: The name that the model sees.
        tool: Its name in the registry.
        description: Its description.
        schema: JSON Schema of the arguments, in the provider's dialect.
        definition: The complete declaration as it is sent.
        strict: Whether the provider enforces the schema.
        losses: What the dialect cannot express.
        restore: Converts the arguments of the model to the form of the tool's own schema.
    """

    name: str
    tool: str
    description: str
    schema: Mapping[str, JSON]
    definition: Mapping[str, JSON]
    strict: bool = False
    losses: tuple[Loss, ...] = ()
    restore: Callable[[dict[str, JSON]], dict[str, JSON]] = lambda arguments: arguments


class DialectSchema(NamedTuple):
    """A schema of arguments in a dialect.

    Attributes:
        schema: The schema.
        note: Text to add to the description of the tool; may be empty.
        strict: Whether the provider is asked to enforce the schema.
        losses: What the dialect cannot express.
        restore: Converts declared arguments to the tool's own form.
    """

    schema: dict[str, JSON]
    note: str = ""
    strict: bool = False
    losses: tuple[Loss, ...] = ()
    restore: Callable[[JSON], JSON] = lambda arguments: arguments


LONGEST_NAME: Final = 64

_OTHER: Final = re.compile("[^A-Za-z0-9_]")


def aliases_for(names: Iterable[str], taken: re.Pattern[str]) -> dict[str, str]:
    """Name -> alias, for each name that the dialect refuses; aliases are unique.

    Args:
        names: Names that belong together, such as those of an object's properties.
        taken: Pattern of valid names, at most 64 characters long.
    """
    # Valid names come first, so that an alias never displaces one.
    every = list(names)
    used = {name for name in every if taken.fullmatch(name)}
    found: dict[str, str] = {}
    for name in every:
        if name not in used:
            found[name] = _free(name, used)
            used.add(found[name])
    return found


def wrapper_for(schema: dict[str, JSON]) -> str:
    """A name for the property that holds all arguments; it differs from every property of the schema."""
    # Equal names would make an argument of that name look like the wrapper, and it would be unwrapped.
    name = "arguments"
    used = {key for path in _named(schema) for key in path}
    while name in used:
        name += "_"
    return name


def _named(schema: Schema) -> Iterator[tuple[str | int, ...]]:
    for path, inner in children(schema):
        yield path
        yield from _named(inner)


def _free(name: str, used: set[str]) -> str:
    plain = _OTHER.sub("_", name)
    start = plain if plain and not plain[0].isdigit() else f"_{plain}"
    if len(start) <= LONGEST_NAME and start not in used:
        return start
    # A name in JSON may contain lone surrogates, which UTF-8 refuses.
    salted = name.encode(errors="surrogatepass")
    while True:
        # A hash of the name, not a number: the alias must not depend on the other names.
        digest = blake2b(salted, digest_size=4).hexdigest()
        alias = f"{start[: LONGEST_NAME - 9]}_{digest}"
        if alias not in used:
            return alias
        salted = digest.encode() + salted
