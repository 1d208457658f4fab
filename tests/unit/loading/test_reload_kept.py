"""What a reload keeps while files can't be read as they are: overrides, packs, folders, archives, the project."""

from __future__ import annotations

import asyncio
import os
import zipfile

import pytest

from toolcrib import Executors, Outcome, Runtime
from toolcrib.engine.open_project import ATTEMPTS
from toolcrib.executors.mock import MockExecutor


def tool(name: str, answer: object = 1, rest: str = "") -> str:
    return f"name: {name}\nmock: {{result: {answer}}}\n{rest}"


def opened(*paths) -> Runtime:
    runtime = Runtime.open(*paths, index=False)
    assert runtime.problems == ()
    return runtime


def reload(runtime: Runtime):
    return asyncio.run(runtime.reload())


def answer(runtime: Runtime, name: str):
    return asyncio.run(runtime.call(name)).value


OVERRIDE = "name: a\noverride: true\n"


@pytest.fixture
def overridden(tmp_path):
    """A tool, and an override of its answer."""
    (tmp_path / "a.yaml").write_text(tool("a"))
    (tmp_path / "z.yaml").write_text(f"{OVERRIDE}mock: {{result: 2}}\n")
    return tmp_path


@pytest.mark.parametrize(
    "broken",
    [
        "name: [",
        "",
        f"{OVERRIDE}mock: {{resutl: 2}}\n",
        # What is wrong is told where it stands: in the file below.
        f"{OVERRIDE}mode: live\n",
    ],
)
def test_a_broken_override_stays_in_force(overridden, broken):
    runtime = opened(overridden)
    (overridden / "z.yaml").write_text(broken)
    report = reload(runtime)
    assert (answer(runtime, "a"), list(report.stale)) == (2, ["a"])
    (overridden / "a.yaml").write_text(tool("a", 3))
    reload(runtime)
    assert answer(runtime, "a") == 2
    (overridden / "z.yaml").write_text(f"{OVERRIDE}description: Better.\n")
    report = reload(runtime)
    assert (answer(runtime, "a"), report.stale) == (3, {})


def test_an_override_that_is_gone_is_no_more_in_force(overridden):
    runtime = opened(overridden)
    (overridden / "z.yaml").unlink()
    (overridden / "broken.yaml").write_text("name: [")
    report = reload(runtime)
    assert (answer(runtime, "a"), report.stale) == (1, {})


def test_one_of_several_overrides_may_break(overridden):
    (overridden / "zz.yaml").write_text(f"{OVERRIDE}description: Better.\n")
    runtime = opened(overridden)
    (overridden / "z.yaml").write_text("name: [")
    reload(runtime)
    assert (answer(runtime, "a"), runtime.registry["a"].description) == (2, "Better.")


def test_an_overridden_tool_goes_with_the_document_that_it_is_laid_over(overridden):
    runtime = opened(overridden)
    (overridden / "a.yaml").unlink()
    report = reload(runtime)
    assert (report.gone, report.stale) == (("a",), {})
    assert [problem.code for problem in report.problems] == ["nothing_to_override"]


@pytest.mark.parametrize("broken", ["name: [", ""])
def test_an_overridden_tool_stays_while_the_document_that_it_is_laid_over_is_broken(overridden, broken):
    runtime = opened(overridden)
    (overridden / "a.yaml").write_text(broken)
    report = reload(runtime)
    assert (list(report.stale), answer(runtime, "a")) == (["a"], 2)
    assert "a.yaml" in report.stale["a"]


def test_an_override_in_a_pack_that_is_broken_stays_in_force(overridden):
    (overridden / "pack").mkdir()
    (overridden / "pack" / "pack.yaml").write_text("name: p\nversion: 1.0.0\n")
    (overridden / "z.yaml").rename(overridden / "pack" / "z.yaml")
    runtime = opened(overridden)
    assert answer(runtime, "a") == 2
    (overridden / "pack" / "pack.yaml").write_text("name: [")
    report = reload(runtime)
    assert (list(report.stale), answer(runtime, "a")) == (["a"], 2)


def test_a_tool_that_moves_out_of_a_broken_file_is_taken_where_it_is(tmp_path):
    (tmp_path / "a.yaml").write_text(tool("a"))
    runtime = opened(tmp_path)
    (tmp_path / "a.yaml").write_text("name: [")
    (tmp_path / "b.yaml").write_text(tool("a", 2))
    report = reload(runtime)
    assert (answer(runtime, "a"), report.stale) == (2, {})


PACK = "name: p\nversion: 1.0.0\nnamespace: ns\n"


