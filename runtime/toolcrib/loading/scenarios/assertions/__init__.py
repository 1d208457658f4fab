"""Assertions: what must be true of the way that an agent took, by kinds with names and parameters."""

from toolcrib.loading.scenarios.assertions.assertion_checks import check_assertions, check_guardrails
from toolcrib.loading.scenarios.assertions.kinds import ALIASES, GUARDING, SPEAKING, SPELLINGS, WRAPPER, kinds

__all__ = [
    "ALIASES",
    "GUARDING",
    "SPEAKING",
    "SPELLINGS",
    "WRAPPER",
    "check_assertions",
    "check_guardrails",
    "kinds",
]
