"""The journal of a runtime: what it called outside, and how the calls ended. See `Runtime.journal`.

A tool that may change something is called only once the intent is on the disk, so that a crash leaves an entry in state
`unknown`, which a person resolves. A call that only reads is written when it has ended. Writes of concurrent calls share a
transaction, which a thread commits.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread, current_thread
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar
from weakref import finalize, ref

from toolcrib.core.clock import RealClock, parse_duration
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, NOTHING, Call, Content, Failure, Outcome, Result
from toolcrib.core.text import canonical, decode_json
from toolcrib.core.user_folders import STATE_VARIABLE, state_folder
from toolcrib.engine.middleware.budget import may_have_spent
from toolcrib.engine.middleware.call_failures import attempts_of, may_have_acted, without_attempts
from toolcrib.security.encryption import CannotDecrypt, Cipher, NoKey, load_cipher
from toolcrib.security.journal import (
    CallRow,
    EndRow,
    JournalDatabase,
    JournalEntry,
    KeyedCall,
    SQLiteJournal,
    UnusableJournal,
    pages,
)
from toolcrib.security.redaction import Redactor, redact

if TYPE_CHECKING:
    import logging

    from toolcrib.security.journal import Database

T = TypeVar("T")

KEEP: Final = 30 * 86_400.0
"""Default time for which ended entries and their idempotency keys are kept, in seconds."""

LONGEST_KEY: Final = 255
"""Maximum length of an idempotency key, in characters."""

_CLOCK: Final = RealClock()
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
"""ASCII only, because no database stores lone surrogates, which a Python program may pass in arguments."""

MOST_KEYS: Final = 10_000
"""Maximum number of results by idempotency key in the memory of a session."""

_PRUNE_EVERY: Final = 3_600.0
_BATCH: Final = 64
"""Maximum number of writes that share a transaction."""


class JournalError(ConfigurationError):
    """An entry of a journal is unknown, or cannot be resolved."""

    code = "unknown_entry"


class Running(NamedTuple):
    """Another call with the same idempotency key runs."""


RUNNING: Final = Running()


class IdempotencyKeys(Protocol):
    """Remembers the results of calls with an idempotency key."""

    async def claim(self, call: Call) -> Result | Running | None:
        """Claim the key of a call. None: the call must be made; a result: it is the answer."""
        ...

    def release(self, call: Call, result: Result) -> None:
        """Keep the result of a call that was made, if it may have acted; otherwise free its key."""
        ...


class Journal:
    """The journal of a runtime.

    Example:
        ```python
        for entry in runtime.journal.entries(state="unknown"):
            print(entry.id, entry.tool, entry.arguments)
        ```

    Args:
        connect: Opens the database; called in a thread at the first use.
        secrets: Returns the secrets that were looked up so far, if any.
        cipher: Returns the cipher of the user, or raises NoKey.
        mocks: Whether calls that stay in the process are recorded, too.
        keep: Seconds for which ended entries are kept; None for ever.
    """

    def __init__(
        self,
        connect: Callable[[], Database],
        *,
        secrets: Callable[[], Redactor | None] = lambda: None,
        cipher: Callable[[], Cipher],
        mocks: bool = False,
        keep: float | None = KEEP,
    ) -> None:
        self.mocks = mocks
        self._secrets = secrets
        self._cipher = cipher
        self._writer = _Writer(connect, keep)
        # The thread keeps the writer alive, but not this object.
        finalize(self, self._writer.stop)
        self._claims: dict[str, int] = {}
        self._warned = False

    # For people and programs that look.

    def entries(
        self,
        *,
        state: str = "",
        tool: str = "",
        since: float = 0.0,
        before: int | None = None,
        most: int = 100,
    ) -> list[JournalEntry]:
        """The newest entries, the newest first.

        Args:
            state: Only entries in this state, such as `unknown`; empty for all.
            tool: Only calls of this tool; empty for all.
            since: Only calls that began at this time or later, in seconds since 1970.
            before: Only entries with a smaller ID: the ID of the last entry of the page before.
            most: Maximum number of entries.

        Raises:
            UnusableJournal: The journal is corrupt, newer than this program, or cannot be read.
        """
        return self._read(
            lambda database: database.entries(state=state, tool=tool, since=since, before=before, most=most)
        )

    def all_entries(self, *, state: str = "", tool: str = "", since: float = 0.0) -> Iterator[JournalEntry]:
        """All entries, the newest first; arguments and errors as for `entries`."""
        return pages(
            lambda before: self.entries(state=state, tool=tool, since=since, before=before, most=1000)
        )

    def get(self, id: int) -> JournalEntry:  # noqa: A002 -- matches `JournalEntry.id`
        """An entry.

        Raises:
            JournalError: The entry does not exist.
            UnusableJournal: As for `entries`.
        """
        found: JournalEntry | None = self._read(lambda database: database.get(id))
        if found is None:
            raise JournalError(f"unknown entry `{id}`", hint="list the entries with `toolcrib journal list`")
        return found

    def resolve(
        self,
        id: int,  # noqa: A002 -- as above
        *,
        acted: bool,
        result: JSON = None,
        by: str = "",
        note: str = "",
    ) -> JournalEntry:
        """Close an entry in state `unknown`, once a person knows whether the call acted.

        If it did not act, its idempotency key is free, and a call with this key is made. If it did, such a call gets
        `result`.

        Args:
            id: The entry.
            acted: Whether the call acted.
            result: The value of the call, if it acted and the value is known.
            by: Name of the person.
            note: Remark of the person.

        Raises:
            JournalError: The entry does not exist, or is not in state `unknown` (`not_unknown`).
            UnusableJournal: As for `entries`.
        """
        entry = self.get(id)
        text, sealed = None, False
        if acted and entry.key and result is not None:
            text, sealed = self._stored(Result.ok(result), secret=redact(result) != result)
        told: dict[str, JSON] = {"acted": acted, "by": by, "at": now(), "note": note}
        if entry.state != "unknown" or not self._writer.run(
            lambda database: database.resolve(id, told, text, sealed=sealed), durable=True
        ):
            raise JournalError(
                f"entry `{id}` cannot be resolved: its state is `{entry.state}`",
                code="not_unknown",
                hint="only entries in state `unknown` are resolved",
            )
        return self.get(id)

    def close(self) -> None:
        """Write what is left, and close the database. A call that ends later opens it again."""
        self._writer.stop()

    def _read(self, read: Callable[[JournalDatabase], T]) -> T:
        return self._writer.run(read, durable=False)

    # For layers.

    async def begin(self, call: Call) -> int:
        """Write the intent of a call, so that it survives a power failure; returns the number of its entry.

        Raises:
            UnusableJournal: It cannot be written. The call must not be made.
        """
        claimed = self._claims.get(call.id)
        if claimed is None:
            row = self._row(call)
            write = self._writer.submit(lambda database: database.begin(row), durable=True)
        else:
            write = self._writer.submit(lambda database: database.begin_claimed(claimed), durable=True)
        return await _written(write, lambda entry: self.end_later(entry, call, _not_made(call)))

    async def end(self, entry: int, call: Call, result: Result) -> Result:
        """Write how a call ended, and return its result."""
        try:
            await _written(self._writer.submit(self._ending(entry, call, result), durable=True))
        except UnusableJournal as error:
            # The call was made, so its result counts. Its entry becomes `unknown` when this process ends.
            _log().error("the end of entry %d of the journal was not written: %s", entry, error)
            return result.with_meta(journal={"entry": entry, "recorded": False})
        return result

    def end_later(self, entry: int, call: Call, result: Result) -> None:
        """`end` for a call that was cancelled: nobody waits for its result."""
        self._writer.submit(self._ending(entry, call, result), durable=True)

    def record(self, call: Call, started: float, result: Result) -> Future[Any] | None:
        """Write a call that only reads, and has ended. Returns what to wait for, if anything."""
        claimed = self._claims.get(call.id)
        if claimed is not None:
            return self._writer.submit(self._ending(claimed, call, result), durable=False)
        row, end = self._row(call, started), self._end_row(call, result)
        if self._writer.record_at_once(row, end):
            return None
        return self._writer.submit(lambda database: database.record(row, end), durable=False)

    def warn(self, error: UnusableJournal) -> None:
        """Log once that calls that only read are not recorded."""
        if not self._warned:
            self._warned = True
            _log().warning("calls that only read are not recorded: %s", error)

    async def claim(self, call: Call) -> Result | Running | None:
        """Claim the idempotency key of a call; see `IdempotencyKeys`."""
        row, key = self._row(call), call.context.idempotency_key
        key_digest, digest = key_digest_of(call), self._digest(call)
        shown = self._hidden(call, key)
        write = self._writer.submit(
            lambda database: database.claim(row, shown, key_digest, digest), durable=False
        )
        found = await _written(write, self._release)
        if isinstance(found, int):
            self._claims[call.id] = found
            return None
        if found.digest != digest:
            return conflict(call)
        if found.state in {"waiting", "running"}:
            return RUNNING
        if found.state == "unknown" and found.result is None:
            return repeated(_unknown(call, found.id), found.id)
        return repeated(self._restored(call, found), found.id)

    def release(self, call: Call, result: Result) -> None:  # noqa: ARG002 -- `end` has stored it
        """Free the key of a call that did not act; see `IdempotencyKeys`."""
        claimed = self._claims.pop(call.id, None)
        if claimed is not None:
            self._release(claimed)

    def _release(self, claimed: int | KeyedCall) -> None:
        if isinstance(claimed, int):
            self._writer.submit(lambda database: database.release(claimed), durable=False)

    def _row(self, call: Call, started: float | None = None) -> CallRow:
        context, tool = call.context, call.tool
        shown = redact(call.arguments, tool.input_schema)
        secrets = self._secrets()
        return CallRow(
            tool.name,
            tool.mode or "",
            _encode(shown if secrets is None else secrets.hide_in(shown)),
            not tool.annotations.read_only,
            now() if started is None else started,
            _clean(call.id),
            *_cleaned(context.session.id, context.caller, context.user, context.correlation),
        )

    def _end_row(self, call: Call, result: Result) -> EndRow:
        failure = result.error
        return EndRow(
            now(),
            result.outcome.value,
            "" if failure is None else _clean(failure.code),
            "" if failure is None else _clean(self._hidden(call, failure.message)),
            attempts_of(result),
        )

    def _ending(self, entry: int, call: Call, result: Result) -> Callable[[JournalDatabase], Any]:
        """The write of the end of a call; its idempotency key is released."""
        end = self._end_row(call, result)
        changes = not call.tool.annotations.read_only
        acted = _has_acted(call, result)
        known = not changes or not _is_unknown(result)
        keyed = self._claims.pop(call.id, None) is not None
        text, sealed = None, False
        if keyed and acted:
            secret = self._hides(call, result)
            text, sealed = self._stored(result, secret=secret)
        return lambda database: database.end(
            entry, end, known=known, result=text, sealed=sealed, keep=keyed and acted
        )

    def _hidden(self, call: Call, text: str) -> str:
        """A text without the secrets of the arguments and those that were looked up."""
        own = Redactor(call.arguments, call.tool.input_schema)
        text = text if own.empty else own.hide_in_text(text)
        secrets = self._secrets()
        return text if secrets is None else secrets.hide_in_text(text)

    def _hides(self, call: Call, result: Result) -> bool:
        """Whether a result holds a secret."""
        told: JSON = [result.value, _plain(result)]
        own, secrets = Redactor(call.arguments, call.tool.input_schema), self._secrets()
        return (
            redact(result.value, call.tool.output_schema) != result.value
            or own.hide_in(told) != told
            or (secrets is not None and secrets.hide_in(told) != told)
        )

    def _stored(self, result: Result, *, secret: bool) -> tuple[str | None, bool]:
        """The text to keep of a result (None if it contains secrets and no key exists), and whether it is encrypted."""
        if not secret:
            return _encode(_plain(result)), False
        try:
            return self._cipher().encrypt(_plain(result)), True
        except NoKey as error:
            _log().warning(
                "the result of a call with an idempotency key holds secrets and is not kept: %s", error
            )
            return None, False

    def _restored(self, call: Call, found: KeyedCall) -> Result:
        if found.result is None:
            return _not_kept(
                call, found.id, "it holds secrets and there was no encryption key, or nobody knows it"
            )
        try:
            told = self._cipher().decrypt(found.result) if found.sealed else decode_json(found.result)
        except (NoKey, CannotDecrypt) as error:
            return _not_kept(call, found.id, error.message)
        return _parsed(told)

    def _digest(self, call: Call) -> str:
        """The digest of a tool and its arguments, which does not reveal their secrets."""
        shown = redact(call.arguments, call.tool.input_schema)
        if shown != call.arguments:
            try:
                return self._cipher().digest(canonical([call.tool.name, call.arguments]))
            except NoKey:
                # A short secret could be guessed from a digest, so calls that differ only in secrets count as equal.
                return _sha256(canonical([call.tool.name, shown]))
        return _sha256(canonical([call.tool.name, shown]))


class MemoryKeys:
    """Results by idempotency key in the memory of a session, for tools that no journal records.

    The oldest results are forgotten once there are `MOST_KEYS`.
    """

    def __init__(self) -> None:
        self._known: dict[str, _KnownKey] = {}
        self._lock = Lock()

    async def claim(self, call: Call) -> Result | Running | None:
        """Claim the key of a call; see `IdempotencyKeys`."""
        key, digest = key_digest_of(call), canonical([call.tool.name, call.arguments])
        with self._lock:
            found = self._known.setdefault(key, _KnownKey(call.id, digest, None))
        if found.digest != digest:
            return conflict(call)
        if found.result is not None:
            return repeated(_parsed(decode_json(found.result)))
        return None if found.call == call.id else RUNNING

    def release(self, call: Call, result: Result) -> None:
        """Keep the result of a call that may have acted, or free its key; see `IdempotencyKeys`."""
        key = key_digest_of(call)
        acted = _has_acted(call, result)
        with self._lock:
            if acted:
                # As text, so that no caller can modify it.
                self._known[key] = self._known[key]._replace(result=_encode(_plain(result)))
                if len(self._known) > MOST_KEYS:
                    del self._known[next(known for known, each in self._known.items() if each.result)]
            else:
                del self._known[key]


class _KnownKey(NamedTuple):
    """The call that holds a key, the digest of its arguments, and its result once it has ended."""

    call: str
    digest: str
    result: str | None


def key_digest_of(call: Call) -> str:
    """Identifies an idempotency key of a caller: the same key of another caller or user is another one."""
    context = call.context
    return _sha256(canonical([context.caller, context.user, context.idempotency_key]))


def check_key(key: object) -> str:
    """Return a valid idempotency key.

    Raises:
        ConfigurationError: The key is not a text of 1 to 255 printable characters.
    """
    if isinstance(key, str) and 0 < len(key) <= LONGEST_KEY and key.isprintable():
        return key
    raise ConfigurationError(
        f"an idempotency key must be a text of 1 to {LONGEST_KEY} printable characters",
        code="bad_idempotency_key",
        hint="use a random UUID for each call, and the same one to repeat it",
    )


def conflict(call: Call) -> Result:
    """The result of a call whose idempotency key was used for another one."""
    message = (
        f"`{call.tool.name}` was not called: its idempotency key was used for another tool or other arguments"
    )
    return without_attempts(Result.failed(Outcome.INVALID_ARGUMENTS, message, code="idempotency_conflict"))


def repeated(result: Result, entry: int | None = None) -> Result:
    """The result of a call that was not made, because an earlier one with its idempotency key has this result."""
    told: dict[str, JSON] = {"repeated": True}
    if entry is not None:
        told["entry"] = entry
    return without_attempts(result.with_meta(idempotency=told))


def _unknown(call: Call, entry: int) -> Result:
    message = (
        f"`{call.tool.name}` was not called: it is unknown whether the earlier call with its idempotency key acted "
        f"(entry {entry} of the journal); find out, and run `toolcrib journal resolve {entry}`"
    )
    details: dict[str, JSON] = {"entry": entry, "may_have_acted": True}
    return Result.failed(Outcome.UNKNOWN_OUTCOME, message, details=details)


def _not_kept(call: Call, entry: int, why: str) -> Result:
    message = (
        f"`{call.tool.name}` was not called again: the earlier call with its idempotency key acted, but its result cannot "
        f"be returned: {why}"
    )
    details: dict[str, JSON] = {"entry": entry}
    return Result.failed(Outcome.UNAVAILABLE, message, code="result_not_kept", details=details)


def unavailable(call: Call, error: UnusableJournal) -> Result:
    """The result of a call that needs a journal that cannot be used."""
    message = f"`{call.tool.name}` was not called, because its intent cannot be recorded: {error}"
    return without_attempts(Result.failed(Outcome.UNAVAILABLE, message, code=error.code))


def _not_made(call: Call) -> Result:
    message = f"the caller cancelled `{call.tool.name}` before it was called"
    return without_attempts(Result.failed(Outcome.CANCELLED, message))


def _has_acted(call: Call, result: Result) -> bool:
    """Whether a repetition of a call could repeat its effect."""
    return result.outcome is Outcome.OK or (may_have_acted(call.tool) and may_have_spent(result))


def _is_unknown(result: Result) -> bool:
    """Whether nobody knows if the call has acted."""
    return result.outcome is Outcome.UNKNOWN_OUTCOME or (
        result.error is not None and bool(result.error.details.get("may_have_acted"))
    )


def _plain(result: Result) -> dict[str, JSON]:
    """A result as JSON, without its usage; `_parsed` is the inverse."""
    failure = result.error
    return {
        "outcome": result.outcome.value,
        "value": result.value,
        "content": [part.as_json() for part in result.content],
        "message": result.message,
        "error": None if failure is None else failure.as_json(),
        "meta": dict(result.meta),
        "raw_value": result.raw_value,
    }


def _parsed(told: Any) -> Result:
    failure = told["error"]
    return Result(
        Outcome(told["outcome"]),
        told["value"],
        tuple(Content(**part) for part in told["content"]),
        told["message"],
        None if failure is None else Failure(**failure),
        meta=told["meta"] or NOTHING,
        raw_value=told["raw_value"],
    )


async def _written(write: Future[T], undo: Callable[[T], None] | None = None) -> T:
    """Wait for a write. If the caller is cancelled meanwhile, it is undone afterwards."""
    import asyncio  # noqa: PLC0415 -- a call that never waits needs none of it

    try:
        return await asyncio.wrap_future(write)
    except asyncio.CancelledError:
        if undo is not None:
            write.add_done_callback(lambda done: None if done.exception() else undo(done.result()))
        raise


class _Write(NamedTuple):
    """A write, and where its outcome goes."""

    work: Callable[[JournalDatabase], Any]
    durable: bool
    future: Future[Any]


class _Writer:
    """Runs the writes of a journal in a thread; those that arrive together share a transaction."""

    def __init__(self, connect: Callable[[], Database], keep: float | None) -> None:
        self._connect = connect
        self._keep = keep
        self._queue: SimpleQueue[_Write | None] = SimpleQueue()
        self._lock = Lock()
        self._thread: Thread | None = None
        self._pid = 0
        self._connection: Database | None = None
        self._database: JournalDatabase | None = None
        self._pruned = 0.0

    def record_at_once(self, row: CallRow, end: EndRow) -> bool:
        """Write a call that has ended without waiting; False if that is not possible now."""
        database = self._database
        return database is not None and self._pid == os.getpid() and database.record_at_once(row, end)

    def submit(self, work: Callable[[JournalDatabase], T], *, durable: bool) -> Future[T]:
        """Run work in a transaction, and return its outcome."""
        future: Future[T] = Future()
        # A write cannot be cancelled: whoever waits for it may be, and `_written` undoes it then.
        future.set_running_or_notify_cancel()
        write = _Write(work, durable, future)
        with self._lock:
            if self._thread is None or self._pid != os.getpid():
                # A process that was forked must not use the connection of its parent.
                if self._pid != os.getpid():
                    self._connection = self._database = None
                    self._queue = SimpleQueue()
                self._pid = os.getpid()
                self._thread = Thread(
                    target=self._serve, args=(self._queue,), name="toolcrib journal", daemon=True
                )
                self._thread.start()
            self._queue.put(write)
        return future

    def run(self, work: Callable[[JournalDatabase], T], *, durable: bool) -> T:
        """Run work in a transaction, and wait for it."""
        return self.submit(work, durable=durable).result()

    def stop(self) -> None:
        """Run what was submitted, and close the database. Work that is submitted later opens it again."""
        with self._lock:
            thread, self._thread = self._thread, None
            if thread is None or self._pid != os.getpid():
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
                writes[0].future.set_exception(error)
            return
        for write, value in zip(writes, found, strict=True):
            write.future.set_result(value)

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


class JournalHost(Protocol):
    """The members of the engine that its journal uses."""

    @property
    def known_secrets(self) -> Redactor | None:
        """The secrets that were looked up so far, if any."""
        ...

    def journal_address(self, written: str) -> str:
        """The address of the server of the project, with its look-ups resolved."""
        ...


_SERVER: Final = ("postgresql://", "postgres://")


def open_journal(
    host: JournalHost, place: Path | str | None, said: Mapping[str, Any], workspace: str
) -> Journal:
    """The journal of a runtime. Its database is opened at the first use.

    Args:
        host: The engine.
        place: A file or the address of a server; None for that of the project.
        said: The settings of the project.
        workspace: The absolute path of the project.
    """
    known: list[Cipher] = []

    def cipher() -> Cipher:
        # Only a key that was found is remembered: a person may create one while the runtime is open.
        if not known:
            known.append(load_cipher(outside=workspace if os.path.isdir(workspace) else ""))
        return known[0]

    # The thread of the journal keeps this function, which must not keep the engine: a runtime that nobody closed would
    # never be collected.
    find_host = ref(host)

    def connect() -> Database:
        address = said.get("store", "") if place is None else str(place)
        if not address.startswith(_SERVER):
            return SQLiteJournal(_journal_file(workspace) if place is None else place)
        from toolcrib.security.journal_postgres import PostgresJournal  # noqa: PLC0415 -- needs an extra

        if place is None:
            host = find_host()
            if host is None:
                raise UnusableJournal("the runtime of the journal was closed")
            address = host.journal_address(address)
        return PostgresJournal(address)

    return Journal(
        connect,
        secrets=lambda: host.known_secrets,
        cipher=cipher,
        mocks=bool(said.get("mocks", False)),
        keep=parse_duration(str(said["keep"])) if "keep" in said else KEEP,
    )


def _journal_file(workspace: str) -> Path:
    """The file of the journal of a project, in the user's state folder.

    Args:
        workspace: The absolute path of the project.

    Raises:
        UnusableJournal: The system defines no such folder.
    """
    folder = state_folder()
    if folder is None:
        raise UnusableJournal("there is no folder for the journal", hint=f"set {STATE_VARIABLE}")
    name = sha256(workspace.encode("utf-8", "surrogateescape")).hexdigest()[:24]
    return Path(folder, "journal", name, "journal.sqlite")


def now() -> float:
    """The time in seconds since 1970. Entries have real times, also those of sessions on virtual time."""
    return _CLOCK.now().timestamp()


@lru_cache(maxsize=256)
def _cleaned(*texts: str) -> tuple[str, ...]:
    # Almost all calls of a program have the same session, caller and user.
    return tuple(map(_clean, texts))


def _clean(text: str) -> str:
    """A text that every database can store: without lone surrogates and NUL characters."""
    return text if text.isprintable() else text.encode(errors="replace").decode().replace("\0", "\ufffd")


def _sha256(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _log() -> logging.Logger:
    import logging  # noqa: PLC0415 -- not needed unless there is something to log

    return logging.getLogger("toolcrib")
