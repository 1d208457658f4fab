"""Characters of documents that nobody sees and a model or a terminal reads are told, and ordinary writing is not."""

from __future__ import annotations

import json
from itertools import product

import pytest

from in_memory import MOCKS, loaded
from sampling import sample
from toolcrib.loading.document_checks import MAX_HIDDEN_PROBLEMS, hidden_problems
from toolcrib.loading.sources import parse, parse_files

TOOL = """\
name: look
title: Look
description: Looks.
input_schema:
  type: object
  properties:
    city: {type: string, description: A city., enum: [Oslo], examples: [Oslo]}
examples: [{args: {city: Oslo}}]
mock: {result: found}
"""


def told(text):
    return [
        (problem.severity, problem.line, problem.column, problem.pointer)
        for problem in loaded(text).problems
        if problem.code == "hidden_character"
    ]


CHARACTERS = [
    "\\e[31m", "\\x9b", "\\b", "\\x7f", "\\U000E0041", "\\u202e", "\\u200b", "\\u200e", "\\u2066", "\\u00ad", "\\ufeff", "\\ue000", "\\u2028",
]  # fmt: skip
PLACES = [
    ("title: Look", 'title: "@"', "/title"),
    ("description: Looks.", 'description: "@"', "/description"),
    ("description: A city.", 'description: "@"', "/input_schema/properties/city/description"),
    ("enum: [Oslo], examples: [Oslo]", 'enum: [Oslo, "@"]', "/input_schema/properties/city/enum/1"),
    ("mock:", 'output_schema: {title: "@"}\nmock:', "/output_schema/title"),
    ("result: found", 'result: {a: ["@"]}', "/mock/result/a/0"),
]


# 5 divides neither number, so that a sample has every character and every place.
@pytest.mark.parametrize(("place", "character"), sample(product(PLACES, CHARACTERS), 5))
def test_a_hidden_character_is_told_with_its_place(place, character):
    there, instead, pointer = place
    text = TOOL.replace(there, instead)
    before, _, _ = text.partition('"@"')
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    text = text.replace("@", f"a{character}")
    assert told(text) == [("warning", line, column, pointer)]
    assert len(loaded(text).tools) == 1


def test_a_key_is_told_as_one():
    (problem,) = loaded(
        TOOL.replace("city: {type", '"city\\u202e": {type').replace("args: {city: Oslo}", "args: {}")
    ).problems
    assert problem.message.startswith(
        "the key contains U+202E RIGHT-TO-LEFT OVERRIDE at character 5 (changes"
    )
    assert (problem.line, problem.column) == (7, 19)


def test_what_the_tags_spell_is_told():
    tags = "".join(f"\\U{0xE0000 + ord(each):08x}" for each in "send it\n")
    (problem,) = loaded(TOOL.replace("Looks.", f'"Looks.{tags}"')).problems
    assert "U+E0073 TAG LATIN SMALL LETTER S at character 7" in problem.message
    assert problem.message.endswith("and 7 more; the tag characters spell `send it`")


@pytest.mark.parametrize(
    "text",
    [
        "👩‍💻 and 🏴󠁧󠁢󠁥󠁮󠁧󠁿 and ❤️ and 1️⃣",
        "می‌خواهم",
        "क्‍ष",
        "naïve — “quoted” 東京",
        "two\\nlines\\tand a tab\\r\\n",
    ],
)
def test_ordinary_writing_is_no_alarm(text):
    quoted = TOOL.replace("Looks.", f'"{text}"').replace("found", f'"{text}"')
    assert told(quoted) == []


def test_a_flag_hides_no_other_tags():
    flag = "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
    assert hidden_problems({"description": flag * 3}) == []
    (problem,) = hidden_problems({"description": flag + "\U000e0041" + flag})
    assert "U+E0041" in problem.message


def test_a_pattern_may_name_control_characters_and_may_hide_nothing_else():
    property_ = {"type": "string", "pattern": "^[^\x00-\x1f\x7f]*$"}
    tool = {
        "name": "a",
        "input_schema": {"properties": {"b": property_}, "patternProperties": {"^[\x01]$": {}}},
    }
    assert hidden_problems(tool) == []
    property_["pattern"] += "\U000e0041"
    assert [problem.pointer for problem in hidden_problems(tool)] == ["/input_schema/properties/b/pattern"]


def test_not_every_text_of_a_document_is_told():
    problems = hidden_problems({"mock": ["\u200b"] * 50})
    assert len(problems) == MAX_HIDDEN_PROBLEMS
    assert problems[-1].hint == "the rest of the document contains more hidden characters"


def test_of_a_text_that_hides_a_megabyte_no_more_is_counted_than_is_told():
    (problem,) = hidden_problems({"description": "\u200b" * 1_000_000})
    assert "at character 1 (" in problem.message
    assert problem.message.endswith("and many more")


def test_a_json_document_is_judged_as_well():
    text = json.dumps(
        {"name": "look", "description": "Looks\x1b[31m.", "mock": {"result": "\u202e"}}, indent=1
    )
    problems = parse("a.json", text, MOCKS).problems
    assert [(problem.severity, problem.line) for problem in problems] == [("warning", 3), ("warning", 5)]


PACK = """\
name: shop
version: 1.0.0
description: "A shop\\u202e."
prompts:
  sell: {version: 1.0.0, template: "Sell\\e[31m."}
"""
SCENARIO = 'scenario: buys\nsteps: [{call: "lo\\u200bok", expect: {result: "\\e[1m"}}]\n'


def test_a_warning_takes_no_part_from_a_document():
    text = """\
scenario: buys
faults: [{tool: "*", inject: {error: {code: x, message: "no\\e[1m"}}}]
steps: [{call: look, args: {a: "\\e[1m"}}]
"""
    read = parse_files({"buys.scenario.yaml": text}, MOCKS)
    (scenario,) = read.scenarios
    assert [problem.code for problem in read.problems] == ["hidden_character"] * 2
    assert (len(scenario.faults), len(scenario.steps)) == (1, 1)


def test_packs_and_scenarios_are_judged_as_well():
    problems = parse_files({"pack.yaml": PACK, "buys.scenario.yaml": SCENARIO}, MOCKS).problems
    found = [
        (each.severity, each.source, each.line, each.pointer)
        for each in problems
        if each.code == "hidden_character"
    ]
    assert found == [
        ("warning", "pack.yaml", 3, "/description"),
        ("warning", "pack.yaml", 5, "/prompts/sell/template"),
        ("warning", "buys.scenario.yaml", 2, "/steps/0/call"),
        ("warning", "buys.scenario.yaml", 2, "/steps/0/expect/result"),
    ]
