"""`toolcrib validate`."""

from __future__ import annotations

import pytest

from toolcrib.cli import exit_codes
from toolcrib.cli.validate import annotation
from toolcrib.core.errors import Problem

BAD = "name: bad\ninptu_schema: {}\nmock: {result: 1}\n"
DATA = "just: data\n"
BREAKS = "name: breaks\noutput_schema: {type: integer}\nmock: {result: \"{{ 'x' ~ call }}\"}\n"


def test_a_good_folder_is_summed_up_in_one_line(tools, toolcrib):
    result = toolcrib("validate")
    assert (result.exit_code, result.stdout) == (0, "3 tools, 0 packs, 0 scenarios: no problems\n")


def test_every_problem_has_its_place_its_code_and_the_way_out(tools, write, toolcrib):
    write({"descriptors/bad.tool.yaml": BAD, "descriptors/worse.tool.yaml": "name: 3\nmock: {}\n"})
    result = toolcrib("validate")
    assert result.exit_code == exit_codes.PROBLEMS
    assert (
        "descriptors/bad.tool.yaml:2:1: unknown_key: unknown key `inptu_schema` (at /inptu_schema)\n    hint: did you mean"
        in result.stdout
    )
    assert "descriptors/worse.tool.yaml:1:7: " in result.stdout
    assert result.stdout.splitlines()[-1].endswith("errors in 2 files")


def test_paths_are_checked_instead_of_the_default_folders(tools, write, toolcrib):
    write({"other/bad.tool.yaml": BAD, "fine/a.tool.yaml": "name: a\nmock: {result: 1}\n"})
    assert toolcrib("validate").exit_code == 0
    assert toolcrib("validate", "other").exit_code == exit_codes.PROBLEMS
    assert toolcrib("validate", "fine").stdout == "1 tool, 0 packs, 0 scenarios: no problems\n"
    assert toolcrib("validate", "nowhere").exit_code == exit_codes.USAGE


def test_warnings_and_notices_are_errors_under_strict_alone(tools, write, toolcrib):
    write({"descriptors/data.yaml": DATA})
    easy, strict = toolcrib("validate"), toolcrib("validate", "--strict")
    assert (easy.exit_code, easy.stdout.splitlines()[-1]) == (0, "1 notice in 1 file")
    assert (strict.exit_code, strict.stdout.splitlines()[-1]) == (exit_codes.PROBLEMS, "1 error in 1 file")


def test_computed_answers_are_proved_unless_shallow(tools, write, toolcrib):
    write({"descriptors/breaks.tool.yaml": BREAKS})
    deep = toolcrib("validate")
    assert deep.exit_code == exit_codes.PROBLEMS
    assert "descriptors/breaks.tool.yaml:3:" in deep.stdout
    assert "reply_breaks_schema" in deep.stdout
    assert toolcrib("validate", "--shallow").exit_code == 0


@pytest.mark.parametrize("words", [["--json"], ["--format", "json"], ["--json", "--format", "text"]])
def test_json_is_one_document_with_all_that_a_problem_has(words, write, document):
    write({"descriptors/bad.tool.yaml": BAD})
    assert document("validate", *words) == {
        "problems": [
            {
                "code": "unknown_key",
                "message": "unknown key `inptu_schema`",
                "pointer": "/inptu_schema",
                "hint": "did you mean `input_schema` or `output_schema` or `$schema`?",
                "severity": "error",
                "source": "descriptors/bad.tool.yaml",
                "line": 2,
                "column": 1,
                "cause": "",
            }
        ],
        "errors": 1,
        "warnings": 0,
        "notices": 0,
        "tools": 0,
        "packs": 0,
        "scenarios": 0,
    }


def following(name):
    return f"scenario: {name}\nsteps: [{{call: bad}}]\n"


def test_what_follows_from_another_problem_is_listed_below_it_and_counted(write, toolcrib, document):
    files = {f"descriptors/a{number}.scenario.yaml": following(f"s{number}") for number in range(5)}
    write(
        {
            "descriptors/a.tool.yaml": "name: a\noops: 1\nmock: {result: 1}\n",
            "descriptors/bad.tool.yaml": BAD,
            **files,
        }
    )
    lines = toolcrib("validate").stdout.splitlines()
    assert lines[0].startswith("descriptors/bad.tool.yaml:2:1: unknown_key: ")
    told = "refused_tool: the tool `bad` was rejected: unknown_key in descriptors/bad.tool.yaml:2"
    assert lines[2].startswith("    descriptors/a0.scenario.yaml:2:")
    assert [told in line for line in lines].count(True) == 3
    assert "    and 2 more problems that follow from it" in lines
    assert lines[-3].startswith("descriptors/a.tool.yaml:2:1: unknown_key: ")
    assert lines[-1] == "7 errors in 7 files"
    causes = [problem["cause"] for problem in document("validate", "--json")["problems"]]
    assert causes == ["", *["descriptors/bad.tool.yaml:2"] * 5, ""]


def test_what_an_unreadable_file_may_hold_is_listed_below_it(write, toolcrib):
    write(
        {"descriptors/a.scenario.yaml": following("s"), "descriptors/bad.tool.yaml": "name: bad\nmock: {resu"}
    )
    lines = toolcrib("validate").stdout.splitlines()
    assert lines[0].startswith("descriptors/bad.tool.yaml:3:1: invalid_yaml: ")
    assert any(line.startswith("    descriptors/a.scenario.yaml:2:") for line in lines)


