"""`toolcrib trust`, and what `init` and `doctor` say of trust."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import product

import pytest

from sampling import sample
from toolcrib.cli import exit_codes

LIVE = """
name: send
mode: live
live: {url: "http://127.0.0.1:9/x", headers: {X: "${MISSING_KEY}"}}
"""
PROJECT = {"toolcrib.yaml": "project: p\n", "descriptors/t.tool.yaml": LIVE}
DENIED = exit_codes.OF_OUTCOME["denied"]
BOUND = exit_codes.OF_OUTCOME["unavailable"]


@pytest.fixture(autouse=True)
def _nothing_is_trusted(monkeypatch, tmp_path):
    monkeypatch.delenv("TOOLCRIB_TRUST", raising=False)
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path.parent / f"{tmp_path.name}-state"))


def test_agree_look_and_take_back(write, toolcrib, document):
    folder = write(PROJECT)
    assert toolcrib("call", "send").exit_code == DENIED
    told = document("trust", "--dry-run", "--json")["workspaces"][0]
    assert (told["workspace"], told["kind"], told["trusted"]) == (str(folder.resolve()), "project", False)
    assert toolcrib("trust", "--yes").stdout.splitlines()[-1] == f"trusted: {folder.resolve()}"
    assert toolcrib("call", "send").exit_code == BOUND
    told = document("trust", "--dry-run", "--json")["workspaces"][0]
    assert told["trusted"]
    assert told["decision"]["how"] == "toolcrib trust"
    (kept,) = document("trust", "list", "--json")["decisions"]
    assert (kept["root"], kept["hash"], kept["exists"]) == (str(folder.resolve()), told["hash"], True)
    assert toolcrib("trust", "revoke").stdout == "1 decision revoked\n"
    assert toolcrib("call", "send").exit_code == DENIED
    nothing = toolcrib("trust", "revoke")
    assert (nothing.exit_code, nothing.stdout) == (
        exit_codes.NOTHING_SELECTED,
        "nothing to revoke\n",
    )
    assert toolcrib("trust", "list").stdout == "nothing is trusted\n"


def test_without_a_terminal_it_says_how(write, toolcrib):
    write(PROJECT)
    result = toolcrib("trust")
    assert result.exit_code == exit_codes.USAGE
    assert "contact  http://127.0.0.1:9" in result.stdout
    assert "check `--dry-run`, then use `--yes`" in result.stderr


def test_a_path_may_be_named_from_elsewhere(write, toolcrib, tmp_path, monkeypatch):
    folder = write({f"one/{name}": text for name, text in PROJECT.items()})
    denied = toolcrib("call", "send", "--pack", "one/descriptors")
    assert denied.exit_code == DENIED
    assert "`toolcrib trust" in denied.stderr
    assert toolcrib("trust", "one", "--yes").exit_code == 0
    assert toolcrib("call", "send", "--pack", "one/descriptors").exit_code == BOUND
    monkeypatch.chdir(folder / "one" / "descriptors")
    assert toolcrib("call", "send").exit_code == BOUND
    assert toolcrib("trust", "revoke", ".").exit_code == 0
    assert toolcrib("call", "send").exit_code == DENIED


def test_all_decisions_are_taken_back_at_once(write, toolcrib):
    write({f"{name}/toolcrib.yaml": "project: p\n" for name in ("one", "two")})
    for name in ("one", "two"):
        toolcrib("trust", name, "--yes")
    assert toolcrib("trust", "revoke", "--all").stdout == "2 decisions revoked\n"
    assert "remove PATH" in toolcrib("trust", "revoke", "one", "--all").stderr


def test_a_folder_called_like_a_command_is_named_by_its_path(write, toolcrib):
    write({"list/toolcrib.yaml": "project: p\n"})
    assert toolcrib("trust", "./list", "--yes").stdout.endswith("/list\n")


def test_a_project_that_only_mocks_needs_nothing(write, toolcrib):
    write({"descriptors/t.tool.yaml": "name: t\nmock: {result: 1}\n"})
    result = toolcrib("trust")
    assert result.exit_code == 0
    assert "starts, contacts and reads nothing: only its mocks run" in result.stdout


def test_doctor_says_what_is_trusted_by_whom_and_when(write, toolcrib, document):
    write(PROJECT)
    page = toolcrib("doctor").stdout
    assert "project  1 host, 1 secret  not trusted" in page
    assert document("doctor", "--json")["trust"]["workspaces"][0]["trusted"] is False
    toolcrib("trust", "--yes")
    page = toolcrib("doctor").stdout
    assert "1 host, 1 secret  trusted 20" in page
    assert ", toolcrib trust" in page
    (told,) = document("doctor", "--json")["trust"]["workspaces"]
    assert told["trusted"]
    assert told["decision"].keys() == {"when", "who", "how"}


def test_init_trusts_the_project_that_it_writes(write, toolcrib, document):
    write({})
    result = toolcrib("init", "new")
    assert result.exit_code == 0
    (kept,) = document("trust", "list", "--json")["decisions"]
    assert kept["root"].endswith("/new")
    assert (kept["how"], kept["needs"]) == ("toolcrib init", [])


def test_init_trusts_nothing_that_was_there_before(write, toolcrib, document):
    write({"new/descriptors/evil.tool.yaml": LIVE})
    result = toolcrib("init", "new")
    assert result.exit_code == 0
    assert "contains files that `toolcrib init` did not write" in result.stderr
    assert document("trust", "list", "--json")["decisions"] == []


def test_where_nothing_can_be_kept_that_is_said(write, toolcrib, monkeypatch, tmp_path):
    write(PROJECT)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "file"))
    result = toolcrib("trust", "--yes")
    assert result.exit_code == 1
    assert "cannot store the decision" in result.stderr
    assert toolcrib("init", "new").exit_code == 0


def test_a_broken_project_can_be_looked_at(write, toolcrib):
    write({**PROJECT, "toolcrib.yaml": "project: p\nprofils: {}\n", "descriptors/u.tool.yaml": "name: [\n"})
    result = toolcrib("trust", "--dry-run")
    assert result.exit_code == 0
    assert "contact  http://127.0.0.1:9" in result.stdout


def test_names_that_are_no_unicode_are_shown(write, toolcrib, tmp_path):
    write({})
    name = os.fsdecode(b"proj-\xff")
    (tmp_path / name / "descriptors").mkdir(parents=True)
    (tmp_path / name / "toolcrib.yaml").write_text("project: p\n")
    (tmp_path / name / "descriptors" / "t.tool.yaml").write_text(LIVE)
    assert toolcrib("trust", name, "--yes").exit_code == 0
    assert toolcrib("trust", "list").exit_code == 0


SERVED = """
project: p
sources: [descriptors]
servers: {away: {command: no-such-program, import: true}}
"""
MOCKED = """
name: hello
mock: {result: hi}
---
name: send
mode: live
live: {url: "http://127.0.0.1:9/x"}
---
scenario: greets
steps: [{call: hello, expect: {result: hi}}]
---
scenario: sends
modes: {send: live}
steps: [{call: send}]
---
scenario: errs
steps: [{call: hello, expect: {result: bye}}]
"""


FORMS = [(), ("--json",), ("--format", "github"), ("-j", "2")]
KEYWORDS = [("greets", 0), ("sends", DENIED), ("greets or sends", DENIED), ("errs", 1), ("", 1)]


# Every third pair has each keyword and each form.
@pytest.mark.parametrize(("chosen", "form"), sample(product(KEYWORDS, FORMS), 9))
def test_a_run_of_mocks_alone_needs_no_trust(write, toolcrib, chosen, form):
    keyword, code = chosen
    write({"toolcrib.yaml": SERVED, "descriptors/t.yaml": MOCKED})
    result = toolcrib("run", "-k", keyword, *form, "--junit", "run.xml")
    assert result.exit_code == code, result.stdout + result.stderr
    assert "denied (untrusted_workspace)" in result.stderr
    counted = 'type="untrusted_workspace"' in (write({}) / "run.xml").read_text()
    assert counted == ("sends" in keyword or not keyword)


def test_decisions_within_the_project_are_not_kept(write, toolcrib, monkeypatch, document):
    folder = write(PROJECT)
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(folder / "state"))
    digest = document("trust", "--dry-run", "--json")["workspaces"][0]["hash"]
    result = toolcrib("trust", "--yes")
    assert result.exit_code == 1
    assert "trusted:" not in result.stdout
    assert f"is inside {folder.resolve()}, so" in result.stderr
    assert "set TOOLCRIB_STATE_DIR to a folder outside it" in result.stderr
    assert f"TOOLCRIB_TRUST={digest}" in result.stderr
    assert document("trust", "list", "--json")["decisions"] == []
    monkeypatch.setenv("TOOLCRIB_TRUST", digest)
    assert toolcrib("call", "send").exit_code == BOUND


@pytest.mark.parametrize(
    "part", ["one/descriptors", "one/descriptors/t.tool.yaml", "one/toolcrib.yaml", "one"]
)
def test_a_part_of_a_project_is_trusted_with_all_of_it(write, toolcrib, monkeypatch, part):
    other = LIVE.replace("send", "fetch").replace(":9", ":8")
    files = {
        **PROJECT,
        "more/u.tool.yaml": other,
        "toolcrib.yaml": "project: p\nsources: [descriptors, more]\n",
    }
    folder = write({f"one/{name}": text for name, text in files.items()})
    result = toolcrib("trust", part, "--yes")
    assert result.exit_code == 0
    assert result.stdout.count("contact  http://127.0.0.1:") == 2
    root = (folder / "one").resolve()
    said = f"{part} is part of the project {root}, which is trusted as a whole\n"
    assert result.stderr == (said if "descriptors" in part else "")
    monkeypatch.chdir(root)
    assert toolcrib("call", "fetch").exit_code == BOUND


@pytest.mark.parametrize("variable", ["", "all"])
def test_what_can_not_be_granted_is_not_trusted(write, toolcrib, document, monkeypatch, variable):
    monkeypatch.setenv("TOOLCRIB_TRUST", variable)
    write({"p/pack.yaml": "name: p\nversion: 1.0.0\n", "p/t.tool.yaml": LIVE})
    result = toolcrib("trust", "p", "--yes")
    assert result.exit_code == 1
    assert "trusted:" not in result.stdout
    assert "it does not declare what it needs" in result.stderr
    assert document("trust", "list", "--json")["decisions"] == []


@pytest.mark.parametrize("words", [("--help",), (".", "--help"), ("--bogus",), ("no/such/path",), ("a", "b")])
def test_nobody_names_the_command_that_grants(write, toolcrib, words):
    write(PROJECT)
    result = toolcrib("trust", *words)
    told = result.stdout + result.stderr
    assert "Usage: toolcrib trust [PATH] [--dry-run] [--yes] [--json]\n" in told
    assert "trust grant" not in told


@pytest.mark.parametrize(
    "value", sample(["yes", "1", "abc,def", "true true true-but-no-hash-at-all"], one_in=2)
)
def test_a_variable_that_grants_nothing_is_told(write, toolcrib, document, monkeypatch, value):
    write(
        {
            **PROJECT,
            "descriptors/s.scenario.yaml": "scenario: sends\nmodes: {send: live}\nsteps: [{call: send}]\n",
        }
    )
    said = "TOOLCRIB_TRUST grants nothing: it is neither `all` nor a list of hashes"
    assert said not in toolcrib("run").stderr
    monkeypatch.setenv("TOOLCRIB_TRUST", value)
    assert toolcrib("run").stderr.count(said) == 1
    assert toolcrib("call", "send").stderr.count(said) == 1
    findings = document("doctor", "--json")["findings"]
    assert [each["severity"] for each in findings if each["message"].startswith(said)] == ["warning"]
    monkeypatch.setenv("TOOLCRIB_TRUST", f"{value}, sha256:{'0' * 64}")
    assert said not in toolcrib("run").stderr


def test_a_scenario_that_waits_for_an_untrusted_server_is_not_passed_over(write, toolcrib):
    """It can't be run before its server is asked, and what did not run did not pass."""
    waits = "---\nscenario: waits\nsteps: [{call: away__x}]\n"
    write({"toolcrib.yaml": SERVED, "descriptors/t.yaml": MOCKED + waits})
    assert toolcrib("run", "-k", "waits").exit_code == DENIED
    assert toolcrib("run", "-k", "greets or waits").exit_code == DENIED
    assert toolcrib("run", "-k", "greets").exit_code == 0


