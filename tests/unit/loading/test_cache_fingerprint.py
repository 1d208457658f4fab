"""An index is only good as long as the code that judged, and what is installed, are the same."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import toolcrib
from kept import Shelf, write_project
from toolcrib.loading.cache.header import IndexHeader, parse_header
from toolcrib.loading.fingerprints import EnvironmentFingerprint, FileFingerprints, fingerprint_environment

LATER = time.time_ns() + 3600 * 1_000_000_000
"""As if everything had been imported in an hour from now, so that no file is newer."""

TARGETS = ("acme_mode.executor:Acme", "toolcrib.executors.mock:MockExecutor")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on `sys.path` with a distribution that offers a mode."""
    site = tmp_path / "site-packages"
    (site / "acme_mode").mkdir(parents=True)
    (site / "acme_mode" / "__init__.py").write_text("")
    (site / "acme_mode" / "executor.py").write_text("from acme_mode import helping\nclass Acme: pass\n")
    (site / "acme_mode" / "helping.py").write_text("import acme_core\nfrom acme_words import WORDS, word\n")
    (site / "acme_mode" / "other.py").write_text("")
    (site / "acme-1.0.dist-info").mkdir()
    (site / "acme-1.0.dist-info" / "entry_points.txt").write_text("[toolcrib.executors]\n")
    (site / "other-1.0.dist-info").mkdir()
    monkeypatch.syspath_prepend(site)
    loose = tmp_path / "loose"
    loose.mkdir()
    (loose / "acme_core.py").write_text("import json\n")
    (loose / "acme_words.py").write_text("WORDS = []\ndef word(): pass\n")
    monkeypatch.syspath_prepend(loose)
    importlib.import_module("acme_mode.executor")
    yield site
    for name in [name for name in sys.modules if name.startswith("acme_")]:
        del sys.modules[name]


def around() -> EnvironmentFingerprint:
    found = fingerprint_environment(TARGETS, LATER)
    assert found is not None
    encoded = IndexHeader(found, FileFingerprints({}, {}, {}), {}).encoded(b"")
    head, _parts = parse_header(memoryview(encoded))
    assert head.around == found
    return head.around


def test_nothing_changed_is_told_so(site):
    before = around()
    assert before.refreshed(LATER) == before


def test_they_are_plain_data_that_can_be_brought_up_to_date(site):
    before = around()
    assert before.code.contents
    assert before.path[str(site)][0] == ()
    assert str(site / "acme_mode" / "helping.py") in before.code.files
    assert any(name.endswith("core/schemas/descriptor.json") for name in before.code.files)
    assert not any("__pycache__" in name for name in before.code.files)
    assert not any("json/__init__" in name for name in before.code.files)
    assert str(site / "acme_mode" / "other.py") not in before.code.files


EDITS = {
    "code of a mode": lambda site: (site / "acme_mode" / "executor.py").write_text("class Acme: x = 1\n"),
    "code that a mode imports": lambda site: (site / "acme_mode" / "helping.py").write_text("x = 1"),
    "code of a mode gone": lambda site: (site / "acme_mode" / "helping.py").unlink(),
    "code that is used and not installed": lambda site: (site.parent / "loose" / "acme_core.py").write_text(
        "x = 1"
    ),
    "code of a function that is used": lambda site: (site.parent / "loose" / "acme_words.py").write_text(
        "x = 1"
    ),
    "distribution installed": lambda site: (site / "new-1.0.dist-info").mkdir(),
    "distribution removed": lambda site: (site / "other-1.0.dist-info").rmdir(),
    "distribution upgraded": lambda site: (site / "other-1.0.dist-info").rename(site / "other-1.1.dist-info"),
    "entry points": lambda site: (site / "acme-1.0.dist-info" / "entry_points.txt").write_text("[x]\n"),
    "entry points of another": lambda site: (site / "other-1.0.dist-info" / "entry_points.txt").write_text(
        "[x]\n"
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_whatever_may_judge_otherwise_is_noticed(site, edit):
    before = around()
    EDITS[edit](site)
    assert before.refreshed(LATER) is None
    assert around().refreshed(LATER) is not None


def test_what_is_no_distribution_does_not_matter(site):
    before = around()
    (site / "new.py").write_text("")
    (site / "folder").mkdir()
    assert before.refreshed(LATER) == before


def test_entry_points_that_are_written_in_place_are_noticed_where_somebody_works(tmp_path, monkeypatch):
    project = tmp_path / "project"
    (project / "acme.egg-info").mkdir(parents=True)
    points = project / "acme.egg-info" / "entry_points.txt"
    points.write_text("[a]\n")
    monkeypatch.syspath_prepend(project)
    before = around()
    # The folder itself shows no trace of it, as after a legacy `develop`.
    state = project.stat()
    points.write_text("[b]\n")
    os.utime(project, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert before.refreshed(LATER) is None


def test_an_archive_on_the_path_is_noticed(tmp_path, monkeypatch):
    archive = tmp_path / "modes.zip"
    archive.write_bytes(b"PK1")
    monkeypatch.syspath_prepend(archive)
    before = around()
    assert before.refreshed(LATER) is not None
    archive.write_bytes(b"PK2")
    assert before.refreshed(LATER) is None


def test_another_version_is_another_judge(site):
    now = around()
    assert EnvironmentFingerprint("0.0.0", now.code, now.path).refreshed(LATER) is None


def test_code_that_changed_after_it_was_imported_judges_nothing(site):
    """What runs is older than what would be noted, so nothing is kept, and nothing newer is believed."""
    assert fingerprint_environment(TARGETS) is None
    before = around()
    assert before.refreshed() is None
    assert before.refreshed(LATER) is not None


def test_another_path_or_interpreter_is_another_key(tmp_path, monkeypatch):
    monkeypatch.chdir(write_project(tmp_path / "project"))
    shelf = Shelf(tmp_path / "index")
    key = shelf.key
    monkeypatch.syspath_prepend(tmp_path)
    assert shelf.key != key
    monkeypatch.setattr(sys, "path", sys.path[1:])
    assert shelf.key == key
    monkeypatch.setattr(sys, "version", "4.0")
    assert shelf.key != key


def test_nothing_is_kept_where_the_code_changed(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(write_project(tmp_path / "project"))
    shelf = Shelf(tmp_path / "index")
    shelf.index = type(shelf.index)(str(tmp_path / "index"), lambda _targets: None)
    with caplog.at_level("DEBUG", "toolcrib"):
        shelf.keep()
    assert "code was changed after it was imported" in caplog.text
    assert not (tmp_path / "index").exists()


def test_the_version_is_that_of_the_package():
    found = fingerprint_environment((), LATER)
    assert found is not None
    assert found.version == toolcrib.__version__
