"""Values and results as text."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.model import Content, Outcome, Result
from toolcrib.core.text import canonical, compact, escape_terminal, text_for_model, truncate

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_compact_text_reads_back_as_the_same_value(value):
    assert json.loads(compact(value)) == value


@given(VALUES)
def test_json_is_written_as_by_the_standard_library(value):
    options = {"separators": (",", ":"), "ensure_ascii": False}
    assert (compact(value), canonical(value)) == (
        json.dumps(value, **options),
        json.dumps(value, **options, sort_keys=True),
    )


@given(VALUES)
def test_canonical_text_does_not_depend_on_the_order_of_keys(value):
    def turned(inner):
        if isinstance(inner, dict):
            return {key: turned(inner[key]) for key in reversed(inner)}
        return [turned(item) for item in inner] if isinstance(inner, list) else inner

    assert canonical(turned(value)) == canonical(value)


def test_compact_text_keeps_key_order_exact_numbers_and_every_character():
    value = {"b": 2**70, "a": [0.1, 1.0, "é</script>&", None, True]}
    assert compact(value) == '{"b":1180591620717411303424,"a":[0.1,1.0,"é</script>&",null,true]}'
    assert canonical(value) == '{"a":[0.1,1.0,"é</script>&",null,true],"b":1180591620717411303424}'


@pytest.mark.parametrize("write", [compact, canonical])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused(write, number):
    with pytest.raises(ValueError, match="JSON compliant"):
        write({"n": number})


@pytest.mark.parametrize("write", [compact, canonical])
def test_a_lone_surrogate_is_refused_by_its_code(write):
    with pytest.raises(ValueError, match=r"`\\ud83d` and cannot be written"):
        write({"text": "broken \ud83d"})


def test_endless_nesting_is_refused():
    value: list = []
    for _ in range(100_000):
        value = [value]
    with pytest.raises(ValueError, match="nested"):
        compact(value)
    value[0] = value
    with pytest.raises(ValueError, match="nested"):
        compact(value)


def test_what_is_no_json_is_refused():
    with pytest.raises(TypeError):
        compact({1, 2})


PNG = Content("image", data="aGk=", mime_type="image/png")


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (Result.success("as it is"), "as it is"),
        (Result.success(""), ""),
        (Result.success(None), "null"),
        (Result.success({"city": "Tromsø", "daily": [1, 2.5]}), '{"city":"Tromsø","daily":[1,2.5]}'),
        (Result.success(content=(Content("text", "one"), Content("text", "two"))), "one\ntwo"),
        (Result.success(content=(Content("text", "a chart"), PNG)), "a chart\n[image image/png]"),
        (
            Result.success(
                content=(
                    Content("resource", mime_type="application/pdf", uri="file:///r.pdf", title="Report"),
                )
            ),
            "[resource application/pdf Report file:///r.pdf]",
        ),
        (Result.success(content=(Content("resource", "inside", uri="file:///r.txt"),)), "inside"),
        (Result.success({"a": 1}, content=(Content("text", '{"a": 1}'), PNG)), '{"a":1}\n[image image/png]'),
        (Result.success({"a": 1}, content=(Content("text", '{"a":1}'),)), '{"a":1}'),
        (Result.success({"a": 1}, content=(Content("text", '{"a": 2}'),)), '{"a":1}\n{"a": 2}'),
        (Result.success({"a": 1}, content=(Content("text", "{a brace"),)), '{"a":1}\n{a brace'),
        (Result.success({"a": 1}, content=(Content("text", "one a"),)), '{"a":1}\none a'),
        (Result.failure(Outcome.TIMEOUT, "it took longer than 5s"), "it took longer than 5s"),
        (Result.failure(Outcome.TOOL_ERROR, "no such order", code="not_found"), "not_found: no such order"),
        (
            Result.failure(Outcome.TOOL_ERROR, "not_found: it is gone", code="not_found"),
            "not_found: it is gone",
        ),
        (Result.failure(Outcome.TOOL_ERROR, "", code="E42"), "E42"),
        (Result(Outcome.CANCELLED), "cancelled"),
        (
            Result.failure(
                Outcome.TOOL_ERROR, "bad", content=(Content("text", "bad"), Content("text", "more"))
            ),
            "bad\nmore",
        ),
    ],
)
def test_what_a_model_reads(result, text):
    assert text_for_model(result) == text


def test_what_a_model_reads_is_bounded():
    text = text_for_model(Result.success("x" * 98_765), limit=1_000)
    assert len(text.encode()) <= 1_000
    assert text.endswith("of 98,765 bytes shown]")


def test_a_long_text_ends_with_what_was_shown():
    assert truncate("a" * 200, 50) == "a" * 11 + "… [truncated: 11 of 200 bytes shown]"


@given(st.text(), st.integers(-5, 300))
def test_truncated_text_never_exceeds_its_limit_and_begins_as_the_text(text, limit):
    cut = truncate(text, limit)
    assert len(cut.encode(errors="replace")) <= max(limit, 0)
    assert cut == text or text.encode(errors="replace").decode().startswith(cut.partition("… [truncated")[0])


def test_a_character_is_never_split():
    shown = truncate("ø" * 300, 101)
    assert shown.startswith("ø" * 20)
    assert "�" not in shown
    assert truncate("ø" * 30, 3) == "ø"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext é 漢 👍", "plain\n\ttext é 漢 👍"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("back\rspace\x08", r"back\x0dspace\x08"),
        ("\x9b1m\x7f\x00", r"\x9b1m\x7f\x00"),
        ("abc\u202etxt", r"abc\u202etxt"),
        ("\u2066x\u2069\ufeff\u2028", r"\u2066x\u2069\ufeff\u2028"),
        ("\ud83d", r"\ud83d"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_could_steer_a_terminal_is_spelt_out(text, shown):
    assert escape_terminal(text) == shown


@given(st.text())
def test_escaped_text_can_be_printed_and_escaped_again_unchanged(text):
    shown = escape_terminal(text)
    shown.encode()
    assert escape_terminal(shown) == shown
