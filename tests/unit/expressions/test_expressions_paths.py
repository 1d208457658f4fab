"""What is read without a parser means what it means with one."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.parser import Parser

from sampling import examples
from toolcrib.core.errors import ExpressionError
from toolcrib.expressions.expression import compile_node, read_path
from toolcrib.expressions.parser import compile_parsed

ENVIRONMENT = Environment(autoescape=True)
WORDS = ["args", "a1", "_x", "not", "if", "in", "is", "none", "True", "loop", "self", "1", "1e5", "ä"]
PIECES = st.sampled_from([*WORDS, ".", ".", "|", " ", "\t", "\n", "(", "'", "-"])
NAMES = {"args": ("city", "tags", "n"), "now": None, "session": ("id",)}
SCOPE = {"args": {"city": "Oslo", "tags": ["b", "a"]}, "now": "2030", "session": {"id": {"x": 1}}}


def parsed(source):
    parser = Parser(ENVIRONMENT, source, state="variable")
    tree = parser.parse_expression()
    return tree if parser.stream.eos else None


def tree_of(names, functions):
    tree = nodes.Name(names[0], "load")
    for name in names[1:]:
        tree = nodes.Getattr(tree, name, "load")
    for name in functions:
        tree = nodes.Filter(tree, name, [], [], None, None)
    return tree


@given(st.lists(PIECES, max_size=8).map("".join))
@example("args.not")
@example("args.a|not|b")
@example("\u00a0args\u2003.x")
@settings(max_examples=examples(2_000), deadline=None)
def test_the_names_are_those_of_the_parsers_tree(source):
    path = read_path(source)
    if path is not None:
        assert tree_of(*path) == parsed(source)


@pytest.mark.parametrize(
    "source", ["args", " args.city ", "args.city | upper", "session.id|upper | length", "\nargs\n"]
)
def test_paths_need_no_parser(source):
    assert tree_of(*read_path(source)) == parsed(source)


@pytest.mark.parametrize(
    "source", ["", "1", "args.0", "args['a']", "args.a + 1", "x | round(1)", "not x", "a if b"]
)
def test_everything_else_needs_one(source):
    assert read_path(source) is None


def test_what_the_parser_refuses_is_left_to_it():
    with pytest.raises(TemplateSyntaxError):
        parsed("args.")
    assert read_path("args.") is None


def test_a_path_that_is_too_deep_is_measured_by_the_parser():
    with pytest.raises(ExpressionError) as caught:
        compile_node("args" + ".a" * 100, ["args"])
    assert caught.value.code == "expression_too_large"


def told(compiled, source):
    """What compiling and running come to, errors included."""
    try:
        part, used = compiled(source, NAMES)
        return part.path, used, part.run(SCOPE)
    except ExpressionError as error:
        return error.code, error.message, error.hint


@given(
    st.lists(
        st.sampled_from(
            ["args", "now", "session", "city", "tags", "n", "id", "x", "upper", "nothing", "ags"]
        ),
        min_size=1,
        max_size=4,
    ),
    st.lists(
        st.sampled_from(["upper", "length", "sort", "uper", "round", "where", "find", "len"]), max_size=2
    ),
)
@settings(max_examples=examples(500), deadline=None)
def test_values_and_errors_are_those_of_parsed_expressions(names, functions):
    source = " | ".join([".".join(names), *functions])
    assert read_path(source) is not None
    assert told(compile_node, source) == told(compile_parsed, source)


PLAIN = """
import sys
from toolcrib.expressions import compile_value
problems = []
rendering = compile_value(
    {"a": "{{ name }}", "b": ["{{ args.x }}", "in {{ args.a.b }}, {{ args.x | upper }}"]}, ["name", "args"], problems
)
scope = {"name": 1, "args": {"x": "y", "a": {"b": None}}}
assert rendering.render(scope) == {"a": 1, "b": ["y", "in null, Y"]}, problems
assert "jinja2" not in sys.modules
compile_value("{{ args.x + 1 }}", ["args"], problems)
assert "jinja2" in sys.modules
assert not problems
"""


def test_plain_paths_import_no_parser():
    subprocess.run([sys.executable, "-c", PLAIN], check=True)
