"""`toolcrib show`."""

from __future__ import annotations

import json

from toolcrib.cli import exit_codes

RICH = """
name: rich
title: Everything
description: |
  First line.
  Second line.
version: "1.2.0"
author: Us
help_url: https://example.com
category: all
tags: [a, b]
labels: {k: v}
annotations: {read_only: true, idempotent: true}
icons:
  - {src: https://example.com/i.png, mime_type: image/png, sizes: [48x48, any], theme: dark}
  - {src: "data:image/png;base64,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}
deprecated: true
experimental: true
metadata: {ticket: {id: T-1, list: [{a: 1, b: 2}, 3]}}
input_schema:
  type: object
  additionalProperties: false
  properties:
    password: {type: string}
output_schema:
  type: object
  properties: {token: {type: string}}
examples:
  - args: {password: hunter2}
  - args: {}
    result: {token: abc123}
mode: robot
robot: {command: x, password: hunter2}
mock: {result: {token: abc123}}
"""


def test_a_page_shows_where_a_tool_is_from_and_how_it_behaves(tools, toolcrib):
    assert toolcrib("show", "echo").stdout.splitlines() == [
        "echo(text, times=1)",
        "  Says it again. And that is all.",
        "",
        "  file            descriptors/echo.tool.yaml:2",
        "  mode            mock",
        "  available in    mock",
        "  a call is       destructive, open world",
        "  tags            talk",
        "  labels          team=words",
        "  timeout         30s",
        "  coercion        safe",
        "  invalid result  error",
        "",
        "parameters",
        "  name   type                   default  description",
        "  text   string       required",
        "  times  integer 1..            1",
        "",
        "result",
        "  {",
        '    "type": "string"',
        "  }",
        "",
        "examples",
        '  {"text":"hi"} -> "hi 1"',
        "",
        "call it",
        "  toolcrib call echo text=hi",
    ]


def test_a_page_shows_all_that_is_written_and_why_a_mode_is_missing(write, toolcrib):
    write({"descriptors/rich.tool.yaml": RICH})
    page = toolcrib("show", "rich").stdout
    for text in (
        "rich(password?)  Everything",
        "  Second line.",
        "robot (unavailable)",
        "available in    mock",
        "mode `robot` of `rich` is not installed",
    ):
        assert text in page
    for text in (
        "deprecated      yes",
        "experimental    yes",
        "a call is       read only, idempotent, open world",
        "ticket:",
        "- a: 1",
    ):
        assert text in page


def test_icons_are_shown_and_long_ones_by_their_beginning(write, toolcrib, document):
    write({"descriptors/rich.tool.yaml": RICH})
    page = toolcrib("show", "rich").stdout
    assert "https://example.com/i.png (image/png 48x48 any dark), data:image/png;base64,AAA" in page
    assert "A…" in page
    first, second = document("show", "rich", "--json")["icons"]
    assert first == {
        "src": "https://example.com/i.png",
        "mime_type": "image/png",
        "sizes": ["48x48", "any"],
        "theme": "dark",
    }
    assert list(second) == ["src"]


def test_secrets_are_shown_nowhere(write, toolcrib):
    write({"descriptors/rich.tool.yaml": RICH})
    for words in (["rich"], ["rich", "--json"]):
        shown = toolcrib("show", *words).stdout
        assert "hunter2" not in shown
        assert "***" in shown


def test_a_tool_without_parameters_and_an_unbound_one_say_so(tools, toolcrib):
    page = toolcrib("show", "later").stdout
    assert "parameters: none" in page
    assert "deprecated      use echo" in page
    assert (
        "unavailable     `later` is unbound: add a `a2a:` or `client:` or `exec:` or `live:` or `mcp:` or `mock:` or `python:` block to descriptors/later.tool.yaml:2"
        in page
    )


def test_json_holds_the_schemas_the_modes_and_the_origin(tools, document):
    shown = document("show", "echo", "--json")
    assert shown["input_schema"]["required"] == ["text"]
    assert shown["modes"] == {"mock": {"unavailable": None}}
    assert shown["examples"] == [{"args": {"text": "hi"}, "result": "hi 1"}]
    assert shown["origin"]["source"] == "descriptors/echo.tool.yaml"
    assert len(shown["origin"]["digest"]) == 64


def test_lines_fit_the_terminal(tools, on_terminal, monkeypatch):
    monkeypatch.setenv("COLUMNS", "24")
    out, _err = on_terminal("show", "echo")
    assert any(line.endswith("…") for line in out.splitlines())


def test_a_tool_that_is_not_there_is_answered_with_near_names(tools, toolcrib):
    result = toolcrib("show", "ecko")
    assert (result.exit_code, result.stdout) == (exit_codes.OF_OUTCOME["not_found"], "")
    assert "did you mean `echo`?" in result.stderr


def test_a_tool_that_is_not_there_is_one_json_document_under_json(tools, toolcrib):
    result = toolcrib("show", "ecko", "--json")
    assert (result.exit_code, result.stderr) == (exit_codes.OF_OUTCOME["not_found"], "")
    shown = json.loads(result.stdout)
    assert (shown["outcome"], shown["error"]["details"]) == ("not_found", {"near": ["echo"]})