def test_github_gets_an_annotation_for_each_problem(write, toolcrib):
    write({"descriptors/bad.tool.yaml": BAD})
    first, summary = toolcrib("validate", "--format", "github").stdout.splitlines()
    assert first.startswith(
        "::error file=descriptors/bad.tool.yaml,line=2,col=1,title=unknown_key::unknown_key: unknown key `inptu_schema`"
    )
    assert "%0Ahint: did you mean" in first
    assert summary == "1 error in 1 file"


def test_an_annotation_escapes_what_github_would_read_as_its_own():
    problem = Problem(
        code="odd", message="50% of\r\na,b:c\x1b[0m", source="a,b:c%.yaml", severity="warning", hint=""
    )
    assert (
        annotation(problem) == "::warning file=a%2Cb%3Ac%25.yaml,title=odd::odd: 50%25 of%0D%0Aa,b:c\\x1b[0m"
    )


@pytest.mark.parametrize("words", [(), ("--strict",), ("--shallow",)], ids=str)
def test_where_there_is_nothing_to_check_the_way_out_is_told(words, write, toolcrib):
    write({})
    result = toolcrib("validate", *words)
    assert result.exit_code == exit_codes.NOTHING_SELECTED
    assert result.stdout == (
        "nothing to validate: there is no project here, and no folder `descriptors` or `packs`\n"
        "    hint: `toolcrib init` creates a first one\n"
    )


PARTS = {
    "toolcrib.yaml": "project: p\nsources: [tools, other]\n",
    "tools/a.tool.yaml": "name: a\nmock: {result: 1}\n",
    "other/s.scenario.yaml": "scenario: s\nsteps: [{call: a}]\n",
    "other/bad.tool.yaml": "name: bad\noops: 1\nmock: {result: 1}\n",
}


@pytest.mark.parametrize(
    ("path", "code", "told"),
    [
        ("other/s.scenario.yaml", 0, "0 tools, 0 packs, 1 scenario: no problems"),
        ("tools", 0, "1 tool, 0 packs, 0 scenarios: no problems"),
        (
            "other",
            1,
            "other/bad.tool.yaml:2:1: unknown_key: unknown key `oops` (at /oops)\n",
        ),
        ("other/bad.tool.yaml", 1, "other/bad.tool.yaml:2:1: unknown_key: unknown key `oops`"),
        ("nothing", 3, "nothing to validate: no tools, packs or scenarios in nothing"),
    ],
)
def test_a_part_of_a_project_is_checked_with_the_tools_of_the_whole(path, code, told, write, toolcrib):
    (write(PARTS) / "nothing").mkdir()
    result = toolcrib("validate", path)
    assert (result.exit_code, result.stdout[: len(told)]) == (code, told)


def test_a_scenario_that_no_tool_of_its_project_serves_is_an_error(write, toolcrib):
    write(PARTS | {"other/s.scenario.yaml": "scenario: s\nsteps: [{call: nosuch}]\n"})
    result = toolcrib("validate", "other/s.scenario.yaml")
    assert (result.exit_code, "unknown_tool" in result.stdout) == (exit_codes.PROBLEMS, True)


def test_a_folder_that_a_project_names_and_that_is_not_there_is_an_error(write, toolcrib):
    write({"toolcrib.yaml": "project: p\nsources: [descriptors]\n"})
    result = toolcrib("validate")
    assert (result.exit_code, "path_not_found" in result.stdout) == (exit_codes.PROBLEMS, True)


def test_what_a_file_holds_can_not_steer_the_terminal(write, on_terminal):
    write({"descriptors/bad.tool.yaml": 'name: bad\nmock: {result: 1}\n"x\\e[41m": 1\n'})
    out, _err = on_terminal("validate")
    assert "\x1b[41m" not in out
    assert "\\x1b[41m" in out
    assert "\x1b[31m" in out


def test_json_and_annotations_at_once_are_refused(tools, toolcrib):
    result = toolcrib("validate", "--json", "--format", "github")
    assert (result.exit_code, result.stdout) == (exit_codes.USAGE, "")
    assert "`--json` and `--format github` are two output formats" in result.stderr


@pytest.mark.parametrize(
    ("action", "operation"),
    [("{{if lt .city 3}}x{{end}}", "`lt`"), ("{{range .city}}x{{end}}", "`range`"), ("{{len 3}}", "`len`")],
)
def test_what_fails_in_a_go_template_is_told_in_the_words_of_go(action, operation, write, toolcrib):
    schema = "{type: object, properties: {city: {type: string}}, required: [city]}"
    write({"descriptors/a.tool.yaml": f"name: a\ninputSchema: {schema}\nmockTemplate: '{action}'\n"})
    result = toolcrib("validate")
    assert result.exit_code == exit_codes.PROBLEMS
    assert f"{operation} needs" in result.stdout
    assert "(at /mockTemplate)" in result.stdout
    assert "| float" not in result.stdout
    called = toolcrib("call", "a", "city=Oslo")
    assert operation in called.stderr
    assert "| float" not in called.stderr


def test_an_empty_folder_is_not_said_to_have_no_problems(write, toolcrib):
    (write({}) / "empty").mkdir()
    result = toolcrib("validate", "empty")
    assert result.exit_code == exit_codes.NOTHING_SELECTED
    assert result.stdout == "nothing to validate: no tools, packs or scenarios in empty\n"
