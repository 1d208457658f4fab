"""The compiled judge of one schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Final

import jsonschema_rs

from toolcrib.errors import DocumentError, Problem
from toolcrib.model import JSON, NOTHING, Schema
from toolcrib.secrets import SecretPlaces
from toolcrib.subschemas import BACKTRACKING, LINEAR, SchemaIndex
from toolcrib.validation.explaining import Explanation
from toolcrib.validation.faults import Fault, fault

MOST: Final = 20
"""Faults that are told of one value unless the caller asks for another number."""


def compile_schema(schema: Schema, remotes: Mapping[str, JSON] = NOTHING) -> jsonschema_rs.Validator:
    """Compile a schema: patterns in linear time where all of them allow it, else with a bound on steps.

    Raises:
        ValueError: jsonschema-rs refuses the schema.
    """
    try:
        return _compile(schema, remotes, LINEAR)
    except jsonschema_rs.ValidationError as error:
        if not isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Format):
            raise
        return _compile(schema, remotes, BACKTRACKING)


def _compile(
    schema: Schema,
    remotes: Mapping[str, JSON],
    patterns: jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions,
) -> jsonschema_rs.Validator:
    if remotes:
        return jsonschema_rs.validator_for(
            schema, validate_formats=False, pattern_options=patterns, retriever=remotes.__getitem__
        )
    return jsonschema_rs.validator_for(schema, validate_formats=False, pattern_options=patterns, offline=True)


class Validator:
    """A schema, compiled once. jsonschema-rs is the judge; nothing is ever fetched.

    `format` is an annotation and never refuses a value, as 2020-12 has it by default: what must
    hold is written as `pattern`, `minimum`, `enum`. Patterns run in linear time; a schema with
    look-around or back-references is given a bounded number of steps, and a value on which a
    pattern needs more is refused.

    Attributes:
        judge: jsonschema-rs's own `is_valid`, for callers that asked `json_fault` before: it raises
            ValueError for what is no JSON.

    Raises:
        DocumentError: The schema can't be compiled; `check_schema` says why in more detail.
    """

    def __init__(self, schema: Schema, *, remotes: Mapping[str, JSON] | None = None) -> None:
        self.schema = schema
        self.remotes: Mapping[str, JSON] = remotes or NOTHING
        try:
            self._compiled = compile_schema(schema, self.remotes)
        except ValueError as error:
            raise DocumentError([Problem(code="invalid_schema", message=refusal(error))]) from None
        self.judge: Callable[[JSON], bool] = self._compiled.is_valid

    @cached_property
    def index(self) -> SchemaIndex:
        """Where the schema keeps its subschemas."""
        return SchemaIndex(self.schema, self.remotes)

    @cached_property
    def secrets(self) -> SecretPlaces:
        """The secret places of the schema's values."""
        return SecretPlaces(self.index)

    def is_valid(self, value: JSON) -> bool:
        """Whether a value fits; False for what is no JSON."""
        try:
            return self.judge(value)
        except ValueError:
            return False

    def faults(self, value: JSON, *, most: int = MOST) -> list[Fault]:
        """Why a value does not fit, outermost places first, at most `most` faults; empty if it fits."""
        try:
            errors = list(self._compiled.iter_errors(value))
        except ValueError as error:
            return [fault((), "json", "a JSON value", "something else", refusal(error))]
        return Explanation(value, self.index, self.secrets.hides).of(errors, most)


def validate(schema: Schema, value: JSON, remotes: Mapping[str, JSON] | None = None) -> list[Fault]:
    """The faults of a value under a schema that is used only this once.

    Raises:
        DocumentError: The schema can't be compiled.
    """
    return Validator(schema, remotes=remotes).faults(value)


def refusal(error: ValueError) -> str:
    """What jsonschema-rs said, in one line."""
    return (getattr(error, "message", "") or str(error)).splitlines()[0][:300]
