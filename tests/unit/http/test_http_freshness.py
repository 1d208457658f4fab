"""What a private cache may keep, and for how long: RFC 9111."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.http.freshness import freshness
from toolcrib.http.messages import HTTPRequest, HTTPResponse

NOW = datetime(2030, 6, 1, 12, 0, 0, tzinfo=UTC)
TAG = ("etag", '"a"')


def at(seconds: float) -> str:
    return format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)


def told(*headers, status=200, method="GET", asked=()):
    request = HTTPRequest(method, "https", "api.example.com", 443, "/", tuple(asked))
    return freshness(request, HTTPResponse(status, tuple(headers), b""), NOW)


def control(value):
    return ("cache-control", value)


LIFETIMES = [
    ([control("max-age=60")], 60.0),
    ([control("Max-Age=60, private")], 60.0),
    ([control('max-age="60"')], 60.0),
    ([control("private"), control("max-age=60")], 60.0),
    ([control("max-age=60, max-age=60")], 60.0),
    ([control("public, max-age=31536000, immutable")], 31536000.0),
    ([control("s-maxage=10, max-age=60")], 60.0),
    ([control("max-age=60"), ("expires", at(5))], 60.0),
    ([control("max-age=99999999999999999999999")], 2.0**31),
    ([control('private="Set-Cookie", max-age=60')], 60.0),
    ([control('ext="no-store, \\" no-cache", max-age=60')], 60.0),
    ([control("must-revalidate, max-age=60")], 60.0),
    ([("expires", at(30))], 30.0),
    ([("expires", at(30)), ("date", at(-10))], 40.0),
    ([("expires", "Sat, 01 Jun 2030 12:00:30 GMT")], 30.0),
    ([("expires", "Saturday, 01-Jun-30 12:00:30 GMT")], 30.0),
    ([("expires", "Sat Jun  1 12:00:30 2030")], 30.0),
    ([("expires", "Wed, 01 Jun 9999 12:00:30 GMT")], 2.0**31),
    ([control("max-age=60"), ("vary", "Accept, Authorization")], 60.0),
]


@pytest.mark.parametrize(("headers", "lifetime"), LIFETIMES)
def test_the_lifetime_that_an_origin_gives(headers, lifetime):
    assert told(*headers)["lifetime"] == lifetime


STALE = [
    [],
    [control("public")],
    [control("s-maxage=60")],
    [control("no-cache")],
    [control("no-cache, max-age=60")],
    [control('no-cache="set-cookie", max-age=60')],
    [control("max-age=0")],
    [control("max-age=-1")],
    [control("max-age=soon")],
    [control("max-age")],
    [control("max-age=1.5")],
    [control("max-age=60, max-age=61")],
    [("expires", "0")],
    [("expires", "Sat, 99 Jun 2030 12:00:30 GMT")],
    [("expires", at(-1))],
    [("expires", at(30)), ("expires", at(60))],
    [("last-modified", at(-86400 * 365))],
]


@pytest.mark.parametrize("headers", STALE)
def test_without_a_lifetime_it_is_kept_only_to_be_asked_about(headers):
    others = [header for header in headers if header[0] != "last-modified"]
    assert told(*others) is None
    assert told(*headers, TAG)["lifetime"] == 0.0


NEVER = [
    [control("no-store")],
    [control("NO-STORE, max-age=60")],
    [control("max-age=60"), control("no-store")],
    [control("no-store, must-understand, max-age=60")],
    [control("max-age=60"), ("vary", "*")],
    [control("max-age=60"), ("vary", "Accept, *")],
]


@pytest.mark.parametrize("headers", NEVER)
def test_what_must_not_be_kept(headers):
    assert told(*headers, TAG) is None


@pytest.mark.parametrize("status", [201, 202, 206, 300, 301, 404, 410, 429, 500])
def test_other_statuses_are_not_kept(status):
    assert told(control("max-age=60"), status=status) is None


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_not_kept(method):
    assert told(control("max-age=60"), method=method) is None
    assert told(control("max-age=60"), method="HEAD") is not None


ASKED = [
    ([("Cache-Control", "no-store")], None),
    ([("Cache-Control", "no-cache")], 0.0),
    ([("cache-control", "max-age=10")], 10.0),
    ([("Cache-Control", "max-age=600")], 60.0),
    ([("Pragma", "no-cache")], 0.0),
    ([("Pragma", "x")], 60.0),
    ([("Pragma", "no-cache"), ("Cache-Control", "max-age=20")], 20.0),
    ([("Accept", "no-store")], 60.0),
]


@pytest.mark.parametrize(("asked", "lifetime"), ASKED)
def test_what_the_request_asks_for_counts(asked, lifetime):
    found = told(control("max-age=60"), TAG, asked=asked)
    assert (None if found is None else found["lifetime"]) == lifetime


AGES = [
    ([], 0.0),
    ([("age", "7")], 7.0),
    ([("date", at(-9))], 9.0),
    ([("date", at(-9)), ("age", "7")], 9.0),
    ([("date", at(-3)), ("age", "7")], 7.0),
    ([("date", at(30))], 0.0),
    ([("age", "x")], 0.0),
    ([("age", "-7")], 0.0),
    ([("age", "3"), ("age", "7")], 7.0),
    ([("date", "yesterday")], 0.0),
]


@pytest.mark.parametrize(("headers", "age"), AGES)
def test_how_old_it_is_when_it_comes(headers, age):
    assert told(control("max-age=60"), *headers)["age"] == age


def test_what_is_too_old_already_is_kept_only_to_be_asked_about():
    assert told(control("max-age=60"), ("age", "60")) is None
    assert told(control("max-age=60"), ("age", "60"), TAG) == {
        "lifetime": 60.0,
        "age": 60.0,
        "validators": {"If-None-Match": '"a"'},
    }


VALIDATORS = [
    ([TAG], {"If-None-Match": '"a"'}),
    ([("etag", 'W/"a"')], {"If-None-Match": 'W/"a"'}),
    ([("last-modified", at(-60))], {"If-Modified-Since": at(-60)}),
    ([TAG, ("last-modified", at(-60))], {"If-None-Match": '"a"', "If-Modified-Since": at(-60)}),
    ([("etag", "a")], {}),
    ([("etag", '"a"'), ("etag", '"b"')], {}),
    ([("last-modified", "lately")], {}),
]


@pytest.mark.parametrize(("headers", "validators"), VALIDATORS)
def test_what_asks_whether_it_still_holds(headers, validators):
    assert told(control("max-age=60"), *headers)["validators"] == validators


def test_a_304_may_say_nothing_of_the_lifetime():
    assert told(TAG, status=304) == {"lifetime": None, "age": 0.0, "validators": {"If-None-Match": '"a"'}}
    assert told(status=304)["lifetime"] is None
    assert told(TAG, control("max-age=5"), status=304)["lifetime"] == 5.0
    assert told(TAG, control("no-store"), status=304) is None
    assert told(TAG, status=304, asked=[("Cache-Control", "max-age=5")])["lifetime"] is None


@given(st.text('abc=-,;"\\ \t0123456789*', max_size=60))
def test_nothing_in_a_header_breaks_it(text):
    for name in ("cache-control", "expires", "age", "date", "vary", "etag", "last-modified"):
        told((name, text), control("max-age=60"))
        told((name, text), asked=[("Cache-Control", text)])


LONG = [" " * 60_000, 'a="' * 20_000, 'a="\\",' * 10_000, "a " * 30_000, "a" * 60_000]


@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_a_long_header_is_read_to_its_end(text):
    assert told(control(text), control("max-age=60"))["lifetime"] == 60.0
