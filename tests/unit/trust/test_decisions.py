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

from toolcrib.trust.decisions import Decision, DecisionStore, default_store
from toolcrib.trust.needs import need

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def decision(root="/project", what="a.example", when=NOW):
    return Decision.of(root, "project", [need("contact", what, user="tool t")], when=when, how="test")


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
    assert store.problems == [f"the trust store {store.folder} is not used: others may write to it"]
    with pytest.raises(PermissionError):
        store.add(decision("/other"))


def test_nor_is_a_file(store):
    store.add(decision())
    only_file(store).chmod(0o620)
    assert store.agreed(["/project"]) == []
    assert "others may write to it" in store.problems[0]


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
    assert store.problems == [f"the decision {path} is not used: it is damaged"]


@given(st.binary(max_size=200))
def test_any_bytes_are_no_decision(data):
    with tempfile.TemporaryDirectory() as folder:
        store = DecisionStore(folder)
        store.add(decision())
        only_file(store).write_bytes(data)
        assert store.everything() == []
        assert len(store.problems) == 1
