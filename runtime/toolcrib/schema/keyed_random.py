"""Keyed randomness: each draw is a hash of the seed and a key path.

Draws are independent of each other, so adding a draw to a run does not change any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_BITS = 256
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class KeyedRandom:
    """An immutable place in the tree of draws; repeated calls return the same values.

    `KeyedRandom(7, "a").at("b")` is the same place as `KeyedRandom(7, "a", "b")`. Different methods of one place are
    not independent of each other; use a child place for each draw.
    """

    # `random.Random` is not used: its sequence depends on the order of draws, and Python does not promise
    # that `randint` or `choice` keep their results between versions.
    __slots__ = ("_hash",)

    def __init__(self, seed: int, *key: str | int) -> None:
        # BLAKE2 is specified (RFC 7693), so the values are the same on every machine and in every version.
        self._hash = hashlib.blake2b(_encoded((seed, *key)), digest_size=_BITS // 8)

    def at(self, *key: str | int) -> KeyedRandom:
        """The child place with this key."""
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
        # 64 extra bits make the bias of the modulo negligible.
        span = high - low + 1
        return low + self._bits(span.bit_length() + 64) % span

    def number(self, low: float, high: float) -> float:
        """A number from `low` up to `high`."""
        # 53 bits, the precision of a float: more would round, up to 1.0.
        share = (self._bits(_BITS) >> (_BITS - 53)) / (1 << 53)
        return low * (1 - share) + high * share

    def choice(self, options: Sequence[T]) -> T:
        """One of the options.

        Raises:
            ValueError: The list of options is empty.
        """
        return options[self.integer(0, len(options) - 1)]

    def text(self, length: int) -> str:
        """A string of lower-case letters with the given length."""
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
    """An unambiguous encoding of a key."""
    # Type and length are part of it: ("a", "b") and ("ab",), or 1 and "1", must not be the same place.
    parts = []
    for part in key:
        if isinstance(part, str):
            raw = part.encode("utf-8", "surrogatepass")
            parts.append(b"s%d:%b" % (len(raw), raw))
        else:
            parts.append(b"i%d;" % part)
    return b"".join(parts)
