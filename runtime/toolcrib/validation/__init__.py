"""The one judge of values: JSON Schemas checked at load, compiled once, and faults told plainly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolcrib.validation.defaults import compile_defaults
from toolcrib.validation.faults import Fault, report
from toolcrib.validation.json_values import SUBCLASS, NotJSONError, as_dict, as_json, json_fault, unshared
from toolcrib.validation.judging import Validator, ViolationReport, validate

if TYPE_CHECKING:
    from toolcrib.validation.checking import check_schema

__all__ = [
    "SUBCLASS",
    "Fault",
    "NotJSONError",
    "Validator",
    "ViolationReport",
    "as_dict",
    "as_json",
    "check_schema",
    "compile_defaults",
    "json_fault",
    "report",
    "unshared",
    "validate",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """`check_schema`, imported when it is first used: a call judges values, and takes schemas for checked."""
        if name != "check_schema":
            raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
        from toolcrib.validation.checking import check_schema  # noqa: PLC0415

        globals()[name] = check_schema
        return check_schema
