"""Problems of documents in the log. Nothing that reads documents is imported for it."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from toolcrib.core.errors import Problem

log = logging.getLogger("toolcrib")


def log_problems(problems: Iterable[Problem]) -> None:
    """Write down what is wrong and stops nothing: a notice as information, anything else as a warning."""
    for problem in problems:
        log.log(logging.INFO if problem.severity == "notice" else logging.WARNING, "%s", problem)
