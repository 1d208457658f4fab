"""Reloads while another process rewrites the files: every answer is whole, every reload reports, the last version wins."""

from __future__ import annotations

import asyncio
import gc
import itertools
import resource
import threading
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rewriting
from rewriting import (
    ALL_WAYS,
    TOOLS,
    WAYS,
    WAYS_OF_DENIAL,
    WAYS_OF_SETTINGS,
    Way,
    Writer,
    version_in,
    version_said,
    without_privileges,
)
from sampling import THOROUGH, sample
from toolcrib import Descriptor, Outcome, Registry, Runtime
from toolcrib.engine.session import BoundChain, ToolTable
from toolcrib.executors.mock import BoundMock
from toolcrib.loading.fingerprints import FileTracker
from toolcrib.loading.reload import ReloadReport
from toolcrib.loading.snapshot import LoadedProject

ROUNDS = 25 if THOROUGH else 5
"""So often a reload is made while files are written, and another one when they are."""

RELOADS = 1000 if THOROUGH else 151
"""So often files are read again, to see whether anything is left behind."""


class Witness:
    """Calls tools and keeps what they answered."""

    def __init__(self, runtime: Runtime, way: Way) -> None:
        self.runtime = runtime
        self.versions = {name: [0] for name in TOOLS}
        self._way = way

    async def calls(self) -> None:
        """Call each tool once. A version is whole, and no older than the one before."""
        for name, seen in self.versions.items():
            result = await self.runtime.call(name)
            if result.outcome is Outcome.NOT_FOUND and self._way.absent:
                continue
            assert result.outcome is Outcome.OK, (name, result)
            version = version_in(result.value)
            assert version >= seen[-1]
            if version > seen[-1]:
                seen.append(version)
        steady = await self.runtime.call("steady")
        assert steady.value == rewriting.result_of(0) or self._way.whole

    async def reload(self) -> ReloadReport:
        """Reload, with calls before, while it runs, and after."""
        reload = asyncio.ensure_future(self.runtime.reload())
        while not reload.done():
            await self.calls()
            await asyncio.wait([reload], timeout=0.001)
        await self.calls()
        report = reload.result()
        assert report.revision == self.runtime.registry.revision
        return report


@pytest.mark.parametrize("way", sample([*WAYS, *WAYS_OF_DENIAL], one_in=4))
def test_every_version_is_whole_and_the_last_one_wins(tmp_path, way):
    async def main() -> None:
        folder = rewriting.lay_out(tmp_path, way)
        witness = Witness(Runtime.open(folder, index=False), ALL_WAYS[way])
        with Writer(way, folder) as writer:
            for number in range(ROUNDS):
                writer.go_on(1 + number % 5)
                await witness.reload()
                last = await asyncio.to_thread(writer.written)
                report = await witness.reload()
                assert (report.stale, report.problems) == ({}, ())
                assert {name: seen[-1] for name, seen in witness.versions.items()} == dict.fromkeys(
                    TOOLS, last
                )

    with without_privileges():
        asyncio.run(main())


@pytest.mark.parametrize("way", sample(WAYS_OF_SETTINGS, one_in=4))
def test_settings_of_a_project_and_of_a_pack_are_those_of_one_version(tmp_path, way):
    rewriting.write_settings(tmp_path, 0)

    def offered() -> list[str]:
        names = [card.name for card in runtime.registry.query()]
        (pack,) = runtime.packs
        assert len(names) == 2
        assert names[1] == f"{pack.namespace}__packed"
        assert pack.version == f"{pack.namespace[1:]}.0.0"
        return names

    with without_privileges(), Writer(f"settings: {way}", tmp_path) as writer:
        runtime = Runtime.open(tmp_path, index=False)
        for number in range(ROUNDS):
            writer.go_on(1 + number % 5)
            asyncio.run(runtime.reload())
            offered()
            last = writer.written()
            report = asyncio.run(runtime.reload())
            assert offered() == [f"only_{last % 3}", f"v{last}__packed"]
            assert (runtime.project.name, report.stale, report.problems) == (f"p{last}", {}, ())


