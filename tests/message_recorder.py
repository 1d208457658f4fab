"""A pytest plugin that writes down every message of the package: `pytest -p message_recorder`.

`docs/messages.py` makes the inventory of messages from what it writes to `build/messages`. See there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import click

from toolcrib.core.errors import CallError, DocumentError, Problem, ToolcribError
from toolcrib.core.model import Failure

ROOT = Path(__file__).parents[1]

FOLDER = ROOT / "build" / "messages"

CONSTRUCTORS = (
    __file__,
    *(str(ROOT / "runtime" / "toolcrib" / "core" / name) for name in ("model.py", "errors.py")),
)
"""The files between a message and the code that wrote it."""

TOOLS = str(ROOT / "packs")
"""The code of packs, whose messages are not those of the package."""

SEEN: set[tuple[str, str, str]] = set()
"""Kind, code and text of each message."""


def note(kind: str, code: object, *texts: object) -> None:
    if not written_by_a_tool():
        SEEN.update((kind, str(code), text) for text in texts if isinstance(text, str) and text)


def written_by_a_tool() -> bool:
    """Whether the code of a pack made the message that is noted."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in CONSTRUCTORS:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(TOOLS)


def pytest_configure() -> None:
    new_problem, new_failure = Problem.__new__, Failure.__new__
    start_error, start_usage = ToolcribError.__init__, click.ClickException.__init__

    def problem(cls: type[Problem], *args: Any, **kwargs: Any) -> Problem:
        made = new_problem(cls, *args, **kwargs)
        note("problem", made.code, made.message, made.hint)
        return made

    def failure(cls: type[Failure], *args: Any, **kwargs: Any) -> Failure:
        made = new_failure(cls, *args, **kwargs)
        note("outcome", made.code, made.message)
        return made

    def error(self: ToolcribError, *args: Any, **kwargs: Any) -> None:
        start_error(self, *args, **kwargs)
        if not isinstance(self, CallError | DocumentError):  # made of problems and failures, which are noted
            own_code = self.code if self.code != type(self).code else type(self).__name__
            note("error", own_code, self.message, self.hint)

    def usage(self: click.ClickException, message: str, *args: Any, **kwargs: Any) -> None:
        start_usage(self, message, *args, **kwargs)
        note("command line", type(self).__name__, message)

    Problem.__new__, Failure.__new__ = problem, failure
    ToolcribError.__init__, click.ClickException.__init__ = error, usage


def pytest_sessionfinish() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{os.getpid()}.json").write_text(json.dumps(sorted(SEEN)), encoding="utf-8")
