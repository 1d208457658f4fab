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


@pytest.mark.usefixtures("fresh")
def test_a_project_never_runs_the_module_of_another_one(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "part").mkdir(parents=True)
        (tmp_path / name / "part" / "same_project_of_test.py").write_text(f"def sign(): return {name!r}\n")
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    assert load_hook("part.same_project_of_test:sign", "a:1", one)() == "one"
    with pytest.raises(MissingHook) as told:
        load_hook("part.same_project_of_test:sign", "b:2", two)
    assert told.value.message == (
        "the module of the hook `part.same_project_of_test:sign` was imported from "
        f"{one}/part/same_project_of_test.py, not from {two}/part/same_project_of_test.py (b:2)"
    )
    assert told.value.hint.startswith("rename it")


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            "\nraise ValueError('hunter2')",
            "cannot be imported (ValueError at {file}:2; a:1)",
            "fix the module",
        ),
        ("raise SystemExit('hunter2')", "cannot be imported (SystemExit at {file}:1; a:1)", "fix the module"),
        ("x = 1\ny = (", "cannot be imported (SyntaxError at {file}:2; a:1)", "fix the module"),
        (
            "import no_such_part",
            "cannot be imported (ModuleNotFoundError: `no_such_part` at {file}:1; a:1)",
            "install it, add it to PYTHONPATH, or put it into the project folder",
        ),
        ("def sing(): pass", "does not define `sign` (a:1)", "did you mean `sing`?"),
        ("x = 1", "does not define `sign` (a:1)", "name a function as `package.module:function`"),
    ],
)
@pytest.mark.usefixtures("fresh")
def test_a_module_that_fails_is_reported_with_its_line_and_without_its_text(text, message, hint, tmp_path):
    (tmp_path / "failing_hook_of_test.py").write_text(text)
    with pytest.raises(MissingHook) as told:
        load_hook("failing_hook_of_test:sign", "a:1", str(tmp_path))
    assert told.value.message.endswith(message.format(file=tmp_path / "failing_hook_of_test.py"))
    assert told.value.hint == hint
    assert "hunter2" not in str(told.value)
