"""Texts of PromptPacks become texts of ours, and mean the same."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib.expressions import compile_value
from toolcrib.formats.promptpack.pack_reader import TemplateProblem, Templates, placeholder_pattern

VALUES = {"a": "A", "bb": "{{ a }}", "c_1": "${c}"}


def turned(text, fragments=None, syntax="{{variable}}", declared=()):
    place = placeholder_pattern(syntax)
    assert place is not None
    return Templates(place, fragments or {}).convert(text, declared)


def rendered(text):
    problems = []
    rendering = compile_value(text, frozenset(VALUES), problems)
    assert problems == []
    return rendering.render(VALUES)


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("plain", (), "plain"),
        ("{{a}} and {{ bb }}.", ("a", "bb"), "A and {{ a }}."),
        ("{{{a}}}", ("a",), "{A}"),
        ("${{a}}", ("a",), "$A"),
        ("{{#if a}} {% for %} {# x #} ${y}", (), "{{#if a}} {% for %} {# x #} ${y}"),
        ("{ {{a}}{{a}} }", ("a",), "{ AA }"),
        ("{{a.b}} {{ 1a }}", (), "{{a.b}} {{ 1a }}"),
        ("{\n{{a}} $\n{{a}}", ("a",), "{\nA $\nA"),
    ],
)
def test_places_of_variables_are_filled_and_nothing_else_is(text, names, expected):
    own = turned(text)
    assert (own.names, own.fault) == (names, None)
    assert rendered(own.text) == expected


@pytest.mark.parametrize(
    ("syntax", "text", "expected"),
    [
        ("${variable}", "${a} {{a}} {a}", "A {{a}} {a}"),
        ("{variable}", "{a} {{bb}}", "A {{{ a }}}"),
        ("<<variable>>", "<<a>> {{ a }}", "A {{ a }}"),
        ("{{.variable}}", "{{.a}} {{a}}", "A {{a}}"),
    ],
)
def test_places_are_written_as_the_promptpack_says(syntax, text, expected):
    assert rendered(turned(text, syntax=syntax).text) == expected


def test_a_syntax_says_how_a_variable_is_written():
    assert placeholder_pattern("{{x}}") is None
    assert placeholder_pattern("variable}}") is None


def test_fragments_stand_in_their_places():
    fragments = {"rules": "Be {{a}}.{{fragment:more}}", "more": " {{ bb }}", "a": "unused"}
    own = turned("{{rules}} {{fragment:more}}", fragments, declared=["a"])
    assert (rendered(own.text), own.names) == ("Be A. {{ a }}  {{ a }}", ("a", "bb"))
    assert rendered(turned("{{a}}", fragments).text) == "unused"
    assert (
        rendered(turned("{{ fragments.a }} {{fragments.more}}", fragments, declared=["a"]).text)
        == "unused  {{ a }}"
    )


@pytest.mark.parametrize(
    ("text", "fragments", "code", "hint"),
    [
        ("{{fragment:rulse}}", {"rules": "x"}, "unknown_fragment", "did you mean `rules`?"),
        ("{{fragments.rulse}}", {"rules": "x"}, "unknown_fragment", "did you mean `rules`?"),
        ("{{fragment:x}}", {}, "unknown_fragment", "add it to `fragments`"),
        ("{{x}}", {"x": "{{y}}", "y": "{{x}}"}, "endless_fragment", ""),
        ("{{x}}", {"x": "{{fragments.x}}"}, "endless_fragment", ""),
        ("{{x}}", {"x": "{{fragment:x}}"}, "endless_fragment", ""),
        ("{{x}}", {"x": "." * 200_001}, "too_large", ""),
        (
            "{{f0}}",
            {f"f{n}": 2 * f"{{{{f{n + 1}}}}}" for n in range(40)} | {"f40": ""},
            "too_large",
            "",
        ),
    ],
)
def test_fragments_that_do_not_come_together_are_refused(text, fragments, code, hint):
    fault = turned(text, fragments).fault
    assert isinstance(fault, TemplateProblem)
    assert (fault.code, fault.hint) == (code, hint)


PIECES = st.sampled_from(
    ["{", "}", "{{", "}}", "%", "#", "$", "'", " ", "a", "{{a}}", "{{ bb }}", "{{c_1}}", "\n", "\\"]
)


@settings(max_examples=examples(200))
@given(st.lists(PIECES, max_size=12).map("".join), st.lists(PIECES, max_size=4).map("".join))
def test_any_text_means_what_it_meant(text, fragment):
    """Replacing each place by its value, as whoever wrote the text expects, comes to the same."""
    whole = text.replace("a}", "a}{{part}}")
    own = turned(whole, {"part": fragment})

    def plain(source):
        return re.sub(r"\{\{\s*([A-Za-z_]\w*)\s*\}\}", value, source)

    def value(match):
        return plain(fragment) if match[1] == "part" else VALUES.get(match[1], match[0])

    unknown = set(own.names) - VALUES.keys()
    if own.fault is None and not unknown:
        assert rendered(own.text) == plain(whole)
