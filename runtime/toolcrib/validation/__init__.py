"""The one judge of values: JSON Schemas checked at load, compiled once, and faults told plainly."""

from toolcrib.validation.checking import check_schema
from toolcrib.validation.defaults import compile_defaults
from toolcrib.validation.faults import Fault, report
from toolcrib.validation.json_values import NotJSONError, json_fault, unshared
from toolcrib.validation.judging import Validator, validate

__all__ = [
    "Fault",
    "NotJSONError",
    "Validator",
    "check_schema",
    "compile_defaults",
    "json_fault",
    "report",
    "unshared",
    "validate",
]
