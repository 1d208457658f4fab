"""What the signature, the annotations and the docstring of a Python function or class say about its tool."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, NOTHING, CallContext, Partial, Progress, Result
from toolcrib.core.pointers import pointer_to
from toolcrib.schema.from_types import (
    JsonType,
    ParameterType,
    UnreadableValue,
    UnwritableValue,
    joint_reader,
    missing_typed,
)
from toolcrib.schema.validation import Validator, Violation

_EVENTS = (Progress, Partial)


class TypedParameter(NamedTuple):
    """A parameter that is an argument of the tool.

    Attributes:
        name: Name of the argument: that of the parameter, or its alias.
        type: Its type; None if it takes JSON values as they are.
        schema: JSON Schema of the argument, with description and default.
        required: Whether it has no default.
        default: Creates its default if the function itself does not have it; None otherwise.
        passed_as: Name of the parameter, if it differs from that of the argument; else empty.
    """

    name: str
    type: JsonType | None
    schema: dict[str, JSON]
    required: bool
    default: Callable[[], Any] | None = None
    passed_as: str = ""


class Dependency(NamedTuple):
    """A parameter that receives something that the program provides by name.

    Attributes:
        name: Its name.
        required: Whether it has no default.
    """

    name: str
    required: bool


class Signature(NamedTuple):
    """A function as a tool.

    Attributes:
        name: Name of the function.
        place: `file:line` of the function.
        description: The description in its docstring.
        parameters: The arguments.
        contexts: Names of the parameters that receive the `CallContext`.
        open: Whether it takes further arguments (`**kwargs`).
        result: Type of the result; None if it is not declared.
        joint: Does what `read` does, but faster, and raises ValueError without a reason; None if that is not possible.
    """

    name: str
    place: str
    description: str
    parameters: tuple[TypedParameter, ...]
    contexts: tuple[str, ...]
    open: bool
    result: JsonType | None
    joint: Callable[[dict[str, JSON]], dict[str, Any]] | None = None

    @property
    def input_schema(self) -> dict[str, JSON]:
        """JSON Schema of the arguments."""
        schema: dict[str, JSON] = {
            "type": "object",
            "properties": {each.name: each.schema for each in self.parameters},
            "required": [each.name for each in self.parameters if each.required],
            "additionalProperties": self.open,
        }
        return schema if schema["required"] else {k: v for k, v in schema.items() if k != "required"}

    def read(self, arguments: Mapping[str, JSON]) -> dict[str, Any]:
        """Convert the arguments of a call to the declared types.

        Raises:
            UnreadableValue: Arguments are missing, or their types refuse them.
        """
        given: dict[str, Any] = dict(arguments)
        wrong: list[Violation] = []
        for name, declared, _schema, _required, default, _passed_as in self.parameters:
            if name not in given:
                if default is not None:
                    given[name] = default()
            elif declared is not None:
                try:
                    given[name] = declared.read(given[name])
                except UnreadableValue as error:
                    wrong += [_below(name, each) for each in error.violations]
        if wrong:
            raise UnreadableValue(wrong)
        if not any(each.passed_as for each in self.parameters):
            return given
        names = {each.name: each.passed_as or each.name for each in self.parameters}
        return {names.get(name, name): value for name, value in given.items()}


def _below(name: str, violation: Violation) -> Violation:
    path = (name, *violation.path)
    return violation._replace(path=path, pointer=pointer_to(path))


def signature_of(function: Callable[..., Any], *, names: Mapping[str, Any], untyped: bool) -> Signature:
    """Read the signature of a function.

    Args:
        function: The function.
        names: Names that its annotations may use, in addition to those of its module.
        untyped: Whether parameters may lack an annotation, because the schema is given.

    Raises:
        ConfigurationError: A parameter cannot be an argument, or a type has no schema; the message names file and line.
    """
    name, place = getattr(function, "__name__", type(function).__name__), place_of(function)
    hints = hints_of(function, names)
    said = docstring_of(function)
    parameters: list[TypedParameter] = []
    contexts: list[str] = []
    accepts_more = False
    for each in _parameters(function, name, place):
        if each.kind is each.VAR_KEYWORD and untyped:
            accepts_more = True
        elif each.kind in {each.VAR_POSITIONAL, each.VAR_KEYWORD}:
            stars = "*" if each.kind is each.VAR_POSITIONAL else "**"
            raise _unusable(name, f"{stars}{each.name}", place, "takes any arguments", "name each argument")
        elif each.kind is each.POSITIONAL_ONLY:
            hint = "remove the `/` after it: arguments are passed by name"
            raise _unusable(name, each.name, place, "is positional-only", hint)
        elif _is_context(hints.get(each.name)):
            contexts.append(each.name)
        elif each.name in hints:
            found = _typed(each, hints[each.name], name, place, said.parameters)
            if any(found.name == other.name for other in parameters):
                hint = "give each argument a name of its own"
                raise _unusable(
                    name, each.name, place, f"has the alias `{found.name}` of another argument", hint
                )
            parameters.append(found)
        elif untyped:
            parameters.append(TypedParameter(each.name, None, {}, each.default is each.empty))
        else:
            hint = "annotate it, or pass `schema=` to `toolcrib.tool`"
            raise _unusable(name, each.name, place, "has no annotation", hint)
    result = _result(function, hints, name, place)
    signature = Signature(
        name, place, said.description, tuple(parameters), tuple(contexts), accepts_more, result
    )
    # A default that the function itself does not have is created for each call, and aliases are replaced.
    if accepts_more or any(each.default is not None or each.passed_as for each in parameters):
        return signature
    required = {each.name for each in parameters if each.required}
    return signature._replace(joint=joint_reader({each.name: each.type for each in parameters}, required))


def dependencies_of(function: Callable[..., Any], name: str, place: str) -> tuple[Dependency, ...]:
    """The parameters of a factory, or of the constructor of a class.

    Args:
        function: The factory or class.
        name: Its name.
        place: Its `file:line`.

    Raises:
        ConfigurationError: A parameter cannot receive a dependency; the message names file and line.
    """
    found = []
    for each in _parameters(function, name, place):
        if each.kind in {each.VAR_POSITIONAL, each.VAR_KEYWORD}:
            stars = "*" if each.kind is each.VAR_POSITIONAL else "**"
            raise _unusable(name, f"{stars}{each.name}", place, "takes anything", "name each dependency")
        if each.kind is each.POSITIONAL_ONLY:
            hint = "remove the `/` after it: dependencies are passed by name"
            raise _unusable(name, each.name, place, "is positional-only", hint)
        found.append(Dependency(each.name, each.default is each.empty))
    return tuple(found)


def _parameters(function: Callable[..., Any], name: str, place: str) -> Sequence[inspect.Parameter]:
    try:
        return [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError) as error:
        message = f"`{name}` has no signature ({place}): {error}"
        raise ConfigurationError(
            message, code="bad_signature", hint="wrap it in a function of your own"
        ) from None


def _unusable(function: str, parameter: str, place: str, why: str, hint: str) -> ConfigurationError:
    message = f"the parameter `{parameter}` of `{function}` {why} ({place})"
    return ConfigurationError(message, code="bad_signature", hint=hint)


def _typed(
    given: inspect.Parameter, declared: Any, function: str, place: str, descriptions: Mapping[str, str]
) -> TypedParameter:
    field = ParameterType.of(declared, given.default)
    subject = f"the parameter `{given.name}` of `{function}`"
    kind = JsonType(field.declared, subject=subject, place=place)
    schema = dict(kind.input_schema)
    description = field.description or descriptions.get(given.name, "")
    if description:
        schema["description"] = description
    if field.alias is not None and not isinstance(field.alias, str):
        raise _unusable(function, given.name, place, "has several aliases", "give it one text as its alias")
    name, passed_as = (given.name, "") if field.alias in {None, given.name} else (field.alias, given.name)
    if field.default is not None:
        return TypedParameter(name, kind, schema, False, field.default, passed_as)
    # A `Field` without a default, as the default in the signature, is required.
    required = given.default is given.empty or field.replaced
    if not required:
        schema |= _default(kind, given.default)
    return TypedParameter(name, kind, schema, required, passed_as=passed_as)


def _default(kind: JsonType, value: Any) -> dict[str, JSON]:
    """The keyword `default`; nothing if the default is not a value of the type, such as a sentinel."""
    try:
        written: JSON = kind.write(value)
    except UnwritableValue:
        return {}
    return {"default": written} if Validator(kind.input_schema).judge(written) else {}


def _is_context(declared: Any) -> bool:
    if get_origin(declared) is Annotated:
        declared = get_args(declared)[0]
    return CallContext in _choices(declared)


def context_parameters(hints: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of the parameters that receive the `CallContext`."""
    return tuple(name for name, declared in hints.items() if name != "return" and _is_context(declared))