def test_a_page_shows_what_the_tool_does_not_say_itself(tools, write, toolcrib, document):
    project = "project: p\ndefaults: {timeout: 2s}\nprofile: a\nprofiles: {a: {defaults: {coerce: off}}}\n"
    write({"toolcrib.yaml": project})
    lines = [line.strip() for line in toolcrib("show", "echo").stdout.splitlines()]
    assert "timeout         2s, by toolcrib.yaml:2" in lines
    assert "coercion        off, by toolcrib.yaml:4 (profile a)" in lines
    assert "invalid result  error" in lines
    assert document("show", "echo", "--json")["origin"]["settings"] == {
        "timeout": "toolcrib.yaml:2",
        "coerce": "toolcrib.yaml:4 (profile a)",
    }


def test_a_page_shows_the_limits_that_somebody_says(write, toolcrib, document):
    write(
        {
            "toolcrib.yaml": "project: p\nlimits: {retry_budget: 5%}\n",
            "descriptors/a.tool.yaml": "name: a\nmock: {result: 1}\nlimits: {rate: 1/1s}\n",
        }
    )
    lines = [line.split(None, 1) for line in toolcrib("show", "a").stdout.splitlines()]
    assert ["limits", "rate 1/1s, retry_budget 5%, by toolcrib.yaml:2"] in lines
    shown = document("show", "a", "--json")["limits"]
    assert (shown["rate"], shown["retry_budget"], shown["concurrency"]) == ("1/1s", "5%", 10)


def test_a_tool_can_be_shown_by_its_alias(write, toolcrib, document):
    write({"descriptors/a.tool.yaml": "name: a.b\nmock: {result: 1}\n"})
    told = document("show", "a.b", "--json")
    assert told["alias"] != "a.b"
    assert document("show", told["alias"], "--json")["name"] == "a.b"
    assert f"alias           {told['alias']}" in toolcrib("show", "a.b").stdout


def test_why_a_tool_is_not_offered_is_told_once(write, toolcrib):
    write({"toolcrib.yaml": "project: p\ndisable: [rich]\n", "descriptors/rich.tool.yaml": RICH})
    shown = toolcrib("show", "rich").stdout
    assert shown.count("`rich` is disabled in toolcrib.yaml:2") == 1


def test_a_page_tells_the_request_of_a_live_tool_as_it_is_written(write, toolcrib):
    schema = "input_schema: {type: object, required: [city], properties: {city: {type: string}}}"
    get = f"name: get\n{schema}\n" + "live: {url: 'https://api.example.com/v1/{{ args.city }}?k=${KEY}'}\n"
    post = "name: post\nlive: {method: POST, url: 'https://${HOST}/v1'}\nmock: {result: 1}\nmode: mock\nlimits: {rate: 1/1s}\n"
    write({"descriptors/a.tool.yaml": f"{get}---\n{post}"})
    assert (
        "  live            GET https://api.example.com/v1/{{ args.city }}?k=${KEY}\n"
        in toolcrib("show", "get").stdout
    )
    page = toolcrib("show", "post").stdout
    assert "  mode            mock\n  live            POST https://${HOST}/v1\n" in page
    assert "  limits          rate 1/1s\n" in page
    document = json.loads(toolcrib("show", "post", "--json").stdout)
    assert document["bindings"]["live"] == {"method": "POST", "url": "https://${HOST}/v1"}
    assert document["limits"]["rate"] == "1/1s"


def test_the_time_of_a_tool_is_that_of_its_block_where_it_says_one(write, toolcrib):
    of_the_block, of_the_tool = "{timeout: 2m}", "{}"
    for block, shown, seconds in ((of_the_block, "2m", 120.0), (of_the_tool, "5s, by toolcrib.yaml:2", 5.0)):
        tool = f"name: locate\ndescription: Where.\ninput_schema: {{type: object}}\nclient: {block}\n"
        write({"toolcrib.yaml": "project: p\ndefaults: {timeout: 5s}\n", "descriptors/a.tool.yaml": tool})
        assert f"  timeout         {shown}" in toolcrib("show", "locate").stdout.splitlines()
        assert json.loads(toolcrib("show", "locate", "--json").stdout)["timeout"] == seconds


def test_informational_fields_are_shown(write, toolcrib):
    told = {
        "version": "1.10",
        "author": "Ada",
        "help_url": "https://example.com/help",
        "metadata": {"ticket": 12},
    }
    folder = write({"tool.json": json.dumps({"name": "tool", "mock": {"result": 1}, **told})})
    shown = toolcrib("show", "tool", "--json", "--pack", str(folder / "tool.json"))
    assert told.items() <= json.loads(shown.stdout).items()
    page = toolcrib("show", "tool", "--pack", str(folder / "tool.json")).stdout
    assert all(text in page for text in ("1.10", "Ada", "https://example.com/help"))
