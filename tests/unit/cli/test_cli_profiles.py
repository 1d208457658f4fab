"""The options that say what is read: `--profile`, `--no-index`, before and after the verb."""

from __future__ import annotations

import os

import pytest

from toolcrib.cli import entry

PROJECT = """project: demo
profile: dev
profiles:
  dev: {description: On your desk.}
  ci: {extends: dev, description: On every push., disable: ["fail*"]}
"""


@pytest.fixture
def project(tools, write, monkeypatch):
    """The three tools as a project."""
    monkeypatch.delenv("TOOLCRIB_PROFILE", raising=False)
    return write({"toolcrib.yaml": PROJECT})


def names(document, *words):
    return [tool["name"] for tool in document(*words, "--json")["tools"]]


ALL = ["echo", "failing", "later"]


def test_a_profile_may_stand_before_and_after_the_verb(project, document):
    assert names(document, "list") == ALL
    assert names(document, "list", "--profile", "ci") == ["echo", "later"]
    assert names(document, "--profile", "ci", "list") == ["echo", "later"]


def test_the_profile_after_the_verb_counts(project, document):
    assert names(document, "--profile", "ci", "list", "--profile", "dev") == ALL


def test_the_environment_names_a_profile_where_nobody_else_does(project, document, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_PROFILE", "ci")
    assert names(document, "list") == ["echo", "later"]
    assert names(document, "list", "--profile", "dev") == ALL


def test_a_project_is_found_from_below(project, document, monkeypatch):
    monkeypatch.chdir(project / "descriptors")
    assert names(document, "list", "--profile", "ci") == ["echo", "later"]
    assert names(document, "--no-index", "list", "--no-index") == ALL


def test_an_unknown_profile_ends_the_command(project, toolcrib):
    result = toolcrib("list", "--profile", "cii")
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: unknown profile `cii`\n    hint: did you mean `ci`? known profiles: `dev`, `ci`\n"
    )


def test_paths_that_are_given_are_read_without_the_project(project, toolcrib):
    assert toolcrib("list", "descriptors").exit_code == 0
    refused = toolcrib("list", "descriptors", "--profile", "ci")
    assert refused.exit_code == 2
    assert "no project" in refused.stderr
    assert toolcrib("list", ".", "--profile", "ci").exit_code == 0
    # A part of a project is checked with the whole project.
    assert toolcrib("validate", "descriptors", "--profile", "ci").exit_code == 0


def test_a_tool_that_is_disabled_says_so_when_it_is_called(project, toolcrib):
    result = toolcrib("call", "failing", "--profile", "ci")
    assert result.exit_code == 14
    assert "disabled by `fail*` in toolcrib.yaml:5 (profile ci)" in result.stderr


def completed(monkeypatch, capsys, words):
    """What bash is offered for the last word."""
    monkeypatch.setenv("_TOOLCRIB_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv(
        "COMP_CWORD", str(len(words.split()) if words.endswith(" ") else len(words.split()) - 1)
    )
    monkeypatch.setattr("sys.argv", ["toolcrib"])
    with pytest.raises(SystemExit):
        entry.main()
    return [line.partition(",")[2] for line in capsys.readouterr().out.splitlines() if line]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("toolcrib list --profile ", ["dev", "ci"]),
        ("toolcrib --profile ", ["dev", "ci"]),
        ("toolcrib show --profile c", ["ci"]),
        ("toolcrib --profile ci show ", ["echo", "later"]),
        ("toolcrib show --profile ci e", ["echo"]),
        ("toolcrib doctor --profile ci ", ALL),
        ("toolcrib show --profile nobody ", []),
        ("toolcrib show ", ALL),
    ],
)
def test_profiles_and_the_tools_under_them_are_completed(project, monkeypatch, capsys, words, expected):
    assert completed(monkeypatch, capsys, words) == expected


def test_nothing_is_completed_where_two_projects_are_named(project, write, monkeypatch, capsys):
    write({"other/toolcrib.yaml": "project: other\n"})
    assert completed(monkeypatch, capsys, f"toolcrib --pack other{os.sep} list --profile ") == []


def test_a_broken_project_is_told_by_the_verbs_that_show_tools(project, write, toolcrib):
    write({"toolcrib.yaml": PROJECT + "profils: {}\n"})
    why = "no tool is offered while toolcrib.yaml:6 has errors"
    listed = toolcrib("list")
    assert listed.stdout == "no tools; 3 not offered, `--all` shows why\n"
    assert listed.stderr.endswith(f"{why}\n")
    assert toolcrib("search", "echo").stderr.endswith(f"{why}\n")
    assert toolcrib("run").stderr.endswith(f"nothing to run: {why}\n")
    assert why in toolcrib("call", "echo").stderr
    assert f"  - {why}\n" in toolcrib("doctor").stdout


def test_validate_tells_an_unknown_mode_of_the_profile_in_force_among_everything_else(
    project, write, toolcrib
):
    write(
        {"toolcrib.yaml": "project: p\nprofile: x\nprofiles: {x: {modes: {'*': mok}, disable: [nobody]}}\n"}
    )
    told = toolcrib("validate")
    assert told.exit_code == 1
    assert "unknown_mode" in told.stdout
    assert "idle_glob" in told.stdout
