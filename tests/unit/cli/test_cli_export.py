"""`toolcrib export promptpack` and `toolcrib import promptpack`."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from promptpack_schema import PROMPTPACK
from toolcrib import Runtime
from toolcrib.cli import exit_codes

PACK = """
name: shop
version: 1.0.0
description: Orders.
licence: MIT
prompts:
  assistant:
    title: Shop assistant
    system: "You help {{ shop }}: {{ shop | upper }} {{ '{{' }}x}}."
    variables: {shop: {default: us, description: Who.}, city: {values: [Oslo]}}
    tools: [get_*, "mcp__srv__*"]
    policy: {deny: [cancel.order], max_rounds: 5, max_cost: 1, tool_choice: required}
    settings: {temperature: 0, seed: 1}
    guardrails: [{type: is_valid_json}]
    metadata: {team: x}
"""

TOOLS = """
name: get_order
title: Order
description: One order.
input_schema: {type: object, properties: {id: {type: string}, any: true}, required: [id]}
output_schema: {type: object}
mock: {result: {}}
---
name: cancel.order
annotations: {destructive: true}
mode: mock
mock: {result: done}
live: {url: "https://api.example.com/cancel"}
---
name: cancel_order
description: Another one.
input_schema: true
"""


@pytest.fixture
def shop(write):
    return write({"shop/pack.yaml": PACK, "shop/tools/all.tool.yaml": TOOLS})


def checked(text: str):
    """A PromptPack that is one."""
    document = json.loads(text)
    jsonschema.Draft202012Validator(PROMPTPACK).validate(document)
    return document


def test_a_pack_becomes_a_promptpack(shop, toolcrib):
    result = toolcrib("export", "promptpack", "shop")
    assert result.exit_code == exit_codes.OK
    document = checked(result.stdout)
    assert (document["id"], document["name"], document["version"]) == ("shop", "shop", "1.0.0")
    assert document["tools"] == {
        "cancel_order_2": {
            "name": "cancel_order_2",
            "description": "cancel.order",
            "parameters": {"type": "object", "additionalProperties": False, "properties": {}},
        },
        "cancel_order": {
            "name": "cancel_order",
            "description": "Another one.",
            "parameters": {"type": "object", "properties": {}},
        },
        "get_order": {
            "name": "get_order",
            "description": "One order.",
            "parameters": {
                "type": "object",
                "properties": {"id": {"type": "string"}, "any": {}},
                "required": ["id"],
            },
        },
    }
    assert document["prompts"]["assistant"] == {
        "id": "assistant",
        "name": "Shop assistant",
        "version": "1.0.0",
        "system_template": "You help {{shop}}: {{ shop | upper }} {{x}}.",
        "variables": [
            {"name": "shop", "type": "string", "required": False, "default": "us", "description": "Who."},
            {"name": "city", "type": "string", "required": True, "validation": {"enum": ["Oslo"]}},
        ],
        "tools": ["get_order", "mcp__srv__*"],
        "tool_policy": {"tool_choice": "required", "max_rounds": 5, "blocklist": ["cancel_order_2"]},
        "parameters": {"temperature": 0},
        "validators": [{"type": "is_valid_json"}],
    }


def test_what_it_can_not_say_is_told(shop, toolcrib):
    told = toolcrib("export", "promptpack", "shop").stderr.splitlines()
    assert told == [
        "lost: the tool `cancel.order` is renamed to `cancel_order_2`: names consist of letters, digits and `_`",
        "lost: prompt `assistant`: its text contains the expression `{{ shop | upper }}`, but PromptPacks support only variables",
        "lost: prompt `assistant`: its text contains a literal `{{ ... }}`, which will be read as a variable",
        "lost: prompt `assistant`: its policy loses `max_cost`",
        "lost: prompt `assistant`: its settings lose `seed`",
        "lost: prompt `assistant`: its metadata `team` is dropped",
        "lost: `cancel.order` has no description, which a contract requires; its name is used instead",
        "lost: `cancel.order` loses its `mock` block (the active mode), its `live` block, `annotations`",
        "lost: `get_order` loses its `mock` block, `title`, `output_schema`",
        "lost: the pack `shop` loses licence",
    ]


def test_a_folder_without_prompts_gets_one(tools, toolcrib):
    result = toolcrib("export", "promptpack", "descriptors")
    document = checked(result.stdout)
    assert (document["id"], [*document["prompts"]]) == ("descriptors", ["assistant"])
    assert document["prompts"]["assistant"]["tools"] == ["echo", "failing", "later"]
    assert "lost: missing prompt, which a PromptPack requires; `assistant` was added" in result.stderr


def test_a_project_is_one_promptpack_of_all_its_packs(shop, write, toolcrib):
    other = "name: desk\nversion: 2.0.0\nnamespace: d\nprompts: {assistant: {system: Hi., tools: [ask]}}\n"
    project = "project: Our_House.1\nsources: [shop, desk]\n"
    write(
        {"toolcrib.yaml": project, "desk/pack.yaml": other, "desk/ask.yaml": "name: ask\nmock: {result: 1}\n"}
    )
    result = toolcrib("export", "promptpack")
    document = checked(result.stdout)
    assert (document["id"], document["name"]) == ("our-house-1", "Our_House.1")
    assert [*document["prompts"]] == ["assistant", "desk-assistant"]
    assert document["prompts"]["desk-assistant"]["tools"] == ["d__ask"]
    assert "lost: the prompt `desk/assistant` is renamed to `desk-assistant`" in result.stderr


def test_it_is_written_to_a_file_once(shop, toolcrib):
    assert (
        toolcrib("export", "promptpack", "shop", "--out", "new/shop.pack.json").stdout
        == "created the folder new\nwrote new/shop.pack.json\n"
    )
    checked((shop / "new/shop.pack.json").read_text())
    again = toolcrib("export", "promptpack", "shop", "--out", "new/shop.pack.json")
    assert (again.exit_code, "exists" in again.stderr) == (exit_codes.USAGE, True)
    assert (
        toolcrib("export", "promptpack", "shop", "--out", "new/shop.pack.json", "--force").exit_code
        == exit_codes.OK
    )


def test_what_is_refused_is_not_exported(shop, write, toolcrib):
    write({"shop/bad.tool.yaml": "name: bad\nmock: {resutl: 1}\n"})
    result = toolcrib("export", "promptpack", "shop")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "bad" not in checked(result.stdout)["tools"]
    assert "toolcrib validate" in result.stderr


# Import.

PROMPTPACK_TEXT = {
    "$schema": "https://promptpack.org/schema/latest/promptpack.schema.json",
    "id": "weather-desk",
    "name": "Weather Desk",
    "version": "1.2.0",
    "description": "Tells the weather.",
    "template_engine": {"version": "v1", "syntax": "{{variable}}", "features": ["fragments"]},
    "prompts": {
        "assistant": {
            "id": "helper",
            "name": "no",
            "description": "Helps: a lot.",
            "version": "1.10.0",
            "system_template": "Line one,\n  {{role}} # {% x %}\n\n{{fragment:rules}}",
            "variables": [
                {
                    "name": "role",
                    "type": "int",
                    "required": True,
                    "example": 3,
                    "validation": {"minimum": 1, "enum": [1, 2]},
                },
                {"name": "on", "type": "boolean", "required": False, "default": True},
            ],
            "tools": ["get_weather"],
            "tool_policy": {"max_rounds": 3, "max_tool_calls_per_turn": 2, "blocklist": ["ping"]},
            "parameters": {"temperature": 0.1},
            "validators": [{"type": "max_length", "params": {"max": 10}, "enabled": True}],
            "evals": [{"id": "e", "type": "contains", "trigger": "every_turn"}],
            "tested_models": [],
        }
    },
    "fragments": {"rules": "Be {{role}}."},
    "tools": {
        "get_weather": {
            "name": "get_weather",
            "description": "Weather: now.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string", "default": "no"}}},
        },
        "ping": {"name": "ping", "description": "On?"},
    },
    "metadata": {"domain": "weather"},
    "workflow": {"entry": "assistant"},
}
BINDINGS = """
get_weather:
  mock: {rules: [{when: {args: {city: Oslo}}, reply: {result_file: data/oslo.json}}, {reply: {result: "{{ args.city }}"}}]}
