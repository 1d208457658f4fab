"""Event streams, by the rules of WHATWG HTML, wherever they are cut."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.http.event_stream import EventStream, StreamEvent


def read(*chunks: bytes) -> list[tuple[str, str]]:
    stream = EventStream()
    return [tuple(event) for chunk in chunks for event in stream.add(chunk)]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (b"data: a\n\n", [("message", "a")]),
        (b"event: ping\ndata: a\ndata: b\n\n", [("ping", "a\nb")]),
        (b"data\n\ndata\ndata\n\ndata:\n", [("message", ""), ("message", "\n")]),
        (b"data:a\n\ndata:  b\n\n", [("message", "a"), ("message", " b")]),
        (b": a comment\n\n:\nid: 1\nretry: 5\nodd: x\nodd\ndata: a\n\n", [("message", "a")]),
        (b"event: lost\n\ndata: a\n\n", [("message", "a")]),
        (b"event: e\nevent: f\ndata: a\n\n", [("f", "a")]),
        (b"data: a\r\ndata: b\r\n\r\n", [("message", "a\nb")]),
        (b"data: a\rdata: b\r\r", [("message", "a\nb")]),
        (b"data: a\n\r\ndata: b\r\n\n", [("message", "a"), ("message", "b")]),
        (b"\xef\xbb\xbfdata: a\n\n", [("message", "a")]),
        (b"data: \xef\xbb\xbf\n\n", [("message", "\ufeff")]),
        ("data: a\u2028b\x0bc\x85\n\n".encode(), [("message", "a\u2028b\x0bc\x85")]),
        (b"data: \xff\n\n", [("message", "\ufffd")]),
        (b"Data: a\n data: b\n\n", []),
        (b"data: not ended\n", []),
    ],
)
def test_a_stream_is_read_by_the_rules(text: bytes, events: list[tuple[str, str]]) -> None:
    assert read(text) == events
    assert read(*(text[at : at + 1] for at in range(len(text)))) == events


def test_an_event_is_there_as_soon_as_it_has_ended() -> None:
    stream = EventStream()
    assert stream.add(b"data: a\r\n\r") == [StreamEvent("message", "a")]
    assert stream.add(b"") == []
    assert stream.add(b"\ndata: b\r\r") == [StreamEvent("message", "b")]


@pytest.mark.parametrize("text", [b"data: aaaaa\n", b"data: a\ndata: b", b"data: aaaaaaaaaaaaaa"])
def test_an_event_has_a_bound(text: bytes) -> None:
    stream = EventStream(largest=10)
    assert stream.add(b": 345678\n\ndata: a\n\n" * 3) == [StreamEvent("message", "a")] * 3
    with pytest.raises(ValueError, match="an event exceeds 10 characters"):
        stream.add(text)


PIECES = st.sampled_from(["data", "event", ":", " ", "\r", "\n", "\r\n", "\ufeff", "é", "😀", "a", "\n\n"])


@given(st.lists(PIECES, max_size=30).map("".join), st.lists(st.integers(0, 60), max_size=6))
def test_it_makes_no_difference_where_a_stream_is_cut(text: str, cuts: list[int]) -> None:
    raw = text.encode()
    places = [0, *sorted(cuts), len(raw)]
    chunks = [raw[start:end] for start, end in itertools.pairwise(places) if start <= end]
    assert read(*chunks) == read(raw) == by_the_book(text)


def by_the_book(text: str) -> list[tuple[str, str]]:
    """The rules once more, for a text that is there as a whole."""
    found, kind, data = [], "", ""
    for line in re.split("\r\n|\r|\n", text.removeprefix("\ufeff"))[:-1]:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                found.append((kind or "message", data[:-1]))
            kind = data = ""
        elif field == "data":
            data += value + "\n"
        elif field == "event":
            kind = value
    return found
