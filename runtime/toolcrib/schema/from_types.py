"""Python types as JSON: a schema for each direction, and the conversion of values.

pydantic (extra `typed`) generates the schemas: what a type accepts (validation) and what its values become (serialization).
References are inlined with `dereference`, whose rules also apply to recursive types. A type that has no schema is an error;
only `Any` and `object` mean that every JSON value is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, NoReturn, TypeVar, get_args

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON
from toolcrib.core.subschemas import Path
from toolcrib.core.text import compact
from toolcrib.schema.dereference import dereference
from toolcrib.schema.validation import Violation
from toolcrib.schema.validation.violations import describe_value, make_violation

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError
    from pydantic.json_schema import GenerateJsonSchema

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


class JsonType:
    """A Python type with its JSON Schemas.

    Attributes:
        input_schema: JSON Schema of the values that `read` converts, without references.
        output_schema: JSON Schema of the values that `write` returns, without references.
    """

    __slots__ = ("_adapter", "_alike", "input_schema", "output_schema")

    def __init__(self, declared: Any, *, subject: str, place: str) -> None:
        """Generate the schemas of a type.

        Args:
            declared: The type, with any `Annotated` constraints. Names in it are resolved.
            subject: What has the type, for messages: "the parameter `city` of `get_weather`".
            place: `file:line` of the subject.

        Raises:
            ConfigurationError: The type has no JSON Schema, or pydantic is not installed (`missing_extra`).
        """
        self._adapter = _adapter(declared, subject, place)
        self.input_schema = self._schema("validation", subject, place)
        self.output_schema = self._schema("serialization", subject, place)
        self._alike = _reads_alike(self._adapter.core_schema)

    def _schema(
        self, direction: Literal["validation", "serialization"], subject: str, place: str
    ) -> dict[str, JSON]:
        from pydantic import PydanticUserError  # noqa: PLC0415 -- optional, and slow to import

        try:
            made = self._adapter.json_schema(mode=direction, schema_generator=_generator())
        except PydanticUserError as error:
            _refuse(subject, place, error)
        return dereference(made).schema

    def read(self, value: JSON) -> Any:
        """Convert a JSON value to the type.

        Raises:
            UnreadableValue: The type refuses the value.
        """
        from pydantic import ValidationError  # noqa: PLC0415 -- as above

        try:
            # JSON text and Python objects differ in what is strict: text can be a datetime, an array can be a set.
            if self._alike:
                return self._adapter.validate_python(value)
            return self._adapter.validate_json(compact(value))
        except ValidationError as error:
            raise UnreadableValue([*_violations(error, value)]) from None

    def write(self, value: Any) -> Any:
        """Convert a value of the type to JSON. A value of another type is converted as what it is.

        Raises:
            UnwritableValue: The value has no JSON form.
        """
        from pydantic_core import PydanticSerializationError  # noqa: PLC0415 -- as above

        try:
            # The output schema judges the result afterwards, with better messages than pydantic's warnings.
            return self._adapter.dump_python(value, mode="json", by_alias=True, warnings="none")
        except (PydanticSerializationError, ValueError, RecursionError) as error:
            raise UnwritableValue(str(error)) from None


def missing_typed(error: ImportError) -> ConfigurationError:
    """The error if a package of the extra `typed` is not installed."""
    message = f"typed tools need the extra `typed`: {error}"
    return ConfigurationError(message, code="missing_extra", hint="pip install 'toolcrib[typed]'")


def _adapter(declared: Any, subject: str, place: str) -> TypeAdapter[Any]:
    try:
        from pydantic import PydanticUserError, TypeAdapter  # noqa: PLC0415 -- as above
    except ImportError as error:
        raise missing_typed(error) from None
    variable = next(_variables(declared), None)
    if variable is not None:
        _refuse(subject, place, TypeError(f"the type variable {variable} has no value"))
    try:
        adapter = TypeAdapter(declared)
        adapter.rebuild(raise_errors=True)
    # The type's own code takes part: it can raise anything.
    except (PydanticUserError, Exception) as error:  # noqa: BLE001
        _refuse(subject, place, error)
    return adapter


def _variables(declared: Any) -> Iterator[TypeVar]:
    """The type variables in a type. pydantic would accept any value in their place."""
    if isinstance(declared, TypeVar):
        yield declared
    for part in get_args(declared):
        yield from _variables(part)


def _refuse(subject: str, place: str, error: Exception) -> NoReturn:
    reason = str(error).strip().splitlines()
    why = f": {reason[0].rstrip('.')}" if reason else ""
    raise ConfigurationError(
        f"{subject} has a type without a JSON Schema ({place}){why}",
        code="no_schema",
        hint="use types that JSON can express, a pydantic model, or `Any` for every value",
    ) from None


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


class ParameterType(NamedTuple):
    """A parameter whose annotation or default may have metadata, such as pydantic's `Field`.

    Attributes:
        declared: The type, with all metadata.
        description: What the metadata says; empty if it says nothing.
        default: Creates the default that a `Field` has; None if there is none.
    """

    declared: Any
    description: str = ""
    default: Callable[[], Any] | None = None

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
        return cls(
            declared,
            texts[0] if texts else "",
            None if made is None else partial(made.get_default, call_default_factory=True, validated_data={}),
        )
