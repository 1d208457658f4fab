"""The trail: every change of what was looked at is noticed, and nothing else."""

from __future__ import annotations

import marshal
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib.loading.fingerprints import RACY, SUFFIXES, FileFingerprints, FileTracker

HOUR = 3600 * 1_000_000_000


def age(path: Path, by: int = HOUR) -> None:
    """Set a file's or folder's times back."""
    then = path.stat().st_mtime_ns - by
    os.utime(path, ns=(then, then))


def later() -> int:
    """A clock that is far enough ahead that no file of a test is racy."""
    return time.time_ns() + HOUR


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """`tools/` with two files, a subfolder with one, a link, and something that does not matter."""
    tools = tmp_path / "tools"
    (tools / "sub").mkdir(parents=True)
    (tools / "a.yaml").write_text("name: a")
    (tools / "b.json").write_text("{}")
    (tools / "sub" / "c.yml").write_text("name: c")
    (tmp_path / "elsewhere.yaml").write_text("name: l")
    (tools / "link.yaml").symlink_to(tmp_path / "elsewhere.yaml")
    (tools / "notes.md").write_text("notes")
    return tools


def documents_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())


def look(folder: Path, now: Callable[[], int] = time.time_ns) -> FileFingerprints:
    """What loading looks at: the folders, the files, and a file that is not there."""
    trail = FileTracker(now)
    trail.file(folder.parent / "toolcrib.yaml")
    for here in (folder, folder / "sub"):
        trail.folder(here)
    for path in documents_in(folder):
        trail.file(path)
    return trail.closed()


@pytest.fixture(params=["racy", "settled"])
def seen(request: pytest.FixtureRequest, folder: Path) -> FileFingerprints:
    """The same folder, noted right after it was written, or long after."""
    return look(folder, time.time_ns if request.param == "racy" else later)


def replace_keeping_times(path: Path, text: str) -> None:
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def turn_into_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def retarget(folder: Path) -> None:
    (folder.parent / "other.yaml").write_text("name: l")
    (folder / "link.yaml").unlink()
    (folder / "link.yaml").symlink_to(folder.parent / "other.yaml")


def target_becomes_folder(folder: Path) -> None:
    turn_into_folder(folder.parent / "elsewhere.yaml")


def replace_folder(folder: Path) -> None:
    (folder / "sub").rename(folder.parent / "gone")
    (folder / "sub").mkdir()
    (folder / "sub" / "c.yml").write_text("name: c")


