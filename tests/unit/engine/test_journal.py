"""The journal: what is recorded, when, and what a repeated call gets."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from payments import Payments
from toolcrib import Call, CallContext, ConfigurationError, Outcome, Registry, Result, Runtime
from toolcrib.engine.call_journal import JournalError
from toolcrib.engine.idempotency_keys import MOST_KEYS, MemoryKeys
from toolcrib.security.encryption import create_key
from toolcrib.security.journal import SLOW_WRITES, CallRow, JournalDatabase, NotNow, SQLiteJournal

READING = {"annotations": {"read_only": True}}
IDEMPOTENT = {"annotations": {"idempotent": True}}


def opened(tmp_path: Path, **options: Any) -> Runtime:
    return Runtime(Registry(), journal=tmp_path / "own" / "journal.sqlite", **options)


def with_mock(tmp_path: Path, result: str, **options: Any) -> Runtime:
    """A runtime with a mocked tool `m`."""
    file = tmp_path / "m.tool.yaml"
    file.write_text(f"name: m\nmock: {{result: {result}}}\n", encoding="utf-8")
    return Runtime.open(file, index=False, **options)


def raw(tmp_path: Path) -> bytes:
    """Everything on the disk."""
    return b"".join(path.read_bytes() for path in sorted((tmp_path / "own").iterdir()))


async def test_a_call_that_changes_something_is_recorded_with_its_end(tmp_path):
    async with opened(tmp_path) as runtime:
        payments = Payments()
        runtime.add(payments.pay)
        async with runtime.session(caller="shop", user="ada", correlation="c-1") as session:
            await session.call("pay", {"amount": 3, "password": "12345"})
        entry = runtime.journal.get(1)
    assert (entry.tool, entry.mode, entry.arguments) == (
        "pay",
        "python",
        {"amount": 3, "password": "***"},
    )
    assert (entry.state, entry.outcome, entry.changes, entry.attempts) == ("ended", "ok", True, 1)
    assert (entry.caller, entry.user, entry.correlation) == ("shop", "ada", "c-1")
    assert entry.started <= entry.ended


async def test_the_intent_is_there_while_the_call_runs(tmp_path):
    async with opened(tmp_path) as runtime:
        payments = Payments()
        call = await payments.begin(runtime)
        [entry] = await asyncio.to_thread(runtime.journal.entries)
        assert (entry.state, entry.outcome, entry.ended) == ("running", None, None)
        payments.go_on.set()
        await call
        assert runtime.journal.get(entry.id).state == "ended"


async def test_a_call_that_reads_is_recorded_when_it_has_ended(tmp_path):
    async with opened(tmp_path) as runtime:
        payments = Payments()
        runtime.add(payments.pay, **READING)
        for amount in range(5):
            await runtime.call("pay", {"amount": amount})
        entries = runtime.journal.entries()
    assert [entry.arguments["amount"] for entry in entries] == [4, 3, 2, 1, 0]
    assert {(entry.state, entry.changes) for entry in entries} == {("ended", False)}


async def test_calls_that_were_refused_or_stay_in_the_process_are_not_recorded(tmp_path):
    async with with_mock(tmp_path, "1", journal=tmp_path / "own" / "journal.sqlite") as runtime:
        payments = Payments()
        runtime.add(payments.pay)
        assert (await runtime.call("m")).outcome is Outcome.OK
        assert (await runtime.call("pay", {"amount": "much"})).outcome is Outcome.INVALID_ARGUMENTS
        assert runtime.journal.entries() == []


async def test_a_runtime_without_a_project_has_no_journal():
    async with Runtime(Registry()) as runtime:
        assert runtime.journal is None


async def test_a_cancelled_call_that_may_have_acted_is_unknown(tmp_path):
    async with opened(tmp_path) as runtime:
        payments = Payments()
        call = await payments.begin(runtime)
        call.cancel()
        await asyncio.wait([call])
        [entry] = await asyncio.to_thread(runtime.journal.entries)
    assert (entry.state, entry.outcome) == ("unknown", "cancelled")


async def test_a_call_that_timed_out_is_unknown(tmp_path):
    async with opened(tmp_path) as runtime:
        payments = Payments()
        runtime.add(payments.pay, timeout="1s")
        # The first call opens the journal, which may take longer than the second one has until it times out.
        runtime.add(payments.pay, name="open")
        await runtime.call("open", {"amount": 3})
        payments.go_on.clear()
        result = await runtime.call("pay", {"amount": 3})
        [entry] = await asyncio.to_thread(lambda: runtime.journal.entries(tool="pay"))
    assert (result.outcome, entry.state, entry.outcome) == (Outcome.TIMEOUT, "unknown", "timeout")


async def test_a_cancelled_call_that_reads_needs_no_attention(tmp_path):
    async with opened(tmp_path) as runtime:
        payments = Payments()
        payments.go_on.clear()
        runtime.add(payments.pay, **READING)
        call = asyncio.create_task(runtime.call("pay", {"amount": 3}))
        await payments.entered.wait()
        call.cancel()
        await asyncio.wait([call])
        [entry] = await asyncio.to_thread(runtime.journal.entries)
    assert (entry.state, entry.outcome) == ("ended", "cancelled")


# Idempotency keys.


@pytest.mark.parametrize("kept", ["journal", "memory"])
class TestKeys:
    @pytest.fixture
    def runtime(self, tmp_path, kept):
        with closing(opened(tmp_path) if kept == "journal" else Runtime(Registry())) as runtime:
            yield runtime

    async def test_a_repeated_call_gets_the_stored_result(self, runtime):
        payments = Payments()
        runtime.add(payments.pay)
        first = await runtime.call("pay", {"amount": 3}, idempotency_key="k")
        again = await runtime.call("pay", {"amount": 3}, idempotency_key="k")
        assert payments.made == 1
        assert (again.outcome, again.value) == (Outcome.OK, first.value)
        assert again.meta["idempotency"]["repeated"] is True
        assert "idempotency" not in first.meta
        assert again.usage.attempts == 0
        assert again.value is not first.value

    async def test_other_arguments_or_another_tool_are_a_conflict(self, runtime):
        payments = Payments()
        runtime.add(payments.pay)
        runtime.add(payments.pay, name="pay_again")
        await runtime.call("pay", {"amount": 3}, idempotency_key="k")
        for name, arguments in (("pay", {"amount": 4}), ("pay_again", {"amount": 3})):
            result = await runtime.call(name, arguments, idempotency_key="k")
            assert (result.outcome, result.error.code) == (Outcome.INVALID_ARGUMENTS, "idempotency_conflict")
        assert payments.made == 1

    async def test_other_keys_and_calls_without_a_key_are_made(self, runtime):
        payments = Payments()
        runtime.add(payments.pay)
        for key in ("a", "b", "", ""):
            await runtime.call("pay", {"amount": 3}, idempotency_key=key)
        assert payments.made == 4

    async def test_while_the_first_call_runs_the_second_waits_for_it(self, runtime):
        payments = Payments()
        first = await payments.begin(runtime, idempotency_key="k")
        second = asyncio.create_task(runtime.call("pay", {"amount": 3}, idempotency_key="k"))
        other = await runtime.call("pay", {"amount": 4}, idempotency_key="k")
        assert other.error.code == "idempotency_conflict"
        assert not second.done()
        payments.go_on.set()
        assert (await first).value == (await second).value
        assert payments.made == 1

    async def test_the_second_call_waits_within_its_own_deadline(self, runtime):
        payments = Payments()
        payments.go_on.clear()
        runtime.add(payments.pay, timeout="60s")
        first = asyncio.create_task(runtime.call("pay", {"amount": 3}, idempotency_key="k"))
        await payments.entered.wait()
        runtime.add(payments.pay, timeout="1s", replace=True)
        second = await runtime.call("pay", {"amount": 3}, idempotency_key="k")
        assert (second.outcome, second.error.retryable, payments.made) == (Outcome.TIMEOUT, True, 1)
        assert "may_have_acted" not in second.error.details
        payments.go_on.set()
        assert (await first).outcome is Outcome.OK

    async def test_a_failure_that_did_not_act_is_not_kept(self, runtime):
        payments = Payments()
        runtime.add(payments.pay, limits={"rate": "1/1h"})
        await runtime.call("pay", {"amount": 1})
        refused = await runtime.call("pay", {"amount": 3}, idempotency_key="k")
        assert refused.outcome is Outcome.LIMIT_EXCEEDED
        runtime.add(payments.pay, replace=True)
        made = await runtime.call("pay", {"amount": 3}, idempotency_key="k")
        assert (made.outcome, payments.made) == (Outcome.OK, 2)

    async def test_a_failure_of_an_idempotent_tool_is_not_kept(self, runtime):
        payments = Payments()
        runtime.add(payments.pay, **IDEMPOTENT)
        payments.fails = "down"
        assert (await runtime.call("pay", {"amount": 3}, idempotency_key="k")).outcome is not Outcome.OK
        payments.fails = ""
        made = await runtime.call("pay", {"amount": 3}, idempotency_key="k")
        assert (made.outcome, payments.made) == (Outcome.OK, 2)

    async def test_a_repetition_spends_nothing(self, runtime):
        payments = Payments()
        runtime.add(payments.pay, limits={"rate": "1/1h"})
        for _ in range(3):
            result = await runtime.call("pay", {"amount": 3}, idempotency_key="k")
            assert result.outcome is Outcome.OK

    async def test_another_caller_has_keys_of_its_own(self, runtime, kept):
        payments = Payments()
        runtime.add(payments.pay)
        for caller, user in (("a", ""), ("b", ""), ("a", "ada")):
            async with runtime.session(caller=caller, user=user) as session:
                await session.call("pay", {"amount": 3}, idempotency_key="k")
        assert payments.made == 3

    async def test_a_call_that_was_cancelled_after_it_acted_is_not_repeated(self, runtime):
        payments = Payments()
        call = await payments.begin(runtime, idempotency_key="k")
        call.cancel()
        await asyncio.wait([call])
        again = await runtime.call("pay", {"amount": 3}, idempotency_key="k")
        assert again.outcome in {Outcome.CANCELLED, Outcome.UNKNOWN_OUTCOME}
        assert again.error.details["may_have_acted"] is True
        assert payments.made == 1

    async def test_the_second_call_can_be_cancelled_while_it_waits(self, runtime):
        payments = Payments()
        first = await payments.begin(runtime, idempotency_key="k")
        waiting = asyncio.create_task(runtime.call("pay", {"amount": 3}, idempotency_key="k"))
        # Its look at the key is in the queue before this one.
        if runtime.journal is not None:
            await asyncio.to_thread(runtime.journal.entries)
        waiting.cancel()
        await asyncio.wait([waiting])
        payments.go_on.set()
        assert (await first).outcome is Outcome.OK
        assert (await runtime.call("pay", {"amount": 3}, idempotency_key="k")).value == (await first).value

    async def test_a_stream_takes_a_key(self, runtime):
        payments = Payments()
        runtime.add(payments.pay)
        async with runtime.session() as session:
            for _ in range(2):
                events = [e async for e in session.stream("pay", {"amount": 3}, idempotency_key="k")]
        assert (events[-1].outcome, payments.made) == (Outcome.OK, 1)

    @pytest.mark.parametrize("key", [7, None, "a\nb", "k" * 256])
    def test_an_invalid_key_is_refused(self, runtime, key):
        with pytest.raises(ConfigurationError, match="1 to 255 printable characters") as caught:
            runtime.call("pay", {"amount": 3}, idempotency_key=key)
        assert caught.value.code == "bad_idempotency_key"


async def test_a_key_of_a_mock_is_kept_in_its_session(tmp_path):
    async with with_mock(tmp_path, '"{{ uuid() }}"') as runtime:
        one, two = runtime.session(), runtime.session()
        sessions = (one, one, two, two)
        first, second, third, fourth = [
            (await each.call("m", idempotency_key="k")).value for each in sessions
        ]
    assert first == second
    assert third == fourth != first


async def test_the_memory_of_a_session_forgets_the_oldest_keys():
    with closing(Runtime(Registry())) as runtime:
        tool = runtime.add(Payments().pay)
        keys, session = MemoryKeys(), runtime.session()
        calls = [
            Call(tool, {"amount": 3}, CallContext(session, idempotency_key=str(number)), id=str(number))
            for number in range(MOST_KEYS + 1)
        ]
        for call in calls:
            assert await keys.claim(call) is None
            keys.release(call, Result.success(1))
        assert (await keys.claim(calls[1])).value == 1
        assert await keys.claim(calls[0]) is None


async def test_a_call_that_its_closing_runtime_cancels_is_recorded(tmp_path):
    payments = Payments()
    payments.go_on.clear()
    runtime = opened(tmp_path)
    runtime.add(payments.pay)
    call = asyncio.create_task(runtime.call("pay", {"amount": 3}))
    await payments.entered.wait()
    await runtime.aclose(drain=0)
    assert (await call).outcome is Outcome.CANCELLED
    entry = await asyncio.to_thread(runtime.journal.get, 1)
    await runtime.aclose()
    assert (entry.state, entry.outcome) == ("unknown", "cancelled")
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["journal.sqlite"]


async def test_a_runtime_that_nobody_closes_is_collected_with_its_thread(tmp_path):
    payments, before = Payments(), {*threading.enumerate()}
    runtime = opened(tmp_path)
    runtime.add(payments.pay)
    assert (await runtime.call("pay", {"amount": 3})).outcome is Outcome.OK
    [writer] = {*threading.enumerate()} - before
    engine = weakref.ref(runtime._engine)
    del runtime
    gc.collect()
    assert engine() is None
    writer.join(60)
    assert not writer.is_alive()


async def test_keys_outlast_the_runtime(tmp_path):
    payments = Payments()
    for _ in range(2):
        async with opened(tmp_path) as runtime:
            runtime.add(payments.pay)
            result = await runtime.call("pay", {"amount": 3}, idempotency_key="k")
    assert (result.value["number"], payments.made) == (1, 1)


async def test_two_runtimes_share_their_keys(tmp_path):
    payments = Payments()
    payments.go_on.clear()
    async with opened(tmp_path) as one, opened(tmp_path) as two:
        one.add(payments.pay)
        two.add(payments.pay)
        first = asyncio.create_task(one.call("pay", {"amount": 3}, idempotency_key="k"))
        await payments.entered.wait()
        second = asyncio.create_task(two.call("pay", {"amount": 3}, idempotency_key="k"))
        await asyncio.to_thread(two.journal.entries)
        payments.go_on.set()
        assert (await first).value == (await second).value
    assert payments.made == 1


# Resolution.


async def unknown(runtime: Runtime, payments: Payments, key: str = "k") -> int:
    """Leave a call in state `unknown`, and return its entry."""
    payments.go_on.clear()
    payments.entered.clear()
    call = asyncio.create_task(runtime.call("pay", {"amount": 3}, idempotency_key=key))
    await payments.entered.wait()
    call.cancel()
    await asyncio.wait([call])
    payments.go_on.set()
    [entry] = await asyncio.to_thread(lambda: runtime.journal.entries(state="unknown"))
    return entry.id


async def test_a_resolved_call_that_did_not_act_can_be_made(tmp_path):
    async with opened(tmp_path) as runtime:
        payments = Payments()
        runtime.add(payments.pay)
        entry = await unknown(runtime, payments)
        resolved = runtime.journal.resolve(entry, acted=False, by="ada", note="the bank knows nothing")
        assert (resolved.state, resolved.resolution["acted"], resolved.resolution["by"]) == (
            "resolved",
            False,
            "ada",
        )
        result = await runtime.call("pay", {"amount": 3}, idempotency_key="k")
    assert (result.outcome, payments.made) == (Outcome.OK, 2)


@pytest.mark.parametrize("known", [True, False])
async def test_a_resolved_call_that_acted_is_not_made_again(tmp_path, known):
    async with opened(tmp_path) as runtime:
        payments = Payments()
        runtime.add(payments.pay)
        entry = await unknown(runtime, payments)
        runtime.journal.resolve(entry, acted=True, result={"number": 7} if known else None)
        result = await runtime.call("pay", {"amount": 3}, idempotency_key="k")
    assert payments.made == 1
    if known:
        assert (result.outcome, result.value) == (Outcome.OK, {"number": 7})
    else:
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "result_not_kept")


async def test_only_an_unknown_entry_is_resolved_and_only_once(tmp_path):
    async with opened(tmp_path) as runtime:
        payments = Payments()
        runtime.add(payments.pay)
        entry = await unknown(runtime, payments)
        runtime.journal.resolve(entry, acted=True)
        with pytest.raises(JournalError, match="its state is `resolved`") as caught:
            runtime.journal.resolve(entry, acted=False)
        assert caught.value.code == "not_unknown"
        with pytest.raises(JournalError, match="unknown entry `99`"):
            runtime.journal.resolve(99, acted=False)


# Retention.


async def test_ended_entries_are_removed_after_their_time_and_unknown_ones_stay(tmp_path):
    async with opened(tmp_path) as runtime:
        payments = Payments()
        runtime.add(payments.pay)
        kept = await unknown(runtime, payments)
        await runtime.call("pay", {"amount": 4})
    with closing(sqlite3.connect(tmp_path / "own" / "journal.sqlite")) as database, database:
        database.execute("UPDATE toolcrib_calls SET started = started - 31 * 86400")
    async with opened(tmp_path) as runtime:
        assert [entry.id for entry in runtime.journal.entries()] == [kept]


# Secrets.

CANARY = "canary-5e1f8a"


async def test_no_secret_reaches_the_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_KEY", "env:NOTHING")
    async with opened(tmp_path) as runtime:
        payments = Payments()
        runtime.add(payments.pay)
        arguments = {"amount": 3, "password": CANARY}
        first = await runtime.call("pay", arguments, idempotency_key="k")
        again = await runtime.call("pay", arguments, idempotency_key="k")
        payments.fails = f"wrong password {CANARY}"
        await runtime.call("pay", arguments)
        assert CANARY.encode() not in raw(tmp_path)
    assert CANARY.encode() not in raw(tmp_path)
    assert first.value["echo"] == CANARY
    assert (again.outcome, again.error.code) == (Outcome.UNAVAILABLE, "result_not_kept")
    assert payments.made == 2


async def test_with_a_key_of_the_user_results_with_secrets_are_encrypted(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_KEY", f"file:{create_key(str(tmp_path / 'key'))}")
    async with opened(tmp_path) as runtime:
        payments = Payments()
        runtime.add(payments.pay)
        arguments = {"amount": 3, "password": CANARY}
        first = await runtime.call("pay", arguments, idempotency_key="k")
        again = await runtime.call("pay", arguments, idempotency_key="k")
        other = await runtime.call("pay", arguments | {"password": "else"}, idempotency_key="k")
    assert again.value == first.value
    assert other.error.code == "idempotency_conflict"
    assert CANARY.encode() not in raw(tmp_path)


# What is wrong with a journal.


def corrupt(path: Path) -> None:
    path.write_bytes(b"this is not a database " * 100)


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"PRAGMA application_id = {0x746F6F6C}")
        database.execute("PRAGMA user_version = 99")
        database.execute("CREATE TABLE other (id)")


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE other (id)")


def a_folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (corrupt, "it is corrupt"),
        (newer, "a newer version wrote it (format 99, expected 1)"),
        (foreign, "is not a journal"),
        (a_folder, "Is a directory"),
    ],
)
async def test_without_a_usable_journal_only_calls_that_need_it_fail(tmp_path, spoil, why, caplog):
    (tmp_path / "own").mkdir(mode=0o700)
    spoil(tmp_path / "own" / "journal.sqlite")
    async with with_mock(tmp_path, "1", journal=tmp_path / "own" / "journal.sqlite") as runtime:
        payments = Payments()
        runtime.add(payments.pay)
        runtime.add(payments.pay, name="look", **READING)
        refused = await runtime.call("pay", {"amount": 3})
        assert (refused.outcome, refused.error.code) == (Outcome.UNAVAILABLE, "journal_unusable")
        assert why in refused.message
        assert payments.made == 0
        keyed = await runtime.call("look", {"amount": 3}, idempotency_key="k")
        assert keyed.error.code == "journal_unusable"
        assert payments.made == 0
        assert (await runtime.call("look", {"amount": 3})).outcome is Outcome.OK
        assert (await runtime.call("look", {"amount": 3})).outcome is Outcome.OK
        assert (await runtime.call("m", idempotency_key="k")).outcome is Outcome.OK
    assert caplog.text.count("calls that only read are not recorded") == 1


@contextmanager
def full(tmp_path: Path) -> Iterator[None]:
    """Let the files of the journal not grow any more, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    largest = max(path.stat().st_size for path in (tmp_path / "own").iterdir())
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


