"""Python types as JSON: a schema for each direction, and the conversion of values.

pydantic (extra `typed`) generates the schemas: what a type accepts (validation) and what its values become (serialization).
References are inlined with `dereference`, whose rules also apply to recursive types. A type that has no schema is an error;
only `Any` and `object` mean that every JSON value is allowed.
"""

from __future__ import annotations

import collections.abc
import sys
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from copy import copy
from enum import Flag
from functools import cache, lru_cache, partial, reduce
from operator import or_
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    NoReturn,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from toolcrib.core.errors import ConfigurationError, error_for
from toolcrib.core.model import JSON, Outcome, Result, Schema
from toolcrib.core.subschemas import Path, children
from toolcrib.core.text import compact
from toolcrib.schema.dereference import dereference
from toolcrib.schema.validation import Violation, ViolationReport
from toolcrib.schema.validation.validator import MOST
from toolcrib.schema.validation.violations import describe_value, make_violation
from toolcrib.security.redaction import Redactor

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError
    from pydantic.json_schema import GenerateJsonSchema
    from pydantic_core import CoreSchema

_ALIKE: Final = frozenset(
    (
        "any",
        "bool",
        "dataclass",
        "dataclass-args",
        "dataclass-field",
        "default",
        "definition-ref",
        "definitions",
        "dict",
        "float",
        "int",
        "list",
        "literal",
        "model",
        "model-field",
        "model-fields",
        "none",
        "nullable",
        "str",
        "typed-dict",
        "typed-dict-field",
    )
)
"""Kinds of pydantic's core schemas that read Python objects exactly as they read JSON text."""


class UnreadableValue(ValueError):
    """A JSON value cannot be converted to its type.

    Attributes:
        violations: What is wrong, one for each place.
    """

    def __init__(self, violations: Sequence[Violation]) -> None:
        super().__init__("; ".join(each.for_model() for each in violations))
        self.violations = violations


class UnwritableValue(ValueError):
    """A value cannot be converted to JSON."""


class JsonReader:
    """Converts JSON values to a Python type."""

    __slots__ = ("_adapter", "_alike", "_refusal")

    def __init__(self, adapter: TypeAdapter[Any]) -> None:
        from pydantic import ValidationError  # noqa: PLC0415 -- optional, and slow to import

        self._adapter = adapter
        self._alike = _reads_alike(adapter.core_schema)
        self._refusal = ValidationError

    def read(self, value: JSON) -> Any:
        """Convert a JSON value to the type.

        Raises:
            UnreadableValue: The type refuses the value.
        """
        try:
            # JSON text and Python objects differ in what is strict: text can be a datetime, an array can be a set.
            # The adapter's own methods only pass the value on, which takes longer than to validate it.
            if self._alike:
                return self._adapter.validator.validate_python(value)
            return self._adapter.validator.validate_json(compact(value))
        except self._refusal as error:
            raise UnreadableValue([*_violations(error, value)]) from None


class JsonType(JsonReader):
    """A Python type with its JSON Schemas.

    Attributes:
        input_schema: JSON Schema of the values that `read` converts, without references.
        output_schema: JSON Schema of the values that `write` returns, without references.
    """

    __slots__ = ("_nullable", "_serialize", "input_schema", "output_schema")

    def __init__(self, declared: Any, *, subject: str, place: str) -> None:
        """Generate the schemas of a type.

        Args:
            declared: The type, with any `Annotated` constraints. Names in it are resolved.
            subject: What has the type, for messages: "the parameter `city` of `get_weather`".
            place: `file:line` of the subject.

        Raises:
            ConfigurationError: The type has no JSON Schema, or pydantic is not installed (`missing_extra`).
        """
        try:
            super().__init__(_adapter(declared))
        except _UnusableType as error:
            _refuse(subject, place, str(error))
        self.input_schema = self._schema("validation", subject, place)
        self.output_schema = self._schema("serialization", subject, place)
        self._nullable = _may_be_null(self.output_schema)
        self._serialize = self._adapter.serializer.to_python

    @property
    def core_schema(self) -> CoreSchema | None:
        """The schema of the type in pydantic; None if the type must be read from text."""
        return self._adapter.core_schema if self._alike else None

    def _schema(
        self, direction: Literal["validation", "serialization"], subject: str, place: str
    ) -> dict[str, JSON]:
        from pydantic import PydanticUserError  # noqa: PLC0415 -- optional, and slow to import

        try:
            made = self._adapter.json_schema(mode=direction, schema_generator=_generator())
        except PydanticUserError as error:
            _refuse(subject, place, _reason(error))
        return dereference(made).schema

    def write(self, value: Any) -> Any:
        """Convert a value of the type to JSON. A value of another type is converted as what it is.

        Raises:
            UnwritableValue: The value has no JSON form.
        """
        try:
            # The output schema judges the result afterwards, with better messages than pydantic's warnings. `False`
            # means the same as "none", which pydantic takes 1.4 us to read.
            written = self._serialize(value, mode="json", by_alias=True, warnings=False)
            if self._nullable and value is not None and _has_null(written):
                plain = self._serialize(value, mode="python", by_alias=True, warnings=False)
                written = _with_infinite_numbers(written, plain)
        except (ValueError, RecursionError) as error:  # pydantic's own error is a ValueError
            raise UnwritableValue(str(error)) from None
        return written


