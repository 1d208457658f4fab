"""The example tools and packs: all load without a word, and everything that they promise is played."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sampling import sample
from toolcrib.engine.runtime import Runtime, loaded_runtime
from toolcrib.executors import Executors
from toolcrib.executors.client import ClientExecutor
from toolcrib.executors.exec import ExecExecutor
from toolcrib.executors.live import LiveExecutor
from toolcrib.executors.mock import MockExecutor
from toolcrib.executors.python import PythonExecutor
from toolcrib.loading.scenarios.model import Scenario, calls_of
from toolcrib.loading.scenarios.scenario import example_scenario
from toolcrib.loading.sources import load, parse
from toolcrib.scenarios import run_scenario, runs_of

ROOT = Path(__file__).resolve().parents[2]
KINDS = Executors(
    {
        "client": ClientExecutor,
        "exec": ExecExecutor,
        "live": LiveExecutor,
        "mock": MockExecutor,
        "python": PythonExecutor,
    }
)
PATHS = [ROOT / "descriptors", *sorted(path for path in (ROOT / "packs").iterdir() if path.is_dir())]
LOADED = load(PATHS, KINDS)


@pytest.fixture(scope="module")
def runtime():
    with loaded_runtime(LOADED, executors=KINDS) as runtime:
        yield runtime


@pytest.mark.parametrize("path", sample(PATHS, one_in=2), ids=sample([path.name for path in PATHS], one_in=2))
def test_every_folder_loads_by_itself_without_a_word(path):
    with Runtime.open(path, strict=True, executors=KINDS) as runtime:
        assert runtime.problems == ()
        assert len(runtime.registry) > 0
        assert len(runtime.scenarios) > 0


def test_all_of_them_load_together(runtime):
    assert [str(problem) for problem in runtime.problems] == []
    assert len(runtime.registry) == len(LOADED.tools)


def test_there_is_enough_to_learn_from(runtime):
    assert sum(tool.origin.pack == "" for tool in runtime.registry.values()) >= 12
    with_scenarios = {scenario.origin.pack for scenario in runtime.scenarios} - {""}
    assert len(with_scenarios) >= 3
    assert with_scenarios == {pack.name for pack in runtime.packs}


def played() -> list[Scenario]:
    examples = (example_scenario(tool) for tool in LOADED.tools)
    there = [*LOADED.scenarios, *(scenario for scenario in examples if scenario is not None)]
    return [run for scenario in there for run in runs_of(scenario)]


@pytest.mark.parametrize(
    "scenario", sample(played(), one_in=3), ids=lambda scenario: scenario.name.replace(" ", "-")
)
def test_every_scenario_and_example_passes(scenario, runtime):
    report = asyncio.run(run_scenario(runtime, scenario))
    assert report.passed, str(report)


def test_a_scenario_gives_the_same_report_every_time(runtime):
    def reports() -> str:
        runs = [run for scenario in runtime.scenarios for run in runs_of(scenario)]
        documents = [asyncio.run(run_scenario(runtime, run)).as_json() for run in runs]
        return json.dumps(documents)

    assert reports() == reports()


@pytest.mark.parametrize("tool", sample(LOADED.tools, one_in=3), ids=lambda tool: tool.name)
def test_every_tool_explains_itself_to_a_model(tool):
    assert len(tool.description) > 20
    assert tool.output_schema is not None or "content" in tool.bindings["mock"]
    assert tool.input_schema["additionalProperties"] is False
    assert tool.examples or any(
        step.call == tool.name for scenario in LOADED.scenarios for step in calls_of(scenario.steps)
    )


BASE64 = """
name: pixel
description: The data of a part may stand in the descriptor itself.
mock: {content: [{type: image, data: iVBORw0KGgo=, mime_type: image/png}]}
"""


def keys_used(value: Any, schema: Any, root: Any, place: str) -> Iterator[str]:
    """The properties of a schema that a value uses, each with the place of the schema that has it."""
    schema, place = resolved(schema, root, place)
    if not isinstance(schema, dict):
        return
    if isinstance(value, dict):
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        yield from (f"{place}.{key}" for key in value if key in known)
        for key in value:
            yield from keys_used(value[key], known.get(key, others), root, place)
    for item in value if isinstance(value, list) else ():
        yield from keys_used(item, schema.get("items"), root, place)
    for branch in ("then", "else"):
        yield from keys_used(value, schema.get(branch), root, place)


def resolved(schema: Any, root: Any, place: str) -> tuple[Any, str]:
    """The schema that references lead to, and its place."""
    while isinstance(schema, dict) and "$ref" in schema:
        steps = schema["$ref"].removeprefix("#/").split("/")
        schema, place = root, steps[1]
        for step in steps:
            schema = schema[step]
    return schema, place


def keys_of(schema: dict[str, Any]) -> set[str]:
    places = {"mock": schema, **schema["$defs"]}
    return {f"{place}.{key}" for place, inner in places.items() for key in inner.get("properties", {})}


def test_every_key_of_a_mock_is_used_somewhere():
    """A reader finds an example of everything; the bare reply of a mock has the keys of any reply."""
    schema = MockExecutor().block_schema
    beside = parse("pixel.tool.yaml", BASE64, KINDS)
    assert beside.problems == ()
    blocks = [tool.bindings["mock"] for tool in (*LOADED.tools, *beside.tools)]
    blocks += [block for scenario in LOADED.scenarios for block in scenario.mocks.values()]
    used = {key for block in blocks for key in keys_used(block, schema, schema, "mock")}
    faults = [fault.inject for scenario in LOADED.scenarios for fault in scenario.faults]
    used |= {key for fault in faults for key in keys_used(fault, {"$ref": "#/$defs/injected"}, schema, "")}
    alike = {key.replace("mock.", "reply.") for key in used} | {
        key.replace("reply.", "mock.") for key in used
    }
    assert sorted(keys_of(schema) - used - alike) == []


def test_the_corpus_holds_no_secret_and_no_address_of_a_machine():
    for path in (
        path for folder in ("descriptors", "packs") for path in (ROOT / folder).rglob("*") if path.is_file()
    ):
        if path.suffix in {".yaml", ".json", ".j2"}:
            text = path.read_text(encoding="utf-8")
            assert "/home/" not in text
            assert "sk_live" not in text
