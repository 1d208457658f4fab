"""Ways in which the world fails, as scenarios and mocks write them: what happens, and on which attempts."""

from toolcrib.simulation.faults.history import Record, Seen, fired, record_of, records_of, why_not_due
from toolcrib.simulation.faults.injections import Attempt, Ended, Injection, compile_injection
from toolcrib.simulation.faults.kinds import KINDS, kind_of
from toolcrib.simulation.faults.triggers import Trigger, compile_trigger
from toolcrib.simulation.faults.variables import names_for, scope_of

__all__ = [
    "KINDS",
    "Attempt",
    "Ended",
    "Injection",
    "Record",
    "Seen",
    "Trigger",
    "compile_injection",
    "compile_trigger",
    "fired",
    "kind_of",
    "names_for",
    "record_of",
    "records_of",
    "scope_of",
    "why_not_due",
]
