"""The arguments that a server gets: those of a call, with what the descriptor sets laid over them."""

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

_AT: Final = "/mcp/args"
_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_WHOLE: Final = re.compile(rf"\{{\{{\s*args\.({_NAME})\s*\}}\}}")


class _Absence(Enum):
    ABSENT = "absent"


_ABSENT: Final = _Absence.ABSENT

_Read: TypeAlias = Callable[[Arguments], Any]
"""Works out a JSON value, or `_ABSENT`; raises ExpressionError."""


class ArgumentOverlay(NamedTuple):
    """What a descriptor does to the arguments of its calls.

    Attributes:
        members: Argument -> what works it out.
        reads: The arguments of the call that are read for it.
        whole: Whether all of them are.
    """

    members: tuple[tuple[str, _Read], ...] = ()
    reads: tuple[str, ...] = ()
    whole: bool = False

    def over(self, given: Arguments) -> Arguments:
        """The arguments of a call as the server gets them. One that is set to an absent argument is left out.

        Raises:
            UnusableArguments: One of them can't be worked out.
        """
        if not self.members:
            return given
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


def compile_overlay(tool: Descriptor, problems: list[Problem]) -> ArgumentOverlay:
    """Compile `args` of the block.

    Args:
        tool: Whose block it is. Where its input schema is written and closed, names beyond it are a problem.
        problems: Receives every fault.
    """
    written: Any = tool.bindings["mcp"]
    args: Any = written.get("args", {})
    watch = ArgumentReads(closed_names(tool.input_schema) if "input_schema" in tool.origin.written else None)
    compile_value(args, watch.names, problems, _AT)
    members = tuple((name, _reader(value, f"{_AT}/{pointer_step(name)}")) for name, value in args.items())
    return ArgumentOverlay(members, tuple(watch.keys), watch.whole)


def fixed_names(block: Mapping[str, Any]) -> frozenset[str]:
    """The arguments that a block sets by itself, so that nobody else needs to know of them.

    One that is made of what the call gives under the same name is not among them.
    """
    args = block.get("args")
    if not isinstance(args, dict):
        return frozenset()
    watch = ArgumentReads(None)
    compile_value(args, watch.names, [])
    return frozenset(args) - frozenset(args if watch.whole else watch.keys)


def _reader(value: JSON, at: str) -> _Read:
    """What works a value out; members and items that are absent arguments are left out of it."""
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