async def test_a_full_disk_refuses_calls_before_they_act(tmp_path):
    async with opened(tmp_path) as runtime:
        payments = Payments()
        runtime.add(payments.pay)
        runtime.add(payments.pay, name="look", **READING)
        await runtime.call("pay", {"amount": 1})
        with full(tmp_path):
            for _ in range(60):
                result = await runtime.call("pay", {"amount": 1})
                if result.outcome is not Outcome.OK:
                    break
            made = payments.made
            refused = await runtime.call("pay", {"amount": 1})
            assert (refused.outcome, refused.error.code) == (Outcome.UNAVAILABLE, "journal_unusable")
            assert "full" in refused.message
            assert payments.made == made
            assert (await runtime.call("look", {"amount": 1})).outcome is Outcome.OK
        assert (await runtime.call("pay", {"amount": 1})).outcome is Outcome.OK


def begun(journal: SQLiteJournal) -> list[tuple[Any, ...]] | None:
    """Write the intent of a call at once."""
    row = CallRow("pay", "python", "{}", 1, 1.0, "main-1", "main", "", "", "")
    try:
        return JournalDatabase(journal).at_once(lambda database: database.begin(row))
    except NotNow:
        return None


def test_a_durable_write_at_once_is_written_as_durably_as_others(tmp_path):
    with closing(SQLiteJournal(tmp_path / "own" / "journal.sqlite", quick_disk=60)) as journal:
        # 2 is FULL: the log is synchronized at each commit. 1 is NORMAL.
        for durable, level in ((True, 2), (False, 1), (True, 2)):
            assert journal.execute_at_once("PRAGMA synchronous", (), durable=durable) == [(level,)]
        assert journal.execute("PRAGMA synchronous") == [(2,)]
        assert begun(journal) == 1
        assert journal.execute("SELECT id, state FROM toolcrib_calls") == [(1, "running")]


