"""Stores on disk: where their files lie, what notices a change, and how indexes, reloads and archives keep them."""

from __future__ import annotations

import asyncio
import json
import zipfile
from pathlib import Path

import pytest

from kept import Shelf
from toolcrib import Runtime
from toolcrib.core.errors import ExpressionError
from toolcrib.engine.open_project import open_project
from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.fingerprints import FileTracker
from toolcrib.scenarios.pack_builder import build_pack
from toolcrib.simulation.store import rows_of

KINDS = Executors({"mock": MockExecutor})
TOOL = 'name: {name}\ninput_schema: {{}}\nmock: {{result: "{{{{ store.orders }}}}"}}\n'

PACK = {
    "shop/pack.yaml": "name: shop\nversion: 1.0.0\nstore: {orders: '${SHOP_ROWS:-data}/orders.json'}\n",
    "shop/data/orders.json": '{"A": {"n": 1}}',
    "shop/get.tool.yaml": TOOL.format(name="get"),
}

PROJECT = {
    "toolcrib.yaml": "project: p\nsources: [tools, shop]\nstore: {orders: tools/rows.yaml}\nstate: {cart: open}\n",
    "tools/rows.yaml": "P: {n: 2}\n",
    "tools/ask.tool.yaml": TOOL.format(name="ask"),
    **PACK,
}


def opened(path, **options):
    return Runtime.open(path, modes={}, **options)


def rows(runtime, tool="get"):
    return rows_of(runtime.registry[tool].fixture.collections["orders"])


def told(runtime):
    return [(each.code, Path(each.source).name) for each in runtime.problems]


def put(path, text):
    path.write_text(text, encoding="utf-8")


def reload(runtime):
    return asyncio.run(runtime.reload())


def test_a_pack_reads_the_files_below_its_own(folder):
    runtime = opened(folder(PACK) / "shop")
    assert (told(runtime), rows(runtime)) == ([], {"A": {"n": 1}})


def test_tools_outside_packs_have_the_store_of_the_project(folder, monkeypatch):
    monkeypatch.chdir(folder(PROJECT))
    runtime = Runtime.open()
    assert told(runtime) == []
    assert (rows(runtime, "ask"), rows(runtime)) == ({"P": {"n": 2}}, {"A": {"n": 1}})
    assert runtime.registry["ask"].fixture.machines["cart"].id == "/cart"
    assert dict(runtime.registry["get"].fixture.machines) == {}


def test_what_is_wrong_with_the_store_of_a_project_closes_nothing(folder, monkeypatch):
    monkeypatch.chdir(folder({**PROJECT, "tools/rows.yaml": "P: 1\n"}))
    runtime = Runtime.open()
    assert told(runtime) == [("row_not_object", "rows.yaml")]
    assert rows(runtime) == {"A": {"n": 1}}
    assert asyncio.run(runtime.call("get")).outcome == "ok"


@pytest.mark.parametrize(
    "name", ["../outside/orders.json", "{home}/outside/orders.json", "linked/orders.json"]
)
def test_a_file_of_rows_may_not_leave_its_pack(folder, name):
    home = folder({**PACK, "outside/orders.json": "{}"})
    (home / "shop/linked").symlink_to(home / "outside")
    for path in (name, f"${{SHOP_ROWS_THAT_NOBODY_SETS:-{name}}}"):
        text = PACK["shop/pack.yaml"].replace(
            "${SHOP_ROWS:-data}/orders.json", path.replace("{home}", str(home))
        )
        put(home / "shop/pack.yaml", text)
        assert ("rows_unreadable", "pack.yaml") in told(opened(home / "shop", index=False))


def test_the_operator_names_a_folder_anywhere(folder, monkeypatch):
    home = folder({**PACK, "outside/orders.json": '{"O": {}}'})
    monkeypatch.chdir(home)
    for path in (str(home / "outside"), "outside"):
        monkeypatch.setenv("SHOP_ROWS", path)
        runtime = opened("shop", index=False)
        assert (told(runtime), rows(runtime)) == ([], {"O": {}})
    monkeypatch.setenv("SHOP_ROWS", "nowhere")
    (problem,) = opened("shop", index=False).problems
    assert "cannot read `nowhere/orders.json`: No such file" in problem.message
    assert "working directory" in problem.hint
    monkeypatch.setenv("SHOP_ROWS", "")
    assert rows(opened("shop", index=False)) == {"A": {"n": 1}}


def test_a_file_of_rows_is_no_document(folder):
    home = folder({**PACK, "shop/data/orders.json": json.dumps([{"name": "a", "mock": {}}])})
    runtime = opened(home / "shop", index=False)
    assert (told(runtime), [*runtime.registry]) == ([], ["get"])


def test_what_is_read_is_noted_and_so_is_the_variable(folder, monkeypatch):
    home = folder({**PACK, "other/orders.json": "{}"})
    stock = open_project([str(home / "shop")], [], KINDS)
    assert stock.seen is not None
    assert str(home / "shop/data/orders.json") in stock.seen.files
    assert stock.seen.variables == {"SHOP_ROWS": None}
    monkeypatch.setenv("SHOP_ROWS", str(home / "other"))
    assert not stock.seen.unchanged()
    stock = open_project([str(home / "shop")], [], KINDS)
    assert stock.seen is not None
    assert stock.seen.unchanged()
    put(home / "other/orders.json", '{"x": {}}')
    assert stock.seen.changed() == [str(home / "other/orders.json")]


