"""The arguments of a call, as words: what is read at first sight is what is read at length."""

from __future__ import annotations

import json

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.cli.arguments import plain_arguments, read_arguments

JSON_TEXTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
).flatmap(lambda value: st.sampled_from([json.dumps(value), json.dumps(value, ensure_ascii=False)]))

TEXTS = (
    JSON_TEXTS
    | st.text()
    | st.sampled_from(["-0", "1e999", "01", " 1 ", "'x'", "1" * 999, "[" * 33 + "]" * 33])
)

WORDS = st.builds(
    lambda key, sign, text: f"{key}{sign}{text}",
    st.sampled_from(["a", "b", "", ":", "a:"]),
    st.sampled_from(["=", ":=", ""]),
    TEXTS,
)


@given(st.lists(WORDS, max_size=3))
def test_what_is_read_at_first_sight_is_what_is_read_at_length(words):
    quickly = plain_arguments(words)
    if quickly is not None:
        assert repr(quickly) == repr(read_arguments(words))


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("a=1", "1"),
        ("a=b=c", "b=c"),
        ("a:=1", 1),
        ("a:=-1.5e3", -1500.0),
        ('a:={"b": [true, null, "ø"]}', {"b": [True, None, "ø"]}),
    ],
)
def test_ordinary_words_are_read_at_first_sight(word, value):
    assert plain_arguments([word]) == read_arguments([word]) == {"a": value}


@pytest.mark.parametrize(
    "word", ["a", "=1", ":=1", "a:=", "a:={'b': 1}", 'a:={"b": 1, "b": 2}', "a:=NaN", "a:=1e999"]
)
def test_words_that_are_refused_are_left_to_be_told(word):
    assert plain_arguments([word]) is None
    with pytest.raises(click.UsageError):
        read_arguments([word])


def test_a_key_that_is_given_twice_is_left_to_be_told():
    assert plain_arguments(["a=1", "a:=2"]) is None