def test_permission_that_is_taken_away_keeps_everything_as_it_was(tmp_path):
    async def main() -> None:
        runtime = Runtime.open(folder, index=False)
        for path in (folder / TOOLS["probe_yaml"], folder / "sub", folder, folder.parent):
            mode = path.stat().st_mode
            path.chmod(0)
            try:
                report = await runtime.reload()
            finally:
                path.chmod(mode)
            assert report.stale
            assert {problem.code for problem in report.problems} == {"file_unreadable"}
            for name in TOOLS:
                assert version_in((await runtime.call(name)).value) == 0
            report = await runtime.reload()
            assert (report.stale, report.problems) == ({}, ())

    folder = rewriting.lay_out(tmp_path / "above", "permission for files")
    with without_privileges():
        asyncio.run(main())


def test_a_reload_without_a_file_descriptor_to_spare_keeps_everything_as_it_was(tmp_path):
    async def main() -> None:
        runtime = Runtime.open(rewriting.lay_out(tmp_path, "deleted and created"), index=False)
        await runtime.reload()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            report = await runtime.reload()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert sorted(report.stale) == sorted([*TOOLS, "steady"])
        assert [version_in((await runtime.call(name)).value) for name in TOOLS] == [0] * len(TOOLS)
        report = await runtime.reload()
        assert (report.stale, report.problems) == ({}, ())

    asyncio.run(main())


async def turns(count: int) -> None:
    """Let everything else go on so many times."""
    for _ in range(count):
        await asyncio.sleep(0)  # noqa: TID251 -- no time passes


@pytest.mark.exhaustive
def test_calls_end_on_the_version_that_they_began_with(tmp_path):
    async def main() -> None:
        folder = rewriting.lay_out(tmp_path, "written beside and put in place")
        lengths = itertools.cycle((0, 1, 2, 5, 50, 500))

        async def waits(call, call_next):
            await turns(next(lengths))
            result = await call_next(call)
            await turns(next(lengths))
            return result

        async def calls(name: str) -> int:
            crossed = 0
            while not done.is_set():
                before = runtime.registry
                begun = version_said(before[name])
                assert version_in((await runtime.call(name)).value) == begun
                crossed += runtime.registry is not before
            return crossed

        runtime = Runtime.open(folder, index=False, middleware=[waits])
        done = asyncio.Event()
        running = [asyncio.ensure_future(calls(name)) for name in TOOLS for _ in range(25)]
        for version in range(1, 40):
            rewriting.write_all(folder, version)
            await runtime.reload()
        done.set()
        assert sum(await asyncio.gather(*running)) > 0

    asyncio.run(main())


def census() -> dict[str, int]:
    """How many there are of what a reload makes."""
    gc.collect()
    kinds = (Registry, ToolTable, BoundChain, Descriptor, LoadedProject, FileTracker, BoundMock)
    counts = Counter(type(each).__name__ for each in gc.get_objects() if type(each) in kinds)
    return {
        **counts,
        "tasks": len(asyncio.all_tasks()),
        "threads": threading.active_count(),
        "descriptors": sum(1 for _ in Path("/dev/fd").iterdir()),
    }


def test_many_reloads_leave_nothing_behind(tmp_path):
    async def main() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        runtime = Runtime.open(tmp_path, index=False, observer=lambda _event: None)
        follows = runtime.session()
        held = runtime.session(registry=runtime.registry)
        bound = weakref.WeakSet()
        counts = []
        for number in range(1, RELOADS + 1):
            (tmp_path / "a.yaml").write_text(
                "name: [" if number % 3 == 0 else f"name: a\nmock: {{result: {number}}}\n"
            )
            await runtime.reload()
            assert (await follows.call("a")).value == number - (number % 3 == 0)
            bound.add(runtime._engine.chain_for(runtime.registry["a"]).bound)
            if number in {99, RELOADS - 1}:
                counts.append(census())
        assert counts[0] == counts[1]
        gc.collect()
        assert len(bound) == 1
        assert (await held.call("a")).value == 0

    (tmp_path / "a.yaml").write_text("name: a\nmock: {result: 0}\n")
    asyncio.run(main())
