"""The exit codes of `toolcrib`. The code of an outcome never changes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from toolcrib.core.model import Outcome

OK: Final = 0
"""Success."""

PROBLEMS: Final = 1
"""Documents have errors, a scenario failed, a result differs from its recording, or a server differs from the lock."""

USAGE: Final = 2
"""The command line is invalid, or the runtime cannot be set up as it asks."""

NOTHING_SELECTED: Final = 3
"""There is nothing to run, check, replay or lock: no matching scenario, no tool, no recorded task, no server."""

OUTPUT_FAILED: Final = 4
"""stdout cannot be written, as on a full disk. The work of the command is done."""

INTERRUPTED: Final = 130
"""Ended by Ctrl-C: 128 plus the signal number, by the convention of shells. SIGTERM is 143, SIGHUP 129."""

OF_OUTCOME: Final[Mapping[Outcome, int]] = MappingProxyType(
    {
        Outcome.OK: OK,
        # Outcomes begin at 10: 1 and 2 have meanings of their own in shells and click, and scripts may test a
        # range.
        Outcome.TOOL_ERROR: 10,
        Outcome.INVALID_ARGUMENTS: 11,
        Outcome.INVALID_RESULT: 12,
        Outcome.NOT_FOUND: 13,
        Outcome.UNAVAILABLE: 14,
        Outcome.DENIED: 15,
        Outcome.NEEDS_APPROVAL: 16,
        Outcome.TIMEOUT: 17,
        Outcome.CANCELLED: 18,
        Outcome.OVERLOADED: 19,
        Outcome.LIMIT_EXCEEDED: 20,
        Outcome.TRANSPORT_ERROR: 21,
        Outcome.UNKNOWN_OUTCOME: 22,
        Outcome.UNMATCHED_MOCK: 23,
        Outcome.INTERNAL: 24,
    }
)
"""Exit code of `toolcrib call` by outcome."""
