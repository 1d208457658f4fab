"""The one judge of values: JSON Schemas checked at load, compiled once, and faults told plainly."""

from toolcrib.validation.checking import check_schema
from toolcrib.validation.defaults import compile_defaults
from toolcrib.validation.faults import Fault, report
from toolcrib.validation.json_values import json_fault
from toolcrib.validation.judging import Validator, validate

__all__ = ["Fault", "Validator", "check_schema", "compile_defaults", "json_fault", "report", "validate"]
