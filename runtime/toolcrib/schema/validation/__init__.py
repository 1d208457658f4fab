"""Validation: schemas are checked at load and compiled once; invalid values yield readable violations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolcrib.schema.validation.defaults import compile_defaults
from toolcrib.schema.validation.json_values import (
    SUBCLASS,
    NotJSONError,
    as_dict,
    as_json,
    json_violation,
    unshared_copy,
)
from toolcrib.schema.validation.validator import Validator, ViolationReport, validate
from toolcrib.schema.validation.violations import Violation, report

if TYPE_CHECKING:
    from toolcrib.schema.validation.schema_check import check_schema

__all__ = [
    "SUBCLASS",
    "NotJSONError",
    "Validator",
    "Violation",
    "ViolationReport",
    "as_dict",
    "as_json",
    "check_schema",
    "compile_defaults",
    "json_violation",
    "report",
    "unshared_copy",
    "validate",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import `check_schema` at first use."""
        # Calls only validate values; their schemas were checked at load, often in an earlier process with a
        # cache.
        if name != "check_schema":
            raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
        from toolcrib.schema.validation.schema_check import check_schema  # noqa: PLC0415

        globals()[name] = check_schema
        return check_schema
