"""Six published examples of PromptKit Arena: every tool manifest loads, and every mock-mode tool answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sampling import sample
from toolcrib.core.model import Outcome
from toolcrib.engine.runtime import Runtime
from toolcrib.executors import Executors
from toolcrib.executors.client import ClientExecutor
from toolcrib.executors.live import LiveExecutor
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.documents.document import read_documents
from toolcrib.loading.sources import load
from toolcrib.schema.generation import KeyedRandom, arguments_for
from toolcrib.schema.validation import Validator

KINDS = Executors({"client": ClientExecutor, "live": LiveExecutor, "mock": MockExecutor})

EXAMPLES = {
    "assertions-test": {"calculate": "mock", "search": "mock"},
    "client-tools": {"get_location": "client"},
    "customer-support-integrated": {
        "check_subscription_status": "mock",
        "create_support_ticket": "mock",
        "get_customer_info": "mock",
        "get_order_history": "mock",
    },
    "live-http-tools": {
        "calculate": "live",
        "generate_image": "live",
        "get_weather": "live",
        "search_places": "live",
    },
    "multimodal-tool-results": {"generate_chart": "mock", "scan_document": "mock"},
    "resilience-testing": {"lookup_order": "mock", "search_faq": "mock"},
}


def errors_of(found):
    return [problem for problem in found.problems if problem.severity == "error"]


def in_a_script(problem) -> bool:
    """Whether a problem is in a script of model answers: they number their turns, and one is not even YAML."""
    return Path(problem.source).name.startswith("mock-")


@pytest.fixture(params=EXAMPLES)
def example(request, shared_data):
    return request.param, shared_data / "promptkit-examples" / request.param


def test_there_are_fifteen_manifests(shared_data):
    found = {path.parents[1].name for path in (shared_data / "promptkit-examples").rglob("*.tool.yaml")}
    assert found == set(EXAMPLES)
    assert sum(map(len, EXAMPLES.values())) == 15


def test_every_manifest_of_an_example_loads(example):
    name, folder = example
    found = load([folder], KINDS)
    assert {tool.name: tool.mode for tool in found.tools} == EXAMPLES[name]
    assert [str(problem) for problem in errors_of(found) if not in_a_script(problem)] == []


NAMED_NOWHERE = {
    "customer-support-integrated": {
        "mock-tool-scenarios.yaml",
        "providers/mock-tool-scenarios.provider.yaml",
    }
}


def test_files_that_no_arena_names_get_a_notice_each(example):
    name, folder = example
    found = load([folder], KINDS)
    strangers = [problem.source for problem in found.problems if problem.code == "unrecognised_file"]
    assert sorted(strangers) == sorted(str(folder / file) for file in NAMED_NOWHERE.get(name, ()))
    assert not [problem for problem in found.problems if problem.code == "other_kind"]


def test_tools_whose_mode_is_not_there_are_listed_as_unavailable(example):
    name, folder = example
    with Runtime.open(folder, executors=(kinds := Executors({"mock": MockExecutor}))) as runtime:
        unavailable = {tool.name for tool in runtime.registry.values() if runtime._engine.unavailable(tool)}
        warned = {problem.code for problem in runtime.problems} & {"mode_not_installed"}
    missing = {tool for tool, mode in EXAMPLES[name].items() if mode not in kinds.modes}
    assert unavailable == missing
    assert warned == ({"mode_not_installed"} if missing else set())


def arguments_of(tool) -> list[dict]:
    """A few made up arguments that fit."""
    return arguments_for(tool.input_schema, KeyedRandom(0, tool.name), 5)


def test_every_mocked_tool_answers_and_its_answer_fits(example):
    name, folder = example
    with Runtime.open(folder, executors=KINDS) as runtime:
        mocked = [tool for tool in runtime.registry.values() if tool.mode == "mock"]
        assert {tool.name for tool in mocked} == {
            tool for tool, mode in EXAMPLES[name].items() if mode == "mock"
        }
        for tool in mocked:
            for arguments in arguments_of(tool):
                result = runtime.call_sync(tool.name, arguments)
                assert result.outcome is Outcome.OK, result.message
                assert Validator(tool.output_schema).is_valid(result.value)


async def test_a_tool_of_the_client_is_fulfilled_by_one_or_mocked(shared_data):
    folder = shared_data / "promptkit-examples" / "client-tools"
    async with Runtime.open(folder, executors=KINDS) as tools:
        waiting = await tools.call("get_location", {"accuracy": "high"})
        assert waiting.error.code == "client_tool_deferred"
        assert waiting.error.details == {
            "consent": True,
            "message": "Allow location access?",
            "categories": ["location"],
            "timeout": "5s",
        }

        async def refuse(call):
            return call.decline("not today")

        assert (await tools.session(client=refuse).call("get_location", {})).outcome is Outcome.DENIED
    async with Runtime.open(folder, executors=KINDS, mode="mock") as tools:
        assert (await tools.call("get_location", {})).value == {"lat": 37.7749, "lng": -122.4194}


# What the live tools would send; what comes of it stands in test_public_api_shapes.py.
LIVE = {
    "calculate": ({"expr": "2 * (3 + 4)"}, "https://api.mathjs.org/v4/?expr=2%20%2A%20%283%20%2B%204%29"),
    "generate_image": (
        {"width": 600, "height": 400, "text": "Hi there"},
        "https://placehold.co/600x400.png?text=Hi%20there",
    ),
    "get_weather": (
        {"latitude": 59.5, "longitude": -10, "current": "temperature_2m,weather_code"},
        "https://api.open-meteo.com/v1/forecast?latitude=59.5&longitude=-10&current=temperature_2m%2Cweather_code",
    ),
    "search_places": (
        {"name": "Zürich & Oslo"},
        "https://geocoding-api.open-meteo.com/v1/search?name=Z%C3%BCrich%20%26%20Oslo&count=1&language=en",
    ),
}


@pytest.mark.parametrize("name", sample(LIVE, one_in=2))
async def test_a_live_tool_would_send_what_its_api_takes(name, shared_data):
    arguments, url = LIVE[name]
    async with Runtime.open(shared_data / "promptkit-examples" / "live-http-tools", executors=KINDS) as tools:
        plan = (await tools.dry_run(name, arguments)).value["plan"]
        assert (plan["request"]["method"], plan["request"]["url"]) == ("GET", url)
        places = {part["part"]: part["at"] for part in plan["from"]}
        assert places["url"].startswith(tools.registry[name].origin.source + ":")


def test_where_each_part_of_a_request_came_from_is_a_line_of_the_manifest(shared_data):
    path = shared_data / "promptkit-examples" / "live-http-tools" / "tools" / "search-places.tool.yaml"
    lines = path.read_text(encoding="utf-8").splitlines()

    async def planned():
        async with Runtime.open(path, executors=KINDS) as tools:
            return (await tools.dry_run("search_places", {"name": "Oslo"})).value["plan"]

    told = {
        part["name"]: lines[int(part["at"].rpartition(":")[2]) - 1].strip()
        for part in asyncio.run(planned())["from"]
        if part["at"] != "built in"
    }
    assert told["https://geocoding-api.open-meteo.com"].startswith("url: ")
    assert told["name"] == "- name"
    assert told["count"].startswith('count: "1"')
    assert told["timeout"].startswith("timeout_ms: 10000")


def test_a_client_tool_with_a_mock_answers_in_mode_mock(shared_data):
    with Runtime.open(
        shared_data / "promptkit-examples" / "client-tools", mode="mock", executors=KINDS
    ) as tools:
        result = tools.call_sync("get_location", {"accuracy": "high"})
    assert result.value == {"lat": 37.7749, "lng": -122.4194}


def test_values_are_those_of_the_manifest(shared_data):
    examples = shared_data / "promptkit-examples"
    expected = {
        path: read_documents(path, str(path))[0][0].value["spec"] for path in examples.rglob("*.tool.yaml")
    }
    with_mock = {path: spec for path, spec in expected.items() if spec["mode"] == "mock"}
    assert len(with_mock) == 10
    for path, spec in with_mock.items():
        with Runtime.open(path, executors=KINDS) as tools:
            (tool,) = tools.registry.values()
            assert (tool.description, tool.timeout) == (spec["description"], spec["timeout_ms"] / 1000)
            assert tools.call_sync(tool.name, arguments_of(tool)[0]).value == spec["mock_result"]


def test_the_parts_of_a_manifest_come_from_the_arena_folder(shared_data):
    folder = shared_data / "promptkit-examples" / "multimodal-tool-results"
    image = (folder / "testdata" / "sample-chart.png").read_bytes()
    with Runtime.open(folder, executors=KINDS) as tools:
        text, picture = tools.call_sync("scan_document", {"source": "receipt"}).content
    assert text.text == "Scanned document: OfficeMax Receipt"
    assert (picture.type, picture.mime_type, picture.title) == (
        "image",
        "image/png",
        "Scanned receipt from OfficeMax",
    )
    assert len(picture.data) == 4 * -(-len(image) // 3)


@pytest.mark.exhaustive
def test_all_examples_together_name_the_one_duplicate(shared_data):
    with Runtime.open(shared_data / "promptkit-examples", executors=KINDS) as runtime:
        assert len(runtime.registry) == 14
        (duplicate,) = (problem for problem in errors_of(runtime) if not in_a_script(problem))
    assert duplicate.code == "duplicate_tool"
    assert "`calculate`" in duplicate.message
    assert Path(duplicate.source).parts[-3:] == ("live-http-tools", "tools", "calculate.tool.yaml")
