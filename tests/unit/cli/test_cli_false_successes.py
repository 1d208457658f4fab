"""What is missing, unread or unjudged is told in every form, and is no success."""

import json
from xml.etree import ElementTree as ET

import pytest

from arenas import arena_files
from sampling import sample
from toolcrib.cli import exit_codes

MOCK = """
name: get_forecast
description: Daily forecast for a city.
input_schema: {type: object, properties: {city: {type: string}}, required: [city]}
mock: {result: {city: "{{ args.city }}"}}
"""
MOCKED = "scenario: mocked\nsteps: [{call: get_forecast, args: {city: Oslo}}]\n"
LOST = "scenario: lost\nsteps: [{call: srv__x, args: {}}]\n"
DOWN = 'project: p\nservers: {srv: {command: "false", import: true}}\n'
ARENA = {
    "arena.yaml": """
        apiVersion: promptkit.altairalabs.ai/v1alpha1
        kind: Arena
        metadata: {name: a}
        spec:
          prompt_configs: [{id: support, file: prompt.yaml}]
          providers: [{file: provider.yaml}]
          scenarios: [{file: scenario.yaml}]
    """,
    "prompt.yaml": """
        apiVersion: promptkit.altairalabs.ai/v1alpha1
        kind: PromptConfig
        metadata: {name: support}
        spec:
          task_type: support
          system_template: You help.
          validators: [{type: toxicity_guard, params: {}}]
    """,
    "provider.yaml": """
        apiVersion: promptkit.altairalabs.ai/v1alpha1
        kind: Provider
        metadata: {name: mock}
        spec: {id: mock, type: mock, model: m}
    """,
    "scenario.yaml": """
        apiVersion: promptkit.altairalabs.ai/v1alpha1
        kind: Scenario
        metadata: {name: greeting}
        spec:
          id: greeting
          task_type: support
          description: Somebody says hello.
          turns:
            - {role: user, content: Hello, assertions: [{type: toxicity, params: {}}]}
    """,
}


@pytest.fixture
def trusted(monkeypatch):
    monkeypatch.setenv("TOOLCRIB_TRUST", "all")


@pytest.fixture
def lost(write, trusted):
    """A project with a scenario that runs and one that needs a server which is down."""
    return write(
        {
            "toolcrib.yaml": DOWN,
            "descriptors/a.tool.yaml": MOCK,
            "descriptors/a.scenario.yaml": f"{MOCKED}---\n{LOST}",
        }
    )


@pytest.mark.parametrize("words", sample([(), ("--no-index",), ("-j", "2"), ("-k", "lost")], one_in=3))
def test_a_scenario_whose_server_is_down_is_listed_and_fails_the_run(words, lost, toolcrib):
    result = toolcrib("run", *words)
    assert result.exit_code == exit_codes.PROBLEMS
    why = "unavailable: cannot start the server `srv`: "
    assert f"not run:\n  lost (descriptors/a.scenario.yaml:4): {why}" in result.stdout
    assert "1 scenario could not be run\n" in result.stdout
    assert result.stderr.count("server_down") == 1
    if words[:1] != ("-k",):
        assert result.stdout.splitlines()[-1].startswith("1 not run, 1 scenario passed in ")


def test_every_form_of_a_report_has_the_scenario_that_was_not_run(lost, toolcrib, tmp_path):
    document = json.loads(toolcrib("run", "--json").stdout)
    (left,) = document["not_run"]
    assert (document["passed"], document["failed"]) == (1, 0)
    assert {key: left[key] for key in ("kind", "name", "source", "line", "code", "outcome")} == {
        "kind": "scenario",
        "name": "lost",
        "source": "descriptors/a.scenario.yaml",
        "line": 4,
        "code": "server_down",
        "outcome": "unavailable",
    }
    toolcrib("run", "--junit", str(tmp_path / "report.xml"))
    cases = ET.parse(tmp_path / "report.xml").getroot().iter("testcase")
    errors = {case.get("name"): error.get("type") for case in cases for error in case.findall("error")}
    assert errors == {"lost": "unavailable", "server_down": "server_down"}
    told = toolcrib("run", "--format", "github").stdout.splitlines()
    assert any(
        line.startswith(
            "::error file=descriptors/a.scenario.yaml,line=4,title=lost was not run::cannot start the server"
        )
        for line in told
    )


