"""What a journal keeps of calls, and the databases that it is kept in.

A `JournalDatabase` has one table, `toolcrib_calls`, with one row per call. `SQLiteJournal` is a file that several processes
of one user may share; `security.journal_postgres` is a server that several machines may share. Their methods block, and
one thread at a time may use them; `engine.call_journal` runs them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from toolcrib.core.clock import RealClock
from toolcrib.core.errors import ToolcribError
from toolcrib.core.model import JSON
from toolcrib.core.text import decode_json
from toolcrib.core.user_folders import STATE_VARIABLE, why_not_own

if TYPE_CHECKING:
    import sqlite3

T = TypeVar("T")

FORMAT: Final = 1
"""Version of the table. A newer one is refused."""

_APPLICATION: Final = 0x746F6F6C
"""The application ID in the header of the file: it tells a journal from other databases."""

_WAIT_MS: Final = 30_000
"""How long a write waits for those of other processes, in ms."""

_CHECKPOINT: Final = 1_000
"""Quick writes after which the log is copied into the database, so that it does not grow without bound."""


_OLD: Final = 3_600.0
"""Age of a lock file, in seconds, from which on a new process looks whether it is still locked."""


SLOW_WRITES: Final = 64
"""Number of durable writes in another thread until it is tried again whether the disk is quick."""


class UnusableJournal(ToolcribError):
    """A journal is corrupt, newer than this program, or cannot be read or written."""

    code = "journal_unusable"


class JournalEntry(NamedTuple):
    """A call in the journal, with `***` in place of secrets.

    Attributes:
        id: Number of the entry.
        tool: Name of the tool.
        mode: Mode in which it was called.
        arguments: Arguments of the call.
        state: `waiting` (its idempotency key is claimed, nothing has acted), `running`, `ended`, `unknown` (nobody knows
            whether it acted; it is never repeated automatically) or `resolved`.
        changes: Whether the tool may change something: its `read_only` is false.
        started: Time at which it began, in seconds since 1970.
        ended: Time at which it ended; None while it runs.
        outcome: Outcome of the call; None while it runs.
        code: Error code; empty if the outcome is `ok`.
        message: Error message; empty if the outcome is `ok`.
        attempts: Number of attempts.
        call: ID of the call in its runtime.
        session: ID of the session.
        caller: Caller of the call.
        user: User of the call.
        correlation: Correlation ID of the call.
        key: Idempotency key; empty if the call had none.
        resolution: How a person closed an entry in state `unknown`: `{acted, by, at, note}`; None otherwise.
    """

    id: int
    tool: str
    mode: str
    arguments: JSON
    state: str
    changes: bool
    started: float
    ended: float | None
    outcome: str | None
    code: str
    message: str
    attempts: int
    call: str
    session: str
    caller: str
    user: str
    correlation: str
    key: str
    resolution: dict[str, JSON] | None


class KeyedCall(NamedTuple):
    """The call that holds an idempotency key.

    Attributes:
        id: Number of its entry.
        state: As `JournalEntry.state`.
        digest: Digest of its tool and arguments.
        result: Its stored result as text; None if there is none.
        sealed: Whether the text is encrypted.
        acted: What a person found out about a call whose effect was unknown; None if nobody did.
    """

    id: int
    state: str
    digest: str
    result: str | None
    sealed: bool
    acted: bool | None


class Database(Protocol):
    """A connection to a database: SQL with `?` for values. All methods raise UnusableJournal."""

    owner: str
    """Name of this process among those that share the journal."""

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement and return its rows."""
        ...

    def execute_at_once(
        self, sql: str, values: Sequence[Any], *, durable: bool
    ) -> list[tuple[Any, ...]] | None:
        """Execute and commit one statement in any thread without waiting, and return its rows.

        Args:
            sql: The statement.
            values: Its values.
            durable: As for `transact`. The thread then waits for the disk, if it is quick.

        Returns:
            The rows; None if that is not possible now, and nothing was done.
        """
        ...

    def transact(self, work: Callable[[], Any], *, durable: bool) -> Any:
        """Run work in a transaction.

        Args:
            work: Executes statements.
            durable: Whether the transaction must survive a power failure, and not only the end of the process.
        """
        ...

    def is_alive(self, owner: str) -> bool:
        """Whether the process of this name still runs."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


_COLUMNS: Final = (
    "id, tool, mode, arguments, state, changes, started, ended, outcome, code, message, attempts, call, session, caller, "
    "user_name, correlation, key, resolution"
)

# `DOUBLE PRECISION` and partial indexes are the same in SQLite and PostgreSQL. Most rows are read-only calls that have
# ended without a key: they are in neither index.
TABLES: Final = (
    """
    CREATE TABLE toolcrib_calls (
        id {identity},
        owner TEXT NOT NULL,
        tool TEXT NOT NULL,
        mode TEXT NOT NULL,
        arguments TEXT NOT NULL,
        state TEXT NOT NULL,
        changes INTEGER NOT NULL,
        started DOUBLE PRECISION NOT NULL,
        ended DOUBLE PRECISION,
        outcome TEXT,
        code TEXT NOT NULL DEFAULT '',
        message TEXT NOT NULL DEFAULT '',
        attempts INTEGER NOT NULL DEFAULT 0,
        call TEXT NOT NULL,
        session TEXT NOT NULL,
        caller TEXT NOT NULL,
        user_name TEXT NOT NULL,
        correlation TEXT NOT NULL,
        key TEXT NOT NULL DEFAULT '',
        key_digest TEXT,
        arguments_digest TEXT,
        result TEXT,
        sealed INTEGER NOT NULL DEFAULT 0,
        resolution TEXT
    )
    """,
    "CREATE UNIQUE INDEX toolcrib_calls_keys ON toolcrib_calls (key_digest) WHERE key_digest IS NOT NULL",
    "CREATE INDEX toolcrib_calls_open ON toolcrib_calls (state) WHERE state <> 'ended'",
)

_INSERT: Final = (
    "INSERT INTO toolcrib_calls (owner, state, tool, mode, arguments, changes, started, call, session, caller, user_name, "
    "correlation, {more}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {values})"
)
_BEGIN: Final = _INSERT.format(more="ended", values="NULL") + " RETURNING id"
_RECORD: Final = _INSERT.format(more="ended, outcome, code, message, attempts", values="?, ?, ?, ?, ?")
_CLAIM: Final = (
    _INSERT.format(more="key, key_digest, arguments_digest", values="?, ?, ?")
    + " ON CONFLICT (key_digest) WHERE key_digest IS NOT NULL DO NOTHING RETURNING id"
)
_HOLDER: Final = "SELECT id, state, arguments_digest, result, sealed, resolution, owner FROM toolcrib_calls WHERE key_digest = ?"


class CallRow(NamedTuple):
    """The part of a row that is known when a call begins."""

    tool: str
    mode: str
    arguments: str
    changes: int
    started: float
    call: str
    session: str
    caller: str
    user: str
    correlation: str


class EndRow(NamedTuple):
    """The part of a row that is known when a call has ended."""

    ended: float
    outcome: str
    code: str
    message: str
    attempts: int


class NotNow(Exception):
    """A statement cannot be executed at once."""


class _AtOnce:
    """A connection whose statements are committed one by one, durably and at once, or raise NotNow."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.owner = database.owner

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        found = self._database.execute_at_once(sql, values, durable=True)
        if found is None:
            raise NotNow
        return found


