"""The thread that writes a journal. Writes that arrive together share a transaction."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

from toolcrib.security.journal import JournalDatabase, NotNow, now

if TYPE_CHECKING:
    import asyncio

    from toolcrib.security.journal import CallRow, Database, EndRow

T = TypeVar("T")

Work: TypeAlias = Callable[[JournalDatabase], T]
"""A write or a reading, within a transaction."""

_PRUNE_EVERY: Final = 3_600.0
"""Seconds between two removals of old entries."""

_BATCH: Final = 64
"""Maximum number of writes that share a transaction."""


class _Forks:
    """Counts the forks that led to this process. Asking the system for the number of the process takes half a microsecond."""

    count = 0

    @classmethod
    def add(cls) -> None:
        """Count a fork, in the new process."""
        cls.count += 1


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_Forks.add)


class _Write(NamedTuple):
    """A write, and what receives its value or its error, in the thread of the journal."""

    work: Work[Any]
    durable: bool
    settle: Callable[[Any, Exception | None], None]


class JournalWriter:
    """Runs the writes of a journal in a thread.

    Args:
        connect: Opens the database; called in the thread at the first write.
        keep: Seconds for which ended entries are kept; None for ever.
    """

    def __init__(self, connect: Callable[[], Database], keep: float | None) -> None:
        self._connect = connect
        self._keep = keep
        self._queue: SimpleQueue[_Write | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._forks = _Forks.count
        self._connection: Database | None = None
        self._database: JournalDatabase | None = None
        self._pruned = 0.0

    def record_at_once(self, row: CallRow, end: EndRow) -> bool:
        """Write a call that has ended without waiting; False if that is not possible now."""
        database = self._database
        return database is not None and self._forks == _Forks.count and database.record_at_once(row, end)

    def run_at_once(self, work: Work[T]) -> T:
        """Run durable work of a single statement in this thread.

        Raises:
            NotNow: That is not possible now, and nothing was done.
        """
        database = self._database
        if database is None or self._forks != _Forks.count:
            raise NotNow
        return database.at_once(work)

    def run(self, work: Work[T], *, durable: bool) -> T:
        """Run work in a transaction, and wait for it in any thread but that of an event loop."""
        future: Future[T] = Future()

        def settle(value: T, error: Exception | None) -> None:
            if error is None:
                future.set_result(value)
            else:
                future.set_exception(error)

        self._submit(_Write(work, durable, settle))
        return future.result()

    async def write(
        self, work: Work[T], *, durable: bool, undo: Callable[[T], Work[object]] | None = None
    ) -> T:
        """Run work in a transaction, and wait for it.

        Args:
            work: The work.
            durable: Whether it must survive a power failure.
            undo: Returns what is written if the caller is cancelled meanwhile and the work was done.
        """
        import asyncio  # noqa: PLC0415 -- a call that never waits needs none of it

        loop = asyncio.get_running_loop()
        written: asyncio.Future[T] = loop.create_future()
        done: list[T] = []

        def run(database: JournalDatabase) -> T:
            # Again if the transaction failed because of another write.
            done[:] = [work(database)]
            return done[0]

        # A future of asyncio that is settled in its loop: `wrap_future` takes three times as long.
        def settle(value: T, error: Exception | None) -> None:
            with suppress(RuntimeError):  # the loop was closed, and the caller with it
                loop.call_soon_threadsafe(_deliver, written, value, error)

        self._submit(_Write(run, durable, settle))
        try:
            return await written
        except asyncio.CancelledError:
            if undo is not None:
                # Writes run in the order of their submission, so it is known then whether the work was done.
                self.submit(lambda database: undo(done[0])(database) if done else None, durable=durable)
            raise

    def submit(self, work: Work[object], *, durable: bool) -> None:
        """Run work in a transaction, without waiting. An error is logged."""
        self._submit(_Write(work, durable, _log_error))

    def _submit(self, write: _Write) -> None:
        with self._lock:
            if self._thread is None or self._forks != _Forks.count:
                # A process that was forked must not use the connection of its parent.
                if self._forks != _Forks.count:
                    self._connection = self._database = None
                    self._queue = SimpleQueue()
                self._forks = _Forks.count
                self._thread = Thread(
                    target=self._serve, args=(self._queue,), name="toolcrib journal", daemon=True
                )
                self._thread.start()
            self._queue.put(write)

    def stop(self) -> None:
        """Run what was submitted, and close the database. Work that is submitted later opens it again."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None or self._forks != _Forks.count:
                return
            self._queue.put(None)
        # The garbage collector may run in any thread, also in this one.
        if thread is not current_thread():
            thread.join()

    def _serve(self, queue: SimpleQueue[_Write | None]) -> None:
        running = True
        while running:
            batch = [queue.get()]
            while len(batch) < _BATCH and not queue.empty():
                batch.append(queue.get())
            running = None not in batch
            writes = [write for write in batch if write is not None]
            if writes:
                self._commit(writes)
            # While it waits, the thread keeps nothing of those that it has written for.
            batch, writes = [], []
        if self._connection is not None:
            self._connection.close()
        self._connection = self._database = None

    def _commit(self, writes: list[_Write]) -> None:
        try:
            found = self._transacted(writes)
        except Exception as error:  # noqa: BLE001 -- whoever waits for the write gets the error
            if len(writes) > 1:
                # One by one, so that the fault of one write is not that of the others.
                for write in writes:
                    self._commit([write])
            else:
                writes[0].settle(None, error)
            return
        for write, value in zip(writes, found, strict=True):
            write.settle(value, None)

    def _transacted(self, writes: list[_Write]) -> list[Any]:
        if self._connection is None or self._database is None:
            self._connection = self._connect()
            self._database = JournalDatabase(self._connection)
            self._connection.transact(self._database.settle, durable=True)
        connection, database = self._connection, self._database
        time = now()
        if self._keep is not None and time - self._pruned > _PRUNE_EVERY:
            self._pruned, before = time, time - self._keep
            connection.transact(lambda: database.prune(before), durable=False)
        found: list[Any] = connection.transact(
            lambda: [write.work(database) for write in writes], durable=any(write.durable for write in writes)
        )
        return found


def _deliver(written: asyncio.Future[T], value: T, error: Exception | None) -> None:
    if written.done():  # its caller was cancelled
        return
    if error is None:
        written.set_result(value)
    else:
        written.set_exception(error)


def _log_error(_value: object, error: Exception | None) -> None:
    if error is not None:
        import logging  # noqa: PLC0415 -- not needed unless there is something to log

        logging.getLogger("toolcrib").error("an entry of the journal was not written: %s", error)
