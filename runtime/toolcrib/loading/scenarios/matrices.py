"""The matrix of a scenario: its values, how many runs they make, and how each is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.core.text import compact
from toolcrib.expressions import compile_value

MOST_RUNS = 1000
"""Runs that one scenario may come to: every combination of its matrix, so often as it repeats."""

_LONGEST = 40
"""Characters of a value that is shown in the name of a run; a longer one is shown by its place."""


def parse_matrix(
    entry: Mapping[str, Any], repeat: int, problems: list[Problem]
) -> Mapping[str, tuple[JSON, ...]]:
    """The values of a matrix by their key. They are data: an expression in them reads nothing.

    Args:
        entry: As the document has it.
        repeat: How often each combination runs.
        problems: Receives what is wrong with it.
    """
    matrix = {
        key: tuple(
            compile_value(value, (), problems, f"/matrix/{key}/{index}").render({})
            for index, value in enumerate(values)
        )
        for key, values in entry.items()
    }
    message = too_many(matrix, repeat)
    if message:
        pointer = "/matrix" if matrix else "/repeat"
        problems.append(Problem(code="too_many_runs", message=message, pointer=pointer, hint=_FEWER))
    return matrix


_FEWER = "divide it into several scenarios, or repeat it less often"


def too_many(matrix: Mapping[str, Sequence[JSON]], repeat: int) -> str:
    """What is wrong with a number of runs; empty if they may be so many."""
    runs = prod(len(values) for values in matrix.values()) * repeat
    if runs <= MOST_RUNS:
        return ""
    factors = " x ".join(str(len(values)) for values in matrix.values()) or "1"
    return f"this comes to {runs:,} runs ({factors}, {repeat} times each); one scenario has at most {MOST_RUNS:,}"


def combinations(matrix: Mapping[str, Sequence[JSON]]) -> Iterator[tuple[str, dict[str, JSON]]]:
    """Every combination of a matrix, the last key changing fastest: how it is named, and its values by key."""
    named = [list(zip(_labels(key, values), values, strict=True)) for key, values in matrix.items()]
    for chosen in product(*named):
        yield (
            ",".join(label for label, _value in chosen),
            dict(zip(matrix, (value for _label, value in chosen), strict=True)),
        )


def _labels(key: str, values: Sequence[JSON]) -> list[str]:
    """`city=Oslo` for each value; by its place, `city=#2`, where it is long or shown like another one."""
    shown = [value if isinstance(value, str) else compact(value) for value in values]
    often = Counter(shown)
    return [
        f"{key}={text}"
        if often[text] == 1 and 0 < len(text) <= _LONGEST and text.isprintable()
        else f"{key}=#{place}"
        for place, text in enumerate(shown, start=1)
    ]
