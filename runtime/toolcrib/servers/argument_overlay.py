"""The arguments that a server or an agent receives: those of the call, overlaid with `args` of the descriptor."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib.core.errors import ExpressionError, Problem
from toolcrib.core.model import JSON, Descriptor
from toolcrib.core.pointers import pointer_step, pointer_to
from toolcrib.core.subschemas import closed_names
from toolcrib.expressions import compile_value
from toolcrib.expressions.compiler import ArgumentReads
from toolcrib.schema.validation.violations import UnusableArguments

Arguments: TypeAlias = "dict[str, JSON]"

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_WHOLE: Final = re.compile(rf"\{{\{{\s*args\.({_NAME})\s*\}}\}}")


class _Absence(Enum):
    ABSENT = "absent"


_ABSENT: Final = _Absence.ABSENT

_Read: TypeAlias = Callable[[Arguments], Any]
"""Computes a JSON value, or returns `_ABSENT`; raises ExpressionError."""


class ArgumentOverlay(NamedTuple):
    """The compiled `args` of a descriptor.

    Attributes:
        members: Name of an argument and the function that computes it.
        reads: The call's arguments that the expressions read.
        whole: Whether an expression reads `args` as a whole.
    """

    members: tuple[tuple[str, _Read], ...] = ()
    reads: tuple[str, ...] = ()
    whole: bool = False

    def over(self, given: Arguments) -> Arguments:
        """The arguments for the server. An argument that is set to an absent one is omitted.

        Raises:
            UnusableArguments: An argument cannot be computed.
        """
        if not self.members:
            return given
        # Arguments that an expression reads are inputs of the overlay; the server need not know their names.
        sent = {} if self.whole else {name: value for name, value in given.items() if name not in self.reads}
        for name, read in self.members:
            try:
                value = read(given)
            except ExpressionError as error:
                raise self._misfit(name, error, given) from None
            if value is not _ABSENT:
                sent[name] = value
        return sent

    def _misfit(self, name: str, error: ExpressionError, given: Arguments) -> UnusableArguments:
        absent = next((each for each in self.reads if each not in given), None)
        if absent is not None:
            message = f"`{absent}` is required by this call"
            return UnusableArguments(message, pointer=pointer_to((absent,)), hint="provide a value")
        return UnusableArguments(
            f"cannot compute `args.{name}` of the descriptor: {error.message}", hint=error.hint
        )


def compile_overlay(tool: Descriptor, mode: str, problems: list[Problem]) -> ArgumentOverlay:
    """Compile `args` of the block of a mode.

    Args:
        tool: The descriptor. If its own input schema is closed, reading an unknown argument is a problem.
        mode: The mode, such as `mcp`.
        problems: Receives every problem.
    """
    written: Any = tool.bindings[mode]
    at = f"/{mode}/args"
    args: Any = written.get("args", {})
    # Only a schema that the descriptor itself writes is known here: the server's schema arrives when it lists
    # its tools.
    watch = ArgumentReads(closed_names(tool.input_schema) if "input_schema" in tool.origin.written else None)
    compile_value(args, watch.names, problems, at)
    members = tuple((name, _reader(value, f"{at}/{pointer_step(name)}")) for name, value in args.items())
    return ArgumentOverlay(members, tuple(watch.keys), watch.whole)


def fixed_names(block: Mapping[str, Any]) -> frozenset[str]:
    """The arguments that a block sets itself, so that callers need not see them in the input schema.

    An argument that is computed from the call's argument of the same name is not included.
    """
    args = block.get("args")
    if not isinstance(args, dict):
        return frozenset()
    watch = ArgumentReads(None)
    compile_value(args, watch.names, [])
    return frozenset(args) - frozenset(args if watch.whole else watch.keys)


def _reader(value: JSON, at: str) -> _Read:
    """The function that computes a value; members and items that are absent arguments are omitted."""
    if isinstance(value, str):
        return _text_reader(value, at)
    if isinstance(value, dict):
        members = [(key, _reader(item, f"{at}/{pointer_step(key)}")) for key, item in value.items()]
        return lambda given: {key: made for key, read in members if (made := read(given)) is not _ABSENT}
    if isinstance(value, list):
        items = [_reader(item, f"{at}/{place}") for place, item in enumerate(value)]
        return lambda given: [made for read in items if (made := read(given)) is not _ABSENT]
    return lambda _given: value


def _text_reader(text: str, at: str) -> _Read:
    whole = _WHOLE.fullmatch(text)
    if whole is not None:
        name = whole[1]
        return lambda given: given.get(name, _ABSENT)
    if "{" not in text:
        return lambda _given: text
    rendering = compile_value(text, ("args",), [], at)
    return lambda given: rendering.render({"args": given})
