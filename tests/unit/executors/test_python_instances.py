"""Instances of `Tool` classes, and the change of their config: each instance is initialised once and closed once."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import toolcrib
from sampling import examples
from toolcrib import (
    ConfigurationError,
    DocumentError,
    Executors,
    Outcome,
    RealClock,
    Registry,
    Runtime,
    parse_registry,
)
from toolcrib.loading.reload import ToolAppeared, ToolChanged


async def turn():
    """Let everything else run once."""
    await RealClock().sleep(0)


@dataclass
class Wish:
    how: str = "value"


@dataclass
class Settings:
    start: int = 0
    fails: bool = False
    yields: int = 0


class Ledger(toolcrib.Tool[Wish, int]):
    """Count what happens to each instance."""

    all: ClassVar[list[Ledger]] = []

    def __init__(self) -> None:
        self.initialised = self.closed = self.ready = self.running = self.late = 0
        Ledger.all.append(self)

    async def initialise(self, config: Settings) -> None:
        self.initialised += 1
        self.config = config
        for _ in range(config.yields):
            await turn()
        self.ready += 1

    async def execute(self, wish: Wish) -> int:
        self.running += 1
        try:
            assert self.ready
            if wish.how == "raise":
                raise ValueError("no")
            if wish.how == "hang":
                await asyncio.Event().wait()
            await turn()
            self.late += self.closed
            return self.config.start
        finally:
            self.running -= 1

    async def close(self) -> None:
        self.closed += 1
        await turn()
        if self.config.fails:
            raise OSError("cannot close")


@pytest.fixture(autouse=True)
def _forgotten():
    Ledger.all.clear()


def ledger(policy="shared", **config):
    """The class as a tool; the declaration is on a subclass, so that tests do not share it."""
    return toolcrib.tool(name="ledger", instances=policy, config=config)(type("Own", (Ledger,), {}))


ACTIONS = st.lists(
    st.sampled_from(["value", "raise", "hang", "cancel", "configure", "failing", "wait"]), max_size=12
)


@settings(max_examples=examples(40), deadline=None)
@given(policy=st.sampled_from(["shared", "pool", "call"]), actions=ACTIONS, yields=st.integers(0, 2))
def test_every_instance_is_initialised_once_and_closed_once(policy, actions, yields):
    Ledger.all.clear()

    async def run():
        runtime = Runtime(Registry())
        runtime.add(ledger(policy, yields=yields))
        calls = []
        for number, action in enumerate(actions):
            if action in {"configure", "failing"}:
                runtime.configure("ledger", {"start": number, "fails": action == "failing", "yields": yields})
            elif action == "wait":
                await turn()
            else:
                how = "hang" if action == "cancel" else action
                calls.append((action, asyncio.ensure_future(runtime.call("ledger", {"how": how}))))
                for _ in range(number % 4):
                    await turn()
                if action == "cancel":
                    calls[-1][1].cancel()
        await asyncio.gather(*(task for action, task in calls if action in {"value", "raise"}))
        for _action, task in calls:
            task.cancel()
        await asyncio.gather(*(task for _action, task in calls), return_exceptions=True)
        failed = await asyncio.gather(runtime.aclose(), return_exceptions=True)
        return [each for each in failed if each is not None and each.split(OSError)[1] is not None]

    assert asyncio.run(run()) == []
    for each in Ledger.all:
        assert (each.initialised, each.closed) == (1, each.ready)
        assert (each.running, each.late) == (0, 0)


def test_a_pool_gives_each_call_an_instance_and_keeps_it():
    async def run():
        async with Runtime(Registry()) as runtime:
            runtime.add(ledger("pool"))
            for _ in range(2):
                await asyncio.gather(*(runtime.call("ledger") for _ in range(3)))

    asyncio.run(run())
    assert [each.closed for each in Ledger.all] == [1, 1, 1]


def test_an_instance_for_each_call_is_closed_with_it():
    async def run():
        async with Runtime(Registry()) as runtime:
            runtime.add(ledger("call"))
            found = []
            for _ in range(2):
                await runtime.call("ledger")
                found.append([each.closed for each in Ledger.all])
            return found

    assert asyncio.run(run()) == [[1], [1, 1]]


def test_a_failure_of_close_is_logged_and_changes_no_result(caplog):
    async def run():
        async with Runtime(Registry()) as runtime:
            runtime.add(ledger("call", fails=True, start=3))
            return await runtime.call("ledger")

    assert asyncio.run(run()).value == 3
    assert "`close` of `Own` raised an exception" in caplog.text


class Slow(toolcrib.Tool[Wish, int]):
    entered, release = threading.Event(), threading.Event()
    closed = 0

    def initialise(self, config: Settings) -> None: ...

    def execute(self, wish: Wish) -> int:
        Slow.entered.set()
        Slow.release.wait(30)
        assert not Slow.closed
        return 1

    def close(self) -> None:
        Slow.closed += 1


def test_an_instance_is_closed_after_the_thread_that_outlives_its_call():
    async def run():
        async with Runtime(Registry()) as runtime:
            runtime.add(Slow)
            task = asyncio.ensure_future(runtime.call("slow"))
            while not Slow.entered.is_set():
                await turn()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            runtime.configure("slow", {"start": 1})
            await turn()
            before = Slow.closed
            Slow.release.set()
            while not Slow.closed:
                await turn()
            return before

    assert asyncio.run(run()) == 0
    assert Slow.closed == 1


def test_a_config_is_changed_with_one_event_and_running_calls_finish():
    events = []

    async def run():
        async with Runtime(Registry(), observer=events.append) as runtime:
            runtime.add(ledger("shared", start=1))
            running = asyncio.ensure_future(runtime.call("ledger"))
            await turn()
            while not Ledger.all or not Ledger.all[0].running:
                await turn()
            runtime.configure("ledger", {"start": 2})
            after = await runtime.call("ledger")
            first = (await running).value
            for _ in range(5):
                await turn()
            return first, after.value, [each.closed for each in Ledger.all]

    assert asyncio.run(run()) == (1, 2, [1, 0])
    told = [each for each in events if isinstance(each, ToolAppeared | ToolChanged)]
    assert [type(each) for each in told] == [ToolAppeared, ToolChanged]
    assert told[1].tool.bindings["python"]["config"] == {"start": 2}
    assert [each.late for each in Ledger.all] == [0, 0]


def test_a_config_that_its_type_refuses_changes_nothing():
    async def run():
        async with Runtime(Registry()) as runtime:
            runtime.add(ledger("shared", start=1))
            await runtime.call("ledger")
            with pytest.raises(DocumentError) as refused:
                runtime.configure("ledger", {"start": "many", "fails": 3})
            return str(refused.value), (await runtime.call("ledger")).value

    told, value = asyncio.run(run())
    assert value == 1
    assert "/python/config/start" in told
    assert "/python/config/fails" in told
    assert __file__ in told
    assert len(Ledger.all) == 1


async def plain() -> int:
    return 1


async def plain_pool() -> int:
    return 1


def test_what_cannot_be_configured_is_refused():
    runtime = Runtime(Registry())
    runtime.add(plain)
    runtime.add(toolcrib.simple_tool("mocked", "A mock."))
    runtime.add(Given())
    for name, said in (
        ("plan", "unknown tool `plan`"),
        ("mocked", "its mode is `mock`, which has no `config`"),
        ("given", "the program created its instance"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            runtime.configure(name, {})
    with pytest.raises(DocumentError, match="`config` has no effect"):
        runtime.configure("plain", {"a": 1})


class Given(Ledger):
    pass


def test_instances_without_effect_are_refused():
    with pytest.raises(DocumentError, match=r"`instances` has no effect: .* is a function"):
        Runtime(Registry()).add(toolcrib.tool(instances="pool")(plain_pool))
    mine = ledger("pool")()
    with pytest.raises(DocumentError, match="is an instance that the program created"):
        Runtime(Registry()).add(mine)


MODULE = """
import toolcrib

