"""`toolcrib lint`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from npm_packages import installed
from toolcrib.cli import exit_codes
from toolcrib.core.schemas import envelope
from toolcrib.lint.rules import RULES

ROOT = Path(__file__).parents[3]

CLEAN = """\
name: find_order
description: Look up what was ordered, by number.
annotations: {read_only: true}
input_schema: {type: object, properties: {number: {type: string, description: Four digits.}}}
output_schema: {type: object}
examples: [{args: {number: "1000"}}]
mock: {result: {total: 40}}
"""
FAULTY = """\
# An order of the shop.
name: get_invoice   # not `find`
description: >-
  Gets the
  invoice.
annotations: {read_only: true}
input_schema:
  type: object
  properties:
    # How it is sent.
    channel:
      enum: [mail, fax]   # no pigeons
    order_number: {type: string, description: "As `orderNumber` of the bill\\u200b."}
mock: {result: 1}
"""


@pytest.fixture
def faulty(write):
    return write({"descriptors/invoice.tool.yaml": FAULTY})


def codes(done):
    return [problem["code"] for problem in json.loads(done.stdout)["problems"]]


def test_clean_tools_have_no_findings(write, toolcrib):
    write({"descriptors/order.tool.yaml": CLEAN})
    done = toolcrib("lint")
    assert (done.exit_code, done.stdout) == (exit_codes.OK, "1 tool: no findings\n")


def test_the_shipped_tools_have_no_findings(toolcrib, monkeypatch):
    monkeypatch.chdir(ROOT)
    done = toolcrib("lint", "--fail-on", "notice")
    assert (done.exit_code, done.stdout) == (exit_codes.OK, "98 tools: no findings\n")


def test_findings_have_the_place_of_the_key(faulty, toolcrib):
    done = toolcrib("lint", "--select", "untyped-parameter", "--select", "description-repeats-name")
    assert done.exit_code == exit_codes.PROBLEMS
    first, _hint, second, _hint, last = done.stdout.splitlines()
    place = "descriptors/invoice.tool.yaml"
    assert first.startswith(f"{place}:3:1: warning: description-repeats-name: ")
    assert second.startswith(f"{place}:11:5: warning: untyped-parameter: `channel` has values but no type")
    assert last == "1 tool: 2 warnings; `--fix` corrects 1"


def test_a_correction_keeps_comments_and_layout(faulty, toolcrib):
    shown = toolcrib("lint", "--diff")
    assert shown.exit_code == exit_codes.PROBLEMS
    path = faulty / "descriptors/invoice.tool.yaml"
    assert path.read_text(encoding="utf-8") == FAULTY
    done = toolcrib("lint", "--fix")
    assert "corrected descriptors/invoice.tool.yaml" in done.stderr
    fixed = FAULTY.replace(
        "      enum: [mail, fax]   # no pigeons\n",
        "      enum: [mail, fax]   # no pigeons\n      type: string\n",
    )
    fixed = fixed.replace("orderNumber", "order_number").replace("\\u200b", "")
    assert path.read_text(encoding="utf-8") == fixed
    assert "`--fix`" not in done.stdout
    assert toolcrib("lint", "--diff").stdout == ""


@pytest.mark.parametrize(
    ("comment", "left"),
    [
        ("name: get_invoice # lint: ignore[missing-examples]", {"missing-output-schema"}),
        ("# lint: ignore[missing-examples, missing-output-schema] for later\nname: get_invoice", set()),
        ("name: get_invoice # lint: ignore", set()),
        ("# lint: ignore-file[missing-output-schema]\n\nname: get_invoice", {"missing-examples"}),
        ("# lint: ignore-file\nname: get_invoice", set()),
        (
            "name: get_invoice # lint: ignore[generic-name]",
            {"missing-examples", "missing-output-schema", "unused-ignore"},
        ),
        (
            "name: get_invoice # lint: ignore[generic-nam]",
            {"missing-examples", "missing-output-schema", "unused-ignore"},
        ),
        ('name: get_invoice\ntitle: "a # lint: ignore-file"', {"missing-examples", "missing-output-schema"}),
    ],
)
def test_comments_silence_findings(comment, left, write, toolcrib):
    text = f"{comment}\ndescription: What a customer has to pay.\nannotations: {{read_only: true}}\nmock: {{result: 1}}\n"
    write({"descriptors/invoice.tool.yaml": text})
    assert {*codes(toolcrib("lint", "--json"))} == left


def test_an_unused_comment_is_removed(write, toolcrib):
    text = "name: find_order # lint: ignore[generic-name, missing-examples]\n" + CLEAN.partition("\n")[2]
    folder = write(
        {"descriptors/order.tool.yaml": text.replace('examples: [{args: {number: "1000"}}]\n', "")}
    )
    assert toolcrib("lint", "--fix").exit_code == exit_codes.OK
    first = (folder / "descriptors/order.tool.yaml").read_text(encoding="utf-8").partition("\n")[0]
    assert first == "name: find_order # lint: ignore[missing-examples]"


def test_an_unknown_rule_in_a_comment_has_a_near_miss(write, toolcrib):
    write({"descriptors/order.tool.yaml": CLEAN.replace("\n", " # lint: ignore[missing-exampel]\n", 1)})
    assert "did you mean `missing-examples`?" in toolcrib("lint").stdout


def test_the_project_sets_severities_exceptions_and_the_budget(write, toolcrib, document):
    project = """\
