"""The regular expressions for texts with expressions: what one of them refuses can't be compiled."""

from __future__ import annotations

import re
from functools import cache

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib.core.errors import ExpressionError
from toolcrib.expressions import compile_text, compile_value
from toolcrib.loading import editor_patterns

NAMES = dict.fromkeys(["args", "a", "b", "now"])
PATTERNS = (editor_patterns.BALANCED, editor_patterns.READABLE, editor_patterns.WITHOUT_VARIABLES)

TOKENS = [
    "args",
    "a",
    "b.c",
    "args.x",
    "'s'",
    '"q"',
    "'it\\'s'",
    "1",
    "2.5",
    "1e3",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "+",
    "-",
    "*",
    "/",
    "//",
    "**",
    "%",
    "~",
    "==",
    "!=",
    "<",
    ">=",
    "=",
    "and",
    "or",
    "not",
    "in",
    "is",
    "if",
    "else",
    "|",
    "|upper",
    "|default(1)",
    "upper",
    "default",
    "none",
    "true",
    "is",
    "none",
    "is",
    "not",
    "none",
    "is",
    "in",
    "is",
    "matching",
    "'x'",
    "is",
    "defined",
    "lower(",
    "max(",
    ".x",
    ".0",
    "uuid()",
    "seq('x')",
    "&",
    "!",
    ";",
    "#",
    "}}",
    "{{",
    "é",
    "a",
    "if",
    "b",
    "else",
    "1",
    "[1,2]",
    "{'a':1}",
    "{a:1}",
    "\\",
    "where(x=1)",
    "1if",
    "a",
    "else",
    "2",
    "shout(a)",
    "${A}",
    "$${A}",
]


@cache
def judge(pattern: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({"pattern": pattern})


def found(pattern: str, text: str) -> bool:
    """Whether a pattern is found in a text; the engines of Python and of JSON Schema agree."""
    python = re.search(pattern, text) is not None
    assert judge(pattern).is_valid(text) == python
    return python


@st.composite
def texts(draw):
    tokens = [token.replace("\t", " ") for token in draw(st.lists(st.sampled_from(TOKENS), max_size=7))]
    body = draw(st.sampled_from(["", " "])).join(tokens)
    return draw(st.sampled_from(["{{ %s }}", "{{%s}}", "x {{ %s }} y{", "{{ %s }} {{ a }}"])) % body


@settings(max_examples=examples(1000), deadline=None)
@given(texts())
def test_a_text_that_is_refused_can_not_be_compiled(text):
    if not all(found(pattern, text) for pattern in PATTERNS):
        problems = []
        compile_value(text, NAMES, problems)
        assert problems


@settings(max_examples=examples(500), deadline=None)
@given(
    texts(),
    st.sampled_from(["%s", "{%% if a %%}%s{%% endif %%}", "{# {{ #}%s", "{%% raw %%}{{ %s{%% endraw %%}"]),
)
def test_a_template_that_is_refused_can_not_be_compiled(text, around):
    template = around % text
    if not found(editor_patterns.TEMPLATE, template):
        with pytest.raises(ExpressionError):
            compile_text(template, NAMES)


DEEP = "{{ " + "(" * 20 + "a" + ")" * 20 + " }}"


@pytest.mark.parametrize(
    "text",
    [
        "no expression, {one} brace } and {{ '{{' }}",
        "{{ args.a | upper }} and {{ -a ** 2 }}",
        "{{ {'a': {'b': [1, 2]}}.a.b[0] if not a else {} }}",
        "{{ nothing_named_not.not_this }}",
        "$${HOME} costs $5, $$",
        DEEP,
    ],
)
def test_what_can_be_read_is_accepted(text):
    assert all(found(pattern, text) for pattern in PATTERNS)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "{{ a",
            "{{ a }",
            "{{ }}",
            "{{ a b }}",
            "{{ a + }}",
            "{{ (a }}",
            "{{ a) }}",
            "{{ 'a }}",
            "{{ not }}",
        ),
        *(
            "{{ a.upper() }}",
            "{{ a is odder }}",
            "{% if a %}",
            "{{-a}}",
            "${A}",
        ),
    ],
)
def test_what_can_not_be_read_is_refused(text):
    assert not all(found(pattern, text) for pattern in PATTERNS)


def test_functions_of_a_pack_are_not_refused():
    # Only the loader knows what a pack defines.
    assert all(found(pattern, "{{ shout(a) | loud }}") for pattern in PATTERNS)


HOSTILE = [
    "(",
    "() ",
    "(a ",
    "1.5 + ",
    "1if ",
    "not + ",
    "'a' ",
    "- ",
    "a if b else ",
    "x is in ",
    ".0 ",
    "a | ",
]


@pytest.mark.parametrize("unit", HOSTILE)
def test_an_engine_that_backtracks_comes_to_an_end(unit):
    text = "{{ " + unit * 500 + "\x00 !"
    refusing = [
        pattern
        for pattern in (*PATTERNS, editor_patterns.TEMPLATE, editor_patterns.PLACE)
        if not re.search(pattern, text)
    ]
    assert {editor_patterns.READABLE, editor_patterns.TEMPLATE} <= {*refusing}
