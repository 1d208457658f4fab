"""Functions of time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import ExpressionError
from toolcrib.expressions import compile_expression


def worked_out(expression, **args):
    return compile_expression(expression, ["args"]).evaluate({"args": args})


@pytest.mark.parametrize(
    ("moment", "duration", "later"),
    [
        ("2030-01-01T00:00:00Z", "1d", "2030-01-02T00:00:00Z"),
        ("2030-01-01T00:00:00Z", "90m", "2030-01-01T01:30:00Z"),
        ("2030-01-01T00:00:00Z", "-1s", "2029-12-31T23:59:59Z"),
        ("2030-01-01T00:00:00Z", "250ms", "2030-01-01T00:00:00.250000Z"),
        ("2030-01-01T00:00:00.5z", "1.5s", "2030-01-01T00:00:02Z"),
        ("2030-01-01T00:00:00+02:00", "1h", "2030-01-01T01:00:00+02:00"),
        ("2030-01-01T00:00:00", "1h", "2030-01-01T01:00:00"),
        ("2030-01-01 12:00:00Z", "12h", "2030-01-02T00:00:00Z"),
        ("2028-02-28", "1d", "2028-02-29"),
        ("2030-01-01", "-48h", "2029-12-30"),
        ("2030-01-01", "0s", "2030-01-01"),
    ],
)
def test_a_duration_is_added_to_a_time(moment, duration, later):
    assert worked_out("date_add(args.at, args.by)", at=moment, by=duration) == later
    assert worked_out("args.at | date_add(args.by)", at=moment, by=duration) == later


@pytest.mark.parametrize(
    ("start", "end", "seconds"),
    [
        ("2030-01-01T00:00:00Z", "2030-01-02T00:00:00Z", 86400),
        ("2030-01-02", "2030-01-01", -86400),
        ("2030-01-01T00:00:00Z", "2030-01-01T00:00:00.25Z", 0.25),
        ("2030-01-01T00:00:00+01:00", "2030-01-01T00:00:00Z", 3600),
        ("2030-01-01", "2030-01-01T00:00:05Z", 5),
        ("2030-01-01T00:00:05Z", "2030-01-01T00:00:00", -5),
    ],
)
def test_the_seconds_between_two_times(start, end, seconds):
    found = worked_out("seconds_between(args.a, args.b)", a=start, b=end)
    assert (found, type(found)) == (seconds, type(seconds))


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("date_add('2030-02-31', '1d')", "cannot read `2030-02-31` as a time"),
        ("date_add('2030-01-01T25:00:00Z', '1d')", "as a time"),
        ("date_add('tomorrow', '1d')", "as a time"),
        ("date_add('2030-W01-1', '1d')", "as a time"),
        ("date_add('20300101', '1d')", "as a time"),
        ("date_add('', '1d')", "as a time"),
        ("date_add(1, '1d')", "needs a time such as"),
        ("date_add('2030-01-01', '1h')", "can add only whole days to a date"),
        ("date_add('2030-01-01', 1)", "needs a duration such as"),
        ("date_add('2030-01-01', '1w')", "`1w` is not a valid duration"),
        ("date_add('2030-01-01', '--1d')", "is not a valid duration"),
        ("date_add('9999-12-31', '1d')", "is outside the years 1 to 9999"),
        ("date_add('2030-01-01', '99999999999999999d')", "is outside the years"),
        ("date_add('0001-01-01', '-1d')", "is outside the years"),
        ("seconds_between('2030-01-01', none)", "not none"),
    ],
)
def test_what_is_no_time_or_duration_fails(expression, words):
    with pytest.raises(ExpressionError, match=words):
        worked_out(expression)


@given(st.datetimes(datetime(1000, 1, 1), datetime(9000, 1, 1)), st.integers(-(10**9), 10**9))  # noqa: DTZ001 -- the zone is put on below
def test_what_is_added_is_what_lies_between(moment, seconds):
    at = moment.replace(tzinfo=UTC)
    sign = "-" if seconds < 0 else ""
    later = worked_out("date_add(args.at, args.by)", at=at.isoformat(), by=f"{sign}{abs(seconds)}s")
    assert later == (at + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")
    assert worked_out("seconds_between(args.a, args.b)", a=at.isoformat(), b=later) == seconds
