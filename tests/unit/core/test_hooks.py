"""Where functions that documents name are imported from."""

from __future__ import annotations

import sys
from zipfile import ZipFile

import pytest

from toolcrib.core.hooks import MissingHook, load_hook

HELPER = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"
HOOK = "def sign(): return 'signed'\n"


@pytest.fixture
def fresh(monkeypatch):
    """A search path and modules of this test's own; Python looks into the working directory first."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(sys, "path", ["", *(entry for entry in sys.path if entry)])
    before = {*sys.modules}
    yield
    for name in {*sys.modules} - before:
        del sys.modules[name]


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "above" / "project"
    (folder / "inner").mkdir(parents=True)
    (folder / "own_hook_of_test.py").write_text("import helper_of_test\n" + HOOK)
    return folder


@pytest.mark.parametrize("place", ["../../elsewhere", "..", "inner"])
@pytest.mark.parametrize("entry", ["", "as named"])
@pytest.mark.usefixtures("fresh")
def test_a_hook_imports_nothing_of_a_working_directory_that_is_no_project(place, entry, project, monkeypatch):
    here = (project / place).resolve()
    here.mkdir(exist_ok=True)
    (here / "helper_of_test.py").write_text(HELPER)
    monkeypatch.chdir(here)
    sys.path[0] = str(here) if entry else ""
    before = [*sys.path]
    with pytest.raises(MissingHook, match="ModuleNotFoundError"):
        load_hook("own_hook_of_test:sign", "here", str(project))
    with pytest.raises(MissingHook, match="ModuleNotFoundError"):
        load_hook("helper_of_test:sign", "here")
    assert not (here / "helper_of_test.ran").exists()
    assert sys.path == [*before, str(project)]


@pytest.mark.parametrize("here", [".", "inner"])
@pytest.mark.usefixtures("fresh")
def test_a_hook_imports_modules_of_its_project_wherever_one_works(here, project, monkeypatch):
    (project / "helper_of_test.py").write_text(HELPER)
    monkeypatch.chdir(project / here)
    assert load_hook("own_hook_of_test:sign", "here", str(project))() == "signed"
    assert (project / "helper_of_test.ran").exists()


@pytest.mark.usefixtures("fresh")
def test_a_working_directory_that_pythonpath_names_is_meant(project, monkeypatch, tmp_path):
    (tmp_path / "helper_of_test.py").write_text(HELPER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert load_hook("own_hook_of_test:sign", "here", str(project))() == "signed"


@pytest.mark.usefixtures("fresh")
def test_a_pack_has_modules_of_its_own_in_a_folder_or_an_archive(project, tmp_path):
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "pack_hook_of_test.py").write_text("def sign(): return 'pack'\n")
    archive = tmp_path / "pack.zip"
    with ZipFile(archive, "w") as opened:
        opened.writestr("inner/archive_hook_of_test.py", "def sign(): return __file__\n")
    assert load_hook("pack_hook_of_test:sign", "here", str(project), packs=[str(pack)])() == "pack"
    inner = str(archive / "inner")
    assert load_hook("archive_hook_of_test:sign", "here", packs=[inner])().startswith(inner)
    with pytest.raises(MissingHook, match="ModuleNotFoundError"):
        load_hook("own_hook_of_test:sign", "here", packs=[str(pack)])


@pytest.mark.usefixtures("fresh")
def test_a_pack_never_runs_the_module_of_another_one(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same_name_of_test.py").write_text(f"def sign(): return {name!r}\n")
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    assert load_hook("same_name_of_test:sign", "a:1", packs=[one])() == "one"
    with pytest.raises(MissingHook) as told:
        load_hook("same_name_of_test:sign", "b:2", packs=[two])
    assert told.value.message == (
        "the pack of the hook `same_name_of_test:sign` has a module `same_name_of_test`, and "
        f"{one}/same_name_of_test.py has the same name (b:2)"
    )
    assert load_hook("same_name_of_test:sign", "a:1", packs=[one, two])() == "one"
