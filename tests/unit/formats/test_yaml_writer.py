"""JSON values as YAML."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.formats.yaml_writer import WIDTH, yaml_of
from toolcrib.loading.documents.document import parse_documents


def written(document):
    return "".join(f"{line}\n" for line in yaml_of(document))


def read(text):
    """What our own reader makes of a YAML text, without a complaint."""
    (document,), problems = parse_documents("x.yaml", text)
    assert problems == []
    return document.value


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("plain words", "key: plain words"),
        ("", 'key: ""'),
        ("no", 'key: "no"'),
        ("Null", 'key: "Null"'),
        ("1.10", 'key: "1.10"'),
        ("22:22", 'key: "22:22"'),
        ("0x1F", 'key: "0x1F"'),
        ("2024-01-01", 'key: "2024-01-01"'),
        ("- a", 'key: "- a"'),
        ("a: b", 'key: "a: b"'),
        ("a #b", 'key: "a #b"'),
        ("{{ args.x }}", 'key: "{{ args.x }}"'),
        ("ends ", 'key: "ends "'),
        ("tab\there", 'key: "tab\\there"'),
        ('say "hi" \\', 'key: "say \\"hi\\" \\\\"'),
        ("Zürich", 'key: "Zürich"'),
        ("un\u200bseen", 'key: "un\\u200bseen"'),
        ("\U000e0041", 'key: "\\U000e0041"'),
        ("\ufeff\x85\u2028\x00", 'key: "\\ufeff\\u0085\\u2028\\u0000"'),
        (None, "key: null"),
        (True, "key: true"),
        (1, "key: 1"),
        (1.0, "key: 1.0"),
        (-1e16, "key: -1e+16"),
        ([], "key: []"),
        ({}, "key: {}"),
        ([1, "a", None, [2]], "key: [1, a, null, [2]]"),
        ({"a": 1, "b c": "no", "on": [1.5]}, 'key: {a: 1, "b c": "no", "on": [1.5]}'),
    ],
)
def test_a_small_value_stands_on_its_line(value, line):
    assert written({"key": value}) == f"{line}\n"
    assert json.dumps(read(line)) == json.dumps({"key": value})


LONG = "A text that goes on and on until it does not fit on one line of a file any more, and then some words."


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one\ntwo", ["key: |-", "  one", "  two"]),
        ("one\n\n  two: #\n", ["key: |", "  one", "", "    two: #"]),
        (LONG, ["key: >-", f"  {LONG.removesuffix(' words.')}", "  words."]),
        (LONG + "\n", ["key: >", f"  {LONG.removesuffix(' words.')}", "  words."]),
        (LONG.replace(" on ", "  on ", 1), ["key: |-", f"  {LONG.replace(' on ', '  on ', 1)}"]),
        (" one\ntwo", ['key: " one\\ntwo"']),
        ("one \ntwo", ['key: "one \\ntwo"']),
        ("one\ntwo\n\n", ['key: "one\\ntwo\\n\\n"']),
        ("\none", ['key: "\\none"']),
        ("one\r\ntwo", ['key: "one\\r\\ntwo"']),
        ("one\nun\u200bseen", ['key: "one\\nun\\u200bseen"']),
    ],
)
def test_a_long_text_is_a_block_where_every_character_is_then_seen_and_comes_back(text, lines):
    assert written({"key": text}).splitlines() == lines
    assert read(written({"key": text})) == {"key": text}


def test_what_is_not_small_is_nested():
    document = {
        "a": {"b": {"c": {"d": {"e": 1}}}, "f": [{"text": LONG, "g": {"h": [LONG]}}, [LONG, LONG], LONG]}
    }
    text = written(document)
    assert read(text) == document
    assert "    b:\n" not in text.splitlines()[0]
    assert "    - text: >-\n" in text
    assert max(map(len, text.splitlines())) <= WIDTH + 4


TEXTS = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    [
        "no",
        "1",
        "~",
        "<<",
        "a: b",
        " x",
        "x ",
        "---",
        "...",
        "%TAG",
        "# x",
        "&a",
        "*a",
        "!t",
        "a\n b",
        "a\n\n",
        "?",
        "- ",
    ]
)
LINES = st.lists(
    st.sampled_from(["", "a", " a", "a ", "# b", "- c: d", "word " * 30, "\t", "..."]), max_size=5
).map("\n".join)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
    | LINES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS | LINES, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(st.dictionaries(TEXTS | LINES, VALUES, min_size=1, max_size=4))
def test_every_value_comes_back(document):
    assert json.dumps(read(written(document))) == json.dumps(document)
