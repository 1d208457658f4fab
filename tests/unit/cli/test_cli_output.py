"""How values, tables and problems look."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.cli.output import (
    columns_of,
    json_text,
    outline,
    part_line,
    plural,
    print_failure,
    problem_text,
    table,
    truncate,
)
from toolcrib.cli.show import parameter_rows, type_of
from toolcrib.core.errors import Problem
from toolcrib.core.model import Content, Outcome, Result
from toolcrib.core.text import escape_terminal, first_sentence

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON_VALUES)
def test_json_text_says_the_value_and_can_not_steer_a_terminal(value):
    shown = json_text(value)
    assert json.loads(shown) == value
    assert escape_terminal(shown.replace("\x7f", "")) == shown.replace("\x7f", "")


@given(st.text(), st.integers(min_value=1, max_value=20))
def test_a_cut_text_is_never_wider_than_it_may_be(text, width):
    assert columns_of(truncate(text, width)) <= width


@given(
    st.lists(st.lists(st.text(), min_size=2, max_size=2), min_size=1, max_size=4),
    st.integers(min_value=1, max_value=40),
)
def test_a_table_has_a_line_for_each_row_none_wider_than_the_terminal(rows, width):
    lines = table(rows, width)
    assert len(lines) == len(rows)
    assert all(columns_of(line) <= width and "\n" not in line for line in lines)


def test_wide_and_combining_characters_keep_columns_aligned():
    assert table([("日本", "x"), ("e\u0301", "y")]) == ["日本  x", "e\u0301     y"]
    assert table([]) == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("One. Two.", "One."),
        ("No end", "No end"),
        ("A file, e.g. x.yaml. More.", "A file, e.g. x.yaml."),
        ("Over\n  lines! Yes", "Over lines!"),
        ("天気。明日", "天気。"),
        ("", ""),
    ],
)
def test_the_first_sentence_of_a_description(text, sentence):
    assert first_sentence(text) == sentence


CELLS = st.text(alphabet=["a", "b", " ", "|", "\n", "é", "日", "\u202e", "{", "}"], max_size=4)


@given(
    st.integers(1, 3).flatmap(lambda size: st.lists(st.tuples(*[CELLS] * size), max_size=4)),
    st.none() | st.integers(1, 12),
)
def test_a_table_of_plain_cells_is_laid_out_as_any_other(rows, width):
    widest = tuple("é" for _ in rows[0]) if rows else ()  # as wide as an ASCII letter, and not plain
    with_it = [*rows, widest]
    if rows and all(
        any(columns_of(" ".join(escape_terminal(row[at]).split())) for row in rows)
        for at in range(len(widest))
    ):
        assert table(rows, width) == table(with_it, width)[:-1]


SENTENCE = re.compile(r"(.*?(?:(?<!e\.g)(?<!i\.e)[.!?](?=\s|$)|。))")
"""The rule as a regular expression, whose engine takes longer to import than a list of tools to print."""


@given(
    st.lists(st.sampled_from(["e.g", "i.e", ".", "!", "?", "。", " ", "\n", "\u2003", "word", "1"])).map(
        "".join
    )
)
def test_a_sentence_ends_where_the_expression_says(text):
    line = " ".join(text.split())
    match = SENTENCE.match(line)
    assert first_sentence(text) == (match[1] if match else line)


def test_plurals():
    assert [plural(count, "call") for count in (0, 1, 2)] == ["0 calls", "1 call", "2 calls"]


def test_an_outline_shows_a_structure_for_people():
    value = {"a": 1, "b": ["x", {"c": None, "d": [True]}, [1]], "e": {}, "f": {"g": "text"}}
    assert list(outline(value)) == [
        "a: 1",
        "b:",
        "  - x",
        "  - c: null",
        "    d:",
        "      - true",
        "  -",
        "    - 1",
        "e: {}",
        "f:",
        "  g: text",
    ]
    assert list(outline("plain")) == []


def test_parts_are_told_by_what_they_are():
    assert (
        part_line(Content("audio", data="aGVsbG8=", mime_type="audio/wav")) == "[audio, audio/wav, 6 bytes]"
    )
    assert part_line(Content("resource", uri="file:///x")) == "[resource, file:///x]"


def test_a_failure_without_a_finer_code_tells_its_outcome_once(capsys):
    print_failure(Result.failure(Outcome.TIMEOUT, "too late"))
    print_failure(
        Result(
            Outcome.DENIED, message="no", content=(Content("text", text="no"), Content("text", text="ask"))
        )
    )
    assert capsys.readouterr().err == "timeout: too late\ndenied: no\nask\n"


def test_a_failure_with_a_way_out_tells_it(capsys):
    for hint in ("do\x1b[2Jso", "", None, ["no text"], "it"):
        print_failure(
            Result.failure(Outcome.INTERNAL, "it failed", code="mock_failed", details={"hint": hint})
        )
    first, way_out, *others = capsys.readouterr().err.splitlines()
    assert (first, way_out) == ("internal (mock_failed): it failed", "    hint: do\\x1b[2Jso")
    assert others == [first] * 4


def test_a_problem_reads_as_its_text():
    problem = Problem(code="odd", message="two\nlines", source="a.yaml", line=3, column=4, hint="so")
    assert problem_text(problem).endswith("two\nlines\n    hint: so")
    assert problem_text(problem).startswith("a.yaml:3:4: ")


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({}, "any"),
        ({"type": "integer", "minimum": 1, "maximum": 7}, "integer 1..7"),
        ({"type": "number", "exclusiveMinimum": 0}, "number >0.."),
        ({"type": "number", "exclusiveMaximum": 1.5}, "number ..<1.5"),
        ({"type": "number", "minimum": 1, "exclusiveMaximum": True}, "number 1.."),
        ({"type": "string", "format": "date"}, "string (date)"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"enum": ["a", 1, None]}, '"a" | 1 | null'),
        ({"const": "x"}, '"x"'),
        ({"type": "array", "items": {"type": "string"}}, "array of string"),
        ({"type": "array", "items": {}}, "array"),
        ({"type": "array"}, "array"),
        ({"$ref": "#/$defs/place"}, "place"),
        ({"anyOf": [{"type": "string"}, True, {"type": "null"}]}, "string | null"),
        ({"oneOf": [{"const": 1}, {"const": 2}]}, "1 | 2"),
    ],
)
def test_types_are_told_in_few_words(schema, text):
    assert type_of(schema) == text


def test_nested_properties_have_rows_with_their_path():
    schema = {
        "type": "object",
        "required": ["at"],
        "properties": {
            "at": {"$ref": "#/$defs/place"},
            "all": {"type": "array", "items": {"$ref": "#/$defs/place"}},
            "any": True,
            "far": {"$ref": "#/$defs/none"},
            "deep": {"properties": {"a": {"properties": {"b": {"properties": {"c": {}}}}}}},
        },
        "$defs": {
            "place": {
                "type": "object",
                "description": "A place.",
                "properties": {"lat": {"type": "number", "default": 0}},
            }
        },
    }
    assert parameter_rows(schema) == [
        ("at", "place", "required", "", "A place."),
        ("at.lat", "number", "", "0", ""),
        ("all", "array of place", "", "", ""),
        ("all[].lat", "number", "", "0", ""),
        ("any", "any", "", "", ""),
        ("far", "none", "", "", ""),
        ("deep", "any", "", "", ""),
        ("deep.a", "any", "", "", ""),
        ("deep.a.b", "any", "", "", ""),
    ]


def test_a_schema_that_is_no_plain_object_has_no_rows():
    assert parameter_rows(True) is None
    assert parameter_rows({"type": "array"}) is None
    assert parameter_rows({"type": "object"}) is None
    assert parameter_rows({"type": "object", "additionalProperties": False}) == []
