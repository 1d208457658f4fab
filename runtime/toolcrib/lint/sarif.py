"""Findings as SARIF 2.1.0 (OASIS), which code scanning services and editors show."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final
from urllib.parse import quote

from toolcrib.core.errors import Severity
from toolcrib.core.model import JSON
from toolcrib.lint.linter import Report
from toolcrib.lint.rule import LintRule

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
VERSION: Final = "2.1.0"
PAGE: Final = "https://github.com/toolcrib/toolcrib/blob/main/docs/reference/lint.md"

_LEVELS: Final[Mapping[Severity, str]] = {"error": "error", "warning": "warning", "notice": "note"}


def sarif_document(
    reports: Sequence[Report], rules: Sequence[LintRule], *, version: str, top: str
) -> dict[str, JSON]:
    """One run with the rules and the findings.

    Args:
        reports: The findings.
        rules: The rules that were applied.
        version: Version of toolcrib.
        top: Folder to which the paths are relative.
    """
    index = {rule.name: number for number, rule in enumerate(rules)}
    driver: dict[str, JSON] = {
        "name": "toolcrib",
        "version": version,
        "informationUri": "https://github.com/toolcrib/toolcrib",
        "rules": [_rule(rule) for rule in rules],
    }
    run: dict[str, JSON] = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"ROOT": {"uri": Path(os.path.realpath(top)).as_uri().rstrip("/") + "/"}},
        "results": [_result(report, index, top) for report in reports],
    }
    return {"$schema": SCHEMA, "version": VERSION, "runs": [run]}


def _rule(rule: LintRule) -> dict[str, JSON]:
    return {
        "id": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.why},
        "helpUri": f"{PAGE}#{rule.name}",
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
    }


def _result(report: Report, index: Mapping[str, int], top: str) -> dict[str, JSON]:
    problem = report.problem
    text = f"{problem.message}; {problem.hint}" if problem.hint else problem.message
    # The line is left out: a finding stays the same one when lines are added above it.
    told = f"{problem.code} {report.tool} {problem.pointer}"
    result: dict[str, JSON] = {
        "ruleId": problem.code,
        "ruleIndex": index[problem.code],
        "level": _LEVELS[problem.severity],
        "message": {"text": text},
        "partialFingerprints": {"toolcrib/v1": sha256(told.encode(errors="replace")).hexdigest()},
    }
    location: dict[str, JSON] = {}
    if problem.source:
        location["physicalLocation"] = {
            "artifactLocation": _artifact(problem.source, top),
            "region": {"startLine": max(problem.line, 1), "startColumn": max(problem.column, 1)},
        }
    if report.tool:
        location["logicalLocations"] = [
            {"fullyQualifiedName": f"{report.tool}{problem.pointer}", "name": report.tool, "kind": "function"}
        ]
    return {**result, "locations": [location]} if location else result


def _artifact(source: str, top: str) -> dict[str, JSON]:
    real, root = Path(os.path.realpath(source)), Path(os.path.realpath(top))
    if not real.is_relative_to(root):
        return {"uri": real.as_uri()}
    return {"uri": quote(real.relative_to(root).as_posix()), "uriBaseId": "ROOT"}
