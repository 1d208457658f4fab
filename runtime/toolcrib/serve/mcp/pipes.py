"""The standard streams as lines of bytes, read and written by threads that do not keep the process from ending."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Final, NamedTuple, Self

from toolcrib.serve.mcp.options import MOST_BODY

_CHUNK: Final = 1 << 16
_AHEAD: Final = 16
"""Chunks that are read before anybody takes them."""

_STDIN, _STDOUT, _STDERR = 0, 1, 2


class TooLong(NamedTuple):
    """Stands for a line that was passed over.

    Attributes:
        limit: Bytes that it may have.
    """

    limit: int


class Pipes:
    """A pipe to read lines from and one to write to.

    Attributes:
        broken: Set when nothing can be written any more.
        error: Why; None while it can, and where the reader went away.
    """

    def __init__(self, source: int, target: int, *, limit: int = MOST_BODY) -> None:
        """Read and write these file descriptors.

        Args:
            source: Is read.
            target: Is written to.
            limit: Bytes of a line at most.
        """
        self.broken = asyncio.Event()
        self.error: OSError | None = None
        self._source, self._target, self._limit = source, target, limit
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(_AHEAD)
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._outgoing: SimpleQueue[tuple[bytes, asyncio.Future[None]]] = SimpleQueue()
        for work in (self._reading, self._writing):
            threading.Thread(target=work, name=f"toolcrib-stdio{work.__name__}", daemon=True).start()

    @classmethod
    @contextmanager
    def claimed(cls) -> Iterator[Self]:
        """Stdin and stdout, for nobody else: within the block what prints goes to stderr, and what reads meets the end.

        Raises:
            OSError: One of them is closed.
        """
        source, target = os.dup(_STDIN), os.dup(_STDOUT)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, _STDIN)
        os.close(nothing)
        os.dup2(_STDERR, _STDOUT)
        try:
            yield cls(source, target)
        finally:
            os.dup2(source, _STDIN)
            os.dup2(target, _STDOUT)

    async def lines(self) -> AsyncIterator[bytes | TooLong]:
        """The lines, without their ends; those of nothing but blanks are passed over. Ends with the input, or by `stop`."""
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
                    yield TooLong(self._limit)
                elif line.strip():
                    yield line
            length += len(last)
            if passing or length > self._limit:
                if not passing:
                    yield TooLong(self._limit)
                rest, length, passing = [], 0, True
            else:
                rest.append(last)
        line = b"".join(rest)
        if line.strip():
            yield line

    def stop(self) -> None:
        """Read no more."""
        self._chunks.put_nowait(b"")

    async def write(self, data: bytes) -> None:
        """Write all of it; once that has failed, nothing."""
        if self.broken.is_set():
            return
        written = self._loop.create_future()
        self._outgoing.put((data, written))
        await written

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
            except BrokenPipeError:
                self._tell(self.broken.set)
            except OSError as error:
                self.error = error
                self._tell(self.broken.set)
            if not self._tell(lambda written=written: written.done() or written.set_result(None)):
                return

    def _tell(self, what: object) -> bool:
        """Have something done by the event loop; False where it is over."""
        try:
            self._loop.call_soon_threadsafe(what)  # type: ignore[arg-type]
        except RuntimeError:
            return False
        return True


def _write_all(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
