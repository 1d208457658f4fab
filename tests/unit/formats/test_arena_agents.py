"""`a2a_agents` of an arena: the mock of each skill as a tool, and which of its responses replies."""

from __future__ import annotations

import json

import pytest

from arenas import KINDS, agent_of, arena_files, put, read, told
from toolcrib import Outcome
from toolcrib.engine.runtime import Runtime
from toolcrib.scenarios import run_scenario

AGENTS = """
a2a_agents:
  - name: research_agent
    card:
      name: Research Agent
      description: Finds papers.
      capabilities: {streaming: false}
      skills:
        - {id: search_papers, name: Search Papers, description: Searches papers., tags: [research]}
        - {id: Sum-up, name: Sums up.}
    responses:
      - {skill: search_papers, match: {contains: Quantum}, response: {parts: [{text: "{{three}} papers"}, {text: more}]}}
      - {skill: search_papers, match: {contains: "a.b", regex: "[0-9]$"}, response: {parts: [{text: both}]}}
      - {skill: search_papers, match: {contains: down}, error: The agent is down.}
      - {skill: search_papers, match: {regex: "^Case"}, response: {parts: [{text: case}]}}
      - {skill: search_papers}
      - {match: {contains: common}, response: {parts: []}}
"""

ANSWERS = """
scenarios:
  one:
    turns:
      1: {tool_calls: [{name: a2a__research_agent__search_papers, arguments: {query: quantum computing}}]}
      2: Found it.
      3: You are welcome.
"""

SEARCH = "a2a__research_agent__search_papers"
SUM_UP = "a2a__research_agent__sum_up"


def test_each_skill_is_a_tool(tmp_path):
    found = read(put(tmp_path, arena_files(AGENTS)))
    assert told(found) == []
    search, sum_up = (tool for tool in found.tools if tool.name.startswith("a2a__"))
    assert (search.name, search.description, search.mode) == (SEARCH, "Searches papers.", "mock")
    assert search.input_schema == {
        "type": "object",
        "properties": {"query": {"type": "string"}},
        "required": ["query"],
    }
    assert search.output_schema == {"type": "object", "properties": {"response": {"type": "string"}}}
    assert (sum_up.name, sum_up.description) == (SUM_UP, "Sums up.")
    assert search.origin.place() == f"{tmp_path}/config.arena.yaml:17"


@pytest.mark.parametrize(
    ("name", "query", "expected"),
    [
        (SEARCH, "some QUANTUM computing", "{{three}} papers\nmore"),
        (SEARCH, "A.B 7", "both"),
        (SEARCH, "axb 7", None),
        (SEARCH, "a.b", None),
        (SEARCH, "Case", "case"),
        (SEARCH, "case", None),
        (SEARCH, "common", ""),
        (SUM_UP, "common", ""),
        (SUM_UP, "quantum", None),
    ],
)
async def test_the_first_response_that_fits_replies(tmp_path, name, query, expected):
    async with Runtime.open(put(tmp_path, arena_files(AGENTS)), executors=KINDS) as runtime:
        result = await runtime.call(name, {"query": query})
    if expected is None:
        assert (result.outcome, result.error.code) == (Outcome.TOOL_ERROR, "no_response")
        assert result.message == "the mock of the agent `Research Agent` has no response for this query"
    else:
        assert result.value == {"response": expected}


async def test_a_response_may_be_an_error(tmp_path):
    async with Runtime.open(put(tmp_path, arena_files(AGENTS)), executors=KINDS) as runtime:
        result = await runtime.call(SEARCH, {"query": "it is Down"})
        assert (result.outcome, result.error.code) == (Outcome.TOOL_ERROR, "agent_failed")
        assert result.message == "The agent is down."
        assert (await runtime.call(SEARCH, {})).outcome is Outcome.INVALID_ARGUMENTS


async def test_a_conversation_calls_the_agents_without_allowing_them(tmp_path):
    folder = put(tmp_path, arena_files(AGENTS, answers=ANSWERS))
    assert told(read(folder)) == []
    assert agent_of(read(folder))["policy"] == {"allow": ["look_up", SEARCH, SUM_UP]}
    async with Runtime.open(folder, executors=KINDS) as runtime:
        (scenario,) = runtime.scenarios
        report = await run_scenario(runtime, scenario)
    assert report.passed, str(report)
    assert [step.result.value for step in report.steps] == [{"response": "{{three}} papers\nmore"}]


