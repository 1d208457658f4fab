"""Texts with statements."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2.sandbox import ImmutableSandboxedEnvironment

from toolcrib.core.errors import ExpressionError
from toolcrib.expressions import compile_text

NAMES = ("rows", "o", "n", "t", "yes", "no")
SCOPE = {
    "rows": [{"id": 1, "tags": ["x", "y"]}, {"id": 2, "tags": []}, {"id": 3, "tags": ["z"]}],
    "o": {"a": 1, "b": 2},
    "n": 2,
    "t": "<b>",
    "yes": True,
    "no": False,
}

SAME_AS_JINJA = [
    "",
    "plain\n",
    "two ends\n\n",
    "a {{ t }} b",
    "{% if n == 2 %}two{% elif n == 3 %}three{% else %}other{% endif %}",
    "{% if n == 1 %}one{% elif n == 2 %}two{% else %}other{% endif %}",
    "{% if n == 1 %}one{% elif n == 4 %}four{% else %}other{% endif %}",
    "{% if no %}x{% endif %}",
    "{% for r in rows %}{{ r.id }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for r in rows if r.id != 2 %}{{ loop.index }}/{{ loop.length }}:{{ r.id }} {% endfor %}",
    "{% for r in rows %}{% for t in r.tags %}{{ loop.index0 }}{{ t }}{% else %}-{% endfor %}{{ loop.index }}{% endfor %}",
    "{% for r in [] %}x{% else %}none{% endfor %}",
    "{% for r in rows -%}\n  {{- r.id }}\n{%- endfor %}\nend",
    "{% for k, v in o | items %}{{ k }}={{ v }};{% endfor %}",
    "{% for r in rows %}{% if loop.first %}first{% endif %}{{ r['id'] }}{% endfor %}{{ t }}",
    "{# a note #}x{% raw %}{{ not read }}{% endraw %}",
    "{% for t in rows[0].tags %}{{ t }}{% endfor %}{{ t }}",
    "line\r\nends\r\n",
    "{% for r in rows %}{{ r.id }}{% endfor %}{{ rows | map }}".replace("{{ rows | map }}", ""),
]


@pytest.mark.parametrize("source", SAME_AS_JINJA)
def test_a_template_renders_as_in_jinja(source):
    theirs = ImmutableSandboxedEnvironment().from_string(source).render(**SCOPE)
    assert compile_text(source, NAMES).render(SCOPE) == theirs


def test_values_come_out_in_the_spelling_of_json():
    text = compile_text("{{ yes }} {{ none }} {{ o }} {{ 'é' | tojson }} {{ 1.0 }}", NAMES)
    assert text.render(SCOPE) == 'true null {"a":1,"b":2} "é" 1.0'


def test_the_names_that_are_read_do_not_include_those_of_loops():
    source = "{% for r in rows if n %}{{ r.id }}{{ loop.index }}{{ t }}{% endfor %}"
    assert compile_text(source, NAMES).names == {"rows", "n", "t"}


def test_a_branch_that_is_not_taken_reads_nothing():
    assert compile_text("{% if n %}a{% else %}{{ t }}{% endif %}", NAMES).render({"n": 1}) == "a"


REFUSED = [
    ("a\n{% set x = 1 %}", "expression_not_allowed", "line 2: `{% set %}` is not supported"),
    ("{% set x %}{% endset %}", "expression_not_allowed", "`{% set %}`"),
    ("{% macro m() %}{% endmacro %}", "expression_not_allowed", "`{% macro %}`"),
    ("{% call x() %}{% endcall %}", "expression_not_allowed", "`{% call %}`"),
    ("{% filter upper %}{% endfilter %}", "expression_not_allowed", "`{% filter %}`"),
    ("{% block b %}{% endblock %}", "expression_not_allowed", "`{% block %}`"),
    ("{% with x = 1 %}{% endwith %}", "expression_not_allowed", "`{% with %}`"),
    ("{% autoescape true %}{% endautoescape %}", "expression_not_allowed", "is not supported"),
    ("{% for r in rows recursive %}{% endfor %}", "expression_not_allowed", "recursive"),
    ("{% for (a, b), c in rows %}{% endfor %}", "expression_not_allowed", "cannot be nested"),
    (
        "{% for a in rows %}\n{% for b in rows %}\n{% for c in rows %}{% endfor %}{% endfor %}{% endfor %}",
        "expression_not_allowed",
        "line 3: loops can be nested at most 2 deep",
    ),
    ("\n\n{% if n %}", "expression_syntax", "line 3: Unexpected end of template"),
    ("{% break %}", "expression_syntax", "unknown tag 'break'"),
    ("x\n{{ n", "expression_syntax", "line 2: "),
    ("\n{{ '\\d' }}", "expression_syntax", "line 2: unknown escape `\\d` in '\\d'"),
    ("\n{{ zz }}", "unknown_name", "line 2: unknown name `zz`"),
    ("{% for r in rows %}{{ lop.index }}{% endfor %}", "unknown_name", "did you mean `loop`?"),
    ("{{ loop.index }}", "unknown_name", "unknown name `loop`"),
    ("{% for r in rows if loop.first %}{% endfor %}", "unknown_name", "unknown name `loop`"),
    ("{% if n %}\n{{ 1 / 0 }}{% endif %}", "expression_failed", "line 2: `/` divides by zero"),
    ("x" * 20_000, "expression_too_large", "16,384"),
    ("{% if n %}" * 70 + "{% endif %}" * 70, "expression_too_large", "64 levels"),
    ("{{ " + "(" * 4000, "expression_too_large", "too deeply"),
    ("{{ " + "9" * 5000 + " }}", "expression_syntax", "invalid number"),
    ("{{ n }}" * 2100, "expression_too_large", "2,000"),
]


@pytest.mark.parametrize(("source", "code", "words"), REFUSED, ids=[source[:50] for source, _, _ in REFUSED])
def test_a_template_is_refused(source, code, words):
    with pytest.raises(ExpressionError) as caught:
        compile_text(source, NAMES)
    assert caught.value.code == code
    assert words in str(caught.value)


FAILING = [
    ("\n{{ o.c }}", "missing_key", "line 2: `o` has no `c`"),
    ("\n{% for r in rows %}\n{{ r.zz }}{% endfor %}", "missing_key", "line 3: `r` has no `zz`"),
    ("{% for r in rows %}{{ loop.revindex }}{% endfor %}", "missing_key", "`loop` has no `revindex`"),
    ("\n{% for r in o %}{% endfor %}", "expression_failed", "line 2: `for` needs a list, not an object"),
    ("{% for r in t %}{% endfor %}", "expression_failed", "not a string"),
    ("{% for a, b in rows %}{% endfor %}", "expression_failed", "`for a, b` needs lists of 2, not an object"),
    ("{% for a, b in [[n]] %}{% endfor %}", "expression_failed", "not a list of 1"),
    ("{% for r in rows if r.zz %}{% endfor %}", "missing_key", "line 1: `r` has no `zz`"),
    (
        "{% for i in range(9999) %}{% endfor %}{% for i in rows %}{% endfor %}",
        "expression_failed",
        "10,000 turns",
    ),
    (
        "{% for i in range(999) %}{{ 'é' | replace('é', t * 1) }}{% endfor %}",
        "expression_failed",
        "`*` needs",
    ),
]


@pytest.mark.parametrize(("source", "code", "words"), FAILING, ids=[source for source, _, _ in FAILING])
def test_a_template_fails_with_its_line(source, code, words):
    with pytest.raises(ExpressionError) as caught:
        compile_text(source, NAMES).render(SCOPE)
    assert caught.value.code == code
    assert words in str(caught.value)


def test_the_size_of_the_rendered_text_is_bounded_in_bytes():
    text = compile_text("{% for i in range(9000) %}{{ t }}{% endfor %}", NAMES)
    assert len(text.render({"t": "x" * 29})) == 261_000
    with pytest.raises(ExpressionError, match="256 KiB"):
        text.render({"t": "é" * 29})


def test_an_error_of_a_lazy_scope_keeps_its_own_place():
    class Lazy(dict):
        def __missing__(self, name):
            raise ExpressionError("from a `let`", pointer="/mock/let/n")

    with pytest.raises(ExpressionError) as caught:
        compile_text("{{ n }}", NAMES).render(Lazy())
    assert caught.value.pointer == "/mock/let/n"
    assert caught.value.message == "from a `let`"


def test_values_that_are_too_deep_give_a_typed_error():
    deep = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ExpressionError, match="nested too deeply"):
        compile_text("{{ n }}", NAMES).render({"n": deep})


JSON_TEMPLATES = [
    '{"a": "{{ args.t }}"}',
    '{"b": [1], "a": "{{ args.t }}"}',
    '{% if args.t %}{"a": "{{ args.t }}"}{% endif %}',
    '{% if args.t %}{"a": "{% if args.u %}x{% else %}{{ args.t }}{% endif %}"}{% else %}{}{% endif %}',
    '{"a": "{% for mark in args.marks %}{{ mark }}{% endfor %}"}',
    '{"a": {{ args.t | tojson }}}',
]


@pytest.mark.parametrize("source", JSON_TEMPLATES)
@given(text=st.text(min_size=1))
def test_in_a_json_template_data_never_becomes_structure(source, text):
    made = compile_text(source, ["args"]).render({"args": {"t": text, "u": False, "marks": list(text)}})
    assert json.loads(made)["a"] == text


@pytest.mark.parametrize("source", ['Say "{{ args.t }}"', '{{ args.t }} {"a": "{{ args.t }}"}'])
def test_other_templates_escape_nothing(source):
    assert compile_text(source, ["args"]).render({"args": {"t": 'a"b'}}) == source.replace(
        "{{ args.t }}", 'a"b'
    )
