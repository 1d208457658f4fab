"""The official suite: the tools profile scenario by scenario, and the whole requirement sets against what is expected."""

from __future__ import annotations

import json
import re
import shutil
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import environments
from processes import Ran, run
from sections import Section

SUITE = "@modelcontextprotocol/conformance"

REVISIONS = ("2025-11-25", "2026-07-28")

Side = Literal["server", "client"]

_SERVER_TOOLS = (
    "tools-list", "tools-call-simple-text", "tools-call-image", "tools-call-audio", "tools-call-embedded-resource",
    "tools-call-mixed-content", "tools-call-error", "tools-call-with-progress", "server-sse-multiple-streams",
    "dns-rebinding-protection", "json-schema-2020-12",
)  # fmt: skip

TOOLS_PROFILE: Mapping[tuple[Side, str], tuple[str, ...]] = {
    ("server", "2025-11-25"): ("server-initialize", "ping", "server-session-lifecycle", *_SERVER_TOOLS),
    ("server", "2026-07-28"): (
        *_SERVER_TOOLS, "http-header-validation", "http-custom-header-server-validation",
        "input-required-result-unsupported-methods",
    ),
    ("client", "2025-11-25"): (
        "initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry",
        "json-schema-2020-12-preservation",
    ),
    ("client", "2026-07-28"): (
        "tools_call", "request-metadata", "http-standard-headers", "http-custom-headers", "http-invalid-tool-headers",
        "json-schema-ref-no-deref", "sep-2322-client-request-state", "json-schema-2020-12-preservation",
    ),
}  # fmt: skip
"""What can be asked of a server that has tools and nothing else, and of a client that calls them."""

TIMED = "sse-retry"
"""Measures how soon a client comes back, so nothing else runs beside it."""

HEAD = ("status", "scenario", "checks passed")

EXPECTED = environments.HERE / "expected.toml"

PASSING = environments.HERE / "passing.json"
"""The checks that pass in the whole requirement sets, each with the number of times that the suite makes it."""


class Expected(NamedTuple):
    """What is known of a whole requirement set.

    Attributes:
        passing: `scenario: check` -> how often it passes.
        failing: `scenario: check` -> why it fails.
        void: Scenarios in which nothing is checked.
    """

    passing: Mapping[str, int]
    failing: Mapping[str, str]
    void: frozenset[str]


class Checks(NamedTuple):
    """What the suite found in one scenario: check -> its message, by how the check ended."""

    passed: tuple[str, ...]
    failed: Mapping[str, str]
    warned: Mapping[str, str]


def expected() -> dict[tuple[Side, str], Expected]:
    """The expectations that are kept beside this file."""
    document = tomllib.loads(EXPECTED.read_text(encoding="utf-8"))
    passing = json.loads(PASSING.read_text(encoding="utf-8"))
    return {
        (side, revision): Expected(
            passing[f"{side} {revision}"],
            dict(_reasons(part.get("failing", {}), document["reasons"])),
            frozenset(part.get("void", ())),
        )
        for side in ("server", "client")
        for revision, part in document[side].items()
    }


def tools_profile(side: Side, revision: str, target: Sequence[str], scenarios: Sequence[str]) -> Section:
    """Run scenarios one by one. `target` is what the suite is told of the server or client that it drives."""
    rows, faults = [], []
    for scenario in scenarios:
        ran, found = _suite(
            side, target, ["--scenario", scenario, "--spec-version", revision], f"{revision}-{scenario}"
        )
        checks = found.get(scenario, Checks((), {}, {}))
        status = "FAIL" if ran.code or checks.failed else "ok" if checks.passed else "VOID"
        rows.append((status, scenario, str(len(checks.passed))))
        if status != "ok":
            faults += _faults_of(scenario, status, ran, checks)
    return Section(f"MCP {side}, tools profile, {revision}", HEAD, rows, faults)


