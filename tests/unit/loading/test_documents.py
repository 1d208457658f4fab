"""What texts mean, and where things stand in them."""

from __future__ import annotations

import json
import os

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import Problem
from toolcrib.core.pointers import keys_of
from toolcrib.loading.documents.document import (
    Document,
    parse_documents,
    parse_json,
    read_documents,
    restore_text,
)
from toolcrib.loading.documents.positions import Problems, excerpt, pointer_of
from toolcrib.loading.documents.yaml_text import read_yaml


def value_of(text, source="tool.yaml"):
    """The value of a text that is one document without problems."""
    documents, problems = parse_documents(source, text)
    assert problems == []
    assert len(documents) == 1
    return documents[0].value


def document_of(text, source="tool.yaml"):
    documents, _ = parse_documents(source, text)
    return documents[0]


SCALARS = [
    ("", None),
    ("~", None),
    ("null", None),
    ("Null", None),
    ("NULL", None),
    ("nULL", "nULL"),
    ("true", True),
    ("True", True),
    ("TRUE", True),
    ("false", False),
    ("False", False),
    ("FALSE", False),
    ("yes", "yes"),
    ("no", "no"),
    ("on", "on"),
    ("off", "off"),
    ("NO", "NO"),
    ("y", "y"),
    ("0", 0),
    ("-0", 0),
    ("-17", -17),
    ("18446744073709551616", 2**64),
    ("+1", "+1"),
    ("0777", "0777"),
    ("0o17", "0o17"),
    ("0x1F", "0x1F"),
    ("1_000", "1_000"),
    ("22:22", "22:22"),
    ("1:59:59.5", "1:59:59.5"),
    ("2024-01-01", "2024-01-01"),
    ("2024-02-30", "2024-02-30"),
    ("2001-12-14t21:59:43.10-05:00", "2001-12-14t21:59:43.10-05:00"),
    ("1.5", 1.5),
    ("49.50", 49.5),
    ("1e3", 1000.0),
    ("-2.5E-3", -0.0025),
    (".5", ".5"),
    ("-.5", "-.5"),
    ("1.", "1."),
    (".inf", ".inf"),
    (".nan", ".nan"),
    ("=", "="),
    ("'12'", "12"),
    ('"true"', "true"),
    ('"\\u0041\\t"', "A\t"),
]


@pytest.mark.parametrize("loader", [yaml.SafeLoader, yaml.CSafeLoader], ids=["python", "libyaml"])
@pytest.mark.parametrize(("written", "value"), SCALARS)
def test_a_scalar_means_what_json_would_make_of_it_and_is_text_otherwise(written, value, loader):
    problems = Problems()
    (found,) = read_yaml(f"a: {written}\n", problems, loader)
    assert problems == []
    read = found.value["a"]
    assert (type(read), read) == (type(value), value)


def test_block_scalars_are_text():
    assert value_of("a: |\n  12\n  x\nb: >-\n  1\n  2\n") == {"a": "12\nx\n", "b": "1 2"}


def test_words_that_older_yaml_took_for_booleans_are_keys_as_they_stand():
    assert value_of("on: 1\nyes: 2\nno: 3\n=: 4\n") == {"on": 1, "yes": 2, "no": 3, "=": 4}


def test_a_quoted_key_may_look_like_anything():
    assert value_of('"1": a\n"<<": b\n"": c\n"null": d\n') == {"1": "a", "<<": "b", "": "c", "null": "d"}


def test_a_file_may_hold_several_yaml_documents_and_each_knows_its_first_line():
    documents, problems = parse_documents("a.yaml", "# first\na: 1\n---\n- 2\n--- \n\nb:\n  c: 3\n")
    assert problems == []
    assert [(document.index, document.line, document.value) for document in documents] == [
        (0, 2, {"a": 1}),
        (1, 4, [2]),
        (2, 7, {"b": {"c": 3}}),
    ]
    assert documents[2].position("/b/c") == (8, 6)


def test_a_json_list_stands_for_its_elements():
    documents, problems = parse_documents("a.json", '[\n {"a": 1},\n {"b": [1, 2]}, 3]\n')
    assert problems == []
    assert [(document.index, document.line, document.value) for document in documents] == [
        (0, 2, {"a": 1}),
        (1, 3, {"b": [1, 2]}),
        (2, 3, 3),
    ]
    assert documents[1].position("/b/1") == (3, 12)
    assert documents[2].position("") == (3, 17)


def test_a_json_list_asked_for_as_a_whole_is_one_document():
    (document,), problems = parse_documents("a.json", '[1, {"a": 2}]', whole=True)
    assert problems == []
    assert document.value == [1, {"a": 2}]
    assert document.position("/1/a") == (1, 11)


