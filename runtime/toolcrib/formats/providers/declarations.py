"""What a tool's declaration is: the values that the compilers of all dialects make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from toolcrib.core.model import JSON


class Loss(NamedTuple):
    """What a declaration can't say of what the tool's own schema says. The call is judged by that one all the same.

    Attributes:
        pointer: JSON Pointer into the tool's input schema.
        keyword: The keyword that is left out or changed.
        message: What became of it, on one line.
    """

    pointer: str
    keyword: str
    message: str


class Declaration(NamedTuple):
    """A tool as one provider takes it.

    Attributes:
        name: What the model calls it.
        tool: Its name in the registry.
        description: What it is for.
        schema: JSON Schema of the arguments, in the provider's dialect.
        definition: The whole, exactly as it is sent.
        strict: Whether the provider holds the model to the schema.
        losses: What the dialect can't say.
        restore: Arguments as the model gives them -> as the tool's own schema has them.
    """

    name: str
    tool: str
    description: str
    schema: Mapping[str, JSON]
    definition: Mapping[str, JSON]
    strict: bool = False
    losses: tuple[Loss, ...] = ()
    restore: Callable[[dict[str, JSON]], dict[str, JSON]] = lambda arguments: arguments


class Compiled(NamedTuple):
    """A schema of arguments in a dialect.

    Attributes:
        schema: As the dialect has it.
        note: What the description of the tool is to say besides; empty for nothing.
        strict: Whether the provider is to hold the model to the schema.
        losses: What the dialect can't say.
        restore: Arguments as they are declared -> in the tool's own form.
    """

    schema: dict[str, JSON]
    note: str = ""
    strict: bool = False
    losses: tuple[Loss, ...] = ()
    restore: Callable[[JSON], JSON] = lambda arguments: arguments
