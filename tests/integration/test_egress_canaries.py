"""Canaries listen on loopback: under every name and spelling nothing reaches them unless they are allowed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sampling import sample
from toolcrib.security.egress import EgressGuard, EgressRefused, UnreachableHost, connect_address, look_up

ANY = ("*",)


def has_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


PERCHES = ["127.0.0.1", "::1"] if has_ipv6() else ["127.0.0.1"]
LOOPBACK = socket.if_nameindex()[0]


class Canary:
    """A listener on loopback that knows who reached it."""

    def __init__(self, address):
        self.address = address
        self.port = 0
        self._peers = []
        self._reached = asyncio.Event()

    @property
    def entry(self):
        """What allows it."""
        return f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"

    def accept(self, _reader, writer):
        self._peers.append(writer.get_extra_info("peername")[1])
        self._reached.set()
        writer.close()

    async def visitors(self):
        """How many came. Who connects is accepted in turn: when we are, all who came before us have been."""
        with await connect_address(self.address, self.port) as ours:
            port = ours.getsockname()[1]
            while port not in self._peers:
                self._reached.clear()
                await self._reached.wait()
        self._peers.remove(port)
        return len(self._peers)


@asynccontextmanager
async def canary(address) -> AsyncIterator[Canary]:
    """A canary that sits on an address."""
    bird = Canary(address)
    server = await asyncio.start_server(bird.accept, address, 0)
    async with server:
        bird.port = server.sockets[0].getsockname()[1]
        yield bird


class Names:
    """A resolver that gives its answers one after the other, the last one for ever."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.looked_up = 0

    async def __call__(self, name, port):
        self.looked_up += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Dialler:
    """Dials loopback addresses for real, and only records the others."""

    def __init__(self):
        self.dialled = []

    async def __call__(self, address, port):
        self.dialled.append(address)
        if address in ("127.0.0.1", "::1"):
            return await connect_address(address, port)
        raise ConnectionRefusedError


def open_files():
    return sorted(each.name for each in Path("/dev/fd").iterdir())


def forms_of(address):
    """What leads to a loopback address, or is said to."""
    if address == "::1":
        return ["::1", "0:0:0:0:0:0:0:1", "[::1]", "::0001", f"::1%{LOOPBACK[1]}", f"::1%{LOOPBACK[0]}", "::"]
    return [
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0X7F.0.0.1",
        "0177.0.0.1",
        "017700000001",
        "0177.0x0.0.01",
        "0",
        "0.0.0.0",
        "0x0",
        "１２７.０.０.１",
        "①②⑦.⓪.⓪.①",
        "127。0。0。1",
        "::ffff:127.0.0.1",
        "[::ffff:7f00:1]",
        "::127.0.0.1",
        "::ffff:0:127.0.0.1",
        "64:ff9b::127.0.0.1",
        "64:ff9b:1::127.0.0.1",
        "2002:7f00:1::",
        "2001:0:7f00:1::80ff:fffe",
        "::ffff:127.0.0.1%1",
    ]


HOSTILE = [
    "\\@127.0.0.1",
    "good@127.0.0.1",
    "127.0.0.1#",
    "127.0.0.1/",
    "127.0.0.1\x00.example.com",
    "127.0.0.1\n",
]

EVERY = [(perch, form) for perch in PERCHES for form in forms_of(perch)]


async def refusal(guard, host, port):
    with pytest.raises(EgressRefused) as caught:
        await guard.connect(host, port, ANY)
    return caught.value


@pytest.mark.parametrize(("perch", "form"), sample(EVERY, one_in=2))
def test_no_spelling_of_a_literal_reaches_a_canary(perch, form):
    async def main():
        async with canary(perch) as bird:
            assert (await refusal(EgressGuard(), form, bird.port)).code == "address_refused"
            assert await bird.visitors() == 0

    asyncio.run(main())


@pytest.mark.parametrize("host", HOSTILE)
def test_no_hostile_text_reaches_a_canary(host):
    async def main():
        async with canary("127.0.0.1") as bird:
            assert (await refusal(EgressGuard(), host, bird.port)).code == "bad_address"
            assert await bird.visitors() == 0

    asyncio.run(main())


@pytest.mark.parametrize("form", ["localhost", "LOCALHOST.", "localhost."])
def test_no_name_of_the_system_reaches_a_canary(form):
    async def main():
        async with canary("127.0.0.1") as bird:
            assert "localhost" in (await refusal(EgressGuard(), form, bird.port)).message
            assert await bird.visitors() == 0

    asyncio.run(main())


@pytest.mark.parametrize(("perch", "form"), sample(EVERY, one_in=2))
def test_no_name_with_such_an_address_reaches_a_canary(perch, form):
    async def main():
        async with canary(perch) as bird:
            guard = EgressGuard(resolve=Names([form.strip("[]")]))
            assert (await refusal(guard, "api.example.com", bird.port)).code == "address_refused"
            assert await bird.visitors() == 0

    asyncio.run(main())


