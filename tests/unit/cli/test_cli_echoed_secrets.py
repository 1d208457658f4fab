"""A server may repeat the secrets that it was given in all that it says: nothing that is written or printed shows them."""

from __future__ import annotations

import json
import sys
from itertools import product
from pathlib import Path

import pytest

from echoing_server import forms
from sampling import sample
from toolcrib.cli import exit_codes

SERVER = str(Path(__file__).parents[2] / "echoing_server.py")

GIVEN = {"KEY": 'CaNarY-key-"7f3a+b&c', "ECHO_TOKEN": "CaNarY-t0ken/5e1f~2d", "PIN_CODE": "84615273"}
ARGUMENT = "CaNarY-from-the-4rguments"
LATER = {"KEY": 'other-key-"99+x&y', "ECHO_TOKEN": "0ther-token/11~22z", "PIN_CODE": "19283746"}


def written(secrets):
    """All that must be found nowhere."""
    found = {form for secret in secrets for form in forms(secret).values()}
    found |= {form.lower() for form in found} | {json.dumps(form)[1:-1].lower() for form in found}
    return {form for form in found if "***" not in form}


CANARIES = written((*GIVEN.values(), ARGUMENT))


def hits(text):
    return sorted(form for form in CANARIES if form in text or form in text.lower())


@pytest.fixture
def project(write, monkeypatch):
    for name, value in GIVEN.items():
        monkeypatch.setenv(name, value)
    args = ["-S", SERVER, "--token", ARGUMENT]
    env = {"KEY": "${KEY}", "API_TOKEN": "${ECHO_TOKEN}", "PIN_CODE": "${PIN_CODE}"}
    server = {"command": sys.executable, "args": args, "env": env}
    return write(
        {"toolcrib.yaml": json.dumps({"project": "p", "servers": {"s": {**server, "import": True}}})}
    )


def kept(folder):
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "toolcrib.yaml"]
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in files)


COMMANDS = [
    *(["list"], ["list", "--json"], ["list", "-v"], ["show", "s__good"], ["show", "s__good", "--json"]),
    *(["search", "adds", "--json"], ["search", "numbers"], ["export", "promptpack"], ["cost"]),
    *(["doctor"], ["doctor", "--json"], ["validate"], ["validate", "--json"]),
    *(["import", "mcp", "s", "--out", "imported"], ["import", "mcp", "s", "--out", "again", "--json"]),
    *(["call", "s__good", "how=fit", "--explain"], ["call", "s__good", "how=fit", "--dry-run", "--json"]),
    *(["call", "s__good", "how=wrong"], ["lock"], ["lock", "--check"], ["lock", "--json"]),
]


@pytest.mark.parametrize("locked", sample([True, False]), ids=["locked", "asked"][: len(sample([0, 1]))])
def test_definitions_are_masked_wherever_they_are_written_or_shown(project, toolcrib, locked):
    if locked:
        assert toolcrib("lock").exit_code == exit_codes.OK
    for words in COMMANDS:
        result = toolcrib(*words)
        told = result.stdout + result.stderr
        assert hits(told) == [], words
        assert "CaN" not in told
        assert "84615273" not in told
    assert hits(kept(project)) == []
    for words in (
        ["show", "s__good"],
        ["list", "--json"],
        ["search", "adds", "--json"],
        ["export", "promptpack"],
    ):
        assert "***" in toolcrib(*words).stdout, words
    for file in ("toolcrib.lock", "imported/s__good.tool.yaml", "again/s__good.tool.yaml"):
        assert "***" in (project / file).read_text(encoding="utf-8")


def test_a_masked_definition_still_works(project, toolcrib, document):
    assert toolcrib("lock").exit_code == exit_codes.OK
    schema = document("show", "s__good", "--json")["input_schema"]
    properties = schema["properties"]
    assert properties["with_default"] == properties["with_pattern"] == {"type": "string"}
    assert properties["with_number"] == {"type": "integer", "examples": ["***"]}
    assert properties["nested"]["patternProperties"] == {}
    assert properties["how"]["enum"][-2:] == ["dXNlcj***\n***", "***"] or "***" in properties["how"]["enum"]
    assert schema["required"] == ["how"]
    called = document("call", "s__good", "how=fit", "--json")
    assert (called["outcome"], called["result"]["sum"]) == ("ok", 3)


def test_a_tool_whose_name_holds_a_secret_is_refused_without_telling_it(project, toolcrib):
    told = toolcrib("doctor").stdout
    assert "`#2`: its name contains a secret of the server" in told
    assert hits(told) == []


@pytest.mark.parametrize(
    ("how", "words"),
    sample(product(["fit", "misfit", "garbage", "failed", "error"], [[], ["--json"], ["-v"]]), 4),
)
def test_what_a_call_answers_is_masked(project, toolcrib, how, words):
    result = toolcrib("call", "s__good", f"how={how}", *words)
    told = result.stdout + result.stderr
    assert hits(told) == []
    assert "CaN" not in told
    assert (result.exit_code == exit_codes.OK) == (how == "fit")


@pytest.mark.exhaustive
def test_a_rotated_secret_does_not_differ_from_the_lock(project, toolcrib, monkeypatch):
    assert toolcrib("lock").exit_code == exit_codes.OK
    before = (project / "toolcrib.lock").read_text(encoding="utf-8")
    for name, value in LATER.items():
        monkeypatch.setenv(name, value)
    checked = toolcrib("lock", "--check")
    assert (checked.exit_code, checked.stderr) == (exit_codes.OK, "")
    assert toolcrib("lock").exit_code == exit_codes.OK
    assert (project / "toolcrib.lock").read_text(encoding="utf-8") == before
