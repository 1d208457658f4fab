"""Packs of installed distributions: found by their entry points, without running any of their code."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from toolcrib.executors import Executors
from toolcrib.loading.packs import find_installed, installed_packs
from toolcrib.loading.sources import load

PACK = "name: {name}\nversion: {version}\n"
TOOL = "name: get_weather\nmock: {result: {sky: clear}}\n"
TRAP = "raise AssertionError('the code of the package was run')\n"


def metadata(name, version, points):
    lines = [f"{key} = {value}" for key, value in points.items()]
    stem = f"{name.replace('-', '_')}-{version}.dist-info"
    return {
        f"{stem}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{stem}/entry_points.txt": "[toolcrib.packs]\n" + "\n".join(lines) + "\n",
    }


def package(folder, *, name="acme-tools", version="1.4.0", file="pack.yaml"):
    """A package that must not be imported, with a pack in it."""
    outer = "/".join(folder.split("/")[:1])
    return {
        f"{outer}/__init__.py": TRAP,
        f"{folder}/__init__.py": TRAP,
        f"{folder}/{file}": PACK.format(name=name, version=version),
        f"{folder}/tools/get.tool.yaml": TOOL,
    }


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Writes files into a folder that Python imports from; returns it."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)

    def write(*parts):
        for files in parts:
            for name, text in files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
        return folder

    return write


def test_a_pack_is_found_and_read_without_running_code(site):
    folder = site(metadata("acme", "7.0", {"acme-tools": "acme.tools"}), package("acme/tools"))
    pack = installed_packs()["acme-tools"]
    assert (pack.distribution, pack.version, pack.path) == ("acme", "7.0", folder / "acme" / "tools")
    assert pack.problems == ()
    path, problems = find_installed("acme-tools", ">=1.2,<2")
    assert (path, problems) == (folder / "acme" / "tools", [])
    loaded = load([path], Executors.installed())
    assert [(tool.name, tool.origin.pack) for tool in loaded.tools] == [("get_weather", "acme-tools")]
    assert loaded.problems == ()
    assert "acme" not in sys.modules


def test_a_pack_in_a_namespace_package(site):
    files = package("acme/deep/tools")
    del files["acme/__init__.py"]
    folder = site(metadata("acme", "7.0", {"acme-tools": "acme.deep.tools"}), files)
    assert find_installed("acme-tools") == (folder / "acme" / "deep" / "tools", [])


def test_a_package_without_code_is_enough(site):
    files = {name: text for name, text in package("acme_pack").items() if not name.endswith(".py")}
    folder = site(metadata("acme", "7.0", {"acme-tools": "acme_pack"}), files)
    assert find_installed("acme-tools") == (folder / "acme_pack", [])


def test_a_distribution_may_offer_several_packs(site):
    points = {"b-tools": "acme.b", "a-tools": "acme.a"}
    site(metadata("acme", "7", points), package("acme/a", name="a-tools"), package("acme/b", name="b-tools"))
    names = [name for name in installed_packs() if name.endswith("-tools")]
    assert names == ["a-tools", "b-tools"]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("acme.tools:pack", "not a valid package name"),
        ("acme.tools [extra]", "not a valid package name"),
        ("acme..tools", "not a valid package name"),
        ("../acme", "not a valid package name"),
        ("acme.tolls", "the package `acme.tolls` was not found"),
        ("nowhere.at.all", "the package `nowhere` was not found"),
        ("acme.module", "`acme.module` is a module, not a package"),
        ("acme.module.deeper", "`acme.module` is a module, not a package"),
        ("acme", "contains no `pack.yaml`"),
    ],
)
def test_an_entry_point_that_leads_nowhere_says_how_it_is_written(site, value, says):
    site(metadata("acme", "7.0", {"acme-tools": value}), package("acme/tools"), {"acme/module.py": TRAP})
    path, [problem] = find_installed("acme-tools")
    assert path is None
    assert problem.code == "unknown_pack"
    assert says in problem.message
    assert "distribution acme 7.0" in problem.message
    assert "toolcrib.packs" in problem.hint
    assert "acme" not in sys.modules


def test_a_pack_that_nobody_offers_is_told_with_near_names(site):
    [problem] = find_installed("acme-tools")[1]
    assert problem.code == "unknown_pack"
    site(metadata("acme", "7.0", {"acme-tools": "acme.tools"}), package("acme/tools"))
    [near] = find_installed("acme-tool")[1]
    assert near.hint == "did you mean `acme-tools`?"
    [far] = find_installed("zzz")[1]
    assert "`acme-tools`" in far.hint


def test_a_pack_of_another_version_is_told_with_its_distribution(site):
    site(metadata("acme", "7.0", {"acme-tools": "acme.tools"}), package("acme/tools"))
    path, [problem] = find_installed("acme-tools", ">=2")
    assert path is None
    assert problem.code == "version_mismatch"
    assert (
        problem.message
        == "pack `acme-tools` >=2 is required, but the one from distribution acme 7.0 has version 1.4.0"
    )


def test_what_is_no_range_is_told(site):
    site(metadata("acme", "7.0", {"acme-tools": "acme.tools"}), package("acme/tools"))
    assert [problem.code for problem in find_installed("acme-tools", "^1")[1]] == ["wrong_form"]


def test_an_entry_point_is_called_like_its_pack(site):
    site(metadata("acme", "7.0", {"acme-tools": "acme.tools"}), package("acme/tools", name="other"))
    path, [problem] = find_installed("acme-tools")
    assert path is None
    assert "`other`" in problem.message


def test_a_pack_file_that_cant_be_read_is_left_to_the_reading(site):
    files = package("acme/tools") | {"acme/tools/pack.yaml": "a: *b\n"}
    folder = site(metadata("acme", "7.0", {"acme-tools": "acme.tools"}), files)
    assert find_installed("acme-tools", ">=1") == (folder / "acme" / "tools", [])


def test_a_pack_that_two_distributions_offer_is_neither(site):
    site(metadata("acme", "7.0", {"acme-tools": "acme.tools"}), package("acme/tools"))
    site(metadata("acne", "1.0", {"acme-tools": "acme.tools"}))
    path, [problem] = find_installed("acme-tools")
    assert path is None
    assert problem.code == "duplicate_pack"
    assert "distribution acme 7.0 and by distribution acne 1.0" in problem.message


def wheel(folder, files):
    """A wheel as a build backend writes it."""
    stem = "acme_tools-1.4.0"
    files = files | {
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    }
    record = f"{stem}.dist-info/RECORD"
    path = Path(folder, f"{stem}-py3-none-any.whl")
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, record: "".join(f"{name},,\n" for name in [*files, record])}.items():
            archive.writestr(name, text)
    return path


@pytest.mark.exhaustive
def test_a_distribution_that_pip_installed(tmp_path, monkeypatch):
    """In a process of its own, as a project would find it; the trap shows whether code was run."""
    built = wheel(
        tmp_path,
        metadata("acme-tools", "1.4.0", {"acme-tools": "acme_tools.pack"}) | package("acme_tools/pack"),
    )
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--target", str(target), str(built)], check=True, capture_output=True)
    script = (
        "from toolcrib.loading.packs import find_installed; print(*find_installed('acme-tools', '~=1.4'))"
    )
    monkeypatch.setenv("PYTHONPATH", str(target))
    told = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert told.strip() == f"{target / 'acme_tools' / 'pack'} []"
