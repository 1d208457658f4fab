"""What an expression reads of the arguments, found out while it is compiled."""

from __future__ import annotations

from collections.abc import Collection, Iterator


class Watch:
    """Notes what an expression reads of the arguments while it is compiled.

    The compiler asks whether a name or a key is known whenever it meets one.

    Attributes:
        names: The names that the expression may read.
        keys: The arguments that it reads, in order.
    """

    def __init__(self, known: Collection[str] | None) -> None:
        self.names = _Names({"args": _Keys(self, known)})
        self.keys: dict[str, None] = {}
        self.steps = 0

    @property
    def whole(self) -> bool:
        """Whether it reads the arguments by anything but their names."""
        return self.names.asked > self.steps


class _Names(dict[str, Collection[str]]):
    asked = 0

    def __contains__(self, name: object) -> bool:
        self.asked += name == "args"
        return super().__contains__(name)


class _Keys(Collection[str]):
    def __init__(self, watch: Watch, known: Collection[str] | None) -> None:
        self._watch = watch
        self._known = known

    def __contains__(self, name: object) -> bool:
        self._watch.steps += 1
        self._watch.keys[str(name)] = None
        return self._known is None or name in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(self._known or ())

    def __len__(self) -> int:
        return len(self._known or ())
