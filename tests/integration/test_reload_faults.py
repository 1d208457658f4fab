"""Reloads while another process rewrites the files: every answer is whole, every reload reports, the last version wins."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import rewriting
from rewriting import TOOLS, WAYS, Way, Writer, version_in
from toolcrib import Outcome, Runtime
from toolcrib.reloading import ReloadReport

ROUNDS = 25
"""So often a reload is made while files are written, and another one when they are."""


def laid_out(base: Path, way: str) -> Path:
    """The folder in version 0."""
    folder = base / "tools"
    if WAYS[way].linked:
        (base / "release-0").mkdir()
        folder.symlink_to(base / "release-0")
    rewriting.write_all(folder, 0)
    return folder


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


@pytest.mark.parametrize("way", WAYS)
def test_every_version_is_whole_and_the_last_one_wins(tmp_path, way):
    async def main() -> None:
        folder = laid_out(tmp_path, way)
        witness = Witness(Runtime.open(folder, index=False), WAYS[way])
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

    asyncio.run(main())
