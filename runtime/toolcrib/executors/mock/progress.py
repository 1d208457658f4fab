"""What a mocked answer reports on the way, on the session's clock."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import Problem
from toolcrib.core.model import Progress
from toolcrib.executors.mock.variables import Scope, as_text
from toolcrib.expressions import Rendering, compile_value


class Report(NamedTuple):
    """One progress report that a mock gives before it answers.

    Attributes:
        progress: How far the call is.
        total: How far it goes.
        message: A text for people.
        after: Seconds to wait before the report.
    """

    progress: float
    total: float | None
    message: Rendering
    after: float

    @property
    def names(self) -> frozenset[str]:
        """What the message reads of the scope."""
        return self.message.names

    def at(self, scope: Scope) -> Progress:
        """The report of one call."""
        return Progress(self.progress, self.total, as_text(self.message.render(scope)))


def compile_progress(
    block: list[dict[str, Any]], pointer: str, names: Collection[str], problems: list[Problem]
) -> tuple[Report, ...]:
    """The progress reports of a reply, in order."""
    return tuple(
        Report(
            progress=entry["progress"],
            total=entry.get("total"),
            message=compile_value(entry.get("message", ""), names, problems, f"{pointer}/{index}/message"),
            after=parse_duration(entry.get("after", "0s")),
        )
        for index, entry in enumerate(block)
    )
