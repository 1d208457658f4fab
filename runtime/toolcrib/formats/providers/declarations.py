"""What the compilers of all dialects make of a tool: its declaration, what that can't say, and names that a dialect takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple

from toolcrib.core.model import JSON, Schema
from toolcrib.core.subschemas import children


class Loss(NamedTuple):
    """Something of the tool's own schema that a declaration can't express. Calls are checked by that schema all the same.

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
        losses: What the dialect can't express.
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


class DialectSchema(NamedTuple):
    """A schema of arguments in a dialect.

    Attributes:
        schema: As the dialect has it.
        note: What is added to the description of the tool; empty for nothing.
        strict: Whether the provider is to hold the model to the schema.
        losses: What the dialect can't express.
        restore: Arguments as they are declared -> in the tool's own form.
    """

    schema: dict[str, JSON]
    note: str = ""
    strict: bool = False
    losses: tuple[Loss, ...] = ()
    restore: Callable[[JSON], JSON] = lambda arguments: arguments


LONGEST: Final = 64

_OTHER: Final = re.compile("[^A-Za-z0-9_]")


def aliases_for(names: Iterable[str], taken: re.Pattern[str]) -> dict[str, str]:
    """Name -> another one that the dialect takes, of those that it does not; none is used twice.

    Args:
        names: Names that belong together, such as those of an object's properties.
        taken: What the dialect takes, at most 64 characters.
    """
    every = list(names)
    used = {name for name in every if taken.fullmatch(name)}
    found: dict[str, str] = {}
    for name in every:
        if name not in used:
            found[name] = _free(name, used)
            used.add(found[name])
    return found


def wrapper_for(schema: dict[str, JSON]) -> str:
    """A name for the property that holds all arguments, unlike any property of the schema."""
    name = "arguments"
    used = {key for path in _named(schema) for key in path}
    while name in used:
        name += "_"
    return name


def _named(schema: Schema) -> Iterator[tuple[str | int, ...]]:
    for path, inner in children(schema):
        yield path
        yield from _named(inner)


def _free(name: str, used: set[str]) -> str:
    plain = _OTHER.sub("_", name)
    start = plain if plain and not plain[0].isdigit() else f"_{plain}"
    if len(start) <= LONGEST and start not in used:
        return start
    salted = name.encode(errors="surrogatepass")
    while True:
        digest = blake2b(salted, digest_size=4).hexdigest()
        alias = f"{start[: LONGEST - 9]}_{digest}"
        if alias not in used:
            return alias
        salted = digest.encode() + salted
