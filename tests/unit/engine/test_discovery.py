"""Servers that are asked what they offer: when, what comes of it, and what happens when they change their mind."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from offering import NOW, Offering, definition, offer, outcome
from toolcrib import ConfigurationError, Outcome, Registry, Runtime
from toolcrib.core.clock import CrossLoopLock, RealClock
from toolcrib.core.server_config import Server
from toolcrib.loading.reload import ToolAppeared, ToolChanged, ToolGone

TIME = Server("time", command="time-server", imports=True)


@pytest.fixture
def project(tmp_path):
    """Writes a project whose servers are `time` and `files`, and returns its folder."""

    def write(servers: str = "time: {command: time-server, import: true}", rest: str = "", **files: str):
        (tmp_path / "toolcrib.yaml").write_text(f"project: shop\nservers: {{{servers}}}\n{rest}")
        (tmp_path / "descriptors").mkdir(exist_ok=True)
        for name, text in files.items():
            (tmp_path / "descriptors" / f"{name}.yaml").write_text(text)
        return tmp_path

    return write


class Seen:
    """What a runtime tells of its tools."""

    def __init__(self) -> None:
        self.events: list = []
        self._more = asyncio.Event()

    def __call__(self, event) -> None:
        if isinstance(event, ToolAppeared | ToolChanged | ToolGone):
            self.events.append(event)
            self._more.set()

    async def until(self, are_enough):
        while not are_enough(self.events):
            self._more.clear()
            await self._more.wait()
        return self.events


def opened(folder, offering: Offering, **options) -> Runtime:
    return Runtime.open(folder, executors=offering.executors(), **options)


async def test_a_runtime_that_is_entered_knows_the_imported_tools(project):
    offering = Offering(offer("time", NOW, definition("tick")))
    runtime = opened(project(), offering)
    assert list(runtime.registry) == []
    assert runtime._engine.undiscovered == ("time",)
    async with runtime:
        assert list(runtime.registry) == ["time__now", "time__tick"]
        tool = runtime.registry["time__now"]
        assert (tool.mode, tool.annotations.read_only) == ("mcp", True)
        assert tool.bindings["mcp"] == {"server": "time", "tool": "now"}
        result = await runtime.call("time__now", {"zone": "UTC"})
        assert result.value == {"server": "time", "tool": "now", "args": {"zone": "UTC"}}
    assert offering.asked == ["time"]
    assert runtime.problems == ()


async def test_a_call_asks_only_the_server_that_it_needs(project):
    folder = project("time: {command: a, import: true}, files: {command: b, import: true}")
    offering = Offering(offer("time", NOW), offer("files", definition("read")))
    runtime = opened(folder, offering)
    result = await runtime.call("time__now", {"zone": "UTC"})
    assert result.outcome is Outcome.OK
    assert offering.asked == ["time"]
    assert (await runtime.call("time__now", {})).outcome is Outcome.INVALID_ARGUMENTS
    assert (await runtime.call("other")).outcome is Outcome.NOT_FOUND
    assert offering.asked == ["time"]
    await runtime.aclose()


async def test_calls_at_once_ask_once(project):
    offering = Offering(offer("time", NOW))
    runtime = opened(project(), offering)
    results = await asyncio.gather(*(runtime.call("time__now", {"zone": "UTC"}) for _ in range(5)))
    assert {result.outcome for result in results} == {Outcome.OK}
    assert offering.asked == ["time"]
    await runtime.aclose()


async def test_a_server_that_is_down_takes_nothing_else_with_it(project, caplog):
    folder = project(
        "time: {command: a, import: true}, files: {command: b, import: true}",
        own="name: own\nmock: {result: 1}\n",
    )
    offering = Offering(offer("files", definition("read")))
    with caplog.at_level(logging.WARNING, logger="toolcrib"):
        runtime = opened(folder, offering)
        async with runtime:
            assert list(runtime.registry) == ["files__read", "own"]
            (problem,) = runtime.problems
            assert (problem.code, problem.severity) == ("server_down", "error")
            assert (problem.source, problem.line) == (str(folder / "toolcrib.yaml"), 2)
            result = await runtime.call("time__now", {"zone": "UTC"})
            assert outcome(result) == (Outcome.UNAVAILABLE, "server_down")
            assert "can't be started" in result.message
            offering.offers["time"] = offer("time", NOW)
            assert (await runtime.call("time__now", {"zone": "UTC"})).outcome is Outcome.OK
            assert runtime.problems == ()
    assert "can't be started" in caplog.text


def test_code_without_an_event_loop_knows_them_too(project):
    offering = Offering(offer("time", NOW))
    with opened(project(), offering) as runtime:
        assert list(runtime.registry) == ["time__now"]
        assert runtime.call_sync("time__now", {"zone": "UTC"}).outcome is Outcome.OK
    runtime = opened(project(), offering)
    assert runtime._engine.default_session.call_at_once("time__now", {"zone": "UTC"}) is None
    assert runtime.call_sync("time__now", {"zone": "UTC"}).outcome is Outcome.OK
    runtime.close()


async def test_only_what_is_taken_is_offered_and_a_bad_tool_hides_no_other(project):
    folder = project('time: {command: a, import: {only: ["n*", bad], except: ["*_raw"]}}')
    bad = definition("bad", inputSchema={"type": "object", "properties": {"x": {"type": "nothing"}}})
    offering = Offering(offer("time", NOW, bad, definition("now_raw"), definition("other")))
    async with opened(folder, offering) as runtime:
        assert list(runtime.registry) == ["time__now"]
        (problem,) = runtime.problems
        assert (problem.code, problem.severity, problem.line) == ("server_remark", "warning", 2)
        assert runtime.registry["time__now"].origin.place("/description") == f"{folder}/toolcrib.yaml:2"
        assert problem.message.startswith("the tool `bad` of the server `time` is not offered: ")
        result = await runtime.call("time__bad")
        assert result.outcome is Outcome.NOT_FOUND
        assert "the tool `bad` of the server `time` is not offered: " in result.message
        assert (await runtime.call("time__other")).outcome is Outcome.NOT_FOUND


async def test_a_tool_with_a_manual_as_its_description_is_offered(project):
    # The servers of drawing programs describe whole file formats there.
    manual = definition("draw", description="Draws. " * 6_000)
    async with opened(project(), Offering(offer("time", NOW, manual))) as runtime:
        assert list(runtime.registry) == ["time__draw", "time__now"]
        assert not runtime.problems


async def test_a_descriptor_counts_more_than_an_imported_tool_of_its_name(project):
    own = "name: time__now\nmock: {result: mine}\n"
    async with opened(project(own=own), Offering(offer("time", NOW, definition("tick")))) as runtime:
        assert list(runtime.registry) == ["time__now", "time__tick"]
        assert (await runtime.call("time__now")).value == "mine"


async def test_a_descriptor_takes_from_the_server_what_it_leaves_out(project):
    bound = "name: utc\ntitle: UTC\nmcp: {server: time, tool: now, args: {zone: UTC}}\n"
    runtime = opened(project("time: {command: a}", bound=bound), Offering(offer("time", NOW)))
    assert runtime._engine.undiscovered == ("time",)
    async with runtime:
        tool = runtime.registry["utc"]
        assert (tool.title, tool.description) == ("UTC", "The time in a zone.")
        assert tool.annotations.read_only
        assert tool.input_schema == {
            "type": "object",
            "properties": {"form": {"type": "string"}},
            "required": [],
            "additionalProperties": False,
        }
        assert tool.origin.settings["input_schema"] == "server time"
        refused = await runtime.call("utc", {"zone": "Oslo"})
        assert refused.outcome is Outcome.INVALID_ARGUMENTS
        assert list(runtime.registry) == ["utc"]


async def test_what_a_descriptor_says_itself_counts(project):
    bound = (
        "name: now\ndescription: Mine.\ninput_schema: {type: object, properties: {zone: {enum: [UTC]}}}\n"
        "annotations: {read_only: false}\nmcp: {server: time}\n"
    )
    offering = Offering(offer("time", NOW))
    runtime = opened(project("time: {command: a}", bound=bound), offering)
    assert runtime._engine.undiscovered == ()
    assert (await runtime.call("now", {"zone": "Oslo"})).outcome is Outcome.INVALID_ARGUMENTS
    assert (await runtime.call("now", {"zone": "UTC"})).outcome is Outcome.OK
    assert offering.asked == []
    await runtime.aclose()


async def test_in_another_mode_no_server_is_asked(project):
    bound = "name: now\nmode: mcp\nmcp: {server: time}\nmock: {result: 12}\n"
    offering = Offering(offer("time", NOW))
    runtime = opened(project("time: {command: a}", bound=bound), offering, mode="mock")
    assert runtime._engine.undiscovered == ()
    async with runtime:
        assert (await runtime.call("now", {"any": 1})).value == 12
    assert offering.asked == []


async def test_a_tool_that_the_server_does_not_have_is_told(project):
    bound = "name: noon\nmcp: {server: time, tool: nwo}\n"
    async with opened(project("time: {command: a}", bound=bound), Offering(offer("time", NOW))) as runtime:
        (problem,) = runtime.problems
        assert (problem.code, problem.pointer, problem.hint) == (
            "unknown_remote_tool",
            "/mcp/tool",
            "did you mean `now`?",
        )


def test_a_server_that_nobody_names_is_told(project):
    bound = "name: noon\nmcp: {server: tiem}\n"
    (problem,) = opened(project(bound=bound), Offering()).problems
    assert (problem.code, problem.pointer, problem.severity) == ("unknown_server", "/mcp/server", "warning")
    assert "did you mean `time`?" in problem.hint


async def test_a_server_that_changes_its_mind_is_followed(project):
    seen = Seen()
    offering = Offering(offer("time", NOW, definition("tick")))
    async with opened(project(), offering, observer=seen) as runtime:
        assert [type(event) for event in seen.events] == [ToolAppeared, ToolAppeared]
        await runtime.call("time__now", {"zone": "UTC"})
        seen.events.clear()
        offering.changed("time", offer("time", {**NOW, "description": "Another."}, definition("tock")))
        events = await seen.until(lambda events: len(events) == 3)
        assert list(runtime.registry) == ["time__now", "time__tock"]
        assert runtime.registry["time__now"].description == "Another."
        kinds = {type(event): event for event in events}
        assert set(kinds) == {ToolAppeared, ToolChanged, ToolGone}
        assert kinds[ToolGone].before.name == "time__tick"


async def test_a_reload_keeps_what_servers_said_and_asks_those_that_are_new(project):
    offering = Offering(offer("time", NOW), offer("files", definition("read")))
    folder = project()
    async with opened(folder, offering) as runtime:
        (folder / "descriptors" / "x.yaml").write_text("name: x\nmock: {result: 1}\n")
        await runtime.reload()
        assert list(runtime.registry) == ["time__now", "x"]
        assert offering.asked == ["time"]
        project("time: {command: a, import: true}, files: {command: b, import: true}")
        await runtime.reload()
        assert list(runtime.registry) == ["files__read", "time__now", "x"]
        assert set(runtime._engine.world.servers) == {"time", "files"}
        project("files: {command: b, import: true}")
        await runtime.reload()
        assert list(runtime.registry) == ["files__read", "x"]


async def test_profiles_toolsets_and_scenarios_know_imported_tools(project):
    rest = (
        "disable: [time__tick]\ntoolsets: {small: {tools: [time__n*]}}\n"
        "profiles: {p: {toolset: small, modes: {time__now: mock}}}\n"
    )
    scenario = (
        "scenario: s\nmocks: {time__now: {result: {a: 1}}}\nsteps: [{call: time__now, args: {zone: x}}]\n"
    )
    runtime = opened(project(rest=rest, s=scenario), Offering(offer("time", NOW, definition("tick"))))
    assert runtime.problems == ()
    assert runtime.scenarios == ()
    async with runtime:
        assert [card.name for card in runtime.registry.query()] == ["time__now"]
        assert [each.name for each in runtime.scenarios] == ["s"]
        assert list(runtime.registry.within("small")) == ["time__now", "time__tick"]


async def test_a_program_names_servers_itself():
    offering = Offering(offer("time", NOW))
    seen = Seen()
    servers = {"time": TIME}
    async with Runtime(Registry(), executors=offering.executors(), servers=servers, observer=seen) as runtime:
        assert list(runtime.registry) == ["time__now"]
        offering.changed("time", offer("time", NOW, definition("tick")))
        await seen.until(lambda events: any(event.tool.name == "time__tick" for event in events))
        assert await runtime.catalogue("time") == offering.offers["time"]
        with pytest.raises(ConfigurationError, match="did you mean `time`"):
            await runtime.catalogue("tiem")


async def test_the_end_of_a_session_is_told():
    offering = Offering(offer("time", NOW))
    async with Runtime(Registry(), executors=offering.executors(), servers={"time": TIME}) as runtime:
        session = runtime.session(id="mine")
        await session.call("time__now", {"zone": "UTC"})
        await session.aclose()
    assert offering.released == ["mine"]


async def test_a_file_of_a_client_is_enough(tmp_path):
    file = tmp_path / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": {"time": {"command": "time-server"}}}))
    async with opened(file, Offering(offer("time", NOW))) as runtime:
        assert list(runtime.registry) == ["time__now"]
        assert runtime.project is None


async def test_a_broken_server_of_a_clients_file_takes_nothing_else_with_it(tmp_path):
    servers = {"time": {"command": "time-server"}, "bad": {"command": 7}}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (tmp_path / "toolcrib.yaml").write_text("project: shop\nservers_from: .mcp.json\n")
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "descriptors" / "own.yaml").write_text("name: own\nmock: {result: 1}\n")
    async with opened(tmp_path, Offering(offer("time", NOW))) as runtime:
        assert [card.name for card in runtime.registry.query()] == ["own", "time__now"]
        assert {problem.source for problem in runtime.problems} == {str(tmp_path / ".mcp.json")}


async def test_two_event_loops_ask_one_after_the_other(project):
    offering = Offering(offer("time", NOW))
    runtime = opened(project(), offering)

    def without_a_loop():
        return runtime.call_sync("time__now", {"zone": "UTC"})

    results = await asyncio.gather(
        asyncio.to_thread(without_a_loop),
        runtime.call("time__now", {"zone": "UTC"}),
        asyncio.to_thread(without_a_loop),
        asyncio.to_thread(without_a_loop),
    )
    assert {result.outcome for result in results} == {Outcome.OK}
    assert offering.asked == ["time"]
    await asyncio.to_thread(runtime.close)


async def test_who_is_cancelled_while_another_loop_changes_tools_leaves_it_free():
    turn = CrossLoopLock()
    async with turn:
        waiting = asyncio.create_task(turn.__aenter__())
        await RealClock().sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with asyncio.timeout(60), turn:
        pass


async def test_discovering_a_server_reports_that_server_alone(project):
    folder = project("time: {command: a, import: true}, files: {command: b, import: true}")
    offering = Offering()
    async with opened(folder, offering) as runtime:
        told = await runtime.discover()
        assert [each.message for each in told] == [
            "the server `files` can't be started",
            "the server `time` can't be started",
        ]
        offering.offers["time"] = offer("time", NOW)
        assert await runtime.discover("time") == ()
        assert [each.message for each in await runtime.discover("files")] == [told[0].message]
        assert list(runtime.registry) == ["time__now"]