project: shop
lint:
  rules: {missing-output-schema: error, missing-examples: off}
  ignore: {get_*: [description-repeats-name], pay: [generic-name]}
  budget: {tool_tokens: 20}
"""
    write({"toolcrib.yaml": project, "descriptors/invoice.tool.yaml": FAULTY})
    told = {problem["code"]: problem for problem in document("lint", "--json")["problems"]}
    assert told["missing-output-schema"]["severity"] == "error"
    assert "the budget of a tool is 20" in told["token-budget"]["message"]
    assert (told["unused-ignore"]["source"], told["unused-ignore"]["line"]) == ("toolcrib.yaml", 3)
    assert told.keys().isdisjoint({"missing-examples", "description-repeats-name"})


def test_a_wrong_rule_of_the_project_has_a_near_miss(write, toolcrib):
    write({"toolcrib.yaml": "project: shop\nlint: {rules: {missing-exampels: off}}\n"})
    assert "missing-examples" in toolcrib("validate").stdout


def test_the_schema_of_the_project_has_all_rules():
    settings = envelope("project")["$defs"]
    listed = settings["lint_rules"]["properties"]
    assert {name: (part["default"], part["description"]) for name, part in listed.items()} == {
        rule.name: (rule.severity, rule.summary) for rule in RULES.values()
    }
    assert settings["lint"]["properties"]["ignore"]["additionalProperties"]["items"]["enum"] == [*RULES]


def test_a_rule_that_a_project_asks_to_ask_is_confirmed(write, toolcrib):
    text = "name: delete_order\ndescription: Delete an order with its invoices.\nmock: {result: 1}\n"
    write({"toolcrib.yaml": "project: shop\n", "descriptors/order.tool.yaml": text})
    assert "unconfirmed-destruction" in codes(toolcrib("lint", "--json"))
    write({"toolcrib.yaml": "project: shop\naccess: {rules: [{ask: {tool: delete_*}}]}\n"})
    assert "unconfirmed-destruction" not in codes(toolcrib("lint", "--json"))


def test_exit_codes(faulty, write, toolcrib):
    assert toolcrib("lint", "--select", "missing-examples").exit_code == exit_codes.OK
    assert (
        toolcrib("lint", "--select", "missing-examples", "--fail-on", "notice").exit_code
        == exit_codes.PROBLEMS
    )
    assert toolcrib("lint", "--fail-on", "nothing").exit_code == exit_codes.OK
    assert toolcrib("lint", "--select", "vague").exit_code == exit_codes.USAGE
    write({"descriptors/broken.tool.yaml": "name: [1]\ndescription: x\nmock: {result: 1}\n"})
    done = toolcrib("lint", "--select", "generic-name")
    assert done.exit_code == exit_codes.PROBLEMS
    assert "run `toolcrib validate`" in done.stderr


def test_nothing_to_lint(write, toolcrib):
    write({})
    done = toolcrib("lint")
    assert (done.exit_code, done.stdout[:15]) == (exit_codes.NOTHING_SELECTED, "nothing to lint")


def test_a_path_selects_what_is_reported_and_not_what_it_is_compared_with(write, toolcrib):
    other = CLEAN.replace("find_order", "get_order").replace("Look up", "Looks up")
    write(
        {
            "toolcrib.yaml": "project: shop\n",
            "descriptors/a.tool.yaml": CLEAN,
            "descriptors/b.tool.yaml": other,
        }
    )
    found = toolcrib("lint", "descriptors/b.tool.yaml").stdout
    assert (
        "similar-tools: a model cannot tell `get_order` from `find_order` (descriptors/a.tool.yaml:1)"
        in found
    )
    assert toolcrib("lint", "descriptors/a.tool.yaml").stdout == "1 tool: no findings\n"


def test_rules_are_listed_and_explained(write, toolcrib, document):
    write({})
    assert [line.split()[0] for line in toolcrib("lint", "--list-rules").stdout.splitlines()] == [*RULES]
    assert [rule["name"] for rule in document("lint", "--list-rules", "--json")["rules"]] == [*RULES]
    for rule in RULES:
        assert "Good:" in toolcrib("lint", "--explain", rule).stdout
    done = toolcrib("lint", "--explain", "generic-names")
    assert done.exit_code == exit_codes.USAGE
    assert "did you mean `generic-name`?" in done.stderr


def test_github_shows_findings_at_their_lines(faulty, toolcrib):
    lines = toolcrib("lint", "--format", "github").stdout.splitlines()
    assert lines[0].startswith(
        "::notice file=descriptors/invoice.tool.yaml,line=2,col=1,title=missing-examples::"
    )


def test_sarif_is_valid(faulty, toolcrib):
    document = json.loads(toolcrib("lint", "--format", "sarif").stdout)
    with installed("@microsoft/jest-sarif", "1.0.0-beta.0") as package:
        schema = json.loads((package / "lib/schemas/sarif-2.1.0-rtm.5.json").read_text(encoding="utf-8"))
    jsonschema.Draft7Validator(schema).validate(document)
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    result = next(each for each in run["results"] if each["ruleId"] == "untyped-parameter")
    assert rules[result["ruleIndex"]]["id"] == "untyped-parameter"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "descriptors/invoice.tool.yaml", "uriBaseId": "ROOT"}
    assert place["region"] == {"startLine": 11, "startColumn": 5}


def test_tools_of_servers_are_linted_without_starting_them(write, toolcrib):
    tools = [{"name": "do", "inputSchema": {"type": "object"}}]
    write({"descriptors/saved.tool.json": json.dumps(tools)})
    assert {"missing-description", "generic-name"} <= {*codes(toolcrib("lint", "--json"))}


def test_findings_about_tools_of_a_locked_server_name_the_tool(write, toolcrib, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_TRUST", "all")
    schema = {"type": "object", "properties": {"zone": {"type": "string"}}}
    tools = [
        {"name": name, "description": "Time of a zone.", "inputSchema": schema} for name in ("now", "later")
    ]
    server = {
        "command": sys.executable,
        "args": ["-S", str(ROOT / "tests/listing_server.py"), "tools.json", "1.0"],
        "import": True,
    }
    project = {"project": "shop", "sources": [], "servers": {"clock": server}}
    write({"tools.json": json.dumps(tools), "toolcrib.json": json.dumps(project)})
    assert toolcrib("lock").exit_code == exit_codes.OK
    found = toolcrib("lint", "--select", "missing-parameter-description").stdout
    assert "`clock__now`: `zone` has no description" in found
    assert "`clock__later`: `zone` has no description" in found


@pytest.mark.parametrize(
    ("schema", "corrected"),
    [
        ('{enum: ["a", "b"]}', '{enum: ["a", "b"], type: string}'),
        ('{"enum": ["a", "b"]}', '{"enum": ["a", "b"], "type": "string"}'),
        ("\n      enum: [a, b]", "\n      enum: [a, b]\n      type: string"),
        (
            "\n      enum:\n      - a\n      - b\n      # c",
            "\n      enum:\n      - a\n      - b\n      type: string\n      # c",
        ),
    ],
)
def test_a_correction_is_written_as_the_text_around_it(schema, corrected, write, toolcrib):
    text = f"""\
