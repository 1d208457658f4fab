"""What newcomers type from memory of other programs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from toolcrib.cli import exit_codes
from toolcrib.cli.group import cli

TYPED = """
name: plan
input_schema:
  type: object
  properties:
    title: {type: string, description: What it is for. And more.}
    days: {type: array, items: {type: integer}}
  required: [title, days]
mock: {result: "{{ args.title ~ (args.days | length) }}"}
"""


@pytest.fixture
def plan(write):
    return write({"descriptors/plan.tool.yaml": TYPED})


def test_a_call_takes_its_arguments_as_a_json_object(plan, toolcrib):
    assert toolcrib("call", "plan", '{"title": "a=b", "days": [1, 2]}').stdout == "a=b2\n"
    assert toolcrib("call", "plan", '{"title": "x"}', "days:=[3]").stdout == "x1\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (['{"title": }'], "the arguments are not a valid JSON object"),
        (['{"title": "a"}', "title=b"], "duplicate argument `title`"),
        (["--title", "Trip"], "Write the argument of a tool as `title=Trip`."),
        (["--title=Trip"], "Write the argument of a tool as `title=Trip`."),
        (["--title"], "Write the argument of a tool as `title=`."),
    ],
)
def test_words_that_are_no_arguments_get_the_form_to_write(plan, toolcrib, words, told):
    result = toolcrib("call", "plan", *words)
    assert (result.exit_code, result.stdout) == (exit_codes.USAGE, "")
    assert told in result.stderr


def test_an_option_that_is_misspelt_suggests_the_option_alone(plan, toolcrib):
    result = toolcrib("call", "plan", "--dry-rn")
    assert "--dry-run" in result.stderr
    assert "Write the argument" not in result.stderr


@pytest.mark.parametrize(
    ("word", "meant"), [("test", "run"), ("ls", "list"), ("describe", "show"), ("check", "validate")]
)
def test_names_of_other_programs_lead_to_ours(toolcrib, word, meant):
    result = toolcrib(word)
    assert result.exit_code == exit_codes.USAGE
    assert f"unknown command `{word}`; use `toolcrib {meant}`" in result.stderr


def test_colours_can_be_forced_and_refused(plan, toolcrib, monkeypatch):
    plain = toolcrib("show", "plan").stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in toolcrib("show", "plan").stdout
    monkeypatch.setenv("NO_COLOR", "1")
    assert toolcrib("show", "plan").stdout == plain


def test_show_ends_with_a_call_that_works(plan, write, toolcrib):
    line = toolcrib("show", "plan").stdout.splitlines()[-1]
    assert line.startswith("  toolcrib call plan ")
    write(
        {
            "descriptors/said.tool.yaml": "name: said\ninput_schema: {properties: {a: {type: string}}}\n"
            "examples: [{args: {a: it's}}]\nmock: {result: 1}\n"
        }
    )
    assert toolcrib("show", "said").stdout.endswith("""  toolcrib call said 'a=it'"'"'s'\n""")


def completed(words, incomplete):
    found = ShellComplete(cli, {}, "toolcrib", "_X").get_completions(words, incomplete)
    return [(item.value, item.help) for item in found if item.type == "plain"]


def test_names_of_arguments_are_completed_in_the_form_of_their_type(plan):
    assert completed(["call", "plan"], "") == [("title=", "What it is for."), ("days:=", "")]
    assert completed(["call", "plan"], "d") == [("days:=", "")]
    assert completed(["call", "nothing"], "") == []


def test_an_argument_that_is_given_is_not_offered_again(plan):
    assert completed(["call", "plan", "title=x"], "") == [("days:=", "")]
    # As bash splits it.
    assert completed(["call", "plan", "title", "=", "x"], "") == [("days:=", "")]


@pytest.mark.parametrize(
    ("words", "incomplete", "offered"),
    [
        ([], "unit=", ["unit=metric", "unit=imperial"]),
        ([], "unit=i", ["unit=imperial"]),
        (["unit"], "=", ["metric", "imperial"]),
        (["unit", "="], "m", ["metric"]),
        ([], "loud=", ["loud=true", "loud=false"]),
        ([], "town=", []),
        ([], "nosuch=", []),
        (["=", "="], "m", []),
    ],
    ids=str,
)
def test_values_that_a_schema_lists_are_completed(words, incomplete, offered, write):
    properties = (
        "{unit: {enum: [metric, imperial, 1]}, loud: {type: boolean}, town: {type: string}, odd: true}"
    )
    write(
        {
            "descriptors/t.tool.yaml": f"name: t\ninput_schema: {{properties: {properties}}}\nmock: {{result: 1}}\n"
        }
    )
    assert [value for value, _help in completed(["call", "t", *words], incomplete)] == offered


def test_bash_offers_what_the_command_line_completes(plan, write):
    write(
        {"descriptors/s.scenario.yaml": "scenario: trip\nsteps: [{call: plan, args: {title: a, days: []}}]\n"}
    )
    write({"tr.scenario.yaml": ""})
    program = Path(sys.executable).with_name("toolcrib")
    script = f"""
        compopt() {{ echo "$@"; }}
        eval "$({program} completion bash)"
        COMP_WORDS=(toolcrib call plan ti) COMP_CWORD=3; _toolcrib_completion {program}; echo "${{COMPREPLY[@]}}"
        COMPREPLY=() COMP_WORDS=(toolcrib run tr) COMP_CWORD=2; _toolcrib_completion {program}; echo "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout.splitlines() == ["-o nospace", "title=", "-o default", "trip tr.scenario.yaml"]
    assert done.stderr == ""


def test_zsh_leaves_no_blank_after_the_name_of_an_argument(toolcrib):
    assert "compadd -U -S '' -V unsorted -a bare" in toolcrib("completion", "zsh").stdout


def test_names_of_scenarios_are_completed_beside_paths(plan, write):
    write(
        {"descriptors/s.scenario.yaml": "scenario: trip\nsteps: [{call: plan, args: {title: a, days: []}}]\n"}
    )
    assert [value for value, _help in completed(["run"], "tr")] == ["trip"]
    write({"descriptors/t.tool.yaml": "name: tram\nexamples: [{args: {}}]\nmock: {result: 1}\n"})
    assert [value for value, _help in completed(["run"], "tr")] == ["trip", "tram"]
