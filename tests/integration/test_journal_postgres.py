"""The journal in a real PostgreSQL server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from payments import Payments
from postgres_server import PostgresServer, postgres_server, programs
from toolcrib import Outcome, Registry, Runtime
from toolcrib.engine.call_journal import JournalError

CANARY = "canary-5e1f8a"


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server for all tests of this module."""
    found = programs()
    if found is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with postgres_server(found) as server:
        yield server


@pytest.fixture
def address(server) -> str:
    """The address of an empty database."""
    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return server.address


def rows(address: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(address, autocommit=True) as connection:
        return connection.execute(query).fetchall()


async def test_calls_are_recorded_and_keys_outlast_the_runtime(address):
    payments = Payments()
    for _ in range(2):
        async with Runtime(Registry(), journal=address) as runtime:
            runtime.add(payments.pay)
            runtime.add(payments.pay, name="look", annotations={"read_only": True})
            first = await runtime.call("pay", {"amount": 3}, idempotency_key="k")
            await runtime.call("look", {"amount": 4})
            other = await runtime.call("pay", {"amount": 5}, idempotency_key="k")
            entries = await asyncio.to_thread(runtime.journal.entries)
    assert first.value["number"] == 1
    assert other.error.code == "idempotency_conflict"
    assert [(each.tool, each.state, each.outcome, each.changes) for each in entries] == [
        ("look", "ended", "ok", False),
        ("look", "ended", "ok", False),
        ("pay", "ended", "ok", True),
    ]


async def test_two_runtimes_that_start_together_share_their_keys(address):
    payments = Payments()
    payments.go_on.clear()
    async with Runtime(Registry(), journal=address) as one, Runtime(Registry(), journal=address) as two:
        one.add(payments.pay)
        two.add(payments.pay)
        calls = [
            asyncio.create_task(each.call("pay", {"amount": 3}, idempotency_key="k")) for each in (one, two)
        ]
        await payments.entered.wait()
        for each in (one, two):
            await asyncio.to_thread(each.journal.entries)
        payments.go_on.set()
        results = [await call for call in calls]
    assert [result.value["number"] for result in results] == [1, 1]
    assert payments.made == 1


async def test_a_call_whose_process_lost_its_connection_is_unknown_to_others_until_it_ends(address):
    payments = Payments()
    payments.go_on.clear()
    async with Runtime(Registry(), journal=address) as one, Runtime(Registry(), journal=address) as two:
        one.add(payments.pay)
        two.add(payments.pay)
        call = asyncio.create_task(one.call("pay", {"amount": 3}, idempotency_key="k"))
        await payments.entered.wait()
        # Ends the connections of `one`, as a crash does; `two` has none yet.
        rows(
            address,
            "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = 'toolcrib'",
        )
        again = await two.call("pay", {"amount": 3}, idempotency_key="k")
        assert again.outcome is Outcome.UNKNOWN_OUTCOME
        [entry] = await asyncio.to_thread(two.journal.entries)
        assert (entry.state, entry.code) == ("unknown", "process_ended")
        payments.go_on.set()
        assert (await call).outcome is Outcome.OK
    assert payments.made == 1


async def test_an_unknown_call_is_resolved_once(address):
    async with Runtime(Registry(), journal=address) as runtime:
        payments = Payments()
        payments.go_on.clear()
        runtime.add(payments.pay)
        call = asyncio.create_task(runtime.call("pay", {"amount": 3}, idempotency_key="k"))
        await payments.entered.wait()
        call.cancel()
        await asyncio.wait([call])
        [entry] = await asyncio.to_thread(lambda: runtime.journal.entries(state="unknown"))
        resolved = await asyncio.to_thread(lambda: runtime.journal.resolve(entry.id, acted=False, by="ada"))
        assert (resolved.state, resolved.resolution["by"]) == ("resolved", "ada")
        with pytest.raises(JournalError):
            await asyncio.to_thread(lambda: runtime.journal.resolve(entry.id, acted=True))
        payments.go_on.set()
        assert (await runtime.call("pay", {"amount": 3}, idempotency_key="k")).outcome is Outcome.OK


async def test_no_secret_reaches_the_server(address):
    async with Runtime(Registry(), journal=address) as runtime:
        payments = Payments()
        runtime.add(payments.pay)
        await runtime.call("pay", {"amount": 3, "password": CANARY}, idempotency_key="k")
        payments.fails = f"\0 {CANARY}"
        failed = await runtime.call("pay", {"amount": 4, "password": CANARY})
    assert failed.outcome is not Outcome.OK
    kept = rows(address, "SELECT toolcrib_calls::text FROM toolcrib_calls")
    assert len(kept) == 2
    assert CANARY not in str(kept)


async def test_a_newer_journal_is_refused(address):
    async with Runtime(Registry(), journal=address) as runtime:
        runtime.add(Payments().pay)
        await runtime.call("pay", {"amount": 3})
    rows(address, "UPDATE toolcrib_journal SET format = 99 RETURNING format")
    async with Runtime(Registry(), journal=address) as runtime:
        payments = Payments()
        runtime.add(payments.pay)
        result = await runtime.call("pay", {"amount": 3})
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "journal_unusable")
    assert "a newer version wrote it (format 99, expected 1)" in result.message
    assert payments.made == 0


async def test_a_server_that_is_down_refuses_calls_until_it_is_back(address, server):
    async with Runtime(Registry(), journal=address) as runtime:
        payments = Payments()
        runtime.add(payments.pay)
        runtime.add(payments.pay, name="look", annotations={"read_only": True})
        await runtime.call("pay", {"amount": 1})
        server.stop()
        try:
            made = payments.made
            for _ in range(2):
                refused = await runtime.call("pay", {"amount": 2})
                assert (refused.outcome, refused.error.code) == (Outcome.UNAVAILABLE, "journal_unusable")
            assert payments.made == made
            assert (await runtime.call("look", {"amount": 3})).outcome is Outcome.OK
        finally:
            server.start()
        assert (await runtime.call("pay", {"amount": 4})).outcome is Outcome.OK
        ended = [each.arguments for each in await asyncio.to_thread(runtime.journal.entries)]
    assert ended == [{"amount": 4}, {"amount": 1}]
