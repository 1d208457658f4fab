"""`toolcrib run` with scenarios that have an agent."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import pytest

from http_servers import answered_by, answering_by, answering_json
from toolcrib.cli import exit_codes

TALK = """
scenario: talk
agent:
  turns:
    - user: Say a.
      script:
        - {call: echo, args: {text: a}, expect_result: "a 1"}
        - {say: "It said {{ results.echo }}."}
      assertions: [{type: tools_called, params: {tool_names: [echo]}}]
verify: {final_text: It said a 1.}
"""

BAD = TALK.replace("talk", "bad").replace('"a 1"', '"b 1"')


@pytest.fixture
def talk(tools, write):
    return write({"descriptors/talk.scenario.yaml": TALK})


def test_agents_run_like_all_scenarios(talk, toolcrib):
    result = toolcrib("run", "-v")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "descriptors/talk.scenario.yaml .\n" in result.stdout
    assert "passed  talk           1 call  0 s" in result.stdout
    assert "2 scenarios passed" in result.stdout
    assert result.stdout.splitlines()[-1].endswith("2 calls of 1 tool")


def test_a_failing_one_is_told_in_every_form(talk, write, toolcrib, document, tmp_path):
    write({"descriptors/bad.scenario.yaml": BAD})
    result = toolcrib("run", "--junit", "out.xml")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "FAILED bad › turn 1 “Say a.” (descriptors/bad.scenario.yaml:7)" in result.stdout
    case = ET.parse(tmp_path / "out.xml").find(".//testcase[@name='bad']/failure")
    assert case is not None
    assert case.get("type") == "expect_result"
    github = toolcrib("run", "--format", "github").stdout
    assert "::error file=descriptors/bad.scenario.yaml,line=7,title=bad › turn 1 “Say a.”::" in github
    told = json.loads(toolcrib("run", "--json").stdout)
    (bad,) = [each for each in told["scenarios"] if each["scenario"] == "bad"]
    (turn,) = bad["agent"]["turns"]
    assert [entry["kind"] for entry in turn["entries"]] == ["user", "call", "told"]
    assert turn["failures"][0]["lines"] == ['expected "b 1", got "a 1"']


@pytest.mark.exhaustive
def test_what_is_told_is_the_same_from_several_processes(talk, write, toolcrib):
    write({"descriptors/bad.scenario.yaml": BAD + "trials: 2\n"})

    def told(*options):
        lines = toolcrib("run", "-v", *options).stdout.splitlines()
        return [line for line in lines if not line.startswith(("1 failed", "descriptors/"))]

    assert told() == told("-j", "2")


def test_who_speaks_can_be_chosen(talk, toolcrib):
    direct = toolcrib("run", "-k", "talk", "--provider", "direct")
    assert (direct.exit_code, "1 call of 1 tool" in direct.stdout) == (0, True)
    unknown = toolcrib("run", "-k", "talk", "--provider", "opnai")
    assert unknown.exit_code == exit_codes.PROBLEMS
    assert "unknown provider `opnai`\n  did you mean `openai`?" in unknown.stdout


def test_who_speaks_is_a_question_only_where_somebody_does(tools, toolcrib):
    result = toolcrib("run", "--provider", "direct")
    assert result.exit_code == exit_codes.USAGE
    assert "no selected scenario has one" in result.stderr


def test_trials_can_be_chosen(talk, toolcrib, document):
    (report,) = document("run", "-k", "talk", "--trials", "3", "--json")["scenarios"]
    assert [trial["seed"] for trial in report["trials"]] == [0, 1, 2]


def completion(message):
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return answering_json(
        {"model": "m-2", "choices": [choice], "usage": {"prompt_tokens": 100, "completion_tokens": 10}}
    )


def like_a_model(head):
    """A model that calls once, and then says what it was told."""
    last = head.json["messages"][-1]
    if last["role"] == "tool":
        return completion({"content": f"It said {last['content']}."})
    call = {"id": "c", "type": "function", "function": {"name": "echo", "arguments": '{"text": "a"}'}}
    return completion({"content": None, "tool_calls": [call]})


def test_a_model_at_an_address_of_the_operator_speaks_in_place_of_the_script(talk, document):
    with answered_by(answering_by(like_a_model)) as server:
        words = ("--provider", "openai", "--model", "m-1", "--base-url", f"{server.origin}/v1")
        (report,) = document("run", "-k", "talk", *words, "--json")["scenarios"]
    assert (report["passed"], report["warnings"]) == (True, [])
    agent = report["agent"]
    assert (agent["provider"], agent["model"], agent["rounds"]) == ("openai", "m-2", 2)
    assert agent["tokens"]["input"] == 200
    first, _second = (head.json for head in server.requests)
    assert (first["model"], first["tools"][0]["function"]["name"]) == ("m-1", "echo")


def test_a_model_whose_answer_is_cut_off_fails_the_run_and_calls_nothing(write, tools, toolcrib, document):
    write({"descriptors/talk.scenario.yaml": "scenario: talk\nagent: {turns: [{user: Say a.}]}\n"})
    call = {"id": "c", "type": "function", "function": {"name": "echo", "arguments": ""}}
    choice = {"message": {"content": None, "tool_calls": [call]}, "finish_reason": "length"}
    with answered_by(answering_json({"choices": [choice]})) as server:
        words = ("--provider", "openai", "--model", "m-1", "--base-url", f"{server.origin}/v1")
        result = toolcrib("run", "-k", "talk", *words)
        (report,) = document("run", "-k", "talk", *words, "--json")["scenarios"]
    assert result.exit_code == exit_codes.PROBLEMS
    assert "turn 1 ended with `length`: the answer was cut off; its calls were not made: `echo` (c)" in (
        result.stdout
    )
    (turn,) = report["agent"]["turns"]
    assert (report["passed"], turn["stop"]) == (False, "length")


def test_what_it_costs_is_worked_out_of_the_prices(write, tools, document):
    write({"descriptors/talk.scenario.yaml": TALK.replace("agent:", "agent:\n  prices: {input: 5000}")})
    with answered_by(answering_by(like_a_model)) as server:
        words = ("--provider", "openai", "--model", "m-1", "--base-url", f"{server.origin}/v1")
        (report,) = document("run", "-k", "talk", *words, "--json")["scenarios"]
    assert (report["agent"]["cost"], report["passed"]) == (1.0, True)


PROMPTED = {
    "p/pack.yaml": """
