"""A process and its descendants, found by their session and by a mark in the environment, and ended together.

Where our own process is killed, the orphan reaper ends them: a process of its own that waits for the end of ours. It runs
as long as a child does, on Linux only, and knows the marks of children and nothing else of them. It is this file, run as a
program by the interpreter that we run in, so this file imports nothing but the standard library.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_PROC = Path("/proc")
SEES_ALL = hasattr(os, "pidfd_open") and (_PROC / "self" / "environ").exists()
"""Whether strays can be found, and be sent signals without mistaking another process for one: Linux from 5.3."""


def find_processes(leader: int, mark: str) -> list[int]:
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


def signal_processes(
    leader: int, mark: str, number: int, *, running: bool, sees_all: bool = SEES_ALL
) -> bool:
    """Send a signal to all kin; whether there was any.

    Args:
        leader: As `find_processes` takes it.
        mark: As `find_processes` takes it.
        number: Of the signal.
        running: Whether the leader is known to run.
        sees_all: Whether kin can be seen; else the leader's group is sent the signal.
    """
    if not sees_all:
        return _send_to_group(leader, number, running=running)
    found = find_processes(leader, mark)
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


def reap_orphans(pid: int) -> None:
    """Wait for the end of the process that started this one, and end everything with a mark that stands then.

    Stdin says which: a line `+mark` for each that begins, `-mark` for each that is over.
    """
    os.chdir("/")
    handle = os.pidfd_open(pid)
    came_in_time = os.getppid() == pid  # else the handle may be that of another process
    marks = _marks_until_end(handle) if came_in_time else _marks_in(_read_all())
    # Time passes by `select`: this program has none of our other modules.
    deadline = time.monotonic() + _GRACE
    while any(find_processes(0, mark) for mark in marks) and time.monotonic() < deadline:
        select.select([], [], [], _LOOK_AGAIN)
    for _ in range(_ROUNDS):
        if not sum(signal_processes(0, mark, signal.SIGKILL, running=True) for mark in marks):
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


class _Process(NamedTuple):
    """The process: its number, a handle of it, and what it reads."""

    pid: int
    handle: int
    stdin: int


class OrphanReaper:
    """The process that outlives ours for a moment. Where there can be none, all of this does nothing."""

    def __init__(self) -> None:
        self._process: _Process | None = None
        self._owner = 0
        self._marks: set[str] = set()

    def add(self, mark: str) -> None:
        """A child with this mark is about to be started."""
        if self._owner != os.getpid():  # this process was forked: the other one's is not ours
            self._process, self._owner, self._marks = None, os.getpid(), set()
        self._marks.add(mark)
        if self._process is None:
            self._process = _started()
        self._tell(f"+{mark}\n")

    def remove(self, mark: str) -> None:
        """The child with this mark has ended, and all that it started."""
        if self._owner != os.getpid():
            return
        self._marks.discard(mark)
        if self._marks:
            self._tell(f"-{mark}\n")
        else:
            self.end()

    def end(self) -> None:
        """Nothing is left to watch."""
        process = self._process
        if process is None or self._owner != os.getpid():
            return
        self._process = None
        self._marks.clear()
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process.handle, signal.SIGKILL)
        with suppress(ChildProcessError):  # somebody else waits for all children of this process
            os.waitpid(process.pid, 0)
        os.close(process.handle)
        os.close(process.stdin)

    def _tell(self, line: str) -> None:
        if self._process is not None:
            with suppress(OSError):  # somebody ended it
                os.write(self._process.stdin, line.encode())


def _started() -> _Process | None:
    """The process; None where kin can't be seen, or where there is no interpreter to start, as in frozen programs."""
    interpreted = bool(sys.executable) and not getattr(sys, "frozen", False) and Path(__file__).is_file()
    if not SEES_ALL or not interpreted:
        return None
    reading, writing = os.pipe()
    command = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
    files = [
        (os.POSIX_SPAWN_DUP2, reading, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    try:
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=files, setsid=True)
        return _Process(pid, os.pidfd_open(pid), writing)
    except (OSError, NotImplementedError):
        os.close(writing)
        return None
    finally:
        os.close(reading)


ORPHAN_REAPER = OrphanReaper()
"""That of this process."""


if __name__ == "__main__":
    reap_orphans(int(sys.argv[1]))
