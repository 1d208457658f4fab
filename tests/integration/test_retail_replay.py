"""The retail pack: recorded tasks over the published store, and what the pack is made of."""

from __future__ import annotations

import json

import pytest

from toolcrib import Runtime
from toolcrib.scenarios.recorded_tasks import check_task, parse_tasks, replay


@pytest.fixture
def pack(root):
    """The folder of the pack."""
    return root / "packs" / "retail"


@pytest.fixture
def published(shared_data):
    """The published tools, store and tasks."""
    return shared_data / "tau-retail"


@pytest.fixture
def over_published_store(pack, published, monkeypatch):
    """The pack over the published store."""
    monkeypatch.setenv("TAU_RETAIL_DATA", str(published))
    return Runtime.open(pack, index=False, strict=True)


async def test_all_recorded_results_and_changed_rows_are_equal(over_published_store, published):
    with (published / "tasks-train.jsonl").open("rb") as lines:
        tasks, problems = parse_tasks("tasks-train.jsonl", lines)
    assert (len(tasks), problems) == (500, [])
    async with over_published_store as runtime:
        assert [problem for task in tasks for problem in check_task("", task, runtime)] == []
        report = await replay(runtime, tasks)
    assert [str(task) for task in report.tasks if not task.as_recorded] == []
    assert str(report) == "768 of 768 results as recorded; changed rows equal in 500 of 500 tasks"


@pytest.mark.exhaustive
async def test_recorded_rows_are_equal_to_the_byte(over_published_store, published):
    """Also the order of keys, which a model reads; an address stands in the order in which the tool replaces it."""
    lines = (published / "tasks-train.jsonl").read_text(encoding="utf-8").splitlines()
    async with over_published_store as runtime:
        for task in map(json.loads, lines[:100]):
            session = runtime.session()
            for call in task["calls"]:
                result = await session.call(call["tool"], call["arguments"])
                said = result.message if result.value is None else json.dumps(result.value)
                assert said == call["result"]


async def test_a_replay_notices_a_store_that_differs(pack, published, tmp_path, monkeypatch):
    for name in ("orders", "users", "products"):
        rows = json.loads((published / f"{name}.json").read_text(encoding="utf-8"))
        for row in rows.values():
            if name == "products":
                next(iter(row["variants"].values()))["price"] += 1
        (tmp_path / f"{name}.json").write_text(json.dumps(rows), encoding="utf-8")
    monkeypatch.setenv("TAU_RETAIL_DATA", str(tmp_path))
    with (published / "tasks-train.jsonl").open("rb") as lines:
        tasks, _problems = parse_tasks("tasks-train.jsonl", lines)
    async with Runtime.open(pack, index=False) as runtime:
        report = await replay(runtime, tasks[:60])
    assert 0 < report.results < report.calls
    assert 0 < report.rows_equal < 60


def test_the_tools_take_what_the_published_ones_take(pack, published):
    wanted = {
        tool["name"]: tool["parameters"]
        for tool in json.loads((published / "tools.json").read_text(encoding="utf-8"))
    }
    with Runtime.open(pack, index=False, strict=True) as runtime:
        found = {tool.name: tool.input_schema for tool in runtime.registry.values()}
    assert {name: _bare(schema) for name, schema in found.items()} == {
        name: _bare(schema) for name, schema in wanted.items()
    }


def _bare(schema):
    """A schema without its words; ours take no argument that they do not know."""
    if isinstance(schema, dict):
        return {
            key: _bare(item)
            for key, item in schema.items()
            if key not in {"description", "title", "additionalProperties"}
        }
    return sorted(schema) if isinstance(schema, list) else schema


def test_every_tool_of_the_pack_answers_over_its_own_store(pack):
    with Runtime.open(pack, index=False, strict=True) as runtime:
        assert len(runtime.registry) == 16
        assert (
            runtime.call_sync("find_user_id_by_email", {"email": "eva.sorel@example.com"}).value
            == "eva_sorel_1005"
        )
        assert runtime.call_sync("list_all_product_types").value == {
            "Desk Lamp": "3200000001",
            "Notebook": "3100000001",
            "Rain Jacket": "3400000001",
            "Travel Mug": "3300000001",
        }


def test_the_pack_holds_no_code_and_names_no_recording(pack):
    files = [path for path in pack.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".yaml", ".json", ".md"}
    for path in files:
        if path.suffix == ".yaml":
            text = path.read_text(encoding="utf-8")
            assert "jsonl" not in text
            assert "train" not in text
