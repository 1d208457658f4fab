"""Packs as archives: what travels, that it is the same afterwards, and what keeps a pack from travelling."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import random
import shutil
import stat
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampling import sample
from toolcrib.cli.output import write_file
from toolcrib.executors import Executors
from toolcrib.loading.documents.archives import parse_archive
from toolcrib.loading.sources import load
from toolcrib.scenarios.pack_builder import build_pack, zip_bytes

PACKS = Path(__file__).parents[3] / "packs"

PACK = "name: shop\nversion: 1.2.0\n"

FILES = {
    "shop/pack.yaml": PACK,
    "shop/tools/get.tool.yaml": "name: get\nmock: {result_file: ../data/answer.json}\n",
    "shop/data/answer.json": '{"a": 1}',
    "shop/scenarios/one.scenario.yaml": "scenario: one\nsteps: [{call: get, expect: {result: {a: 1}}}]\n",
}


@pytest.fixture
def laid_out(tmp_path):
    """Writes files below a folder, and returns the folder `shop` in it."""

    def write(files=FILES, **more):
        for name, content in {**files, **more}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / "shop"

    return write


def read(path, *also):
    return asyncio.run(build_pack(path, also))


def codes(parcel, severity="error"):
    return [problem.code for problem in parcel.problems if problem.severity == severity]


def test_a_pack_travels_with_its_documents_and_what_they_name(laid_out):
    parcel = read(laid_out())
    assert parcel.problems == ()
    assert (parcel.pack.name, parcel.file_name) == ("shop", "shop-1.2.0.zip")
    assert [tool.name for tool in parcel.tools] == ["get"]
    assert parcel.scenarios == ("one",)
    assert list(parcel.contents) == [
        "data/answer.json",
        "pack.yaml",
        "scenarios/one.scenario.yaml",
        "tools/get.tool.yaml",
    ]
    assert (parcel.size, parcel.digest) == (len(parcel.archive), hashlib.sha256(parcel.archive).hexdigest())


def test_licence_and_readme_travel_and_nothing_else_does(laid_out):
    beside = ["LICENSE", "licence.txt", "README.md", "NOTICE", "CHANGELOG.md", "COPYING", "AUTHORS"]
    stay = [
        "notes.txt",
        "script.py",
        ".env",
        ".git/config.yaml",
        "__pycache__/x.json",
        "node_modules/y.yaml",
        "docs/README.md",
        "data/.hidden.json",
        "data/spare.json",
        "other.yaml",
        "pictures.zip",
    ]
    more = {f"shop/{name}": "{}" for name in (*beside, *stay)}
    more["shop/pictures.zip"] = zip_bytes({"a.png": b""})
    parcel = read(laid_out({**FILES, **more}))
    assert codes(parcel) == []
    assert set(parcel.contents) == {name.removeprefix("shop/") for name in FILES} | set(beside)


def test_the_globs_of_a_pack_say_what_travels(laid_out):
    folder = laid_out(
        {
            **FILES,
            "shop/pack.yaml": PACK + "tools: [tools/*]\nscenarios: [scenarios/*]\n",
            "shop/drafts/x.tool.yaml": "name: x\nmock: {result: 1}\n",
        }
    )
    assert "drafts/x.tool.yaml" not in read(folder).contents


def test_an_archive_reads_as_its_folder_does(laid_out, tmp_path):
    folder = laid_out()
    parcel = read(folder)
    write_file(parcel.archive, tmp_path / "out" / "shop.zip")
    again = read(tmp_path / "out" / "shop.zip")
    assert again.problems == ()
    assert (again.contents, again.digest, again.size) == (parcel.contents, parcel.digest, parcel.size)
    assert [tool.origin.digest for tool in again.tools] == [tool.origin.digest for tool in parcel.tools]
    assert again.scenarios == parcel.scenarios
    assert again.archive == b""


@pytest.mark.parametrize("name", sample(sorted(path.name for path in PACKS.iterdir() if path.is_dir()), 6))
def test_the_packs_of_this_repository_travel(name, tmp_path):
    parcel = read(PACKS / name)
    assert parcel.problems == ()
    write_file(parcel.archive, tmp_path / "x.zip")
    executors = Executors.installed()
    one, other = load([PACKS / name], executors), load([tmp_path / "x.zip"], executors)
    assert [(tool.name, tool.origin.digest) for tool in one.tools] == [
        (tool.name, tool.origin.digest) for tool in other.tools
    ]
    assert [entry.name for entry in one.scenarios] == [entry.name for entry in other.scenarios]
    assert one.problems == other.problems == ()


def test_the_same_contents_make_the_same_bytes(laid_out, tmp_path, monkeypatch):
    folder = laid_out()
    first = read(folder).archive
    copy = tmp_path / "elsewhere" / "deep"
    shutil.copytree(folder, copy)
    for path in sorted(copy.rglob("*"), reverse=True):
        if path.is_file():
            path.chmod(0o755)
            os.utime(path, (1, 1))
    assert read(copy).archive == first
    monkeypatch.chdir(copy)
    assert read(".").archive == first
    assert read("pack.yaml").archive == first
    with zipfile.ZipFile(io.BytesIO(first)) as archive:
        assert archive.namelist() == sorted(archive.namelist())
        for entry in archive.infolist():
            assert entry.date_time == (1980, 1, 1, 0, 0, 0)
            assert entry.external_attr >> 16 == stat.S_IFREG | 0o644
            assert (entry.create_system, entry.compress_type) == (3, zipfile.ZIP_DEFLATED)


NAMES = st.lists(st.from_regex(r"[a-z0-9_-]{1,5}", fullmatch=True), min_size=1, max_size=3).map("/".join)


@given(
    st.dictionaries(NAMES, st.binary(max_size=200), max_size=5).filter(
        lambda files: not any(other.startswith(f"{name}/") for name in files for other in files)
    )
)
def test_what_is_zipped_reads_back_equal(files):
    archive, problems = parse_archive("x.zip", zip_bytes(files))
    assert problems == []
    assert {archive.top + name: data for name, data in archive.contents.items()} == files


def test_a_file_that_shrinks_like_a_bomb_is_stored():
    files = {"a": b" " * 500_000, "b": random.Random(1).randbytes(500_000), "c": b"x" * 1000}
    archive, problems = parse_archive("x.zip", zip_bytes(files))
    assert problems == []
    assert dict(archive.contents) == files


def test_what_a_pack_needs_may_be_elsewhere(laid_out):
    files = {
        **FILES,
        "shop/pack.yaml": PACK + 'requires: {packs: {base: ">=1"}}\n',
        "shop/over.yaml": "name: look\noverride: true\ndescription: Ours.\n",
        "base/pack.yaml": "name: base\nversion: 1.0.0\n",
        "base/look.tool.yaml": "name: look\nmock: {result: 1}\n",
    }
    folder = laid_out(files)
    alone = read(folder)
    assert codes(alone, "warning") == ["unknown_pack"]
    assert codes(alone) == ["nothing_to_override"]
    beside = read(folder, str(folder.parent / "base"))
    assert beside.problems == ()
    assert "over.yaml" in beside.contents
    assert "look.tool.yaml" not in beside.contents


def test_a_pack_that_needs_another_travels_without_it(laid_out):
    parcel = read(laid_out({**FILES, "shop/pack.yaml": PACK + 'requires: {packs: {base: ">=1"}}\n'}))
    assert codes(parcel, "warning") == ["unknown_pack"]
    assert parcel.archive


def test_problems_of_what_is_read_besides_are_not_the_packs(laid_out):
    folder = laid_out({**FILES, "base/x.tool.yaml": "name: x\nmock: {resul: 1}\n"})
    assert read(folder, str(folder.parent / "base")).problems == ()


REFUSED = [
    ({"shop/tools/bad.tool.yaml": "name: bad\nmock: {resul: 1}\n"}, "unknown_key"),
    ({"shop/tools/bad.tool.yaml": "name: get\nmock: {result: 1}\n"}, "duplicate_tool"),
    ({"shop/pack.yaml": "name: shop\n"}, "missing_key"),
    ({"shop/two.scenario.yaml": "scenario: two\nsteps: [{call: gett}]\n"}, "unknown_tool"),
    (
        {
            "shop/tools/n.tool.yaml": "name: n\noutput_schema: {type: integer}\nmock: {result: \"{{ 'a' }}\"}\n"
        },
        "result_breaks_schema",
    ),
    ({"shop/sub/pack.yaml": "name: sub\nversion: 1.0.0\n"}, "pack_in_pack"),
    ({"shop/inner.zip": zip_bytes({"pack.yaml": b"name: inner\nversion: 1.0.0\n"})}, "pack_in_pack"),
    ({"shop/tools/my tool.yaml": "name: mine\nmock: {result: 1}\n"}, "archive_unsafe_name"),
    ({"shop/tools/a/b/c/d/e/f/g/h.yaml": "name: deep\nmock: {result: 1}\n"}, "archive_unsafe_name"),
    ({"shop/README": bytes(1 << 20) + b"x"}, "archive_too_large"),
]


@pytest.mark.parametrize(("more", "code"), REFUSED)
def test_what_is_wrong_keeps_a_pack_from_travelling(laid_out, more, code):
    parcel = read(laid_out({**FILES, **more}))
    assert code in codes(parcel)
    assert parcel.refused
    assert (parcel.archive, parcel.digest, parcel.size) == (b"", "", 0)


def test_links_travel_as_what_they_lead_to(laid_out):
    folder = laid_out(
        {**FILES, "shop/tools/get.tool.yaml": "name: get\nmock: {result_file: ../data/link.json}\n"}
    )
    (folder / "data" / "link.json").symlink_to("answer.json")
    parcel = read(folder)
    assert parcel.problems == ()
    assert parcel.contents["data/link.json"] == FILES["shop/data/answer.json"].encode()


def test_a_link_that_leads_outside_does_not_travel(laid_out):
    folder = laid_out({**FILES, "secret": "s"})
    (folder / "LICENSE").symlink_to(folder.parent / "secret")
    assert codes(read(folder)) == ["link_leads_outside"]


def test_a_second_pack_file_stays_at_home(laid_out):
    parcel = read(laid_out({**FILES, "shop/pack.json": "{}"}))
    assert codes(parcel) == []
    assert "pack.json" not in parcel.contents


@pytest.mark.parametrize("files", [{"shop/x.tool.yaml": "name: x\nmock: {result: 1}\n"}, {"shop/a": ""}])
def test_a_folder_without_a_pack_file_is_no_pack(laid_out, files):
    parcel = read(laid_out(files))
    assert (codes(parcel), parcel.pack) == (["unrecognised_file"], None)


def test_archives_that_are_no_packs(tmp_path):
    write_file(zip_bytes({"a.txt": b"x"}), tmp_path / "a.zip")
    write_file(b"PK nonsense", tmp_path / "b.zip")
    assert codes(read(tmp_path / "a.zip")) == ["unrecognised_file"]
    assert codes(read(tmp_path / "b.zip")) == ["archive_damaged"]
    assert codes(read(tmp_path / "c.zip")) == ["path_not_found"]


def test_saving_leaves_nothing_half_written(tmp_path):
    target = tmp_path / "x.zip"
    write_file(b"one", target)
    write_file(b"two", target)
    assert target.read_bytes() == b"two"
    (tmp_path / "folder.zip").mkdir()
    with pytest.raises(OSError, match="folder"):
        write_file(b"three", tmp_path / "folder.zip")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.zip", "x.zip"]


def test_an_archive_may_be_called_zip_in_capitals(laid_out):
    source = laid_out()
    path = source.parent / "SHOP.ZIP"
    path.write_bytes(read(source).archive)
    found = load([path], Executors.installed())
    assert ([tool.name for tool in found.tools], found.problems) == (["get"], ())


def test_a_name_that_no_archive_may_hold_is_told_with_what_it_may_be(laid_out):
    odd = "name: get\nmock: {result_file: ../data/café f.json}\n"
    source = laid_out({**FILES, "shop/tools/get.tool.yaml": odd, "shop/data/café f.json": "{}"})
    (problem,) = [problem for problem in read(source).problems if problem.severity == "error"]
    assert problem.code == "archive_unsafe_name"
    assert "ASCII letters, digits, `.`, `_` or `-` (no spaces, no accents)" in problem.hint
