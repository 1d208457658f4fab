"""Arenas of PromptKit: what of them is read, from which files, and what is said of the rest."""

from __future__ import annotations

import copy
import json
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arenas import KINDS, LOOK_UP, TURNS, agent_of, arena_files, manifest, own, put, read, told
from sampling import examples
from toolcrib.engine.runtime import Runtime
from toolcrib.loading.documents.document import parse_documents
from toolcrib.loading.reader import DocumentReader
from toolcrib.loading.sources import add_contents
from toolcrib.scenarios import run_scenario


def test_an_arena_becomes_a_scenario_of_ours(tmp_path):
    found = read(put(tmp_path, arena_files()))
    assert told(found) == []
    assert own(found) == {
        "one": {
            "scenario": "one",
            "agent": {
                "system": "Help.",
                "policy": {"allow": ["look_up"]},
                "unused_turns": "warn",
                "unknown_tools": "warn",
                "script": [
                    {"when": {"replies": 0}, "call": "look_up", "args": {"q": "x"}},
                    {"when": {"replies": 1}, "say": "Found it."},
                    {"when": {"replies": 2}, "say": "You are welcome."},
                    {"say": "Mock response for provider mock model m", "times": 0, "optional": True},
                ],
                "turns": [{"user": "Look it up."}, {"user": "Thanks."}],
            },
        }
    }


async def test_it_runs(tmp_path):
    async with Runtime.open(put(tmp_path, arena_files()), executors=KINDS) as runtime:
        (scenario,) = runtime.scenarios
        report = await run_scenario(runtime, scenario)
    assert report.passed, str(report)
    assert [step.result.outcome for step in report.steps] == ["ok"]


def test_the_file_of_an_arena_brings_everything_that_it_names(tmp_path):
    files = arena_files("tools: [{file: tools/look_up.tool.yaml}, {file: tools/other.yaml}]")
    folder = put(tmp_path, {**files, "tools/other.yaml": LOOK_UP.replace("look_up", "other")})
    found = read(folder / "config.arena.yaml")
    assert told(found) == []
    assert [tool.name for tool in found.tools] == ["look_up", "other"]
    assert [*own(found)] == ["one"]


def test_a_folder_and_its_arena_read_each_tool_once(tmp_path):
    found = read(put(tmp_path, arena_files("tools: [{file: tools/look_up.tool.yaml}]")))
    assert [tool.name for tool in found.tools] == ["look_up"]
    assert told(found) == []


def test_files_that_are_named_are_no_strangers_and_the_others_are(tmp_path):
    files = arena_files() | {
        "prompts/other.yaml": manifest("PromptConfig", "other", "task_type: other"),
        "mock-others.yaml": "scenarios: {two: {turns: {1: Hi}}}",
    }
    found = read(put(tmp_path, files))
    assert told(found, "notice") == [
        ("unrecognised_file", "mock-others.yaml", 1),
        ("other_kind", "other.yaml", 2),
    ]


def test_everything_may_be_written_in_the_arena_itself(tmp_path):
    spec = """
    providers: []
    provider_specs: {fake: {type: mock, additional_config: {mock_config: said.yaml}}}
    prompt_specs: {help: {system_template: "Help, {{who}}.", allowed_tools: ["look_*"], optional_vars: {who: Ann}}}
    scenario_specs: {two: {task_type: help, description: Inline., turns: [{role: user, content: Hi}]}}
    tool_specs: {look_up: {description: Looks., input_schema: {type: object}, output_schema: {}, mode: mock, mock_result: 1}}
    """
    files = {
        "a.yaml": manifest("Arena", "inline", spec),
        "said.yaml": "scenarios: {two: {turns: {1: Hello}}}",
    }
    found = read(put(tmp_path, files))
    assert told(found) == []
    assert [tool.name for tool in found.tools] == ["look_up"]
    agent = agent_of(found)
    assert (agent["system"], agent["policy"]) == ("Help, Ann.", {"allow": ["look_*"]})
    assert agent["script"][0] == {"when": {"replies": 0}, "say": "Hello"}


def test_a_fault_of_a_tool_in_the_arena_stands_there(tmp_path):
    spec = "\ntool_specs:\n  bad:\n    description: Bad.\n    input_schema: {type: objekt}\n    output_schema: {}\n"
    found = read(put(tmp_path, {"a.yaml": manifest("Arena", "inline", spec)}))
    (problem,) = (problem for problem in found.problems if problem.severity == "error")
    assert (problem.code, problem.pointer, problem.line) == (
        "invalid_schema",
        "/spec/tool_specs/bad/input_schema/type",
        9,
    )


