"""Structures: JSON values whose texts may hold expressions."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib.core.errors import ExpressionError
from toolcrib.expressions import compile_value

SCOPE = {"args": {"city": "Oslo", "days": 3, "tags": ["a"], "flag": True, "nothing": None}, "n": 1.5}


def compiled(value, names=("args", "n"), pointer=""):
    problems = []
    rendering = compile_value(value, names, problems, pointer)
    assert problems == []
    return rendering


def problems_of(value, pointer=""):
    problems = []
    compile_value(value, ("args", "n"), problems, pointer)
    return problems


RENDERED = [
    ("{{ args.days }}", 3),
    ("{{args.days}}", 3),
    ("{{   args.tags\n}}", ["a"]),
    ("{{ -args.days }}", -3),
    ("{{+args.days}}", 3),
    (" {{ args.days }}", " 3"),
    ("{{ args.days }}\n", "3\n"),
    (
        "{{ args.city }}/{{ args.flag }}/{{ args.nothing }}/{{ n }}/{{ args.tags }}",
        'Oslo/true/null/1.5/["a"]',
    ),
    ("a\r\nb {{ args.city }}\r\n", "a\r\nb Oslo\r\n"),
    ("{{ {'a': {'b': args.days}} }}", {"a": {"b": 3}}),
    ("{{ '}}' ~ args.days }}", "}}3"),
    ("{{ '{{' }}", "{{"),
    ("{{ '{%' }} {{ args.days }} {{ \"{#\" }}", "{% 3 {#"),
    ("{{ (args.tags + [']'])[1] }}", "]"),
    ("}} {", "}} {"),
    ("$${HOME} $5 {", "${HOME} $5 {"),
    ("$${X} {{ args.days }} {{ '$${Y}' }}", "${X} 3 ${Y}"),
    ("", ""),
    (None, None),
    ([1, "{{ args.days }}", [True]], [1, 3, [True]]),
    (
        {"city": "{{ args.city }}", "daily": [], "n": {"x": ["{{ n }}"]}},
        {"city": "Oslo", "daily": [], "n": {"x": [1.5]}},
    ),
]


@pytest.mark.parametrize(("value", "result"), RENDERED, ids=[repr(value) for value, _ in RENDERED])
def test_a_structure_renders_to(value, result):
    rendered = compiled(value).render(SCOPE)
    assert rendered == result
    assert json.dumps(rendered) == json.dumps(result)


def test_d50_quotes_newlines_and_backslashes_of_data_give_valid_json():
    city = 'a "b"\n\\ c'
    rendered = compiled({"city": "in {{ args.city }}"}).render({"args": {"city": city}})
    assert json.loads(json.dumps(rendered)) == {"city": f"in {city}"}


def test_keys_keep_their_order():
    assert list(compiled({"z": "{{ n }}", "a": 1, "m": "{{ n }}"}).render(SCOPE)) == ["z", "a", "m"]


@pytest.mark.parametrize("value", ["a", {"a": [1, "$${X}"]}, "{{ 1 + 1 }}", "{{ 'a' }}{{ 2 }}", "{{ [] }}"])
def test_a_structure_that_reads_nothing_is_constant(value):
    rendering = compiled(value)
    assert rendering.constant
    assert rendering.names == frozenset()
    assert rendering.render({}) is rendering.render({})


def test_the_names_that_are_read_are_known():
    rendering = compiled(["{{ n }}", {"a": "{{ args.x if n else 1 }}"}])
    assert rendering.names == {"n", "args"}
    assert not rendering.constant


def test_what_holds_a_computed_value_is_new_each_time():
    rendering = compiled({"a": ["{{ n }}"]})
    first = rendering.render(SCOPE)
    first["a"].append(1)
    first["b"] = 1
    assert rendering.render(SCOPE) == {"a": [1.5]}


def test_a_structure_is_not_changed_by_compiling_it():
    value = {"a": ["{{ n }}", "$${X}"]}
    compiled(value).render(SCOPE)
    assert value == {"a": ["{{ n }}", "$${X}"]}


REFUSED = [
    ("{% if n %}x{% endif %}", "expression_not_allowed", "statements"),
    ("{# note #}", "expression_not_allowed", "comments"),
    ("{{-n}}", "expression_not_allowed", "`{{ -x }}`"),
    ("{{ n -}}", "expression_not_allowed", "remove the minus sign"),
    ("{{ n", "expression_syntax", "`{{ '{{' }}`"),
    ("a {{ n }} {{", "expression_syntax", "unclosed `{{`"),
    ("{{ (n }}", "expression_syntax", "unbalanced"),
    ("{{ don't }}", "expression_syntax", "in `don't`"),
    ("{{ don't }} it's {{ n }}", "expression_syntax", "unbalanced"),
    ("{{ don't }}, it's", "expression_syntax", "unbalanced"),
    ("{{ }}", "expression_syntax", "braces is empty"),
    ("{{}}", "expression_syntax", "braces is empty"),
    ("{{{ n }}}", "expression_syntax", "in `{ n }`"),
    ("{{ x }}", "unknown_name", "unknown name `x`"),
    ("{{ 1 / 0 }}", "expression_failed", "divides by zero"),
    ("{{ 'x' | replace('x', 'y') | length }}{{ nn }}", "unknown_name", "did you mean `n`"),
]


@pytest.mark.parametrize(("text", "code", "words"), REFUSED, ids=[text for text, _, _ in REFUSED])
def test_a_text_is_refused(text, code, words):
    (problem,) = problems_of(text)
    assert problem.code == code
    assert problem.severity == "error"
    assert words in str(problem)


def test_two_constant_texts_that_grow_too_long_together_are_refused():
    half = "x" * 200_000
    (problem,) = problems_of(half + "{{ 1 }}" + half)
    assert "256 KiB" in problem.message


def test_all_problems_are_reported_with_their_pointers():
    value = {"a/b": ["{{ x }} {{ y }}", "ok", "{% z %}"], "m~n": {"{{ k }}": "{{ 1/0 }}"}}
    assert [(problem.code, problem.pointer) for problem in problems_of(value, "/mock/result")] == [
        ("unknown_name", "/mock/result/a~1b/0"),
        ("unknown_name", "/mock/result/a~1b/0"),
        ("expression_not_allowed", "/mock/result/a~1b/2"),
        ("expression_not_allowed", "/mock/result/m~0n/{{ k }}"),
        ("expression_failed", "/mock/result/m~0n/{{ k }}"),
    ]


def test_a_text_with_a_fault_renders_as_it_was_written():
    value = {"a": "{{ x }}", "b": "{{ n }} {{", "c": "{{ n }}"}
    assert compile_value(value, ["n"], []).render(SCOPE) == {"a": "{{ x }}", "b": "{{ n }} {{", "c": 1.5}


def test_a_structure_that_is_too_deep_is_refused():
    value = "{{ n }}"
    for _ in range(200):
        value = [value]
    (problem,) = problems_of(value)
    assert problem.code == "expression_too_large"


@pytest.mark.parametrize("text", ["{{ args.absent }}", "<{{ args.absent }}>"])
def test_an_error_at_run_time_has_the_pointer_of_its_text(text):
    with pytest.raises(ExpressionError) as caught:
        compiled({"a": [0, text]}, pointer="/mock/result").render(SCOPE)
    assert caught.value.pointer == "/mock/result/a/1"
    assert caught.value.code == "missing_key"


def test_an_error_of_a_lazy_scope_keeps_its_own_pointer():
    class Lazy(dict):
        def __missing__(self, name):
            raise ExpressionError("from a `let`", pointer="/mock/let/n")

    with pytest.raises(ExpressionError) as caught:
        compiled({"a": "{{ n }}"}).render(Lazy())
    assert caught.value.pointer == "/mock/let/n"


def test_values_that_are_too_deep_give_an_error_with_its_place():
    deep = []
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(ExpressionError) as caught:
        compiled({"a": "<{{ n }}>"}).render({"n": deep})
    assert caught.value.pointer == "/a"


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=6).filter(lambda text: "{" not in text and "$" not in text),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("abc/~", max_size=3), inner, max_size=3)
    ),
    max_leaves=10,
)


@settings(max_examples=examples(100), deadline=None)
@given(PLAIN)
def test_a_structure_without_expressions_is_itself(value):
    rendering = compiled(value)
    assert rendering.constant
    assert rendering.render({}) == value


@settings(max_examples=examples(100), deadline=None)
@given(st.text(max_size=20), st.text(max_size=20).filter(lambda text: "{" not in text and "$" not in text))
def test_data_between_literal_texts_comes_out_as_it_is(data, around):
    rendered = compiled(f"{around}{{{{ n }}}}.{around}").render({"n": data})
    assert rendered == f"{around}{data}.{around}"


def test_a_variable_is_refused_where_nothing_is_looked_up():
    problems = []
    compile_value({"a": ["x ${HOME} {{ args.days }}", "$${HOME}"]}, ["args"], problems, "/mock")
    assert [(problem.code, problem.pointer) for problem in problems] == [
        ("variable_not_allowed", "/mock/a/0")
    ]