ping: {mock: {result: "on"}, timeout: 5s}
"""


@pytest.fixture
def weather(write):
    return write(
        {
            "in/weather.pack.json": json.dumps(PROMPTPACK_TEXT),
            "in/weather.bindings.yaml": BINDINGS,
            "in/data/oslo.json": '{"rain": true}',
        }
    )


def test_a_promptpack_becomes_a_pack_of_our_own(weather, toolcrib):
    result = toolcrib("import", "promptpack", "in/weather.pack.json", "--out", "out")
    assert result.exit_code == exit_codes.OK
    assert result.stdout.splitlines() == [
        "wrote out/pack.yaml",
        "wrote out/tools/get_weather.tool.yaml",
        "wrote out/tools/data/oslo.json",
        "wrote out/tools/ping.tool.yaml",
    ]
    assert "no_counterpart: `workflow` has no effect here" in result.stderr
    assert toolcrib("validate", "out").exit_code == exit_codes.OK
    with Runtime.open("out", index=False) as runtime:
        assert runtime.call_sync("get_weather", {"city": "Oslo"}).value == {"rain": True}
        assert runtime.call_sync("get_weather").value == "no"
        assert runtime.call_sync("ping").value == "on"
        prompt = runtime.packs[0].prompts["assistant"]
        assert prompt.render({"role": 2}) == "Line one,\n  2 # {% x %}\n\nBe 2."
        assert (prompt.title, prompt.version) == ("no", "1.10.0")


def test_imported_and_exported_again_it_says_the_same(weather, toolcrib):
    toolcrib("import", "promptpack", "in", "--out", "out")
    again = checked(toolcrib("export", "promptpack", "out").stdout)
    before = json.loads(json.dumps(PROMPTPACK_TEXT))
    own = before["prompts"]["assistant"]
    own["system_template"] = "Line one,\n  {{role}} # {% x %}\n\nBe {{role}}."
    del before["fragments"]
    before["tools"]["ping"]["parameters"] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {},
    }
    assert again == before


def test_exported_and_imported_again_contracts_and_prompts_are_the_same(shop, toolcrib):
    toolcrib("export", "promptpack", "shop", "--out", "a.pack.json")
    toolcrib("import", "promptpack", "a.pack.json", "--out", "again")
    first = checked(Path("a.pack.json").read_text())
    second = checked(toolcrib("export", "promptpack", "again").stdout)
    # What was computed before is text now, and a name in it is a variable.
    assert second["tools"] == first["tools"]
    changed = second["prompts"]["assistant"]
    assert changed["variables"][:2] == first["prompts"]["assistant"]["variables"]
    assert {**changed, "variables": []} == {**first["prompts"]["assistant"], "variables": []}


def test_a_tool_that_says_nothing_gets_a_file(weather, write, toolcrib):
    silent = {**PROMPTPACK_TEXT, "tools": {**PROMPTPACK_TEXT["tools"], "silent": {"name": "silent"}}}
    write({"in/weather.pack.json": json.dumps(silent)})
    result = toolcrib("import", "promptpack", "in", "--out", "out")
    assert (result.exit_code, "no file of" in result.stderr) == (exit_codes.OK, False)
    with Runtime.open("out", index=False) as runtime:
        assert runtime.registry["silent"].input_schema == {"type": "object", "additionalProperties": False}


def test_nothing_that_exists_is_overwritten(weather, toolcrib):
    toolcrib("import", "promptpack", "in", "--out", "out")
    (weather / "out/pack.yaml").write_text("mine")
    result = toolcrib("import", "promptpack", "in", "--out", "out", "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, told["written"], len(told["existing"])) == (exit_codes.PROBLEMS, [], 4)
    assert (weather / "out/pack.yaml").read_text() == "mine"
    assert toolcrib("import", "promptpack", "in", "--out", "out", "--force").exit_code == exit_codes.OK
    assert (weather / "out/pack.yaml").read_text() != "mine"


def test_good_tools_are_imported_beside_bad_ones(weather, write, toolcrib):
    broken = json.loads(json.dumps(PROMPTPACK_TEXT))
    broken["tools"]["ping"]["parameters"] = {"type": "text"}
    write({"in/weather.pack.json": json.dumps(broken)})
    result = toolcrib("import", "promptpack", "in", "--out", "out")
    assert result.exit_code == exit_codes.PROBLEMS
    assert [line.rpartition("/")[2] for line in result.stdout.splitlines()] == [
        "pack.yaml",
        "get_weather.tool.yaml",
        "oslo.json",
    ]


@pytest.mark.parametrize(
    ("files", "word"),
    [
        ({"in/x.yaml": "name: a\nmock: {result: 1}\n"}, "no PromptPack in"),
        (
            {"in/other.pack.json": json.dumps({**PROMPTPACK_TEXT, "id": "b", "tools": {}})},
            "several PromptPacks",
        ),
    ],
)
def test_one_promptpack_is_meant(weather, write, toolcrib, files, word):
    if "several" not in word:
        (weather / "in/weather.pack.json").unlink()
    write(files)
    result = toolcrib("import", "promptpack", "in", "--out", "out")
    assert (result.exit_code, word in result.stderr) == (exit_codes.USAGE, True)
