"""Who ends servers where our own process is killed: a process of its own, that waits for the end of ours.

It runs as long as a server does, on Linux only, and knows the marks of servers (`child_process.MARK`) and nothing else of
them. It is `process_tree.py`, started by the interpreter that we run in.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from toolcrib.servers.mcp import process_tree


class _Process(NamedTuple):
    """The process: its number, a handle of it, and what it reads."""

    pid: int
    handle: int
    stdin: int


class Watcher:
    """The process that outlives ours for a moment. Where there can be none, all of this does nothing."""

    def __init__(self) -> None:
        self._process: _Process | None = None
        self._owner = 0
        self._marks: set[str] = set()

    def add(self, mark: str) -> None:
        """A server with this mark is about to be started."""
        if self._owner != os.getpid():  # this process was forked: the other one's is not ours
            self._process, self._owner, self._marks = None, os.getpid(), set()
        self._marks.add(mark)
        if self._process is None:
            self._process = _started()
        self._tell(f"+{mark}\n")

    def remove(self, mark: str) -> None:
        """The server with this mark has ended, and all that it started."""
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
    interpreted = (
        bool(sys.executable) and not getattr(sys, "frozen", False) and Path(process_tree.__file__).is_file()
    )
    if not process_tree.SEES_ALL or not interpreted:
        return None
    reading, writing = os.pipe()
    command = [sys.executable, "-I", "-S", process_tree.__file__, str(os.getpid())]
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


WATCHER = Watcher()
"""That of this process."""
