"""`toolcrib call`."""

from __future__ import annotations

import json

import pytest

from toolcrib.cli import exit_codes
from toolcrib.cli.call import event_line
from toolcrib.core.model import Content, Partial, Progress

PARTS = """
name: parts
mock:
  result: {made: true}
  content:
    - {type: text, text: See here.}
    - {type: image, data: aGVsbG8=, mime_type: image/png, title: "A \\e[31mmap"}
    - {type: resource, uri: "file:///x", mime_type: text/plain, text: The text.}
"""

MATH = """
name: math
coerce: "off"
input_schema:
  type: object
  additionalProperties: false
  properties: {a: {type: integer}, b: {type: array}, c: {type: string}}
mock: {result: "{{ args }}"}
"""


def test_a_text_is_printed_as_it_is(tools, toolcrib):
    result = toolcrib("call", "echo", "text=a=b", "times=3")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "a=b 3\n", "")


def test_a_text_goes_to_a_program_byte_by_byte_and_escaped_to_a_terminal(tools, toolcrib, on_terminal):
    assert toolcrib("call", "echo", "text=\x1b[31mred").stdout == "\x1b[31mred 1\n"
    assert on_terminal("call", "echo", "text=\x1b[31mred")[0] == "\\x1b[31mred 1\n"


def test_words_are_texts_and_json(write, toolcrib):
    write({"descriptors/math.tool.yaml": MATH})
    result = toolcrib("call", "math", "a:=1", 'b:=["x", 2.5]', "c=1")
    assert json.loads(result.stdout) == {"a": 1, "b": ["x", 2.5], "c": "1"}
    assert result.stdout.startswith('{\n  "a": 1,\n')


def test_a_text_where_the_schema_wants_another_type_is_answered_with_the_way_out(write, toolcrib):
    write({"descriptors/math.tool.yaml": MATH})
    result = toolcrib("call", "math", "a=1")
    assert (result.exit_code, result.stdout) == (exit_codes.OF_OUTCOME["invalid_arguments"], "")
    assert "/a: expected an integer" in result.stderr
    assert "use `key:=json`" in result.stderr


def test_an_unknown_argument_gets_no_advice_about_types(tools, toolcrib):
    result = toolcrib("call", "echo", "text=x", "tims=2")
    assert result.exit_code == exit_codes.OF_OUTCOME["invalid_arguments"]
    assert "key:=json" not in result.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["\x1b[31m"], "`\\x1b[31m` is not an argument"),
        (["text"], "`text` is not an argument; use `key=text`, or `key:=json`"),
        (["=x"], "`=x` is not an argument"),
        ([":=1"], "`:=1` is not an argument"),
        (["text:=Oslo"], "to pass the text itself, use `text=Oslo`"),
        (["text:=a b"], 'to pass the text itself, use "text=a b"'),
        (["text=a", "text:=1"], "duplicate argument `text`"),
    ],
)
def test_words_that_are_no_arguments_are_usage_errors(words, told, tools, toolcrib):
    result = toolcrib("call", "echo", *words)
    assert (result.exit_code, result.stdout) == (exit_codes.USAGE, "")
    assert told in " ".join(result.stderr.split())


def test_arguments_come_from_a_file_and_words_stand_in_for_some(tools, write, toolcrib):
    write({"args.json": '{"text": "file", "times": 2}', "args.yaml": "text: yes\n"})
    assert toolcrib("call", "echo", "--args-file", "args.json", "text=word").stdout == "word 2\n"
    assert toolcrib("call", "echo", "--args-file", "args.yaml").stdout == "yes 1\n"
    assert toolcrib("call", "echo", "--args-file", "-", given='{"text": "piped"}').stdout == "piped 1\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[1]", "must contain one object"),
        ("a: 1\n---\nb: 2\n", "must contain one object"),
        ("a: [", "cannot read "),
        ("", "cannot read"),
    ],
)
def test_a_file_without_an_object_is_a_usage_error(text, told, tools, write, toolcrib):
    write({"args.yaml": text})
    result = toolcrib("call", "echo", "--args-file", "args.yaml")
    assert result.exit_code == exit_codes.USAGE
    assert told in " ".join(result.stderr.split())


def test_a_failed_call_tells_outcome_code_and_message_on_stderr(tools, toolcrib):
    result = toolcrib("call", "failing")
    assert (result.exit_code, result.stdout) == (exit_codes.OF_OUTCOME["tool_error"], "")
    assert result.stderr == "tool_error (broken): It is broken.\n"


def test_a_tool_that_is_not_there_and_one_that_is_unbound_have_codes_of_their_own(tools, toolcrib):
    assert toolcrib("call", "ecko").exit_code == exit_codes.OF_OUTCOME["not_found"]
    assert toolcrib("call", "later").exit_code == exit_codes.OF_OUTCOME["unavailable"]
    assert (
        toolcrib("call", "echo", "text=x", "--mode", "live").exit_code == exit_codes.OF_OUTCOME["unavailable"]
    )


def test_json_is_the_whole_result_also_of_a_failed_call(tools, document, toolcrib):
    assert (
        document("call", "echo", "text=x", "times=2", "--json")["meta"]["repairs"][0]["pointer"] == "/times"
    )
    result = toolcrib("call", "failing", "--json")
    assert json.loads(result.stdout)["error"]["code"] == "broken"
    assert (result.exit_code, result.stderr) == (exit_codes.OF_OUTCOME["tool_error"], "")


