"""Find the descendants of a process by session and environment mark, and end them together.

If our own process is killed, the orphan reaper ends them: a separate process, on Linux only, that waits for the end of
ours. It runs as long as a child does, or a runtime that has started a program for a call, and knows only the marks of the
children. The reaper is this file, run as a script, so this file imports only the standard library.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

_PROC = Path("/proc")
SEES_ALL = hasattr(os, "pidfd_open") and (_PROC / "self" / "environ").exists()
"""Whether descendants can be found and signalled without hitting a process with a reused ID (Linux 5.3 or later)."""


def count_forks() -> int | None:
    """Number of processes and threads that the system has started so far; None if it does not tell."""
    try:
        with open("/proc/stat", "rb") as file:
            return next((int(line[10:]) for line in file if line.startswith(b"processes ")), None)
    except (OSError, ValueError):
        return None


def find_processes(leader: int, mark: str, forks: int | None = None) -> list[int]:
    """The running processes of a session or with a mark; empty if the system cannot list them.

    Args:
        leader: ID of the session leader, which is also the session ID; 0 if unknown.
        mark: A text in the environment of the descendants. Environments of other users' processes cannot be read, so
            those are found by session only.
        forks: What `count_forks` returned before the leader started: processes that are older are not looked at. None
            to look at all processes.
    """
    if not SEES_ALL:
        return []
    needle, user = mark.encode(), os.getuid()
    pids = [int(name) for name in os.listdir(_PROC) if name.isdigit()]
    if leader and forks is not None:
        # To look at a process takes some 20 us, and most of them are older than a program that has just ended.
        pids = younger_processes(pids, leader, (count_forks() or 0) - forks, _largest_id())
    return [pid for pid in pids if _is_kin(pid, leader, needle, user)]


_FIRST = 300
"""The ID that Linux gives after the largest one (`RESERVED_PIDS`)."""


def younger_processes(pids: list[int], leader: int, started: int, largest: int) -> list[int]:
    """Leave out processes that are certainly older than another one.

    Args:
        pids: IDs of running processes.
        leader: ID of the process.
        started: Number of processes and threads that were started since a moment before it.
        largest: IDs are smaller than this (`pid_max`); 0 if unknown.
    """
    # IDs are given in ascending order, and from the first one again after the largest. Those in use are skipped: a quarter
    # of all IDs is more than a system has in use.
    room = largest // 4
    if not 0 < started < room:
        return pids
    overflow = leader + started + room - largest
    return [pid for pid in pids if pid >= leader or pid < _FIRST + overflow]


def _largest_id() -> int:
    try:
        with open("/proc/sys/kernel/pid_max", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


def signal_processes(
    leader: int,
    mark: str,
    number: int,
    *,
    running: bool,
    forks: int | None = None,
    sees_all: bool = SEES_ALL,
) -> bool:
    """Send a signal to the leader and its descendants; whether there were any.

    Args:
        leader: See `find_processes`.
        mark: See `find_processes`.
        number: The signal.
        running: Whether the leader is known to run.
        forks: See `find_processes`.
        sees_all: Whether descendants can be found; otherwise the signal goes to the leader's process group.
    """
    if not sees_all:
        return _send_to_group(leader, number, running=running)
    found = find_processes(leader, mark, forks)
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            handle = os.pidfd_open(pid)
            try:
                # The process may have exited since the search, and its ID now belong to an unrelated process.
                if _is_kin(pid, leader, mark.encode(), os.getuid()):
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)
    return bool(found)


MEASURES_MEMORY = (_PROC / "self" / "statm").exists()
"""Whether `memory_of` can measure anything (Linux)."""

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def memory_of(leader: int) -> int:
    """Bytes of memory that a process and its descendants occupy; 0 if they have ended or cannot be measured.

    Descendants that a service manager or another process has adopted are not counted.
    """
    children = children_of(leader)
    if not children:
        return _resident(leader)
    # Memory that is shared after a fork counts once: each process has its share of it.
    total, left = 0, [leader]
    while left:
        pid = left.pop()
        total += share_of_memory(pid)
        left += children if pid == leader else children_of(pid)
    return total


def children_of(pid: int) -> list[int]:
    """IDs of the processes that a process has started and not waited for; empty if they cannot be listed."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    except (OSError, ValueError):
        pass  # the process or the thread has ended, or the kernel does not list children
    return found


