"""Ways in which the world fails, as scenarios and mocks write them: what happens, and on which attempts."""

from toolcrib.faults.injections import Attempt, Ended, Injection, compile_injection
from toolcrib.faults.kinds import KINDS, kind_of
from toolcrib.faults.records import Record, Seen, fired, record_of, records_of, why_not_due
from toolcrib.faults.scopes import names_for, scope_of
from toolcrib.faults.triggers import Trigger, compile_trigger

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
