"""Characters that nobody sees: found where they hide something, and not where writing needs them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.security.hidden_characters import (
    decode_tag_characters,
    hidden_characters,
    hidden_in,
    is_ordinary_name,
    spell_out_hidden,
)

TAGGED = "".join(chr(0xE0000 + ord(letter)) for letter in "rm -rf ~")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a\u202eb", ["RIGHT-TO-LEFT OVERRIDE"]),
        ("a\u2066b\u2069", ["LEFT-TO-RIGHT ISOLATE", "POP DIRECTIONAL ISOLATE"]),
        ("read\u200b me", ["ZERO WIDTH SPACE"]),
        ("a\u200db", ["ZERO WIDTH JOINER"]),
        ("\ufeffa", ["ZERO WIDTH NO-BREAK SPACE"]),
        ("a\u2060\u2063", ["WORD JOINER", "INVISIBLE SEPARATOR"]),
        ("soft\u00adhyphen", ["SOFT HYPHEN"]),
        ("\U000e0041", ["TAG LATIN CAPITAL LETTER A"]),
        ("a\ufe0f", ["VARIATION SELECTOR-16"]),
        ("😀\ufe0f\ufe01", ["VARIATION SELECTOR-2"]),
        ("😀\U000e0101\U000e0102", ["VARIATION SELECTOR-19"]),
        ("\ue000", ["(unnamed)"]),
        ("\U0010fffd", ["(unnamed)"]),
        ("a\x1b[31m", ["ESCAPE"]),
        ("a\x00b\x07", ["NULL", "(unnamed)"]),
        ("a\rb", ["CARRIAGE RETURN"]),
        ("line\u2028break", ["LINE SEPARATOR"]),
        ("\u3164\u2800", ["HANGUL FILLER", "BRAILLE PATTERN BLANK"]),
        ("\ud800", ["(unnamed)"]),
    ],
)
def test_what_can_hide_something_is_found(text, names):
    assert [each.name for each in hidden_characters(text)] == names


@pytest.mark.parametrize(
    "text",
    [
        "Plain text,\n\tindented,\r\nin lines.",
        "Zürich, São Paulo, Ελλάδα, Москва, 東京, القاهرة, תל אביב",
        "1\ufe0f\u20e3 first ❤\ufe0f, then 👩\u200d💻, 👩\u200d❤\ufe0f\u200d👨",
        "می\u200cخواهم",
        "क्\u200dष",
        "葛\U000e0100",
    ],
)
def test_ordinary_writing_is_passed_over(text):
    assert hidden_characters(text) == []


def test_each_has_its_place_and_what_it_could_hide():
    (found,) = hidden_characters("abc\u200bd")
    assert (found.code, found.offset, str(found)) == (0x200B, 3, "U+200B ZERO WIDTH SPACE at character 4")
    assert found.why


def test_a_definition_is_looked_through_to_its_bottom():
    definition = {
        "name": "to\u200bol",
        "description": "Fine.",
        "inputSchema": {
            "properties": {
                "ci\u200bty": {"description": "x\u202e"},
                "list": {"items": {"enum": ["a", {"deep": ["\u2060"]}]}},
            }
        },
        "annotations": {"title": "\ufeff"},
    }
    assert [(each.where, each.in_key) for each in hidden_in(definition)] == [
        ("/name", False),
        ("/inputSchema/properties/ci\u200bty", True),
        ("/inputSchema/properties/ci\u200bty/description", False),
        ("/inputSchema/properties/list/items/enum/1/deep/0", False),
        ("/annotations/title", False),
    ]


def test_endless_nesting_is_no_end():
    value = current = {}
    for _ in range(5000):
        current["x"] = current = {}
    current["x"] = "\u200b"
    assert hidden_in(value) == []


def test_tags_are_read():
    assert decode_tag_characters(f"harmless{TAGGED}") == "rm -rf ~"
    assert decode_tag_characters("harmless") == ""


def test_what_is_hidden_is_spelt_out():
    assert spell_out_hidden("a\u200b\u202e\x1b\U000e0041é\n") == "a\\u200b\\u202e\\u001b\\U000e0041é\n"


@given(st.text())
def test_nothing_hidden_is_left_in_what_is_shown(text):
    assert hidden_characters(spell_out_hidden(text)) == []


@pytest.mark.parametrize(
    ("name", "ordinary"), [("get_time-2/a.b", True), ("gеt", False), ("a b", False), ("", False)]
)
def test_names_with_unusual_characters_are_told_apart(name, ordinary):
    assert is_ordinary_name(name) is ordinary
