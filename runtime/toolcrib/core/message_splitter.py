"""Split a stream of bytes into messages of bounded size."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from toolcrib.core.model import OUTPUT_SIZE

HEAD: Final = 64 * 1024
"""Bytes of a message that is too large in which its ID is searched."""


class OversizedMessage(NamedTuple):
    """A message that exceeds its limit.

    Attributes:
        head: Its first `HEAD` bytes.
        limit: The limit in bytes.
    """

    head: bytes
    limit: int


class MessageSplitter:
    """Splits chunks of bytes into messages with their ends. It buffers at most one message, up to its limit.

    Args:
        end: Matches the end of a message, at most 4 bytes.
        limit: Returns the maximum size of the message with this beginning, and without one the smallest limit.
        head: Size of the beginning in bytes. No limit is smaller.
    """

    def __init__(
        self, end: re.Pattern[bytes], limit: Callable[[bytes | None], int], head: int = HEAD
    ) -> None:
        self._search = end.search
        self._head = head
        self._limit_for = limit
        self._limit: int | None = None
        self._rest = bytearray()
        self._discarding = False

    def add(self, data: bytes) -> Iterator[bytes | OversizedMessage]:
        """Add a chunk, and yield the messages that are now complete.

        A message that is too large is yielded once, as soon as it exceeds its limit; its rest is discarded.
        """
        rest = self._rest
        # Split bytes, not text: a chunk may end within a character, and `splitlines` also splits at U+2028,
        # which is allowed inside JSON strings (RFC 8259, section 7).
        begin, at = 0, max(0, len(rest) - _OVERLAP)
        rest += data
        while found := self._search(rest, at):
            stop = at = found.end()
            if self._discarding:
                self._discarding = False
            elif self._exceeds(begin, found.start()):
                yield self._oversized(begin)
            else:
                yield bytes(rest[begin:stop])
            begin, self._limit = stop, None
        del rest[:begin]
        if not self._discarding and self._exceeds(0, len(rest)):
            yield self._oversized(0)
            self._discarding = True
        if self._discarding:
            del rest[:-_OVERLAP]

    def unfinished(self) -> bool:
        """Whether the last message is incomplete."""
        return self._discarding or bool(self._rest.strip())

    def _exceeds(self, begin: int, end: int) -> bool:
        size = end - begin
        if size <= self._head:
            return False
        if self._limit is None:
            # Only a message above the smallest limit is searched for its ID.
            if size <= self._limit_for(None):
                return False
            self._limit = self._limit_for(self._beginning(begin))
        return size > self._limit

    def _oversized(self, begin: int) -> OversizedMessage:
        limit, self._limit = self._limit, None
        return OversizedMessage(self._beginning(begin), OUTPUT_SIZE if limit is None else limit)

    def _beginning(self, begin: int) -> bytes:
        return bytes(self._rest[begin : begin + self._head])


_OVERLAP = 3
"""Bytes of an end that an earlier chunk may contain."""
