"""What the schema of a collection says of what effects write, as far as it can be said before any call."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from toolcrib.core.errors import did_you_mean
from toolcrib.core.model import JSON, Schema
from toolcrib.core.pointers import pointer_step
from toolcrib.core.subschemas import refers
from toolcrib.executors.mock.collection_schema import kinds_of, known_keys, plain_schema
from toolcrib.executors.mock.store_paths import Place
from toolcrib.expressions.compiler import ExpressionPart, literal
from toolcrib.expressions.values import list_of_names
from toolcrib.schema.validation import Validator, Violation

if TYPE_CHECKING:
    from toolcrib.executors.mock.compile_context import Ground


class Spot(NamedTuple):
    """Where an effect writes: a place in the rows of a collection that has a schema.

    Attributes:
        collection: Name of the collection.
        schema: That of its rows.
        path: The keys that lead there from a row; None for a key or position that only a call knows.
        text: The place as it was written.
    """

    collection: str
    schema: Schema
    path: tuple[str | None, ...]
    text: str

    def check_members(self, written: ExpressionPart | None, pointer: str, ground: Ground) -> None:
        """Refuse keys that the schema of the row does not know, and constants that it does not take."""
        members = dict(_members(written))
        for key in self.check_fields(members, pointer, ground):
            self._tell((*self.path, key), members[key], f"{pointer}/{pointer_step(key)}", ground)

    def check_fields(self, fields: Iterable[str], pointer: str, ground: Ground) -> list[str]:
        """Refuse keys that the schema of the row does not know.

        Returns:
            The others.
        """
        known = known_keys(self.schema, self.path)
        if known is None:
            return list(fields)
        for key in (key for key in fields if key not in known):
            self._unknown(key, known, self.text, f"{pointer}/{pointer_step(key)}", ground)
        return [key for key in fields if key in known]

    def check_way(self, pointer: str, ground: Ground) -> None:
        """Refuse a place that no row can have."""
        for at, step in enumerate(self.path):
            known = None if step is None else known_keys(self.schema, self.path[:at])
            if step is not None and known is not None and step not in known:
                self._unknown(step, known, self.text, pointer, ground)
                return

    def check_kind(self, effect: str, pointer: str, ground: Ground) -> None:
        """Refuse an effect at a place where never stands what it needs: `append`, `increment` and `decrement`."""
        schema = plain_schema(self.schema, self.path)
        types = ("array",) if effect == "append" else ("number", "integer")
        kinds = None if schema is None else kinds_of(schema)
        if kinds is not None and kinds.isdisjoint(types):
            needs = "a list" if effect == "append" else "a number"
            there = " or ".join(sorted(kinds)) or "nothing"
            message = (
                f"`{effect}` needs {needs}, and by the schema of `{self.collection}` `{self.text}` is {there}"
            )
            ground.fault("wrong_type", message, pointer, "change the place, or the schema")

    def _unknown(self, key: str, known: Collection[str], text: str, pointer: str, ground: Ground) -> None:
        there = list_of_names(sorted(known))
        message = f"rows of `{self.collection}` never have `{key}` at `{text}`; the keys there are {there}"
        ground.fault("unknown_row_key", message, pointer, did_you_mean(key, known))

    def check_value(self, written: ExpressionPart | None, pointer: str, ground: Ground) -> None:
        """Refuse a value that the schema of the row does not take, as far as it is constant."""
        if written is not None:
            self._tell(self.path, written, pointer, ground)

    def _tell(self, path: tuple[str | None, ...], part: ExpressionPart, pointer: str, ground: Ground) -> None:
        schema = plain_schema(self.schema, path)
        told = any(f"{problem.pointer}/".startswith(f"{pointer}/") for problem in ground.problems)
        if schema is None or told:  # a text that is no expression is none of the values that are written
            return
        name = next((step for step in reversed(path) if step is not None), self.collection)
        dialect = self.schema.get("$schema") if isinstance(self.schema, dict) else None
        for place, fault in _faults(part, schema, name, dialect):
            message = (
                f"the schema of `{self.collection}` refuses this: expected {fault.expected}, got {fault.got}"
            )
            hint = fault.hint or "change it, or the schema"
            ground.fault("row_breaks_schema", message, f"{pointer}{place}", hint)


def spot_of(place: Place, ground: Ground, *, elements: bool = False) -> Spot | None:
    """Where an effect writes; None where nothing is known of it.

    Args:
        place: The place that it names.
        ground: What it was compiled against.
        elements: Whether it writes elements of what stands there.
    """
    row = ground.rows.get(place.root)
    name = place.root if place.in_store else "" if row is None else row.collection
    collection = ground.tool.fixture.collections.get(name)
    if collection is None or collection.schema is None or collection.fault:
        return None
    path = [step.name or None for step in (place.steps[1:] if place.in_store else place.steps)]
    if elements and not (place.in_store and not place.steps):  # elements of a collection are rows
        path.append(None)
    return Spot(name, collection.schema, tuple(path), place.text)


def _members(part: ExpressionPart | None) -> Iterator[tuple[str, ExpressionPart]]:
    if part is not None:
        yield from ((key, inner) for key, inner in _inside(part) if isinstance(key, str))


def _inside(part: ExpressionPart) -> Iterator[tuple[str | int, ExpressionPart]]:
    """The members of an object, or the elements of a list, as far as they are written out."""
    if part.members is not None:
        yield from part.members.items() if isinstance(part.members, dict) else enumerate(part.members)
    elif part.constant and isinstance(part.value, dict | list):
        value = part.value
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield key, literal(inner)


def _faults(
    part: ExpressionPart, schema: Schema, name: str, dialect: JSON
) -> Iterator[tuple[str, Violation]]:
    """What is wrong with the constant parts of a value: where within it, and what."""
    if part.constant and not refers(schema):
        yield from _judged(part.value, schema, name, dialect)
        return
    for key, inner in _inside(part):
        step, called = (key, key) if isinstance(key, str) else (None, name)
        below = plain_schema(schema, (step,))
        if below is not None:
            for place, fault in _faults(inner, below, called, dialect):
                yield f"/{pointer_step(str(key))}{place}", fault


def _judged(value: JSON, schema: Schema, name: str, dialect: JSON) -> Iterator[tuple[str, Violation]]:
    # Under its name, since a name may say that a value is secret.
    whole: dict[str, JSON] = {"properties": {name: schema}}
    if dialect is not None:
        whole["$schema"] = dialect
    above = len(f"/{pointer_step(name)}")
    for fault in Validator(whole).faults({name: value}):
        yield fault.pointer[above:], fault
