"""A process and all that came of it, found by its session and by a mark in the environment."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")
SEES_ALL = hasattr(os, "pidfd_open") and (_PROC / "self" / "environ").exists()
"""Whether strays can be found, and be sent signals without mistaking another process for one: Linux from 5.3."""


def kin_of(leader: int, mark: str) -> list[int]:
    """What still runs of a session and of everything that carries a mark. Empty where that can't be seen.

    Args:
        leader: The process that the session was made for; also its number. 0 where it is not known.
        mark: A text that stands in the environment of what the leader started. Others' environments can't be read:
            what runs as another user is found by its session alone.
    """
    if not SEES_ALL:
        return []
    needle, user = mark.encode(), os.getuid()
    return [pid for pid in _numbers() if _is_kin(pid, leader, needle, user)]


def send_to(leader: int, mark: str, number: int, *, running: bool, sees_all: bool = SEES_ALL) -> bool:
    """Send a signal to all kin; whether there was any.

    Args:
        leader: As `kin_of` takes it.
        mark: As `kin_of` takes it.
        number: Of the signal.
        running: Whether the leader is known to run.
        sees_all: Whether kin can be seen; else the leader's group is sent the signal.
    """
    if not sees_all:
        return _send_to_group(leader, number, running=running)
    found = kin_of(leader, mark)
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            handle = os.pidfd_open(pid)
            try:
                # Between the look and the handle the number may have become somebody else's.
                if _is_kin(pid, leader, mark.encode(), os.getuid()):
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)
    return bool(found)


def _send_to_group(leader: int, number: int, *, running: bool) -> bool:
    if leader <= 1:  # the groups 0, -1 and 1 are others' processes
        return False
    try:
        if hasattr(os, "killpg"):
            os.killpg(leader, number)
        elif running:
            os.kill(leader, number)
        else:
            return False
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _numbers() -> list[int]:
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 -- a Path for each costs more


def _is_kin(pid: int, leader: int, needle: bytes, user: int) -> bool:
    """Whether a process runs and is of the session or carries the mark; one that is gone meanwhile does not."""
    folder = f"/proc/{pid}"
    try:
        with open(f"{folder}/stat", "rb") as file:  # noqa: PTH123 -- as above
            # The name, in brackets, may hold anything: proc(5).
            state, _parent, _group, session, *_ = file.read().rpartition(b")")[2].split()
        if state in (b"Z", b"X", b"x"):
            return False
        if leader and int(session) == leader:
            return True
        if os.stat(folder).st_uid != user:  # noqa: PTH116 -- as above
            return False
        with open(f"{folder}/environ", "rb") as file:  # noqa: PTH123 -- as above
            return needle in file.read()
    except (OSError, ValueError):
        return False
