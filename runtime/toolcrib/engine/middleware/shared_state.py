"""What the calls of a runtime share: places, rates, breakers, budgets. It survives reloads."""

from __future__ import annotations

from collections.abc import Callable
from threading import RLock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from toolcrib.core.clock import RealClock
from toolcrib.core.protocols import Clock

T = TypeVar("T")


class Commons:
    """Pieces of state by name, as `Session.slot` has them, for all sessions of a runtime.

    What has to do with time is kept for each clock: sessions on virtual time don't wait for others.

    Attributes:
        lock: Held by whoever looks at a piece and changes it: a runtime may be used in several threads at once.
    """

    def __init__(self) -> None:
        self.lock = RLock()  # reentrant: what the garbage collector ends may give a place back
        self._timeless: dict[str, Any] = {}
        self._real: dict[str, Any] = {}
        self._others: WeakKeyDictionary[Clock, dict[str, Any]] = WeakKeyDictionary()

    def slot(self, key: str, make: Callable[[], T], clock: Clock | None = None) -> T:
        """The piece of state of a name, made at its first use.

        Args:
            key: Its name.
            make: Makes it.
            clock: The time that it goes by; None for what has to do with no time.
        """
        pieces = self._timeless if clock is None else self._pieces(clock)
        piece: T | None = pieces.get(key)
        return pieces.setdefault(key, make()) if piece is None else piece

    def _pieces(self, clock: Clock) -> dict[str, Any]:
        if isinstance(clock, RealClock):  # each session has one of its own, and all tell the same time
            return self._real
        return self._others.setdefault(clock, {})
