"""A pack declares what its tools use; a tool that uses anything else is refused at load, and the others stay."""

from __future__ import annotations

import json

import pytest

from toolcrib import Runtime

OK = "name: fine\ndescription: Only a mock.\nmock: {result: 1}\n"


def opened(folder, requires, *blocks):
    """The runtime of a pack with a mock and one tool for each of these blocks."""
    folder.mkdir(parents=True)
    (folder / "pack.yaml").write_text(f"name: tools\nversion: 1.0.0\nrequires: {json.dumps(requires)}\n")
    tools = [OK, *(f"name: tool{index}\ndescription: d\n{block}\n" for index, block in enumerate(blocks))]
    (folder / "tools.yaml").write_text("---\n".join(tools))
    (folder / "acme").mkdir(exist_ok=True)
    (folder / "acme" / "__init__.py").write_text("def run():\n    return 1\n")
    return Runtime.open(folder)


LIVE = 'live: {url: "https://api.example.com/a", headers: {X: "${KEY}"}}'
EXEC = "exec: {command: [git, status]}"
KEYRING = 'live: {url: "https://api.example.com/a", headers: {X: "${keyring:billing/robot}"}}'

AUTH = 'live: {url: "https://api.example.com/", auth: {type: python, call: "acme:sign"}}'
SECRET = 'live: {url: "https://api.example.com/a", headers: {X: "${file:/run/key}"}}'

CASES = [
    (LIVE, {"environment": ["KEY"]}, {"hosts": ["api.example.com"]}, "hosts: [api.example.com]"),
    (LIVE, {"hosts": ["*.example.com"]}, {"environment": ["KEY"]}, "environment: [KEY]"),
    (SECRET, {"hosts": ["api.example.com"]}, {"files": ["/run/key"]}, "files: [/run/key]"),
    (KEYRING, {"hosts": ["api.example.com"]}, {"keyring": ["billing/robot"]}, "keyring: [billing/robot]"),
    (EXEC, {"hosts": []}, {"commands": ["git"]}, "commands: [git]"),
    ("exec: {command: [./run.sh]}", {"commands": ["run.sh"]}, {"commands": ["./run.sh"]}, "commands: [./run.sh]"),
    ("exec: {command: [git], network: true}", {"commands": ["git"]}, {"network": True}, "network: true"),
    ("exec: {command: [git], paths: {read: [../data]}}", {"commands": ["git"]}, {"paths": {"read": ["../data"]}}, "paths: {read: [../data]}"),
    ("exec: {command: [git], paths: {write: [../data]}}", {"commands": ["git"], "paths": {"read": ["../data"]}}, {"paths": {"write": ["../data"]}}, "paths: {write: [../data]}"),
    ("exec: {command: [git], cwd: ..}", {"commands": ["git"]}, {"paths": {"read": [".."]}}, "paths: {read: [..]}"),
    ('exec: {command: [git], cwd: "${HOME}"}', {"commands": ["git"], "environment": ["HOME"]}, {"paths": {"read": ["${HOME}"]}}, "paths: {read: [${HOME}]}"),
    ('exec: {command: [git, "${KEY}"]}', {"commands": ["git"]}, {"environment": ["KEY"]}, "environment: [KEY]"),
    ('python: {call: "acme:run"}', {"python": ["other"]}, {"python": ["acme"]}, "python: [acme]"),
    (AUTH, {"hosts": ["api.example.com"]}, {"python": ["acme"]}, "python: [acme]"),
]  # fmt: skip


@pytest.mark.parametrize(("block", "requires", "_lacking", "entry"), CASES)
def test_a_tool_that_uses_what_is_not_declared_is_refused(tmp_path, block, requires, _lacking, entry):
    with opened(tmp_path / "pack", requires, block) as runtime:
        (problem,) = (each for each in runtime.problems if each.code == "undeclared_need")
        assert problem.severity == "error"
        assert problem.hint == f"add to `requires` in pack.yaml: `{entry}`"
        assert problem.source.endswith("tools.yaml")
        assert [*runtime.registry] == ["fine"]
        refused = runtime.call_sync("tool0")
        assert refused.outcome.value == "not_found"
        assert "undeclared_need" in refused.message


@pytest.mark.parametrize(("block", "requires", "lacking", "_entry"), CASES)
def test_a_tool_whose_needs_are_declared_is_loaded(tmp_path, block, requires, lacking, _entry):
    with opened(tmp_path / "pack", requires | lacking, block) as runtime:
        assert [str(each) for each in runtime.problems] == []
        assert [*runtime.registry] == ["fine", "tool0"]


def test_all_undeclared_needs_are_told_at_once(tmp_path):
    with opened(tmp_path / "pack", {"hosts": ["other.example.com"]}, LIVE, EXEC) as runtime:
        told = {each.message.split("`")[1]: each for each in runtime.problems}
    assert told.keys() == {"tool0", "tool1"}
    assert told["tool0"].hint == (
        "add to `requires` in pack.yaml: `hosts: [api.example.com]`, `environment: [KEY]`"
    )
    assert "which `requires` of the pack `tools` does not declare" in told["tool0"].message


def test_what_a_pack_cannot_declare_is_said(tmp_path):
    elsewhere = 'live: {url: "https://${PLACE}.example.com/a"}'
    with opened(
        tmp_path / "pack", {"hosts": ["api.example.com"], "environment": ["PLACE"]}, elsewhere
    ) as runtime:
        (problem,) = runtime.problems
    assert problem.hint == "a pack cannot declare this; only the files of a project can have such needs"


def test_a_pack_that_declares_nothing_belongs_to_its_project(tmp_path):
    with opened(tmp_path / "pack", {"toolcrib": ">=0.1"}, LIVE, EXEC) as runtime:
        assert [str(each) for each in runtime.problems] == []
        assert [*runtime.registry] == ["fine", "tool0", "tool1"]


def test_what_a_project_adds_to_a_tool_is_its_own(tmp_path):
    opened(tmp_path / "packs" / "pack", {"commands": ["git"]}, EXEC).close()
    (tmp_path / "descriptors").mkdir()
    override = "name: tool0\noverride: true\nexec: {command: [ls]}\n"
    (tmp_path / "descriptors" / "tool0.tool.yaml").write_text(override)
    (tmp_path / "toolcrib.yaml").write_text("project: p\nsources: [packs, descriptors]\n")
    with Runtime.open(tmp_path) as runtime:
        assert [str(each) for each in runtime.problems] == []
        assert "tool0" in runtime.registry
