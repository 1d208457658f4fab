"""A process and all that came of it, found by its session and by a mark in the environment.

Started as a program (`orphan_reaper.py` does), it waits for the end of another process and then ends what that one left.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
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
    return [int(name) for name in os.listdir(_PROC) if name.isdigit()]


def _is_kin(pid: int, leader: int, needle: bytes, user: int) -> bool:
    """Whether a process runs and is of the session or carries the mark; one that is gone meanwhile does not."""
    folder = f"/proc/{pid}"
    try:
        with open(f"{folder}/stat", "rb") as file:
            # The name, in brackets, may hold anything: proc(5).
            state, _parent, _group, session, *_ = file.read().rpartition(b")")[2].split()
        if state in (b"Z", b"X", b"x"):
            return False
        if leader and int(session) == leader:
            return True
        if os.stat(folder).st_uid != user:
            return False
        with open(f"{folder}/environ", "rb") as file:
            return needle in file.read()
    except (OSError, ValueError):
        return False


_GRACE = 2.0
"""Seconds that what was left has to end by itself: its stdin is closed already."""

_LOOK_AGAIN = 0.1
_ROUNDS = 5


def watch(pid: int) -> None:
    """Wait for the end of the process that started this one, and end everything with a mark that stands then.

    Stdin says which: a line `+mark` for each that begins, `-mark` for each that is over.
    """
    os.chdir("/")
    handle = os.pidfd_open(pid)
    came_in_time = os.getppid() == pid  # else the handle may be that of another process
    marks = _marks_until_end(handle) if came_in_time else _marks_in(_read_all())
    # Time passes by `select`: this program has none of our other modules.
    deadline = time.monotonic() + _GRACE
    while any(kin_of(0, mark) for mark in marks) and time.monotonic() < deadline:
        select.select([], [], [], _LOOK_AGAIN)
    for _ in range(_ROUNDS):
        if not sum(send_to(0, mark, signal.SIGKILL, running=True) for mark in marks):
            return
        select.select([], [], [], _LOOK_AGAIN)


def _marks_until_end(handle: int) -> set[str]:
    told = b""
    heard = [0, handle]
    while True:
        ready = select.select(heard, [], [])[0]
        if 0 in ready:
            data = os.read(0, 65536)
            told += data
            if not data:
                heard.remove(0)
        elif handle in ready:
            return _marks_in(told)


def _read_all() -> bytes:
    told = b""
    while data := os.read(0, 65536):
        told += data
    return told


def _marks_in(told: bytes) -> set[str]:
    marks = set[str]()
    for line in told.decode("ascii").splitlines():
        (marks.add if line[0] == "+" else marks.discard)(line[1:])
    return marks


if __name__ == "__main__":
    watch(int(sys.argv[1]))
