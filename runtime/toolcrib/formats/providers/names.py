"""Names that a dialect takes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final

from toolcrib.core.model import JSON, Schema
from toolcrib.core.subschemas import children

LONGEST: Final = 64

_OTHER: Final = re.compile("[^A-Za-z0-9_]")


def renamed(names: Iterable[str], taken: re.Pattern[str]) -> dict[str, str]:
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
    """A name for the property that stands for all arguments, which no property of the schema has."""
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
