"""Pieces of an answer put together."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib.provider import CallDelta, Finish, Reasoning, ReasoningDelta, Text, TextDelta, ToolCall
from toolcrib.provider.models.assembler import Assembler, parse_arguments


def assembled(*deltas: Any) -> tuple[Any, ...]:
    assembler = Assembler()
    for delta in deltas:
        list(assembler.add(delta))
    return assembler.parts()


def given_on(*deltas: Any) -> list[Any]:
    assembler = Assembler()
    return [new for delta in deltas for new in assembler.add(delta)]


def call(id_: str, name: str, written: str = "{}") -> ToolCall:
    return ToolCall(id_, name, parse_arguments(written), written)


def test_parts_stand_as_they_came() -> None:
    parts = assembled(
        ReasoningDelta("Hm"),
        ReasoningDelta(".", {"signature": "s"}),
        ReasoningDelta("More"),
        TextDelta("Let me "),
        TextDelta("look."),
        CallDelta(0, "a", "get", '{"x":'),
        TextDelta("And "),
        CallDelta(1, "b", "put"),
        CallDelta(0, arguments=" 1}"),
        TextDelta("that."),
    )
    assert parts == (
        Reasoning("Hm.", {"signature": "s"}),
        Reasoning("More"),
        Text("Let me look."),
        ToolCall("a", "get", {"x": 1}, '{"x": 1}'),
        Text("And "),
        ToolCall("b", "put", {}, ""),
        Text("that."),
    )


def test_ids_and_names_may_come_late_or_never() -> None:
    assert assembled(
        CallDelta(0, arguments='{"x"'),
        CallDelta(1, arguments="{"),
        CallDelta(0, name="get", arguments=":1"),
        CallDelta(0, "a", arguments="}"),
        CallDelta(1, name="put", arguments="}"),
    ) == (call("a", "get", '{"x":1}'), call("", "put", "{}"))


@pytest.mark.parametrize("again", [("a", "get"), ("a", ""), ("", "get")])
def test_an_id_or_a_name_that_is_said_again_is_said_once(again: tuple[str, str]) -> None:
    pieces = ['{"x"', ": [{}", "]", "}", " ", ""]
    deltas = [CallDelta(0, *again, arguments=piece) for piece in pieces]
    assert assembled(CallDelta(0, "a", "get"), *deltas) == (call("a", "get", '{"x": [{}]} '),)


def test_a_whole_call_that_is_given_again_is_one_call() -> None:
    whole = CallDelta(0, "a", "get", '{"x":1}')
    assert assembled(whole, whole) == (call("a", "get", '{"x":1}'),)


def test_one_slot_for_several_calls() -> None:
    by_id = assembled(
        CallDelta(0, "a", "get", '{"x":'),
        CallDelta(0, "b", "get", "{"),
        CallDelta(0, "a", arguments="1}"),
        CallDelta(0, "b", arguments="}"),
    )
    assert by_id == (call("a", "get", '{"x":1}'), call("b", "get", "{}"))
    without_ids = [
        CallDelta(0, "", "get", {"x": 1}),
        CallDelta(0, "", "get", {"x": 1}),
        CallDelta(0, "", "put"),
    ]
    assert assembled(*without_ids) == (
        call("", "get", '{"x":1}'),
        call("", "get", '{"x":1}'),
        call("", "put", ""),
    )
    one_id = [
        CallDelta(0, "a", "get", {"x": 1}),
        CallDelta(0, "a", "get", {"x": 2}),
        CallDelta(0, "a", "put"),
    ]
    assert [part.name for part in assembled(*one_id)] == ["get", "get", "put"]


def test_a_name_in_pieces_is_one_name() -> None:
    deltas = [CallDelta(0, "a", "get_"), CallDelta(0, "a", "order"), CallDelta(0, "", "", "{}")]
    assert assembled(*deltas) == (call("a", "get_order"),)
    assert assembled(CallDelta(0, "a", "get_"), CallDelta(0, "a", "get_order")) == (
        call("a", "get_order", ""),
    )


@pytest.mark.parametrize(
    ("written", "arguments"),
    [
        ("", {}),
        (" \n", {}),
        ("null", {}),
        ('{"n": 12345678901234567890123}', {"n": 12345678901234567890123}),
        ('{"n": 1.0}', {"n": 1.0}),
        ('{"n": NaN}', None),
        ('{"n": -Infinity}', None),
        ('{"n": 1e999}', None),
        ('{"n": 1, "n": 1}', None),
        ('{"n": "\\ud83d"}', None),
        ('{"n": ' + "9" * 5000 + "}", None),
        ("[" * 100_000, None),
        ("[]", None),
        ('"{}"', None),
        ('{"n": 1', None),
        ("{}{}", None),
    ],
)
def test_arguments_are_read_exactly_or_not_at_all(written: str, arguments: Any) -> None:
    (part,) = assembled(CallDelta(0, "a", "get", written))
    assert (part.arguments, part.written) == (arguments, written)
    assert arguments is None or type(part.arguments.get("n")) is type(arguments.get("n"))


def test_objects_that_are_no_json_are_no_arguments() -> None:
    (part,) = assembled(CallDelta(0, "a", "get", {"n": float("nan")}))
    assert (part.arguments, part.written) == (None, '{"n": NaN}')
    (part,) = assembled(CallDelta(0, "a", "get", {"n": {1, 2}}))
    assert (part.arguments, part.written) == (None, '{"n": "{1, 2}"}')


def test_halves_of_characters_wait_for_each_other() -> None:
    deltas = [
        TextDelta("a\ud83d"),
        TextDelta("\ude00b"),
        ReasoningDelta("\ud83d"),
        TextDelta("\ude00"),
        Finish(),
    ]
    assert given_on(*deltas) == [
        TextDelta("a"),
        TextDelta("😀b"),
        ReasoningDelta("\ufffd"),
        TextDelta("\ufffd"),
        Finish(),
    ]
    assert assembled(*deltas) == (Text("a😀b"), Reasoning("\ufffd"), Text("\ufffd"))
    assert assembled(CallDelta(0, "a", "get", '{"x":"\ud83d'), CallDelta(0, "", "", '\ude00"}')) == (
        call("a", "get", '{"x":"😀"}'),
    )


def test_half_characters_in_names_and_ids_are_none() -> None:
    (made,) = assembled(CallDelta(0, "a\udc00", "get\ud800", "{}"))
    assert (made.id, made.name) == ("a\ufffd", "get\ufffd")
    assert given_on(CallDelta(0, "a\udc00", "get\ud800")) == [CallDelta(0, "a\ufffd", "get\ufffd")]


def test_what_is_new_is_given_on() -> None:
    deltas = [
        TextDelta(""),
        CallDelta(7, "a", "get", "{"),
        CallDelta(7, "a", "get", "}"),
        CallDelta(7, "a", "get"),
        CallDelta(2, "b", "put", {"x": 1}),
    ]
    assert given_on(*deltas) == [
        CallDelta(0, "a", "get", "{"),
        CallDelta(0, "", "", "}"),
        CallDelta(1, "b", "put", '{"x":1}'),
    ]


def test_nothing_comes_after_the_end() -> None:
    assembler = Assembler()
    assert assembler.finish is None
    deltas = [TextDelta("a"), Finish("length"), TextDelta("b"), Finish("stop")]
    assert [new for delta in deltas for new in assembler.add(delta)] == deltas[:2]
    assert (assembler.finish, assembler.parts()) == (Finish("length"), (Text("a"),))


TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
ARGUMENTS = st.one_of(
    st.dictionaries(TEXTS, st.integers() | TEXTS, max_size=2).map(
        lambda value: json.dumps(value, ensure_ascii=False)
    ),
    st.sampled_from(["", "{", "nonsense", "[1]"]),
)
PARTS = st.lists(
    st.one_of(
        st.builds(Text, TEXTS),
        st.builds(Reasoning, TEXTS, st.none()),
        st.builds(call, TEXTS, TEXTS, ARGUMENTS),
    ),
    max_size=6,
)


def split(draw: Any, text: str) -> list[str]:
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@st.composite
def messages_in_pieces(draw: Any) -> tuple[list[Any], list[Any]]:
    """A message, and pieces of it: those of a call may come as late as one likes after its first."""
    parts = _without_neighbours(draw(PARTS))
    deltas: list[Any] = []
    late: list[list[Any]] = []
    for slot, part in enumerate(parts):
        if isinstance(part, ToolCall):
            first, *rest = split(draw, part.written)
            named = draw(st.booleans())
            deltas.append(CallDelta(slot, part.id, part.name if named else "", first))
            pieces = [CallDelta(slot, draw(st.sampled_from(["", part.id])), "", piece) for piece in rest]
            late.append(pieces if named else [CallDelta(slot, "", part.name), *pieces])
        else:
            kind = TextDelta if isinstance(part, Text) else ReasoningDelta
            for piece in split(draw, part.text):
                deltas.append(kind(piece))
                _take(draw, late, deltas)
        _take(draw, late, deltas)
    return parts, [*deltas, *(piece for pieces in late for piece in pieces)]


def _without_neighbours(parts: list[Any]) -> list[Any]:
    """The parts without those that would be one with the part before."""
    apart: list[Any] = []
    for part in parts:
        if isinstance(part, ToolCall) or not apart or type(part) is not type(apart[-1]):
            apart.append(part)
    return apart


def _take(draw: Any, late: list[list[Any]], deltas: list[Any]) -> None:
    """Pieces of earlier calls come in between, or do not."""
    while any(late) and draw(st.booleans()):
        deltas.append(draw(st.sampled_from([pieces for pieces in late if pieces])).pop(0))


@settings(max_examples=examples(60), deadline=None)
@given(messages_in_pieces())
def test_any_pieces_of_a_message_give_the_message(message: tuple[list[Any], list[Any]]) -> None:
    parts, deltas = message
    assert list(assembled(*deltas)) == parts
    assert list(assembled(*given_on(*deltas))) == parts
