"""The three-way merge of descriptors, as values and as text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.core.text import json_equal
from toolcrib.formats.imports.merge import ABSENT, merge
from toolcrib.formats.yaml_writer import yaml_of
from toolcrib.loading.documents.document import parse_documents
from toolcrib.loading.documents.edits import change_object

KEYS = st.sampled_from(["a", "b", "c", "no", "x y", "mock"])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from(["", "text", "two\nlines\n", "# no", "9"])
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=6
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=4)


@st.composite
def sides(draw):
    """What was generated, the file, and what is generated now: the last two are changed copies of the first."""
    base = draw(OBJECTS)
    return base, draw(changed(base)), draw(changed(base))


@st.composite
def changed(draw, value):
    if isinstance(value, dict) and draw(st.integers(0, 3)):
        copy = {}
        for key, item in value.items():
            fate = draw(st.integers(0, 4))
            if fate:
                copy[key] = draw(changed(item)) if fate == 1 else item
        return copy | (draw(OBJECTS) if draw(st.booleans()) else {})
    return draw(OBJECTS) if isinstance(value, dict) else draw(VALUES)


def at(value, pointer):
    for step in pointer.split("/")[1:]:
        if not isinstance(value, dict) or step.replace("~1", "/") not in value:
            return ABSENT
        value = value[step.replace("~1", "/")]
    return value


def leaves(value, pointer=""):
    if isinstance(value, dict) and value and pointer != "/mock":
        for key, item in value.items():
            yield from leaves(item, f"{pointer}/{key}")
    else:
        yield pointer


@settings(max_examples=120, deadline=None)
@given(sides())
def test_laws(three):
    base, ours, theirs = three
    merged = merge(base, ours, theirs)
    # Nobody edited: what is generated now. The source did not change: the file.
    assert json_equal(merge(base, base, theirs).value, theirs)
    untouched = merge(base, ours, base)
    assert json_equal(untouched.value, ours)
    assert (untouched.changed, untouched.conflicts) == ((), ())
    # What a person changed stays, and so does every part in conflict.
    for pointer in (*merged.edited, *(each.pointer for each in merged.conflicts)):
        assert json_equal(at(merged.value, pointer), at(ours, pointer))
    for pointer in {*leaves(ours)}:
        emptied = at(ours, pointer) == {} and isinstance(at(base, pointer), dict)
        if not emptied and not same(at(ours, pointer), at(base, pointer)):
            assert same(at(merged.value, pointer), at(ours, pointer)), pointer
    # Every difference from the file is what the source says.
    for pointer in merged.changed:
        assert same(at(merged.value, pointer), at(theirs, pointer))
    # A second import changes nothing.
    again = merge(theirs, merged.value, theirs)
    assert json_equal(again.value, merged.value)
    assert (again.changed, again.conflicts) == ((), ())


def same(left, right):
    return left is right if ABSENT in (left, right) else json_equal(left, right)


@settings(max_examples=120, deadline=None)
@given(sides())
def test_a_text_is_changed_to_the_merged_value_and_comments_stay(three):
    base, ours, theirs = three
    value = {"name": "t", **merge(base, ours, theirs).value}
    ours = {"name": "t", **ours}
    text = "# top\n" + "".join(f"{line}\n" for line in yaml_of(ours)) + "# end\n"
    new = change_object(text, 2, ours, value, yaml_of)
    assert new is not None
    (document,), problems = parse_documents("x.yaml", new)
    assert problems == []
    assert json_equal(document.value, value)
    assert new.startswith("# top\n")
    assert "# end\n" in new
    if json_equal(ours, value):
        assert new == text


LAYOUTS = {
    "a comment after a value": (
        "name: t # the name\nlimit: 1 # ours\n",
        {"name": "t", "limit": 2},
        "name: t # the name\nlimit: 2 # ours\n",
    ),
    "a comment after a text that becomes a block": (
        "name: t\ndescription: one # said\nmode: mock\n",
        {"name": "t", "description": "one\ntwo\n", "mode": "mock"},
        "name: t\ndescription: | # said\n  one\n  two\nmode: mock\n",
    ),
    "comments between keys": (
        "name: t\n# before\ninput_schema:\n  # inner\n  type: object\n  properties:\n    a: {type: string}  # an a\n\n# after\nmode: mock\n",
        {
            "name": "t",
            "input_schema": {
                "type": "object",
                "properties": {"a": {"type": "string"}, "b": {"type": "integer"}},
            },
            "mode": "mock",
        },
        "name: t\n# before\ninput_schema:\n  # inner\n  type: object\n  properties:\n    a: {type: string}  # an a\n    b: {type: integer}\n\n# after\nmode: mock\n",
    ),
    "a key that goes": (
        "name: t\ntitle: T\nmode: mock\n",
        {"name": "t", "mode": "mock"},
        "name: t\nmode: mock\n",
    ),
    "a key before all others": (
        "b: 1\nc: 2\n",
        {"a": 0, "b": 1, "c": 2},
        "a: 0\nb: 1\nc: 2\n",
    ),
    "a block of text before a blank line": (
        "name: t\ndescription: |\n  one\n\nmode: mock\n",
        {"name": "t", "description": "two\nlines\n", "mode": "mock"},
        "name: t\ndescription: |\n  two\n  lines\n\nmode: mock\n",
    ),
    "an item that is added to a list": (
        "name: t\nexamples:\n  # ours\n  - args: {a: 1}  # one\n    result: x\n\nmode: mock\n",
        {"name": "t", "examples": [{"args": {"a": 1}, "result": "x"}, {"args": {"a": 2}}], "mode": "mock"},
        "name: t\nexamples:\n  # ours\n  - args: {a: 1}  # one\n    result: x\n  - {args: {a: 2}}\n\nmode: mock\n",
    ),
    "a member of an item": (
        "name: t\nanyOf:\n- type: string  # text\n  maxLength: 3 # short\n- type: integer # number\n",
        {"name": "t", "anyOf": [{"type": "string", "maxLength": 5}, {"type": "integer", "minimum": 0}]},
        "name: t\nanyOf:\n- type: string  # text\n  maxLength: 5 # short\n- type: integer # number\n  minimum: 0\n",
    ),
    "an item that goes": (
        "name: t\nrequired:\n- a # one\n- b\n",
        {"name": "t", "required": ["b"]},
        "name: t\nrequired: [b]\n",
    ),
    "windows": ("name: t\r\nlimit: 1\r\n", {"name": "t", "limit": 2}, "name: t\r\nlimit: 2\r\n"),
    "JSON": ('{"name": "t", "limit": 1}', {"name": "t", "limit": 2}, '{\n  "name": "t",\n  "limit": 2\n}\n'),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    text, value, expected = LAYOUTS[layout]
    (document,), _problems = parse_documents("x.yaml", text)
    assert change_object(text, 1, document.value, value, yaml_of) == expected


def test_an_anchor_whose_change_would_reach_another_place_is_not_changed():
    text = "name: t\na: &x\n  k: 1\nb: *x\n"
    assert (
        change_object(
            text,
            1,
            {"name": "t", "a": {"k": 1}, "b": {"k": 1}},
            {"name": "t", "a": {"k": 2}, "b": {"k": 1}},
            yaml_of,
        )
        is None
    )
