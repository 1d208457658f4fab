"""The journal of a runtime: what it called outside, and how the calls ended. See `Runtime.journal`.

A tool that may change something is called only once the intent is on the disk, so that a crash leaves an entry in state
`unknown`, which a person resolves. A call that only reads is written when it has ended. Writes of concurrent calls share a
transaction, which a thread commits; a single call commits its own, as long as the disk is quick.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import finalize, ref

from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, Call, Outcome, Result, ToolAnswer, TrustedAnswer, as_result
from toolcrib.core.text import canonical, decode_json
from toolcrib.core.user_folders import STATE_VARIABLE, state_folder
from toolcrib.engine.idempotency_keys import (
    RUNNING,
    Running,
    conflict,
    encode,
    has_acted,
    key_digest_of,
    repeated,
    result_as_json,
    result_from_json,
    sha256_of,
)
from toolcrib.engine.journal_writer import JournalWriter, Work
from toolcrib.engine.middleware.call_failures import attempts_of, without_attempts
from toolcrib.security.encryption import CannotDecrypt, Cipher, NoKey, load_cipher
from toolcrib.security.journal import (
    CallRow,
    EndRow,
    JournalDatabase,
    JournalEntry,
    KeyedCall,
    NotNow,
    SQLiteJournal,
    UnusableJournal,
    now,
    pages,
    storable,
)
from toolcrib.security.redaction import Redactor, redact

if TYPE_CHECKING:
    import logging

    from toolcrib.core.running_calls import RunningCalls
    from toolcrib.security.journal import Database

T = TypeVar("T")

KEEP: Final = 30 * 86_400.0
"""Default time for which ended entries and their idempotency keys are kept, in seconds."""


_OK: Final = Outcome.OK.value

_new: Any = tuple.__new__  # skips the generated `__new__` of a NamedTuple, which is measurable here


class JournalError(ConfigurationError):
    """An entry of a journal is unknown, or cannot be resolved."""

    code = "unknown_entry"


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
        alone: Returns whether at most one call is running, so that no other waits for a write.
        mocks: Whether calls that stay in the process are recorded, too.
        keep: Seconds for which ended entries are kept; None for ever.
    """

    def __init__(
        self,
        connect: Callable[[], Database],
        *,
        secrets: Callable[[], Redactor | None] = lambda: None,
        cipher: Callable[[], Cipher],
        alone: Callable[[], bool] = lambda: False,
        mocks: bool = False,
        keep: float | None = KEEP,
    ) -> None:
        self.mocks = mocks
        self._secrets = secrets
        self._cipher = cipher
        self._alone = alone
        self._writer = JournalWriter(connect, keep)
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
            text, sealed = self._stored(Result.success(result), secret=redact(result) != result)
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

    def _read(self, read: Work[T]) -> T:
        return self._writer.run(read, durable=False)

    # For layers.

    async def begin(self, call: Call) -> int:
        """Write the intent of a call, so that it survives a power failure; returns the number of its entry.

        Raises:
            UnusableJournal: It cannot be written. The call must not be made.
        """
        claimed = self._claims.get(call.id)
        begin: Work[int]
        if claimed is None:
            begin = partial(JournalDatabase.begin, row=self._row(call))
        else:
            begin = partial(JournalDatabase.begin_claimed, id_=claimed)

        def undo(entry: int) -> Work[None]:
            message = f"the caller cancelled `{call.tool.name}` before it was called"
            return self._ending(entry, call, without_attempts(Result.failure(Outcome.CANCELLED, message)))

        return await self._write_durably(begin, undo)

    async def _write_durably(self, work: Work[T], undo: Callable[[T], Work[object]] | None = None) -> T:
        """Run work of a single statement.

        Writes of concurrent calls share a transaction in the thread of the journal. For a single call, its thread would
        cost more than the write: the call changes the thread twice, and both wake up for it.
        """
        if self._alone():
            try:
                return self._writer.run_at_once(work)
            except NotNow:
                pass
        return await self._writer.write(work, durable=True, undo=undo)

    async def end(self, entry: int, call: Call, result: Result) -> Result:
        """Write how a call ended, and return its result."""
        try:
            await self._write_durably(self._ending(entry, call, result))
        except UnusableJournal as error:
            # The call was made, so its result counts. Its entry becomes `unknown` when this process ends.
            _log().error("the end of entry %d of the journal was not written: %s", entry, error)
            return result.with_meta(journal={"entry": entry, "recorded": False})
        return result

    def end_later(self, entry: int, call: Call, result: Result) -> None:
        """`end` for a call that was cancelled: nobody waits for its result."""
        self._writer.submit(self._ending(entry, call, result), durable=True)

    def record(self, call: Call, started: float, answer: ToolAnswer) -> Coroutine[Any, Any, None] | None:
        """Write a call that only reads, and has ended; None if that could be done at once, otherwise what to await.

        The call counts even if it cannot be recorded, which is logged once.
        """
        work = self._recording(call, started, answer)
        return None if work is None else self._recorded(work)

    async def _recorded(self, work: Work[None]) -> None:
        try:
            await self._writer.write(work, durable=False)
        except UnusableJournal as error:
            if not self._warned:
                self._warned = True
                _log().warning("calls that only read are not recorded: %s", error)

    def record_later(self, call: Call, started: float, result: Result) -> None:
        """`record` for a call that was cancelled: nobody waits for its result."""
        work = self._recording(call, started, result)
        if work is not None:
            self._writer.submit(work, durable=False)

    def _recording(self, call: Call, started: float, answer: ToolAnswer) -> Work[None] | None:
        """The write of a call that only reads; None if that could be done at once."""
        if self._claims and (claimed := self._claims.get(call.id)) is not None:
            return self._ending(claimed, call, as_result(answer))
        row, end = self._row(call, started), self._end_row(call, answer)
        return None if self._writer.record_at_once(row, end) else lambda database: database.record(row, end)

    async def claim(self, call: Call) -> Result | Running | None:
        """Claim the idempotency key of a call; see `IdempotencyKeys`."""
        row, key = self._row(call), call.context.idempotency_key
        key_digest, digest = key_digest_of(call), self._digest(call)
        shown = self._hidden(call, key)
        found = await self._writer.write(
            lambda database: database.claim(row, shown, key_digest, digest), durable=False, undo=_releasing
        )
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
            self._writer.submit(_releasing(claimed), durable=False)

    def _row(self, call: Call, started: float | None = None) -> CallRow:
        context, tool = call.context, call.tool
        shown = redact(call.arguments, tool.input_schema)
        secrets = self._secrets()
        row: CallRow = _new(
            CallRow,
            (
                tool.name,
                tool.mode or "",
                encode(shown if secrets is None else secrets.hide_in(shown)),
                int(not tool.annotations.read_only),
                now() if started is None else started,
                storable(call.id),
                *_cleaned(context.session.id, context.caller, context.user, context.correlation),
            ),
        )
        return row

    def _end_row(self, call: Call, answer: ToolAnswer) -> EndRow:
        if type(answer) is TrustedAnswer:
            end: EndRow = _new(EndRow, (now(), _OK, "", "", 1))
            return end
        result = as_result(answer)
        failure = result.error
        return EndRow(
            now(),
            result.outcome.value,
            "" if failure is None else storable(failure.code),
            "" if failure is None else storable(self._hidden(call, failure.message)),
            attempts_of(result),
        )

    def _ending(self, entry: int, call: Call, result: Result) -> Work[None]:
        """The write of the end of a call; its idempotency key is released."""
        end = self._end_row(call, result)
        changes = not call.tool.annotations.read_only
        acted = has_acted(call, result)
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
        told: JSON = [result.value, result_as_json(result)]
        own, secrets = Redactor(call.arguments, call.tool.input_schema), self._secrets()
        return (
            redact(result.value, call.tool.output_schema) != result.value
            or own.hide_in(told) != told
            or (secrets is not None and secrets.hide_in(told) != told)
        )

    def _stored(self, result: Result, *, secret: bool) -> tuple[str | None, bool]:
        """The text to keep of a result (None if it contains secrets and no key exists), and whether it is encrypted."""
        if not secret:
            return encode(result_as_json(result)), False
        try:
            return self._cipher().encrypt(result_as_json(result)), True
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
        return result_from_json(told)

    def _digest(self, call: Call) -> str:
        """The digest of a tool and its arguments, which does not reveal their secrets."""
        shown = redact(call.arguments, call.tool.input_schema)
        if shown != call.arguments:
            try:
                return self._cipher().digest(canonical([call.tool.name, call.arguments]))
            except NoKey:
                # A short secret could be guessed from a digest, so calls that differ only in secrets count as equal.
                return sha256_of(canonical([call.tool.name, shown]))
        return sha256_of(canonical([call.tool.name, shown]))