def test_files_may_hold_several_manifests(tmp_path):
    files = arena_files()
    both = (
        files["scenarios/one.scenario.yaml"]
        + "---\n"
        + files["scenarios/one.scenario.yaml"].replace("one", "two")
    )
    found = read(put(tmp_path, files | {"scenarios/one.scenario.yaml": both}))
    assert [*own(found)] == ["one", "two"]


def test_files_may_be_json(tmp_path):
    files = arena_files()
    spec = {"task_type": "help", "turns": [{"role": "user", "content": "Hi"}]}
    value = {"apiVersion": "v1", "kind": "Scenario", "metadata": {"name": "one"}, "spec": spec}
    files["scenarios/one.json"] = json.dumps(value)
    files["config.arena.yaml"] = files["config.arena.yaml"].replace("one.scenario.yaml", "one.json")
    files["said.json"] = json.dumps({"scenarios": {"one": {"turns": {"1": "Hello"}}}})
    files["providers/mock.yaml"] = files["providers/mock.yaml"].replace("mock-responses.yaml", "said.json")
    del files["scenarios/one.scenario.yaml"]
    found = read(put(tmp_path, files))
    assert told(found) == []
    assert agent_of(found)["script"][0] == {"when": {"replies": 0}, "say": "Hello"}


def test_an_arena_lies_in_an_archive_of_a_pack(tmp_path):
    with zipfile.ZipFile(tmp_path / "pack.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in {"pack.yaml": 'name: small\nversion: "1.0.0"\n', **arena_files()}.items():
            archive.writestr(name, text)
    found = read(tmp_path / "pack.zip")
    assert told(found) == []
    assert [*own(found)] == ["one"]


def test_the_folder_of_the_files_may_be_another_one(tmp_path):
    files = {f"deep/{name}": text for name, text in arena_files().items() if name != "config.arena.yaml"}
    files["config.arena.yaml"] = arena_files("defaults: {config_dir: deep}")["config.arena.yaml"]
    found = read(put(tmp_path, files))
    assert (told(found), [*own(found)]) == ([], ["one"])


def test_an_arena_may_name_files_above_it_within_what_was_given(tmp_path):
    files = arena_files()
    above = files.pop("config.arena.yaml").replace("file: ", "file: ../")
    files["configs/mock.arena.yaml"] = above
    files["providers/mock.yaml"] = files["providers/mock.yaml"].replace("mock-r", "../mock-r")
    found = read(put(tmp_path, files))
    assert (told(found), [*own(found)]) == ([], ["one"])


def test_a_file_that_is_not_there_is_told_where_it_is_named(tmp_path):
    spec = "tools: [{file: tools/gone.tool.yaml}]\nself_play: {personas: [{file: gone.yaml}], roles: []}\n"
    files = arena_files(spec)
    found = read(put(tmp_path, files))
    assert told(found) == [
        ("file_unreadable", "config.arena.yaml", 10),
        ("file_unreadable", "config.arena.yaml", 9),
    ]
    assert [*own(found)] == ["one"]


@pytest.mark.parametrize("name", ["prompts/help.yaml", "providers/mock.yaml", "scenarios/one.scenario.yaml"])
def test_a_file_of_another_kind_is_told(tmp_path, name):
    found = read(put(tmp_path, arena_files() | {name: manifest("Persona", "x", "id: x")}))
    assert ("missing_manifest", "config.arena.yaml") in [(code, file) for code, file, _line in told(found)]


def test_what_is_wrong_with_a_file_is_told_in_that_file(tmp_path):
    files = arena_files(
        scenario="turns: [{role: user, content: Hi, assertions: [{params: {}}]}]\ntrials: many"
    )
    found = read(put(tmp_path, files))
    assert sorted(told(found)) == [
        ("missing_key", "one.scenario.yaml", 7),
        ("wrong_type", "one.scenario.yaml", 8),
    ]
    assert own(found) == {}


def test_what_is_wrong_with_an_assertion_is_told_where_it_stands(tmp_path):
    scenario = """
    turns:
      - role: user
        content: Hi
        assertions:
          - type: tools_caled
    """
    found = read(put(tmp_path, arena_files(scenario=scenario)))
    (problem,) = (problem for problem in found.problems if problem.severity != "notice")
    assert (problem.code, problem.severity) == ("unknown_assertion", "warning")
    assert problem.pointer == "/spec/turns/0/assertions/0/type"
    assert problem.message == "unknown assertion type `tools_caled`; the assertion is not checked"
    assert problem.source.endswith("one.scenario.yaml")
    assert "tools_called" in problem.hint


NAMELESS = arena_files(
    prompt="task_type: help\nallowed_tools: [look_up, mcp__fs__read, nosuch]\ntool_policy: {blocklist: [zap]}",
    scenario="""
    turns:
      - role: user
        content: Hi
        consent_overrides: {look_up: deny, nobody: deny}
    """,
    answers="defaultResponse: Hi\nscenarios:\n  one:\n    turns:\n      1: {tool_calls: [{name: nosuch}]}\n",
)


async def test_names_that_are_no_tools_are_told_where_they_stand_and_the_scenario_runs(tmp_path):
    files = dict(NAMELESS)
    listed = "scenarios/one.scenario.yaml}, {file: scenarios/two.yaml}"
    files["config.arena.yaml"] = files["config.arena.yaml"].replace("scenarios/one.scenario.yaml}", listed)
    files["scenarios/two.yaml"] = files["scenarios/one.scenario.yaml"].replace("name: one", "name: two")
    async with Runtime.open(put(tmp_path, files), executors=KINDS) as runtime:
        told_of = [
            (problem.code, problem.source.rpartition("/")[2], problem.pointer) for problem in runtime.problems
        ]
        assert {problem.severity for problem in runtime.problems} == {"warning"}
        report = await run_scenario(runtime, runtime.scenarios[0])
    consents = "/spec/turns/0/consent_overrides"
    assert sorted(told_of) == sorted(
        [
            ("unknown_tool", "help.yaml", "/spec/allowed_tools/1"),
            ("unknown_tool", "help.yaml", "/spec/allowed_tools/2"),
            ("unknown_tool", "help.yaml", "/spec/tool_policy/blocklist/0"),
            ("unknown_tool", "mock-responses.yaml", "/scenarios/one/turns/1/tool_calls/0/name"),
            *(("binding_missing", name, f"{consents}/look_up") for name in ("one.scenario.yaml", "two.yaml")),
            *(("unknown_tool", name, f"{consents}/nobody") for name in ("one.scenario.yaml", "two.yaml")),
        ]
    )
    assert report.passed, str(report)
    (turn,) = report.as_json()["agent"]["turns"]
    assert [entry["outcome"] for entry in turn["entries"] if "outcome" in entry] == ["not_found"]


def test_unknown_keys_are_warnings_with_the_nearest_key(tmp_path):
    found = read(put(tmp_path, arena_files(scenario=TURNS + "descripton: x")))
    (problem,) = (problem for problem in found.problems if problem.severity == "warning")
    assert (problem.code, problem.pointer) == ("unknown_key", "/spec/descripton")
    assert "description" in problem.hint
    assert [*own(found)] == ["one"]


def test_what_has_no_counterpart_is_told_once_each(tmp_path):
    spec = "deploy: {provider: x}\nmemory: {enabled: true}\ndefaults: {concurrency: 3, fail_on: []}\n"
    scenario = TURNS + "context: {goal: x}\nseed_memories: [{content: x}]\nstreaming: false\n"
    found = read(put(tmp_path, arena_files(spec, scenario=scenario)))
    said = {
        (problem.pointer.rpartition("/")[2], problem.severity)
        for problem in found.problems
        if problem.code == "no_counterpart"
    }
    assert said == {
        ("deploy", "notice"),
        ("memory", "warning"),
        ("concurrency", "notice"),
        ("context", "notice"),
        ("seed_memories", "warning"),
    }


def test_a_scenario_that_several_arenas_name_runs_once_with_its_script(tmp_path):
    files = arena_files()
    live = files["config.arena.yaml"].replace("providers/mock.yaml", "providers/live.yaml")
    other = manifest("Provider", "live", "id: live\ntype: openai\nmodel: gpt")
    del files["mock-responses.yaml"]
    files["said.yaml"] = "scenarios: {one: {turns: {1: Hi}}}"
    files["providers/mock.yaml"] = files["providers/mock.yaml"].replace("mock-responses.yaml", "said.yaml")
    found = read(put(tmp_path, files | {"a.arena.yaml": live, "providers/live.yaml": other}))
    assert "provider" not in agent_of(found)
    assert told(found, "notice") == [("one_provider", "one.scenario.yaml", 1)]


def test_names_that_we_can_not_have_are_changed(tmp_path):
    files = arena_files()
    files["scenarios/one.scenario.yaml"] = files["scenarios/one.scenario.yaml"].replace(
        "name: one", "name: 1 é/x"
    )
    files["mock-responses.yaml"] = "scenarios: {1 é/x: {turns: {1: Hello}}}"
    found = read(put(tmp_path, files))
    assert [*own(found)] == ["_1___x"]
    assert agent_of(found)["script"][0]["say"] == "Hello"
    assert told(found, "notice") == [("renamed", "one.scenario.yaml", 6)]


def test_nothing_is_read_from_an_index_and_the_files_are_followed(tmp_path):
    folder = put(tmp_path, arena_files())
    with Runtime.open(folder, executors=KINDS) as runtime:
        assert len(runtime.scenarios) == 1
    put(folder, {"mock-responses.yaml": "defaultResponse: Other."})
    with Runtime.open(folder, executors=KINDS) as runtime:
        (scenario,) = runtime.scenarios
        assert len(scenario.agent.script) == 1


ODD = st.sampled_from(
    [
        None,
        True,
        0,
        -1,
        2.5,
        "",
        "x",
        "{{ x }}",
        "../x",
        [],
        {},
        [1],
        {"a": 1},
        [None],
        [{"file": "x"}],
        10**30,
    ]
)


def places(value, path=()):
    """The way to each part of a value."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield (*path, key)
            yield from places(value[key], (*path, key))


FULL = arena_files(
    "defaults: {seed: 1}\nself_play: {personas: [{file: x.yaml}], roles: [{id: r, provider: mock}]}\n"
    "mcp_servers: [{name: a, command: b, args: [c], tool_filter: {allowlist: [d]}}]\n"
    "judges: [{name: j, provider: mock}]\nglobals: {conversation_assertions: [{type: no_tool_errors}]}\n",
    scenario="""
    turns:
      - {role: user, content: "{a}", perturbations: {a: [b]}, consent_overrides: {x: deny}}
      - {role: r, persona: p, turns: 1}
      - role: user
        parts: [{type: image, media: {data: x, mime_type: y}}]
        chaos: {tool_failures: [{tool: look_up, mode: error, probability: 0.5}]}
        assertions: [{type: tools_called, params: {tools: [look_up]}, when: {any_tool_called: true}}]
    tool_policy: {max_rounds: 3, blocklist: [a]}
    variables: {a: b}
    """,
    prompt="task_type: help\nsystem_template: '{{a}}'\nvariables: [{name: a}]\nvalidators: [{type: length, params: {max: 3}}]",
)


@given(st.data())
@settings(max_examples=examples(60))
def test_no_arena_however_odd_raises(data):
    files = dict(FULL)
    name = data.draw(st.sampled_from([name for name in files if not name.startswith("tools/")]))
    (document, *_more), _problems = parse_documents("x.yaml", files[name], number_keys=True)
    value = copy.deepcopy(document.value)
    *way, last = data.draw(st.sampled_from([*places(value)]))
    holder = value
    for key in way:
        holder = holder[key]
    holder[last] = data.draw(ODD)
    files[name] = json.dumps(value)
    reader = DocumentReader(KINDS)
    add_contents(reader, files, None)
    assert all(problem.source for problem in reader.loaded().problems)


def test_the_file_of_a_scenario_brings_its_arena_and_no_other_scenario(tmp_path):
    files = arena_files("tools: [{file: tools/look_up.tool.yaml}]\n", answers="defaultResponse: Hi")
    listed = "scenarios: [{file: scenarios/one.scenario.yaml}, {file: scenarios/two.yaml}]"
    files["config.arena.yaml"] = files["config.arena.yaml"].replace(
        "scenarios: [{file: scenarios/one.scenario.yaml}]", listed
    )
    files["scenarios/two.yaml"] = files["scenarios/one.scenario.yaml"].replace("name: one", "name: two")
    found = read(put(tmp_path, files) / "scenarios" / "two.yaml")
    assert (told(found), [*own(found)]) == ([], ["two"])
    assert [tool.name for tool in found.tools] == ["look_up"]
