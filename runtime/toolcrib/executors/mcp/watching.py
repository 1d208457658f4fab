"""Who ends servers where our own process is killed: a process of its own, that waits for the end of ours.

It runs as long as a server does, on Linux only, and knows the marks of servers (`children.MARK`) and nothing else of
them. It is `kin.py`, started by the interpreter that we run in.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from toolcrib.executors.mcp import kin


class Watcher:
    """The process that outlives ours for a moment. Where there can be none, all of this does nothing."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
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
        process.kill()
        process.wait()
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()

    def _tell(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # somebody ended it
                self._process.stdin.write(line.encode())


def _started() -> subprocess.Popen[bytes] | None:
    """The process; None where kin can't be seen, or where there is no interpreter to start, as in frozen programs."""
    interpreted = bool(sys.executable) and not getattr(sys, "frozen", False) and Path(kin.__file__).is_file()
    if not kin.SEES_ALL or not interpreted:
        return None
    try:
        return subprocess.Popen(  # noqa: S603 -- our own program
            [sys.executable, "-I", "-S", kin.__file__, str(os.getpid())],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
    except OSError:
        return None


WATCHER = Watcher()
"""That of this process."""
