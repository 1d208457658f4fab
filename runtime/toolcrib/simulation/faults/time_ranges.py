"""`between`: from when to when a fault can happen."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import Problem
from toolcrib.core.protocols import CallSession

_DURATION = re.compile(r"[0-9]+(\.[0-9]+)?(ms|s|m|h|d)")
_HOURS = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?|24:00")


class Span(NamedTuple):
    """A stretch of time: its beginning belongs to it, its end does not.

    Attributes:
        low: Where it begins.
        high: Where it ends; before the beginning where it is a time over midnight.
        at: What time it is in a session, in the same measure.
    """

    low: float
    high: float
    at: Callable[[CallSession], float]

    def holds(self, session: CallSession) -> bool:
        """Whether it is time."""
        now = self.at(session)
        if self.low > self.high:
            return now >= self.low or now < self.high
        return self.low <= now < self.high


def compile_span(ends: list[str], pointer: str, problems: list[Problem]) -> Span:
    """Compile two ends of the same form: durations since the session began, times of day in UTC, or moments.

    Times of day may lead over midnight: the second is then the earlier one.
    """
    forms = [next((form for form in _FORMS if form.fits(end)), None) for end in ends]
    never = Span(0, 0, lambda _session: 0)
    for index, form in enumerate(forms):
        if form is None:
            message = f"`{ends[index]}` is neither a duration nor a time"
            problem = Problem(code="wrong_form", message=message, pointer=f"{pointer}/{index}", hint=_HINT)
            problems.append(problem)
    first, second = forms
    if first is None or second is None:
        return never
    if first is not second:
        message = f"`{ends[0]}` is {first.name} and `{ends[1]}` is {second.name}"
        problems.append(
            Problem(code="contradiction", message=message, pointer=pointer, hint="write both in one form")
        )
        return never
    try:
        low, high = first.read(ends[0]), first.read(ends[1])
    except ValueError as error:
        problems.append(Problem(code="wrong_value", message=str(error), pointer=pointer, hint=_HINT))
        return never
    if low == high or (low > high and not first.daily):
        message = f"`{ends[1]}` is not later than `{ends[0]}`, so it is never between them"
        hint = "exchange them" if low > high else "write a later end; it does not belong to the time"
        problems.append(Problem(code="out_of_range", message=message, pointer=pointer, hint=hint))
    return Span(low, high, first.at)


_HINT = 'such as `[5s, 1m]` since the session began, `["09:00", "17:30"]` in UTC, or two moments like `2030-01-01T09:00:00Z`'


class _Form(NamedTuple):
    """How an end can be written."""

    name: str
    fits: Callable[[str], object]
    read: Callable[[str], float]
    at: Callable[[CallSession], float]
    daily: bool = False


def _hours(text: str) -> float:
    parts = [int(part) for part in text.split(":")]
    return sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))


def _moment(text: str) -> float:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError(f"`{text}` has no time zone")
    return moment.timestamp()


def _since_midnight(session: CallSession) -> float:
    now = session.clock.now()
    return (now - now.replace(hour=0, minute=0, second=0, microsecond=0)).total_seconds()


def _since_the_beginning(session: CallSession) -> float:
    return session.clock.monotonic() - session.began


_FORMS = (
    _Form("a duration", _DURATION.fullmatch, parse_duration, _since_the_beginning),
    _Form("a time of day", _HOURS.fullmatch, _hours, _since_midnight, daily=True),
    _Form("a moment", lambda text: "T" in text, _moment, lambda session: session.clock.now().timestamp()),
)
