"""`Runtime.add` and `Runtime.remove`: tools of a program are treated as those of files."""

from __future__ import annotations

import asyncio

import pytest

import toolcrib
from toolcrib import (
    ClosedRuntime,
    ConfigurationError,
    Descriptor,
    Outcome,
    Registry,
    Runtime,
    ToolAppeared,
    ToolChanged,
    ToolGone,
    simple_tool,
)
from toolcrib.engine import engine_of

FILE = "name: greet\ndescription: Greets.\nmock: {result: hi}\n"


def refund(order: str, amount: float = 1.0) -> str:
    """Refund an order."""
    return f"{order}: {amount:g}"


@toolcrib.tool(name="refund", mock={"result": "mocked"})
def other_refund(order: str) -> str:
    """Refund an order in another way."""
    return f"other {order}"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "greet.tool.yaml").write_text(FILE)
    return tmp_path


def opened(folder, **options):
    return Runtime.open(str(folder), index=False, **options)


def test_an_added_tool_is_called_listed_and_searched(folder):
    with opened(folder) as runtime:
        before = runtime.registry.revision
        added = runtime.add(refund)
        assert isinstance(added, Descriptor)
        assert runtime.call_sync("refund", {"order": "o1"}).value == "o1: 1"
        assert runtime.call_sync("greet").value == "hi"
        assert [card.name for card in runtime.registry.query()] == ["greet", "refund"]
        assert [hit.card.name for hit in runtime.registry.search("refund")] == ["refund"]
        assert runtime.registry.revision == before + 1


def test_every_kind_of_tool_is_accepted():
    runtime = Runtime(Registry())
    runtime.add(simple_tool("ping", "Answers.", mock={"result": "pong"}))
    runtime.add(toolcrib.parse_registry("t", FILE, kinds=toolcrib.Executors.installed())["greet"])
    runtime.add(refund)
    assert [runtime.call_sync(name).value for name in ("ping", "greet")] == ["pong", "hi"]


def test_the_mode_and_the_settings_of_the_project_apply(folder):
    (folder / "toolcrib.yaml").write_text(
        "project: shop\ndefaults: {timeout: 7s}\ndisable: [secret_*]\nsources: [.]\n"
    )
    with opened(folder, mode="mock") as runtime:
        assert runtime.add(other_refund).mode == "mock"
        assert runtime.registry["refund"].timeout == 7.0
        assert runtime.call_sync("refund", {"order": "o1"}).value == "mocked"

        @toolcrib.tool(name="secret_refund")
        def hidden(order: str) -> str: ...

        runtime.add(hidden)
        assert runtime.call_sync("secret_refund", {"order": "o1"}).outcome is Outcome.UNAVAILABLE


def test_a_taken_name_is_an_error_that_names_its_place(folder):
    runtime = opened(folder)
    with pytest.raises(ConfigurationError) as caught:
        runtime.add(simple_tool("greet", "Greets."))
    assert caught.value.code == "duplicate_tool"
    assert "greet.tool.yaml:1" in str(caught.value)
    runtime.add(simple_tool("greet", "Greets.", mock={"result": "hello"}), replace=True)
    assert runtime.call_sync("greet").value == "hello"


def test_removing_an_unknown_tool_names_near_ones(folder):
    runtime = opened(folder)
    with pytest.raises(ConfigurationError) as caught:
        runtime.remove("gret")
    assert (caught.value.code, caught.value.hint) == ("unknown_tool", "did you mean `greet`?")
    runtime.remove("greet")
    result = runtime.call_sync("greet")
    assert result.outcome is Outcome.NOT_FOUND


def test_a_call_of_an_unknown_tool_names_added_ones(folder):
    runtime = opened(folder)
    runtime.add(refund)
    assert "did you mean `refund`?" in runtime.call_sync("refnd").message


def test_the_observer_hears_each_change_once(folder):
    events = []
    runtime = opened(folder, observer=events.append)
    runtime.add(refund)
    runtime.add(other_refund, replace=True)
    runtime.remove("refund")
    assert [type(event) for event in events] == [ToolAppeared, ToolChanged, ToolGone]


def test_served_clients_are_told(folder):
    heard = []
    runtime = opened(folder)
    engine_of(runtime).follow(lambda: heard.append([*runtime.registry]))
    runtime.add(refund)
    runtime.remove("refund")
    assert heard == [["greet", "refund"], ["greet"]]


def test_changes_survive_a_reload_of_files(folder):
    events = []

    async def run():
        async with opened(folder, observer=events.append) as runtime:
            runtime.add(refund)
            runtime.add(simple_tool("greet", "Greets.", mock={"result": "hello"}), replace=True)
            events.clear()
            (folder / "more.tool.yaml").write_text("name: more\ndescription: More.\nmock: {result: 1}\n")
            await runtime.reload()
            assert [event.tool.name for event in events] == ["more"]
            assert [*runtime.registry] == ["greet", "more", "refund"]
            assert (await runtime.call("greet")).value == "hello"
            runtime.remove("more")
            await runtime.reload()
            assert [*runtime.registry] == ["greet", "refund"]
            return (await runtime.call("refund", {"order": "o1"})).value

    assert asyncio.run(run()) == "o1: 1"


def test_a_running_call_ends_on_the_tool_that_it_started_with():
    async def run():
        started, go = asyncio.Event(), asyncio.Event()

        async def slow() -> str:
            started.set()
            await go.wait()
            return "done"

        async with Runtime(Registry()) as runtime:
            runtime.add(slow)
            task = asyncio.ensure_future(runtime.call("slow"))
            await started.wait()
            runtime.remove("slow")
            go.set()
            return (await task).value, (await runtime.call("slow")).outcome

    assert asyncio.run(run()) == ("done", Outcome.NOT_FOUND)


def test_a_tool_of_an_untrusted_program_folder_needs_no_trust(folder):
    """The program runs the code anyway: it is the files that need trust."""
    with opened(folder, trust=False) as runtime:
        runtime.add(refund)
        assert runtime.call_sync("refund", {"order": "o1"}).value == "o1: 1"


def test_a_closed_runtime_takes_no_tools(folder):
    runtime = opened(folder)
    runtime.close()
    with pytest.raises(ClosedRuntime):
        runtime.add(refund)
    with pytest.raises(ClosedRuntime):
        runtime.remove("greet")


def test_limits_apply():
    async def run():
        running, most = 0, 0

        @toolcrib.tool(limits={"concurrency": 2})
        async def busy(context: toolcrib.CallContext) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await context.session.clock.sleep(0)
            running -= 1

        async with Runtime(Registry()) as runtime:
            runtime.add(busy)
            await asyncio.gather(*(runtime.call("busy") for _ in range(6)))
        return most

    assert asyncio.run(run()) == 2
