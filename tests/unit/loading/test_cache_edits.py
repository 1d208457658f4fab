"""No edit goes unnoticed: what is recalled is what would be read."""

from __future__ import annotations

import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kept import IN_ARCHIVE, Shelf, assert_same, write_project
from sampling import THOROUGH, sample

FORECAST = Path("descriptors/forecast.tool.yaml")
LINK = Path("descriptors/linked.tool.yaml")
DATA_LINK = Path("descriptors/data/link.json")


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    """A project in the working directory with linked files, and an index elsewhere."""
    project = write_project(tmp_path / "home" / "project")
    (tmp_path / "home" / ".git").mkdir()
    monkeypatch.chdir(project)
    for number in (1, 2):
        Path(f"descriptors/.target{number}.yaml").write_text(
            f"name: linked{number}\nmock: {{result: {number}}}\n"
        )
        Path(f"descriptors/data/.target{number}.json").write_text(str(number))
    LINK.symlink_to(".target1.yaml")
    DATA_LINK.symlink_to(".target1.json")
    Path("descriptors/reads_link.tool.yaml").write_text(
        "name: reads_link\nmock: {result_file: data/link.json}\n"
    )
    return Shelf(tmp_path / "index")


def edit(path: str | Path, old: str, new: str) -> None:
    path = Path(path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def edit_keeping_times() -> None:
    before = FORECAST.stat()
    edit(FORECAST, "Daily", "Daisy")
    os.utime(FORECAST, ns=(before.st_atime_ns, before.st_mtime_ns))


def set_clock_back() -> None:
    edit(FORECAST, "Daily", "Daisy")
    os.utime(FORECAST, (0, 0))


def replace_keeping_times() -> None:
    before = FORECAST.stat()
    other = Path("descriptors/.other")
    other.write_text(FORECAST.read_text().replace("Daily", "Daisy"))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(FORECAST)


def retarget(link: Path) -> None:
    target = str(link.readlink()).replace("1", "2")
    link.unlink()
    link.symlink_to(target)


def turn_into_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def write_archive() -> None:
    with zipfile.ZipFile("packs/zipped.zip", "w") as archive:
        for name, text in IN_ARCHIVE.items():
            archive.writestr(name, text.replace("much", "less"))


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


EDITS: dict[str, Callable[[], object]] = {
    "content": lambda: edit(FORECAST, "Daily", "Hourly"),
    "content of the same length": lambda: edit(FORECAST, "Daily", "Daisy"),
    "content of the same length, time put back": edit_keeping_times,
    "another file of the same length and time": replace_keeping_times,
    "clock set back": set_clock_back,
    "new file": lambda: write("descriptors/new.tool.yaml", "name: new\nmock: {result: 1}\n"),
    "new folder": lambda: write("descriptors/more/new.yaml", "name: new\nmock: {result: 1}\n"),
    "removed": lambda: Path("descriptors/form.json").unlink(),
    "renamed": lambda: Path("descriptors/form.json").rename("descriptors/firm.json"),
    "moved": lambda: Path("descriptors/form.json").rename("team/form.json"),
    "folder removed": lambda: shutil.rmtree("team"),
    "folder renamed": lambda: Path("team").rename("crew"),
    "link retargeted": lambda: retarget(LINK),
    "target of a link": lambda: edit("descriptors/.target1.yaml", "result: 1", "result: 3"),
    "data": lambda: write("descriptors/data/answer.json", '{"answer": 43}'),
    "data gone": lambda: Path("descriptors/data/answer.json").unlink(),
    "link to data retargeted": lambda: retarget(DATA_LINK),
    "pack file": lambda: edit("packs/travel/pack.yaml", "7s", "8s"),
    "pack file gone": lambda: Path("packs/travel/pack.yaml").unlink(),
    "pack file above": lambda: write("packs/pack.yaml", "name: above\nversion: 1.0.0\n"),
    "archive": write_archive,
    "archive harmed": lambda: Path("packs/zipped.zip").write_bytes(b"PK"),
    "override": lambda: edit("descriptors/override.yaml", "Overridden", "Overwritten"),
    "scenario": lambda: edit("descriptors/plays.scenario.yaml", "Oslo", "Rome"),
    "project": lambda: edit("toolcrib.yaml", "5s", "6s"),
    "project gone": lambda: Path("toolcrib.yaml").unlink(),
    "second project file": lambda: write("toolcrib.json", "{}"),
    "fault mended": lambda: edit("descriptors/broken.tool.yaml", "resul:", "result:"),
    "became a folder": lambda: turn_into_folder(FORECAST),
    "folder became a file": lambda: (shutil.rmtree("team"), write("team", "name: x")),
}


@pytest.mark.parametrize("name", sample(EDITS, one_in=4))
def test_after_an_edit_everything_is_read_again(shelf, name):
    shelf.keep()
    assert shelf.recall() is not None
    EDITS[name]()
    assert shelf.recall() is None
    cold = shelf.keep()
    assert_same(shelf.recall(), cold)


def test_a_file_that_became_a_folder_and_is_back(shelf):
    text = FORECAST.read_text()
    for _ in range(3):
        shelf.keep()
        turn_into_folder(FORECAST)
        assert shelf.recall() is None
        shelf.keep()
        FORECAST.rmdir()
        FORECAST.write_text(text)
        assert shelf.recall() is None
        cold = shelf.keep()
        assert_same(shelf.recall(), cold)


def test_every_save_of_many_in_a_row_is_noticed(shelf):
    for number in range(50 if THOROUGH else 10):
        FORECAST.write_text(f"name: get_forecast\nversion: v{number:02}\nmock: {{result: 1}}\n")
        assert shelf.recall() is None
        shelf.keep()
        assert shelf.recall().registry["get_forecast"].version == f"v{number:02}"


def test_a_project_that_appears_above_is_noticed(shelf, tmp_path, monkeypatch):
    monkeypatch.chdir(Path("packs/travel"))
    Path("../../toolcrib.yaml").rename("../../toolcrib.no")
    write("descriptors/x.yaml", "name: x\nmock: {result: 1}\n")
    shelf.keep()
    assert list(shelf.recall().registry) == ["x"]
    Path("../../toolcrib.no").rename("../../toolcrib.yaml")
    assert shelf.recall() is None
    assert len(shelf.keep().registry) > 5


def test_where_the_search_for_a_project_ends_is_noticed(shelf, monkeypatch):
    monkeypatch.chdir(Path("packs/travel"))
    cold = shelf.keep()
    assert cold.project is not None
    Path(".git").mkdir()
    assert shelf.recall() is None
    assert shelf.keep().project is None


def test_the_home_folder_ends_the_search_as_well(shelf, monkeypatch):
    monkeypatch.chdir(Path("packs/travel"))
    assert shelf.keep().project is not None
    monkeypatch.setenv("HOME", str(Path.cwd()))
    assert shelf.recall() is None


def test_what_does_not_matter_leaves_the_index_alone(shelf):
    cold = shelf.keep()
    write("descriptors/.forecast.tool.yaml.swp", "an editor's")
    write("descriptors/README.md", "for people")
    write("notes/x.yaml", "name: [")
    os.utime("descriptors")
    assert_same(shelf.recall(), cold)


def test_one_file_that_is_asked_for_by_its_name(shelf):
    alone = shelf.of("descriptors/form.json")
    cold = alone.keep()
    assert_same(alone.recall(), cold)
    write("descriptors/other.yaml", "name: other\nmock: {result: 1}\n")
    assert alone.recall() is not None
    edit("descriptors/form.json", '"d"', '"e"')
    assert alone.recall() is None


def test_a_second_project_file_beside_the_one_that_is_asked_for(shelf):
    named = shelf.of("toolcrib.yaml")
    named.keep()
    assert named.recall() is not None
    write("toolcrib.json", "{}")
    assert named.recall() is None


def test_names_that_are_no_unicode(shelf):
    name = os.fsdecode(b"descriptors/b\xe4d.tool.yaml")
    write(name, "name: bad\nmock: {result: 1}\n")
    cold = shelf.keep()
    assert_same(shelf.recall(), cold)
    assert os.fsencode(shelf.recall().registry["bad"].origin.source) == b"descriptors/b\xe4d.tool.yaml"
    Path(name).unlink()
    assert shelf.recall() is None


def test_a_path_that_is_not_there_yet(shelf):
    later = shelf.of("later")
    cold = later.keep()
    assert [problem.code for problem in cold.problems] == ["path_not_found"]
    assert_same(later.recall(), cold)
    Path("later").mkdir()
    assert later.recall() is None


MANIFEST = """
apiVersion: promptkit.altairalabs.ai/v1alpha1
kind: Tool
metadata: {name: find}
spec: {name: find, description: d, input_schema: {type: object}, mode: mock, mock_result: {n: 1}}
"""


def test_where_the_paths_of_a_manifest_start_is_noticed(shelf):
    write("descriptors/tools/find.yaml", MANIFEST)
    cold = shelf.keep()
    assert_same(shelf.recall(), cold)
    write(
        "../arena.yaml", "apiVersion: promptkit.altairalabs.ai/v1alpha1\nkind: Arena\nmetadata: {name: a}\n"
    )
    assert shelf.recall() is None
