"""`response.budget`: shorten the lists of a response that is too large, and report it in `meta.truncated`.

The shortened value fits the budget and the output schema. Only items at the end of lists are removed, and no
list becomes empty.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, Descriptor, Outcome, Result
from toolcrib.core.pointers import keys_of, pointer_to
from toolcrib.core.text import compact, parse_size
from toolcrib.schema.validation import Validator

Path: TypeAlias = tuple[str | int, ...]

_DEPTH = 16
"""The deepest level on which lists are shortened."""

_ROUNDS = 8
"""The number of attempts to satisfy the `minItems` of the output schema."""

_FAULTS = 1_000
"""The largest number of too short lists that one validation reports."""

_TOLD = 100
"""The number of shortened lists that `meta.truncated` lists one by one."""


class TooLarge(Exception):
    """A value cannot be shortened enough."""


class ListCut(NamedTuple):
    """A shortened list: its path, the number of items kept, and the number it had."""

    path: Path
    kept: int
    of: int


class SizeBudget:
    """A compiled `response.budget`.

    Args:
        size: The limit, in bytes of compact JSON in UTF-8.
        items: JSON Pointer of the only list that may be shortened; None for all lists.
        tool: The descriptor.
    """

    def __init__(self, size: int, items: str | None, tool: Descriptor) -> None:
        self.size = size
        self.items = items
        self._validator = None if tool.output_schema is None else Validator(tool.output_schema)

    def fitted(self, result: Result) -> Result:
        """The result with a value that fits and `meta.truncated`, or `limit_exceeded` if it cannot be shortened."""
        try:
            size = json_size(result.value)
        # Not JSON: the result layer reports it.
        except (ValueError, TypeError):
            return result
        if size <= self.size:
            return result
        try:
            value, cuts = self._shortened(result.value)
        except TooLarge as error:
            return self._refused(size, str(error))
        return result._replace(value=value).with_meta(truncated=_told(cuts))

    def _shortened(self, value: JSON) -> tuple[JSON, list[ListCut]]:
        """A value that fits the budget, and also the output schema if the whole value is valid."""
        # Lists that the schema then finds too short get a minimum, and others are shortened more.
        least: dict[Path, int] = {}
        for _ in range(_ROUNDS):
            made, cuts = self._once(value, least)
            judge = self._validator
            if judge is None or judge.is_valid(made) or not judge.is_valid(value):
                return made, cuts
            longer = _too_short(judge, made)
            if not longer:
                break
            least |= longer
        raise TooLarge("the shortened value does not match the output schema")

    def _once(self, value: JSON, least: Mapping[Path, int]) -> tuple[JSON, list[ListCut]]:
        scissors = _Trimmer(least)
        if self.items is None:
            if scissors.minimum(value, ()) > self.size:
                raise TooLarge("the parts outside lists, or the first items, are already too large")
            return scissors.cut(value, self.size, ()), scissors.cuts
        path = _path_in(value, self.items)
        return scissors.cut_at(value, self.size, path), scissors.cuts

    def _refused(self, size: int, why: str) -> Result:
        message = (
            f"the response takes {size:,} bytes, more than its budget of {self.size:,}, and cannot be shortened: {why}; "
            "request less data, raise `response.budget.size`, or extract the needed fields with `select`"
        )
        details: dict[str, JSON] = {"size": size, "budget": self.size}
        return Result.failure(Outcome.LIMIT_EXCEEDED, message, code="result_too_large", details=details)


def compile_budget(block: Mapping[str, Any], tool: Descriptor, problems: list[Problem]) -> SizeBudget:
    """Compile a `response.budget` that its schema has accepted."""
    items = block.get("items")
    if items == "" or items is None or items.startswith("/"):
        return SizeBudget(parse_size(block["size"]), items, tool)
    problems.append(
        Problem(
            code="bad_pointer",
            message=f"`{items[:80]}` is not a valid JSON Pointer",
            pointer="/live/response/budget/items",
            hint=f"write `/{items[:80].strip('$.').replace('.', '/')}`",
        )
    )
    return SizeBudget(parse_size(block["size"]), None, tool)


def json_size(value: JSON) -> int:
    """The size of a value in bytes, as compact JSON in UTF-8.

    Raises:
        ValueError: The value is not JSON, for instance a number that is not finite.
        TypeError: The value contains something other than JSON values.
    """
    text = compact(value)
    return len(text) if text.isascii() else len(text.encode())


class _Trimmer:
    """Shortens lists and records the cuts.

    Items are measured only while there is room for them, so the work is that of serializing the value a few
    times.
    """

    def __init__(self, least: Mapping[Path, int]) -> None:
        self.cuts: list[ListCut] = []
        self._least = least
        self._minima: dict[Path, int] = {}

    def cut(self, value: JSON, room: int, path: Path) -> JSON:
        """The value in at most `room` bytes. `minimum` of the value must not exceed `room`."""
        if isinstance(value, list):
            kept = _prefix(value, room)
            must = self._must(value, path)
            if max(kept, must) < len(value):
                self.cuts.append(ListCut(path, max(kept, must), len(value)))
            if kept >= must:
                return value[:kept]
            return list(self._shared(enumerate(value[:must]), room - 1 - must, path).values())
        if isinstance(value, dict) and json_size(value) > room:
            # Each key has a colon, and a comma or the closing brace.
            names = sum(json_size(key) + 2 for key in value)
            return self._shared(value.items(), room - 1 - names, path)
        return value

    def cut_at(self, value: JSON, room: int, path: Path) -> JSON:
        """The value in at most `room` bytes, with only the list at `path` shortened.

        Raises:
            TooLarge: The list cannot be shortened enough.
        """
        array: Any = value
        for key in path:
            array = array[key]
        kept = _prefix(array, room - (json_size(value) - json_size(array)))
        if kept < max(self._must(array, path), 1):
            raise TooLarge("the list has too few items to remove, or the rest is already too large")
        self.cuts.append(ListCut(path, kept, len(array)))
        return _with(value, path, array[:kept])

    def minimum(self, value: JSON, path: Path) -> int:
        """The smallest size in bytes to which the value can be cut."""
        if len(path) >= _DEPTH or not value or not isinstance(value, dict | list):
            return json_size(value)
        # Remembered, because every level asks for the minima of all levels below it.
        known = self._minima.get(path)
        if known is None:
            if isinstance(value, list):
                must = self._must(value, path)
                inner = sum(self.minimum(item, (*path, index)) for index, item in enumerate(value[:must]))
                known = inner + 1 + must
            else:
                inner = sum(
                    json_size(key) + 2 + self.minimum(item, (*path, key)) for key, item in value.items()
                )
                known = inner + 1
            self._minima[path] = known
        return known

    def _must(self, value: list[JSON], path: Path) -> int:
        """The number of items of a list that must be kept."""
        return len(value) if len(path) >= _DEPTH else min(len(value), self._least.get(path, 1))

    def _shared(self, members: Iterable[tuple[Any, JSON]], room: int, path: Path) -> dict[Any, JSON]:
        """The members within `room` bytes: small ones stay whole, large ones get equal shares."""
        held = [(key, item, self.minimum(item, (*path, key)), json_size(item)) for key, item in members]
        share = _level([(least, size) for _key, _item, least, size in held], room)
        return {
            key: item if size <= share else self.cut(item, max(share, least), (*path, key))
            for key, item, least, size in held
        }


def _prefix(items: list[JSON], room: int) -> int:
    """The number of leading items that fit into a list of at most `room` bytes."""
    # One bracket; the other one makes up for the comma that the last item does not have.
    left = room - 1
    for index, item in enumerate(items):
        left -= json_size(item) + 1
        if left < 0:
            return index
    return len(items)


def _level(bounds: list[tuple[int, int]], room: int) -> int:
    """The largest share with which all members fit. A member uses at least its minimum and at most its size."""

    def needed(share: int) -> int:
        return sum(min(max(share, least), size) for least, size in bounds)

    # A binary search, since the size needed grows with the share.
    return bisect_right(range(max(size for _least, size in bounds) + 1), room, key=needed) - 1


def _path_in(value: JSON, pointer: str) -> Path:
    """The path of a pointer to a list in a value.

    Raises:
        TooLarge: There is no list at the pointer.
    """
    path: list[str | int] = []
    here: Any = value
    for key in keys_of(pointer):
        step: str | int = int(key) if isinstance(here, list) and key.isdecimal() and len(key) < 10 else key
        try:
            here = here[step]
        except (LookupError, TypeError):
            raise TooLarge(f"`{pointer}` does not exist") from None
        path.append(step)
    if not isinstance(here, list):
        raise TooLarge(f"`{pointer or '(the whole response)'}` is not a list")
    return tuple(path)


def _with(value: Any, path: Path, inner: JSON) -> JSON:
    """A copy of the value with `inner` at a path."""
    if not path:
        return inner
    copy = value.copy()
    copy[path[0]] = _with(value[path[0]], path[1:], inner)
    changed: JSON = copy
    return changed


def _too_short(judge: Validator, value: JSON) -> dict[Path, int]:
    """The lists that violate `minItems` of the schema, with the number of items required."""
    found = {}
    for fault in judge.faults(value, most=_FAULTS):
        if fault.keyword == "minItems":
            wanted = [site.get("minItems") for site in judge.index.at(fault.path)]
            found[fault.path] = max(
                (int(each) for each in wanted if isinstance(each, int | float)), default=1
            )
    return found


def _told(cuts: list[ListCut]) -> list[JSON]:
    """`meta.truncated`: the shortened lists, with a sum for those beyond the first `_TOLD`."""
    told: list[JSON] = [
        {"pointer": pointer_to(cut.path), "kept": cut.kept, "of": cut.of} for cut in cuts[:_TOLD]
    ]
    rest = cuts[_TOLD:]
    if rest:
        told.append(
            {"lists": len(rest), "kept": sum(cut.kept for cut in rest), "of": sum(cut.of for cut in rest)}
        )
    return told