def test_a_prompt_that_allows_no_tool_offers_the_agents(tmp_path):
    files = arena_files(AGENTS, answers=ANSWERS, prompt="task_type: help\nsystem_template: Help.")
    found = read(put(tmp_path, files))
    assert told(found) == []
    assert agent_of(found)["policy"] == {"allow": [SEARCH, SUM_UP]}


@pytest.mark.parametrize(
    ("card", "inputs", "outputs"),
    [
        ("skills: [{id: s, inputModes: [text/plain, image/png]}]", {"image_url", "image_data"}, set()),
        ("skills: [{id: s, inputModes: [audio/*], outputModes: [audio/wav]}]", {"audio_data"}, {"media_url", "media_type"}),
        ("defaultOutputModes: [image/*]\nskills: [{id: s}]", set(), {"media_url", "media_type"}),
        ("defaultInputModes: [image/*]\nskills: [{id: s, inputModes: [text/plain]}]", set(), set()),
    ],
)  # fmt: skip
def test_media_are_arguments_and_results(tmp_path, card, inputs, outputs):
    lines = "\n".join(f"      {line}" for line in card.split("\n"))
    spec = f"a2a_agents:\n  - name: a\n    card:\n      name: A\n{lines}\n"
    (tool,) = (tool for tool in read(put(tmp_path, arena_files(spec))).tools if tool.name == "a2a__a__s")
    assert tool.input_schema["properties"].keys() == {"query", *inputs}
    assert tool.output_schema["properties"].keys() == {"response", *outputs}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ('name: "My Agent!", skills: [{id: do-stuff}]', "a2a__my_agent__do_stuff"),
        ("name: UPPER, skills: [{id: CASE}]", "a2a__upper__case"),
        ('name: "multi---dash", skills: [{id: under___score}]', "a2a__multi_dash__under_score"),
        ("skills: [{id: s}]", "a2a__plain__s"),
    ],
)
def test_names_are_those_of_promptkit(tmp_path, names, expected):
    spec = f"a2a_agents: [{{name: plain, card: {{{names}}}}}]"
    found = read(put(tmp_path, arena_files(spec)))
    assert [tool.name for tool in found.tools if tool.name.startswith("a2a")] == [expected]


def test_a_filter_selects_skills(tmp_path):
    spec = "a2a_agents: [{name: a, skill_filter: {FILTER}, card: {skills: [{id: one}, {id: two}]}}]"
    for chosen, expected in (("allowlist: [tw*]", ["two"]), ("blocklist: [two]", ["one"])):
        found = read(put(tmp_path, arena_files(spec.replace("FILTER", chosen))))
        names = [tool.name.rpartition("_")[2] for tool in found.tools if tool.name.startswith("a2a")]
        assert names == expected


@pytest.mark.parametrize(
    ("agent", "code", "pointer", "severity"),
    [
        ("{name: a, url: 'http://localhost:1'}", "no_counterpart", "/url", "warning"),
        (
            "{name: a, card: {skills: [{id: s}]}, responses: [{skill: t, error: x}]}",
            "not_allowed",
            "/responses/0/skill",
            "warning",
        ),
        (
            "{name: a, card: {skills: [{id: s}]}, responses: [{match: {regex: '('}, error: x}]}",
            "invalid_pattern",
            "/responses/0/match",
            "error",
        ),
        ("{name: a, card: {skills: [{name: s}]}}", "missing_key", "/card/skills/0/id", "error"),
        ("{name: a, card: {skills: s}}", "wrong_type", "/card/skills", "error"),
        ("{name: a, respones: []}", "unknown_key", "/respones", "warning"),
        ("{name: a, card: {skills: [{id: s}]}, timeout_ms: 5}", "no_counterpart", "/timeout_ms", "notice"),
    ],
)
def test_a_wrong_agent_is_reported_where_it_is_written(tmp_path, agent, code, pointer, severity):
    found = read(put(tmp_path, arena_files(f"a2a_agents:\n  - {agent}\n")))
    reported = {
        (each.code, each.pointer.partition("/$")[0], each.severity, each.line) for each in found.problems
    }
    assert any(
        (each[0], each[2], each[3]) == (code, severity, 10)
        and each[1].startswith(f"/spec/a2a_agents/0{pointer}")
        for each in reported
    ), reported


def test_an_index_finds_the_places_again(tmp_path):
    folder = put(tmp_path, arena_files(AGENTS))
    places = []
    for _ in range(2):
        runtime = Runtime.open(folder)
        tool = runtime.registry[SUM_UP]
        places.append((tool.origin.locate("/mock"), json.dumps(tool.bindings)))
        runtime.close()
    assert places[0] == places[1]
    assert places[0][0][0] == 20
