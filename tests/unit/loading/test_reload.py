"""A reload: what it puts in force, what it keeps, what it reports; all at once, and without harm to running calls."""

from __future__ import annotations

import asyncio
import shutil
import zipfile

import pytest

from toolcrib import ClosedRuntime, ConfigurationError, Outcome, Registry, Runtime
from toolcrib.loading.reload import ToolAppeared, ToolChanged, ToolDisabled, ToolEnabled, ToolGone


def tool(name: str, answer: object = 1, rest: str = "") -> str:
    return f"name: {name}\nmock: {{result: {answer}}}\n{rest}"


@pytest.fixture
def folder(tmp_path):
    """A folder with two tools and a scenario."""
    (tmp_path / "a.yaml").write_text(tool("a"))
    (tmp_path / "b.yaml").write_text(tool("b"))
    (tmp_path / "s.yaml").write_text("scenario: s\nsteps: [{call: a}]\n")
    return tmp_path


def opened(folder, **options) -> Runtime:
    runtime = Runtime.open(folder, index=False, **options)
    assert runtime.problems == ()
    return runtime


def reload(runtime: Runtime):
    return asyncio.run(runtime.reload())


def answer(runtime: Runtime, name: str):
    return asyncio.run(runtime.call(name)).value


def test_a_change_is_in_force_after_the_reload_and_not_before(folder):
    runtime = opened(folder)
    (folder / "a.yaml").write_text(tool("a", 2))
    assert answer(runtime, "a") == 1
    report = reload(runtime)
    assert answer(runtime, "a") == 2
    assert (report.appeared, report.changed, report.gone) == ((), ("a",), ())
    assert report.files == (str(folder / "a.yaml"),)
    assert report.revision == runtime.registry.revision


def test_tools_appear_and_go(folder):
    events = []
    runtime = opened(folder, observer=events.append)
    (folder / "a.yaml").unlink()
    (folder / "s.yaml").unlink()
    (folder / "c.yaml").write_text(tool("c"))
    (folder / "b.yaml").write_text(tool("b", 2))
    report = reload(runtime)
    assert (report.appeared, report.changed, report.gone) == (("c",), ("b",), ("a",))
    assert [type(event) for event in events] == [ToolGone, ToolChanged, ToolAppeared]
    assert (events[1].before.bindings, events[1].tool.bindings) == (
        {"mock": {"result": 1}},
        {"mock": {"result": 2}},
    )
    assert asyncio.run(runtime.call("a")).outcome is Outcome.NOT_FOUND
    assert str(report) == "1 appeared (c); 1 changed (b); 1 gone (a)"


def test_a_reload_without_a_change_says_so(folder):
    runtime = opened(folder)
    (folder / "a.yaml").write_text("# a comment above\n" + tool("a"))
    report = reload(runtime)
    assert str(report) == "nothing changed"
    assert runtime.registry["a"].origin.locate("/name") == (2, 7)


@pytest.mark.parametrize("broken", ["name: a\nmock: {resutl: 1}\n", "name: [", "", "name: a\nmo", "\x00"])
def test_a_broken_file_keeps_its_last_good_version(folder, broken):
    runtime = opened(folder)
    (folder / "a.yaml").write_text(broken)
    (folder / "b.yaml").write_text(tool("b", 2))
    report = reload(runtime)
    assert (answer(runtime, "a"), answer(runtime, "b")) == (1, 2)
    assert list(report.stale) == ["a"]
    assert runtime.registry["a"].origin.stale == report.stale["a"]
    assert str(folder / "a.yaml") in report.stale["a"]
    assert [scenario.name for scenario in runtime.scenarios] == ["s"]
    assert {problem.source for problem in report.problems} == {str(folder / "a.yaml")}
    (folder / "a.yaml").write_text(tool("a", 3))
    report = reload(runtime)
    assert (answer(runtime, "a"), dict(report.stale), report.problems) == (3, {}, ())


def test_a_broken_file_stays_as_it_was_through_several_reloads(folder):
    runtime = opened(folder)
    for text in ("name: [", "name: {", "- : -"):
        (folder / "a.yaml").write_text(text)
        reload(runtime)
        assert answer(runtime, "a") == 1


