"""The runtime: opening it, calling it, asking it what it would do, closing it."""

from __future__ import annotations

import asyncio
import gc
import logging
from textwrap import dedent

import pytest

from in_memory import MOCKS, always, fake, loaded, mocked, runtime_of
from toolcrib import (
    ClosedRuntime,
    ConfigurationError,
    DocumentError,
    Executors,
    Outcome,
    Registry,
    Result,
    Runtime,
    UnknownMode,
)
from toolcrib.engine.runtime import loaded_runtime

GREET = """
    name: greet
    input_schema:
      type: object
      properties: {who: {type: string, default: you}, times: {type: integer}, password: {type: string}}
      additionalProperties: false
    mock: {result: "hello {{ args.who }}"}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "descriptors" / "greet.tool.yaml").write_text(GREET)
    return tmp_path


def test_open_reads_a_folder_and_a_call_answers(folder):
    with Runtime.open(folder / "descriptors", executors=MOCKS) as tools:
        result = tools.call_sync("greet", {"who": "Ada"})
    assert (result.outcome, result.value) == (Outcome.OK, "hello Ada")


def test_open_without_a_path_reads_descriptors_and_packs_of_the_working_directory(folder, monkeypatch):
    pack = folder / "packs" / "manners"
    (pack / "tools").mkdir(parents=True)
    (pack / "pack.yaml").write_text("name: manners\nversion: 1.0.0\ndescription: To be polite.\n")
    (pack / "tools" / "thank.tool.yaml").write_text("name: thank\nmock: {result: thanks}\n")
    (pack / "thank.scenario.yaml").write_text("scenario: thanks\nsteps: [{call: thank}]\n")
    monkeypatch.chdir(folder)
    runtime = Runtime.open(executors=MOCKS)
    assert list(runtime.registry) == ["greet", "thank"]
    assert [pack.name for pack in runtime.packs] == ["manners"]
    assert [scenario.name for scenario in runtime.scenarios] == ["thanks"]
    assert runtime.registry["thank"].origin.pack == "manners"


def test_where_neither_folder_exists_the_missing_one_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runtime = Runtime.open(executors=MOCKS)
    assert [(problem.code, problem.source) for problem in runtime.problems] == [
        ("path_not_found", "descriptors")
    ]


def test_a_bad_file_is_logged_and_the_good_one_beside_it_works(folder, caplog):
    (folder / "descriptors" / "bad.tool.yaml").write_text("name: bad\nmock: {resutl: 1}\n")
    (folder / "descriptors" / "list.yaml").write_text("- 1\n")
    with caplog.at_level(logging.INFO, logger="toolcrib"):
        runtime = Runtime.open(folder / "descriptors", executors=MOCKS)
    assert list(runtime.registry) == ["greet"]
    levels = {record.levelname: record.getMessage() for record in caplog.records}
    assert "bad.tool.yaml:2" in levels["WARNING"]
    assert "unrecognised_file" in levels["INFO"]


def test_strict_raises_everything_that_is_wrong(folder):
    (folder / "descriptors" / "list.yaml").write_text("- 1\n")
    with pytest.raises(DocumentError, match=r"1 problem:\n.*unrecognised_file") as raised:
        Runtime.open(folder / "descriptors", executors=MOCKS, strict=True)
    assert [problem.severity for problem in raised.value.problems] == ["notice"]


def test_a_glob_of_modes_that_fits_no_tool_is_logged_with_near_misses(folder, caplog):
    modes = {"gret*": "mock", "zzzzz": "mock", "greet": "mock", "*": "mock"}
    Runtime.open(folder / "descriptors", executors=MOCKS, modes=modes)
    assert [record.getMessage() for record in caplog.records] == [
        "`gret*` in `modes` matches no tool and has no effect\n    hint: did you mean `greet`?",
        "`zzzzz` in `modes` matches no tool and has no effect\n    hint: 1 tool is loaded",
    ]


def test_strict_raises_for_a_glob_of_modes_that_fits_no_tool(folder):
    with pytest.raises(ConfigurationError, match=r"`gret\*` in `modes` matches no tool"):
        Runtime.open(folder / "descriptors", executors=MOCKS, modes={"gret*": "mock"}, strict=True)


def test_two_modes_for_every_tool_are_refused(folder):
    with pytest.raises(ConfigurationError, match="`mode` and the glob"):
        Runtime.open(folder / "descriptors", executors=MOCKS, mode="mock", modes={"*": "live"})
    same = Runtime.open(folder / "descriptors", executors=MOCKS, mode="mock", modes={"*": "mock"})
    assert same.registry["greet"].mode == "mock"


def test_duplicates_over_two_files_keep_the_first_and_name_both(folder):
    (folder / "descriptors" / "hello.tool.yaml").write_text("\nname: greet\nmock: {result: 1}\n")
    runtime = Runtime.open(folder / "descriptors", executors=MOCKS)
    (problem,) = runtime.problems
    assert problem.code == "duplicate_tool"
    assert problem.source.endswith("hello.tool.yaml")
    assert (problem.line, problem.column) == (2, 7)
    assert "greet.tool.yaml:2" in problem.message
    assert runtime.call_sync("greet").value == "hello you"
    runtime.close()


def test_a_scenario_that_does_not_fit_the_tools_is_left_out_and_told_of():
    text = "scenario: {0}\nsteps: [{{call: {1}}}]\n"
    found = loaded("\n---\n".join([dedent(GREET), text.format("good", "greet"), text.format("bad", "gret")]))
    runtime = loaded_runtime(found, executors=MOCKS)
    assert [scenario.name for scenario in runtime.scenarios] == ["good"]
    assert [(problem.code, problem.pointer) for problem in runtime.problems] == [
        ("unknown_tool", "/steps/0/call")
    ]


TWO_MODES = """
    name: pay
    mode: live
    mock: {result: paid}
    live: {url: "https://example.com"}
    ---
    name: payday
    mock: {result: soon}
    ---
    name: ask
    mode: live
    mock: {result: asked}
    live: {url: "https://example.com"}
