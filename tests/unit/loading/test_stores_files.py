"""Files of rows: what each kind of them may hold, and where what is wrong with one is told."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import Problem
from toolcrib.loading.documents.json_text import LargeJSON
from toolcrib.loading.stores import parse_row_file, rows_by_key

ROW = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "price": {"type": ["null", "number"]},
        "sold": {"type": "boolean"},
        "code": {"type": ["string", "integer"]},
    },
}


def read(name, content, key="", schema=None):
    """The rows of a file and what is wrong with it."""
    problems: list = []
    data = content.encode() if isinstance(content, str) else content
    written = parse_row_file(name, data, schema, problems)
    return None if written is None else rows_by_key(written, key, schema, problems), problems


def rows(name, content, key="", schema=None):
    found, problems = read(name, content, key, schema)
    assert [str(problem) for problem in problems] == []
    return found


def wrong(name, content, key="", schema=None):
    found, problems = read(name, content, key, schema)
    assert found is None
    assert {problem.source for problem in problems} == {name}
    assert {problem.severity for problem in problems} == {"error"}
    return [(problem.code, problem.line, problem.column, problem.pointer) for problem in problems]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", '{"x": {"n": 1}, "y": {}}'),
        ("a.JSON", '\ufeff {"x":{"n":1},"y":{}} \n'),
        ("a.yaml", "x: {n: 1}\ny: {}\n"),
        ("a.yml", "x:\n  n: 1\ny: {}\n"),
    ],
)
def test_objects_by_their_keys(name, content):
    assert rows(name, content) == {"x": {"n": 1}, "y": {}}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", '[{"id": "x", "n": 1}, {"id": "y"}]'),
        ("a.yaml", "- {id: x, n: 1}\n- {id: y}\n"),
        ("a.jsonl", '{"id": "x", "n": 1}\n\n  {"id": "y"}  \r\n'),
        ("a.jsonl", '\ufeff{"id": "x", "n": 1}\n{"id": "y"}'),
    ],
)
def test_lists_of_rows_with_a_key_and_numbered_ones(name, content):
    first, second = {"id": "x", "n": 1}, {"id": "y"}
    assert rows(name, content, "id") == {"x": first, "y": second}
    assert rows(name, content) == {"1": first, "2": second}


@pytest.mark.parametrize(
    ("name", "content"), [("a.json", "[]"), ("a.jsonl", ""), ("a.yaml", "[]"), ("a.csv", "id\n")]
)
def test_no_rows_are_no_fault(name, content):
    assert rows(name, content) == {}


def test_cells_of_a_csv_are_what_the_schema_says():
    text = 'n,price,sold,code,name\n1,1.5,true,07," a, ""b"" \n c"\n,,,,\n-2,3,false,x,y\n'
    assert list(rows("a.csv", text, schema=ROW).values()) == [
        {"n": 1, "price": 1.5, "sold": True, "code": "07", "name": ' a, "b" \n c'},
        {"code": "", "name": ""},
        {"n": -2, "price": 3, "sold": False, "code": "x", "name": "y"},
    ]
    assert rows("a.csv", text.replace("\n", "\r\n"))["1"]["n"] == "1"


@given(
    st.lists(
        st.fixed_dictionaries({"name": st.text(st.characters(exclude_categories=["Cs"]), min_size=1), "b": st.just("-")}),
        max_size=4,
    )
)  # fmt: skip
def test_texts_of_a_csv_arrive_as_they_are(table):
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["name", "b"])
    writer.writeheader()
    writer.writerows(table)
    assert list(rows("a.csv", text.getvalue()).values()) == table


@pytest.mark.parametrize(
    ("name", "content", "problems"),
    [
        ("a.json", "", [("empty_document", 1, 1, "")]),
        ("a.json", '{"x": {},\n "y" {}}', [("invalid_json", 2, 6, "")]),
        ("a.json", "[{}]\n]", [("invalid_json", 2, 1, "")]),
        ("a.json", '{"x": {"n": 1,\n  "n": 2},\n\n "x": {}}', [("duplicate_key", 2, 3, "/x/n"), ("duplicate_key", 4, 2, "/x")]),
        ("a.json", '[{"n": NaN},\n{"n": [1e999]}]', [("non_finite_number", 1, 8, "/0/n"), ("non_finite_number", 2, 8, "/1/n/0")]),
        ("a.json", '[{"n": %s}]' % ("1" * 1001), [("number_too_long", 1, 8, "/0/n")]),
        ("a.json", '{"x": {"n": "\\ud800"}}', [("lone_surrogate", 1, 13, "/x/n")]),
        ("a.json", '{\n"\\ud800": {}}', [("lone_surrogate", 2, 1, "/\ud800")]),
        ("a.json", "[" * 65 + "]" * 65, [("too_deep", 1, 65, "")]),
        ("a.json", b'{"x":\n "\xff"}', [("invalid_utf8", 2, 3, "")]),
        ("a.json", "1", [("rows_not_listed", 1, 1, "")]),
        ("a.json", "NaN", [("non_finite_number", 1, 1, "")]),
        ("a.json", '{"x": {},\n "y": 1}', [("row_not_object", 2, 7, "/y")]),
        ("a.json", '[{"n": 1},\n {"m": 2,\n  "n": "x"}]', [("row_breaks_schema", 3, 8, "/1/n")]),
        ("a.jsonl", '{}\n{"n" 1}\n{}\n[', [("invalid_json", 2, 6, ""), ("invalid_json", 4, 2, "")]),
        ("a.jsonl", '{}\n\n{"n": "x"}\n1\n', [("row_breaks_schema", 3, 1, "/1/n"), ("row_not_object", 4, 1, "/2")]),
        ("a.yaml", "x: {n: 1}\ny: *x\n", [("alias_refused", 2, 4, "/y")]),
        ("a.yaml", "- n: 1\n- n: x\n", [("row_breaks_schema", 2, 6, "/1/n")]),
        ("a.yaml", "- {}\n---\n- {}\n", [("several_documents", 3, 1, "")]),
        ("a.yaml", "", [("empty_document", 1, 1, "")]),
        ("a.csv", "", [("invalid_csv", 1, 1, "")]),
        ("a.csv", "n,,n\n1,2,3\n", [("invalid_csv", 1, 1, ""), ("invalid_csv", 1, 1, "")]),
        ("a.csv", 'n,m\n"1\n",2\n1\n1,2,3\n', [("invalid_csv", 4, 1, ""), ("invalid_csv", 5, 1, "")]),
        ("a.csv", 'n,m\n1,2\n1,"2\n', [("invalid_csv", 3, 1, "")]),
        ("a.csv", "n,name\n1,a\n2.5,b\n", [("row_breaks_schema", 3, 1, "/1/n")]),
        ("a.csv", b"n\n\xff\n", [("invalid_utf8", 2, 1, "")]),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_told_where_it_stands(name, content, problems):
    assert wrong(name, content, schema=ROW) == problems


def test_a_few_problems_of_each_file_are_told():
    assert len(wrong("a.jsonl", "[\n" * 50)) == 5
    assert len(wrong("a.csv", "a,b\n" + "1\n" * 50)) == 5


@pytest.mark.exhaustive
def test_large_json_has_no_bound_of_values_and_its_faults_have_lines():
    table = {f"k{index}": {"n": index, "list": [1, 2, 3]} for index in range(20_000)}
    text = json.dumps(table, indent=1)
    assert len(rows("a.json", text, schema=ROW)) == 20_000
    place = text.index('"n": 19990')
    changed = text.replace('"n": 19990', '"n": "19990"')
    line = text.count("\n", 0, place) + 1
    assert wrong("a.json", changed, schema=ROW) == [("row_breaks_schema", line, 8, "/k19990/n")]


JSON_ROWS = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    st.dictionaries(st.sampled_from(["n", "a/b", "~"]), st.integers() | st.text('é\n"\\', max_size=3), max_size=3),
    max_size=4,
)  # fmt: skip


@given(table=JSON_ROWS, indent=st.sampled_from([None, 0, 2]), plain=st.booleans())
def test_every_part_of_large_json_is_where_it_is_said_to_be(table, indent, plain):
    text = json.dumps(table, indent=indent, ensure_ascii=plain)
    found = LargeJSON("a.json", text.encode())
    assert (found.value, found.problems) == (table, [])
    lines = text.split("\n")
    for key, row in table.items():
        for name, value in row.items():
            pointer = "".join("/" + each.replace("~", "~0").replace("/", "~1") for each in (key, name))
            told = found.place(Problem(code="row_breaks_schema", message="", pointer=pointer))
            assert told.pointer == pointer
            rest = lines[told.line - 1][told.column - 1 :]
            assert rest.startswith(json.dumps(value, ensure_ascii=plain))