def test_of_a_file_with_several_documents_the_good_ones_are_taken(folder):
    (folder / "a.yaml").write_text(tool("a") + "---\n" + tool("x"))
    runtime = opened(folder)
    (folder / "a.yaml").write_text("name: a\nmock: {resutl: 1}\n---\n" + tool("x", 2))
    reload(runtime)
    assert (answer(runtime, "a"), answer(runtime, "x")) == (1, 2)


def test_a_file_replaced_by_a_folder_takes_its_tools_with_it(folder):
    runtime = opened(folder)
    (folder / "b.yaml").unlink()
    (folder / "b.yaml").mkdir()
    report = reload(runtime)
    assert report.gone == ("b",)


def test_a_broken_scenario_keeps_its_last_good_version(folder):
    runtime = opened(folder)
    (folder / "s.yaml").write_text("scenario: s\nsteps: [{cal: a}]\n")
    reload(runtime)
    assert [scenario.name for scenario in runtime.scenarios] == ["s"]


def test_a_broken_pack_file_keeps_the_pack_as_it_was(folder):
    pack = folder / "pack"
    pack.mkdir()
    (pack / "pack.yaml").write_text("name: p\nversion: 1.0.0\nnamespace: ns\n")
    (pack / "t.yaml").write_text(tool("t"))
    runtime = opened(folder)
    assert sorted(runtime.registry) == ["a", "b", "ns__t"]
    (pack / "pack.yaml").write_text("name: p\nversoin: 1.0.0\n")
    report = reload(runtime)
    assert sorted(runtime.registry) == ["a", "b", "ns__t"]
    assert [pack.name for pack in runtime.packs] == ["p"]
    assert list(report.stale) == ["ns__t"]


def test_a_broken_pack_file_that_appears_leaves_the_tools_beside_it_as_they_were(folder):
    runtime = opened(folder)
    (folder / "pack.yaml").write_text("name: p\n")
    (folder / "c.yaml").write_text(tool("c"))
    report = reload(runtime)
    assert (sorted(runtime.registry), sorted(report.stale)) == (["a", "b"], ["a", "b"])
    (folder / "pack.yaml").write_text("name: p\nversion: 1.0.0\nnamespace: ns\n")
    report = reload(runtime)
    assert (sorted(runtime.registry), report.stale) == (["ns__a", "ns__b", "ns__c"], {})


def test_a_broken_archive_keeps_the_pack_as_it_was(folder):
    archive = folder / "p.zip"
    with zipfile.ZipFile(archive, "w") as written:
        written.writestr("pack.yaml", "name: p\nversion: 1.0.0\n")
        written.writestr("t.yaml", tool("t"))
    runtime = opened(folder)
    archive.write_bytes(archive.read_bytes()[:-9])
    report = reload(runtime)
    assert answer(runtime, "t") == 1
    assert list(report.stale) == ["t"]
    archive.unlink()
    assert reload(runtime).gone == ("t",)


def test_a_broken_project_keeps_what_was_in_force(folder):
    (folder / "toolcrib.yaml").write_text("project: p\nsources: [.]\ndisable: [b]\n")
    runtime = opened(folder)
    (folder / "toolcrib.yaml").write_text("project: p\nsources: [.\n")
    reload(runtime)
    assert answer(runtime, "a") == 1
    assert runtime.registry.why_hidden("b")
    assert [problem.severity for problem in runtime.problems] == ["error"]


def test_what_can_not_be_put_in_force_changes_nothing(folder):
    (folder / "toolcrib.yaml").write_text("project: p\nsources: [.]\nprofile: ci\nprofiles: {ci: {}}\n")
    runtime = opened(folder, profile="ci")
    before = runtime.registry
    (folder / "toolcrib.yaml").write_text("project: p\nsources: [.]\nprofiles: {other: {}}\n")
    with pytest.raises(ConfigurationError, match="unknown profile `ci`"):
        reload(runtime)
    assert runtime.registry is before


def test_a_running_call_ends_on_the_version_it_began_with(folder):
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def holds(call, call_next):
        begun.set()
        await go_on.wait()
        return await call_next(call)

    async def calls():
        runtime = opened(folder, middleware=[holds])
        running = asyncio.create_task(runtime.call("a"))
        await begun.wait()
        (folder / "a.yaml").write_text(tool("a", 2))
        await runtime.reload()
        go_on.set()
        return (await running).value, (await runtime.call("a")).value

    assert asyncio.run(calls()) == (1, 2)


