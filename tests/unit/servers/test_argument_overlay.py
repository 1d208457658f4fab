"""The block of mode `mcp`: arguments that are laid over those of a call, and what is wrong with blocks."""

from __future__ import annotations

import pytest

from toolcrib import Executors
from toolcrib.executors.mcp import McpExecutor
from toolcrib.loading.sources import parse
from toolcrib.schema.validation.violations import UnusableArguments
from toolcrib.servers.argument_overlay import compile_overlay, fixed_names

CLOSED = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "additionalProperties": False,
}


def loaded(block, schema=CLOSED):
    executors = Executors({"mcp": McpExecutor})
    document = {"name": "tool", "mode": "mcp", "mcp": {"server": "time", **block}}
    if schema is not None:
        document["input_schema"] = schema
    return parse("tool.json", document, executors)


def overlay(args, schema=CLOSED):
    found = loaded({"args": args}, schema)
    assert [str(problem) for problem in found.problems] == []
    return compile_overlay(found.tools[0], "mcp", [])


def problems(block, schema=CLOSED):
    return [(each.code, each.pointer, each.hint) for each in loaded(block, schema).problems]


@pytest.mark.parametrize(
    ("args", "given", "sent"),
    [
        ({}, {"city": "Oslo"}, {"city": "Oslo"}),
        ({"unit": "C"}, {"city": "Oslo"}, {"city": "Oslo", "unit": "C"}),
        ({"city": "Rome"}, {"city": "Oslo"}, {"city": "Rome"}),
        ({"q": "{{ args.city }}"}, {"city": "Oslo", "days": 3}, {"days": 3, "q": "Oslo"}),
        ({"n": "{{ args.days }}"}, {"days": 3}, {"n": 3}),
        ({"text": "for {{ args.days }} days"}, {"days": 3}, {"text": "for 3 days"}),
        ({"city": "{{ args.city | upper }}"}, {"city": "Oslo"}, {"city": "OSLO"}),
        ({"q": "{{ args.city }}"}, {}, {}),
        ({"filter": {"city": "{{ args.city }}", "n": 1}}, {}, {"filter": {"n": 1}}),
        ({"list": ["{{ args.city }}", "{{ args.days }}"]}, {"days": 2}, {"list": [2]}),
        ({"all": "{{ args }}"}, {"city": "Oslo"}, {"all": {"city": "Oslo"}}),
        ({"q": "$${city}", "null": None}, {}, {"q": "${city}", "null": None}),
    ],
)
def test_arguments_are_laid_over_those_of_the_call(args, given, sent):
    before = dict(given)
    assert overlay(args).over(given) == sent
    assert given == before


def test_an_argument_that_is_needed_and_was_not_given_is_told():
    with pytest.raises(UnusableArguments) as error:
        overlay({"text": "in {{ args.city }}"}).over({})
    assert (error.value.message, error.value.pointer) == (
        "`city` is required by this call",
        "/city",
    )


def test_an_expression_that_fails_is_told():
    with pytest.raises(UnusableArguments, match=r"cannot compute `args.n` of the descriptor"):
        overlay({"n": "{{ 1 / args.days }}"}).over({"days": 0})


def test_what_a_block_sets_nobody_else_needs_to_know():
    args = {"unit": "C", "city": "{{ args.city | upper }}", "q": "{{ args.days }}"}
    assert fixed_names({"args": args}) == {"unit", "q"}
    assert fixed_names({}) == fixed_names({"args": 7}) == frozenset()


def test_the_tool_that_a_block_stands_for():
    remote = McpExecutor().remote("tool", {"server": "time", "args": {"unit": "C"}})
    assert (remote.server, remote.tool, remote.fixed) == ("time", "tool", {"unit"})
    assert McpExecutor().remote("tool", {"server": "time", "tool": "now"}).tool == "now"
    assert McpExecutor().remote("tool", {"server": 7}) is None


@pytest.mark.parametrize(
    ("block", "code", "pointer"),
    [
        ({"args": {"a": "{{ args.ctiy }}"}}, "unknown_argument", "/mcp/args/a"),
        ({"args": {"a": ["{{ nope }}"]}}, "unknown_name", "/mcp/args/a/0"),
        ({"args": {"a": "{{ args.city | uper }}"}}, "unknown_function", "/mcp/args/a"),
        ({"args": {"a": "{{ args. }}"}}, "expression_syntax", "/mcp/args/a"),
        ({"args": {"a": "${VAR}"}}, "variable_not_allowed", "/mcp/args/a"),
        ({"args": {"{{ args.city }}": 1}}, "expression_not_allowed", "/mcp/args/{{ args.city }}"),
        ({"args": []}, "wrong_type", "/mcp/args"),
        ({"server": ""}, "wrong_value", "/mcp/server"),
        ({"sever": "x"}, "unknown_key", "/mcp/sever"),
    ],
)
def test_what_is_wrong_with_a_block_is_told_where_it_stands(block, code, pointer):
    found = problems(block)
    assert [(each[0], each[1]) for each in found] == [(code, pointer)]


def test_near_misses_are_named():
    assert problems({"args": {"a": "{{ args.ctiy }}"}})[0][2] == "did you mean `city`?"


def test_where_the_schema_is_the_servers_any_argument_may_be_read():
    assert problems({"args": {"a": "{{ args.anything }}"}}, None) == []