def test_on_a_slow_disk_most_durable_writes_wait_in_another_thread(tmp_path):
    with closing(SQLiteJournal(tmp_path / "own" / "journal.sqlite", quick_disk=0)) as journal:
        assert begun(journal) == 1
        assert [begun(journal) for _ in range(SLOW_WRITES)] == [None] * SLOW_WRITES
        assert begun(journal) == 2


async def test_a_call_does_not_block_the_event_loop_while_another_process_writes(tmp_path):
    async with opened(tmp_path) as runtime:
        payments = Payments()
        runtime.add(payments.pay)
        assert (await runtime.call("pay", {"amount": 1})).success
        with closing(sqlite3.connect(tmp_path / "own" / "journal.sqlite", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            call = asyncio.create_task(runtime.call("pay", {"amount": 2}))
            await asyncio.to_thread(threading.get_ident)  # the event loop runs meanwhile
            waits = not call.done() and payments.made == 1
            other.execute("ROLLBACK")
        result = await call
        entry = await asyncio.to_thread(runtime.journal.get, 2)
    assert (waits, result.outcome, entry.state, payments.made) == (True, Outcome.OK, "ended", 2)


def test_others_cannot_read_the_journal(tmp_path):
    async def call() -> None:
        async with opened(tmp_path) as runtime:
            runtime.add(Payments().pay)
            await runtime.call("pay", {"amount": 1})
            assert {
                path.stat().st_mode & 0o077
                for path in (tmp_path / "own").iterdir()
                if "lock" not in path.name
            } == {0}

    asyncio.run(call())
    assert (tmp_path / "own").stat().st_mode & 0o077 == 0


def test_a_closed_runtime_leaves_only_the_journal(tmp_path):
    async def call() -> None:
        async with opened(tmp_path) as runtime:
            runtime.add(Payments().pay)
            await runtime.call("pay", {"amount": 1})

    asyncio.run(call())
    assert [path.name for path in (tmp_path / "own").iterdir()] == ["journal.sqlite"]