def test_a_broken_pack_in_the_working_directory_stays_as_it_was(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pack.yaml").write_text(PACK)
    (tmp_path / "a.yaml").write_text(tool("a"))
    runtime = opened(".")
    (tmp_path / "pack.yaml").write_text("name: p\nversoin: 1.0.0\n")
    reload(runtime)
    assert list(runtime.registry) == ["ns__a"]


def test_a_broken_pack_leaves_the_pack_within_it_alone(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "pack.yaml").write_text(PACK)
    (tmp_path / "a.yaml").write_text(tool("a"))
    (inner / "pack.yaml").write_text("name: q\nversion: 1.0.0\n")
    (inner / "b.yaml").write_text(tool("b"))
    runtime = opened(tmp_path)
    (tmp_path / "pack.yaml").write_text("name: [")
    (inner / "b.yaml").write_text(tool("b", 2))
    report = reload(runtime)
    assert list(runtime.registry) == ["b", "ns__a"]
    assert (answer(runtime, "b"), list(report.stale)) == (2, ["ns__a"])


def test_a_folder_may_be_called_like_an_archive(tmp_path):
    folder = tmp_path / "x.zip"
    folder.mkdir()
    (folder / "a.yaml").write_text(tool("a"))
    runtime = opened(tmp_path)
    (folder / "a.yaml").write_text("name: [")
    report = reload(runtime)
    assert (answer(runtime, "a"), list(report.stale)) == (1, ["a"])


def test_a_broken_file_in_a_good_archive_keeps_its_last_good_version(tmp_path):
    def pack(text: str) -> None:
        with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
            archive.writestr("pack.yaml", PACK)
            archive.writestr("a.yaml", text)

    pack(tool("a"))
    runtime = opened(tmp_path)
    pack("name: [")
    report = reload(runtime)
    assert (answer(runtime, "ns__a"), list(report.stale)) == (1, ["ns__a"])


def test_a_project_that_was_broken_from_the_first_offers_nothing_after_a_reload_either(tmp_path):
    (tmp_path / "a.yaml").write_text(tool("a"))
    (tmp_path / "toolcrib.yaml").write_text("project: p\nsources: [.]\ndisalbe: [a]\n")
    runtime = Runtime.open(tmp_path, index=False)
    reload(runtime)
    assert asyncio.run(runtime.call("a")).outcome is Outcome.UNAVAILABLE
    (tmp_path / "toolcrib.yaml").write_text("project: p\nsources: [.]\n")
    reload(runtime)
    assert answer(runtime, "a") == 1


@pytest.mark.parametrize("paths", [(), ("descriptors",), (".",)])
def test_the_working_directory_may_be_removed(tmp_path, monkeypatch, paths):
    here = tmp_path / "here"
    (here / "descriptors").mkdir(parents=True)
    (here / "descriptors" / "a.yaml").write_text(tool("a"))
    monkeypatch.chdir(here)
    runtime = opened(*paths)
    (here / "descriptors" / "a.yaml").unlink()
    (here / "descriptors").rmdir()
    here.rmdir()
    assert reload(runtime).gone == ("a",)
    assert reload(runtime).gone == ()


def test_a_pipe_in_the_place_of_a_file_blocks_nothing(tmp_path):
    (tmp_path / "a.yaml").write_text(tool("a"))
    runtime = opened(tmp_path)
    (tmp_path / "a.yaml").unlink()
    os.mkfifo(tmp_path / "a.yaml")
    report = reload(runtime)
    assert [problem.code for problem in report.problems] == ["file_unreadable"]
    assert answer(runtime, "a") == 1


@pytest.mark.parametrize("paths", ["here", "found"])
def test_a_broken_project_that_appears_changes_nothing(tmp_path, monkeypatch, paths):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "descriptors" / "a.yaml").write_text(tool("a"))
    runtime = opened(*([] if paths == "found" else [tmp_path]))
    for broken in ("", "project: [", "project: p\nsources: [elsewhere]\ndisalbe: []\n"):
        (tmp_path / "toolcrib.yaml").write_text(broken)
        report = reload(runtime)
        assert (report.appeared, report.changed, report.gone) == ((), (), ())
        assert [problem.severity for problem in report.problems if "toolcrib" in problem.source] == ["error"]
        assert answer(runtime, "a") == 1
    (tmp_path / "toolcrib.yaml").write_text("project: p\ndisable: [a]\n")
    reload(runtime)
    assert runtime.registry.why_hidden("a")


class Edits:
    """A mode whose check of a block changes files, so that they change while they are read."""

    block_schema = True
    keeps_nothing = True

    def __init__(self) -> None:
        self.edit = lambda: None
        self.checks = 0

    def check(self, _descriptor):
        self.checks += 1
        self.edit()
        return ()

    def bind(self, _descriptor):
        raise AssertionError

    async def aclose(self) -> None:
        """Nothing to give back."""


@pytest.fixture
def edits(tmp_path):
    """A runtime over the files `b` and `c`; whenever the first of them is read, `edit` is called."""
    mode = Edits()
    (tmp_path / "b.yaml").write_text("name: b\nmode: edits\nedits: {}\n")
    (tmp_path / "c.yaml").write_text(tool("c"))
    executors = Executors({"mock": MockExecutor, "edits": lambda: mode})
    runtime = Runtime.open(tmp_path, executors=executors)
    assert runtime.problems == ()
    return mode, runtime


def test_a_file_that_moves_while_files_are_read_is_found(edits, tmp_path):
    mode, runtime = edits

    def move() -> None:
        if (tmp_path / "c.yaml").exists():
            (tmp_path / "c.yaml").rename(tmp_path / "a.yaml")

    mode.edit = move
    report = reload(runtime)
    assert (report.gone, report.problems) == ((), ())
    assert runtime.registry["c"].origin.source == str(tmp_path / "a.yaml")


def test_who_writes_without_a_pause_is_not_waited_for(edits, tmp_path):
    mode, runtime = edits
    mode.checks = 0
    mode.edit = lambda: (tmp_path / "a.yaml").write_text(tool("a", mode.checks))
    reload(runtime)
    assert mode.checks == ATTEMPTS
    assert answer(runtime, "a") == ATTEMPTS - 1
