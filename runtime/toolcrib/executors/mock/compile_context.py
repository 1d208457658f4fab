"""What the parts of a body are compiled against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from toolcrib.core.errors import ExpressionError, Problem, did_you_mean
from toolcrib.core.model import JSON, Descriptor
from toolcrib.executors.mock.store_paths import Names, Place, compile_place
from toolcrib.expressions import Rendering, compile_value
from toolcrib.expressions.compiler import KnownKeys
from toolcrib.expressions.values import list_of_names

if TYPE_CHECKING:
    from toolcrib.executors.mock.rows import Row
    from toolcrib.executors.mock.written_literals import Spot


class Ground(NamedTuple):
    """Names, rows and the tool, and where faults go.

    Attributes:
        names: What expressions may read, with the keys where these are known.
        rows: Name -> row.
        tool: The descriptor.
        problems: Receives every fault.
    """

    names: Names
    rows: Mapping[str, Row]
    tool: Descriptor
    problems: list[Problem]

    def fault(self, code: str, message: str, pointer: str, hint: str = "") -> None:
        """Tell a fault."""
        self.problems.append(Problem(code=code, message=message, pointer=pointer, hint=hint))

    def value(self, value: JSON, pointer: str) -> Rendering:
        """Compile a value; `for_each` makes lists and objects in it."""
        return compile_value(value, self.names, self.problems, pointer, forms=True)

    def place(self, text: str, pointer: str, *, in_store: bool = True) -> Place | None:
        """Compile a place; None for one with a fault."""
        collections = self.tool.fixture.collections if in_store else ()
        try:
            place = compile_place(text, self.names, self.rows, collections, pointer)
        except ExpressionError as error:
            self.fault(error.code, error.message, pointer, error.hint)
            return None
        self.check_way(place, pointer)
        return place

    def check_way(self, place: Place, pointer: str) -> None:
        """Tell a place that no row can have, by the schema of its collection."""
        spot = self.spot(place)
        if spot is not None:
            spot.check_way(pointer, self)
            return
        keys = None if place.in_store else self.names.get(place.root)  # of a row that lies within another
        for step in place.steps:
            if not isinstance(keys, KnownKeys):
                return
            if step.name and step.name not in keys:
                there = list_of_names(sorted(keys))
                message = (
                    f"`{place.root}` never has `{step.name}` at `{place.text}`; the keys there are {there}"
                )
                self.fault("unknown_row_key", message, pointer, did_you_mean(step.name, keys))
                return
            keys = keys.below(step.name or None)

    def spot(self, place: Place, *, elements: bool = False) -> Spot | None:
        """What schemas say of a place, or of the elements of what stands there; None where they say nothing."""
        if all(collection.schema is None for collection in self.tool.fixture.collections.values()):
            return None
        from toolcrib.executors.mock.written_literals import spot_of  # noqa: PLC0415 -- many stores have no schemas

        return spot_of(place, self, elements=elements)
