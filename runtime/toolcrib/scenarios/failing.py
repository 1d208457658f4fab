"""The faults of a scenario after they had their chance: those that did not happen, and why."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from toolcrib.loading.scenarios import Scenario
from toolcrib.model import Fault
from toolcrib.scenarios.reports import Failure
from toolcrib.session import Session

WHAT = "fault"
"""What failures of this kind are about."""


def never_happened(session: Session, scenario: Scenario) -> list[Failure]:
    """A failure for each fault that must happen and did not."""
    return [*_told(session, (fault for fault in scenario.faults if fault.must_fire))]


def not_due(session: Session, scenario: Scenario, tool: str) -> list[Failure]:
    """Why faults of a tool have not happened so far, for a step of it that went otherwise than expected."""
    told = _told(session, (fault for fault in scenario.faults if fnmatchcase(tool, fault.tool)))
    place = scenario.origin.place
    return [
        missed._replace(lines=(f"{missed.lines[0].removeprefix('fault ')} ({place(missed.pointer)})",))
        for missed in told
    ]


def _told(session: Session, faults: Iterator[Fault]) -> Iterator[Failure]:
    from toolcrib.faults import why_not_due  # noqa: PLC0415 -- in most scenarios nothing goes wrong

    for fault in faults:
        why = why_not_due(session, fault.name)
        if why:
            yield Failure(what=WHAT, lines=(why,), pointer=fault.pointer)
