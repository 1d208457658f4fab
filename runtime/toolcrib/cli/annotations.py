"""Workflow commands of GitHub Actions, which show a problem beside its line; and texts that are none."""

from __future__ import annotations

import os
import re

from toolcrib.core.errors import Problem, Severity
from toolcrib.core.text import escape_terminal

_COMMAND = re.compile(r"^(\s*):(?=:)|#(?=#\[)", re.MULTILINE)
"""What a runner takes for a command: `::` at the start of a line (blanks before it are nothing), `##[` anywhere."""


def annotation(problem: Problem) -> str:
    """The problem as a workflow command."""
    text = problem.message + (f"\nhint: {problem.hint}" if problem.hint else "")
    return command(
        problem.severity,
        f"{problem.code}: {text}",
        file=problem.source,
        line=problem.line,
        column=problem.column,
        title=problem.code,
    )


def command(
    severity: Severity, text: str, *, file: str, line: int = 0, column: int = 0, title: str = ""
) -> str:
    """A text that is shown beside a line of a file; what is empty or 0 is left out.

    GitHub takes a file to be named from the folder that it checked out (`GITHUB_WORKSPACE`), wherever a step runs.

    Escapes as GitHub's own toolkit does: `%`, CR and LF everywhere, `:` and `,` in properties as well.
    """
    properties = {"file": _in_workspace(file), "line": line, "col": column, "title": title}
    told = ",".join(f"{key}={_property(str(value))}" for key, value in properties.items() if value)
    return f"::{severity} {told}::{_data(text)}"


def _in_workspace(file: str) -> str:
    """The file relative to the folder that GitHub checked out; as it was named, where it lies elsewhere."""
    top = os.environ.get("GITHUB_WORKSPACE", "")
    if not top or not file:
        return file
    within = os.path.relpath(os.path.realpath(file), os.path.realpath(top))
    outside = within == os.pardir or within.startswith(f"{os.pardir}{os.sep}")
    return file if outside else within.replace(os.sep, "/")


def _data(text: str) -> str:
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return escape_terminal(escaped)


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def no_commands(text: str) -> str:
    """A text of which no line is a workflow command: what tools answer must not steer a runner."""
    return _COMMAND.sub(lambda match: f"{match[1] or ''}\\x{ord(match[0][-1]):02x}", text)
