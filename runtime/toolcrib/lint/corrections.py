"""Correct the text of a document where a finding needs no decision."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from toolcrib.core.model import JSON
from toolcrib.formats.yaml_writer import yaml_of
from toolcrib.lint.linter import Report
from toolcrib.loading.documents.edits import set_value


def corrected(text: str, reports: Sequence[Report], line_of: Callable[[Report], int]) -> str:
    """The text of a file with the corrections of some findings; those that its layout does not allow are left out.

    Args:
        text: The text.
        reports: Findings in this file.
        line_of: LintFinding -> first line of the object that describes its tool.
    """
    changed: dict[tuple[int, str], JSON] = {}
    # From the end, so that a correction does not shift the lines of those before it.
    for report in sorted(reports, key=lambda each: (each.problem.line, each.problem.column), reverse=True):
        if report.replaced is not None:
            text = _without_comment(text, report.problem.line, *report.replaced)
        elif report.edit is not None:
            edit = report.edit
            step = f"/{edit.key}" if edit.key else ""
            line, pointer = line_of(report), f"{report.problem.pointer}{step}"
            value = edit.change(str(changed.get((line, pointer), edit.old)))
            new = set_value(text, line, pointer, value, yaml_of)
            if new is not None:
                text, changed[line, pointer] = new, value
    return text


def _without_comment(text: str, line: int, comment: str, instead: str) -> str:
    lines = text.splitlines(keepends=True)
    before = lines[line - 1]
    after = before.replace(comment, instead, 1)
    if not instead:
        body = after.rstrip("\r\n")
        # A comment may go on with a reason, which then has lost its subject.
        after = body.rstrip().removesuffix("#").rstrip() + after[len(body) :] if body.strip() else ""
    lines[line - 1] = after
    return "".join(lines)