EDITS: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "content": (lambda f: (f / "a.yaml").write_text("name: changed"), ["a.yaml"]),
    "same length": (lambda f: (f / "a.yaml").write_text("name: b"), ["a.yaml"]),
    "same length and time": (lambda f: replace_keeping_times(f / "a.yaml", "name: b"), ["a.yaml"]),
    "clock set back": (lambda f: age(f / "a.yaml"), ["a.yaml"]),
    "time in the future": (lambda f: age(f / "a.yaml", -HOUR), ["a.yaml"]),
    "new file": (lambda f: (f / "d.yaml").write_text(""), ["d.yaml"]),
    "new file below": (lambda f: (f / "sub" / "d.yaml").write_text(""), ["sub/d.yaml"]),
    "removed": (lambda f: (f / "a.yaml").unlink(), ["a.yaml"]),
    "renamed": (lambda f: (f / "a.yaml").rename(f / "z.yaml"), ["a.yaml", "z.yaml"]),
    "replaced by another": (lambda f: (f / "a.yaml").rename(f / "b.json"), ["a.yaml", "b.json"]),
    "new folder": (lambda f: (f / "more").mkdir(), ["more"]),
    "folder removed": (
        lambda f: (f / "sub").rename(f.parent / "gone"),
        ["sub", "sub/c.yml"],
    ),
    "folder replaced": (replace_folder, ["sub/c.yml"]),
    "top folder gone": (
        lambda f: f.rename(f.parent / "gone"),
        ["", "a.yaml", "b.json", "link.yaml", "sub", "sub/c.yml"],
    ),
    "became a folder": (lambda f: turn_into_folder(f / "a.yaml"), ["a.yaml"]),
    "link retargeted": (retarget, ["link.yaml"]),
    "link's target edited": (lambda f: (f.parent / "elsewhere.yaml").write_text("x"), ["link.yaml"]),
    "link's target became a folder": (target_becomes_folder, ["link.yaml"]),
    "absent file appears": (lambda f: (f.parent / "toolcrib.yaml").write_text("x"), ["../toolcrib.yaml"]),
    "no longer a link": (
        lambda f: ((f / "link.yaml").unlink(), (f / "link.yaml").write_text("name: l")),
        ["link.yaml"],
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_every_edit_is_noticed(folder: Path, seen: FileFingerprints, edit: str) -> None:
    change, paths = EDITS[edit]
    assert seen.unchanged()
    change(folder)
    assert not seen.unchanged()
    wanted = {os.path.normpath(folder / path) for path in paths}
    assert {os.path.normpath(path) for path in seen.changed()} == wanted


def test_nothing_changed_is_told_so(seen: FileFingerprints) -> None:
    assert seen.changed() == []


def test_what_does_not_matter_is_no_change(folder: Path, seen: FileFingerprints) -> None:
    (folder / ".a.yaml.swp").write_text("an editor's")
    (folder / "notes.md").write_text("more notes")
    (folder / "new.txt").write_text("")
    (folder / "node_modules").mkdir()
    (folder / ".git").mkdir()
    (folder / ".git" / "x.yaml").write_text("")
    assert seen.unchanged()
    assert seen.changed() == []


def test_an_edit_without_a_new_time_is_seen_by_its_content(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("name: a")
    trail = FileTracker()
    trail.file(path)
    seen = trail.closed()
    # What a coarse clock leaves of a quick second save: every figure the same, other bytes.
    path.write_text("name: b")
    same = FileFingerprints(look_at(path).files, seen.contents, seen.folders)
    assert same.changed() == [str(path)]
    assert not same.unchanged()


def look_at(path: Path) -> FileFingerprints:
    trail = FileTracker()
    trail.file(path)
    return trail.closed()


def test_only_what_was_touched_lately_is_compared_by_content(folder: Path) -> None:
    assert set(look(folder).contents) == {str(path) for path in documents_in(folder)}
    assert look(folder, later).contents == {}


def test_what_is_long_untouched_needs_no_content_any_more(folder: Path) -> None:
    seen = look(folder)
    still = seen.refreshed()
    assert still is seen
    calm = seen.refreshed(later)
    assert calm is not None
    assert calm.contents == {}
    assert all(state for state, _names in calm.folders.values())
    assert calm.refreshed(later) is calm
    (folder / "a.yaml").write_text("name: b")
    assert not calm.unchanged()


def test_a_folder_that_only_looks_different_is_listed_once(folder: Path) -> None:
    seen = look(folder, later)
    (folder / ".swap").write_text("")
    fresh = seen.refreshed(later)
    assert fresh is not None
    assert fresh is not seen
    assert fresh.refreshed(later) is fresh


def test_a_file_with_a_time_in_the_future_is_compared_by_content(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("x")
    age(path, -HOUR)
    seen = look_at(path)
    assert seen.contents
    assert seen.refreshed(lambda: time.time_ns() + HOUR // 2) is seen


def test_a_change_while_it_is_read_is_a_change(folder: Path) -> None:
    trail = FileTracker()
    trail.file(folder / "a.yaml")
    (folder / "a.yaml").write_text("name: b")
    trail.file(folder / "a.yaml")
    assert trail.closed().changed() == [str(folder / "a.yaml")]


def test_a_folder_tells_the_names_that_matter(folder: Path) -> None:
    trail = FileTracker()
    assert trail.folder(folder) == ("a.yaml", "b.json", "link.yaml", "sub/")
    assert trail.folder(str(folder)) == ("a.yaml", "b.json", "link.yaml", "sub/")
    assert trail.folder(folder / "none") is None


def test_the_folders_in_a_folder_may_not_matter(folder: Path) -> None:
    trail = FileTracker(later)
    assert trail.folder(folder, inner=False) == ("a.yaml", "b.json", "link.yaml")
    seen = trail.closed()
    (folder / "more").mkdir()
    assert seen.unchanged()
    assert seen.changed() == []
    (folder / "new.yaml").touch()
    assert seen.changed() == [str(folder / "new.yaml")]
    assert trail.folder(folder) == ("a.yaml", "b.json", "link.yaml", "more/", "new.yaml", "sub/")


def test_paths_that_no_file_can_have_are_absent() -> None:
    trail = FileTracker()
    trail.file("a\0b")
    trail.folder("a\0b")
    seen = trail.closed()
    assert seen.unchanged()
    assert seen.changed() == []


def test_an_unreadable_file_is_seen_when_it_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("x")
    path.chmod(0)
    seen = look_at(path)
    path.chmod(0o600)
    assert seen.changed() == [str(path)]


def test_what_was_seen_is_plain_data(seen: FileFingerprints) -> None:
    again = FileFingerprints(*marshal.loads(marshal.dumps(tuple(seen))))
    assert again == seen
    assert again.unchanged()


@given(
    touched=st.integers(0, 3 * RACY), kept=st.booleans(), waits=st.lists(st.integers(0, 2 * RACY), max_size=4)
)
@settings(max_examples=examples(60), deadline=None)
def test_refreshing_never_loses_a_quick_edit(
    tmp_path_factory: pytest.TempPathFactory, touched: int, kept: bool, waits: list[int]
) -> None:
    """However often and when it was looked at: without its content a file is trusted only once it is old enough."""
    path = tmp_path_factory.mktemp("trail") / "a.yaml"
    path.write_text("x")
    state = path.stat()
    moment = max(state.st_mtime_ns, state.st_ctime_ns) + touched
    trail = FileTracker(lambda: moment)
    trail.file(path)
    seen = trail.closed()
    for wait in waits:
        moment += wait
        fresh = seen.refreshed(partial(int, moment))
        assert fresh is not None
        seen = fresh
    assert bool(seen.contents) == (moment - max(state.st_mtime_ns, state.st_ctime_ns) < RACY)
    path.write_text("x" if kept else "y")
    assert seen.unchanged() is False or kept
