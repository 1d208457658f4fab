"""Texts made up for patterns, formats and names."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import uuid
from datetime import datetime
from urllib.parse import urlsplit

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.schema.generation import KeyedRandom, generate
from toolcrib.schema.scalar_generation import FORMATS, UnknownSyntax, text_matching

PATTERNS = [
    "",
    "abc",
    "^ORD-[0-9]{4}$",
    "^[A-Z]{2,3}[a-z]*$",
    "^(a|bc|d)+$",
    "^(?:x|)$",
    r"^\d{3}-\d{2}$",
    r"^\w+@\w+\.\w{2,}$",
    r"^[^abc]$",
    r"^[^\w]+$",
    r"^\D\S\W\s$",
    r"^[\d\-_]{5}$",
    r"^[-a]{3}[a-]{3}$",
    r"^[a\-z]{4}$",
    r"^[\]\\]{2}$",
    r"^[]a]$",
    r"^(?<year>\d{4})-(?P<month>0[1-9]|1[0-2])$",
    r"^a{2,}b{,3}c{x$",
    r"^.+?$",
    r"^\x41\u00e9\t\.\/\{$",
    r"^\p{L}\p{Lu}\p{Ll}\p{Letter}\P{N}\pN$",
    r"\bword\b",
    r"^[\x41-\x43\n]{2}$",
    "^[\u0410-\u044f]{3}$",
    "^$",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_texts_match_their_pattern(pattern):
    judge = (
        jsonschema_rs.validator_for({"pattern": pattern})
        if pattern != r"^[]a]$" and "{,3}" not in pattern
        else None
    )
    for number in range(20):
        text = text_matching(pattern, KeyedRandom(1, number))
        if judge is not None:
            assert judge.is_valid(text), text
        else:
            assert re.search(pattern.replace("{,3}", r"\{,3}"), text), text


@pytest.mark.parametrize(
    ("pattern", "least", "most"),
    [
        ("^[a-z]*$", 40, 50),
        ("^[a-z]*$", 40, 40),
        ("^[a-z]+$", 0, 1),
        ("^a*b*$", 30, 31),
        ("^[ab]{0,9}$", 9, 9),
        ("^x?$", 0, 0),
        ("^(ab)*$", 17, 60),
    ],
)
def test_texts_have_the_length_that_is_wanted(pattern, least, most):
    for number in range(5):
        text = text_matching(pattern, KeyedRandom(1, number), least, most)
        assert re.search(pattern, text)
        assert least <= len(text) <= most


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)", "(?!a)b", "(?<=a)b", "(?<!a)b", r"(a)\1", "(", "a)", "[a", "a**b", "*", "a++", r"\p{Greek}", r"\u12", "(?i)a",
        "[a&&b]", "[[a]]", r"[^\x00-\uffff]", "[b-a]", r"\q", "\\", "(?<name", r"\p{L", "a{20000}", "(a{200}){200}", "[a-", "(" * 5000 + ")" * 5000,
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(pattern):
    with pytest.raises(UnknownSyntax):
        text_matching(pattern, KeyedRandom(1))


@given(st.text("ab()[]{}|*+?\\^$.-d1,=!<>:P", max_size=12))
def test_a_pattern_gives_a_text_or_is_refused(pattern):
    with contextlib.suppress(UnknownSyntax):
        assert isinstance(text_matching(pattern, KeyedRandom(1)), str)


def test_a_length_that_no_text_has_is_refused():
    with pytest.raises(UnknownSyntax, match="length"):
        text_matching("^abc$", KeyedRandom(1), 5)
    with pytest.raises(UnknownSyntax, match="length"):
        text_matching("^abc$", KeyedRandom(1), 0, 2)


def text_of(**schema):
    return generate({"type": "string", **schema}, KeyedRandom(3))


def test_formats_are_kept():
    assert datetime.fromisoformat(text_of(format="date-time")).tzinfo is not None
    assert re.fullmatch(r"2030-\d\d-\d\d", text_of(format="date"))
    assert re.fullmatch(r"\d\d:\d\d:\d\dZ", text_of(format="time"))
    assert re.fullmatch(r"[a-z]+@example\.com", text_of(format="email"))
    assert uuid.UUID(text_of(format="uuid")).version == 4
    assert urlsplit(text_of(format="uri")).hostname == "example.com"
    assert ipaddress.ip_address(text_of(format="ipv4")) in ipaddress.ip_network("203.0.113.0/24")
    assert ipaddress.ip_address(text_of(format="ipv6")) in ipaddress.ip_network("2001:db8::/32")


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_passes_an_asserting_judge(name):
    judge = jsonschema_rs.validator_for({"type": "string", "format": name}, validate_formats=True)
    for number in range(10):
        assert judge.is_valid(FORMATS[name](KeyedRandom(1, number)))


def test_a_format_gives_way_to_a_length_and_an_unknown_one_is_passed_over():
    assert len(text_of(format="uuid", maxLength=5)) == 5
    assert text_of(format="unheard-of")


def test_a_cut_text_has_no_blanks_at_its_end():
    assert all(
        generate({"type": "string", "maxLength": 6}, KeyedRandom(number))[-1] != " " for number in range(50)
    )


def test_the_name_of_a_property_suggests_its_text():
    schema = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("city", "email", "url", "other")},
    }
    made = generate(schema, KeyedRandom(1))
    assert made["city"].istitle()
    assert made["email"].endswith("@example.com")
    assert made["url"].startswith("https://")
    assert " " in made["other"]
    short = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 2}}}
    assert len(generate(short, KeyedRandom(1))["city"]) == 2