name: p
version: 1.0.0
prompts:
  assistant:
    system: "You work for {{ shop }}."
    variables: {shop: {required: true}}
    tools: ["get_*", "mcp__*"]
    policy: {max_calls: 1, max_rounds: 4}
    settings: {temperature: 0}
""",
    "p/tools/shop.tool.yaml": "name: get_order\nmock: {result: 1}\n---\nname: refund\nmock: {result: 1}\n",
    "p/scenarios/s.scenario.yaml": """
scenario: s
agent:
  prompt: assistant
  variables: {shop: "Shop {{ run }}"}
  policy: {max_calls: 5}
  settings: {top_p: 1}
  turns:
    - user: hi
      script:
        - {call: refund, expect_result: {outcome: denied}}
        - {call: get_order}
        - {call: get_order}
        - {say: ok}
""",
}


def test_the_prompt_of_the_pack_holds_where_the_scenario_says_nothing_else(write, document):
    write(PROMPTED)
    (report,) = document("run", "p", "--json")["scenarios"]
    assert (report["passed"], report["warnings"]) == (True, [])
    with answered_by(answering_by(lambda _head: completion({"content": "ok"}))) as server:
        words = ("--provider", "openai", "--model", "m-1", "--base-url", f"{server.origin}/v1")
        document("run", "p", *words, "--json")
    (sent,) = (head.json for head in server.requests)
    assert (sent["temperature"], sent["top_p"]) == (0, 1)
    assert sent["messages"][0] == {"role": "system", "content": "You work for Shop 1."}
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["get_order"]


def test_a_prompt_that_lacks_a_variable_is_told(write, toolcrib):
    scenario = PROMPTED["p/scenarios/s.scenario.yaml"].replace("shop: ", "shpo: ")
    write({**PROMPTED, "p/scenarios/s.scenario.yaml": scenario})
    told = toolcrib("run", "p").stdout
    assert "FAILED s › agent (p/scenarios/s.scenario.yaml:5)" in told
    assert "missing value for `shop`" in told


def test_what_could_not_be_read_is_counted_beside_what_ran(talk, write, toolcrib):
    write(
        {
            "descriptors/bad.scenario.yaml": "scenario: a\nagent: {turns: [{user: hi, scrip: []}]}",
            "descriptors/bad.tool.yaml": "name: bad\ninput_schema: 7",
        }
    )
    result = toolcrib("run")
    assert result.exit_code == exit_codes.PROBLEMS
    *_others, counted, verdict = result.stdout.splitlines()
    assert counted == "1 scenario and 1 tool could not be run"
    assert verdict.startswith("1 not run, 2 scenarios passed in ")
    assert "  a (descriptors/bad.scenario.yaml:2): unavailable: unknown key `scrip`" in result.stdout


def test_a_list_of_outcomes_is_shown_where_something_was_called(tools, write, toolcrib):
    write({"said.scenario.yaml": "scenario: a\nagent: {turns: [{user: hi, script: [{say: hi}]}]}"})
    assert "outcomes:" not in toolcrib("run", "said.scenario.yaml").stdout
