"""Watching: what changed is reported once, when it rests, with file events and without."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractContextManager, aclosing, asynccontextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from toolcrib.core.clock import RealClock
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.virtual_clock import VirtualClock
from toolcrib.loading.fingerprints import FileFingerprints, FileTracker
from toolcrib.loading.reload import PATIENCE, watch_changes


class ScriptedClock:
    """Every wait ends at once; at each one the next of `acts` happens. `waits` tells how long they would have been."""

    def __init__(self, *acts: Callable[[], object]) -> None:
        self.waits: list[float] = []
        self.outsides = 0
        self._acts = list(acts)
        self._time = 0.0

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._time, UTC)

    def monotonic(self) -> float:
        return self._time

    def _wait(self, seconds: float) -> None:
        self._time += seconds
        self.waits.append(round(seconds, 6))
        if self._acts:
            self._acts.pop(0)()

    async def sleep(self, seconds: float) -> None:
        if seconds > 0:
            self._wait(seconds)
        await asyncio.sleep(0)  # noqa: TID251 -- it is a clock

    @asynccontextmanager
    async def timeout(self, seconds: float) -> AsyncIterator[asyncio.Timeout]:
        self._wait(seconds)
        async with asyncio.timeout(0) as timer:
            yield timer

    def working(self) -> AbstractContextManager[object]:
        return nullcontext()

    waiting = working

    def outside(self) -> AbstractContextManager[object]:
        self.outsides += 1
        return nullcontext()


class Folder:
    """A folder, what was seen of it, and saving."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / "a.yaml"
        self.file.write_text("0")
        self.saves = 0
        self.seen = self.look()

    def look(self) -> FileFingerprints:
        trail = FileTracker()
        for name in trail.folder(self.path) or ():
            trail.file(self.path / name)
        self.seen = trail.closed()
        return self.seen

    def save(self) -> None:
        self.saves += 1
        self.file.write_text(str(self.saves))


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def nothing() -> None:
    """An act of a script."""


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run a test, and see that nothing is left behind."""

    async def alone() -> None:
        async with asyncio.timeout(60):
            await main
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(alone())


def test_a_change_is_reported_when_it_rests(folder: Folder) -> None:
    async def main() -> None:
        clock = ScriptedClock(nothing, folder.save)
        async with aclosing(watch_changes(lambda: folder.seen, clock=clock, events=False)) as reports:
            assert await anext(reports) == [str(folder.file)]
        assert clock.waits == [1.0, 1.0, 0.1]
        assert clock.outsides == 2

    run(main())


def test_several_saves_are_one_report(folder: Folder) -> None:
    async def main() -> None:
        other = folder.path / "b.yaml"
        clock = ScriptedClock(folder.save, folder.save, other.touch, folder.save, nothing)
        async with aclosing(watch_changes(lambda: folder.seen, clock=clock, events=False)) as reports:
            assert await anext(reports) == [str(folder.file), str(other)]
        assert clock.waits == [1.0, 0.1, 0.1, 0.1, 0.1]

    run(main())


def test_a_file_that_never_rests_is_reported_in_the_end(folder: Folder) -> None:
    async def main() -> None:
        clock = ScriptedClock(*[folder.save] * 1000)
        async with aclosing(watch_changes(lambda: folder.seen, clock=clock, events=False)) as reports:
            assert await anext(reports) == [str(folder.file)]
        assert folder.saves == 1 + PATIENCE

    run(main())


def test_what_was_put_back_while_it_was_waited_for_is_no_change(folder: Folder) -> None:
    async def main() -> None:
        added = folder.path / "b.yaml"
        clock = ScriptedClock(added.touch, added.unlink, nothing, folder.save)
        async with aclosing(watch_changes(lambda: folder.seen, clock=clock, events=False)) as reports:
            assert await anext(reports) == [str(folder.file)]
        assert clock.waits == [1.0, 0.1, 1.0, 1.0, 0.1]

    run(main())


def test_what_was_reported_is_not_reported_again(folder: Folder) -> None:
    async def main() -> None:
        clock = ScriptedClock(folder.save, *[nothing] * 9, folder.save)
        async with aclosing(watch_changes(lambda: folder.seen, clock=clock, events=False)) as reports:
            await anext(reports)
            assert await anext(reports) == [str(folder.file)]
        assert folder.saves == 2

    run(main())


def test_whoever_looks_anew_is_followed(folder: Folder) -> None:
    async def main() -> None:
        added = folder.path / "b.yaml"
        clock = ScriptedClock(folder.save, nothing, nothing, added.touch, nothing, nothing, added.unlink)
        async with aclosing(watch_changes(lambda: folder.seen, clock=clock, events=False)) as reports:
            assert await anext(reports) == [str(folder.file)]
            folder.look()
            assert await anext(reports) == [str(added)]
            folder.look()
            assert await anext(reports) == [str(added)]

    run(main())


class SlowClock(ScriptedClock):
    """A clock by which every look takes two seconds."""

    def monotonic(self) -> float:
        self._time += 2.0
        return self._time


def test_looking_costs_a_twentieth_of_the_time(folder: Folder) -> None:
    async def main() -> None:
        clock = SlowClock(nothing, folder.save)
        async with aclosing(watch_changes(lambda: folder.seen, clock=clock, events=False)) as reports:
            await anext(reports)
        assert 38.0 in clock.waits

    run(main())


def test_virtual_time_runs_as_real_time_while_it_is_waited(folder: Folder) -> None:
    async def main() -> None:
        clock, began = VirtualClock(), time.monotonic()
        reports = watch_changes(lambda: folder.seen, clock=clock, poll=0.02, quiet=0.02, events=False)
        async with aclosing(reports):
            folder.save()
            await anext(reports)
            assert 0.04 <= clock.monotonic() <= time.monotonic() - began

    run(main())


async def saved_until_told(folder: Folder, reports: AsyncIterator[list[str]]) -> list[str]:
    """The next report. A file is saved until then, for nobody tells when the listening has begun."""
    report = asyncio.ensure_future(anext(reports))
    while not report.done():
        folder.save()
        await asyncio.wait([report], timeout=0.1)
    return report.result()


def test_file_events_wake_an_early_look(folder: Folder) -> None:
    async def main() -> None:
        reports = watch_changes(lambda: folder.seen, clock=RealClock(), poll=3600, quiet=0.01, events=True)
        async with aclosing(reports):
            assert await saved_until_told(folder, reports) == [str(folder.file)]
            folder.look()
            assert await saved_until_told(folder, reports) == [str(folder.file)]

    run(main())


def test_folders_that_come_later_are_listened_to(folder: Folder) -> None:
    async def main() -> None:
        (folder.path / "inner").mkdir()
        inner = Folder(folder.path / "inner")
        at = folder
        reports = watch_changes(lambda: at.seen, clock=RealClock(), poll=3600, quiet=0.01, events=True)
        async with aclosing(reports):
            assert str(folder.file) in await saved_until_told(folder, reports)
            at = inner
            assert await saved_until_told(inner, reports) == [str(inner.file)]

    run(main())


def test_a_folder_that_is_gone_leaves_the_regular_looks(tmp_path: Path) -> None:
    async def main() -> None:
        trail = FileTracker()
        trail.folder(tmp_path / "tools")
        seen = trail.closed()
        clock = ScriptedClock(nothing, (tmp_path / "tools").mkdir)
        async with aclosing(watch_changes(lambda: seen, clock=clock, events=True)) as reports:
            assert await anext(reports) == [str(tmp_path / "tools")]

    run(main())


def test_cancelling_ends_everything(folder: Folder) -> None:
    async def main() -> None:
        async def follow() -> None:
            async for _paths in watch_changes(lambda: folder.seen, clock=RealClock(), poll=3600, events=True):
                raise AssertionError

        task = asyncio.ensure_future(follow())
        await asyncio.wait([task], timeout=0.05)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await asyncio.get_running_loop().shutdown_asyncgens()

    run(main())


def test_without_the_extra_files_are_looked_at(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        clock = ScriptedClock(folder.save, nothing, nothing, folder.save)
        async with aclosing(watch_changes(lambda: folder.seen, clock=clock)) as reports:
            assert await anext(reports) == [str(folder.file)]
            assert await anext(reports) == [str(folder.file)]

    monkeypatch.setitem(sys.modules, "watchfiles", None)
    with caplog.at_level(logging.INFO, "toolcrib"):
        run(main())
    told = [record.getMessage() for record in caplog.records if "file events" in record.getMessage()]
    assert len(told) == 1
    assert "pip install 'toolcrib[watch]'" in told[0]


def test_whoever_insists_on_events_is_told_the_extra(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        with pytest.raises(ConfigurationError) as caught:
            await anext(watch_changes(lambda: folder.seen, clock=RealClock(), events=True))
        assert caught.value.hint == "pip install 'toolcrib[watch]'"
        assert caught.value.code == "missing_extra"

    monkeypatch.setitem(sys.modules, "watchfiles", None)
    run(main())


def test_events_that_fail_leave_the_regular_looks(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Full:
        @staticmethod
        async def awatch(*_folders: str, **_options: object) -> AsyncIterator[object]:
            raise OSError(28, "no space left on device: too many watches")
            yield

    async def main() -> None:
        clock = ScriptedClock(nothing, folder.save)
        async with aclosing(watch_changes(lambda: folder.seen, clock=clock, events=True)) as reports:
            assert await anext(reports) == [str(folder.file)]

    monkeypatch.setitem(sys.modules, "watchfiles", Full)
    with caplog.at_level(logging.INFO, "toolcrib"):
        run(main())
    assert "too many watches" in caplog.text
