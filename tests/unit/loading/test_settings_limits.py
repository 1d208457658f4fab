"""Limits of projects and profiles: key by key for tools that do not say so themselves."""

from __future__ import annotations

import marshal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from toolcrib import Executors
from toolcrib.core.errors import DocumentError
from toolcrib.core.model import BUILT_IN_LIMITS, Backoff, Bounds, Breaker, Descriptor, Limits, Origin, Rate
from toolcrib.loading.cache.index import decode_value, encode_value
from toolcrib.loading.projects import Project, settings_of
from toolcrib.loading.settings import (
    Settings,
    apply_settings,
    flatten_limits,
    format_limits,
    keys_overlap,
    overlay_limits,
    parse_limits,
    tool_limits,
    with_limits,
    without_limits,
)

KINDS = Executors({})

TEXT = """project: p
limits: {concurrency: 4, breaker: {failures: 9, within: 1m}, origin: {rate: 600/1m}}
profiles:
  base:
    limits:
      attempts: 1
      origin: {concurrency: 20}
  quiet:
    extends: base
    limits: {breaker: off, attempts: 2}
  loud:
    extends: quiet
    limits: {breaker: {failures: 3}}
"""


def settings(profile: str | None, text: str = TEXT) -> Settings:
    return settings_of(Project.parse("toolcrib.yaml", text, kinds=KINDS), profile, "--profile")


def tool(said: dict | None = None) -> Descriptor:
    said = said or {}
    keys = frozenset(f"limits.{key}" for key in flatten_limits(said))
    return Descriptor("t", limits=parse_limits(said), origin=Origin(written=keys))


def test_a_project_says_limits_for_tools_that_do_not():
    changed = apply_settings(tool(), settings(None))
    assert changed.limits == Limits(
        concurrency=4, breaker=Breaker(9, 60.0, 30.0), origin=Bounds(Rate(600, 60.0))
    )
    assert changed.origin.settings == {
        f"limits.{key}": "toolcrib.yaml:2"
        for key in ("concurrency", "breaker.failures", "breaker.within", "origin.rate")
    }


def test_a_profile_goes_before_what_it_extends_and_that_before_the_project():
    found = settings("quiet")
    assert found.limits == {
        "concurrency": 4,
        "origin.rate": "600/1m",
        "origin.concurrency": 20,
        "breaker": "off",
        "attempts": 2,
    }
    assert found.places["limits.breaker"] == "toolcrib.yaml:10 (profile quiet)"
    assert found.places["limits.origin.concurrency"] == "toolcrib.yaml:7 (profile base)"
    changed = apply_settings(tool(), found).limits
    assert (changed.breaker, changed.attempts) == (None, 2)
    assert changed.origin == Bounds(Rate(600, 60.0), 20)


def test_what_was_off_is_on_again_with_the_built_in_numbers():
    assert apply_settings(tool(), settings("loud")).limits.breaker == Breaker(failures=3)


def test_what_the_tool_says_stays():
    said = {
        "concurrency": 1,
        "breaker": {"failures": 2},
        "origin": {"rate": "1/1s"},
        "backoff": {"first": "1s"},
    }
    changed = apply_settings(tool(said), settings("base"))
    assert changed.limits == Limits(
        concurrency=1,
        attempts=1,
        backoff=Backoff(1.0),
        breaker=Breaker(2, 60.0, 30.0),
        origin=Bounds(Rate(1, 1.0), 20),
    )
    assert set(changed.origin.settings) == {
        "limits.attempts",
        "limits.breaker.within",
        "limits.origin.concurrency",
    }


def test_a_breaker_that_the_tool_turns_off_stays_off():
    changed = apply_settings(tool({"breaker": "off"}), settings(None)).limits
    assert (changed.breaker, changed.concurrency) == (None, 4)


def test_a_breaker_of_the_tool_is_not_turned_off():
    changed = apply_settings(tool({"breaker": {"failures": 2}}), settings("quiet")).limits
    assert changed.breaker == Breaker(failures=2)


def test_a_tool_that_says_all_of_it_is_left_alone():
    given = tool({"concurrency": 1})
    assert apply_settings(given, settings(None, "project: p\nlimits: {concurrency: 4}\n")) is given


def test_what_a_tool_has_from_elsewhere_stays_too():
    given = Descriptor("t", limits=Limits(cache=3), origin=Origin(settings={"limits.cache": "pack.yaml:2"}))
    found = settings(None, "project: p\nlimits: {cache: 4}\n")
    assert apply_settings(given, found) is given


def test_settings_with_limits_are_plain_data():
    found = settings("loud")
    assert Settings(*marshal.loads(marshal.dumps(tuple(found)))) == found


WRONG = [
    ("limits: {rate: 1/0s}", "/limits/rate"),
    ("profiles: {a: {limits: {backoff: {first: 1m}}}}", "/profiles/a/limits/backoff"),
]


@pytest.mark.parametrize(("line", "pointer"), WRONG)
def test_what_is_wrong_is_told_at_its_place(line, pointer):
    with pytest.raises(DocumentError) as raised:
        settings(None, f"project: p\n{line}\n")
    assert [(each.code, each.pointer) for each in raised.value.problems] == [("out_of_range", pointer)]


SAYINGS = st.fixed_dictionaries(
    {},
    optional={
        "concurrency": st.integers(1, 9),
        "rate": st.sampled_from(["1/1s", "60/1m"]),
        "breaker": st.one_of(
            st.just("off"),
            st.fixed_dictionaries(
                {}, optional={"failures": st.integers(1, 9), "within": st.sampled_from(["1s", "1m"])}
            ),
        ),
        "origin": st.fixed_dictionaries({}, optional={"queue": st.integers(0, 9)}),
    },
)


@given(SAYINGS, SAYINGS, SAYINGS)
def test_laying_over_is_the_same_in_whatever_order_it_is_done(one, two, three):
    # What lies below a breaker that is switched off is forgotten only from the bottom up, the order in which profiles are read.
    assume(two.get("breaker") != "off" or not isinstance(three.get("breaker"), dict))
    a, b, c = flatten_limits(one), flatten_limits(two), flatten_limits(three)
    assert overlay_limits(overlay_limits(a, b), c) == overlay_limits(a, overlay_limits(b, c))


@given(SAYINGS, SAYINGS)
def test_what_the_tool_says_counts_whatever_the_project_says(project, own):
    said = flatten_limits(own)
    left = without_limits(flatten_limits(project), [f"limits.{key}" for key in said])
    assert not any(keys_overlap(key, other) for key in left for other in said)
    assert with_limits(parse_limits(own), left) == with_limits(
        Limits(), overlay_limits(flatten_limits(project), said)
    )


@given(SAYINGS)
def test_limits_are_told_as_they_can_be_written(said):
    limits = parse_limits(said)
    assert with_limits(Limits(), format_limits(limits)) == limits
    assert decode_value(marshal.loads(marshal.dumps(encode_value(limits)))) == limits
    told = tool_limits(tool(said))
    assert told.keys() == flatten_limits(said).keys()
    assert told.items() <= format_limits(limits).items()


def test_the_built_in_limits_are_one_value_in_an_index():
    assert decode_value(marshal.loads(marshal.dumps(encode_value(BUILT_IN_LIMITS)))) is BUILT_IN_LIMITS


@pytest.mark.parametrize(("size", "expected"), [(1e3, 1000), (1000, 1000), ("1kB", 1000), ("1KiB", 1024)])
def test_a_size_is_a_whole_number_of_bytes_however_it_is_written(size, expected):
    assert parse_limits({"input_size": size}).input_size == expected
