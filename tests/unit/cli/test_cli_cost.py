"""`toolcrib cost`."""

from __future__ import annotations

import sys

import pytest

from toolcrib.formats.providers.tokens import estimate_tokens, token_counter

STORE = """
name: put.row
description: Puts a row into a table.
input_schema:
  type: object
  additionalProperties: false
  required: [table]
  properties:
    table: {type: string, minLength: 1}
    row: {type: object}
mock: {result: true}
"""


@pytest.fixture
def estimated(monkeypatch):
    """As if the extra were not installed."""
    monkeypatch.setitem(sys.modules, "bpe_openai", None)


def test_the_most_expensive_tool_stands_first_with_its_share(tools, toolcrib):
    *lines, last = toolcrib("cost").stdout.splitlines()
    cells = [line.split() for line in lines]
    assert [name for name, _tokens, _share in cells] == ["echo", "later", "failing"]
    shares = [float(share.removesuffix("%")) for _name, _tokens, share in cells]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=0.2)
    total = sum(int(tokens) for _name, tokens, _share in cells)
    assert last == f"3 tools: {total} tokens as `openai`; counted with o200k_base"


def test_tokens_are_those_of_the_json_that_is_sent(tools, document):
    told = document("cost", "--tool", "failing", "--json")
    sent = (
        '{"type":"function","function":{"name":"failing","description":"Never works.",'
        '"parameters":{"properties":{},"type":"object","additionalProperties":false}}}'
    )
    count = token_counter().count(sent)
    assert told == {
        "dialect": "openai",
        "encoding": "o200k_base",
        "exact": True,
        "method": "counted with o200k_base",
        "tokens": count,
        "tools": [
            {
                "name": "failing",
                "alias": "failing",
                "tokens": count,
                "share": 1.0,
                "strict": False,
                "losses": [],
            }
        ],
    }


def test_without_the_extra_tokens_are_estimated_and_the_way_to_count_them_is_told(
    estimated, tools, toolcrib, document
):
    *lines, last = toolcrib("cost").stdout.splitlines()
    assert all("  ~" in line for line in lines)
    assert last.startswith("3 tools: about ")
    assert last.endswith("; estimated; run `pip install 'toolcrib[tokens]'` for exact counts")
    told = document("cost", "--json")
    assert (told["exact"], told["encoding"]) == (False, None)


def test_encodings_of_other_models_are_said_to_differ(tools, toolcrib):
    assert toolcrib("cost", "--dialect", "anthropic").stdout.endswith(
        "counted with o200k_base; other models count differently\n"
    )


def test_losses_are_told_with_their_places(write, toolcrib, document):
    write({"descriptors/put.tool.yaml": STORE})
    lines = toolcrib("cost", "--dialect", "openai_strict", "--losses").stdout.splitlines()
    assert lines[0].split()[-4:] == ["not", "strict,", "1", "loss"]
    assert " ".join(lines[2].split()) == (
        "put.row /properties/row properties "
        "strict mode does not support objects with arbitrary properties: declared without strict mode"
    )
    (tool,) = document("cost", "--dialect", "openai_strict", "--json")["tools"]
    assert (tool["alias"], tool["strict"]) == ("put_row", False)
    assert tool["losses"][0]["pointer"] == "/properties/row"


def test_paths_and_the_options_of_list_choose_tools(tools, toolcrib, document):
    everything = document("cost", "--json")["tokens"]
    assert document("cost", "descriptors", "--json")["tokens"] == everything
    (tool,) = document("cost", "--tag", "talk", "--json")["tools"]
    assert (tool["name"], tool["share"]) == ("echo", 1.0)
    assert "no losses" in toolcrib("cost", "--losses").stdout.splitlines()
    nothing = toolcrib("cost", "--tool", "ech", "--losses")
    assert nothing.stdout == "no tool matches\n"
    assert "echo" in nothing.stderr


def test_a_dialect_that_is_not_there_is_refused(tools, toolcrib):
    result = toolcrib("cost", "--dialect", "latin")
    assert result.exit_code == 2
    assert "gemini" in result.stderr


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("", 0), ("a b", 2), ("abcdefghij", 1), ("abcdefghijk", 2), ("1234", 2), ("日本語", 3)],
)
def test_the_rule_of_the_estimate(text, tokens):
    assert estimate_tokens(text) == tokens


def test_the_estimate_is_near_for_declarations():
    text = (
        '{"type":"function","function":{"name":"find_user_id_by_email","description":"Find user id by email. If the '
        'user is not found, the function will return an error message.","parameters":{"type":"object","properties":'
        '{"email":{"type":"string","description":"The email of the user, such as \'something@example.com\'."}},'
        '"required":["email"]}}}'
    )
    assert estimate_tokens(text) == pytest.approx(token_counter().count(text), rel=0.1)