def _releasing(found: int | KeyedCall) -> Work[None]:
    """The write that releases a claimed key; nothing for one that another call holds."""
    return lambda database: database.release(found) if isinstance(found, int) else None


def _unknown(call: Call, entry: int) -> Result:
    message = (
        f"`{call.tool.name}` was not called: it is unknown whether the earlier call with its idempotency key acted "
        f"(entry {entry} of the journal); find out, and run `toolcrib journal resolve {entry}`"
    )
    details: dict[str, JSON] = {"entry": entry, "may_have_acted": True}
    return Result.failure(Outcome.UNKNOWN_OUTCOME, message, details=details)


def _not_kept(call: Call, entry: int, why: str) -> Result:
    message = (
        f"`{call.tool.name}` was not called again: the earlier call with its idempotency key acted, but its result cannot "
        f"be returned: {why}"
    )
    details: dict[str, JSON] = {"entry": entry}
    return Result.failure(Outcome.UNAVAILABLE, message, code="result_not_kept", details=details)


def unavailable(call: Call, error: UnusableJournal) -> Result:
    """The result of a call that needs a journal that cannot be used."""
    message = f"`{call.tool.name}` was not called, because its intent cannot be recorded: {error}"
    return without_attempts(Result.failure(Outcome.UNAVAILABLE, message, code=error.code))


def _is_unknown(result: Result) -> bool:
    """Whether nobody knows if the call has acted."""
    return result.outcome is Outcome.UNKNOWN_OUTCOME or (
        result.error is not None and bool(result.error.details.get("may_have_acted"))
    )


class JournalHost(Protocol):
    """The members of the engine that its journal uses."""

    @property
    def known_secrets(self) -> Redactor | None:
        """The secrets that were looked up so far, if any."""
        ...

    @property
    def running_calls(self) -> RunningCalls:
        """The calls that are waiting."""
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
        alone=lambda: len(host.running_calls) <= 1,
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
        raise UnusableJournal("this system defines no folder for the journal", hint=f"set {STATE_VARIABLE}")
    name = sha256(workspace.encode("utf-8", "surrogateescape")).hexdigest()[:24]
    return Path(folder, "journal", name, "journal.sqlite")


@lru_cache(maxsize=256)
def _cleaned(*texts: str) -> tuple[str, ...]:
    # Almost all calls of a program have the same session, caller and user.
    return tuple(map(storable, texts))


def _log() -> logging.Logger:
    import logging  # noqa: PLC0415 -- not needed unless there is something to log

    return logging.getLogger("toolcrib")