def test_only_names_that_end_in_json_are_read_as_json():
    assert parse_documents("A.JSON", "a: 1")[1][0].code == "invalid_json"
    assert value_of("{a: 1}", "a.json5") == {"a": 1}


@pytest.mark.parametrize("source", ["a.yaml", "a.json"])
def test_a_byte_order_mark_is_tolerated_and_moves_nothing(source):
    document = document_of('\ufeff{"a": 1}'.encode(), source)
    assert document.value == {"a": 1}
    assert document.position("/a", key=True) == (1, 2)


def test_parse_json_gives_any_json_value_or_problems():
    assert parse_json("template", " [1.10, null] ") == ([1.1, None], [])
    value, problems = parse_json("template", "not json")
    assert value is None
    assert [(problem.source, problem.code) for problem in problems] == [("template", "invalid_json")]


POSITIONS = "name: x\ninput_schema:\n  properties:\n    a/b: {type: strng}\n    c~d:\n    - 1\n    - [2, 3]\n"


@pytest.mark.parametrize(
    ("pointer", "key", "place"),
    [
        ("", False, (1, 1)),
        ("", True, (1, 1)),
        ("/name", False, (1, 7)),
        ("/name", True, (1, 1)),
        ("/input_schema", False, (3, 3)),
        ("/input_schema", True, (2, 1)),
        ("/input_schema/properties/a~1b/type", False, (4, 17)),
        ("/input_schema/properties/a~1b/type", True, (4, 11)),
        ("/input_schema/properties/c~0d/1/0", False, (7, 8)),
        ("/input_schema/properties/c~0d/1/7", False, (7, 7)),
        ("/input_schema/properties/gone/further", True, (3, 3)),
        ("/name/below", False, (1, 7)),
    ],
)
def test_a_pointer_leads_to_line_and_column_of_the_value_its_key_or_the_nearest_ancestor(pointer, key, place):
    assert document_of(POSITIONS).position(pointer, key=key) == place
    as_json = "".join(f"{line}\n" for line in json.dumps(value_of(POSITIONS), indent=1).split("\n"))
    line, column = document_of(as_json, "a.json").position(pointer, key=key)
    assert as_json.split("\n")[line - 1][column - 1] in '{["123'


def test_json_positions_survive_tabs_long_lines_and_escapes():
    document = document_of('{\t"a\\u0062\\"": [1,\t{"c": "\\\\"}],\n\t"d": -1.5e3}', "a.json")
    assert document.position('/ab"/1/c') == (1, 26)
    assert document.position("/d", key=True) == (2, 2)
    assert document.position("/d") == (2, 7)


@pytest.mark.parametrize(
    ("code", "place"),
    [("unknown_key", (2, 3)), ("duplicate_key", (2, 3)), ("not_supported_yet", (2, 3)), ("type", (2, 6))],
)
def test_a_problem_of_a_key_is_placed_at_the_key_and_any_other_at_the_value(code, place):
    problem = document_of("a:\n  b: 1\n").place(Problem(code=code, message="m", pointer="/a/b"))
    assert (problem.source, problem.line, problem.column) == ("tool.yaml", *place)


def test_a_problem_that_has_its_line_keeps_it():
    document = document_of("a: 1")
    assert str(document.place(Problem(code="c", message="m", line=7, column=3))) == "tool.yaml:7:3: c: m"
    elsewhere = Problem(code="c", message="m", source="other", line=7)
    assert document.place(elsewhere) == elsewhere


def test_a_document_without_text_answers_with_its_first_line():
    assert Document("made", 0, 4, {}).position("/a") == (4, 1)


def test_a_moved_document_finds_its_parts_where_they_were_written():
    document = document_of("spec:\n  inputSchema:\n    type: object\n  name: x\n")
    first = document.moved({"inputSchema": {}, "name": "x"}, {"": "/spec"})
    second = first.moved(
        {"input_schema": {}, "title": "x"}, {"/input_schema": "/inputSchema", "/title": "/name"}
    )
    assert second.position("/input_schema/type") == (3, 11)
    assert second.position("/title") == (4, 9)
    assert second.position("/mock/result") == (2, 3)
    assert second.line == document.line


def test_the_longest_moved_prefix_counts():
    document = document_of("a:\n  b: 1\nc: 2\n")
    moved = document.moved({}, {"/x": "/a", "/x/b": "/c"})
    assert moved.position("/x/b") == (3, 4)
    assert moved.position("/x/c") == (2, 3)


VERSIONED = """
name: x
version: 1.10
title: 7
timeout: 1.50
input_schema:
  properties:
    default: {type: string, default: 1.10, enum: [1.10, two, 3.00], examples: [0, true]}
    amount: {type: number, default: 49.50}
    either: {type: [string, number], const: 1.0}
    nullable: {type: [string, "null"], const: 1.0}
    odd: {type: string, enum: 3.0, items: [{type: string, const: 2.50}], anyOf: [{type: string, default: 2.0}]}
    free: {const: 1.0}
output_schema: {type: string, const: 1e3}
"""