class JournalDatabase:
    """The statements of a journal.

    Args:
        database: The connection.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        at_once: Any = _AtOnce(database)  # it has what single statements need
        self._at_once = self if isinstance(database, _AtOnce) else JournalDatabase(at_once)

    def transact(self, work: Callable[[], Any], *, durable: bool) -> Any:
        """Run work in a transaction; see `Database.transact`."""
        return self._database.transact(work, durable=durable)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def begin(self, row: CallRow) -> int:
        """Write the intent of a call, and return the number of its entry."""
        return int(self._database.execute(_BEGIN, (self._database.owner, "running", *row))[0][0])

    def record_at_once(self, row: CallRow, end: EndRow) -> bool:
        """Write a call that has ended without waiting; False if that is not possible now."""
        values = (self._database.owner, "ended", *row, *end)
        return self._database.execute_at_once(_RECORD, values, durable=False) is not None

    def at_once(self, work: Callable[[JournalDatabase], T]) -> T:
        """Run work of a single durable statement in any thread without waiting for other writes.

        Raises:
            NotNow: That is not possible now, and nothing was done.
        """
        return work(self._at_once)

    def record(self, row: CallRow, end: EndRow) -> None:
        """Write a call that has ended."""
        self._database.execute(_RECORD, (self._database.owner, "ended", *row, *end))

    def claim(self, row: CallRow, key: str, key_digest: str, digest: str) -> int | KeyedCall:
        """Claim an idempotency key for a call: the number of its entry, or the call that holds the key."""
        for _attempt in range(2):
            values = (self._database.owner, "waiting", *row, key, key_digest, digest)
            found = self._database.execute(_CLAIM, values)
            if found:
                return int(found[0][0])
            held = self._database.execute(_HOLDER, (key_digest,))
            if not held:  # it was released in between
                continue
            id_, state, other, result, sealed, resolution, owner = held[0]
            if state in {"waiting", "running"} and not self._database.is_alive(owner):
                self.settle()
                continue
            told: Any = None if resolution is None else decode_json(resolution)
            return KeyedCall(id_, state, other, result, bool(sealed), told and bool(told["acted"]))
        return KeyedCall(0, "running", digest, None, sealed=False, acted=None)

    def release(self, id_: int) -> None:
        """Remove a claim whose call has not acted."""
        self._database.execute("DELETE FROM toolcrib_calls WHERE id = ? AND state = 'waiting'", (id_,))

    def begin_claimed(self, id_: int) -> int:
        """Write the intent of a call that holds an idempotency key, and return the number of its entry."""
        self._database.execute("UPDATE toolcrib_calls SET state = 'running' WHERE id = ?", (id_,))
        return id_

    def end(
        self, id_: int, end: EndRow, *, known: bool, result: str | None, sealed: bool, keep: bool
    ) -> None:
        """Write how a call ended.

        Args:
            id_: Number of its entry.
            end: How it ended.
            known: Whether it is known whether the call acted.
            result: The result to keep for its idempotency key.
            sealed: Whether the result is encrypted.
            keep: Whether it keeps its idempotency key.
        """
        self._database.execute(
            "UPDATE toolcrib_calls SET state = ?, ended = ?, outcome = ?, code = ?, message = ?, attempts = ?, result = ?, "
            "sealed = ?, key_digest = CASE WHEN ? = 1 THEN key_digest END WHERE id = ? AND state <> 'resolved'",
            ("ended" if known else "unknown", *end, result, int(sealed), int(keep), id_),
        )

    def settle(self) -> None:
        """Give the calls of processes that have ended their state: those that may have acted are `unknown`."""
        rows = self._database.execute(
            "SELECT DISTINCT owner FROM toolcrib_calls WHERE state = 'waiting' OR state = 'running'"
        )
        for (owner,) in rows:
            if owner == self._database.owner or self._database.is_alive(owner):
                continue
            # A call that waited for its turn, or only reads, has not acted: its key is free.
            self._database.execute(
                "DELETE FROM toolcrib_calls WHERE owner = ? AND state = 'waiting'", (owner,)
            )
            self._database.execute(
                "UPDATE toolcrib_calls SET state = 'unknown', outcome = 'unknown_outcome', code = 'process_ended', message = "
                "'the process ended before the call did' WHERE owner = ? AND state = 'running'",
                (owner,),
            )

    def entries(
        self,
        *,
        state: str = "",
        tool: str = "",
        since: float = 0.0,
        before: int | None = None,
        most: int = 100,
    ) -> list[JournalEntry]:
        """The newest entries, the newest first."""
        self.settle()
        wanted = ["started >= ?"]
        values: list[Any] = [since]
        for column, value in (("state", state), ("tool", tool)):
            if value:
                wanted.append(f"{column} = ?")
                values.append(value)
        if before is not None:
            wanted.append("id < ?")
            values.append(before)
        rows = self._database.execute(
            f"SELECT {_COLUMNS} FROM toolcrib_calls WHERE {' AND '.join(wanted)} ORDER BY id DESC LIMIT ?",  # noqa: S608 -- names of columns
            (*values, most),
        )
        return [_entry(row) for row in rows]

    def get(self, id_: int) -> JournalEntry | None:
        """An entry; None if it is unknown."""
        self.settle()
        rows = self._database.execute(f"SELECT {_COLUMNS} FROM toolcrib_calls WHERE id = ?", (id_,))  # noqa: S608 -- as above
        return _entry(rows[0]) if rows else None

    def resolve(self, id_: int, resolution: dict[str, JSON], result: str | None, *, sealed: bool) -> bool:
        """Close an entry in state `unknown`; False if it is in another one."""
        return bool(
            self._database.execute(
                "UPDATE toolcrib_calls SET state = 'resolved', resolution = ?, result = ?, sealed = ?, key_digest = CASE WHEN "
                "? = 1 THEN key_digest END WHERE id = ? AND state = 'unknown' RETURNING id",
                (json.dumps(resolution), result, int(sealed), int(bool(resolution["acted"])), id_),
            )
        )

    def prune(self, before: float) -> None:
        """Remove the entries that began before a time, unless a person must still resolve them."""
        self._database.execute(
            "DELETE FROM toolcrib_calls WHERE started < ? AND (state = 'ended' OR state = 'resolved')",
            (before,),
        )


def _entry(row: Sequence[Any]) -> JournalEntry:
    values = dict(zip(JournalEntry._fields, row, strict=True))
    try:
        values["arguments"] = decode_json(values["arguments"])
        resolution = values["resolution"]
        values["resolution"] = None if resolution is None else decode_json(resolution)
    except ValueError:
        raise UnusableJournal(
            f"entry {values['id']} of the journal is corrupt", hint="remove it, or move the journal away"
        ) from None
    return JournalEntry(**{**values, "changes": bool(values["changes"])})


class SQLiteJournal:
    """A journal in a file, in WAL mode.

    Several processes may share it. Each holds a lock on a file of its own beside it, which the system releases when the
    process ends, however it ends.

    Args:
        path: The file; it is created if it does not exist.
        quick_disk: How long a durable write in the thread of a caller may take, in seconds. After a slower one, the next
            `SLOW_WRITES` have to wait in another thread.
    """

    def __init__(self, path: str | Path, *, quick_disk: float = 0.002) -> None:
        self._quick_disk = quick_disk
        self.path = os.path.abspath(path)
        self.owner = os.urandom(8).hex()
        self._quick_lock = Lock()
        self._quick_writes = 0
        self._quick_durable = False
        self._slow_writes = 0
        opened: list[sqlite3.Connection] = []
        try:
            self._check_folder()
            self._connection = self._connected(opened, _WAIT_MS)
            self._check_format()
            self._quick = self._connected(opened, 0)
            # A quick write must not copy the log, which waits for the disk. `transact` does.
            self._quick.execute("PRAGMA wal_autocheckpoint = 0")
            self._quick.execute("PRAGMA synchronous = NORMAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._own = self._held(opened)
        except BaseException as error:
            for connection in opened:
                connection.close()
            if isinstance(error, UnusableJournal):
                raise
            if isinstance(error, OSError) or _is_database_error(error):
                raise self._unusable(error) from error
            raise

    def _check_folder(self) -> None:
        folder = os.path.dirname(self.path)
        os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        why = why_not_own(folder)
        if why:
            raise UnusableJournal(
                f"the journal {self.path} is not used: {folder}: {why}",
                hint=f"use a folder that only you can write to; {STATE_VARIABLE} names that of projects",
            )
        # SQLite gives the files of its log the permissions of the database.
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))

    def _connected(
        self, opened: list[sqlite3.Connection], wait_ms: int, path: str = ""
    ) -> sqlite3.Connection:
        import sqlite3  # noqa: PLC0415 -- takes milliseconds, and most runtimes keep no journal

        connection = sqlite3.connect(
            path or self.path, timeout=wait_ms / 1000, isolation_level=None, check_same_thread=False
        )
        opened.append(connection)
        return connection

    def _check_format(self) -> None:
        def pragma(name: str) -> int:
            return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

        def create() -> None:
            if pragma("user_version") == 0 and pragma("schema_version") == 0:
                for statement in TABLES:
                    self._connection.execute(statement.format(identity="INTEGER PRIMARY KEY"))
                self._connection.execute(f"PRAGMA application_id = {_APPLICATION}")
                self._connection.execute(f"PRAGMA user_version = {FORMAT}")

        self._connection.execute("PRAGMA journal_mode = WAL")
        if pragma("user_version") == 0:
            self.transact(create, durable=True)
        found = pragma("user_version")
        if pragma("application_id") != _APPLICATION:
            raise UnusableJournal(f"{self.path} is not a journal", hint="move the file away")
        if found > FORMAT:
            raise UnusableJournal(
                f"the journal {self.path} is not used: a newer version wrote it (format {found}, expected {FORMAT})",
                hint="update toolcrib, or move the file away",
            )

    def _held(self, opened: list[sqlite3.Connection]) -> sqlite3.Connection:
        """Hold the lock of this process until it ends."""
        connection = self._connected(opened, 0, self._lock_file(self.owner))
        connection.execute("BEGIN EXCLUSIVE")
        name = os.path.basename(self.path)
        for entry in os.scandir(os.path.dirname(self.path)):
            # A process without a call in flight that was killed leaves its file. A new file may not have its lock yet.
            owner = entry.name.removeprefix(f"{name}.").removesuffix(".lock")
            old = now() - entry.stat().st_mtime > _OLD
            if old and entry.name == f"{name}.{owner}.lock":
                self.is_alive(owner)
        return connection

    def _lock_file(self, owner: str) -> str:
        return f"{self.path}.{owner}.lock"

    def is_alive(self, owner: str) -> bool:
        """Whether the process of this name still runs."""
        path = self._lock_file(owner)
        if owner == self.owner or not os.path.exists(path):
            return owner == self.owner
        opened: list[sqlite3.Connection] = []
        try:
            self._connected(opened, 0, path).execute("BEGIN IMMEDIATE")
        except Exception as error:
            if not _is_database_error(error):
                raise
            return True
        finally:
            for connection in opened:
                connection.close()
        with suppress(OSError):
            os.unlink(path)
        return False

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement and return its rows."""
        return self._connection.execute(sql, values).fetchall()

    def execute_at_once(
        self, sql: str, values: Sequence[Any], *, durable: bool
    ) -> list[tuple[Any, ...]] | None:
        """Execute and commit one statement in any thread without waiting for other writes, and return its rows."""
        if self._quick_writes >= _CHECKPOINT or not self._quick_lock.acquire(blocking=False):
            return None
        try:
            if durable:
                if self._slow_writes > 0:
                    self._slow_writes -= 1
                    return None
                began = RealClock.monotonic()
            if durable is not self._quick_durable:
                self._quick.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                self._quick_durable = durable
            found = self._quick.execute(sql, values).fetchall()
            if durable and RealClock.monotonic() - began > self._quick_disk:
                self._slow_writes = SLOW_WRITES
        except Exception as error:
            if not _is_database_error(error):
                raise
            # Another process writes, or the disk is full: `transact` waits, or finds out.
            return None
        finally:
            self._quick_lock.release()
        self._quick_writes += 1
        return found

    def transact(self, work: Callable[[], Any], *, durable: bool) -> Any:  # noqa: ARG002 -- all transactions are
        """Run work in a transaction, which is on the disk when this returns."""
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                found = work()
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            if self._quick_writes >= _CHECKPOINT:
                self._quick_writes = 0
                self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except Exception as error:
            if _is_database_error(error):
                raise self._unusable(error) from error
            raise
        return found

    def close(self) -> None:
        """Close the file and release the lock of this process."""
        with self._quick_lock:
            self._quick.close()
        for connection in (self._connection, self._own):
            connection.close()
        with suppress(OSError):
            os.unlink(self._lock_file(self.owner))

    def _unusable(self, error: BaseException) -> UnusableJournal:
        why = str(getattr(error, "strerror", None) or error)
        if "not a database" in why or "malformed" in why:
            return UnusableJournal(
                f"the journal {self.path} is not used: it is corrupt ({why})",
                hint="repair it, or move it away",
            )
        return UnusableJournal(
            f"cannot write the journal {self.path}: {why}",
            hint=f"free space, set {STATE_VARIABLE} to another folder, or switch the journal off with `journal: off`",
        )


def _is_database_error(error: BaseException) -> bool:
    import sqlite3  # noqa: PLC0415 -- as above

    return isinstance(error, sqlite3.Error)


now: Final[Callable[[], float]] = RealClock.timestamp
"""The time in seconds since 1970. Entries have real times, also those of sessions on virtual time."""


def storable(text: str) -> str:
    """A text that every database can store: without lone surrogates and NUL characters."""
    return text if text.isprintable() else text.encode(errors="replace").decode().replace("\0", "\ufffd")


def pages(read: Callable[[int | None], list[JournalEntry]]) -> Iterator[JournalEntry]:
    """All entries of a journal, the newest first, read page by page; `read` takes the ID before which a page begins."""
    before: int | None = None
    while page := read(before):
        yield from page
        before = page[-1].id
