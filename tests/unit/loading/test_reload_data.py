"""The files that a descriptor names are a part of it: a call reads none of them anew, a reload all of them."""

from __future__ import annotations

import asyncio
import zipfile

import pytest

from toolcrib import Runtime

BY_FILE = "name: a\nmock: {template_file: a.txt}\n"


@pytest.fixture
def folder(tmp_path):
    """A tool that answers what stands in a file beside it."""
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "a.yaml").write_text(BY_FILE)
    (tmp_path / "tools" / "a.txt").write_text("one")
    return tmp_path / "tools"


@pytest.fixture(params=["read", "from an index"])
def runtime(request, folder):
    """The folder, opened, and not called yet."""
    if request.param == "read":
        return Runtime.open(folder, index=False)
    Runtime.open(folder)
    return Runtime.open(folder)


def answer(runtime: Runtime):
    return asyncio.run(runtime.call("a")).value


def reload(runtime: Runtime):
    return asyncio.run(runtime.reload())


@pytest.mark.parametrize("edit", ["other text", "broken", "gone", "a folder"])
def test_an_edit_is_not_in_force_before_the_reload(runtime, folder, edit):
    data = folder / "a.txt"
    if edit in {"gone", "a folder"}:
        data.unlink()
    if edit == "a folder":
        data.mkdir()
    elif edit != "gone":
        data.write_text("two" if edit == "other text" else "{{ nope(1) }}")
    assert answer(runtime) == "one"


def test_an_edit_is_a_change(runtime, folder):
    (folder / "a.txt").write_text("two")
    report = reload(runtime)
    assert (report.changed, answer(runtime)) == (("a",), "two")
    assert str(reload(runtime)) == "nothing changed"


@pytest.mark.parametrize("called", [True, False])
def test_what_is_broken_keeps_descriptor_and_file_as_they_were_together(runtime, folder, called):
    if called:
        answer(runtime)
    (folder / "a.txt").write_text("{{ nope(1) }}")
    report = reload(runtime)
    assert (list(report.stale), answer(runtime)) == (["a"], "one")
    (folder / "a.txt").write_text("two")
    (folder / "a.yaml").write_text("name: [")
    report = reload(runtime)
    assert (list(report.stale), answer(runtime)) == (["a"], "one")
    (folder / "a.yaml").write_text(BY_FILE)
    reload(runtime)
    assert answer(runtime) == "two"


def test_an_override_has_its_files_as_well(folder):
    above = folder / "above"
    above.mkdir()
    (above / "b.yaml").write_text("name: a\noverride: true\nmock: {template_file: b.txt}\n")
    (above / "b.txt").write_text("above")
    Runtime.open(folder)
    runtime = Runtime.open(folder)
    (above / "b.txt").unlink()
    assert answer(runtime) == "above"
    assert list(reload(runtime).stale) == ["a"]
    assert answer(runtime) == "above"


def test_so_has_a_tool_in_an_archive(tmp_path):
    def pack(text: str) -> None:
        with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
            archive.writestr("pack.yaml", "name: p\nversion: 1.0.0\n")
            archive.writestr("a.yaml", BY_FILE)
            archive.writestr("a.txt", text)

    pack("one")
    Runtime.open(tmp_path)
    runtime = Runtime.open(tmp_path)
    pack("two")
    assert answer(runtime) == "one"
    assert reload(runtime).changed == ("a",)
    assert answer(runtime) == "two"