def _may_be_null(schema: Schema) -> bool:
    """Whether a schema accepts null at any place. For schemas that are rare in types, the answer may be a wrong yes."""
    if isinstance(schema, bool):
        return schema
    kinds, options = schema.get("type"), schema.get("enum")
    restricted = ("type", "enum", "const", "anyOf", "oneOf", "allOf")
    return (
        kinds == "null"
        or (isinstance(kinds, list) and "null" in kinds)
        or (isinstance(options, list) and None in options)
        or not any(key in schema for key in restricted)
        or any(_may_be_null(each) for _path, each in children(schema))
    )


def _has_null(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return any(map(_has_null, value.values()))
    return any(map(_has_null, value)) if kind is list else value is None


def _with_infinite_numbers(written: Any, plain: Any) -> Any:
    """Put NaN and the infinities back, so that the result is refused with their place.

    pydantic writes them as null where the type does not say that there is a number.

    Args:
        written: The JSON that pydantic wrote.
        plain: The same value in Python.
    """
    if written is None:
        return plain if isinstance(plain, float) else None
    # A serializer of the user's may write something else than the members of a value.
    if isinstance(written, dict | list) and isinstance(plain, Collection) and len(written) == len(plain):
        if isinstance(written, list):
            return [*map(_with_infinite_numbers, written, plain)]
        if isinstance(plain, Mapping):
            return dict(
                zip(written, map(_with_infinite_numbers, written.values(), plain.values()), strict=True)
            )
    return written


def joint_reader(
    types: Mapping[str, JsonType | None], required: Container[str]
) -> Callable[[dict[str, JSON]], dict[str, Any]] | None:
    """One function that converts several named values at once, which is faster than one `read` for each.

    It raises ValueError if it cannot convert them; call `read` of each type to find out why.

    Args:
        types: Name -> type; None for values that stay as they are.
        required: The names that must be there.

    Returns:
        The function. None if a type reads text, or has definitions that could collide with those of another type.
    """
    from pydantic_core import SchemaValidator, core_schema  # noqa: PLC0415 -- optional, and slow to import

    fields = {}
    for name, declared in types.items():
        schema = core_schema.any_schema() if declared is None else declared.core_schema
        if schema is None or schema["type"] == "definitions":
            return None
        fields[name] = core_schema.typed_dict_field(schema, required=name in required)
    joint = core_schema.typed_dict_schema(fields, extra_behavior="forbid")
    read: Callable[[dict[str, JSON]], dict[str, Any]] = SchemaValidator(joint).validate_python
    return read


def read_result(result: Result, declared: Any) -> Any:
    """Convert the value of a successful result to a type; see `Result.into`.

    Raises:
        InvalidResult: The type refuses the value.
        ConfigurationError: pydantic cannot read the type, or is not installed (`missing_extra`).
    """
    value = result.value
    try:
        return _reader_of(declared).read(value)
    except UnreadableValue as error:
        report = ViolationReport([*error.violations])
    seen = Redactor(value)
    shown = [each.for_model() for each in report.faults[:MOST]]
    lines = [seen.hide_in_text(line) for line in (*shown, *report.unshown())]
    told: list[JSON] = [
        {"pointer": each.pointer, "keyword": each.keyword, "expected": each.expected}
        for each in report.faults[:MOST]
    ]
    subject = f"the result of `{result.tool}`" if result.tool else "the result"
    failed = Result.failure(
        Outcome.INVALID_RESULT,
        f"{subject} is not a valid `{_name_of(declared)}`:\n" + "\n".join(lines),
        details={"violations": told, **report.counts()},
        raw_value=seen.hide_in(value),
    )
    failed = failed._replace(tool=result.tool, usage=result.usage, meta=result.meta)
    raise error_for(failed.outcome)(failed)


def _reader_of(declared: Any) -> JsonReader:
    try:
        return _cached_reader(declared)
    except TypeError:  # the type has metadata that cannot be hashed
        return _new_reader(declared)


def _new_reader(declared: Any) -> JsonReader:
    try:
        return JsonReader(_adapter(declared))
    except _UnusableType as error:
        message = f"pydantic cannot read the type `{_name_of(declared)}`: {error}"
        hint = "use a dataclass, a TypedDict, a pydantic model, or a container of them"
        raise ConfigurationError(message, code="no_schema", hint=hint) from None


_cached_reader = lru_cache(maxsize=256)(_new_reader)


def _name_of(declared: Any) -> str:
    return declared.__name__ if isinstance(declared, type) and not get_args(declared) else str(declared)


def missing_typed(error: ImportError) -> ConfigurationError:
    """The error if a package of the extra `typed` is not installed."""
    message = f"typed tools need the extra `typed`: {error}"
    return ConfigurationError(message, code="missing_extra", hint="pip install 'toolcrib[typed]'")


class _UnusableType(Exception):
    """pydantic cannot read a type."""


def _adapter(declared: Any) -> TypeAdapter[Any]:
    try:
        from pydantic import PydanticUserError, TypeAdapter  # noqa: PLC0415 -- as above
    except ImportError as error:
        raise missing_typed(error) from None
    variable = next(_variables(declared), None)
    if variable is not None:
        raise _UnusableType(f"the type variable {variable} has no value")
    try:
        adapter = TypeAdapter(declared if sys.version_info >= (3, 12) else _portable(declared, {}))
        adapter.rebuild(raise_errors=True)
    # The type's own code takes part: it can raise anything.
    except (PydanticUserError, Exception) as error:  # noqa: BLE001
        raise _UnusableType(_reason(error)) from None
    return adapter


def _reason(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    # pydantic's own advice follows; it is for models, and longer than the reason.
    return lines[0].partition(". Set `arbitrary_types_allowed")[0].rstrip(".") if lines else ""


def _variables(declared: Any) -> Iterator[TypeVar]:
    """The type variables in a type. pydantic would accept any value in their place."""
    if isinstance(declared, TypeVar):
        yield declared
    for part in get_args(declared):
        yield from _variables(part)


def _refuse(subject: str, place: str, reason: str) -> NoReturn:
    why = f": {reason}" if reason else ""
    raise ConfigurationError(
        f"{subject} has a type without a JSON Schema ({place}){why}",
        code="no_schema",
        hint="use types that JSON can express, a pydantic model, or `Any` for every value",
    )


@cache
def _generator() -> type[GenerateJsonSchema]:
    from pydantic.errors import PydanticInvalidForJsonSchema  # noqa: PLC0415 -- as above
    from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind  # noqa: PLC0415 -- as above
    from pydantic_core import core_schema  # noqa: PLC0415 -- as above

    class Generator(GenerateJsonSchema):
        """pydantic's schemas without titles made of names, and without choices that are left out silently."""

        def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002 -- pydantic's signature
            return False

        def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
            if kind == "skipped-choice":
                raise PydanticInvalidForJsonSchema(detail)

        def enum_schema(self, schema: core_schema.EnumSchema) -> dict[str, Any]:
            made = super().enum_schema(schema)
            if issubclass(schema["cls"], Flag):
                # Members are combined: 3 is the value of `A | B`.
                members = ", ".join(f"{each.value} ({each.name})" for each in schema["cls"])
                made = {"description": f"A sum of {members}.", **made, "type": "integer", "minimum": 0}
                made.pop("enum", None)
                made.pop("const", None)
            return made

        def tagged_union_schema(self, schema: core_schema.TaggedUnionSchema) -> dict[str, Any]:
            # `discriminator` is a keyword of OpenAPI with references, which the branches say themselves.
            made = super().tagged_union_schema(schema)
            made.pop("discriminator", None)
            return made

        def is_subclass_schema(self, schema: core_schema.IsSubclassSchema) -> dict[str, Any]:
            # pydantic itself returns an empty schema here.
            return self.handle_invalid_for_json_schema(schema, "core_schema.IsSubclassSchema")

    return Generator


def _reads_alike(schema: Any) -> bool:
    """Whether a core schema reads Python objects exactly as it reads JSON text, which is faster."""
    if isinstance(schema, Mapping):
        kind = schema.get("type")
        if schema.get("strict") or (isinstance(kind, str) and kind not in _ALIKE):
            return False
        # Literals, defaults and metadata hold values, not schemas.
        return all(
            _reads_alike(part)
            for key, part in schema.items()
            if key not in {"expected", "default", "metadata"}
        )
    if isinstance(schema, list | tuple):
        return all(map(_reads_alike, schema))
    # A schema that pydantic builds later cannot be looked at.
    return schema is None or isinstance(schema, str | int | float | type) or callable(schema)


def _violations(error: ValidationError, value: JSON) -> Iterator[Violation]:
    """The errors of pydantic as violations, one for each place and reason."""
    told = set()
    for each in error.errors(include_url=False, include_context=False, include_input=False):
        path, there = _place(each["loc"], value, missing=each["type"] == "missing")
        said = each["msg"]
        expected = said.removeprefix("Input should be ")
        reason = said.removeprefix("Value error, ").removeprefix("Assertion failed, ")
        if each["type"] == "missing":
            found = make_violation(path, "required", "a value", "nothing")
        elif expected != said:
            found = make_violation(path, each["type"], expected, describe_value(there))
        else:
            found = make_violation(path, each["type"], "a valid value", describe_value(there), reason)
        if found not in told:
            told.add(found)
            yield found


def _place(location: Sequence[str | int], value: JSON, *, missing: bool) -> tuple[Path, JSON]:
    """The path of an error within a JSON value, and the value there."""
    path: list[str | int] = []
    for part in location:
        # A location also names the choices of unions and the functions that ran, which are not places in the value.
        inner: Any = value
        if part in inner if isinstance(inner, dict) else isinstance(part, int) and _has(inner, part):
            value = inner[part]
        elif not missing or part is not location[-1]:
            continue
        path.append(part)
    return tuple(path), value


def _has(value: JSON, index: int) -> bool:
    return isinstance(value, list) and index < len(value)


def _portable(declared: Any, made: dict[Any, Any]) -> Any:
    """Replace each `typing.TypedDict` in a type by one of `typing_extensions`, which pydantic needs before Python 3.12.

    Those within dataclasses and models stay as they are.
    """
    if type(declared).__module__ == "typing" and is_typeddict(declared):
        return made[declared] if declared in made else _portable_typed_dict(declared, made)
    parts = get_args(declared)
    if not parts or get_origin(declared) in {Literal, collections.abc.Callable}:
        return declared
    portable = tuple(_portable(part, made) for part in parts)
    if all(new is old for new, old in zip(portable, parts, strict=True)):
        return declared
    if isinstance(declared, UnionType):
        return reduce(or_, portable)
    if get_origin(declared) is Annotated:
        return Annotated[portable]
    return declared.copy_with(portable) if hasattr(declared, "copy_with") else get_origin(declared)[portable]


def _portable_typed_dict(declared: Any, made: dict[Any, Any]) -> Any:
    from typing_extensions import TypedDict  # noqa: PLC0415 -- pydantic needs it

    portable: Any = TypedDict(declared.__name__, {})  # type: ignore[misc]  # its members follow
    made[declared] = portable
    copied = ("__module__", "__qualname__", "__doc__", "__total__", "__required_keys__", "__optional_keys__")
    for name in (*copied, "__pydantic_config__"):
        if hasattr(declared, name):
            setattr(portable, name, getattr(declared, name))
    hints = get_type_hints(declared, include_extras=True)
    portable.__annotations__ = {name: _portable(hint, made) for name, hint in hints.items()}
    return portable


def _without_alias(field: Any) -> Any:
    plain = copy(field)
    plain.alias = plain.validation_alias = plain.serialization_alias = None
    return plain


class ParameterType(NamedTuple):
    """A parameter whose annotation or default may have metadata, such as pydantic's `Field`.

    Attributes:
        declared: The type, with all metadata.
        description: What the metadata says; empty if it says nothing.
        default: Creates the default that a `Field` has; None if there is none.
        alias: The alias that a `Field` has: a text is the name of the argument; None if there is none.
        replaced: Whether the default in the signature is a `Field`, so that the function has no default of its own.
    """

    declared: Any
    description: str = ""
    default: Callable[[], Any] | None = None
    alias: Any = None
    replaced: bool = False

    @classmethod
    def of(cls, declared: Any, default: Any) -> ParameterType:
        """Read the metadata of a parameter.

        Args:
            declared: Its annotation.
            default: Its default in the signature, which may be a `Field`.

        Raises:
            ConfigurationError: pydantic is not installed (`missing_extra`).
        """
        try:
            from pydantic.fields import FieldInfo  # noqa: PLC0415 -- optional, and slow to import
        except ImportError as error:
            raise missing_typed(error) from None
        if isinstance(default, FieldInfo):
            declared = Annotated[declared, default]
        metadata = getattr(declared, "__metadata__", ())
        fields = [each for each in metadata if isinstance(each, FieldInfo)]
        texts = [each.description for each in reversed(fields) if each.description]
        texts += [each for each in metadata if isinstance(each, str)]
        made = next((each for each in reversed(fields) if not each.is_required()), None)
        alias = next((each.validation_alias for each in reversed(fields) if each.validation_alias), None)
        if alias is not None:
            # pydantic warns of aliases of a type that is not that of a field of a model.
            plain = [_without_alias(each) if isinstance(each, FieldInfo) else each for each in metadata]
            declared = Annotated[(declared.__origin__, *plain)]
        return cls(
            declared,
            texts[0] if texts else "",
            None if made is None else partial(made.get_default, call_default_factory=True, validated_data={}),
            alias,
            isinstance(default, FieldInfo),
        )
