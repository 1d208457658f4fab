"""Items are added to lists of documents as text, and the rest of the text stays."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.formats.yaml_writer import yaml_of
from toolcrib.loading.documents.document import parse_documents
from toolcrib.loading.documents.edits import add_item

ITEM = {"args": {"a": 1}, "result": "x"}

LAYOUTS = {
    "no list": (
        "name: t\nmock: {result: 1}\n",
        "name: t\nmock: {result: 1}\nexamples:\n  - {args: {a: 1}, result: x}\n",
    ),
    "comments": (
        "# top\nname: t # one\n\nmock: {result: 1} # two\n# end\n",
        "# top\nname: t # one\n\nmock: {result: 1} # two\nexamples:\n  - {args: {a: 1}, result: x}\n# end\n",
    ),
    "a list in the middle": (
        "name: t\nexamples:\n- args: {a: 2}  # old\n  result: y\n\n# the mock\nmock: {result: 1}\n",
        "name: t\nexamples:\n- args: {a: 2}  # old\n  result: y\n- {args: {a: 1}, result: x}\n\n# the mock\nmock: {result: 1}\n",
    ),
    "an indented list": (
        "name: t\nexamples:\n    - args:\n        a: 2\nmock: 1\n",
        "name: t\nexamples:\n    - args:\n        a: 2\n    - {args: {a: 1}, result: x}\nmock: 1\n",
    ),
    "a list on one line": (
        "name: t\nexamples: [{args: {a: 2}}] # all\nmock: 1\n",
        'name: t\nexamples: [{args: {a: 2}}, {"args": {"a": 1}, "result": "x"}] # all\nmock: 1\n',
    ),
    "an empty list": ("name: t\nexamples: []\n", 'name: t\nexamples: [{"args": {"a": 1}, "result": "x"}]\n'),
    "null": (
        "name: t\nexamples:\nmock: 1\n",
        'name: t\nexamples: [{"args": {"a": 1}, "result": "x"}]\nmock: 1\n',
    ),
    "no last newline": ("name: t", "name: t\nexamples:\n  - {args: {a: 1}, result: x}"),
    "a block of text": (
        "name: t\ndescription: |\n  one\n  two\n",
        "name: t\ndescription: |\n  one\n  two\nexamples:\n  - {args: {a: 1}, result: x}\n",
    ),
    "windows": (
        "name: t\r\nmock: 1\r\n",
        "name: t\r\nmock: 1\r\nexamples:\r\n  - {args: {a: 1}, result: x}\r\n",
    ),
    "JSON": (
        '{\n  "name": "t",\n  "mock": {"result": 1}\n}\n',
        '{\n  "name": "t",\n  "mock": {"result": 1},\n  "examples": [{"args": {"a": 1}, "result": "x"}]\n}\n',
    ),
    "JSON with a list": (
        '{"name":"t","examples":[\n  {"args":{}}\n]}',
        '{"name":"t","examples":[\n  {"args":{}},\n  {"args": {"a": 1}, "result": "x"}\n]}',
    ),
}


@pytest.mark.parametrize(("before", "after"), LAYOUTS.values(), ids=LAYOUTS)
def test_the_item_comes_last_and_the_rest_stays(before, after):
    line = parse_documents("", before)[0][0].line
    assert add_item(before, line, "examples", ITEM, yaml_of) == after


def test_the_object_of_the_line_gets_it():
    text = "name: a\n---\nname: b\nmock: 1\n---\nname: c\n"
    assert add_item(text, 3, "examples", ITEM, yaml_of) == text.replace(
        "mock: 1\n", "mock: 1\nexamples:\n  - {args: {a: 1}, result: x}\n"
    )
    several = '[\n{"name": "a"},\n{"name": "b"}\n]'
    changed = add_item(several, 3, "examples", ITEM, yaml_of)
    assert json.loads(changed) == [{"name": "a"}, {"name": "b", "examples": [ITEM]}]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("name: t\n", 2),
        ("- 1\n", 1),
        ("{a: 1}, {", 1),
        ('[{"name": "a"}, {"name": "b"}]', 1),  # both begin in this line
        ("name: t\nexamples: text\n", 1),
        ("name: t\nexamples: {a: 1}\n", 1),
        ("name: t\ndescription: |+\n  one\n\n", 1),  # a line after the text would change it
    ],
)
def test_where_the_layout_does_not_allow_it_nothing_changes(text, line):
    changed = add_item(text, line, "examples", ITEM, yaml_of)
    if changed is not None:
        assert parse_documents("", changed)[0][0].value == parse_documents("", text)[0][0].value | {
            "examples": [ITEM]
        }
    else:
        assert "|+" not in text


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text(st.sampled_from("ab:#-{}[]'\"\\ \n|>é"), max_size=8)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("xyz", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.text("xyz", min_size=1, max_size=2), values, min_size=1),
    st.lists(values, max_size=2),
    values,
)
def test_what_the_writer_writes_can_be_extended(document, there, item):
    whole = document | ({"list": there} if there else {})
    for text in ("\n".join(yaml_of(whole)) + "\n", json.dumps(whole, indent=2), json.dumps(whole)):
        changed = add_item(text, 1, "list", item, yaml_of)
        assert changed is not None
        assert parse_documents("", changed)[0][0].value == whole | {"list": [*there, item]}