@pytest.mark.parametrize("perch", PERCHES)
def test_a_name_that_flips_reaches_what_was_judged_and_no_canary(perch):
    async def main():
        async with canary(perch) as bird:
            names, dialler = Names(["8.8.8.8"], [perch]), Dialler()
            guard = EgressGuard(resolve=names, dial=dialler)
            with pytest.raises(UnreachableHost):
                await guard.connect("flip.example", bird.port, ANY)
            assert names.looked_up == 1
            for _ in range(3):
                await refusal(guard, "flip.example", bird.port)
            assert dialler.dialled == ["8.8.8.8"]
            assert await bird.visitors() == 0

    asyncio.run(main())


@pytest.mark.parametrize("perch", PERCHES)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_public_and_private_addresses_together_reach_no_canary(perch, place):
    async def main():
        async with canary(perch) as bird:
            answer = ["8.8.8.8", "2606:4700::1"]
            answer.insert(place, perch)
            dialler = Dialler()
            await refusal(EgressGuard(resolve=Names(answer), dial=dialler), "mixed.example", bird.port)
            assert dialler.dialled == []
            assert await bird.visitors() == 0

    asyncio.run(main())


def test_allowing_one_port_opens_no_other():
    async def main():
        async with canary("127.0.0.1") as allowed, canary("127.0.0.1") as bird:
            guard = EgressGuard([allowed.entry, f"localhost:{allowed.port}"])
            for host in ("127.0.0.1", "localhost", "127.1"):
                await refusal(guard, host, bird.port)
            assert await bird.visitors() == 0
            with await guard.connect("localhost", allowed.port, ["localhost"]):
                pass
            assert await allowed.visitors() == 1

    asyncio.run(main())


@pytest.mark.parametrize("perch", PERCHES)
def test_what_is_allowed_is_reached(perch):
    async def main():
        async with canary(perch) as bird:
            by_address = EgressGuard([bird.entry], resolve=Names([perch]))
            by_name = EgressGuard(
                [f"my.service:{bird.port}", f"*.corp.example:{bird.port}"], resolve=Names([perch])
            )
            ways = [
                (by_address, perch),
                (by_address, "any.name"),
                (by_name, "My.Service."),
                (by_name, "a.corp.example"),
            ]
            for count, (guard, host) in enumerate(ways, 1):
                with await guard.connect(host, bird.port, [host]) as connection:
                    assert connection.getpeername()[:2] == (perch, bird.port)
                    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                    assert not connection.getblocking()
                    assert await bird.visitors() == count
            await refusal(by_name, perch, bird.port)

    asyncio.run(main())


@pytest.mark.parametrize("perch", [perch for perch in PERCHES if ":" in perch])
@pytest.mark.parametrize("zone", LOOPBACK)
def test_an_address_with_a_zone_is_reached_where_it_is_allowed(perch, zone):
    async def main():
        async with canary(perch) as bird:
            host = f"{perch}%{zone}"
            await refusal(EgressGuard([bird.entry]), host, bird.port)
            with await EgressGuard([f"[{host}]:{bird.port}"]).connect(host, bird.port, ANY):
                assert await bird.visitors() == 1

    asyncio.run(main())


def test_a_zone_that_is_none_is_no_connection():
    async def main():
        with pytest.raises(UnreachableHost, match="cannot connect"):
            await EgressGuard(["[fe80::1%nowhere0]:80"]).connect("fe80::1%nowhere0", 80, ANY)

    before = open_files()
    asyncio.run(main())
    assert open_files() == before


def test_the_system_tells_addresses_with_their_zones():
    async def main():
        assert await look_up(f"fe80::1%{LOOPBACK[1]}", 80) == [f"fe80::1%{LOOPBACK[0]}"]
        assert "127.0.0.1" in await look_up("localhost", 80)

    asyncio.run(main())


def test_a_port_where_nobody_listens_is_told():
    async def main():
        async with canary("127.0.0.1") as bird:
            port = bird.port
        guard = EgressGuard([f"localhost:{port}"], resolve=Names(["127.0.0.1"]))
        with pytest.raises(UnreachableHost) as caught:
            await guard.connect("localhost", port, ANY)
        assert (
            caught.value.message == f"cannot connect to `localhost:{port}`: 127.0.0.1 refused the connection"
        )

    before = open_files()
    asyncio.run(main())
    assert open_files() == before


# Several addresses


def guard_for(bird, addresses, dialler):
    return EgressGuard([f"many.example:{bird.port}"], resolve=Names(addresses), dial=dialler)


def test_the_next_address_is_tried_when_one_fails():
    async def main():
        async with canary("127.0.0.1") as bird:
            dialler = Dialler()
            guard = guard_for(bird, ["8.8.8.8", "2606:4700::1", "127.0.0.1", "1.1.1.1"], dialler)
            with await guard.connect("many.example", bird.port, ANY):
                assert dialler.dialled == ["8.8.8.8", "2606:4700::1", "127.0.0.1"]
                assert await bird.visitors() == 1

    asyncio.run(main())


