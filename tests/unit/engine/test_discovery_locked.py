"""Servers that are locked: what is known of them without asking, and what a change of theirs does."""

from __future__ import annotations

import asyncio

import pytest

from offering import NOW, Offering, definition, offer
from toolcrib import Outcome, Runtime
from toolcrib.core.server_config import Server
from toolcrib.loading.reload import ToolChanged
from toolcrib.servers.lock import Lock, LockedServer


@pytest.fixture
def project(tmp_path):
    """A project with the server `time`, whose tool `now` is locked."""
    (tmp_path / "toolcrib.yaml").write_text(
        "project: shop\nservers: {time: {command: time-server, import: true}}\nlock: warn\n"
        "profiles: {ci: {lock: block}}\n"
    )
    (tmp_path / "s.scenario.yaml").write_text(
        "scenario: s\nmocks: {time__now: {result: {a: 1}}}\nsteps: [{call: time__now, args: {zone: x}}]\n"
    )
    lock(tmp_path, NOW)
    return tmp_path


def lock(folder, *tools):
    server = Server("time", command="time-server")
    locked = LockedServer.of(server, offer("time", *tools))
    (folder / "toolcrib.lock").write_text(Lock(servers={"time": locked}).text)


def opened(folder, offering: Offering, **options) -> Runtime:
    return Runtime.open(folder, executors=offering.executors(), **options)


async def test_what_is_locked_is_known_without_asking(project):
    offering = Offering(offer("time", NOW))
    runtime = opened(project, offering)
    assert runtime._engine.undiscovered == ()
    assert list(runtime.registry) == ["time__now"]
    assert runtime.registry["time__now"].description == "The time in a zone."
    async with runtime:
        assert offering.asked == []
        assert (await runtime.call("time__now", {"zone": "UTC"})).outcome is Outcome.OK


async def test_a_lock_that_blocks_leaves_nothing_to_ask(project):
    offering = Offering(offer("time", NOW))
    async with opened(project, offering, profile="ci") as runtime:
        assert (await runtime.call("time__now", {"zone": "UTC"})).outcome is Outcome.OK
    assert offering.asked == []


async def test_a_lock_that_warns_does_not_judge_calls_by_what_is_out_of_date(project):
    schema = {"type": "object", "properties": {"zone": {"type": "integer"}}}
    offering = Offering(offer("time", {**NOW, "inputSchema": schema}, definition("tick")))
    async with opened(project, offering) as runtime:
        assert (await runtime.call("time__now", {"zone": "UTC"})).outcome is Outcome.INVALID_ARGUMENTS
        assert (await runtime.call("time__now", {"zone": 1})).outcome is Outcome.OK
        assert (await runtime.call("time__tick")).outcome is Outcome.OK
    assert offering.asked == ["time"]
    async with opened(project, offering) as runtime:
        assert (await runtime.call("time__tick")).outcome is Outcome.OK


@pytest.mark.parametrize("profile", [None, "ci"])
async def test_what_was_locked_of_another_server_is_not_known_of_this_one(project, profile):
    text = (project / "toolcrib.yaml").read_text()
    (project / "toolcrib.yaml").write_text(text.replace("command: time-server", "command: other-server"))
    runtime = opened(project, Offering(offer("time", definition("tick"))), profile=profile)
    assert runtime._engine.undiscovered == ("time",)
    async with runtime:
        assert list(runtime.registry) == ["time__tick"]


@pytest.mark.parametrize("name", ["time__now", "mine"])
async def test_calls_of_a_server_that_is_reached_otherwise_than_locked_are_denied(project, name):
    text = (project / "toolcrib.yaml").read_text()
    (project / "toolcrib.yaml").write_text(text.replace("command: time-server", "command: other-server"))
    (project / "descriptors").mkdir()
    (project / "descriptors" / "mine.tool.yaml").write_text(
        "name: mine\nmode: mcp\nmcp: {server: time, tool: now}\n"
    )
    async with Runtime.open(project, profile="ci") as runtime:
        result = await runtime.call(name, {"zone": "UTC"})
    assert (result.outcome, result.error.code) == (Outcome.DENIED, "definition_changed")
    assert "`command` changed" in result.error.message


def test_it_is_known_from_an_index_until_the_lock_changes(project, monkeypatch):
    monkeypatch.chdir(project)
    assert list(Runtime.open(watch=False).registry) == ["time__now"]
    again = Runtime.open()
    assert list(again.registry) == ["time__now"]
    assert again.servers["time"].command == "time-server"
    assert again._engine.lock_file == "toolcrib.lock"
    lock(project, NOW, definition("tick"))
    assert list(Runtime.open().registry) == ["time__now", "time__tick"]


async def test_a_change_is_taken_where_it_is_only_told(project):
    seen = asyncio.Queue()
    changed = {**NOW, "description": "Another."}
    offering = Offering(offer("time", changed))
    async with opened(project, offering, observer=seen.put_nowait) as runtime:
        await runtime.catalogue("time")
        offering.changed("time", offering.offers["time"])
        event = await seen.get()
        assert isinstance(event, ToolChanged)
        assert runtime.registry["time__now"].description == "Another."


async def test_a_change_is_not_taken_where_it_is_refused(project):
    offering = Offering(offer("time", {**NOW, "description": "Another."}))
    async with opened(project, offering, profile="ci") as runtime:
        assert runtime._engine.lock_policy == "block"
        await runtime.call("time__now", {"zone": "UTC"})
        revision = runtime.registry.revision
        offering.changed("time", offering.offers["time"])
        await runtime.discover("time")
        assert runtime.registry.revision == revision
        assert runtime.registry["time__now"].description == "The time in a zone."
        verdict = runtime._engine.world.judge(runtime.servers["time"], offering.offers["time"])
        assert list(verdict.refused) == ["now"]


async def test_the_same_again_changes_nothing(project):
    offering = Offering(offer("time", {**NOW, "_meta": {"moment": 1}}))
    async with opened(project, offering) as runtime:
        await runtime.call("time__now", {"zone": "UTC"})
        revision = runtime.registry.revision
        offering.changed("time", offering.offers["time"])
        await runtime.call("time__now", {"zone": "UTC"})
        assert runtime.registry.revision == revision


def test_a_broken_lock_is_told_with_its_place(project):
    (project / "toolcrib.lock").write_text('{"lock": 1, "servers": []}')
    problems = opened(project, Offering()).problems
    assert {problem.source for problem in problems if problem.severity == "error"} == {
        str(project / "toolcrib.lock")
    }
