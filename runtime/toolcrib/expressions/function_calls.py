"""The listed functions, applied: `value | name` and `name(value)` are the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

from toolcrib.core.errors import ExpressionError, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.expressions.budget import FREE, SIZED, visit, visit_all
from toolcrib.expressions.compiler import Part, Reader, combined
from toolcrib.expressions.functions import FUNCTIONS, Function
from toolcrib.expressions.random_functions import COUNTS
from toolcrib.expressions.values import Run, Scope, list_of_names, shortened

INSTEAD: Mapping[str, str] = {
    "attr": "`a.name` or `a['name']`",
    "count": "`length`, or `count_of(value)` for equal elements",
    "d": "`default`",
    "dictsort": "`items` and `sort`",
    "format": "`~`, which joins texts",
    "json": "`tojson`",
    "len": "`length`",
    "map": "`pluck('field')`",
    "select": "`where(field=value)`",
    "selectattr": "`where(field=value)`",
    "size": "`length`",
    "sorted": "`sort`",
    "str": "`string`",
    "strip": "`trim`",
    "to_json": "`tojson`",
    "toJson": "`tojson`",
}
"""Names that people bring from elsewhere -> what to write here."""


def apply(reader: Reader, name: str, parts: Sequence[Part], fields: Sequence[str] = ()) -> Part:
    """A function with its values.

    Args:
        reader: What compiles the expression around it.
        name: The function.
        parts: Its values, that before the bar first, those of named arguments last.
        fields: The names of the named arguments.

    Raises:
        ExpressionError: There is no such function, or it takes other values.
    """
    function = known_function(name)
    check_shape(name, function, len(parts) - len(fields), fields)
    if function.source:
        return _drawn(reader, name, function, [part.run for part in parts])
    count = _COUNTS[function.goes]
    if function.goes == "one" and len(parts) == 1:
        part = combined(lambda only: _applied_through(function.run, only), *parts)
    elif count is None:
        part = combined(lambda *runs: _applied(function.run, runs, fields), *parts)
    else:
        counts = [None if part.constant else count for part in parts]
        part = combined(lambda *runs: _applied(function.run, _counted(runs, counts), fields), *parts)
    keys = parts[0].keys if parts else None
    if keys is None or name not in _GIVES:
        return part
    return part._replace(keys=keys if _GIVES[name] == "all" else keys.below(None))


_GIVES: Mapping[str, Literal["all", "one"]] = {
    "find": "one",
    "first": "one",
    "last": "one",
    "reverse": "all",
    "sort": "all",
    "unique": "all",
    "values": "all",
    "where": "all",
}
"""Function -> whether it gives elements of its first value, or one of them."""


def _drawn(reader: Reader, name: str, function: Function, runs: list[Run]) -> Part:
    """A function that is not pure: it asks what the scope provides for it, and is never worked out before."""
    source, draw = function.source, function.run
    place = reader.provided(source, name)
    if source == COUNTS:
        return Part(lambda scope: draw(scope[source], *[run(scope) for run in runs]))
    return Part(lambda scope: draw(cast("Any", scope[source])(place), *[run(scope) for run in runs]))


def known_function(name: str) -> Function:
    """The function of a name; `unknown_function` where there is none."""
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name in INSTEAD:
        hint = f"write {INSTEAD[name]}"
    else:
        hint = (
            did_you_mean(name, FUNCTIONS)
            or f"the functions are {list_of_names(sorted(FUNCTIONS), len(FUNCTIONS))}"
        )
    raise ExpressionError(f"there is no function `{shortened(name)}`", code="unknown_function", hint=hint)


def check_shape(name: str, function: Function, given: int, fields: Sequence[str]) -> None:
    """Refuse what a function does not take; `given` counts the values without those of `fields`."""
    if len(set(fields)) < len(fields):
        raise ExpressionError(f"`{name}` got a named argument twice", code="expression_syntax")
    if fields and function.fields == "no":
        raise ExpressionError(
            f"`{name}` takes no named arguments, and got {list_of_names(list(fields))}",
            code="expression_syntax",
        )
    if not fields and function.fields == "must":
        hint = f"as in `list | {name}(field=value)`"
        raise ExpressionError(f"`{name}` needs a field and its value", code="expression_syntax", hint=hint)
    least, most = function.least, function.most
    if function.fields == "either":
        least = most = 1 if fields else 2
    if given < least or (most is not None and given > most):
        wanted = f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        raise ExpressionError(
            f"`{name}` takes {wanted} values, the one before the bar included, not {given}",
            code="expression_syntax",
            hint=function.summary,
        )


def _applied_through(function: Callable[[JSON], JSON], only: Run) -> Run:
    """A function of one value that goes through it: most of those that texts and lists are piped to."""

    def run(scope: Scope) -> JSON:
        value = only(scope)
        if type(value) in SIZED and len(value) > FREE:  # type: ignore[arg-type]
            visit(scope, cast("Any", value))
        return function(value)

    return run


def _counted(runs: Sequence[Run], counts: Sequence[Callable[[Run], Run] | None]) -> list[Run]:
    return [run if count is None else count(run) for run, count in zip(runs, counts, strict=True)]


def _through(run: Run) -> Run:
    """The same value, counted by what is in it."""

    def counted(scope: Scope) -> JSON:
        value = run(scope)
        if type(value) in SIZED and len(value) > FREE:  # type: ignore[arg-type]
            visit(scope, cast("Any", value))
        return value

    return counted


def _all_through(run: Run) -> Run:
    """The same value, counted by what is in it at every level."""

    def counted(scope: Scope) -> JSON:
        value = run(scope)
        if isinstance(value, dict | list):
            visit_all(scope, value)
        return value

    return counted


_COUNTS: Mapping[str, Callable[[Run], Run] | None] = {"no": None, "one": _through, "all": _all_through}
"""How far a function goes into its values -> what counts that."""


def _applied(run: Callable[..., JSON], runs: Sequence[Run], fields: Sequence[str]) -> Run:
    if fields:
        places, named = runs[: -len(fields)], list(zip(fields, runs[-len(fields) :], strict=True))
        return lambda scope: run(
            *[place(scope) for place in places], **{name: value(scope) for name, value in named}
        )
    if len(runs) == 1:
        (only,) = runs
        return lambda scope: run(only(scope))
    return lambda scope: run(*[place(scope) for place in runs])
