"""Compile simulated latency: a fixed duration, a range, or a log-normal distribution."""

from __future__ import annotations

import math
from collections.abc import Callable

from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import Problem
from toolcrib.core.model import Call

Latency = Callable[[Call, int], float]
"""Returns the latency in seconds for a call and its number."""


def compile_latency(
    block: str | dict[str, str] | None, pointer: str, problems: list[Problem], *, purpose: str = "latency"
) -> Latency | None:
    """Compile a duration, `{min, max}` (uniform) or `{median, p99, max?}` (log-normal); None for no latency.

    Args:
        block: The value in the document, which its schema has accepted.
        pointer: JSON Pointer of the value.
        problems: Receives every problem.
        purpose: Keeps the draws apart from other draws in the same attempt.
    """
    if block is None:
        return None
    if isinstance(block, str):
        seconds = parse_duration(block)
        return lambda _call, _number: seconds
    # Deferred: slow to import, and rarely used.
    from toolcrib.schema.generation import KeyedRandom  # noqa: PLC0415

    def draw(call: Call, number: int) -> KeyedRandom:
        # Keyed, not taken from a stream: an additional call does not change the latency of the others.
        session = call.context.session
        return KeyedRandom(session.seed, session.id, call.tool.name, number, call.attempt, purpose)

    if "median" in block:
        from statistics import NormalDist  # noqa: PLC0415

        median, p99 = _bounds(block, "median", "p99", pointer, problems)
        quantile = NormalDist().inv_cdf
        spread = math.log(p99 / median) / quantile(0.99) if median else 0.0
        longest = parse_duration(block["max"]) if "max" in block else math.inf
        # The quantile function is infinite at 0 and 1, so the draw stays between 0.01 % and 99.99 %.
        return lambda call, number: min(
            longest, median * math.exp(spread * quantile(draw(call, number).number(0.0001, 0.9999)))
        )
    low, high = _bounds(block, "min", "max", pointer, problems)
    return lambda call, number: draw(call, number).number(low, high)


def _bounds(
    block: dict[str, str], lower: str, upper: str, pointer: str, problems: list[Problem]
) -> tuple[float, float]:
    low, high = parse_duration(block[lower]), parse_duration(block[upper])
    # After the problem is reported, the bounds are swapped, so that the document can still be compiled.
    if low <= high:
        return low, high
    message = f"`{upper}` (`{block[upper]}`) is less than `{lower}` (`{block[lower]}`)"
    problems.append(
        Problem(code="out_of_range", message=message, pointer=f"{pointer}/{upper}", hint="swap them")
    )
    return high, low