def test_a_server_that_is_down_fails_validate_and_is_told_once(lost, toolcrib):
    for words in ((), ("--strict",), ("--shallow",)):
        result = toolcrib("validate", *words)
        assert result.exit_code == exit_codes.PROBLEMS
        assert (result.stdout.count("server_down"), result.stderr) == (1, "")
        assert "no problems" not in result.stdout


def test_a_list_says_of_which_servers_no_tool_is_known(lost, toolcrib, document):
    result = toolcrib("list")
    assert result.stdout.endswith("1 tool: 1 mock; 1 server not queried\n")
    assert document("list", "--json")["servers"] == [{"name": "srv", "state": "not queried", "as_of": None}]
    (lost / "descriptors" / "a.tool.yaml").unlink()
    assert toolcrib("list").stdout == "no known tools; 1 server not queried\n"


DROPPED = "an assertion that was dropped"

PLANTS = {
    "a server that is down": {"toolcrib.yaml": DOWN},
    "an unreadable file": {"descriptors/bad.scenario.yaml": "scenario: bad\n\tsteps: ["},
    "a file that is no text": {"descriptors/bad.tool.yaml": b"\xff\xfe\x00name"},
    "a missing pack": {"toolcrib.yaml": "project: p\nsources: [descriptors, packs/gone]\n"},
    "a pack that another one lacks": {
        "toolcrib.yaml": "project: p\nsources: [descriptors, mine]\n",
        "mine/pack.yaml": 'name: mine\nversion: 1.0.0\nrequires: {packs: {gone: ">=1"}}\n',
    },
    "an empty glob": {
        "toolcrib.yaml": "project: p\nsources: [descriptors, mine]\n",
        "mine/pack.yaml": 'name: mine\nversion: 1.0.0\nscenarios: ["none/*.yaml"]\n',
    },
    "a scenario whose tool is gone": {"descriptors/gone.scenario.yaml": LOST},
    "a profile that hides all tools": {
        "toolcrib.yaml": 'project: p\nprofile: none\nprofiles: {none: {disable: ["*"]}}\n'
    },
    "a folder that is a link": {},
    "a scenario of an arena that nobody can answer": {
        f"descriptors/{name}": text.replace("type: mock", "type: bedrock") for name, text in ARENA.items()
    },
    DROPPED: {f"descriptors/{name}": text for name, text in ARENA.items()},
}


@pytest.fixture
def planted(write, trusted, tmp_path_factory):
    """Puts one of `PLANTS` beside a tool and a scenario that are sound."""

    def plant(name):
        sound = {"descriptors/a.tool.yaml": MOCK, "descriptors/a.scenario.yaml": MOCKED}
        files = {**sound, **PLANTS[name]}
        folder = write({path: text for path, text in files.items() if isinstance(text, str)})
        for path, raw in files.items():
            if isinstance(raw, bytes):
                (folder / path).write_bytes(raw)
        if name == "a folder that is a link":
            elsewhere = tmp_path_factory.mktemp("elsewhere")
            (elsewhere / "b.scenario.yaml").write_text(MOCKED.replace("mocked", "linked"), encoding="utf-8")
            (folder / "descriptors" / "linked").symlink_to(elsewhere)

    return plant


@pytest.mark.parametrize(
    "plant", [name for name in PLANTS if name not in {"a folder that is a link", DROPPED}]
)
def test_a_run_fails_of_itself_where_something_can_not_be_run(plant, planted, toolcrib):
    planted(plant)
    result = toolcrib("run", "--json")
    assert result.exit_code == exit_codes.PROBLEMS
    document = json.loads(result.stdout)
    assert plant in {"a server that is down", "a profile that hides all tools"} or document["not_run"]


@pytest.mark.parametrize("plant", sample(PLANTS, one_in=2))
@pytest.mark.parametrize("verb", ["run", "validate", "list"])
def test_no_verb_reports_a_success_that_did_not_happen(plant, verb, planted, toolcrib):
    planted(plant)
    result = toolcrib(verb, "--strict")
    assert result.exit_code == exit_codes.PROBLEMS, result.output
    assert "Traceback" not in result.output
    assert verb != "list" or result.stderr or "not offered" in result.stdout


