"""How long a mocked answer takes and what it reports on the way, all on the session's clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from toolcrib.clock import parse_duration
from toolcrib.errors import Problem
from toolcrib.executors.mock.scope import Scope, as_text
from toolcrib.model import Call, Progress
from toolcrib.rendering import Rendering, compile_value

Latency = Callable[[Call, int], float]
"""Seconds of the answer to a call of a number; what is drawn is keyed by session, tool, number and attempt."""


def compile_latency(
    block: str | dict[str, str] | None, pointer: str, problems: list[Problem]
) -> Latency | None:
    """A duration, `{min, max}` (uniform) or `{median, p99, max?}` (log-normal); None for none."""
    if block is None:
        return None
    if isinstance(block, str):
        seconds = parse_duration(block)
        return lambda _call, _number: seconds
    from toolcrib.generation import Draw  # noqa: PLC0415 -- slow to import, and rarely used

    def draw(call: Call, number: int) -> Draw:
        """The draw of one answer: an inserted call changes no other one's."""
        session = call.context.session
        return Draw(session.seed, session.id, call.tool.name, number, call.attempt, "latency")

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
    message = f"`{upper}` is `{block[upper]}`, less than `{lower}`, which is `{block[lower]}`"
    problems.append(
        Problem(code="out_of_range", message=message, pointer=f"{pointer}/{upper}", hint="exchange them")
    )
    return high, low


class Report(NamedTuple):
    """One progress report that a mock gives before it answers.

    Attributes:
        progress: How far the call is.
        total: How far it goes.
        message: A text for people.
        after: Seconds to wait before the report.
    """

    progress: float
    total: float | None
    message: Rendering
    after: float

    @property
    def names(self) -> frozenset[str]:
        """What the message reads of the scope."""
        return self.message.names

    def at(self, scope: Scope) -> Progress:
        """The report of one call."""
        return Progress(self.progress, self.total, as_text(self.message.render(scope)))


def compile_progress(
    block: list[dict[str, Any]], pointer: str, names: Collection[str], problems: list[Problem]
) -> tuple[Report, ...]:
    """The progress reports of a reply, in order."""
    return tuple(
        Report(
            progress=entry["progress"],
            total=entry.get("total"),
            message=compile_value(entry.get("message", ""), names, problems, f"{pointer}/{index}/message"),
            after=parse_duration(entry.get("after", "0s")),
        )
        for index, entry in enumerate(block)
    )