class Teller(toolcrib.Tool[dict[str, int], int]):
    def initialise(self, config: dict[str, int]) -> None:
        self.limit = config["limit"]

    def execute(self, given: dict[str, int]) -> int:
        return self.limit
"""


def test_a_config_of_a_tool_in_a_file_stays_through_a_reload(tmp_path, monkeypatch):
    (tmp_path / "configured_tools.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = 'name: teller\nmode: python\npython: {call: "configured_tools:Teller", config: {limit: 1}}\n'
    (tmp_path / "a.tool.yaml").write_text(text)
    events = []

    async def run():
        async with Runtime.open(str(tmp_path), index=False, observer=events.append) as runtime:
            values = [(await runtime.call("teller")).value]
            runtime.configure("teller", {"limit": 2})
            values.append((await runtime.call("teller")).value)
            report = await runtime.reload()
            return [*values, (await runtime.call("teller")).value], report.changed

    assert asyncio.run(run()) == ([1, 2, 2], ())
    assert [type(each) for each in events if isinstance(each, ToolChanged)] == [ToolChanged]


def test_synchronous_callers_change_a_config(tmp_path):
    with Runtime(Registry()) as runtime:
        runtime.add(ledger("shared", start=1))
        values = [runtime.call_sync("ledger").value]
        runtime.configure("ledger", {"start": 2})
        values.append(runtime.call_sync("ledger").value)
    assert values == [1, 2]
    assert [each.closed for each in Ledger.all] == [1, 1]


def test_workers_get_the_new_config(tmp_path, monkeypatch):
    (tmp_path / "worker_configured.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    text = (
        "name: teller\nmode: python\ninput_schema: {type: object}\n"
        'python: {call: "worker_configured:Teller", config: {limit: 1}, worker: process}\n'
    )
    registry = parse_registry("tools.yaml", text, kinds=Executors.installed())

    async def run():
        async with Runtime(registry) as runtime:
            first = await runtime.call("teller")
            with pytest.raises(DocumentError, match="/python/config/limit"):
                runtime.configure("teller", {"limit": "many"})
            runtime.configure("teller", {"limit": 2})
            return first, await runtime.call("teller")

    first, second = asyncio.run(run())
    assert (first.outcome, first.value, second.value) == (Outcome.OK, 1, 2)


def test_a_memory_limit_without_a_worker_process_is_a_warning():
    problems = []
    text = 'name: t\nmode: python\npython: {call: "a:b"}\nlimits: {memory: 1MiB}\n'
    parse_registry("t.yaml", text, kinds=Executors.installed(), problems=problems)
    assert [(each.code, each.severity) for each in problems] == [("needless_key", "warning")]