class Slow:
    """Opens real sockets towards canaries, and holds some addresses back until it is told."""

    def __init__(self, held, *, stubborn=False):
        self.held = held
        self.stubborn = stubborn
        self.started = asyncio.Event()
        self.release = asyncio.Event()
        self.opened = []

    async def __call__(self, address, port):
        connection = await connect_address("127.0.0.1", port)
        self.opened.append(connection)
        if address not in self.held:
            self.release.set()
            return connection
        self.started.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            if not self.stubborn:
                connection.close()
                raise
        return connection


@pytest.mark.parametrize("stubborn", [False, True])
def test_an_address_that_does_not_answer_holds_up_no_other(stubborn):
    async def main():
        async with canary("127.0.0.1") as bird:
            slow = Slow(["8.8.8.8", "1.1.1.1"], stubborn=stubborn)
            slow.release = Never() if stubborn else slow.release
            guard = guard_for(bird, ["8.8.8.8", "1.1.1.1", "2606:4700::1"], slow)
            return await guard.connect("many.example", bird.port, ANY), slow.opened

    before = open_files()
    connection, opened = asyncio.run(main())
    assert len(opened) == 3
    assert [each for each in opened if each.fileno() != -1] == [connection]
    connection.close()
    assert open_files() == before


class Never(asyncio.Event):
    """What is waited for in vain."""

    def set(self):
        pass


def test_a_slow_address_is_waited_for_when_the_others_have_failed():
    async def main():
        async with canary("127.0.0.1") as bird:
            failed = asyncio.Event()

            async def dial_slowly(address, port):
                if address == "1.1.1.1":
                    failed.set()
                    raise ConnectionRefusedError
                await failed.wait()
                return await connect_address("127.0.0.1", port)

            guard = guard_for(bird, ["8.8.8.8", "1.1.1.1"], dial_slowly)
            with await guard.connect("many.example", bird.port, ANY):
                assert await bird.visitors() == 1

    asyncio.run(main())


def test_of_two_connections_at_once_one_is_kept():
    async def main():
        async with canary("127.0.0.1") as bird:
            reached = asyncio.Barrier(2)
            opened = []

            async def together(_address, port):
                opened.append(await connect_address("127.0.0.1", port))
                mine = opened[-1]
                await reached.wait()
                return mine

            guard = guard_for(bird, ["8.8.8.8", "1.1.1.1"], together)
            return await guard.connect("many.example", bird.port, ANY), opened

    connection, opened = asyncio.run(main())
    with connection:
        assert [each for each in opened if each.fileno() != -1] == [connection]


# Cancellation


def cancelled_while_held(held, *, stubborn):
    async def main():
        async with canary("127.0.0.1") as bird:
            slow = Slow(held, stubborn=stubborn)
            guard = guard_for(bird, held, slow)
            task = asyncio.create_task(guard.connect("many.example", bird.port, ANY))
            await slow.started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return slow.opened

    return asyncio.run(main())


@pytest.mark.parametrize("stubborn", [False, True])
@pytest.mark.parametrize("held", [["8.8.8.8"], ["8.8.8.8", "1.1.1.1"]])
def test_a_cancelled_connect_leaves_no_socket(held, stubborn):
    before = open_files()
    opened = cancelled_while_held(held, stubborn=stubborn)
    assert opened
    assert all(each.fileno() == -1 for each in opened)
    assert open_files() == before


def test_a_cancelled_look_up_dials_nothing():
    async def main():
        asked = asyncio.Event()

        async def resolve(_name, _port):
            asked.set()
            await asyncio.Event().wait()

        dialler = Dialler()
        task = asyncio.create_task(
            EgressGuard(resolve=resolve, dial=dialler).connect("slow.example", 443, ANY)
        )
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert dialler.dialled == []
        assert asyncio.all_tasks() == {asyncio.current_task()}

    before = open_files()
    asyncio.run(main())
    assert open_files() == before


def test_our_own_dialler_is_cancelled_in_the_middle_of_a_connection():
    """A listener that accepts nobody, with its queue full, answers nobody."""

    async def main():
        with contextlib.ExitStack() as stack:
            deaf = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1))
            port = deaf.getsockname()[1]
            waiting = [asyncio.create_task(connect_address("127.0.0.1", port)) for _ in range(40)]
            await asyncio.wait(waiting, timeout=0.2)
            for task in waiting:
                task.cancel()
            ended = await asyncio.gather(*waiting, return_exceptions=True)
            for each in ended:
                if isinstance(each, socket.socket):
                    each.close()
            return [type(each) for each in ended]

    before = open_files()
    assert asyncio.CancelledError in asyncio.run(main())
    assert open_files() == before


@pytest.mark.exhaustive
def test_a_thousand_cancelled_connects_leave_nothing():
    async def main():
        async with canary("127.0.0.1") as bird:
            guard = EgressGuard([bird.entry])
            for _ in range(1000):
                task = asyncio.create_task(guard.connect("127.0.0.1", bird.port, ANY))
                await asyncio.create_task(nothing())
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    (await task).close()
            await bird.visitors()
            assert len(asyncio.all_tasks()) <= 2

    before = open_files()
    asyncio.run(main())
    assert open_files() == before


async def nothing():
    pass
