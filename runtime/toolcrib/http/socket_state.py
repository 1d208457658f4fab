"""Whether something waits to be read from a connection that nobody reads: its end, or bytes that nobody asked for."""

from __future__ import annotations

import select

if hasattr(select, "poll"):

    def readable(number: int) -> bool:
        """Whether a read from this file descriptor would not wait."""
        watch = select.poll()
        watch.register(number, select.POLLIN)
        return bool(watch.poll(0))

else:

    def readable(number: int) -> bool:
        """Whether a read from this file descriptor would not wait."""
        return bool(select.select([number], [], [], 0)[0])
