"""Functions of time: texts as RFC 3339 and ISO 8601 write them, durations with a unit."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from toolcrib.core.clock import format_time, parse_duration
from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON
from toolcrib.expressions.values import kind, shortened

_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[+-]\d\d:\d\d)?)?", re.ASCII)


def date_add(moment: JSON, duration: JSON) -> JSON:
    """A time later by a duration, `'1d'`, or earlier, `'-90m'`; a date stays a date, so days are added to it."""
    start = _time("date_add", moment)
    seconds = _seconds(duration)
    try:
        end = start + timedelta(seconds=seconds)
    except OverflowError:
        raise ExpressionError("`date_add` leaves the years 1 to 9999") from None
    if _is_date(moment):
        if seconds % 86400:
            hint = "a time is written `2030-01-01T00:00:00Z`"
            raise ExpressionError(f"`date_add` adds whole days to a date, not `{duration}`", hint=hint)
        return end.date().isoformat()
    return format_time(end)


def seconds_between(start: JSON, end: JSON) -> JSON:
    """The seconds from one time to another, negative if it is the earlier one; a date is its midnight in UTC."""
    first, second = (_time("seconds_between", moment) for moment in (start, end))
    if (first.tzinfo is None) is not (second.tzinfo is None):
        first, second = (_in_utc(moment) for moment in (first, second))
    seconds = (second - first).total_seconds()
    return int(seconds) if seconds.is_integer() else seconds


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _is_date(moment: JSON) -> bool:
    return isinstance(moment, str) and len(moment) == len("2030-01-01")


def _time(name: str, moment: JSON) -> datetime:
    if not isinstance(moment, str):
        raise ExpressionError(
            f"`{name}` needs a time, a text such as `2030-01-01T00:00:00Z`, not {kind(moment)}"
        )
    if _TIME.fullmatch(moment) is not None:
        try:
            return _read(moment)
        except ValueError:
            pass  # the 31st of February: told below
    hint = "a time is written `2030-01-01T00:00:00Z`, a date `2030-01-01`"
    raise ExpressionError(f"`{name}` can't read `{shortened(moment)}` as a time", hint=hint)


def _read(moment: str) -> datetime:
    if _is_date(moment):
        return datetime.combine(date.fromisoformat(moment), datetime.min.time())
    return datetime.fromisoformat(moment.upper())


def _seconds(duration: JSON) -> float:
    if not isinstance(duration, str):
        raise ExpressionError(f"`date_add` needs a duration such as `1d`, not {kind(duration)}")
    text, back = duration.removeprefix("-"), duration.startswith("-")
    try:
        return -parse_duration(text) if back else parse_duration(text)
    except ValueError as error:
        raise ExpressionError(f"`date_add`: {error}") from None