def test_numbers_stay_as_written_where_a_text_is_meant():
    document = document_of(VERSIONED)
    value = restore_text(document, ("version", "title", "author"))
    assert (value["version"], value["title"], value["timeout"]) == ("1.10", "7", 1.5)
    properties = value["input_schema"]["properties"]
    assert properties["default"]["default"] == "1.10"
    assert properties["default"]["enum"] == ["1.10", "two", "3.00"]
    assert properties["default"]["examples"] == ["0", True]
    assert properties["amount"]["default"] == 49.5
    assert properties["either"]["const"] == 1.0
    assert properties["nullable"]["const"] == "1.0"
    assert properties["odd"]["enum"] == 3.0
    assert properties["odd"]["items"][0]["const"] == "2.50"
    assert properties["odd"]["anyOf"][0]["default"] == "2.0"
    assert properties["free"]["const"] == 1.0
    assert value["output_schema"]["const"] == "1e3"
    assert document.value["version"] == 1.1


def test_a_value_in_which_nothing_is_restored_is_returned_as_it_is():
    for document in (document_of("name: x\ninput_schema: true\n"), document_of("- 1\n")):
        assert restore_text(document, ("name",)) is document.value
    json_document = document_of('{"version": 1.10}', "a.json")
    assert restore_text(json_document, ("version",)) is json_document.value


def test_moved_schemas_are_restored_too():
    document = document_of("inputSchema: {properties: {v: {type: string, default: 1.10}}}\n")
    moved = document.moved({"input_schema": document.value["inputSchema"]}, {"/input_schema": "/inputSchema"})
    assert restore_text(moved)["input_schema"]["properties"]["v"]["default"] == "1.10"


def test_a_number_that_was_not_written_is_not_restored():
    document = document_of("v: 1.10\n").moved({"version": 1.1, "title": 2}, {"/version": "/v"})
    assert restore_text(document, ("version", "title")) == {"version": "1.10", "title": 2}


def test_a_file_is_read_under_the_name_that_it_is_given(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: 1\na: 2\n", encoding="utf-8")
    documents, problems = read_documents(path, "pack/a.yaml")
    assert documents == []
    assert [str(problem).split("\n")[0] for problem in problems] == [
        "pack/a.yaml:2:1: duplicate_key: duplicate key `a` on lines 1 and 2 (at /a)"
    ]


def test_a_folder_a_pipe_and_an_impossible_name_are_unreadable(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    for path in (tmp_path, tmp_path / "pipe.yaml", tmp_path / "a\0b"):
        documents, problems = read_documents(path, "it")
        assert documents == []
        assert [(problem.code, problem.severity) for problem in problems] == [("file_unreadable", "error")]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=20), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_json_reads_back_what_json_wrote(value):
    (document,), problems = parse_documents("a.json", json.dumps(value), whole=True)
    assert problems == []
    assert json.dumps(document.value) == json.dumps(value)


printable = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Cn", "Zl", "Zp"], exclude_characters="\ufeff")
)
yaml_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | printable,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(printable, inner, max_size=4),
    max_leaves=20,
)


@given(yaml_values)
def test_yaml_reads_json_texts_as_json_does(value):
    (document,), problems = parse_documents("a.yaml", json.dumps(value, ensure_ascii=False))
    assert problems == []
    assert json.dumps(document.value) == json.dumps(value)


@given(yaml_values)
def test_every_part_of_a_document_has_a_place_in_its_text(value):
    for source in ("a.yaml", "a.json"):
        text = json.dumps(value, ensure_ascii=False, indent=1)
        (document,), _ = parse_documents(source, text, whole=True)
        lines = text.split("\n")
        for pointer, part in parts(value, ""):
            line, column = document.position(pointer)
            begin = json.dumps(part, ensure_ascii=False)[:1]
            assert lines[line - 1][column - 1] == begin


def parts(value, pointer):
    yield pointer, value
    entries = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, part in entries:
        yield from parts(part, pointer + pointer_of([key]))


@given(st.lists(st.text()))
def test_steps_undo_pointers(tokens):
    assert keys_of(pointer_of(tokens)) == tokens


def test_a_pointer_that_would_be_very_long_ends_at_an_ancestor():
    assert pointer_of(["a", "b" * 5000, "c"]) == "/a"


def test_texts_in_messages_are_short_and_printable():
    assert excerpt("a\x1b[31m\n" + "b" * 100, 12) == "a\\x1b[31m\\nbbbb…"
