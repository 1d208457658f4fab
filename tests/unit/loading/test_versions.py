"""Ranges of versions: what is one, which versions are in it, and what was most likely meant by others."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.schemas import envelope
from toolcrib.loading.packs import _FORM, check_range, version_mismatch

NUMBER = st.tuples(*[st.integers(0, 20)] * 3)


def dotted(numbers):
    return ".".join(map(str, numbers))


FITS = [
    ("1.2.0", ">=1.2", True),
    ("1.1.9", ">=1.2", False),
    ("1.9.9", ">=1.2,<2", True),
    ("2.0.0", ">=1.2,<2", False),
    ("1.4.7", "==1.4.*", True),
    ("1.5.0", "==1.4.*", False),
    ("1.4.0", "==1.4", True),
    ("1.3.0", "!=1.3.0", False),
    ("1.9.0", "~=1.2", True),
    ("2.0.0", "~=1.2", False),
    ("1.3.0", "~=1.2.5", False),
    ("1.10.0", ">1.9", True),
    ("1.0.0", "<=1.0", True),
    ("2.0.0-rc.1", ">=1.2", True),
    ("2.0.0-rc.1", "<2", False),
    ("1.2.0-alpha", ">=1.2", False),
    ("1.2.0-beta.11", ">1.2.0-beta.2", True),
    ("1.2.0-rc.1", ">1.2.0-beta.2", True),
    ("1.2.0+build.5", "==1.2.0", True),
    ("1.2.0-dev.3", "<1.2", False),
    (" 1.2.0", " >= 1.2 , <2 ", True),
]


@pytest.mark.parametrize(("version", "wanted", "fits"), FITS)
def test_which_versions_are_in_a_range(version, wanted, fits):
    assert check_range(wanted) == []
    assert (version_mismatch(version, wanted) == "") is fits


@pytest.mark.parametrize(
    "version", ["1.0.0-SNAPSHOT", "1.0.0-1", "1.0.0-alpha.beta", "1.0.0-x.7.z", "1.0.0+a..b", "1.0.0-post.1"]
)
def test_a_version_that_comes_elsewhere_in_the_other_order_is_not_compared(version):
    """`1.0.0-1` comes before 1.0.0 in semantic versioning, and after it in PEP 440."""
    assert "cannot be compared" in version_mismatch(version, ">=0.1")


NO_RANGES = [
    ("", "`>=1.2,<2`"),
    ("1.2", "`>=1.2,<2`, or `==1.2`"),
    ("^1.2.3", "`>=1.2.3,<2`"),
    ("~1.4", "`>=1.4,<2`"),
    ("0.3", "`>=0.3,<1`"),
    ("v2", "`>=2,<3`"),
    ("=1.0.0", "`==1.0.0`"),
    ("1.x", "`>=1,<2`"),
    ("latest", "`>=1.2,<2`"),
    ("*", "`>=1.2,<2`"),
    ("===1.0", "`>=1.2,<2`"),
    (">=1.0,", "`>=1.2,<2`"),
    (">=1.0 <2", "`>=1.2,<2`"),
    (">=1.*", "`>=1.2,<2`"),
    ("~=1", "`>=1.2,<2`"),
    (">=1.0+local", "`>=1.2,<2`"),
    (">=1!2.0", "`>=1.2,<2`"),
    (">=1.0-", "`>=1.2,<2`"),
    ("=>1.0", "`>=1.2,<2`"),
    (">=1\n.0", "`>=1.2,<2`"),
]


@pytest.mark.parametrize(("text", "instead"), NO_RANGES)
def test_what_is_no_range_is_told_with_what_to_write(text, instead):
    [problem] = check_range(text, "/requires/toolcrib")
    assert (problem.code, problem.pointer) == ("wrong_form", "/requires/toolcrib")
    assert instead in problem.hint
    assert problem.message.isprintable()
    with pytest.raises(ValueError, match="not a valid version range"):
        version_mismatch("1.0.0", text)


@pytest.mark.parametrize("text", ["^1.2", "1.2", "v2", "1.x"])
def test_what_a_hint_proposes_is_a_range(text):
    [problem] = check_range(text)
    for proposed in problem.hint.split("`")[1::2]:
        assert check_range(proposed) == []


@given(NUMBER, NUMBER)
def test_conditions_mean_what_numbers_mean(found, limit):
    truths = {">=": found >= limit, ">": found > limit, "<=": found <= limit, "<": found < limit}
    truths |= {"==": found == limit, "!=": found != limit}
    for condition, truth in truths.items():
        assert (version_mismatch(dotted(found), condition + dotted(limit)) == "") is truth
    for one, other in itertools.combinations(truths, 2):
        both = f"{one}{dotted(limit)},{other}{dotted(limit)}"
        assert (version_mismatch(dotted(found), both) == "") is (truths[one] and truths[other])


@given(st.text(max_size=20) | st.from_regex(_FORM, fullmatch=True))
def test_any_text_is_judged(text):
    assert len(check_range(text)) in (0, 1)


def test_the_schema_says_the_same_of_the_form():
    pattern = envelope("pack")["$defs"]["range"]["allOf"][0]["pattern"]
    assert pattern == f"^{_FORM.pattern}$"