"""


def modes_with(**options):
    runtime = runtime_of(TWO_MODES, **options)
    return {name: tool.mode for name, tool in runtime.registry.items()}


def test_the_first_glob_that_fits_changes_the_mode():
    assert modes_with() == {"ask": "live", "pay": "live", "payday": "mock"}
    assert modes_with(modes={"pay*": "mock"}) == {"ask": "live", "pay": "mock", "payday": "mock"}
    assert modes_with(modes={"ask": "live", "*": "mock"}) == {"ask": "live", "pay": "mock", "payday": "mock"}


def test_a_glob_passes_over_tools_without_the_block_and_a_name_does_not():
    assert modes_with(modes={"*": "live"})["payday"] == "mock"
    assert modes_with(modes={"payday": "live"})["payday"] == "live"
    assert modes_with(modes={"*": "live", "payday": "mock"})["payday"] == "mock"


@pytest.mark.parametrize("modes", [{}, {"pay*": "live"}])
def test_open_with_a_mode_sets_it_after_the_globs(tmp_path, modes):
    (tmp_path / "tools.yaml").write_text("\n".join(line[4:] for line in TWO_MODES.splitlines()))
    runtime = Runtime.open(tmp_path, executors=MOCKS, mode="mock", modes=modes)
    assert runtime.registry["ask"].mode == "mock"
    assert runtime.registry["pay"].mode == ("live" if modes else "mock")


def test_a_misspelt_mode_is_refused_with_the_near_miss():
    with pytest.raises(UnknownMode, match=r"unknown mode `mokc`\n.*did you mean `mock`\?"):
        modes_with(modes={"*": "mokc"})
    with pytest.raises(UnknownMode, match="known modes: `live`, `mock`"):
        modes_with(modes={"*": "zzz"})
    with pytest.raises(UnknownMode, match="known modes: none"):
        loaded_runtime(loaded("", executors=Executors({})), executors=Executors({}), modes={"*": "zzz"})


def test_arguments_may_be_left_out_or_any_mapping(folder):
    with Runtime.open(folder, executors=MOCKS) as tools:
        assert tools.call_sync("greet").value == "hello you"
        assert tools.call_sync("greet", tools.registry["greet"].labels).value == "hello you"


def test_call_sync_within_a_loop_says_what_to_write():
    async def within():
        with pytest.raises(ConfigurationError, match=r"await runtime\.call"):
            runtime_of(GREET).call_sync("greet")

    asyncio.run(within())


def test_call_sync_keeps_one_loop_over_all_calls():
    loops = []

    async def answer(_call):
        loops.append(asyncio.get_running_loop())
        return Result.success()

    with fake(answer) as tools:
        tools.call_sync("tool")
        tools.call_sync("tool")
    assert loops[0] is loops[1]


def test_a_closed_runtime_refuses_every_way_of_calling():
    runtime = runtime_of(GREET)

    async def every_way():
        async with runtime as tools:
            assert (await tools.call("greet")).value == "hello you"
        session = runtime.session()
        ways = [
            lambda: runtime.call("greet"),
            lambda: session.call("nothing"),
            lambda: runtime.dry_run("greet"),
        ]
        for way in ways:
            with pytest.raises(ClosedRuntime, match=r"(?s)closed.*async with"):
                await way()
        with pytest.raises(ClosedRuntime):
            async for _event in runtime.stream("greet"):
                pass

    asyncio.run(every_way())
    with pytest.raises(ClosedRuntime):
        runtime.call_sync("greet")
    gc.collect()


def test_closing_gives_back_what_the_executors_hold():
    closed = []

    class Holding:
        block_schema = True

        def check(self, descriptor):
            return []

        def bind(self, descriptor):
            raise AssertionError("nothing calls it")

        async def aclose(self):
            closed.append(self)

    executors = Executors({"holding": Holding})
    runtime = runtime_of("name: tool\ninput_schema: {}\nholding: {}\n", executors=executors)
    runtime.close()
    runtime.close()
    assert len(closed) == 1


# What is not there, and what can't run.


def refusal(runtime, name, **arguments):
    with runtime:
        return runtime.call_sync(name, arguments)


def test_a_call_to_nothing_names_the_near_misses():
    result = refusal(runtime_of(GREET), "gret")
    assert result.outcome is Outcome.NOT_FOUND
    assert result.message == "unknown tool `gret`; did you mean `greet`? (tools: greet)"
    assert result.error.details == {"near": ["greet"]}
    assert result.usage == (0, 0.0)


def test_a_call_to_nothing_lists_up_to_twenty_tools():
    assert refusal(runtime_of(GREET), "zzz").message == "unknown tool `zzz` (tools: greet)"
    nothing = Runtime(Registry(), executors=MOCKS)
    assert refusal(nothing, "zzz").message == "unknown tool `zzz` (no tools are loaded)"
    names = [f"tool_{number:02}" for number in range(23)]
    text = "---\n".join(f"name: {name}\ndescription: D.\nmock: {{result: 1}}\n" for name in names)
    told = refusal(runtime_of(text), "zzz").message
    assert told == f"unknown tool `zzz` (tools: {', '.join(names[:20])} and 3 more)"


def test_a_call_to_nothing_lists_no_tool_that_is_not_offered():
    hidden = Runtime(runtime_of(TWO_MODES).registry.disabled("*"), executors=MOCKS)
    assert refusal(hidden, "zzz").message == "unknown tool `zzz` (no tools are loaded)"


def test_a_call_to_a_tool_whose_document_was_refused_says_so():
    found = loaded("name: greet\nmock: {resutl: 1}\n")
    runtime = loaded_runtime(found, executors=MOCKS)
    message = refusal(runtime, "greet").message
    assert "unknown tool `greet`; its document was refused: tools.yaml:2" in message
    assert "did you mean `result`?" in message


def test_the_name_of_nothing_is_shown_in_bounds():
    message = refusal(runtime_of(GREET), "x" * 5000 + "\ud800").message
    assert len(message) < 200
    assert message.encode()


def test_an_unbound_tool_says_what_to_write():
    result = refusal(runtime_of("name: idle\ndescription: Does nothing.\ninput_schema: {}\n"), "idle")
    assert result.outcome is Outcome.UNAVAILABLE
    assert result.message == "`idle` is unbound: add a `mock:` block to tools.yaml:1"


def test_a_tool_in_a_mode_without_a_block_names_its_modes():
    result = refusal(runtime_of(GREET, modes={"greet": "live"}), "greet")
    assert result.outcome is Outcome.UNAVAILABLE
    assert result.message == "`greet` has no `live:` block (tools.yaml:2); its modes are: `mock`"
    unbound = runtime_of("name: idle\ninput_schema: {}\n", modes={"idle": "live"})
    assert refusal(unbound, "idle").message.endswith("its modes are: none")


def test_a_tool_in_a_mode_that_is_not_installed_names_the_installed_ones():
    result = refusal(runtime_of(TWO_MODES), "pay")
    assert result.outcome is Outcome.UNAVAILABLE
    assert result.message == "mode `live` of `pay` is not installed; the installed modes are: `mock`"
    assert result.usage.attempts == 0


# What a call would do.


def dry(runtime, name, arguments=None):
    with runtime:
        return asyncio.run(runtime.dry_run(name, arguments))


def test_a_dry_run_shows_defaults_repairs_and_the_plan_and_masks_secrets():
    result = dry(runtime_of(GREET), "greet", {"times": "3", "password": "hunter2"})
    assert result.outcome is Outcome.OK
    assert (result.meta["errors"], result.meta["warnings"]) == ([], [])
    assert result.value == {
        "tool": "greet",
        "mode": "mock",
        "arguments": {"who": "you", "times": 3, "password": "***"},
        "repairs": [{"pointer": "/times", "kind": "parsed", "before": '"3"', "after": "3"}],
        "plan": {
            "mode": "mock",
            "rule": "mock",
            "reply": 1,
            "kind": "result",
            "at": "tools.yaml:7",
            "skipped": [],
        },
    }
    assert "hunter2" not in str(result)


def test_a_dry_run_calls_nothing():
    called = []

    async def answer(call):
        called.append(call)
        return Result.success()

    assert dry(fake(answer), "tool").value["plan"] == {"mode": "function"}
    assert called == []


def test_a_dry_run_ends_as_the_call_would_end_before_any_attempt():
    assert dry(runtime_of(GREET), "greet", {"who": 1.5}).outcome is Outcome.INVALID_ARGUMENTS
    assert dry(runtime_of(GREET), "gret").outcome is Outcome.NOT_FOUND
    assert dry(runtime_of(TWO_MODES), "pay").outcome is Outcome.UNAVAILABLE


def test_a_dry_run_counts_as_no_call():
    runtime = runtime_of(mocked('result: "{{ call }}"'))

    async def dry_then_call():
        await runtime.dry_run("tool")
        return await runtime.call("tool")

    assert asyncio.run(dry_then_call()).value == 1


def test_an_error_that_escapes_is_internal_and_tells_nothing_of_its_text(caplog):
    async def answer(_call):
        raise ValueError("the key is hunter2")

    result = refusal(fake(answer), "tool")
    assert result.outcome is Outcome.INTERNAL
    assert result.error.details == {"exception": "ValueError"}
    assert "hunter2" not in str(result)
    assert "a bug while calling `tool`: ValueError" in result.message
    assert "the key is hunter2" in caplog.text


def test_usage_counts_the_attempt_and_the_time_on_the_clock():
    runtime = runtime_of(mocked("result: 1\nlatency: 250ms"))
    result = refusal(runtime, "tool")
    assert result.usage == (1, 0.25)


def test_what_an_executor_counted_as_attempts_is_kept():
    assert refusal(fake(always(Result.success(1).with_usage(3, 0.0))), "tool").usage.attempts == 3


@pytest.mark.parametrize(
    ("reach", "message"),
    [
        ({"egress": "127.0.0.1:80"}, 'use `egress=["127.0.0.1:80"]`'),
        ({"egress": ["x", "y"]}, "`x` is not a host and a port; write"),
        (
            {"origins": {"https://a.example": "http://b.example/c"}},
            "an origin has no path; write an origin as",
        ),
        (
            {"origins": {"https://a.example/v1": "http://b.example"}},
            "an origin has no path; write an origin as",
        ),
        (
            {"origins": {"https://u:hunter2@a.example": "http://b.example"}},
            "an origin cannot contain a user name; write an origin as",
        ),
    ],
)
def test_what_a_caller_lets_tools_reach_is_checked_at_once(reach, message, folder):
    for make in (lambda: runtime_of(GREET, **reach), lambda: Runtime.open(folder / "descriptors", **reach)):
        with pytest.raises(ConfigurationError) as caught:
            make()
        assert message in str(caught.value)
        assert "hunter2" not in str(caught.value)


def test_origins_are_known_in_every_spelling():
    origins = {
        "HTTPS://API.example.com:443/": "http://[0:0:0:0:0:0:0:1]:80/",
        "http://[::0001]:8080": "http://127.0.0.1:1",
        "https://b\u00fccher.example": "http://127.0.0.1:2",
    }
    world = runtime_of(GREET, origins=origins)._engine.world
    assert world.instead_of("https://api.example.com") == "http://[::1]"
    assert world.instead_of("http://[::1]:8080") == "http://127.0.0.1:1"
    assert world.instead_of("https://xn--bcher-kva.example") == "http://127.0.0.1:2"
    assert world.instead_of("https://other.example") == "https://other.example"


def test_its_name_is_that_of_its_project_or_of_its_only_pack(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "pack.yaml").write_text(f"name: pack-{name}\nversion: 1.0.0\n")
    assert Runtime.open(tmp_path / "a").name == "pack-a"
    assert Runtime.open(tmp_path / "a", tmp_path / "b").name == "toolcrib"
    (tmp_path / "toolcrib.yaml").write_text("project: shop\nsources: [a, b]\n")
    assert Runtime.open(tmp_path).name == "shop"