def _result(function: Callable[..., Any], hints: Mapping[str, Any], name: str, place: str) -> JsonType | None:
    if "return" not in hints:
        return None
    declared = _final(hints["return"]) if is_generator(function) else hints["return"]
    return result_type(declared, f"the result of `{name}`", place)


def is_generator(function: Callable[..., Any]) -> bool:
    """Whether a function yields events before its result."""
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def result_type(declared: Any, subject: str, place: str) -> JsonType | None:
    """The type of a result; None if the function returns complete `Result`s, whose values are not declared."""
    if declared is Result or Result in _choices(declared):
        return None
    return JsonType(declared, subject=subject, place=place)


def _choices(declared: Any) -> tuple[Any, ...]:
    return get_args(declared) if get_origin(declared) in {Union, UnionType} else (declared,)


def _final(declared: Any) -> Any:
    """The type of the value that a generator ends with: what it returns, or what it yields besides events."""
    parts = get_args(declared)
    if not parts:
        return declared
    if get_origin(declared) is Generator and len(parts) > 2 and parts[2] not in (None, type(None)):
        return parts[2]
    left = tuple(each for each in _choices(parts[0]) if each not in _EVENTS)
    return reduce(or_, left) if left else None


def hints_of(function: Callable[..., Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The resolved annotations of a function.

    Raises:
        ConfigurationError: An annotation cannot be resolved.
    """
    plain = inspect.unwrap(function)
    plain = getattr(plain, "__func__", plain)
    known = dict(names)
    code, cells = getattr(plain, "__code__", None), getattr(plain, "__closure__", None)
    for free, cell in zip(code.co_freevars if code else (), cells or (), strict=False):
        try:
            known[free] = cell.cell_contents
        except ValueError:  # the variable has no value yet
            continue
    try:
        return get_type_hints(plain, localns=known, include_extras=True)
    # An annotation is code, which can raise anything.
    except Exception as error:  # noqa: BLE001
        name, place = getattr(plain, "__name__", "?"), place_of(function)
        message = f"the annotations of `{name}` cannot be resolved ({place}): {error}"
        hint = "define or import the names that the annotations use"
        raise ConfigurationError(message, code="bad_signature", hint=hint) from None


def place_of(function: Any) -> str:
    """`file:line` of a function or class."""
    plain = inspect.unwrap(function)
    plain = getattr(plain, "__func__", plain)
    code = getattr(plain, "__code__", None)
    if code is not None:
        return f"{code.co_filename}:{code.co_firstlineno}"
    module = inspect.getmodule(plain)
    try:
        return f"{inspect.getsourcefile(plain)}:{inspect.getsourcelines(plain)[1]}"
    except (OSError, TypeError):
        return f"{getattr(module, '__file__', None) or getattr(module, '__name__', '<unknown>')}:1"


class Docstring(NamedTuple):
    """What a docstring says.

    Attributes:
        description: The text without the sections.
        parameters: Name -> description.
    """

    description: str = ""
    parameters: Mapping[str, str] = NOTHING


def docstring_of(documented: Any) -> Docstring:
    """Read the docstring of a function or class, in the style of Google, NumPy or Sphinx.

    Raises:
        ConfigurationError: The package that reads docstrings is not installed (`missing_extra`).
    """
    text = inspect.getdoc(documented)
    if not text:
        return Docstring()
    try:
        from docstring_parser import ParseError, parse  # noqa: PLC0415 -- optional
    except ImportError as error:
        raise missing_typed(error) from None
    try:
        found = parse(text)
    except ParseError:
        return Docstring(text)
    parts = [found.short_description or "", found.long_description or ""]
    described = {each.arg_name: " ".join((each.description or "").split()) for each in found.params}
    return Docstring("\n\n".join(part for part in parts if part), {k: v for k, v in described.items() if v})
