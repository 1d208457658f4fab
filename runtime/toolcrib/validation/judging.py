"""The compiled judge of one schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Final, TypeVar

import jsonschema_rs

from toolcrib.errors import DocumentError, Problem
from toolcrib.model import JSON, NOTHING, Schema
from toolcrib.secrets import SecretPlaces
from toolcrib.subschemas import BACKTRACKING, LINEAR, SchemaIndex
from toolcrib.validation.explaining import Explanation
from toolcrib.validation.faults import Fault, fault

Compiled = TypeVar("Compiled")

MOST: Final = 20
"""Faults that are told of one value unless the caller asks for another number."""


def compile_schema(schema: Schema, remotes: Mapping[str, JSON] = NOTHING) -> jsonschema_rs.Validator:
    """Compile a schema: patterns in linear time where all of them allow it, else with a bound on steps.

    Raises:
        ValueError: jsonschema-rs refuses the schema.
    """
    return _compile(jsonschema_rs.validator_for, schema, remotes)


def compile_parts(schema: Schema, remotes: Mapping[str, JSON] = NOTHING) -> jsonschema_rs.ValidatorMap:
    """Compile every subschema of a schema, by its pointer as a fragment: `#/properties/city`.

    Raises:
        ValueError: jsonschema-rs refuses the schema.
    """
    return _compile(jsonschema_rs.validator_map_for, schema, remotes)


def _compile(make: Callable[..., Compiled], schema: Schema, remotes: Mapping[str, JSON]) -> Compiled:
    # Neither way fetches anything: offline, or from the table of documents that was handed in.
    source: dict[str, Any] = {"retriever": remotes.__getitem__} if remotes else {"offline": True}
    try:
        return make(schema, validate_formats=False, pattern_options=LINEAR, **source)
    except jsonschema_rs.ValidationError as error:
        if not isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Format):
            raise
        return make(schema, validate_formats=False, pattern_options=BACKTRACKING, **source)


class Validator:
    """A schema, compiled once. jsonschema-rs is the judge; nothing is ever fetched.

    `format` is an annotation and never refuses a value, which is the default of 2020-12: what must
    hold is written as `pattern`, `minimum`, `enum`. Patterns run in linear time; where one of them
    has look-around or back-references they have a bounded number of steps, and a value on which
    a pattern needs more is refused.

    Attributes:
        schema: The schema, as given.
        judge: The bound `is_valid` of jsonschema-rs, for callers that asked `json_fault` before: it
            raises ValueError for what is no JSON.

    Args:
        schema: A schema that passed `check_schema`.
        remotes: Further documents by their URI, for references out of the schema.

    Raises:
        DocumentError: The schema can't be compiled; `check_schema` says why in more detail.
    """

    def __init__(self, schema: Schema, *, remotes: Mapping[str, JSON] | None = None) -> None:
        self.schema = schema
        self._remotes: Mapping[str, JSON] = remotes or NOTHING
        try:
            self._compiled = compile_schema(schema, self._remotes)
        except ValueError as error:
            raise DocumentError([Problem(code="invalid_schema", message=refusal(error))]) from None
        self.judge: Callable[[JSON], bool] = self._compiled.is_valid

    @cached_property
    def index(self) -> SchemaIndex:
        """Where the schema keeps its subschemas."""
        return SchemaIndex(self.schema, self._remotes)

    @cached_property
    def parts(self) -> jsonschema_rs.ValidatorMap:
        """Every subschema of the schema, compiled: see `compile_parts`."""
        return compile_parts(self.schema, self._remotes)

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
        """Why a value does not fit, outermost places first, at most `most` faults; empty if it fits.

        A missing or stray property is a fault at its own pointer. Of an `anyOf` or `oneOf` the faults
        of the nearest branch are told. What stands at a secret place is never told.
        """
        try:
            errors = list(self._compiled.iter_errors(value))
        except ValueError:
            return [fault((), "json", "a JSON value", "something else", "ask `json_fault` what it is")]
        return Explanation(value, self.index, self.secrets.hides).of(errors, most)


def validate(schema: Schema, value: JSON, remotes: Mapping[str, JSON] | None = None) -> list[Fault]:
    """The faults of a value under a schema that is used only this once; see `Validator`.

    Raises:
        DocumentError: The schema can't be compiled.
    """
    return Validator(schema, remotes=remotes).faults(value)


def refusal(error: ValueError) -> str:
    """What jsonschema-rs said when it refused a schema, in one line."""
    return (getattr(error, "message", "") or str(error)).splitlines()[0][:300]
