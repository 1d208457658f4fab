"""Which session of a handshake revision ends, to make room for a new one."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from toolcrib.serve.mcp.open_sessions import UNSEEN, UNUSED, OpenSessions


class Sessions:
    """Sessions of which three may be open, at a time that is set, and those that were ended."""

    def __init__(self):
        self.now = 0.0
        self.ended = []
        self.open = OpenSessions(3, self.end, lambda: self.now)

    async def end(self, session, user):
        self.ended.append((session, user))

    def open_one(self, session, user=None):
        async def opening():
            with self.open.opening(user) as opened:
                await self.open.make_room()
                opened(session)

        asyncio.run(opening())
        self.now += 1

    def use(self, session):
        with self.open.in_use(session):
            self.now += 1


def test_the_longest_idle_one_ends_as_the_user_that_opened_it():
    sessions = Sessions()
    sessions.open_one(b"1", "ann")
    sessions.open_one(b"2", "bob")
    sessions.open_one(b"3")
    sessions.use(b"1")
    sessions.open_one(b"4")
    sessions.open_one(b"5")
    assert sessions.ended == [(b"2", "bob"), (b"3", None)]


def test_a_busy_one_stays():
    sessions = Sessions()
    for session in (b"1", b"2", b"3"):
        sessions.open_one(session)
    with sessions.open.in_use(b"1"), sessions.open.in_use(b"2"), sessions.open.in_use(b"2"):
        sessions.use(b"2")
        sessions.open_one(b"4")
        sessions.open_one(b"5")
    assert sessions.ended == [(b"3", None), (b"4", None)]


def test_where_all_are_busy_none_ends_and_the_sdk_refuses_the_new_one():
    sessions = Sessions()
    for session in (b"1", b"2", b"3"):
        sessions.open_one(session)
    with sessions.open.in_use(b"1"), sessions.open.in_use(b"2"), sessions.open.in_use(b"3"):
        sessions.open_one(b"4")
    assert sessions.ended == []


def test_requests_that_open_sessions_at_the_same_time_count_once_each():
    sessions = Sessions()
    sessions.open_one(b"1")
    with sessions.open.opening(None) as second, sessions.open.opening(None):
        asyncio.run(sessions.open.make_room())
        second(b"2")
        second(b"2")
        asyncio.run(sessions.open.make_room())
        assert sessions.ended == []
        with sessions.open.opening(None):
            asyncio.run(sessions.open.make_room())
            assert sessions.ended == [(b"1", None)]
    sessions.open_one(b"5")
    sessions.open_one(b"6")
    assert sessions.ended == [(b"1", None)]


def test_a_request_that_fails_opens_nothing():
    sessions = Sessions()
    sessions.open_one(b"1")
    for _ in range(5):
        with suppress(ConnectionError), sessions.open.opening(None):
            raise ConnectionError
    sessions.open_one(b"2")
    sessions.open_one(b"3")
    assert sessions.ended == []


def test_a_session_that_its_client_ended_leaves_room():
    sessions = Sessions()
    for session in (b"1", b"2", b"3"):
        sessions.open_one(session)
    with sessions.open.in_use(b"2"):
        sessions.open.ended(b"2")
    sessions.open_one(b"4")
    assert sessions.ended == []


def test_ids_that_clients_make_up_are_not_remembered_and_old_sessions_are_forgotten():
    sessions = Sessions()
    sessions.use(b"forged")
    for session in (b"1", b"2", b"3"):
        sessions.open_one(session)
    sessions.now += UNUSED + 61
    for session in (b"4", b"5", b"6"):
        sessions.open_one(session)
    # The SDK has ended the old ones; the first request for room still counted one of them.
    assert sessions.ended == [(b"1", None)]


def test_requests_pass_the_sdk_by_until_it_has_seen_none_for_a_while():
    sessions = Sessions()
    sessions.open_one(b"1", "ann")
    sessions.now += UNSEEN - 2
    assert sessions.open.passes_by(b"1", "ann")
    sessions.now += 2
    assert not sessions.open.passes_by(b"1", "ann")
    sessions.use(b"1")
    assert sessions.open.passes_by(b"1", "ann")


def test_a_request_of_another_user_or_of_no_session_does_not_pass_the_sdk_by():
    sessions = Sessions()
    sessions.open_one(b"1", "ann")
    sessions.open_one(b"2", "ann")
    sessions.open.ended(b"2")
    for session, user in ((b"1", "bob"), (b"1", None), (b"2", "ann"), (b"3", None)):
        assert not sessions.open.passes_by(session, user)


def test_a_request_that_passes_by_is_a_use_of_its_session():
    sessions = Sessions()
    for session in (b"1", b"2", b"3"):
        sessions.open_one(session)
    assert sessions.open.passes_by(b"1", None)
    sessions.open_one(b"4")
    assert sessions.ended == [(b"2", None)]
    with sessions.open.in_use(b"3"):
        assert sessions.open.passes_by(b"3", None)
        sessions.open_one(b"5")
        sessions.open_one(b"6")
    assert sessions.ended == [(b"2", None), (b"1", None), (b"4", None)]
