"""Whether a file descriptor can be read without waiting."""

from __future__ import annotations

import select

# select() fails for descriptors above 1023 (FD_SETSIZE), so it is only a fallback where poll() is missing
# (Windows).
if hasattr(select, "poll"):

    def readable(number: int) -> bool:
        """Whether reading from this file descriptor would not block."""
        watch = select.poll()
        watch.register(number, select.POLLIN)
        return bool(watch.poll(0))

else:

    def readable(number: int) -> bool:
        """Whether reading from this file descriptor would not block."""
        return bool(select.select([number], [], [], 0)[0])
