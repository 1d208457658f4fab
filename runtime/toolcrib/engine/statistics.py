"""Statistics of finished calls: counts by outcome, code, tool, caller and user, and percentiles of durations.

A successful call costs one entry of a list. The entries are counted when there are many of them, or when someone reads the
statistics. What is kept depends on the number of tools, callers and users, and not on the number of calls.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import pack, unpack
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from toolcrib.core.clock import RealClock
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, Descriptor, Outcome, Result

if TYPE_CHECKING:
    from datetime import datetime

    from toolcrib.core.protocols import Clock
    from toolcrib.engine.middleware.layer import SharedState

FORMAT: Final = 1
"""Version of the JSON document."""

PERCENTILES: Final = (50, 90, 99)

BATCH: Final = 1024
"""Number of calls after which successful calls are counted."""

# A duration is counted under the upper half of its 32-bit float: sign, exponent and seven bits of the mantissa. A bucket is
# thus at most 1/128 wide, in relation to its durations, and its middle is at most 0.4 % away from any of them. All
# durations between a nanosecond and a day fall into 6,000 buckets. Histograms of several processes are merged by adding
# counts, since their buckets are the same. No duration is converted one by one.
_UPPER: Final = slice(1, None, 2) if sys.byteorder == "little" else slice(0, None, 2)


class DurationHistogram:
    """Counts durations in buckets whose widths are proportional to the durations.

    Attributes:
        buckets: Bucket -> number of durations.
    """

    __slots__ = ("buckets",)

    def __init__(self, buckets: Mapping[int, int] | None = None) -> None:
        self.buckets: Counter[int] = Counter(buckets)

    def add(self, durations: Sequence[float]) -> None:
        """Count durations in seconds."""
        # `pack` takes half as long as an array of the same floats.
        floats = memoryview(pack(f"{len(durations)}f", *durations))
        self.buckets.update(floats.cast("H")[_UPPER].tolist())

    def merge(self, other: DurationHistogram) -> None:
        """Add the durations of another histogram."""
        self.buckets.update(other.buckets)

    @property
    def count(self) -> int:
        """Number of durations."""
        return self.buckets.total()

    @property
    def total(self) -> float:
        """Sum of all durations in seconds, within 0.4 %."""
        return sum(_middle(bucket) * count for bucket, count in self.buckets.items())

    def percentile(self, percent: float) -> float | None:
        """The duration in seconds that this share of calls did not exceed, within 0.4 %; None without calls."""
        rank = max(1, math.ceil(self.count * percent / 100))
        for bucket in sorted(self.buckets):
            rank -= self.buckets[bucket]
            if rank <= 0:
                return _middle(bucket)
        return None


def _middle(bucket: int) -> float:
    if bucket == 0:  # on virtual time, most calls take no time at all
        return 0.0
    lower, middle = unpack(">ff", bytes((bucket >> 8, bucket & 255, 0, 0, bucket >> 8, bucket & 255, 128, 0)))
    assert lower <= middle  # noqa: S101 -- durations are not negative
    return float(middle)


class CallSeries:
    """The calls of one tool by one caller for one user.

    Attributes:
        pending: Durations of successful calls that were not counted yet. Appending is atomic. A list,
            because an array takes five times as long to append to.
        outcomes: (outcome, code) -> number of calls. The code of a successful call is empty.
        durations: Durations of all calls.
        cached: Number of calls that the response cache answered.
    """

    __slots__ = ("_counted", "cached", "durations", "outcomes", "pending")

    def __init__(self) -> None:
        self.pending: list[float] = []
        self.clear()

    def clear(self) -> None:
        """Forget all calls."""
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.durations = DurationHistogram()
        self.cached = 0

    def settle(self) -> None:
        """Count the pending calls; the caller holds the lock."""
        batch = self.pending.copy()
        if batch:
            # Other threads may have appended meanwhile.
            del self.pending[: len(batch)]
            self.outcomes[Outcome.OK.value, ""] += len(batch)
            self.durations.add(batch)

    def add(self, result: Result) -> None:
        """Count a call; the caller holds the lock."""
        code = "" if result.error is None else result.error.code
        self.outcomes[result.outcome.value, code] += 1
        self.durations.add((result.usage.duration,))
        self.cached += "cache" in result.meta


class StatisticsRow(NamedTuple):
    """The calls of one tool by one caller for one user.

    Attributes:
        tool: Name of the tool; empty for calls of tools that do not exist.
        caller: Agent, interface or program that called; empty if unknown.
        user: User on whose behalf it called; empty if unknown.
        outcomes: (outcome, code) -> number of calls. The code of a successful call is empty.
        durations: Durations of the calls.
        cached: Number of calls that the response cache answered.
    """

    tool: str
    caller: str
    user: str
    outcomes: Mapping[tuple[str, str], int]
    durations: DurationHistogram
    cached: int


class Totals(NamedTuple):
    """A summary of some calls.

    Attributes:
        calls: Number of calls.
        outcomes: Outcome -> number of calls.
        codes: Error code -> number of calls that failed with it.
        cached: Number of calls that the response cache answered.
        durations: Durations of the calls.
    """

    calls: int
    outcomes: Mapping[str, int]
    codes: Mapping[str, int]
    cached: int
    durations: DurationHistogram

    def as_json(self) -> dict[str, JSON]:
        """Return the summary as a JSON object, with durations in seconds."""
        return {
            "calls": self.calls,
            "outcomes": {**self.outcomes},
            "codes": {**self.codes},
            "cached": self.cached,
            "duration": {
                "total": round(self.durations.total, 6),
                **{f"p{percent}": self.durations.percentile(percent) for percent in PERCENTILES},
            },
        }


class Statistics(NamedTuple):
    """The finished calls of a runtime up to a moment, or of several runtimes.

    Every call is counted once, including calls of unknown tools and calls that were denied.

    Attributes:
        since: When counting began, in UTC.
        until: When these statistics were taken.
        rows: The calls by tool, caller and user, sorted.
        violations: Number of violations of access; in audit mode, also of calls that were made nevertheless.
    """

    since: datetime
    until: datetime
    rows: tuple[StatisticsRow, ...] = ()
    violations: int = 0

    def __repr__(self) -> str:
        """Describe the content, such as `Statistics(1,204 calls of 12 tools, 3 denied)`."""
        tools = len({row.tool for row in self.rows if row.tool})
        return f"Statistics({self.calls:,} calls of {tools} tools, {self.denials} denied)"

    @property
    def calls(self) -> int:
        """Number of calls."""
        return self.totals.calls

    @property
    def denials(self) -> int:
        """Number of calls with the outcome `denied`."""
        return self.totals.outcomes.get(Outcome.DENIED.value, 0)

    @property
    def cached(self) -> int:
        """Number of calls that the response cache answered."""
        return self.totals.cached

    @property
    def totals(self) -> Totals:
        """All calls."""
        return _totals(self.rows)

    @property
    def tools(self) -> dict[str, Totals]:
        """The calls by tool; those of tools that do not exist have the name ''."""
        return self._by("tool")

    @property
    def callers(self) -> dict[str, Totals]:
        """The calls by caller."""
        return self._by("caller")

    @property
    def users(self) -> dict[str, Totals]:
        """The calls by user."""
        return self._by("user")

    def _by(self, key: str) -> dict[str, Totals]:
        groups: dict[str, list[StatisticsRow]] = {}
        for row in self.rows:
            groups.setdefault(getattr(row, key), []).append(row)
        return {name: _totals(groups[name]) for name in sorted(groups)}

    def merge(self, *others: Statistics) -> Statistics:
        """Return the statistics of this and other runtimes together, such as those of several processes."""
        every = (self, *others)
        rows: dict[tuple[str, str, str], StatisticsRow] = {}
        for row in (row for each in every for row in each.rows):
            key = (row.tool, row.caller, row.user)
            known = rows.get(key)
            if known is None:
                known = rows[key] = row._replace(outcomes=Counter(), durations=DurationHistogram(), cached=0)
            outcomes = Counter(known.outcomes)
            outcomes.update(row.outcomes)
            known.durations.merge(row.durations)
            rows[key] = known._replace(outcomes=outcomes, cached=known.cached + row.cached)
        return Statistics(
            since=min(each.since for each in every),
            until=max(each.until for each in every),
            rows=tuple(rows[key] for key in sorted(rows)),
            violations=sum(each.violations for each in every),
        )

    def as_json(self) -> dict[str, Any]:
        """Return the statistics as a JSON object, which `from_json` reads. Durations are in seconds."""
        return {
            "format": FORMAT,
            "since": self.since.isoformat(),
            "until": self.until.isoformat(),
            "violations": self.violations,
            **self.totals.as_json(),
            **{
                name: {key: totals.as_json() for key, totals in self._by(name.removesuffix("s")).items()}
                for name in ("tools", "callers", "users")
            },
            "rows": [
                {
                    "tool": row.tool,
                    "caller": row.caller,
                    "user": row.user,
                    "outcomes": [[*key, count] for key, count in sorted(row.outcomes.items())],
                    "cached": row.cached,
                    "buckets": [[*entry] for entry in sorted(row.durations.buckets.items())],
                }
                for row in self.rows
            ],
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Statistics:
        """Read what `as_json` returned.

        Raises:
            ConfigurationError: The document is no such object, or of a newer version.
        """
        from datetime import datetime  # noqa: PLC0415 -- few programs read statistics

        try:
            if document["format"] != FORMAT:
                raise ConfigurationError(
                    f"the statistics have format {document['format']!r}, and this version of toolcrib reads {FORMAT}"
                )
            return cls(
                since=datetime.fromisoformat(document["since"]),
                until=datetime.fromisoformat(document["until"]),
                violations=int(document["violations"]),
                rows=tuple(
                    StatisticsRow(
                        tool=str(row["tool"]),
                        caller=str(row["caller"]),
                        user=str(row["user"]),
                        outcomes={(str(o), str(code)): int(count) for o, code, count in row["outcomes"]},
                        durations=DurationHistogram(
                            {int(bucket): int(count) for bucket, count in row["buckets"]}
                        ),
                        cached=int(row["cached"]),
                    )
                    for row in document["rows"]
                ),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(
                f"the document does not contain statistics of toolcrib: {type(error).__name__}: {error}",
                hint="pass what `Statistics.as_json` returned",
            ) from None

    def as_csv(self) -> str:
        """Return a table with a header: one line for each tool, caller, user, outcome and code.

        The percentiles, in seconds, are those of all calls with the same tool, caller and user.
        """
        import csv  # noqa: PLC0415 -- few programs export
        import io  # noqa: PLC0415 -- as above

        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = [f"p{percent}" for percent in PERCENTILES]
        writer.writerow(["tool", "caller", "user", "outcome", "code", "calls", *names])
        for row in self.rows:
            shares = [row.durations.percentile(percent) for percent in PERCENTILES]
            for (outcome, code), count in sorted(row.outcomes.items()):
                writer.writerow([row.tool, row.caller, row.user, outcome, code, count, *shares])
        return text.getvalue()

    def as_prometheus(self) -> str:
        """Return the statistics in the text format of Prometheus (version 0.0.4)."""
        lines = [
            "# HELP toolcrib_calls_total Finished calls.",
            "# TYPE toolcrib_calls_total counter",
        ]
        for row in self.rows:
            for (outcome, code), count in sorted(row.outcomes.items()):
                labels = _labels(tool=row.tool, caller=row.caller, user=row.user, outcome=outcome, code=code)
                lines.append(f"toolcrib_calls_total{labels} {count}")
        lines += [
            "# HELP toolcrib_call_duration_seconds Durations of calls, with queueing and all attempts.",
            "# TYPE toolcrib_call_duration_seconds summary",
        ]
        tools = self.tools
        for tool, totals in tools.items():
            for percent in PERCENTILES:
                labels = _labels(tool=tool, quantile=f"{percent / 100:g}")
                lines.append(
                    f"toolcrib_call_duration_seconds{labels} {totals.durations.percentile(percent)!r}"
                )
            labels = _labels(tool=tool)
            lines.append(f"toolcrib_call_duration_seconds_sum{labels} {totals.durations.total!r}")
            lines.append(f"toolcrib_call_duration_seconds_count{labels} {totals.calls}")
        lines += [
            "# HELP toolcrib_cache_hits_total Calls that the response cache answered.",
            "# TYPE toolcrib_cache_hits_total counter",
            *(
                f"toolcrib_cache_hits_total{_labels(tool=tool)} {totals.cached}"
                for tool, totals in tools.items()
            ),
            "# HELP toolcrib_access_violations_total Calls that access refused, or would have refused in audit mode.",
            "# TYPE toolcrib_access_violations_total counter",
            f"toolcrib_access_violations_total {self.violations}",
        ]
        return "\n".join(lines) + "\n"


_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def _labels(**labels: str) -> str:
    return "{" + ",".join(f'{name}="{text.translate(_ESCAPES)}"' for name, text in labels.items()) + "}"


def _totals(rows: Iterable[StatisticsRow]) -> Totals:
    outcomes: Counter[str] = Counter()
    codes: Counter[str] = Counter()
    durations = DurationHistogram()
    cached = 0
    for row in rows:
        for (outcome, code), count in row.outcomes.items():
            outcomes[outcome] += count
            if code:
                codes[code] += count
        durations.merge(row.durations)
        cached += row.cached
    calls = outcomes.total()
    return Totals(calls, dict(sorted(outcomes.items())), dict(sorted(codes.items())), cached, durations)


ENOUGH: Final = 20
"""Number of observed calls from which on their durations replace a declared one."""


class ObservedValue:
    """A value that was observed in the successful calls of a tool.

    Attributes:
        count: Number of observations.
        least: The smallest one.
    """

    __slots__ = ("_histogram", "count", "least")

    def __init__(self) -> None:
        self._histogram = DurationHistogram()
        self.count = 0
        self.least = math.inf

    def add(self, value: float) -> None:
        """Add an observation."""
        self._histogram.add((value,))
        self.count += 1
        self.least = min(self.least, value)

    def percentile(self, percent: float) -> float | None:
        """The value that this share of calls did not exceed, within 0.4 %; None without observations."""
        return self._histogram.percentile(percent)

    def proves_more_than(self, limit: float) -> bool:
        """Whether enough calls were observed, and all of them exceeded a limit."""
        return self.count >= ENOUGH and self.least > limit


class ToolObservations:
    """What was observed in the successful calls of a tool.

    Attributes:
        duration: Seconds.
        output: Bytes of the results, as compact JSON.
        cost: US dollars that budgets were told.
        probed: When a call was last made although an estimate would have refused it.
    """

    __slots__ = ("cost", "duration", "output", "probed")

    def __init__(self) -> None:
        self.duration, self.output, self.cost = ObservedValue(), ObservedValue(), ObservedValue()
        self.probed: float | None = None


OBSERVATIONS: Final = "observations of "
"""Beginning of the names of `ToolObservations` in the state that calls share."""


def observations_of(shared: SharedState, tool: str, clock: Clock) -> ToolObservations:
    """What was observed in the calls of a tool on a clock."""
    return shared.slot(OBSERVATIONS + tool, ToolObservations, clock)


class EstimatedValue(NamedTuple):
    """An expected value, and where it comes from.

    Attributes:
        value: The value; None if nothing is known.
        source: `declared` by the descriptor, `observed` in calls, or `unknown`.
        observations: Number of calls in which it was observed, whatever the source.
        declared: What the descriptor declares; None if it declares nothing.
    """

    value: float | None
    source: Literal["declared", "observed", "unknown"]
    observations: int = 0
    declared: float | None = None


class CallEstimate(NamedTuple):
    """The expected use of one call of a tool.

    Attributes:
        tool: Name of the tool.
        duration: Seconds. Observed is the duration that 90 % of the calls in the statistics did not exceed. It counts from
            20 calls on, and before that if the descriptor declares nothing.
        cost: US dollars, likewise observed: a budget whose `amount` is `"{{ estimate.cost }}"` and that has `actual` knows
            what calls have cost.
        output: Size of the result in bytes, likewise observed. It is measured if a document declares `estimate.output` or
            `limits.output_size`.
    """

    tool: str
    duration: EstimatedValue
    cost: EstimatedValue
    output: EstimatedValue

    def as_json(self) -> dict[str, JSON]:
        """Return the estimate as a JSON object."""
        values: dict[str, JSON] = {
            name: getattr(self, name)._asdict() for name in ("duration", "cost", "output")
        }
        return {"tool": self.tool, **values}


def estimate_of(tool: Descriptor, statistics: Statistics, seen: ToolObservations) -> CallEstimate:
    """The expected use of one call, from the descriptor and from the calls that have ended."""
    durations = _totals(row for row in statistics.rows if row.tool == tool.name).durations
    declared = tool.estimate
    return CallEstimate(
        tool.name,
        _merged(declared.duration, durations.percentile(90), durations.count),
        _merged(declared.cost, seen.cost.percentile(90), seen.cost.count),
        _merged(declared.output, seen.output.percentile(90), seen.output.count),
    )


def _merged(declared: float | None, observed: float | None, count: int) -> EstimatedValue:
    if observed is None or (declared is not None and count < ENOUGH):
        return _declared(declared)._replace(observations=count)
    return EstimatedValue(observed, "observed", count, declared)


def _declared(value: float | None) -> EstimatedValue:
    return EstimatedValue(value, "unknown" if value is None else "declared", declared=value)


class CallStatistics:
    """Counts the calls of one runtime, in any thread."""

    def __init__(self) -> None:
        # Reentrant: the garbage collector may close a call in this thread, which is then counted.
        self._lock = RLock()
        self._series: dict[tuple[str, str, str], CallSeries] = {}
        self._since = RealClock().now()
        self._violations = 0

    def series(self, tool: str, caller: str, user: str) -> CallSeries:
        """The series of a tool, a caller and a user. It stays the same for the life of the runtime."""
        key = (tool, caller, user)
        found = self._series.get(key)
        return self._series.setdefault(key, CallSeries()) if found is None else found

    def add(self, series: CallSeries, result: Result) -> None:
        """Count a call."""
        with self._lock:
            series.add(result)

    def add_violation(self) -> None:
        """Count a violation of access."""
        with self._lock:
            self._violations += 1

    def settle(self) -> None:
        """Count the pending calls."""
        with self._lock:
            for series in tuple(self._series.values()):
                series.settle()

    def taken(self, *, reset: bool = False) -> Statistics:
        """The statistics up to now.

        Args:
            reset: Whether to start anew. No call is lost between the two.
        """
        with self._lock:
            now = RealClock().now()
            taken = Statistics(self._since, now, tuple(self._rows()), self._violations)
            if reset:
                self._since, self._violations = now, 0
                for series in self._series.values():
                    series.clear()
        return taken

    def _rows(self) -> Iterator[StatisticsRow]:
        for key, series in sorted(self._series.items()):
            series.settle()
            if series.outcomes:
                durations = DurationHistogram(series.durations.buckets)
                yield StatisticsRow(*key, Counter(series.outcomes), durations, series.cached)
