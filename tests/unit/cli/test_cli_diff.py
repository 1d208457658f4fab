"""`toolcrib diff`."""

from __future__ import annotations

import json
import subprocess

import pytest

from toolcrib.cli import exit_codes
from toolcrib.cli.diff import MOST_FILES

TOOL = """
name: find
description: Find an order.
input_schema:
  type: object
  properties: {number: {type: string}, days: {type: integer, maximum: 9}}
  required: [number]
mock: {result: 1}
"""
CLOSED = TOOL.replace("required: [number]", "required: [number, days]")
OPENED = TOOL.replace("maximum: 9", "maximum: 99")
LIST = [{"name": "find", "description": "Find an order.", "inputSchema": {"type": "object"}}]


def git(*words):
    identity = ("-c", "user.name=ada", "-c", "user.email=ada@example.com")
    subprocess.run(["git", *identity, *words], check=True, capture_output=True)


@pytest.fixture
def committed(write):
    folder = write({"descriptors/find.tool.yaml": TOOL})
    git("init", "-q", "-b", "main", ".")
    git("add", ".")
    git("commit", "-q", "-m", "one")
    return folder


def test_nothing_changed(committed, toolcrib):
    done = toolcrib("diff", "HEAD")
    assert (done.exit_code, done.stdout) == (exit_codes.OK, "HEAD -> .: 1 unchanged\n")


def test_a_breaking_change_has_its_reason_and_fails(committed, write, toolcrib):
    write({"descriptors/find.tool.yaml": CLOSED})
    done = toolcrib("diff", "main")
    assert done.exit_code == exit_codes.PROBLEMS
    assert "find: breaking\n" in done.stdout
    assert "  breaking: inputSchema /required: `days` is now required" in done.stdout
    assert done.stdout.endswith("main -> .: 1 changed; breaking\n")
    for fail_on, code in (("nothing", 0), ("prompt-affecting", 0), ("any", 1), ("breaking", 1)):
        assert toolcrib("diff", "main", "--fail-on", fail_on).exit_code == code


def test_a_compatible_change_passes(committed, write, toolcrib):
    write({"descriptors/find.tool.yaml": OPENED})
    done = toolcrib("diff", "HEAD")
    assert done.exit_code == exit_codes.OK
    assert "find: compatible\n" in done.stdout
    assert toolcrib("diff", "HEAD", "--fail-on", "any").exit_code == exit_codes.PROBLEMS


def test_tools_that_come_go_and_are_renamed(committed, write, document):
    write(
        {
            "descriptors/find.tool.yaml": TOOL.replace("name: find", "name: seek")
            + "---\nname: more\nmock: {result: 1}\n"
        }
    )
    found = document("diff", "HEAD", "--json")
    assert (found["added"], found["removed"]) == (["more", "seek"], ["find"])
    assert found["renamed"] == {"find": "seek"}
    assert found["verdicts"] == ["breaking", "compatible", "prompt-affecting"]


def test_keys_that_no_client_sees_are_noted(committed, write, toolcrib, document):
    write({"descriptors/find.tool.yaml": TOOL + "timeout: 5s\nversion: '2'\n"})
    assert document("diff", "HEAD", "--json")["notes"] == {
        "find": {"timeout": {"before": 30.0, "after": 5.0}, "version": {"before": "", "after": "2"}}
    }
    done = toolcrib("diff", "HEAD", "--fail-on", "any")
    assert done.exit_code == exit_codes.OK
    assert "find: no change for callers\n  ~ version: none -> 2\n  ~ timeout: 30.0 -> 5.0\n" in done.stdout


def test_a_folder_below_the_root_is_compared_with_itself(committed, write, toolcrib, monkeypatch):
    write({"tools/a/find.tool.yaml": TOOL})
    git("add", ".")
    git("commit", "-q", "-m", "two")
    monkeypatch.chdir(committed / "tools")
    assert toolcrib("diff", "HEAD", "a").stdout == "HEAD -> a: 1 unchanged\n"
    assert toolcrib("diff", "HEAD:tools/a", "a").stdout.endswith(": 1 unchanged\n")
    assert toolcrib("diff", "HEAD:./a/find.tool.yaml", "a/find.tool.yaml").stdout.endswith(": 1 unchanged\n")
    assert "git says: fatal:" in toolcrib("diff", "HEAD~1", "HEAD").stderr, "there was no such folder"
    monkeypatch.chdir(committed)
    assert toolcrib("diff", "HEAD~1:", "HEAD:tools").stdout == "HEAD~1: -> HEAD:tools: 1 unchanged\n"


def test_a_saved_list_in_each_form(write, toolcrib):
    write(
        {
            "one.json": json.dumps(LIST),
            "two.json": json.dumps({"tools": LIST}),
            "three.json": json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"tools": LIST}}),
            "descriptors/find.tool.yaml": TOOL,
        }
    )
    for name in ("two.json", "three.json"):
        assert toolcrib("diff", "one.json", name).stdout == f"one.json -> {name}: 1 unchanged\n"
    assert "`number` is now required" in toolcrib("diff", "one.json").stdout


def test_files_with_errors_are_counted(committed, write, toolcrib):
    write({"descriptors/bad.tool.yaml": "name: bad\ndescripshun: x\n"})
    done = toolcrib("diff", "HEAD")
    assert (
        done.stderr
        == "1 file of . was refused, so that tools may be missing; run `toolcrib validate` there\n"
    )


@pytest.mark.parametrize("said", ["nope", "HEAD~7", "HEAD:nope", "nope:descriptors"])
def test_what_is_neither_a_path_nor_a_revision(committed, toolcrib, said):
    done = toolcrib("diff", said)
    assert done.exit_code == exit_codes.USAGE
    assert f"`{said}`: there is no such path, and git says: fatal:" in done.stderr
    assert "pass a project, folder, pack" in done.stderr


def test_without_git_and_with_a_word_that_git_would_take_for_an_option(committed, toolcrib, monkeypatch):
    assert "`--output=x`: there is no such path\n" in toolcrib("diff", "--", "--output=x").stderr
    monkeypatch.setenv("PATH", "/nowhere")
    assert "`git` is not installed" in toolcrib("diff", "HEAD").stderr


def test_filters_of_the_repository_do_not_run(committed, toolcrib, tmp_path):
    (tmp_path / ".gitattributes").write_text("*.yaml filter=evil\n")
    git("add", ".")
    git("commit", "-q", "-m", "two")
    git("config", "filter.evil.smudge", f"touch {tmp_path}/ran")
    assert toolcrib("diff", "HEAD").exit_code == exit_codes.OK
    assert not (tmp_path / "ran").exists()


def test_links_of_a_revision_are_left_out(committed, toolcrib):
    (committed / "descriptors" / "link.tool.yaml").symlink_to("/etc/hostname")
    git("add", ".")
    git("commit", "-q", "-m", "two")
    assert toolcrib("diff", "HEAD", "HEAD:").exit_code == exit_codes.OK


def test_a_revision_with_too_many_files_is_refused(committed, toolcrib):
    text = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], input=b"x", capture_output=True, check=True
    )
    entry = f"100644 {text.stdout.decode().strip()}\tmany/"
    lines = "".join(f"{entry}{number}\n" for number in range(MOST_FILES))
    subprocess.run(["git", "update-index", "--index-info"], input=lines.encode(), check=True)
    git("commit", "-q", "-m", "many")
    done = toolcrib("diff", "HEAD")
    assert done.exit_code == exit_codes.USAGE
    assert "at most 20000 files" in done.stderr
    assert toolcrib("diff", "HEAD:descriptors", "descriptors").exit_code == exit_codes.OK