def test_sessions_see_the_reload_unless_they_have_tools_of_their_own(folder):
    async def calls():
        runtime = opened(folder)
        follows, stays = runtime.session(), runtime.session(registry=runtime.registry)
        (folder / "a.yaml").write_text(tool("a", 2))
        await runtime.reload()
        return [(await session.call("a")).value for session in (follows, stays)]

    assert asyncio.run(calls()) == [2, 1]


def test_reloads_at_the_same_time_come_one_after_the_other(folder):
    async def reloads():
        runtime = opened(folder)
        (folder / "a.yaml").write_text(tool("a", 2))
        reports = await asyncio.gather(*(runtime.reload() for _ in range(3)))
        return [report.changed for report in reports]

    assert asyncio.run(reloads()) == [("a",), (), ()]


def test_a_runtime_from_memory_can_not_reload():
    with pytest.raises(ConfigurationError, match="was not read from disk"):
        reload(Runtime(Registry()))


def test_a_watch_reloads_and_reports(folder):
    async def watches():
        async with opened(folder) as runtime:
            watching = runtime.watch(poll=0.01)
            report = asyncio.ensure_future(anext(watching))
            for _turn in range(100):
                await asyncio.sleep(0)  # noqa: TID251 -- lets the watch begin; nothing is timed
            (folder / "a.yaml").write_text(tool("a", 2))
            found = await report
            await watching.aclose()
            return found.changed, (await runtime.call("a")).value

    assert asyncio.run(watches()) == (("a",), 2)


def test_a_runtime_that_watches_reloads_by_itself(folder):
    async def watches():
        changed = asyncio.Event()
        runtime = opened(folder, watch=True, observer=lambda event: changed.set())
        async with runtime:
            (folder / "c.yaml").write_text(tool("c"))
            await changed.wait()
            return "c" in runtime.registry

    assert asyncio.run(watches())


def test_the_whole_folder_may_go(folder):
    runtime = opened(folder)
    shutil.rmtree(folder)
    report = reload(runtime)
    assert report.gone == ("a", "b")
    assert [problem.code for problem in report.problems] == ["path_not_found"]
    folder.mkdir()
    assert reload(runtime).problems == ()


def test_what_is_offered_no_more_is_gone_and_comes_back(folder):
    events = []
    (folder / "toolcrib.yaml").write_text("project: p\nsources: [.]\n")
    runtime = opened(folder, observer=events.append)
    (folder / "toolcrib.yaml").write_text("project: p\nsources: [.]\ndisable: [b]\n")
    assert reload(runtime).gone == ("b",)
    (folder / "toolcrib.yaml").write_text("project: p\nsources: [.]\n")
    assert reload(runtime).appeared == ("b",)
    assert [type(event) for event in events] == [ToolDisabled, ToolEnabled]
    assert events[0].reason == f"`b` is disabled in {folder / 'toolcrib.yaml'}:3"


def test_a_file_is_reported_once_however_it_is_named(folder, monkeypatch):
    monkeypatch.chdir(folder)
    (folder / "a.yaml").write_text("name: a\nmock: {result_file: data.txt}\n")
    (folder / "data.txt").write_text("1")
    runtime = Runtime.open(".", index=False)
    (folder / "data.txt").write_text("2")
    report = reload(runtime)
    assert (report.files, report.changed) == (("data.txt",), ("a",))


def test_a_closed_runtime_neither_reloads_nor_watches(folder):
    async def closed():
        async with opened(folder) as runtime:
            pass
        with pytest.raises(ClosedRuntime):
            await runtime.reload()
        with pytest.raises(ClosedRuntime):
            await anext(runtime.watch())

    asyncio.run(closed())


@pytest.mark.parametrize("poll", [0, -1.0, float("nan")])
def test_a_watch_waits_between_its_looks(folder, poll):
    async def watched():
        async with opened(folder) as runtime:
            with pytest.raises(ConfigurationError, match="`poll` must be greater than 0"):
                await anext(runtime.watch(poll=poll))

    asyncio.run(watched())
