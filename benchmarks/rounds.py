"""Interleaved comparisons: alternating rounds, medians with their range, ratios with their confidence interval.

Every round runs each contender once, in rotating order, so that other load on the machine affects all of them equally.
"""

from __future__ import annotations

import argparse
import gc
import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

RESAMPLES = 2_000

MANY_ROUNDS = 1_000

STRICT = 1.3
"""A goal below this is judged by the interval of the ratio and needs at least `STRICT_ROUNDS`."""

STRICT_ROUNDS = 30

Round = Callable[[], float]
"""Runs one round of a contender and returns its duration in seconds."""


class Ratio(NamedTuple):
    """A ratio of times, with its range over the rounds and the 95 % interval of the median."""

    median: float
    least: float
    most: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{shown(self.median)} ({shown(self.least)} to {shown(self.most)})"


class Row(NamedTuple):
    """One line of the results.

    Attributes:
        measure: The measured operation.
        base: The operation that it is compared with.
        ours: Seconds of each round.
        theirs: Seconds of each round of the base.
        times: The goal: at most this ratio of times, or at least this speed-up for `faster`. None for no goal.
        faster: Whether `times` is a speed-up.
        unit: `s` for seconds, or `B` for bytes.
    """

    measure: str
    base: str
    ours: Sequence[float]
    theirs: Sequence[float]
    times: float | None
    faster: bool = False
    unit: Literal["s", "B"] = "s"

    def typical(self, measured: Sequence[float]) -> str:
        """The median of what was measured, in the unit that fits it."""
        median = statistics.median(measured)
        return spoken(median) if self.unit == "s" else f"{shown(median / 2**20)} MiB"

    @property
    def ratio(self) -> Ratio:
        """Ours over theirs, or theirs over ours for `faster`."""
        return ratio(self.theirs, self.ours) if self.faster else ratio(self.ours, self.theirs)

    @property
    def goal(self) -> str:
        """The goal as text; empty without one."""
        if self.times is None:
            return ""
        return f">= {shown(self.times)}x faster" if self.faster else f"<= {shown(self.times)}x"

    @property
    def verdict(self) -> str:
        """`reached`, `missed`, or `open` if the interval of a strict goal contains the goal; empty without a goal."""
        if self.times is None:
            return ""
        found = self.ratio
        if self.faster:
            return "reached" if found.median >= self.times else "missed"
        if self.times >= STRICT:
            return "reached" if found.median <= self.times else "missed"
        if len(self.ours) < STRICT_ROUNDS:
            return f"open: {len(self.ours)} rounds, {STRICT_ROUNDS} needed"
        return "reached" if found.high <= self.times else "missed" if found.low > self.times else "open"


class Leftovers(NamedTuple):
    """Resources that remain where none may remain: kind -> count."""

    measure: str
    counts: Mapping[str, int]

    def __str__(self) -> str:
        told = ", ".join(f"{count} {kind}" for kind, count in self.counts.items())
        return f"{self.measure}: {told} left: {'missed' if any(self.counts.values()) else 'reached'}"


def interleaved(
    contenders: Mapping[str, Round], rounds: int, *, collect_every: int = 1
) -> dict[str, list[float]]:
    """Name -> seconds of each round. The first round is a warm-up and not counted.

    Args:
        contenders: What is compared.
        rounds: Number of rounds.
        collect_every: Number of rounds between two garbage collections; short rounds need one less often.
    """
    times: dict[str, list[float]] = {name: [] for name in contenders}
    names = list(contenders)
    for number in range(rounds + 1):
        first = number % len(names)
        for name in names[first:] + names[:first]:
            if number % collect_every == 0:
                gc.collect()
            took = contenders[name]()
            if number:
                times[name].append(took)
    return times


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Ratio of the medians, with a bootstrap interval over the paired rounds."""
    chance = random.Random(1)
    pairs = list(zip(ours, theirs, strict=True))
    each = [mine / other for mine, other in pairs]
    resamples = RESAMPLES if len(pairs) <= MANY_ROUNDS else RESAMPLES // 10  # each takes long enough then
    found = sorted(_of_medians(chance.choices(pairs, k=len(pairs))) for _ in range(resamples))
    low, high = found[int(resamples * 0.025)], found[int(resamples * 0.975)]
    return Ratio(_of_medians(pairs), min(each), max(each), low, high)


def _of_medians(pairs: Sequence[tuple[float, float]]) -> float:
    return statistics.median(ours for ours, _ in pairs) / statistics.median(theirs for _, theirs in pairs)


def shown(number: float) -> str:
    """A number with three significant digits."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def spoken(seconds: float) -> str:
    """A time in a suitable unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{shown(seconds / size)} {unit}"
    return f"{shown(seconds * 1e9)} ns"


def print_rows(rows: Callable[[int], Iterable[Row]], description: str | None, default: int = 60) -> None:
    """The command line of a file with measures: print its rows.

    Args:
        rows: Measures so many rounds.
        description: The docstring of the file.
        default: The number of rounds, unless `--rounds` says otherwise.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int, default=default)
    for row in rows(parser.parse_args().rounds):
        print(line(row), flush=True)


def line(row: Row) -> str:
    """The row for a terminal."""
    found = row.ratio
    strict = row.times is not None and row.times < STRICT
    interval = f", 95 % interval {shown(found.low)} to {shown(found.high)}" if strict else ""
    judged = f"; goal {row.goal}: {row.verdict}" if row.goal else ""
    return (
        f"{row.measure}\n    {row.typical(row.ours)} vs {row.typical(row.theirs)} "
        f"({row.base}): {found}{interval}{judged}"
    )
