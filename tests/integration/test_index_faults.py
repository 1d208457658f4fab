"""The index under two processes that open and a third that writes, and under faults: always what a cold opening finds."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import rewriting
from commands import python_command
from opening_again import Opener, findings
from rewriting import ALL_WAYS, ARCHIVE, Writer, archive_of, version_in, without_privileges
from sampling import sample

TESTS = str(Path(rewriting.__file__).parent)

ROUNDS = 2
HOUR = 3600


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The user's cache folder."""
    monkeypatch.setenv("TOOLCRIB_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(tmp_path / "state"))
    return tmp_path / "cache"


def versions_in(found: dict[str, Any]) -> set[int]:
    """The versions of the answers, each of which is whole."""
    steady = {"steady"} if "steady" in found["answers"] else set()
    return {version_in(value) for name, (_, value) in found["answers"].items() if name not in steady}


WAYS = [way for way in ALL_WAYS if not way.startswith(("permission", "settings"))]


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("way", sample(WAYS, one_in=24))
def test_every_opening_finds_what_is_there(tmp_path, way):
    """While files are written each tool is whole, and when they are, everything is as it is read without an index."""
    base = tmp_path / "base"
    base.mkdir()
    folder = rewriting.lay_out(base, way)
    if way.startswith("archive"):
        (folder / ARCHIVE).write_bytes(archive_of(0))
    with ExitStack() as stack:
        writer = stack.enter_context(Writer(way, folder))
        openers = [stack.enter_context(Opener(folder)) for _ in range(2)]
        last = 0
        for number in range(ROUNDS):
            for opener in openers:
                opener.go_on(3)
            writer.go_on(1 + number % 5)
            for opener in openers:
                for found in opener.found():
                    versions = versions_in(found)
                    assert versions <= set(range(last, last + 6)) | {0}
                    assert versions or found["problems"] or ALL_WAYS[way].absent
            last = writer.written()
            cold = findings(folder, index=False)
            assert last in versions_in(cold)
            for opener in openers:
                opener.go_on(2)
            assert [found for opener in openers for found in opener.found()] == [cold] * 4
        assert all(opener.recalls() for opener in openers)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("way", sample((way for way in ALL_WAYS if way.startswith("settings")), one_in=4))
def test_every_opening_has_the_settings_that_are_there(tmp_path, way):
    base = tmp_path / "base"
    rewriting.write_settings(base, 0)
    with Writer(way, base) as writer, Opener(base) as one, Opener(base) as other:
        for number in range(ROUNDS):
            for opener in (one, other):
                opener.go_on(3)
            writer.go_on(1 + number % 5)
            assert [len(opener.found()) for opener in (one, other)] == [3, 3]
            last = writer.written()
            cold = findings(base, index=False)
            assert cold["packs"] == [["pack", f"{last}.0.0"]]
            assert [one.opened(), other.opened(), one.opened()] == [cold] * 3


@pytest.mark.usefixtures("cache")
def test_a_source_that_led_into_another_one_may_lead_elsewhere_later(tmp_path):
    for folder in ("tools", "elsewhere"):
        rewriting.write_all(tmp_path / folder, 0)
    (tmp_path / "elsewhere" / "more.yaml").write_text("name: more\nmock: {result: 1}\n")
    (tmp_path / "toolcrib.yaml").write_text("project: p\nsources: [tools, current]\n")
    (tmp_path / "current").symlink_to("tools")
    assert "more" not in findings(tmp_path, index=True)["answers"]
    (tmp_path / "current").unlink()
    (tmp_path / "current").symlink_to("elsewhere")
    assert findings(tmp_path, index=True)["answers"]["more"] == ["ok", 1]


def write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "within").touch()