def _resident(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def share_of_memory(pid: int) -> int:
    """The proportional set size of a process; its resident size if that cannot be read."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            for line in file:
                if line.startswith(b"Pss:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass  # the kernel may not permit it
    return _resident(pid)


def _send_to_group(leader: int, number: int, *, running: bool) -> bool:
    # killpg(0) would signal our own group, -1 every process we may signal, and 1 is init.
    if leader <= 1:
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


def _is_kin(pid: int, leader: int, needle: bytes, user: int) -> bool:
    """Whether a process runs, and belongs to the session or carries the mark."""
    folder = f"/proc/{pid}"
    try:
        with open(f"{folder}/stat", "rb") as file:
            # The program name in parentheses may itself contain spaces and parentheses, see proc(5).
            state, _parent, _group, session, *_ = file.read().rpartition(b")")[2].split()
        if state in (b"Z", b"X", b"x"):
            return False
        if leader and int(session) == leader:
            return True
        # Root can read every environment; another user's process with a copied mark is not ours to end.
        if os.stat(folder).st_uid != user:
            return False
        with open(f"{folder}/environ", "rb") as file:
            return needle in file.read()
    except (OSError, ValueError):
        return False


_GRACE = 2.0
"""Seconds for orphans to exit by themselves; their stdin is closed already."""

_LOOK_AGAIN = 0.1
_ROUNDS = 5


def reap_orphans(pid: int) -> None:
    """Wait for the end of the parent process, then end every process with a mark that is still active.

    Stdin lists the marks: a line `+mark` for each child that starts, `-mark` for each that has ended.
    """
    # The inherited working directory would keep its file system from being unmounted.
    os.chdir("/")
    # The parent may have died while this process started.
    handle: int | None = None
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
    # If it died before `pidfd_open`, the handle may refer to a process with a reused ID.
    came_in_time = os.getppid() == pid
    marks = _marks_until_end(handle if came_in_time else None)
    # `select` sleeps here because this script cannot import the package's clock. It sleeps before the first look, too: a
    # process in the middle of `exec` shows an empty environment, and so no mark.
    deadline = time.monotonic() + _GRACE
    select.select([], [], [], _LOOK_AGAIN)
    while any(find_processes(0, mark) for mark in marks) and time.monotonic() < deadline:
        select.select([], [], [], _LOOK_AGAIN)
    for _ in range(_ROUNDS):
        if not sum(signal_processes(0, mark, signal.SIGKILL, running=True) for mark in marks):
            return
        select.select([], [], [], _LOOK_AGAIN)


def _marks_until_end(handle: int | None) -> set[str]:
    """The marks that are active at the end of the parent process; None for one that has ended."""
    marks = MarkList()
    heard = [0] if handle is None else [0, handle]
    while heard:
        ready = select.select(heard, [], [])[0]
        if 0 in ready:
            data = os.read(0, 65536)
            marks.feed(data)
            if not data:
                heard.remove(0)
        elif handle in ready:
            break
    return marks.active


class MarkList:
    """The marks of the running children.

    Attributes:
        active: The marks.
    """

    def __init__(self) -> None:
        self.active = set[str]()
        # Only an incomplete line is kept: a program may start any number of children while the reaper runs.
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Add the next lines, or a part of them."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            (self.active.add if line[:1] == b"+" else self.active.discard)(line[1:].decode("ascii"))


class _Process(NamedTuple):
    """The reaper process: its ID, its pidfd, and the write end of its stdin."""

    pid: int
    handle: int
    stdin: int


class OrphanReaper:
    """Manages the reaper process, from any thread. Every method does nothing where a reaper cannot run.

    The reaper runs as long as there are marks. A mark with which those of several children begin keeps it running between
    them: to start it takes longer than many programs run, and so does waking it up for each of them.
    """

    def __init__(self) -> None:
        self._forget()
        if hasattr(os, "register_at_fork"):
            # The inherited reaper watches the parent process, and a thread of the parent may have held the lock.
            os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._process: _Process | None = None
        self._marks: set[str] = set()
        self._changing = Lock()

    def add(self, mark: str) -> None:
        """Register the mark of a child before it starts, unless it is registered already."""
        with self._changing:
            if mark in self._marks and self._runs():
                return
            known = mark in self._marks
            self._marks.add(mark)
            if known or not self._tell(f"+{mark}\n"):
                # There is none, or it was killed.
                self._stop()
                self._process = _started()
                for each in self._marks:
                    self._tell(f"+{each}\n")

    def remove(self, mark: str) -> None:
        """Remove the mark of a child that has ended with all its descendants; nothing if it is not registered."""
        with self._changing:
            if mark not in self._marks:
                return
            self._marks.discard(mark)
            if self._marks:
                self._tell(f"-{mark}\n")
            else:
                self._stop()

    def has(self, mark: str) -> bool:
        """Whether a mark is registered in this process."""
        return mark in self._marks

    def end(self) -> None:
        """End the reaper process."""
        with self._changing:
            self._marks.clear()
            self._stop()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(process.handle, signal.SIGKILL)
        with suppress(ChildProcessError):  # other code in this process may have reaped it
            os.waitpid(process.pid, 0)
        os.close(process.handle)
        os.close(process.stdin)

    def _runs(self) -> bool:
        """Whether the reaper runs, or none can be started."""
        if self._process is None:
            return True
        ended = select.poll()
        ended.register(self._process.handle, select.POLLIN)
        return not ended.poll(0)

    def _tell(self, line: str) -> bool:
        """Pass a line to the reaper; whether it takes it."""
        if self._process is None:
            return False
        try:
            os.write(self._process.stdin, line.encode())
        except OSError:  # it was killed, or reads nothing any more
            return False
        return True


def _started() -> _Process | None:
    """Start the reaper; None if descendants cannot be found, or without an interpreter, as in frozen programs."""
    interpreted = bool(sys.executable) and not getattr(sys, "frozen", False) and Path(__file__).is_file()
    if not SEES_ALL or not interpreted:
        return None
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    # `-I -S` ignores PYTHONPATH and site packages: the reaper runs no project code and starts faster.
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
"""The orphan reaper of this process."""


if __name__ == "__main__":
    reap_orphans(int(sys.argv[1]))
