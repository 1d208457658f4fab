"""Decisions on disk: kept whole, read only where nobody else could have written them."""

from __future__ import annotations

import json
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.security.trust_decisions import Decision, DecisionStore, default_store
from toolcrib.security.trust_needs import make_need

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def decision(root="/project", what="a.example", when=NOW):
    return Decision.of(root, "project", [make_need("contact", what, user="tool t")], when=when, how="test")


@pytest.fixture
def store(tmp_path):
    return DecisionStore(str(tmp_path / "trust"))


def test_what_is_added_is_read_again(store):
    one, other = decision(), decision("/other", when=NOW.replace(year=2020))
    store.add(one)
    store.add(other)
    assert store.agreed(["/project"]) == [one]
    assert store.agreed(["/project", "/other", "/none"]) == [one, other]
    assert store.everything() == [other, one]
    assert {*store.with_hash(one.hash)} == {one, other}
    assert store.problems == []


def test_of_one_workspace_every_decision_is_kept_the_newest_first(store):
    old = decision(what="a.example", when=NOW.replace(year=2020))
    new = decision(what="b.example")
    store.add(new)
    store.add(old)
    assert store.agreed(["/project"]) == [new, old]
    assert store.remove("/project") == 2
    assert store.everything() == []
    assert store.remove("/project") == 0


def test_without_a_folder_there_is_nothing(monkeypatch):
    empty = DecisionStore("")
    assert empty.everything() == []
    with pytest.raises(OSError, match="TOOLCRIB_STATE_DIR"):
        empty.add(decision())
    monkeypatch.delenv("TOOLCRIB_STATE_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_store().folder == "/state/toolcrib/trust"


def only_file(store):
    (path,) = Path(store.folder).iterdir()
    return path


def test_folder_and_files_are_the_users_alone(store):
    store.add(decision())
    assert Path(store.folder).stat().st_mode & 0o777 == 0o700
    assert only_file(store).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_may_write_to_is_not_believed(mode, store):
    store.add(decision())
    Path(store.folder).chmod(mode)
    assert store.everything() == []
    assert store.problems == [f"the trust store {store.folder} is ignored: others can write to it"]
    with pytest.raises(PermissionError):
        store.add(decision("/other"))


POSIX = pytest.mark.skipif(os.name != "posix", reason="owners, modes and links are POSIX's")


@pytest.fixture
def state(tmp_path):
    """The state folder, with a decision in its store."""
    folder = tmp_path / "state"
    DecisionStore(str(folder / "trust")).add(decision())
    return folder


def refusal(folder):
    """Why a store is not believed; it yields nothing, and keeps nothing."""
    store = DecisionStore(str(folder))
    assert store.everything() == store.agreed(["/project"]) == store.with_hash(decision().hash) == []
    assert store.remove("/project") == 0
    (problem,) = store.problems
    before = sorted(os.walk(folder.parent, followlinks=True))
    with pytest.raises(PermissionError) as caught:
        store.add(decision("/other"))
    assert str(caught.value) == problem
    assert sorted(os.walk(folder.parent, followlinks=True)) == before
    start = f"the trust store {folder} is ignored"
    assert problem.startswith(start)
    return problem.removeprefix(start)


@POSIX
def test_a_store_that_is_a_link_is_not_believed(state, tmp_path):
    (state / "trust").rename(tmp_path / "elsewhere")
    (state / "trust").symlink_to(tmp_path / "elsewhere")
    assert refusal(state / "trust") == ": it is a symbolic link"
    (state / "trust").unlink()
    (state / "trust").symlink_to(tmp_path / "nowhere")
    assert refusal(state / "trust") == ": it is a symbolic link"


@POSIX
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_store_in_a_folder_that_others_may_write_to_is_not_believed(mode, state):
    state.chmod(mode)
    assert refusal(state / "trust") == f" because of the folder {state}: others can write to it"


@POSIX
@pytest.mark.parametrize("place", ["state", "trust"])
def test_a_folder_of_somebody_else_is_not_believed(place, state, monkeypatch):
    folder, lstat = state if place == "state" else state / "trust", os.lstat

    def lstat_of_another(path, **options):
        found = lstat(path, **options)
        return os.stat_result((*found[:4], found.st_uid + 1, *found[5:])) if path == str(folder) else found

    monkeypatch.setattr(os, "lstat", lstat_of_another)
    start = f" because of the folder {state}: " if place == "state" else ": "
    assert refusal(state / "trust") == f"{start}it belongs to another user"


@POSIX
def test_the_state_folder_may_be_a_link_of_the_user(state, tmp_path, monkeypatch):
    link = tmp_path / "link"
    link.symlink_to(state)
    store = DecisionStore(str(link / "trust"))
    store.add(decision("/other"))
    assert [each.root for each in store.everything()] == ["/other", "/project"]
    assert store.problems == []
    state.chmod(0o770)
    assert refusal(link / "trust") == f" because of the folder {link}: others can write to it"
    state.chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: state.stat().st_uid + 1)
    assert refusal(link / "trust") == f" because of the folder {link}: it is a symbolic link of another user"


