"""What a registry holds: values by name, each made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Lazy(Mapping[str, T], Generic[T]):
    """Values by name, in the order of their names; one that is not there yet is made when it is asked for.

    What `make` raises comes through, and the next look-up asks again.
    """

    __slots__ = ("_kept", "_make")

    def __init__(self, names: Iterable[str], make: Callable[[str], T]) -> None:
        self._kept: dict[str, T | None] = dict.fromkeys(sorted(names))
        self._make = make

    @classmethod
    def of(cls, values: Mapping[str, T]) -> Lazy[T]:
        """Values that are all there."""
        made = cls((), values.__getitem__)
        made._kept = {name: values[name] for name in sorted(values)}
        return made

    def overlaid(self, new: Mapping[str, T]) -> Lazy[T]:
        """The same values but for the new ones. What is yet to be made is made for both at once."""
        kept = {**self._kept, **new}
        return self._with(
            kept if len(kept) == len(self._kept) else {name: kept[name] for name in sorted(kept)}
        )

    def without(self, names: Collection[str]) -> Lazy[T]:
        """The values of all other names. What is yet to be made is made for both at once."""
        return self._with({name: value for name, value in self._kept.items() if name not in names})

    def _with(self, kept: dict[str, T | None]) -> Lazy[T]:
        """Such values. However many are derived one from another, all ask the first for what is yet to be made."""
        first = self._make if isinstance(self._make, _First) else _First(self)
        derived: Lazy[T] = Lazy((), first)
        derived._kept = kept
        return derived

    def __getitem__(self, name: str) -> T:
        value = self._kept[name]
        if value is None:
            made = self._make(name)
            value = self._kept[name] = made
        return value

    def __contains__(self, name: object) -> bool:
        return name in self._kept

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def all(self) -> list[T]:
        """Every value, in the order of the names."""
        return [self[name] if value is None else value for name, value in self._kept.items()]


class _First(Generic[T]):
    """Asks the values that others were derived from."""

    __slots__ = ("_values",)

    def __init__(self, values: Lazy[T]) -> None:
        self._values = values

    def __call__(self, name: str) -> T:
        return self._values[name]
