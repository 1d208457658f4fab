"""Archives that change while they are read: the whole old one, or the whole new one, or a problem; never a part."""

from __future__ import annotations

import asyncio
import hashlib
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rewriting import ARCHIVE, WAYS_OF_ARCHIVES, Writer, archive_of, pack_of, version_in, write_pack
from sampling import THOROUGH, sample
from toolcrib import Runtime
from toolcrib.loading.documents.archives import open_archive

ROUNDS = 12 if THOROUGH else 4
TOOLS = ["from_file", "probe"]


@pytest.fixture
def folder(tmp_path):
    """A folder with the archive in version 0."""
    (tmp_path / ARCHIVE).write_bytes(archive_of(0))
    return tmp_path


def version_of(runtime: Runtime) -> int | None:
    """The version that is in force, the same for all that the pack holds; None without the pack."""
    if not runtime.packs:
        assert not runtime.registry
        return None
    (pack,) = runtime.packs
    assert sorted(runtime.registry) == TOOLS
    versions = {version_in(runtime.call_sync(name).value) for name in TOOLS}
    assert versions == {int(pack.version.partition(".")[0])}
    return versions.pop()


@pytest.mark.parametrize("way", sample(WAYS_OF_ARCHIVES, one_in=4))
def test_each_opening_and_each_reload_has_one_version_whole(folder, way):
    absent, as_folder = WAYS_OF_ARCHIVES[way].absent, way == "a folder in its place and back"
    with Writer(f"archive: {way}", folder) as writer:
        runtime = Runtime.open(folder, index=False)
        last = 0
        for number in range(ROUNDS):
            writer.go_on(1 if as_folder else 1 + number % 5)
            if not as_folder:  # a folder is read file by file
                opened = Runtime.open(folder, index=False)
                assert version_of(opened) is not None or opened.problems or absent
            asyncio.run(runtime.reload())
            version = version_of(runtime)
            assert absent if version is None else version >= last
            last = writer.written()
            assert version_of(Runtime.open(folder, index=False)) == last
            report = asyncio.run(runtime.reload())
            assert (version_of(runtime), report.stale, report.problems) == (last, {}, ())


def test_an_archive_cut_anywhere_is_refused_and_keeps_its_last_good_version(folder):
    runtime = Runtime.open(folder, index=False)
    whole = archive_of(1)
    for end in (*range(0, len(whole), 53), *range(len(whole) - 30, len(whole))):
        (folder / ARCHIVE).write_bytes(whole[:end])
        archive, problems = open_archive(folder / ARCHIVE)
        assert archive is None
        assert problems
    report = asyncio.run(runtime.reload())
    assert (sorted(report.stale), version_of(runtime)) == (TOOLS, 0)
    (folder / ARCHIVE).write_bytes(whole)
    asyncio.run(runtime.reload())
    assert version_of(runtime) == 1


def test_a_byte_that_flips_is_noticed_or_makes_no_difference(folder):
    whole, contents = archive_of(0), pack_of(0)
    for at in range(0, len(whole), 3):
        (folder / ARCHIVE).write_bytes(whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :])
        archive, problems = open_archive(folder / ARCHIVE)
        assert problems if archive is None else archive.contents == contents


def test_two_archives_mixed_anywhere_are_never_read_as_one(folder):
    old, new = archive_of(1), archive_of(2)
    for at in range(1, len(new), 17):
        (folder / ARCHIVE).write_bytes(new[:at] + old[at:])
        archive, problems = open_archive(folder / ARCHIVE)
        assert problems if archive is None else archive.contents in (pack_of(1), pack_of(2))


def test_a_folder_and_an_archive_take_each_others_place(folder):
    runtime = Runtime.open(folder, index=False)
    (folder / ARCHIVE).unlink()
    (folder / ARCHIVE).mkdir()
    report = asyncio.run(runtime.reload())
    assert (report.gone, report.problems) == (tuple(TOOLS), ())
    write_pack(folder / ARCHIVE, 1)
    asyncio.run(runtime.reload())
    assert version_of(runtime) == 1
    (folder / ARCHIVE / "tools" / "probe.yaml").write_text("name: [")
    report = asyncio.run(runtime.reload())
    assert (list(report.stale), version_of(runtime)) == (["probe"], 1)


BUILD = """
import sys
from toolcrib.cli import main
_, folder, target, times = sys.argv
sys.argv = ["toolcrib", "pack", "build", folder, "--output", target]
for _ in range(int(times)):
    try:
        main()
    except SystemExit as end:
        if end.code:
            raise
"""


def building(source: Path, target: Path, times: int = 5, **options: object) -> subprocess.Popen[bytes]:
    """A process that builds an archive over and over."""
    command = [sys.executable, "-c", BUILD, source, target, str(times)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)


@pytest.mark.exhaustive
def test_two_processes_that_build_one_archive_leave_it_whole_at_any_time(tmp_path):
    target = tmp_path / "built.zip"
    packs = [write_pack(tmp_path / str(version), version) for version in (1, 2)]
    builders = [building(pack, target) for pack in packs]
    digests = set()
    while any(builder.poll() is None for builder in builders):
        if target.exists():
            archive, problems = open_archive(target)
            assert problems == []
            assert archive.contents in (pack_of(1), pack_of(2))
            digests.add(archive.digest)
    for builder in builders:
        _, errors = builder.communicate()
        assert (builder.returncode, errors) == (0, b"")
    assert hashlib.sha256(target.read_bytes()).hexdigest() in digests
    assert len(digests) <= 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "built.zip"]


@pytest.mark.exhaustive
def test_a_full_disk_leaves_the_archive_that_was_there(tmp_path):
    target = tmp_path / "built.zip"
    target.write_bytes(before := archive_of(0))

    def narrow() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))

    builder = building(write_pack(tmp_path / "1", 1), target, preexec_fn=narrow)
    _, errors = builder.communicate()
    assert builder.returncode != 0
    assert b"cannot be written: File too large" in errors
    assert target.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "built.zip"]
