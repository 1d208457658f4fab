"""What is read at a glance is exactly what reading with care makes of it, and it makes no fault of it."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib.loading.documents.positions import DEPTH, NODES, Problems
from toolcrib.loading.documents.simple_yaml import read_everyday
from toolcrib.loading.documents.yaml_text import LOADER, read_with_care

ORDINARY = """\
# a comment
name: get_forecast
description: >-
  Daily forecast
  for a city.
tags: [weather, 'it''s', "a\\tb", 1.10, ~]
input_schema:
  type: object
  properties: {city: {type: string, minLength: 1}, days: {type: integer, default: 3}}
  required:
  - city
mock:
  result: {said: "{{ args.city }}", seen: 2026-11-20, by: no}
  latency: |
    5s
"""

PIECES = [
    *"-?:,[]{}#&*!|>'\"%@`<~\\",
    "- ",
    ": ",
    " #",
    "\n",
    "\n  ",
    "\t",
    "\r\n",
    "---\n",
    "...\n",
    "a",
    "b: 1",
]
PIECES += [
    "&a ",
    "*a",
    "!x ",
    "! ",
    "<<: ",
    "null",
    "true",
    "0",
    "1e999",
    "-1.5",
    "0x1F",
    "\\ud800",
    "ä",
    "\x07",
    '""',
]


def judged(text, loader=LOADER):
    found = read_everyday(text, loader)
    if found is None:
        return
    problems = Problems()
    careful = read_with_care(text, problems, loader)
    assert (repr(found), problems) == (repr(careful), [])


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
@example("a: &x 1\nb: *x\n")
@example("a: ! b\n")
@example("? a\n: b\n")
@example("{a, b: }")
@settings(max_examples=examples(1_000), deadline=None)
def test_whatever_is_read_at_a_glance_needs_no_care(text):
    judged(text)


@given(
    st.lists(st.tuples(st.integers(0, len(ORDINARY)), st.integers(0, 3), st.sampled_from(PIECES)), max_size=3)
)
@settings(max_examples=examples(500), deadline=None)
def test_so_it_is_of_documents_that_were_changed_here_and_there(changes):
    text = ORDINARY
    for start, length, piece in changes:
        text = text[:start] + piece + text[start + length :]
    judged(text)


def test_both_parsers_give_the_same():
    judged(ORDINARY, yaml.SafeLoader)
    assert read_everyday(ORDINARY, yaml.SafeLoader) == read_everyday(ORDINARY, LOADER)


def test_ordinary_documents_are_read_at_a_glance():
    (found,) = read_everyday(ORDINARY, LOADER)
    assert (found.number, found.line) == (0, 2)
    assert found.value["tags"] == ["weather", "it's", "a\tb", 1.1, None]
    assert found.value["mock"]["result"]["by"] == "no"


def test_so_are_several_documents():
    found = read_everyday("---\na: 1\n---\n\nb: 2\n", LOADER)
    assert [(number, line, value) for number, line, value in found] == [(0, 2, {"a": 1}), (1, 5, {"b": 2})]


@pytest.mark.parametrize(
    "text",
    [
        *("", "a", "a: 1\na: 2\n", "1: a\n", "~: a\n", "<<: {}\n", "a: &b 1\n", "a: !!str 1\n", "a: ! 1\n"),
        *("{{ a }}: b\n", "a: [\n", "a: 1e999\n", "a: " + "9" * 1001, '"\\ud800": 1\n', "a: 1\n---\nb\n"),
        *("\x07", "[a: {b: [*c]}]"),
    ],
    ids=repr,
)
def test_what_is_unusual_is_left_to_care(text):
    assert read_everyday(text, LOADER) is None


def test_so_is_what_is_too_deep_or_too_much():
    assert read_everyday("[" * DEPTH + "]" * DEPTH, LOADER) is not None
    assert read_everyday("[" * (DEPTH + 1) + "]" * (DEPTH + 1), LOADER) is None
    assert read_everyday("[" + "a," * NODES + "]", LOADER) is None
