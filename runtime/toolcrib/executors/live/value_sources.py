"""Compile the values of a block: constants, variables that are resolved at bind time, and expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from toolcrib.core.errors import ExpressionError, Problem, Severity
from toolcrib.core.model import JSON, Descriptor
from toolcrib.core.pointers import pointer_step, pointer_to
from toolcrib.core.subschemas import closed_names
from toolcrib.core.text import compact
from toolcrib.expressions import Expression, compile_expression
from toolcrib.expressions.compiler import ArgumentReads
from toolcrib.expressions.expression import ExpressionBody, split
from toolcrib.expressions.values import list_of_names
from toolcrib.schema.validation.violations import UnusableArguments
from toolcrib.security.secrets import (
    MissingSecret,
    SecretResolver,
    SecretVariable,
    split_variables,
    unescape_dollars,
)


def property_schema(schema: JSON, name: str) -> JSON:
    """The schema of a property, if `properties` contains it directly."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties.get(name) if isinstance(properties, dict) else None


_EXACT: Final = 1e21
"""The magnitude from which a whole float is written with an exponent, as in JavaScript."""


def scalar_text(value: JSON) -> str | None:
    """A scalar as text: text as it is, `true` or `false`, a number; None for anything else.

    `3.0` becomes `3`, and small numbers have no exponent: `0.00001`.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return _of_float(value) if isinstance(value, float) else None


def _of_float(value: float) -> str:
    if value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    # `repr` is the shortest text that parses to the same float; `Decimal` writes it without an exponent.
    text = repr(value)
    return format(Decimal(text), "f") if "e-" in text else text


_KINDS: Final = {dict: "an object", list: "a list", bool: "a boolean", str: "text", type(None): "null"}


def kind_of(value: JSON) -> str:
    """The kind of a value as messages name it, such as `a list`."""
    return _KINDS.get(type(value), "a number")


Arguments: TypeAlias = "dict[str, JSON]"

ReadValue: TypeAlias = Callable[[Arguments], Any]
"""Computes a JSON value, or returns `ABSENT`; raises UnusableArguments."""

STAND_IN: Final = "variable"
"""The placeholder for the value of a variable while a document is only checked."""

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_QUOTED: Final = r"'[^'\\]*'|\"[^\"\\]*\""
_STEP: Final = re.compile(rf"\.({_NAME})|\[\s*({_QUOTED})\s*\]")
_PATH: Final = re.compile(rf"\s*args(?:\.{_NAME}|\[\s*(?:{_QUOTED})\s*\])+\s*")


class Absence(Enum):
    """An optional argument that was not given."""

    ABSENT = "absent"


ABSENT: Final = Absence.ABSENT


class ValueSource(NamedTuple):
    """The source of a value of the request.

    Attributes:
        at: JSON Pointer of the value in the descriptor.
        read: Computes the value.
        constant: Whether the value is the same for every call.
        value: The constant value.
        reads: The arguments that it reads.
        path: The argument and the keys in it, for an expression such as `args.user.id`; empty for any other.
        secret: Whether the value contains a resolved variable.
        parts: The pieces of an interpolated text.
        inner: The sources of the members of an object or the items of a list.
        subject: The name of the value in messages, if it is not a single argument.
        write: Encodes the value for a path segment, if it has a style there.
    """

    at: str
    read: ReadValue
    constant: bool = False
    value: JSON = None
    reads: tuple[str, ...] = ()
    path: tuple[str, ...] = ()
    secret: bool = False
    parts: tuple[str | ValueSource, ...] = ()
    inner: tuple[ValueSource, ...] = ()
    subject: str = ""
    write: Callable[[Arguments], str] | None = None

    def misfit(self, why: str, hint: str = "") -> UnusableArguments:
        """The error for a value that cannot be sent."""
        return UnusableArguments(f"{self._subject} {why}", pointer=self.pointer, hint=hint, at=self.at)

    @property
    def _subject(self) -> str:
        if self.path or self.subject:
            return self.subject or f"`{'.'.join(self.path)}`"
        return f"the value derived from {list_of_names([*self.reads])}" if self.reads else "the value"

    @property
    def pointer(self) -> str:
        """JSON Pointer of the argument, if the value is or reads a single one."""
        return pointer_to(self.path or (self.reads if len(self.reads) == 1 else ()))


def constant_source(value: JSON, at: str, *, secret: bool = False) -> ValueSource:
    """The source of a constant value."""
    return ValueSource(at, lambda _arguments: value, constant=True, value=value, secret=secret)


class RequestPart(NamedTuple):
    """A part of a request that the descriptor defines, for `explain`.

    Attributes:
        kind: The part of the request that it belongs to.
        name: The name of the parameter, header, cookie or member, or the path segment as written.
        pointer: JSON Pointer in the descriptor.
        reads: The arguments that it reads.
    """

    kind: Literal["path", "query", "header", "cookie", "body"]
    name: str
    pointer: str
    reads: tuple[str, ...] = ()


Piece: TypeAlias = "str | SecretVariable | ExpressionBody"


class ValueSources:
    """Compiles the values of one block.

    Attributes:
        tool: The descriptor.
        problems: Receives every problem.
        read: The arguments that the values compiled so far read.
        whole: Whether an expression reads `args` as a whole, or by computed keys.
        has_secrets: Whether a secret variable is used.
    """

    def __init__(self, tool: Descriptor, problems: list[Problem], secrets: SecretResolver | None) -> None:
        self.tool = tool
        self.problems = problems
        self.read: set[str] = set()
        self.whole = False
        self.has_secrets = False
        self._secrets = secrets
        self._known = closed_names(tool.input_schema)

    @property
    def looks_up(self) -> bool:
        """Whether variables are resolved. They are not while a document is only checked."""
        return self._secrets is not None

    def tell(
        self, code: str, message: str, pointer: str, hint: str = "", *, severity: Severity = "error"
    ) -> None:
        """Add a problem."""
        self.problems.append(
            Problem(code=code, message=message, pointer=pointer, hint=hint, severity=severity)
        )

    def of(self, value: JSON, at: str) -> ValueSource:
        """The source of a scalar of the block.

        Raises:
            MissingSecret: A variable is not set.
        """
        if not isinstance(value, str) or "{" not in value:
            return constant_source(value, at)
        pieces = self.split(value, at)
        if len(pieces) == 1:
            return self.source(pieces[0], at)
        return self.joined(
            [piece if isinstance(piece, str) else self.source(piece, at) for piece in pieces], at
        )

    def split(self, text: str, at: str) -> list[Piece]:
        """Split a text into literals, variables and expressions; empty if it cannot be parsed."""
        # Variables are split off before expressions are parsed: a secret is never read as an expression.
        try:
            outer = split_variables(text)
            inner: Iterator[list[Piece]] = (
                [piece] if isinstance(piece, SecretVariable) else _bodies(piece) for piece in outer
            )
            return [piece for pieces in inner for piece in pieces]
        except ExpressionError as error:
            self.tell(error.code, error.message, at, error.hint)
            return []

    def source(self, piece: Piece, at: str) -> ValueSource:
        """The source of one piece."""
        if isinstance(piece, SecretVariable):
            return constant_source(self.looked_up(piece, at), at, secret=True)
        return constant_source(piece, at) if isinstance(piece, str) else self._expression(piece.source, at)

    def looked_up(self, variable: SecretVariable, at: str, *, secret: bool = True) -> str:
        """The value of a variable; its default or `STAND_IN` while variables are not resolved.

        Raises:
            MissingSecret: The variable is not set.
        """
        self.has_secrets = self.has_secrets or secret
        if self._secrets is None:
            return STAND_IN if variable.default is None else variable.default
        try:
            return self._secrets.look_up(variable, secret=secret)
        except MissingSecret as error:
            raise error.at(at) from None

    def hide(self, secret: str) -> None:
        """Register a part of a resolved value to be masked."""
        self.has_secrets = self.has_secrets or bool(secret)
        if self._secrets is not None:
            self._secrets.register(secret)

    def joined(self, parts: list[str | ValueSource], at: str) -> ValueSource:
        """The source of an interpolated text. Every argument in it is required."""
        sources = [part for part in parts if isinstance(part, ValueSource)]
        for source in sources:
            self.expect(source)

        def read(arguments: Arguments) -> str:
            return "".join(
                [part if isinstance(part, str) else interpolated_text(part, arguments) for part in parts]
            )

        secret = any(source.secret for source in sources)
        if all(source.constant for source in sources):
            return constant_source(read({}), at, secret=secret)
        reads = tuple(dict.fromkeys(name for source in sources for name in source.reads))
        return ValueSource(at, read, reads=reads, secret=secret, parts=tuple(parts))

    def structure(self, value: JSON, at: str) -> ValueSource:
        """The source of any JSON value. Members and items that are absent arguments are omitted."""
        if isinstance(value, dict):
            for key in value:
                self._check_key(key, at)
            return self._object(
                {key: self.structure(item, child_pointer(at, key)) for key, item in value.items()}, at
            )
        if isinstance(value, list):
            return self._list([self.structure(item, f"{at}/{place}") for place, item in enumerate(value)], at)
        return self.of(value, at)

    def _object(self, members: dict[str, ValueSource], at: str) -> ValueSource:
        if all(source.constant for source in members.values()):
            return _container({key: source.value for key, source in members.items()}, members.values(), at)
        reading = [(key, source.read) for key, source in members.items()]

        def read(arguments: Arguments) -> JSON:
            made: dict[str, JSON] = {}
            for key, work_out in reading:
                value = work_out(arguments)
                if value is not ABSENT:
                    made[key] = value
            return made

        return _container(None, members.values(), at, read)

    def _list(self, items: list[ValueSource], at: str) -> ValueSource:
        if all(source.constant for source in items):
            return _container([source.value for source in items], items, at)
        reading = [source.read for source in items]

        def read(arguments: Arguments) -> JSON:
            return [value for work_out in reading if (value := work_out(arguments)) is not ABSENT]

        return _container(None, items, at, read)

    def _check_key(self, key: str, at: str) -> None:
        if "{{" in key or "${" in key:
            hint = "write an object with computed keys as `{{ {args.name: 1} }}`"
            message = "keys are literal text and cannot be computed"
            self.tell("expression_not_allowed", message, child_pointer(at, key), hint)

    def expect(self, source: ValueSource) -> None:
        """Warn about an argument that is required here but optional in the input schema."""
        if source.path and not self._always_given(source.path):
            name = ".".join(source.path)
            self.tell(
                "optional_in_path",
                f"`{name}` is required here but optional in the input schema",
                source.at,
                f"add `{source.path[-1]}` to `required`, or give it a `default`; calls without it are refused",
                severity="warning",
            )

    def _expression(self, written: str, at: str) -> ValueSource:
        watch = ArgumentReads(self._known)
        try:
            expression = compile_expression(written, watch.names)
            if not expression.names:
                return constant_source(expression.evaluate({}), at)
        except ExpressionError as error:
            self.tell(error.code, error.message, at, error.hint)
            return constant_source("", at)
        reads = tuple(watch.keys)
        self.read.update(reads)
        self.whole = self.whole or watch.whole
        # With a plain path, an absent argument omits the value; in another expression it is an error.
        path = _path_of(written)
        source = ValueSource(at, lambda _arguments: ABSENT, reads=reads, path=path)
        return source._replace(read=_reader(source, expression))

    def _always_given(self, path: tuple[str, ...]) -> bool:
        schema: JSON = self.tool.input_schema
        for name in path:
            if not isinstance(schema, dict):
                return False
            inner = property_schema(schema, name)
            required = schema.get("required")
            listed = isinstance(required, list) and name in required
            # A default counts, because the arguments layer inserts it before the call.
            if not listed and not (isinstance(inner, dict) and "default" in inner):
                return False
            schema = inner
        return True


def _container(
    value: JSON, inner: Iterable[ValueSource], at: str, read: ReadValue | None = None
) -> ValueSource:
    """The source of a list or object; constant unless it has `read`."""
    sources = tuple(inner)
    secret = any(source.secret for source in sources)
    if read is None:
        return constant_source(value, at, secret=secret)._replace(inner=sources)
    reads = tuple(dict.fromkeys(name for source in sources for name in source.reads))
    return ValueSource(at, read, reads=reads, secret=secret, inner=sources)


def child_pointer(at: str, key: str) -> str:
    """The pointer of a member."""
    return f"{at}/{pointer_step(key)}"


def interpolated_text(source: ValueSource, arguments: Arguments) -> str:
    """A value within a longer text: scalars as text, lists and objects as JSON.

    Raises:
        UnusableArguments: The value is absent or null.
    """
    value = source.read(arguments)
    if isinstance(value, str):
        return value
    if value is ABSENT or value is None:
        raise missing_value_error(source, value)
    text = scalar_text(value)
    return json_text(value, source) if text is None else text


def missing_value_error(source: ValueSource, value: object) -> UnusableArguments:
    """The error for an absent or null value that cannot be omitted."""
    why = "is required by this call" if value is ABSENT else "is null, but this call needs a value"
    return source.misfit(why, "provide a value")


def json_text(value: JSON, source: ValueSource) -> str:
    """A value as compact JSON, with its keys in their own order.

    Raises:
        UnusableArguments: The value is not JSON: a number is not finite, a text contains a lone surrogate, or
            it is nested too deeply.
    """
    try:
        return compact(value)
    except ValueError as error:
        raise source.misfit(f"cannot be sent: {error}") from None


def _bodies(piece: str) -> list[Piece]:
    return [
        ExpressionBody(unescape_dollars(part.source))
        if isinstance(part, ExpressionBody)
        else unescape_dollars(part)
        for part in split(piece)
    ]


def _path_of(written: str) -> tuple[str, ...]:
    if _PATH.fullmatch(written) is None:
        return ()
    return tuple(name or quoted[1:-1] for name, quoted in _STEP.findall(written))


def _reader(source: ValueSource, expression: Expression) -> ReadValue:
    # The most common expression, `{{ args.name }}`, needs no evaluation.
    if len(source.path) == 1:
        name = source.path[0]
        return lambda arguments: arguments.get(name, ABSENT)

    def computed(arguments: Arguments) -> JSON:
        try:
            return expression.evaluate({"args": arguments})
        except ExpressionError as error:
            raise _failed(source, error, arguments) from None

    return _by_steps(source.path, computed) if source.path else computed


def _by_steps(path: tuple[str, ...], computed: ReadValue) -> ReadValue:
    def read(arguments: Arguments) -> Any:
        value: JSON = arguments
        for name in path:
            if value is None:
                return ABSENT
            # The expression itself raises the proper error.
            if not isinstance(value, dict):
                return computed(arguments)
            if name not in value:
                return ABSENT
            value = value[name]
        return value

    return read


def _failed(source: ValueSource, error: ExpressionError, arguments: Mapping[str, JSON]) -> UnusableArguments:
    """The error for a failed expression. If an argument is absent, that is the reason to report."""
    absent = next((name for name in source.reads if name not in arguments), None)
    if absent is not None:
        return missing_value_error(source._replace(path=(absent,)), ABSENT)
    return source.misfit(f"cannot be computed: {error.message}", error.hint)
