"""The page on conformance says what `make conformance` expects; the run itself compares the whole page."""

from __future__ import annotations

import json
import tomllib
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "mcp-conformance.md").read_text(encoding="utf-8")
EXPECTED = tomllib.loads((ROOT / "conformance" / "expected.toml").read_text(encoding="utf-8"))
PARTS = [part for side in ("server", "client") for part in EXPECTED[side].values()]


def test_the_page_names_every_check_that_fails_and_why():
    lines = set(PAGE.splitlines())
    for part in PARTS:
        for reason, keys in part["failing"].items():
            assert EXPECTED["reasons"][reason] in lines
            for scenario, check in (key.split(": ") for key in keys):
                assert any(line.startswith(f"- `{scenario}`: ") and f"`{check}`" in line for line in lines)


def test_the_page_says_how_many_checks_pass_and_each_is_listed():
    passing = json.loads((ROOT / "conformance" / "passing.json").read_text(encoding="utf-8"))
    keys = [f"{side} {revision}" for side in ("server", "client") for revision in EXPECTED[side]]
    assert [*passing] == keys
    told = [line for line in PAGE.splitlines() if line.endswith(" checks pass.")]
    assert told == [f"{sum(passing[key].values())} checks pass." for key in keys]


def test_a_check_that_passes_no_more_or_less_often_or_is_not_listed_is_named(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "conformance"))
    unexpected_passes = import_module("official").unexpected_passes
    known = {"ping: answered": 1, "tools: listed": 3}
    assert unexpected_passes(known, known) == []
    assert unexpected_passes({"tools: listed": 2, "tools: sorted": 1}, known) == [
        "ping: answered passed 0 of 1 times",
        "tools: listed passed 2 of 3 times",
        'tools: sorted passes: list it in passing.json with `python conformance/run.py --only " set " --write`',
    ]


def test_no_check_both_passes_and_fails():
    passing = json.loads((ROOT / "conformance" / "passing.json").read_text(encoding="utf-8"))
    for side in ("server", "client"):
        for revision, part in EXPECTED[side].items():
            failing = {key for group in part["failing"].values() for key in group}
            assert not failing & {*passing[f"{side} {revision}"]}


def test_no_check_has_two_reasons():
    for part in PARTS:
        keys = [key for group in part["failing"].values() for key in group]
        assert len(keys) == len(set(keys))


def test_every_reason_is_one_of_something():
    used = {reason for part in PARTS for reason in part["failing"]}
    assert used == set(EXPECTED["reasons"])


def test_what_is_pinned_is_what_the_page_says():
    pins = json.loads((ROOT / "conformance" / "package.json").read_text(encoding="utf-8"))["dependencies"]
    assert all(version in PAGE for version in pins.values())
    locked = json.loads((ROOT / "conformance" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert locked[""]["dependencies"] == pins
    assert {name: locked[f"node_modules/{name}"]["version"] for name in pins} == pins
