"""JMESPath queries of requests, responses and assertions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, cast

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.core.pointers import keys_of

Select = Callable[[JSON], JSON]
"""Evaluates a query on a value; raises ValueError if a function receives an invalid argument."""


def compile_select(text: str, pointer: str, problems: list[Problem]) -> Select | None:
    """Compile a JMESPath expression; None if it is invalid, which is reported."""
    import jmespath  # noqa: PLC0415 -- most projects have no query
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
"""Exceptions of a search. jmespath's own are ValueErrors; the others escape from its comparisons and arithmetic."""

_SHAPE = "write a JMESPath expression such as `{name: user.name, tags: tags[*].label}`"


def _unreadable(error: Exception, pointer: str) -> Problem:
    position = getattr(error, "lex_position", None)
    where = "" if position is None else f" at character {position + 1}"
    message = f"`{keys_of(pointer)[-1]}` is not a valid JMESPath expression{where}"
    return Problem(code="bad_select", message=message, pointer=pointer, hint=_SHAPE)


def _wrong_functions(parsed: dict[str, Any], pointer: str) -> Iterator[Problem]:
    """Unknown functions and wrong numbers of arguments."""
    # jmespath itself reports these only when the query runs, which is too late for a load-time check.
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
            wanted = f"{least}{' or more' if open_ended else ''} argument{'' if least == 1 and not open_ended else 's'}"
            message = f"`{name}` accepts {wanted}, got {given}"
            yield Problem(code="bad_select", message=message, pointer=pointer, hint=_SHAPE)


def functions() -> Collection[str]:
    """The names of JMESPath's functions."""
    from jmespath.functions import Functions  # noqa: PLC0415 -- most projects have no query

    names: Collection[str] = Functions.FUNCTION_TABLE.keys()
    return names


def _calls(node: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """The functions that a query calls, each with its number of arguments."""
    if node["type"] == "function_expression":
        yield node["value"], len(node["children"])
    for child in node["children"]:
        if isinstance(child, dict):  # the bounds of a slice are plain numbers
            yield from _calls(child)


def _failed(error: Exception) -> str:
    name = getattr(error, "function_name", "")
    return f"invalid argument for `{name}`" if name else "invalid argument for a function"
