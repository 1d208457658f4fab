"""A journal in PostgreSQL, which several machines may share. Needs the extra `postgres`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from toolcrib.core.errors import NotReady
from toolcrib.security.journal import FORMAT, TABLES, UnusableJournal

if TYPE_CHECKING:
    from types import ModuleType

_LOCK: Final = 0x746F6F6C
"""First key of the advisory locks of this program; the second one is the owner."""

_CONNECT_SECONDS: Final = 10
_STATEMENT_MS: Final = 30_000


def load_driver() -> ModuleType:
    """The package `psycopg`.

    Raises:
        NotReady: It is not installed.
    """
    try:
        import psycopg  # noqa: PLC0415 -- an extra
    except ImportError:
        raise NotReady(
            "a journal in PostgreSQL needs the package `psycopg`, which is not installed",
            hint="pip install 'toolcrib[postgres]'",
        ) from None
    return psycopg


class PostgresJournal:
    """A connection to a journal in PostgreSQL.

    Each process holds an advisory lock, which the server releases when the connection ends. It needs a connection of its
    own: a pooler that gives each transaction another one loses the lock.

    Args:
        address: `postgresql://user:password@host:port/database`.

    Raises:
        UnusableJournal: The server cannot be reached, or the journal is newer than this program.
    """

    def __init__(self, address: str) -> None:
        try:
            self._driver: Any = load_driver()
        except NotReady as error:
            raise UnusableJournal(error.message, hint=error.hint) from None
        self._address = address
        # A signed 32-bit integer, as the server takes it.
        self.owner = str(int.from_bytes(os.urandom(4)) - (1 << 31))
        self._connection = self._connected()
        try:
            with self._translated():
                self._check_format()
        except BaseException:
            self.close()
            raise

    def _connected(self) -> Any:
        with self._translated():
            connection = self._driver.connect(
                self._address,
                autocommit=True,
                connect_timeout=_CONNECT_SECONDS,
                options=f"-c statement_timeout={_STATEMENT_MS} -c lock_timeout={_STATEMENT_MS}",
                application_name="toolcrib",
            )
            connection.execute("SELECT pg_advisory_lock(%s, %s)", (_LOCK, int(self.owner)))
        return connection

    def _check_format(self) -> None:
        with self._connection.transaction():
            # Two processes that create the tables at the same time take turns.
            self._connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            there = self._connection.execute("SELECT to_regclass('toolcrib_journal') IS NOT NULL").fetchone()
            if not there[0]:
                self._connection.execute("CREATE TABLE toolcrib_journal (format INTEGER NOT NULL)")
                self._connection.execute("INSERT INTO toolcrib_journal VALUES (%s)", (FORMAT,))
                for statement in TABLES:
                    identity = "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
                    self._connection.execute(statement.format(identity=identity))
            found = self._connection.execute("SELECT max(format) FROM toolcrib_journal").fetchone()[0]
        if found is None or found > FORMAT:
            raise UnusableJournal(
                f"the journal in PostgreSQL is not used: a newer version wrote it (format {found}, expected {FORMAT})",
                hint="update toolcrib, or use another database",
            )

    def is_alive(self, owner: str) -> bool:
        """Whether the connection of this process still exists."""
        if owner == self.owner:
            return True
        rows = self.execute(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = "
            "current_database()) AND classid = ?::bigint::oid AND objid = ?::bigint::oid AND objsubid = 2",
            # The server shows the keys as unsigned integers.
            (_LOCK, int(owner) % (1 << 32)),
        )
        return bool(rows)

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Execute a statement and return its rows."""
        cursor = self._connection.execute(sql.replace("?", "%s"), values)
        return cursor.fetchall() if cursor.description is not None else []

    def execute_at_once(self, sql: str, values: Sequence[Any], *, durable: bool) -> None:
        """Never possible: a server is asked over the network."""

    def transact(self, work: Callable[[], Any], *, durable: bool) -> Any:
        """Run work in a transaction; one that need not be durable does not wait for the disk of the server."""
        with self._translated():
            if self._connection.closed:
                self._connection = self._connected()
            with self._connection.transaction():
                if not durable:
                    self._connection.execute("SET LOCAL synchronous_commit = off")
                return work()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._driver.Error as error:
            # Only the first line: others may repeat values of the statement.
            why = str(error).strip().partition("\n")[0] or type(error).__name__
            raise UnusableJournal(
                f"the journal in PostgreSQL cannot be used: {why}",
                hint="check the server and `journal` of the project",
            ) from error
