"""`toolcrib run --junit` and `--format github`: what the viewers of CI read."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from toolcrib.cli import exit_codes
from toolcrib.cli.validate import escape_commands

SCENARIOS = """
scenario: fine
seed: 7
steps: [{call: echo, args: {text: a}}]
---
scenario: wrong
matrix: {text: ["a<b>&\\"c\\"", "\\a\\e[31m"]}
steps:
  - {call: echo, args: {text: "{{ matrix.text }}"}}
  - name: "50% of it: x, y"
    call: echo
    args: {text: "{{ matrix.text }}"}
    expect: {result: other}
verify: {never: [{tool: echo}]}
---
scenario: unmade
steps: [{call: echo, args: {text: a}}]
verify: {never: [{tool: echo}]}
"""


@pytest.fixture
def suite(tools, write, toolcrib):
    """Run with `--junit`; the answer is the tree, and what was printed."""
    write(
        {"packs/p/pack.yaml": "name: p\nversion: 1.0.0\n", "packs/p/scenarios/all.scenario.yaml": SCENARIOS}
    )

    def run(*words):
        result = toolcrib("run", "--junit", "out/junit.xml", *words)
        return ET.parse("out/junit.xml").getroot(), result  # our own text

    return run


def cases(tree, **wanted):
    found = tree.findall(".//testcase")
    return [case for case in found if all(case.get(key) == value for key, value in wanted.items())]


def test_every_run_is_a_case_in_the_suite_of_its_file(suite):
    tree, result = suite()
    assert result.exit_code == exit_codes.PROBLEMS
    assert tree.tag == "testsuites"
    assert [(one.get("name"), one.get("tests"), one.get("failures")) for one in tree] == [
        ("descriptors/echo.tool.yaml", "1", "0"),
        ("packs/p/scenarios/all.scenario.yaml", "4", "3"),
    ]
    assert [case.attrib for case in cases(tree, name="fine")] == [
        {
            "classname": "packs.p.scenarios.all",
            "name": "fine",
            "time": cases(tree, name="fine")[0].get("time"),
            "file": "packs/p/scenarios/all.scenario.yaml",
            "line": "2",
        }
    ]


def test_counts_are_those_of_the_elements_and_times_are_seconds(suite):
    tree, _result = suite()
    for element in [tree, *tree]:
        inside = element.findall(".//testcase")
        counted = {
            "tests": len(inside),
            **{
                name: sum(case.find(kind) is not None for case in inside)
                for kind, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped"))
            },
        }
        assert {key: int(element.get(key)) for key in counted} == counted
        assert re.fullmatch(r"[0-9]+\.[0-9]{6}", element.get("time"))
    assert float(tree.get("time")) >= sum(float(case.get("time")) for case in tree.iter("testcase"))


def test_a_case_tells_its_seed_and_its_matrix(suite):
    tree, _result = suite("--seed", "9")
    case = tree.find(".//testsuite[2]/testcase[2]")
    told = {one.get("name"): one.get("value") for one in case.iter("property")}
    assert told == {"seed": "9", "virtual": "0.000000", "matrix.text": 'a<b>&"c"'}


def test_a_failure_has_a_message_of_one_line_and_the_whole_text(suite):
    tree, result = suite()
    failure = tree.find(".//testsuite[2]/testcase[2]/failure")
    assert failure.get("type") == "result"
    assert (
        failure.get("message") == 'step 2 “50% of it: x, y”: result: expected "other", got "a<b>&\\"c\\" 1"'
    )
    assert failure.text.startswith('FAILED wrong[text=a<b>&"c"] › step 2')
    assert failure.text in result.stdout
    (unmade,) = cases(tree, name="unmade")
    assert unmade.find("failure").get("message").startswith("verify: calls: calls of `echo`")


def test_what_xml_can_not_hold_is_shown_as_an_escape(suite):
    tree, _result = suite()
    case = tree.find(".//testsuite[2]/testcase[3]")
    told = {one.get("name"): one.get("value") for one in case.iter("property")}
    assert told["matrix.text"] == "\\x07\\x1b[31m"
    assert "\\u0007" in case.find("failure").text
    assert "text=#2" in case.get("name")


def test_what_did_not_run_is_skipped(suite):
    tree, _result = suite("--fail-fast")
    kinds = [[child.tag for child in case if child.tag != "properties"] for case in tree.iter("testcase")]
    assert kinds == [[], [], ["failure"], ["skipped"], ["skipped"]]


def test_a_document_that_is_refused_is_an_error(suite, write):
    write({"packs/p/odd.tool.yaml": "name: odd\noops: 1\nmock: {result: 1}\n"})
    tree, result = suite("-k", "fine")
    (case,) = cases(tree, file="packs/p/odd.tool.yaml")
    error = case.find("error")
    assert (case.get("name"), case.get("line"), error.get("type")) == (
        "unknown_key /oops",
        "2",
        "unknown_key",
    )
    assert (tree.get("errors"), result.exit_code) == ("1", exit_codes.PROBLEMS)


def test_a_file_that_can_not_be_written_is_told_and_leaves_nothing_behind(tools, toolcrib):
    (tools / "out").mkdir()
    (tools / "out" / "junit.xml").mkdir()
    result = toolcrib("run", "--junit", "out/junit.xml/")
    assert result.exit_code != exit_codes.OK
    result = toolcrib("run", "--junit", "descriptors/echo.tool.yaml/junit.xml")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "Could not open file" in result.stderr
    assert [path.name for path in (tools / "out").iterdir()] == ["junit.xml"]


def test_a_report_takes_the_place_of_the_one_before(suite, tools):
    suite()
    tree, _result = suite("-k", "fine")
    assert tree.get("tests") == "1"
    assert [path.name for path in (tools / "out").iterdir()] == ["junit.xml"]


def commands(result):
    return [line for line in result.stdout.splitlines() if line.startswith("::")]


def test_github_is_given_an_annotation_at_the_step_of_every_failure(suite):
    _tree, result = suite("--format", "github")
    first, second, third = (each for each in commands(result) if each.startswith("::error "))
    head, text = first.split("::", 2)[1:]
    assert head == (
        "error file=packs/p/scenarios/all.scenario.yaml,line=10,"
        'title=wrong[text=a<b>&"c"] › step 2 “50%25 of it%3A x%2C y”'
    )
    assert text == (
        'call      echo {"text":"a<b>&\\"c\\""}%0Aanswered  "a<b>&\\"c\\" 1"%0A'
        'result    expected "other", got "a<b>&\\"c\\" 1"%0Aseed 0'
    )
    assert "line=10," in second
    assert "line=18,title=unmade › verify::calls of `echo`: expected 0, got 1" in third
    assert "1 tool with examples" in result.stdout
    assert result.exit_code == exit_codes.PROBLEMS


def test_github_is_told_of_documents_that_are_refused(tools, write, toolcrib):
    write(
        {
            "descriptors/odd.tool.yaml": "name: odd\noops: 1\nmock: {result: 1}\n",
            "descriptors/x.yaml": "a: 1\n",
        }
    )
    result = toolcrib("run", "--format", "github")
    (told,) = commands(result)
    assert told.startswith("::error file=descriptors/odd.tool.yaml,line=2,col=1,title=unknown_key::")
    assert (result.stderr, result.exit_code) == ("", exit_codes.PROBLEMS)


def test_a_tool_can_not_steer_the_runner_by_what_it_answers(tools, write, toolcrib):
    tool = 'name: evil\nmock: {error: "one\\n::set-env name=X::1\\n  ::stop-commands::y\\n##[error]z"}\n'
    write(
        {
            "descriptors/evil.tool.yaml": tool,
            "descriptors/evil.scenario.yaml": "scenario: s\nsteps: [{call: evil}]\n",
        }
    )
    result = toolcrib("run", "--format", "github")
    (told,) = commands(result)
    assert told.startswith("::error file=descriptors/evil.scenario.yaml,line=2")
    text = result.stdout.replace(told, "")
    assert not re.search(r"^\s*::", text, re.MULTILINE)
    assert "##[" not in text
    assert "\\x3a:set-env" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("::error::x", "\\x3a:error::x"),
        ("a\n\t ::debug::b", "a\n\t \\x3a:debug::b"),
        ("it is ::fine", "it is ::fine"),
        ("x ##[group]y", "x \\x23#[group]y"),
        ("# #[fine]", "# #[fine]"),
    ],
)
def test_only_what_is_a_command_is_changed(text, shown):
    assert escape_commands(text) == shown


def test_two_forms_at_once_are_refused(tools, toolcrib):
    assert toolcrib("run", "--json", "--format", "github").exit_code == exit_codes.USAGE


@pytest.mark.parametrize("verb", ["run", "validate"])
def test_github_is_told_files_from_the_folder_that_it_checked_out(
    tmp_path, write, toolcrib, monkeypatch, verb
):
    write({"sub/descriptors/odd.tool.yaml": "name: odd\noops: 1\nmock: {result: 1}\n", "elsewhere/x": ""})
    monkeypatch.chdir(tmp_path / "sub")
    for top, file in [
        (tmp_path, "sub/descriptors/odd.tool.yaml"),
        (tmp_path / "sub", "descriptors/odd.tool.yaml"),
        (tmp_path / "elsewhere", "descriptors/odd.tool.yaml"),
        ("", "descriptors/odd.tool.yaml"),
    ]:
        monkeypatch.setenv("GITHUB_WORKSPACE", str(top))
        assert commands(toolcrib(verb, "--format", "github"))[0].startswith(f"::error file={file},line=2,")