def test_a_trail_notes_the_first_value_of_a_variable(monkeypatch):
    trail = FileTracker()
    monkeypatch.setenv("SHOP_ROWS", "a")
    assert trail.variable("SHOP_ROWS") == "a"
    monkeypatch.setenv("SHOP_ROWS", "b")
    assert (trail.variable("SHOP_ROWS"), trail.closed().variables) == ("a", {"SHOP_ROWS": "a"})


def indexed(tmp_path, *paths):
    """What is read, and the same from an index."""
    shelf = Shelf(tmp_path / "index", *map(str, paths))
    first, again = shelf.keep(), shelf.recall()
    assert again is not None
    return first, again


def test_an_index_gives_the_same_rows_and_reads_them_when_they_are_asked_for(folder, monkeypatch, tmp_path):
    monkeypatch.chdir(folder(PROJECT))
    first, again = indexed(tmp_path)
    collection = again.registry["get"].fixture.collections["orders"]
    assert callable(collection.rows)
    assert rows_of(collection) is rows_of(collection)
    for tool in ("ask", "get"):
        assert rows(again, tool) == rows(first, tool)
        assert again.registry[tool].fixture.machines == first.registry[tool].fixture.machines
    monkeypatch.setenv("SHOP_ROWS", "tools")
    shelf = Shelf(tmp_path / "index")
    assert shelf.recall() is None
    assert told(shelf.keep()) == [("rows_unreadable", "pack.yaml")]


def test_tools_of_one_pack_share_their_store_in_an_index_too(folder, tmp_path):
    home = folder({**PACK, "shop/more.tool.yaml": TOOL.format(name="more")})
    _first, again = indexed(tmp_path, home / "shop")
    assert again.registry["get"].fixture is again.registry["more"].fixture


def test_a_file_that_changed_behind_an_index_is_not_taken_for_what_was_judged(folder, tmp_path):
    home = folder({**PACK, "shop/data/orders.json": '{"A": {"n": "judged"}}'})
    _first, again = indexed(tmp_path, home / "shop")
    put(home / "shop/data/orders.json", '{"A": {"n": 2}}')
    with pytest.raises(ExpressionError, match="was changed after it was checked"):
        rows(again)
    (home / "shop/data/orders.json").unlink()
    with pytest.raises(ExpressionError, match="no file"):
        rows(again)


@pytest.mark.parametrize("broken", ["[1]", "[", None])
def test_a_fault_of_a_store_is_told_from_an_index_as_well(folder, broken, tmp_path):
    home = folder(PACK)
    put(home / "shop/data/orders.json", broken or "")
    if broken is None:
        (home / "shop/data/orders.json").unlink()
    first, again = indexed(tmp_path, home / "shop")
    assert told(first) == told(again) != []
    for stock in (first, again):
        with pytest.raises(ExpressionError, match=r"cannot read the rows of `orders`: .*: (row|invalid)"):
            rows(stock)


def test_a_reload_changes_the_tools_whose_rows_changed_and_keeps_rows_that_broke(folder, monkeypatch):
    home = folder(PROJECT)
    monkeypatch.chdir(home)
    runtime = Runtime.open(index=False)
    put(home / "shop/data/orders.json", '{"A": {"n": true}}')
    assert (reload(runtime).changed, rows(runtime)) == (("get",), {"A": {"n": True}})
    put(home / "shop/data/orders.json", '{"A": ')
    report = reload(runtime)
    assert [each.code for each in report.problems] == ["invalid_json"]
    assert (report.changed, [*report.stale], rows(runtime)) == (("get",), ["get"], {"A": {"n": True}})
    assert [pack.name for pack in runtime.packs] == ["shop"]
    put(home / "shop/data/orders.json", '{"A": {"n": 3}}')
    report = reload(runtime)
    assert (report.changed, dict(report.stale), rows(runtime)) == (("get",), {}, {"A": {"n": 3}})


def test_a_tool_that_leaves_a_pack_while_its_store_is_broken_is_gone(folder):
    home = folder({**PACK, "shop/more.tool.yaml": TOOL.format(name="more")})
    runtime = opened(home / "shop", index=False)
    put(home / "shop/data/orders.json", "[1]")
    (home / "shop/more.tool.yaml").unlink()
    assert reload(runtime).gone == ("more",)


def test_a_pack_travels_with_the_files_of_its_store(folder, monkeypatch):
    home = folder({**PACK, "other/orders.json": '{"O": {}}'})
    parcel = asyncio.run(build_pack(home / "shop", executors=KINDS))
    assert parcel.problems == ()
    assert sorted(parcel.contents) == ["data/orders.json", "get.tool.yaml", "pack.yaml"]
    archive = home / "shop.zip"
    archive.write_bytes(parcel.archive)
    for stock in indexed(home, archive):
        assert (told(stock), rows(stock)) == ([], {"A": {"n": 1}})
    monkeypatch.setenv("SHOP_ROWS", str(home / "other"))
    assert rows(opened(archive)) == {"O": {}}
    assert "data/orders.json" in asyncio.run(build_pack(home / "shop", executors=KINDS)).contents


def test_an_archive_with_a_broken_store_says_where(folder):
    home = folder({})
    with zipfile.ZipFile(home / "shop.zip", "w") as archive:
        for name, text in {**PACK, "shop/data/orders.json": '{"A":\n 1}'}.items():
            archive.writestr(name.removeprefix("shop/"), text)
    (problem,) = opened(home / "shop.zip", index=False).problems
    assert (problem.code, problem.line) == ("row_not_object", 2)
    assert problem.source.endswith("shop.zip/data/orders.json")
