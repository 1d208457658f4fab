"""The faults of a scenario after they had their chance: where they happened, and why not."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from toolcrib.engine.session import Session
from toolcrib.loading.scenarios.scenario import Scenario
from toolcrib.scenarios.reports import ScenarioFailure

if TYPE_CHECKING:
    from toolcrib.simulation.faults import Record

SHOWN = 3
"""Calls that are told of one fault."""

WHAT = "fault"
"""What failures of this kind are about."""


def unfired_faults(session: Session, scenario: Scenario) -> list[ScenarioFailure]:
    """A failure for each fault that must happen and did not."""
    from toolcrib.simulation.faults import why_not_due  # noqa: PLC0415 -- in most scenarios nothing goes wrong

    wanted = {fault.pointer: fault.name for fault in scenario.faults if fault.must_fire}
    reasons = {pointer: why_not_due(session, name) for pointer, name in wanted.items()}
    return [
        ScenarioFailure(what=WHAT, lines=(why,), pointer=pointer) for pointer, why in reasons.items() if why
    ]


def fault_notes(session: Session, scenario: Scenario, tool: str) -> list[ScenarioFailure]:
    """For a step that went otherwise than expected: on which calls the faults of its tool happened, or why on none."""
    from toolcrib.simulation.faults import records_of, why_not_due  # noqa: PLC0415 -- as above

    told = []
    for fault in scenario.faults:
        if fnmatchcase(tool, fault.tool):
            why = why_not_due(session, fault.name).removeprefix("fault ")
            line = why or f"`{fault.name}` happened on {_listed(records_of(session)[fault.name])}"
            place = scenario.origin.place(fault.pointer)
            told.append(ScenarioFailure(what=WHAT, lines=(f"{line} ({place})",), pointer=fault.pointer))
    return told


def _listed(record: Record) -> str:
    more = record.times - SHOWN
    return ", ".join(map(str, record.fired[:SHOWN])) + (f" and {more} more" if more > 0 else "")