def test_what_was_asserted_and_not_judged_is_neither_passed_nor_failed(write, toolcrib, tmp_path):
    write({f"descriptors/{name}": text for name, text in ARENA.items()})
    result = toolcrib("run")
    assert result.exit_code == exit_codes.OK
    assert "not judged:\n  greeting: `toxicity`: use `llm_judge`" in result.stdout
    assert "`toxicity_guard`: unknown assertion type `toxicity_guard`" in result.stdout
    assert "2 assertions or guardrails not judged\n" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("1 not judged, 0 scenarios passed in ")
    document = json.loads(toolcrib("run", "--json").stdout)
    counts = {key: document[key] for key in ("passed", "failed", "not_judged", "skipped")}
    assert counts == {"passed": 0, "failed": 0, "not_judged": 1, "skipped": 2}
    (report,) = document["scenarios"]
    assert (report["verdict"], report["passed"]) == ("not judged", False)
    toolcrib("run", "--junit", str(tmp_path / "report.xml"))
    (case,) = ET.parse(tmp_path / "report.xml").getroot().iter("testcase")
    assert case.find("skipped") is not None
    assert toolcrib("run", "--strict").exit_code == exit_codes.PROBLEMS


def test_every_form_of_a_report_counts_the_assertions_of_an_arena_that_were_skipped(
    write, toolcrib, tmp_path
):
    scenario = """
    turns:
      - role: user
        content: Hi
        assertions:
          - {type: content_includes, params: {patterns: [found]}}
          - {type: spoke_in_state, params: {state: done}}
          - {type: tools_caled, params: {tool_names: [look_up]}}
    """
    write(arena_files(scenario=scenario))
    result = toolcrib("run", ".")
    assert result.exit_code == exit_codes.OK
    for place in (
        "one.scenario.yaml:13:18: warning: no_counterpart",
        "one.scenario.yaml:14:18: warning: unknown_",
    ):
        assert f"scenarios/{place}" in result.stderr
    assert "did you mean `tools_called`" in result.stderr
    assert "`spoke_in_state`: a scenario has one prompt, without states or steps" in result.stdout
    assert "2 assertions or guardrails not judged\n" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("1 scenario passed in ")
    document = json.loads(toolcrib("run", ".", "--json").stdout)
    counts = {key: document[key] for key in ("passed", "failed", "not_judged", "skipped")}
    assert counts == {"passed": 1, "failed": 0, "not_judged": 0, "skipped": 2}
    assert [skip["type"] for skip in document["scenarios"][0]["skipped"]] == ["spoke_in_state", "tools_caled"]
    toolcrib("run", ".", "--junit", str(tmp_path / "report.xml"))
    (case,) = ET.parse(tmp_path / "report.xml").getroot().iter("testcase")
    assert {each.get("name"): each.get("value") for each in case.iter("property")}["not_judged"] == "2"
    assert case.findtext("system-out").count("was not judged") == 2
    assert toolcrib("run", ".", "--strict").exit_code == exit_codes.PROBLEMS


def test_scenarios_of_a_pack_that_was_refused_are_listed(write, toolcrib):
    write(
        {
            "descriptors/a.tool.yaml": MOCK,
            "packs/bad/pack.yaml": "name: bad\nversion: 1.0.0\noops: 1\n",
            "packs/bad/a.scenario.yaml": MOCKED,
        }
    )
    result = toolcrib("run")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "  mocked (packs/bad/" in result.stdout
    assert "1 scenario could not be run" in result.stdout


def test_examples_that_are_left_out_on_purpose_are_counted_and_fail_nothing(write, toolcrib):
    live = 'name: rates\nmode: live\nlive: {url: "https://rates.example.com/"}\nexamples: [{args: {}}]\n'
    write({"descriptors/a.tool.yaml": f"{MOCK}---\n{live}", "descriptors/a.scenario.yaml": MOCKED})
    result = toolcrib("run", "--strict")
    assert result.exit_code == exit_codes.OK
    assert "the examples of 1 tool were skipped: mode `live` reaches outside this process\n" in result.stdout