def replace_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replace_folder_by_file(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.write_text("no folder")


def replace_folder_by_loop(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.symlink_to(path.parent)


FAULTS = {
    "cut": lambda path: write(path, path.read_bytes()[: path.stat().st_size // 2]),
    "empty": lambda path: write(path, b""),
    "longer": lambda path: write(path, path.read_bytes() + b"\0"),
    "a flipped bit in the head": lambda path: flip(path, 60),
    "a flipped bit at the end": lambda path: flip(path, -3),
    "random bytes": lambda path: write(path, os.urandom(path.stat().st_size)),
    "random bytes behind the magic line": lambda path: write(path, path.read_bytes()[:17] + os.urandom(5000)),
    "a huge length": lambda path: write(path, path.read_bytes()[:17] + b"\xff" * 8 + path.read_bytes()[33:]),
    "an index of another project": lambda path: write(path, index_of_another_project(path)),
    "another key": lambda _path: key_file().write_bytes(os.urandom(32)),
    "no key": lambda _path: key_file().unlink(),
    "half of a key": lambda _path: key_file().write_bytes(b"half"),
    "a key that others may read": lambda _path: key_file().chmod(0o644),
    "zeros": lambda path: write(path, bytes(path.stat().st_size)),
    "gone": Path.unlink,
    "a folder in its place": replace_by_folder,
    "a pipe in its place": replace_by_pipe,
    "a link to nowhere": lambda path: (path.unlink(), path.symlink_to("nowhere")),
    "a file in place of the folder": replace_folder_by_file,
    "a loop in place of the folder": replace_folder_by_loop,
    "may not be read": lambda path: path.chmod(0),
    "may not be written": lambda path: path.parent.chmod(0o500),
    "the folder may not be reached": lambda path: path.parent.chmod(0),
    "clock set back": lambda path: os.utime(path, (0, 0)),
    "from the future": lambda path: os.utime(path, (2**33, 2**33)),
}


def key_file() -> Path:
    return Path(os.environ["TOOLCRIB_STATE_DIR"]) / "key"


def index_of_another_project(path: Path) -> bytes:
    """A whole index, with the same key, of other documents."""
    other = path.parent.parent / "another project"
    other.mkdir()
    rewriting.write_all(other, 7)
    findings(other, index=True)
    (found,) = {*path.parent.iterdir()} - {path}
    return found.read_bytes()


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("edited", sample([False, True], one_in=26))
@pytest.mark.parametrize("fault", sample(FAULTS, one_in=3))
def test_whatever_becomes_of_the_index_nothing_else_is_found(tmp_path, cache, fault, edited):
    folder = rewriting.lay_out(tmp_path, "deleted and created")
    with without_privileges():
        findings(folder, index=True)
        (kept,) = (cache / "index").iterdir()
        FAULTS[fault](kept)
        if edited:
            rewriting.write_all(folder, 1)
        cold = findings(folder, index=False)
        for _ in range(3):
            assert findings(folder, index=True) == cold
    if (cache / "index").is_dir():
        (cache / "index").chmod(0o700)


HARMED = {
    "random bytes": os.urandom,
    "random bytes behind the magic line": lambda length: b"toolcrib index 3\n" + os.urandom(length),
    "random bytes behind the old magic line": lambda length: b"toolcrib index 2\n" + os.urandom(length),
    "a huge length": lambda length: b"toolcrib index 3\n" + b"\xff" * 8 + os.urandom(length),
    "nothing": lambda _length: b"",
}


@pytest.mark.parametrize(
    "harm", sample((pytest.param(harm, id=name) for name, harm in HARMED.items()), one_in=8)
)
def test_a_list_over_random_bytes_is_the_list_and_writes_the_index_anew(tmp_path, cache, harm):
    folder = rewriting.lay_out(tmp_path, "deleted and created")

    def listed() -> str:
        main = "from toolcrib.cli import main; main()"
        command = python_command("-W", "error", "-c", main, "list", "--pack", ".")
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout

    expected = listed()
    (kept,) = (cache / "index").iterdir()
    for length in sample((1, 100, 200, 5000), one_in=3):
        harmed = harm(length)
        kept.write_bytes(harmed)
        assert listed() == expected
        assert kept.read_bytes() != harmed
        assert listed() == expected


def edit_keeping(path: Path, data: bytes, seconds: float) -> None:
    """Other bytes, and a time that somebody sets."""
    path.write_bytes(data)
    os.utime(path, (seconds, seconds))


@pytest.mark.usefixtures("cache")
def test_no_clock_makes_an_edit_pass_unnoticed(tmp_path):
    """Times of files are set back, forth, and to what they were; the lengths stay as they are."""
    folder = rewriting.lay_out(tmp_path, "deleted and created")
    steady = folder / "steady.yaml"
    before = steady.stat().st_mtime
    for number, seconds in enumerate((before, 0, before - HOUR, before + HOUR, 2**32, before, before)):
        edit_keeping(steady, b'mock: {result: %d}\nname: "steady"\n' % number, seconds)
        os.utime(folder, (seconds, seconds))
        for _ in range(2):
            assert findings(folder, index=True)["answers"]["steady"] == ["ok", number]


LIMITS = [0, 1, 100, 4096, 20000]


@pytest.mark.exhaustive
@pytest.mark.parametrize("limit", sample(LIMITS, one_in=8))
def test_a_full_disk_costs_nothing_but_time(tmp_path, cache, limit):
    folder = rewriting.lay_out(tmp_path, "deleted and created")
    cold = findings(folder, index=False)
    with Opener(
        folder, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    ) as opener:
        assert [opener.opened() for _ in range(2)] == [cold, cold]
        rewriting.write_all(folder, 1)
        assert opener.opened() == findings(folder, index=False)
    assert limit == LIMITS[-1] or list(cache.rglob("*.index*")) == []
    assert findings(folder, index=True) == findings(folder, index=False)


DYING = """
import signal, sys
from pathlib import Path
from opening_again import findings
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
findings(Path(sys.argv[1]), index=True)
"""


def test_who_dies_while_an_index_is_written_leaves_the_one_that_was_there(tmp_path, cache):
    folder = rewriting.lay_out(tmp_path, "deleted and created")
    cold = findings(folder, index=True)
    before = {path: path.read_bytes() for path in (cache / "index").iterdir()}
    rewriting.write_all(folder, 1)

    def die_at_the_first_thousand_bytes() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    died = subprocess.run(
        [sys.executable, "-c", DYING, folder],
        preexec_fn=die_at_the_first_thousand_bytes,
        env={**os.environ, "PYTHONPATH": TESTS},
        check=False,
    )
    assert died.returncode == -signal.SIGXFSZ
    assert {path: path.read_bytes() for path in before} == before
    assert findings(folder, index=True) == findings(folder, index=False) != cold
    rewriting.write_all(folder, 0)
    assert findings(folder, index=True) == cold
