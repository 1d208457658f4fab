"""Watching while another process writes: with file events, without, and with events that get lost, the end is the same."""

from __future__ import annotations

import asyncio
import gc
import shutil
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import rewriting
from rewriting import ALL_WAYS, TOOLS, Writer, version_said
from sampling import sample
from toolcrib import Runtime

PATIENCE = 60
"""Seconds after which a watch counts as stuck."""


class Silent:
    """File events that are all lost."""

    @staticmethod
    async def awatch(*_folders: str, **_options: object) -> AsyncIterator[set[tuple[int, str]]]:
        await asyncio.Event().wait()
        yield set()


@pytest.fixture(params=["events", "no events", "events that get lost"])
def heard(request, monkeypatch):
    """What is heard of changes."""
    if request.param != "events":
        lost = request.param == "events that get lost"
        monkeypatch.setitem(sys.modules, "watchfiles", Silent if lost else None)


class Follower:
    """Waits until a runtime has what it is to have."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    def __call__(self, _event: object) -> None:
        self._changed.set()

    async def until(self, done: Callable[[], bool]) -> None:
        """Look again after each change."""
        async with asyncio.timeout(PATIENCE):
            while not done():
                await self._changed.wait()
                self._changed.clear()


def has(runtime: Runtime, version: int | None) -> Callable[[], bool]:
    """Whether a version of all tools is in force."""

    def in_force() -> bool:
        tools = [runtime.registry.get(name) for name in TOOLS]
        return all((None if tool is None else version_said(tool)) == version for tool in tools)

    return in_force


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize(
    "way",
    sample(
        ["truncated and written in pieces", "the whole folder made anew", "released by a link to the folder"],
        one_in=9,
    ),
)
def test_a_watch_ends_with_the_last_version(tmp_path, way):
    async def main() -> None:
        folder = rewriting.lay_out(tmp_path, way)
        follower = Follower()
        with Writer(way, folder) as writer:
            async with Runtime.open(folder, index=False, watch=True, observer=follower) as runtime:
                writer.go_on(40)
                last = await asyncio.to_thread(writer.written)
                await follower.until(has(runtime, last))
                await runtime.reload()
                assert runtime.problems == ()

    asyncio.run(main())


def stale(runtime: Runtime) -> list[str]:
    return [card.name for card in runtime.registry.cards.values() if card.stale]


@pytest.mark.usefixtures("heard")
def test_a_watch_survives_that_its_folder_is_gone_for_a_while(tmp_path):
    async def main() -> None:
        folder = rewriting.lay_out(tmp_path, "deleted and created")
        follower = Follower()
        async with Runtime.open(folder, index=False, watch=True, observer=follower) as runtime:
            shutil.rmtree(folder)
            await follower.until(has(runtime, None))
            rewriting.write_all(folder, 1)
            await follower.until(has(runtime, 1))
            (folder / TOOLS["probe_yaml"]).write_text("name: [")
            await follower.until(lambda: stale(runtime) == ["probe_yaml"])
            rewriting.write_all(folder, 2)
            await follower.until(has(runtime, 2))

    asyncio.run(main())


@asynccontextmanager
async def followed(runtime: Runtime) -> AsyncIterator[None]:
    """Reload whenever file events say so, and at no other time."""

    async def follow() -> None:
        async for _report in runtime.watch(poll=3600):
            pass

    task = asyncio.ensure_future(follow())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


EDITS = {
    "in place": rewriting.write_all,
    **{
        way: ALL_WAYS[way].write
        for way in ("the whole folder made anew", "the whole folder moved away and back")
    },
    "released": ALL_WAYS["released by a link to the folder"].write,
}


def test_events_alone_are_enough_whatever_becomes_of_the_folder(tmp_path):
    async def main() -> None:
        folder = rewriting.lay_out(tmp_path, "deleted and created")
        follower = Follower()
        runtime = Runtime.open(folder, index=False, observer=follower)
        version = 0
        async with followed(runtime):
            for edit in ("in place", "the whole folder made anew", "the whole folder moved away and back"):
                for write in (EDITS[edit], rewriting.write_all):
                    version += 1
                    write(folder, version)
                    await follower.until(has(runtime, version))

    asyncio.run(main())


def test_events_follow_a_link_from_release_to_release(tmp_path):
    async def main() -> None:
        folder = rewriting.lay_out(tmp_path, "released by a link to the folder")
        follower = Follower()
        runtime = Runtime.open(folder, index=False, observer=follower)
        async with followed(runtime):
            for version in range(1, 7):
                EDITS["in place" if version % 2 else "released"](folder, version)
                await follower.until(has(runtime, version))

    asyncio.run(main())


def held(known: Iterable[threading.Thread] = ()) -> tuple[set[threading.Thread], int]:
    """The threads and the number of file descriptors of this process, once all threads but the known ones have ended."""
    if known:
        for thread in {*threading.enumerate()} - {*known}:
            thread.join(PATIENCE)
    gc.collect()
    return {*threading.enumerate()}, sum(1 for _ in Path("/dev/fd").iterdir())


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("ends", sample(["closed", "cancelled"], one_in=6))
def test_a_watch_that_ends_leaves_nothing_behind(tmp_path, ends):
    async def watch() -> None:
        follower = Follower()
        async with Runtime.open(tmp_path / "tools", index=False, watch=True, observer=follower) as runtime:
            rewriting.write_all(tmp_path / "tools", 1)
            await follower.until(has(runtime, 1))
            if ends == "cancelled":
                asyncio.current_task().cancel()
                await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.ensure_future(watch())
        await asyncio.wait([task])
        assert task.cancelled() == (ends == "cancelled")
        assert asyncio.all_tasks() == {asyncio.current_task()}

    rewriting.lay_out(tmp_path, "deleted and created")
    threads, descriptors = held()
    asyncio.run(main())
    after = held(threads)
    assert (after[0] - threads, after[1]) == (set(), descriptors)