name: find_order
input_schema:
  type: object
  properties:
    number: {schema}
mock: {{result: 1}}
"""
    folder = write({"descriptors/order.tool.yaml": text})
    toolcrib("lint", "--fix")
    assert (folder / "descriptors/order.tool.yaml").read_text(encoding="utf-8") == text.replace(
        schema, corrected
    )


def test_json_is_corrected_as_json(write, toolcrib):
    tool = {
        "name": "find_order",
        "input_schema": {"type": "object", "properties": {"number": {"enum": ["a", "b"]}}},
    }
    folder = write({"descriptors/order.tool.json": json.dumps({**tool, "mock": {"result": 1}}, indent=4)})
    toolcrib("lint", "--fix")
    text = (folder / "descriptors/order.tool.json").read_text(encoding="utf-8")
    assert json.loads(text)["input_schema"]["properties"]["number"] == {"enum": ["a", "b"], "type": "string"}


def test_a_thousand_tools_take_seconds(write, toolcrib):
    words = [
        "order",
        "invoice",
        "parcel",
        "customer",
        "address",
        "refund",
        "payment",
        "voucher",
        "product",
        "review",
    ]
    texts = [
        f"name: get_{words[n % 10]}_{words[n // 10 % 10]}_{n}\ndescription: Look up {words[n % 10]} of a {words[n // 10 % 10]} by number {n}.\n"
        f"input_schema: {{type: object, properties: {{number: {{type: string, description: Number of the {words[n % 10]}.}}}}}}\n"
        for n in range(1000)
    ]
    write({f"descriptors/{n}.tool.yaml": "---\n".join(texts[n : n + 100]) for n in range(0, 1000, 100)})
    started = time.perf_counter()
    done = toolcrib("lint", "--json")
    assert json.loads(done.stdout)["tools"] == 1000
    assert time.perf_counter() - started < 30
