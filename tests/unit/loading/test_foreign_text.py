"""JSON and YAML of other systems: what is accepted in addition to documents, and the limits."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.loading.documents import foreign_text
from toolcrib.loading.documents.foreign_text import UnreadableText, decode_foreign, read_foreign


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": [1, null]}', {"a": [1, None]}),
        ("a: 1\nb: no\n200: x\ntrue: y\nd: 2020-01-01", {"a": 1, "b": "no", "200": "x", "true": "y", "d": "2020-01-01"}),
        ("base: &b {x: 1, y: 2}\nmore: {<<: *b, y: 3}\nlist: {<<: [*b]}", {"base": {"x": 1, "y": 2}, "more": {"x": 1, "y": 3}, "list": {"x": 1, "y": 2}}),
        ("a: !!str 1\nb: !own {c: 1.5}\nc: ''\nd: ~", {"a": "1", "b": {"c": 1.5}, "c": "", "d": None}),
        ("{a: 1}", {"a": 1}),
        ("- 1\n- [a]", [1, ["a"]]),
        ("a: 1\n---\nb: 2", {"a": 1}),
        ("a: " + "1" * 5000, {"a": "1" * 5000}),
    ],
)  # fmt: skip
def test_values(text, value):
    assert read_foreign(text) == (value, ())


@pytest.mark.parametrize("text", ['{"a": 1, "b": 2, "a": 3}', "a: 1\nb: 2\na: 3"])
def test_of_equal_keys_the_last_one_counts(text):
    value, notes = read_foreign(text)
    assert value == {"a": 3, "b": 2}
    assert [note.partition("`; ")[0].partition("` on")[0] for note in notes] == ["duplicate key `a"]


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("", "it is empty", 0),
        ("a: [", "invalid YAML", 2),
        ('{"a": 1,\n"b" 2}' + " " * (1 << 20), "invalid JSON", 2),
        ('{"a": NaN}', "`NaN` is not a valid JSON number", 0),
        ("[" * 100_000, "nested too deeply", 0),
        ("a: 1e999", "a number is too large", 1),
        ("a: *b", "the alias `*b` has no value here", 1),
        ("a: &a [*a]", "the alias `*a` has no value here", 1),
        ("? [1, 2]\n: a", "a key is a list or an object", 1),
        ("- " * 300 + "a", "nested deeper than 256 levels", 1),
        ('{"a": ' + "1" * 5000 + "}", "invalid JSON", 0),
    ],
)
def test_what_cannot_be_read(text, message, line):
    with pytest.raises(UnreadableText) as caught:
        read_foreign(text)
    assert message in str(caught.value)
    assert caught.value.line == line


def test_aliases_count_as_copies(monkeypatch):
    monkeypatch.setattr(foreign_text, "NODES", 1000)
    bomb = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
    with pytest.raises(UnreadableText, match="more than 1,000 keys and values, with those of aliases"):
        read_foreign(bomb)
    with pytest.raises(UnreadableText, match="more than 1,000 keys and values"):
        read_foreign("- x\n" * 2000)


def test_encodings():
    assert decode_foreign("\ufeffä".encode()) == "ä"
    assert decode_foreign('{"a": 1}'.encode("utf-16")) == '{"a": 1}'
    with pytest.raises(UnreadableText, match="it is not UTF-8") as caught:
        decode_foreign(b"a\nb: \xff\xfe")
    assert caught.value.line == 2


@given(st.text(st.sampled_from('\\"a\u00e9\u20ac\U0001f600\n'), max_size=12))
def test_a_large_text_with_emoji_is_read_as_it_is(text):
    filler = " " * (4 * foreign_text.YAML_SIZE)
    written = json.dumps({"a": text, text: [text]}, ensure_ascii=False) + filler
    assert read_foreign(decode_foreign(written.encode())).value == json.loads(written)


@pytest.mark.parametrize("text", ['{"a": "\\\U0001f600"}', "{\U0001f600: 1}"])
def test_an_emoji_makes_no_invalid_text_valid(text):
    with pytest.raises(UnreadableText, match="invalid JSON"):
        read_foreign(decode_foreign((text + " " * (4 * foreign_text.YAML_SIZE)).encode()))
