"""stdin and stdout of a server that one client has started: lines in, lines out, without blocking the event loop.

The transports of the SDKs read lines in a thread pool or with asyncio's pipes. A process cannot exit while a thread of the
pool blocks in a read, and asyncio cannot connect files. These pipes read and write in two daemon threads.
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Final, NamedTuple, Self

from toolcrib.serve.http_common.listen_address import MOST_BODY

_CHUNK: Final = 1 << 16
_AHEAD: Final = 16
"""Number of chunks read ahead of the protocol."""

_STDIN, _STDOUT, _STDERR = 0, 1, 2


class StdoutError(OSError):
    """stdout cannot be written to, though the client has not disconnected."""


class OversizedLine(NamedTuple):
    """Marks a line that was skipped because it is too long.

    Attributes:
        limit: Maximum length of a line in bytes.
    """

    limit: int


class StdioPipes:
    """A pipe to read lines from and one to write to.

    Attributes:
        broken: Set once nothing can be written any more.
        error: The cause; None while writing works, and if the reader closed its end.
    """

    def __init__(self, source: int, target: int, *, limit: int = MOST_BODY) -> None:
        """Start reading and writing two file descriptors.

        Args:
            source: Descriptor to read from.
            target: Descriptor to write to.
            limit: Maximum length of a line in bytes.
        """
        self.broken = asyncio.Event()
        self.error: OSError | None = None
        self._source, self._target, self._limit = source, target, limit
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(_AHEAD)
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._outgoing: SimpleQueue[tuple[bytes, asyncio.Future[None]]] = SimpleQueue()
        self._queued = 0
        self._has_room = _room_check(target)
        for work in (self._reading, self._writing):
            # Daemons: a blocked `os.read` cannot be interrupted, and a thread in it would keep the process
            # alive.
            threading.Thread(target=work, name=f"toolcrib-stdio{work.__name__}", daemon=True).start()

    @classmethod
    @contextmanager
    def claimed(cls, *, limit: int = MOST_BODY) -> Iterator[Self]:
        """Take over stdin and stdout: within the block, `print` writes to stderr and reading stdin meets its end.

        Args:
            limit: Maximum length of a line in bytes.

        Raises:
            OSError: One of them is closed.
        """
        # A library that prints would break the protocol, and one that reads stdin would swallow messages.
        # Redirecting the descriptors also covers C code and child processes, which `sys.stdout` does not.
        source, target = os.dup(_STDIN), os.dup(_STDOUT)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, _STDIN)
        os.close(nothing)
        os.dup2(_STDERR, _STDOUT)
        try:
            yield cls(source, target, limit=limit)
        finally:
            os.dup2(source, _STDIN)
            os.dup2(target, _STDOUT)

    async def lines(self) -> AsyncIterator[bytes | OversizedLine]:
        """Yield the lines without their line ends, skipping blank ones, until the input ends or `stop` is called."""
        rest: list[bytes] = []
        length, passing = 0, False
        while chunk := await self._chunks.get():
            self._room.release()
            *ended, last = chunk.split(b"\n")
            for part in ended:
                line = b"".join((*rest, part))
                rest, length = [], 0
                if passing:
                    passing = False
                elif len(line) > self._limit:
                    yield OversizedLine(self._limit)
                elif line.strip():
                    yield line
            length += len(last)
            if passing or length > self._limit:
                if not passing:
                    yield OversizedLine(self._limit)
                rest, length, passing = [], 0, True
            else:
                rest.append(last)
        line = b"".join(rest)
        if line.strip():
            yield line

    def stop(self) -> None:
        """Stop reading: `lines` ends after the lines that are already read."""
        # An empty chunk marks the end.
        self._chunks.put_nowait(b"")

    async def write(self, data: bytes) -> None:
        """Write all of the data; do nothing after an earlier write failed."""
        if self.broken.is_set():
            return
        if not self._queued and len(data) <= _PIPE_ROOM and self._has_room():
            try:
                _write_all(self._target, data)
            except OSError as error:
                self._failed(error)
            return
        written = self._loop.create_future()
        self._queued += 1
        self._outgoing.put((data, written))
        await written

    def _written(self, written: asyncio.Future[None]) -> None:
        # Also if nobody waits for it any more: a later line must not overtake it.
        self._queued -= 1
        if not written.done():
            written.set_result(None)

    def _failed(self, error: OSError) -> None:
        # The client closed its end. That is the normal way to stop a stdio server, so `error` stays None then.
        if not isinstance(error, BrokenPipeError):
            self.error = error
        self.broken.set()

    def _reading(self) -> None:
        while self._room.acquire():
            try:
                chunk = os.read(self._source, _CHUNK)
            except OSError:
                chunk = b""
            if not self._tell(lambda chunk=chunk: self._chunks.put_nowait(chunk)) or not chunk:
                return

    def _writing(self) -> None:
        while True:
            data, written = self._outgoing.get()
            try:
                _write_all(self._target, data)
            except OSError as error:
                self._tell(partial(self._failed, error))
            if not self._tell(partial(self._written, written)):
                return

    def _tell(self, what: object) -> bool:
        # The threads outlive the loop; a closed loop raises RuntimeError.
        try:
            self._loop.call_soon_threadsafe(what)  # type: ignore[arg-type]
        except RuntimeError:
            return False
        return True


_PIPE_ROOM: Final = 4096
"""Bytes that a pipe takes at once if it can take any (`PIPE_BUF` of Linux; other systems let a write of 512 bytes wait)."""


def _room_check(target: int) -> Callable[[], bool]:
    """Returns whether a short write to a descriptor would return at once; never where that cannot be known."""
    # A hand-over to the writing thread and back takes four times as long as the write of a short line.
    if sys.platform != "linux":
        return lambda: False
    poll = select.poll()
    poll.register(target, select.POLLOUT)
    return lambda: poll.poll(0) == [(target, select.POLLOUT)]


def _write_all(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