def requirement_set(side: Side, revision: str, target: Sequence[str], *, write: bool = False) -> Section:
    """Run all that a revision requires, and hold it against what is expected, check by check.

    With `write`, the checks that pass are not compared: `write_passing` keeps them.
    """
    known = expected()[side, revision]
    ran, found = _suite(side, target, ["--requirements", revision], _set_label(revision))
    passed = _passed(found)
    failed = {
        f"{name}: {check}": text for name, checks in found.items() for check, text in checks.failed.items()
    }
    faults = [
        f"{key} fails, and nothing says why: {text}"
        for key, text in failed.items()
        if key not in known.failing
    ]
    faults += [
        f"{key} does not fail any more: take it out of {EXPECTED.name}"
        for key in known.failing
        if key not in failed
    ]
    faults += [
        f"{name}: nothing was checked"
        for name, checks in found.items()
        if not checks.passed and not checks.failed and name not in known.void
    ]
    if not write:
        faults += unexpected_passes(passed, known.passing)
    if not passed:
        faults.append(f"no check passed: {ran.err[-2000:] or ran.out[-2000:]}")
    rows = [
        (
            _word(checks, all(f"{name}: {check}" in known.failing for check in checks.failed)),
            name,
            str(len(checks.passed)),
        )
        for name, checks in sorted(found.items())
    ]
    note = (
        f"{sum(passed.values())} checks passed, {sum(known.passing.values())} of them expected, "
        f"{len(failed)} failed, {len(known.failing)} of them expected"
    )
    return Section(f"MCP {side}, whole requirement set, {revision}", HEAD, rows, faults, note)


def unexpected_passes(passed: Mapping[str, int], known: Mapping[str, int]) -> list[str]:
    """The checks that pass less often than they did, and those that are not listed yet."""
    return [
        f"{key} passed {now} of {before} times" if now < before else f"{key} passes: {_HOW_TO_LIST}"
        for key in sorted({*passed, *known})
        if (now := passed.get(key, 0)) != (before := known.get(key, 0))
    ]


_HOW_TO_LIST = f'list it in {PASSING.name} with `python conformance/run.py --only " set " --write`'


def write_passing() -> None:
    """Write down what passed in the last run of each whole requirement set."""
    kept = json.loads(PASSING.read_text(encoding="utf-8")) if PASSING.exists() else {}
    sides: tuple[Side, ...] = ("server", "client")
    for side in sides:
        for revision in REVISIONS:
            passed = _passed(_results(side, _set_label(revision)))
            if passed:
                kept[f"{side} {revision}"] = dict(sorted(passed.items()))
    PASSING.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def _set_label(revision: str) -> str:
    return f"{revision}-full"


def _passed(found: Mapping[str, Checks]) -> Counter[str]:
    return Counter(f"{name}: {check}" for name, checks in found.items() for check in checks.passed)


def _word(checks: Checks, is_known: bool) -> str:
    if checks.failed:
        return "known" if is_known else "FAIL"
    return "ok" if checks.passed else "void"


def _reasons(groups: Mapping[str, Sequence[str]], reasons: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for group, keys in groups.items():
        for key in keys:
            yield key, reasons[group]


def _suite(
    side: Side, target: Sequence[str], options: Sequence[str], label: str
) -> tuple[Ran, dict[str, Checks]]:
    """One run of the suite, and what it wrote of each scenario."""
    results = _folder(side, label)
    shutil.rmtree(results, ignore_errors=True)
    results.mkdir(parents=True)
    command = [
        environments.node(),
        environments.entry(SUITE),
        side,
        *target,
        *options,
    ]
    command += ["--timeout", "180000", "--output-dir", str(results)]
    ran = run(command, env=environments.bare_environment(), cwd=results, timeout=600)
    (results / "said.log").write_text(f"{ran.out}\n{ran.err}", encoding="utf-8")
    return ran, _results(side, label)


def _folder(side: Side, label: str) -> Path:
    return environments.BUILD / "results" / f"{side}-{label}"


def _results(side: Side, label: str) -> dict[str, Checks]:
    """What the last run wrote of each scenario."""
    results = _folder(side, label)
    return {
        _scenario_of(file.parent.relative_to(results), side): _checks_of(
            json.loads(file.read_text(encoding="utf-8"))
        )
        for file in results.rglob("checks.json")
    }


def _scenario_of(folder: Path, side: Side) -> str:
    """The scenario that a folder is named after: `server-ping-2026-11-21T10-18-15-649Z`."""
    name = re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", folder.as_posix())
    return name.removeprefix("server-") if side == "server" else name


def _checks_of(written: list[dict[str, Any]]) -> Checks:
    def texts(status: str) -> dict[str, str]:
        return {check["id"]: check.get("errorMessage", "") for check in written if check["status"] == status}

    return Checks(
        tuple(check["id"] for check in written if check["status"] == "SUCCESS"),
        texts("FAILURE"),
        texts("WARNING"),
    )


def _faults_of(scenario: str, status: str, ran: Ran, checks: Checks) -> list[str]:
    if checks.failed:
        return [f"{scenario}: {check}: {text}" for check, text in checks.failed.items()]
    if status == "VOID":
        return [f"{scenario}: nothing was checked"]
    return [f"{scenario}: the suite ended with {ran.code}: {(ran.err or ran.out)[-2000:]}"]