def test_validate_tells_all_of_a_workspace_in_one_problem(write, toolcrib, document):
    servers = "servers:\n  one: {command: first, import: true}\n  two: {command: second, import: true}\n"
    folder = write({**PROJECT, "toolcrib.yaml": f"project: p\n{servers}"})
    told = document("validate", "--json")["problems"]
    (problem,) = [each for each in told if each["code"] == "untrusted_workspace"]
    assert (problem["source"], problem["line"]) == ("toolcrib.yaml", 3)
    assert problem["message"] == (
        f"the project {folder.resolve()} is not trusted; it would start `first`, start `second`, "
        "contact `http://127.0.0.1:9`, read `${MISSING_KEY}` for http://127.0.0.1:9"
    )
    assert "then run `toolcrib trust`" in problem["hint"]
    assert toolcrib("validate").exit_code == DENIED


@pytest.mark.parametrize(
    "words", sample([("trust",), ("trust", "."), ("trust", "revoke"), ("trust", "revoke", ".")], one_in=4)
)
def test_in_a_folder_that_is_gone_that_is_said(write, toolcrib, monkeypatch, tmp_path, words):
    write({"gone/x": ""})
    monkeypatch.chdir(tmp_path / "gone")
    shutil.rmtree(tmp_path / "gone")
    result = toolcrib(*words)
    assert result.exit_code == 1
    assert result.stderr == "Error: the working directory was deleted; change to a folder that exists\n"
    assert toolcrib("trust", "list").stdout == "nothing is trusted\n"
    assert toolcrib("doctor").exit_code == 1
    python = subprocess.run(
        [sys.executable, "-m", "toolcrib", "--version"], capture_output=True, text=True, check=True
    )
    assert python.stdout.startswith("toolcrib ")
