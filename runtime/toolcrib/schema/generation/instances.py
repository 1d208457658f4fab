"""Instances of schemas, made top down and judged as a whole.

The first try is the plainest: examples and defaults as they are written, every optional property given.
Where it does not pass, further tries leave examples out, take other branches and drop optional properties.
"""

from __future__ import annotations

import copy
import json
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON, Schema
from toolcrib.core.text import canonical
from toolcrib.schema.generation.keyed_random import Draw
from toolcrib.schema.generation.sampler import Choices, Grower
from toolcrib.schema.generation.scalars import Size, Unreachable
from toolcrib.schema.validation import Validator

ExamplesPolicy: TypeAlias = Literal["prefer", "ignore"]

_TRIES: Final = 50
_FREE: Final = 2
_ODD: Final = 40
"""The tries from which `Choices.free` and `Choices.odd` hold."""

_COMPILED: Final = 256
"""Schemas that are kept compiled."""


def generate(schema: Schema, draw: Draw, *, examples: ExamplesPolicy = "prefer") -> JSON:
    """A value that the schema accepts; the same for the same schema and draw.

    Args:
        schema: A schema that passed `check_schema`.
        draw: Decides what is open. Each property and item has a place of its own under it, so a
            property that is added to the schema changes no other one.
        examples: Whether `examples` and `default` of the schema are used where they fit.

    Raises:
        ExpressionError: `can_not_generate`; nothing valid was found, and the message names the place and
            the keyword that stood in the way.
        DocumentError: The schema can't be compiled.
    """
    return copy.deepcopy(_generator(json.dumps(schema)).make(draw, "usual", examples))


def arguments_for(schema: Schema, draw: Draw, count: int) -> list[JSON]:
    """Up to `count` different valid values: the usual, the least and the fullest one, then others.

    Fewer where the schema does not hold so many.

    Raises:
        ExpressionError: As `generate` does, where not even one was found.
        DocumentError: The schema can't be compiled.
    """
    generator = _generator(json.dumps(schema))
    made: dict[str, JSON] = {}
    refusal: ExpressionError | None = None
    plans: list[tuple[Size, ExamplesPolicy]] = [
        ("usual", "prefer"),
        ("minimal", "ignore"),
        ("maximal", "ignore"),
    ]
    for number in range(len(plans) + 4 * count):
        size, examples = plans[number] if number < len(plans) else ("usual", "ignore")
        if len(made) == count:
            break
        try:
            value = generator.make(
                draw.at("variant", number), size, examples, first=0 if number < len(plans) else _FREE
            )
        except ExpressionError as error:
            refusal = refusal or error
        else:
            made.setdefault(canonical(value), value)
    if refusal is not None and not made:
        raise refusal
    return copy.deepcopy(list(made.values()))


@lru_cache(maxsize=_COMPILED)
def _generator(schema: str) -> _Generator:
    return _Generator(json.loads(schema))


class _Generator:
    """Makes instances of one schema and judges them."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._validator = Validator(schema)

    def make(self, draw: Draw, size: Size, examples: ExamplesPolicy, first: int = 0) -> JSON:
        """The first of many tries that is valid; higher tries are freer."""
        failure: Unreachable | None = None
        for number in range(first, _TRIES):
            choices = Choices(
                size=size,
                examples=examples == "prefer" and number == 0,
                free=number >= _FREE,
                odd=number >= _ODD,
            )
            place = draw if number == 0 else draw.at("try", number)
            try:
                value = Grower(self._validator.index, choices).grow(self._schema, place)
            except Unreachable as error:
                failure = failure or error
                continue
            if self._validator.is_valid(value):
                return value
            if failure is None:
                fault = self._validator.faults(value, most=1)[0]
                failure = Unreachable(
                    fault.keyword, f"expected {fault.expected}, made {fault.got}", fault.pointer
                )
        raise _refusal(failure)


def _refusal(failure: Unreachable | None) -> ExpressionError:
    keyword, reason, pointer = (failure.keyword, failure.reason, failure.pointer) if failure else ("", "", "")
    return ExpressionError(
        f"no value could be made for the schema: `{keyword}` at `{pointer or '/'}` stands in the way: {reason}",
        code="can_not_generate",
        hint="give the schema `examples` that fit, or write the value yourself",
        pointer=pointer,
    )