def test_json_that_could_steer_a_terminal_is_pure_ascii(tools, toolcrib):
    shown = toolcrib("call", "echo", "text=\x9b31mü", "--json").stdout
    assert shown.isascii()
    assert json.loads(shown)["result"] == "\x9b31mü 1"
    assert "ü" in toolcrib("call", "echo", "text=ü", "--json").stdout


def test_parts_follow_the_value_each_on_a_line(write, toolcrib):
    write({"descriptors/parts.tool.yaml": PARTS})
    assert toolcrib("call", "parts").stdout.splitlines()[-3:] == [
        "See here.",
        "[image, image/png, 6 bytes, A \x1b[31mmap]",
        "The text.",
    ]


def test_an_answer_of_parts_alone_prints_no_null_and_an_empty_one_does(write, toolcrib):
    write(
        {
            "descriptors/part.tool.yaml": "name: part\nmock: {content: [{type: text, text: Only this.}]}\n",
            "descriptors/none.tool.yaml": "name: none\nmock: {result: null}\n",
        }
    )
    assert toolcrib("call", "part").stdout == "Only this.\n"
    assert toolcrib("call", "none").stdout == "null\n"


def test_a_part_that_only_repeats_the_value_is_not_printed_again(write, toolcrib):
    write({"descriptors/a.tool.yaml": "name: a\nmock: {result: hi, content: [{type: text, text: hi}]}\n"})
    assert toolcrib("call", "a").stdout == "hi\n"


def test_a_dry_run_says_what_would_happen(tools, document, toolcrib):
    shown = document("call", "echo", "text=x", "--dry-run")
    assert (shown["tool"], shown["mode"], shown["arguments"]) == ("echo", "mock", {"text": "x", "times": 1})
    assert toolcrib("call", "echo", "--dry-run").exit_code == exit_codes.OF_OUTCOME["invalid_arguments"]


def test_explain_tells_the_rule_and_why_others_did_not_answer(write, toolcrib):
    rules = """
name: rules
input_schema: {type: object, properties: {city: {type: string}}, additionalProperties: false}
mock:
  rules:
    - name: oslo
      when: {args: {city: Oslo}}
      reply: {result: north}
    - name: others
      reply: {result: elsewhere}
"""
    write({"descriptors/rules.tool.yaml": rules})
    result = toolcrib("call", "rules", "city=Rome", "--explain")
    assert result.stdout == "elsewhere\n"
    assert "  rule: others\n" in result.stderr
    assert "    - rule: oslo\n" in result.stderr
    assert 'args/city: expected "Oslo", got "Rome"' in result.stderr


def test_explain_of_a_call_that_gets_no_answer_leaves_it_to_the_call(tools, toolcrib):
    result = toolcrib("call", "echo", "--explain")
    assert "plan" not in result.stderr
    assert "invalid_arguments" in result.stderr


def test_a_seed_changes_what_is_generated_and_nothing_else_does(write, toolcrib):
    write(
        {
            "descriptors/a.tool.yaml": "name: a\noutput_schema: {type: integer, minimum: 0, maximum: 1000000000}\nmock: {generate: true}\n"
        }
    )
    first, again, other = (toolcrib("call", "a", "--seed", seed).stdout for seed in ("1", "1", "2"))
    assert first == again != other


def test_progress_is_shown_at_a_terminal_only(write, toolcrib, on_terminal):
    write(
        {
            "descriptors/a.tool.yaml": "name: a\nmock: {result: done, progress: [{progress: 1, total: 2, message: half}]}\n"
        }
    )
    assert on_terminal("call", "a") == ("done\n", "[1/2] half\n")
    assert toolcrib("call", "a").stderr == ""


def test_events_have_one_line_each():
    assert event_line(Progress(0.5)) == "[0.5]"
    assert event_line(Partial(Content("text", text="so far"))) == "so far"


def test_parts_of_a_failed_call_that_say_more_are_shown(write, toolcrib):
    write({"descriptors/a.tool.yaml": "name: a\nmock: {error: no, content: [{type: text, text: more}]}\n"})
    assert toolcrib("call", "a").stderr == "tool_error: no\nmore\n"


OLD = """
name: old
deprecated: use `new`
input_schema: {type: object, properties: {n: {type: integer}}}
mock: {result: 1}
"""


def test_a_dry_run_prints_every_error_and_warning(write, toolcrib):
    project = "project: p\naccess: {rules: [{deny: {tool: old}}]}\n"
    write({"descriptors/old.tool.yaml": OLD, "toolcrib.yaml": project})
    result = toolcrib("call", "old", "n:=[1]", "--dry-run")
    assert (result.exit_code, result.stdout) == (exit_codes.OF_OUTCOME["invalid_arguments"], "")
    warning, first, place, *_hint, other = result.stderr.splitlines()
    assert warning == "warning: `old` is deprecated: use `new`"
    assert first.startswith("invalid_arguments: ")
    assert place.startswith("/n: ")
    assert other.startswith(
        "also denied (access_rule): a call of `old` is denied by the rule `deny tool old`"
    )
    meta = json.loads(toolcrib("call", "old", "n:=[1]", "--dry-run", "--json").stdout)["meta"]
    assert [error["code"] for error in meta["errors"]] == ["invalid_arguments", "access_rule"]
    assert meta["warnings"] == ["`old` is deprecated: use `new`"]
