"""JMESPath: what requests, answers and assertions look for in values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, cast

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.core.pointers import keys_of

Select = Callable[[JSON], JSON]
"""Reshapes a value; raises ValueError where a function does not take what it is given."""


def compile_select(text: str, pointer: str, problems: list[Problem]) -> Select | None:
    """Compile a JMESPath expression; None where it can't be read, which is reported."""
    import jmespath  # noqa: PLC0415 -- most tools reshape nothing
    from jmespath.exceptions import JMESPathError  # noqa: PLC0415 -- as above

    try:
        compiled = jmespath.compile(text)
    except (JMESPathError, RecursionError) as error:
        problems.append(_unreadable(error, pointer))
        return None
    wrong = list(_wrong_functions(cast("dict[str, Any]", compiled.parsed), pointer))
    problems += wrong

    def select(value: JSON) -> JSON:
        try:
            selected: JSON = compiled.search(value)
        except _FAILURES as error:
            raise ValueError(_failed(error)) from None
        return selected

    return None if wrong else select


_FAILURES = (ValueError, TypeError, ArithmeticError, RecursionError)
"""What the library raises; its own errors are ValueErrors, others come from Python's comparisons and arithmetic."""

_SHAPE = "write a JMESPath expression such as `{name: user.name, tags: tags[*].label}`"


def _unreadable(error: Exception, pointer: str) -> Problem:
    position = getattr(error, "lex_position", None)
    where = "" if position is None else f" at character {position + 1}"
    message = f"`{keys_of(pointer)[-1]}` is not a valid JMESPath expression{where}"
    return Problem(code="bad_select", message=message, pointer=pointer, hint=_SHAPE)


def _wrong_functions(parsed: dict[str, Any], pointer: str) -> Iterator[Problem]:
    """What the library would tell only when the expression is used."""
    from jmespath.functions import Functions  # noqa: PLC0415 -- as above

    known: dict[str, Any] = Functions.FUNCTION_TABLE
    for name, given in _calls(parsed):
        if name not in known:
            hint = did_you_mean(name, known) or f"the functions are {', '.join(sorted(known))}"
            yield Problem(
                code="bad_select", message=f"unknown JMESPath function `{name}`", pointer=pointer, hint=hint
            )
            continue
        signature = known[name]["signature"]
        least, open_ended = len(signature), bool(signature) and bool(signature[-1].get("variadic"))
        if given < least or (given > least and not open_ended):
            message = f"`{name}` accepts {least}{' or more' if open_ended else ''} arguments, got {given}"
            yield Problem(code="bad_select", message=message, pointer=pointer, hint=_SHAPE)


def functions() -> Collection[str]:
    """The functions that there are in JMESPath."""
    from jmespath.functions import Functions  # noqa: PLC0415 -- most tools reshape nothing

    names: Collection[str] = Functions.FUNCTION_TABLE.keys()
    return names


def _calls(node: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """The functions that are called, each with how many arguments."""
    if node["type"] == "function_expression":
        yield node["value"], len(node["children"])
    for child in node["children"]:
        if isinstance(child, dict):  # bounds of a slice are numbers
            yield from _calls(child)


def _failed(error: Exception) -> str:
    name = getattr(error, "function_name", "")
    return f"invalid argument for `{name}`" if name else "invalid argument for a function"
