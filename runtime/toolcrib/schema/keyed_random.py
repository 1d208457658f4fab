"""Keyed randomness: each draw is a hash of the seed and a key path.

No draw depends on another one: what is added to a run changes nothing else in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_BITS = 256
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class KeyedRandom:
    """A place in the tree of draws. It is a value: asking it twice gives the same answer.

    `KeyedRandom(7, "a").at("b")` is the same place as `KeyedRandom(7, "a", "b")`. Different questions to one place are
    not independent of each other; ask them at places of their own.
    """

    __slots__ = ("_hash",)

    def __init__(self, seed: int, *key: str | int) -> None:
        self._hash = hashlib.blake2b(_encoded((seed, *key)), digest_size=_BITS // 8)

    def at(self, *key: str | int) -> KeyedRandom:
        """The place under this one that a key names."""
        child = KeyedRandom.__new__(KeyedRandom)
        child._hash = self._hash.copy()  # noqa: SLF001 -- a copy of the same class
        child._hash.update(_encoded(key))  # noqa: SLF001 -- as above
        return child

    def integer(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included.

        Raises:
            ValueError: `low` is above `high`.
        """
        if low > high:
            raise ValueError(f"there is no whole number from {low} to {high}")
        span = high - low + 1
        return low + self._bits(span.bit_length() + 64) % span

    def number(self, low: float, high: float) -> float:
        """A number from `low` up to `high`."""
        share = (self._bits(_BITS) >> (_BITS - 53)) / (1 << 53)
        return low * (1 - share) + high * share

    def choice(self, options: Sequence[T]) -> T:
        """One of the options.

        Raises:
            ValueError: There are none.
        """
        return options[self.integer(0, len(options) - 1)]

    def text(self, length: int) -> str:
        """So many small letters."""
        bits = self._bits(length * 16)
        letters = []
        for _ in range(length):
            letters.append(_LETTERS[(bits & 0xFFFF) % 26])
            bits >>= 16
        return "".join(letters)

    def _bits(self, wanted: int) -> int:
        """At least `wanted` bits, as one number."""
        if wanted <= _BITS:
            return int.from_bytes(self._hash.digest())
        blocks = (self.at("block", number)._hash.digest() for number in range(-(-wanted // _BITS)))  # noqa: SLF001 -- as above
        return int.from_bytes(b"".join(blocks))


def _encoded(key: Sequence[str | int]) -> bytes:
    """No two keys have the same bytes."""
    parts = []
    for part in key:
        if isinstance(part, str):
            raw = part.encode("utf-8", "surrogatepass")
            parts.append(b"s%d:%b" % (len(raw), raw))
        else:
            parts.append(b"i%d;" % part)
    return b"".join(parts)
