"""A folder to stand in, files to put there, and the command line in-process."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from toolcrib.cli.group import cli

ECHO = """
name: echo
description: Says it again. And that is all.
tags: [talk]
labels: {team: words}
input_schema:
  type: object
  additionalProperties: false
  required: [text]
  properties:
    text: {type: string}
    times: {type: integer, minimum: 1, default: 1}
output_schema: {type: string}
examples: [{args: {text: hi}, result: "hi 1"}]
mock: {result: "{{ args.text ~ ' ' ~ args.times }}"}
"""

FAILING = """
name: failing
description: Never works.
mock: {error: {code: broken, message: It is broken.}}
"""

UNBOUND = """
name: later
description: Nobody wrote it yet.
deprecated: use echo
experimental: true
"""


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine says to other tests is no matter to the commands."""
    monkeypatch.delenv("TOOLCRIB_SHARED_DATA", raising=False)


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Put files (path -> text) into the folder in which the commands run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)

    def put(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return tmp_path

    return put


@pytest.fixture
def tools(write: Callable[..., Path]) -> Path:
    """A folder with three tools: one that answers, one that fails, one that is unbound."""
    return write(
        {
            "descriptors/echo.tool.yaml": ECHO,
            "descriptors/failing.tool.yaml": FAILING,
            "descriptors/later.tool.yaml": UNBOUND,
        }
    )


@pytest.fixture
def toolcrib() -> Callable[..., Result]:
    """Run a command line; nothing is a terminal. The result has `exit_code`, `stdout`, `stderr`."""

    def run(*words: str, given: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(cli, words, input=given, prog_name="toolcrib")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def document(toolcrib: Callable[..., Result]) -> Callable[..., Any]:
    """Run a command line whose stdout is one JSON document, and return that."""
    return lambda *words: json.loads(toolcrib(*words).stdout)


class Terminal(io.StringIO):
    """A text stream that says it is a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str, str]]:
    """Run a command line at a terminal; the answer is what it wrote to stdout and to stderr."""

    def run(*words: str) -> tuple[str, str]:
        out, err = Terminal(), Terminal()
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", out)
            patched.setattr(sys, "stderr", err)
            cli.main(words, prog_name="toolcrib", standalone_mode=False)
        return out.getvalue(), err.getvalue()

    return run