@POSIX
def test_links_above_the_state_folder_do_not_matter(state, tmp_path):
    state.parent.chmod(0o777)
    (tmp_path / "above").symlink_to(tmp_path)
    store = DecisionStore(str(tmp_path / "above" / "state" / "trust"))
    assert len(store.everything()) == 1
    assert store.problems == []
    state.parent.chmod(0o700)


@pytest.mark.parametrize("name", [".git", ".hg"])
@pytest.mark.parametrize("place", [".", "state", "state/trust"])
def test_a_store_in_a_work_tree_is_not_believed_even_if_it_is_named(
    name, place, state, monkeypatch, tmp_path
):
    monkeypatch.setenv("TOOLCRIB_STATE_DIR", str(state))
    assert len(default_store().everything()) == 1
    top = tmp_path / place
    (top / name).mkdir()
    said = f": it is inside the work tree {top}; set TOOLCRIB_STATE_DIR to a folder outside of it"
    assert refusal(Path(default_store().folder)) == said


def test_no_folder_is_made_in_a_work_tree(tmp_path):
    (tmp_path / ".git").write_text("gitdir: elsewhere")
    assert "is inside the work tree" in refusal(tmp_path / "state" / "trust")
    assert [*tmp_path.iterdir()] == [tmp_path / ".git"]


@POSIX
def test_the_state_folder_is_made_for_the_user_alone(tmp_path):
    before = os.umask(0o002)
    try:
        DecisionStore(str(tmp_path / "state" / "trust")).add(decision())
    finally:
        os.umask(before)
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700


def test_nor_is_a_file(store):
    store.add(decision())
    only_file(store).chmod(0o620)
    assert store.agreed(["/project"]) == []
    assert "others can write to it" in store.problems[0]


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/null")])
def test_what_is_no_file_is_no_decision(make, store):
    store.add(decision())
    path = only_file(store)
    path.unlink()
    make(path)
    assert store.agreed(["/project"]) == []
    assert store.problems


@pytest.mark.parametrize(
    "change",
    [
        lambda said: said.update(root="/other"),
        lambda said: said.update(hash="0" * 64),
        lambda said: said.update(format=2),
        lambda said: said.update(needs=[]),
        lambda said: said["needs"][0].update(digest="0" * 64),
        lambda said: said.update(extra=1),
        lambda said: said.pop("who"),
        lambda said: said.update(when=1),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_not_believed(change, store):
    store.add(decision())
    path = only_file(store)
    said = json.loads(path.read_text())
    change(said)
    path.write_text(json.dumps(said))
    assert store.agreed(["/project"]) == []
    assert store.problems == [f"the trust decision {path} is ignored: it is corrupt"]


@given(st.binary(max_size=200))
def test_any_bytes_are_no_decision(data):
    with tempfile.TemporaryDirectory() as folder:
        store = DecisionStore(f"{folder}/trust")
        store.add(decision())
        only_file(store).write_bytes(data)
        assert store.everything() == []
        assert len(store.problems) == 1
