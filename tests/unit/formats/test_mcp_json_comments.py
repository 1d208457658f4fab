"""JSON with comments and trailing commas: made JSON without moving anything."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampling import THOROUGH
from toolcrib.loading.documents.json_text import without_comments

texts = st.text(st.sampled_from('ab/*"\\,]}é\n\u2028 :'), max_size=8)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=12,
)
noise = st.sampled_from(
    ["", " ", "\n", "\r\n", "// c, ] } \" ' /*\n", '/* c, \n] } " // */', "/***/", "//\n"]
)


@st.composite
def commented(draw):
    """A value, and a text that says it with comments and trailing commas."""
    value = draw(values)

    def written(part) -> str:
        if isinstance(part, list):
            inner = [written(item) for item in part]
        elif isinstance(part, dict):
            inner = [f"{json.dumps(key)}{draw(noise)}:{written(item)}" for key, item in part.items()]
        else:
            return draw(noise) + json.dumps(part, ensure_ascii=draw(st.booleans())) + draw(noise)
        body = ("," + draw(noise)).join(inner)
        comma = "," + draw(noise) if inner and draw(st.booleans()) else ""
        opening, closing = "[]" if isinstance(part, list) else "{}"
        return f"{draw(noise)}{opening}{draw(noise)}{body}{draw(noise)}{comma}{closing}{draw(noise)}"

    return value, written(value)


@given(commented())
def test_comments_and_trailing_commas_say_nothing(case):
    value, text = case
    read = without_comments(text.encode()).decode()
    assert json.loads(read) == value
    assert len(read) == len(text)
    assert [at for at, sign in enumerate(read) if sign in "\r\n"] == [
        at for at, sign in enumerate(text) if sign in "\r\n"
    ]


@given(values, st.sampled_from([None, 2]))
def test_json_stays_as_it_is(value, indent):
    text = json.dumps(value, indent=indent, ensure_ascii=False).encode("utf-8", "surrogatepass")
    assert without_comments(text) == text


@given(st.binary(max_size=40) | st.text('/*"\\,[]{}\n a', max_size=40).map(str.encode))
def test_any_bytes_come_out_as_long_as_they_went_in(data):
    kept = without_comments(data)
    assert len(kept.decode("utf-8", "surrogateescape")) == len(data.decode("utf-8", "surrogateescape"))
    assert without_comments(kept) == kept


@pytest.mark.parametrize(
    "text",
    ["[,]", "{,}", "[1,,]", "[1 /* open", ",", "[1],", '["a\n,]', "/", "[1] / 2", "'// no'"],
)
def test_what_is_neither_stays_wrong(text):
    with pytest.raises(ValueError, match=r"."):
        json.loads(without_comments(text.encode()))


def test_a_hostile_text_takes_no_time():
    for piece in ("/*", "//", '"', ",", "/* */", ", ", '"\\'):
        text = (piece * (300_000 if THOROUGH else 60_000)).encode()
        assert len(without_comments(text)) == len(text)
