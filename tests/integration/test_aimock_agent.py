"""The mock agent of npm `@copilotkit/aimock`: its cards and its tasks, which another implementation of A2A makes."""

from __future__ import annotations

import json

import pytest

import aimock
from toolcrib import Outcome, Runtime

SKILLS = [
    {
        "id": "tool-track",
        "name": "track",
        "description": "Where a parcel is",
        "tags": ["tool"],
        "outputSchema": {"type": "object", "required": ["place"]},
    },
    {"id": "chat", "name": "chat", "description": "Not a tool", "tags": ["chat"]},
]
MARKED = {"_tool_result": True, "execution_time_ms": 12}
TASKS = [
    {
        "pattern": "parcel 1",
        "artifacts": [
            {"artifactId": "a", "parts": [{"data": {"place": "Oslo", "n": 1}}], "metadata": MARKED}
        ],
    },
    {"pattern": "parcel 2", "artifacts": [{"artifactId": "a", "parts": [{"data": {"place": "Rome"}}]}]},
    {
        "pattern": "parcel 3",
        "artifacts": [{"artifactId": "a", "parts": [{"data": {"n": 1}}], "metadata": MARKED}],
    },
]
AGENT = {
    "name": "parcels",
    "description": "Knows parcels",
    "version": "1.4.0",
    "skills": SKILLS,
    "capabilities": {"streaming": False},
    "tasks": TASKS,
    "messages": [{"pattern": "parcel 4", "parts": [{"text": "it is lost"}]}],
}


@pytest.fixture(scope="module")
def parcels(tmp_path_factory):
    """The address of the agent."""
    file = tmp_path_factory.mktemp("aimock") / "config.json"
    file.write_text(json.dumps({"a2a": {"path": "/a2a", "agents": [AGENT]}}))
    with aimock.running(config=file) as served:
        yield f"{served.origin}/a2a"


def opened(folder, url, **options):
    agents = {"parcels": {"card": url, "import": True, **options}}
    (folder / "toolcrib.yaml").write_text(json.dumps({"project": "p", "sources": [], "agents": agents}))
    return Runtime.open(folder, index=False)


async def test_its_card_is_read_and_its_tool_is_called(tmp_path, parcels):
    async with opened(tmp_path, parcels) as tools:
        assert tools.problems == ()
        (tool,) = tools.registry.values()
        assert (tool.name, tool.description) == ("parcels__track", "Where a parcel is")
        result = await tools.call("parcels__track", {"text": "parcel 1"})
        assert (result.outcome, result.value) == (Outcome.OK, {"place": "Oslo", "n": 1})
        assert result.usage.remote_time == 0.012
        assert result.meta["remote"]["task_id"].startswith("task")


@pytest.mark.parametrize(
    ("text", "outcome", "code"),
    [
        ("parcel 2", Outcome.INVALID_RESULT, "missing_result"),
        ("parcel 3", Outcome.INVALID_RESULT, "invalid_result"),
        ("parcel 4", Outcome.INVALID_RESULT, "missing_result"),
        ("a letter", Outcome.TOOL_ERROR, "a2a_error"),
    ],
)
async def test_no_success_is_invented(tmp_path, parcels, text, outcome, code):
    async with opened(tmp_path, parcels) as tools:
        result = await tools.call("parcels__track", {"text": text})
        assert (result.outcome, result.error.code) == (outcome, code)


async def test_a_lenient_reader_takes_what_is_not_marked(tmp_path, parcels):
    async with opened(tmp_path, parcels, lenient=True) as tools:
        assert (await tools.call("parcels__track", {"text": "parcel 2"})).value == {"place": "Rome"}


async def test_a_task_that_it_does_not_know(tmp_path, parcels):
    async with opened(tmp_path, parcels) as tools:
        result = await tools.cancel_remote_task("parcels", "nowhere")
        assert result.error.code == "task_not_found"
