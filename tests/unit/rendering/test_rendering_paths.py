"""What is read without a parser has the tree that the parser makes of it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jinja2 import Environment, TemplateSyntaxError
from jinja2.parser import Parser

from toolcrib.rendering.paths import read_path

ENVIRONMENT = Environment(autoescape=True)
WORDS = ["args", "a1", "_x", "not", "if", "in", "is", "none", "True", "loop", "self", "1", "1e5", "ä"]
PIECES = st.sampled_from([*WORDS, ".", ".", "|", " ", "\t", "\n", "(", "'", "-"])


def parsed(source):
    parser = Parser(ENVIRONMENT, source, state="variable")
    tree = parser.parse_expression()
    return tree if parser.stream.eos else None


@given(st.lists(PIECES, max_size=8).map("".join))
@example("args.not")
@example("args.a|not|b")
@settings(max_examples=2_000, deadline=None)
def test_the_tree_is_that_of_the_parser(source):
    tree = read_path(source)
    if tree is not None:
        assert tree == parsed(source)
        assert {node.lineno for node in tree.find_all(type(tree))} <= {1}


@pytest.mark.parametrize("source", ["args", " args.city ", "args.city | upper", "session.id|upper | length"])
def test_paths_need_no_parser(source):
    assert read_path(source) == parsed(source)


@pytest.mark.parametrize(
    "source", ["", "1", "args.0", "args['a']", "args.a + 1", "x | round(1)", "not x", "a if b"]
)
def test_everything_else_needs_one(source):
    assert read_path(source) is None


def test_what_the_parser_refuses_is_left_to_it():
    with pytest.raises(TemplateSyntaxError):
        parsed("args.")
    assert read_path("args.") is None
