"""The exit codes of `toolcrib`: one table. Codes of outcomes never change their number."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from toolcrib.core.model import Outcome

OK: Final = 0
"""Everything was as it should be."""

PROBLEMS: Final = 1
"""Documents have errors, a scenario failed, an answer is not as recorded, or a server is not what was locked."""

USAGE: Final = 2
"""The command line was wrong, or the runtime can't be set up as it asks."""

NOTHING_SELECTED: Final = 3
"""There was nothing to run, check, replay or lock: no scenario fits, no tool is there, no task is recorded, no server is named."""

OUTPUT_FAILED: Final = 4
"""stdout could not be written to, as on a full disk. What the command did is done."""

INTERRUPTED: Final = 130
"""Ended by Ctrl-C; 128 and the number of the signal, as shells have it. SIGTERM is 143, SIGHUP 129."""

OF_OUTCOME: Final[Mapping[Outcome, int]] = MappingProxyType(
    {
        Outcome.OK: OK,
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
"""What `toolcrib call` ends with."""
