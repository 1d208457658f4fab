"""Simulated latency, as documents write it: fixed, from a range, or along a curve."""

from __future__ import annotations

import math
from collections.abc import Callable

from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import Problem
from toolcrib.core.model import Call

Latency = Callable[[Call, int], float]
"""Seconds of the answer to a call of a number; what is drawn is keyed by session, tool, number and attempt."""


def compile_latency(
    block: str | dict[str, str] | None, pointer: str, problems: list[Problem], *, purpose: str = "latency"
) -> Latency | None:
    """A duration, `{min, max}` (uniform) or `{median, p99, max?}` (log-normal); None for none.

    Args:
        block: As written; its shape is right.
        pointer: Where it stands.
        problems: Receives what is wrong with it.
        purpose: Tells what is drawn from what is drawn for something else in the same attempt.
    """
    if block is None:
        return None
    if isinstance(block, str):
        seconds = parse_duration(block)
        return lambda _call, _number: seconds
    from toolcrib.schema.generation import KeyedRandom  # noqa: PLC0415 -- slow to import, and rarely used

    def draw(call: Call, number: int) -> KeyedRandom:
        """The draw of one answer: an inserted call changes no other one's."""
        session = call.context.session
        return KeyedRandom(session.seed, session.id, call.tool.name, number, call.attempt, purpose)

    if "median" in block:
        from statistics import NormalDist  # noqa: PLC0415 -- as above

        median, p99 = _bounds(block, "median", "p99", pointer, problems)
        quantile = NormalDist().inv_cdf
        spread = math.log(p99 / median) / quantile(0.99) if median else 0.0
        longest = parse_duration(block["max"]) if "max" in block else math.inf
        return lambda call, number: min(
            longest, median * math.exp(spread * quantile(draw(call, number).number(0.0001, 0.9999)))
        )
    low, high = _bounds(block, "min", "max", pointer, problems)
    return lambda call, number: draw(call, number).number(low, high)


def _bounds(
    block: dict[str, str], lower: str, upper: str, pointer: str, problems: list[Problem]
) -> tuple[float, float]:
    low, high = parse_duration(block[lower]), parse_duration(block[upper])
    if low <= high:
        return low, high
    message = f"`{upper}` (`{block[upper]}`) is less than `{lower}` (`{block[lower]}`)"
    problems.append(
        Problem(code="out_of_range", message=message, pointer=f"{pointer}/{upper}", hint="swap them")
    )
    return high, low
