"""What a scenario says of its agent: all of it arrives, and all that is wrong with it is told at its place."""

from __future__ import annotations

import pytest

from in_memory import loaded
from toolcrib.core.errors import Problem
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.executors import Executors
from toolcrib.executors.client import ClientExecutor
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.prompts import parse_policy
from toolcrib.loading.scenarios.agents import BUILT_IN
from toolcrib.provider.models import installed_providers
from toolcrib.provider.models.scripted import scripted_replies
from toolcrib.security.tool_policy import ToolPolicy

TOOLS = """
name: get_order
input_schema: {}
mock: {result: {status: paid}}
---
name: get_location
input_schema: {}
client: {}
---
"""

WHOLE = """
scenario: s
steps: [{call: get_order, as: first}]
agent:
  provider: openai
  model: gpt-x
  base_url: http://127.0.0.1:4010/v1
  settings: {temperature: 0}
  prices: {input: 0.15, output: 0.6}
  system: "It is {{ first.result.status }}."
  policy: {deny: ["get_l*"], max_rounds: 5, cooldown: {get_order: 5s}, exclusive: [[get_order, get_location]]}
  client: {get_location: {result: {city: Oslo}}}
  judge: {provider: anthropic, model: m}
  unused_turns: warn
  script: [{when: {user: {$regex: bye}}, say: Bye., times: 0, optional: true}]
  turns:
    - user: "Where is {{ matrix.order }}?"
      script:
        - {reasoning: Hm., say: Let me see., call: get_order, args: {id: "{{ matrix.order }}"}, id: a, expect_result: {status: paid}}
        - {calls: [{call: get_order}, {call: get_location}]}
      client: {get_location: deny}
      assertions: [{type: tools_called, params: {tool_names: [get_order]}, message: m, pass_threshold: 0.5}]
    - answers: {get_location: {result: {city: Oslo}}}
    - user: [Look, {type: image, data: AAAA, mime_type: image/png}]
  assertions: [{type: no_tool_errors}]
matrix: {order: [ORD-1]}
trials: 3
pass_threshold: 0.6
verify: {final_text: Bye., stop: [answered, max_calls]}
"""


KINDS = Executors({"mock": MockExecutor, "client": ClientExecutor})


def linked(text):
    return loaded_runtime(loaded(TOOLS + text, executors=KINDS), executors=KINDS)


def scenario_of(text):
    runtime = linked(text)
    assert [str(problem) for problem in runtime.problems if problem.severity == "error"] == []
    return runtime.scenarios[0]


def codes(text):
    return [(problem.code, problem.pointer) for problem in linked(text).problems]


def test_everything_arrives():
    scenario = scenario_of(WHOLE)
    agent = scenario.agent
    assert (scenario.trials, scenario.pass_threshold) == (3, 0.6)
    assert (agent.provider, agent.model, agent.base_url) == ("openai", "gpt-x", "http://127.0.0.1:4010/v1")
    assert (agent.settings, agent.prices) == ({"temperature": 0}, {"input": 0.15, "output": 0.6})
    assert agent.judge == {"provider": "anthropic", "model": "m"}
    assert agent.unused_turns == "warn"
    assert agent.system.render({"first": {"result": {"status": "paid"}}}) == "It is paid."
    assert agent.policy == ToolPolicy(
        deny=("get_l*",),
        max_rounds=5,
        cooldown={"get_order": 5.0},
        exclusive=(("get_order", "get_location"),),
    )
    assert agent.policy_keys == {"deny", "max_rounds", "cooldown", "exclusive"}
    (bye,) = agent.script
    assert (bye.times, bye.optional, [*bye.when]) == (0, True, ["user"])
    first, second, third = agent.turns
    one, two = first.script
    assert one.reasoning.render({}) == "Hm."
    assert (one.calls[0].tool, one.calls[0].id) == ("get_order", "a")
    assert one.calls[0].expect_result.matches({"status": "paid", "more": 1})
    assert [call.tool for call in two.calls] == ["get_order", "get_location"]
    assert [each.type for each in first.assertions] == ["tools_called"]
    assert (second.user, second.answers["get_location"].render({})) == (None, {"result": {"city": "Oslo"}})
    assert third.user.render({})[1]["mime_type"] == "image/png"
    assert scenario.verify.stops == ("answered", "max_calls")
    assert scenario.verify.final_text.matches("Bye.")


@pytest.mark.parametrize(
    "text", ["scenario: s\nsteps: [{call: get_order}]\n", "scenario: s\nagent: {turns: [{user: hi}]}\n"]
)
def test_steps_or_an_agent_are_enough(text):
    assert scenario_of(text).name == "s"


AGENT = "scenario: s\nagent:\n  turns:\n    - user: hi\n"
SCRIPT = AGENT + "      script:\n"

WRONG = [
    ("scenario: s\n", [("missing_key", "/steps")]),
    ("scenario: s\nagent: {}\n", [("missing_key", "/agent/turns")]),
    ("scenario: s\nagent: {turns: []}\n", [("wrong_value", "/agent/turns")]),
    (
        "scenario: s\nagent: {turns: [{user: a, answers: {x: {approve: true}}}]}\n",
        [("wrong_combination", "/agent/turns/0")],
    ),
    (SCRIPT + "        - {when: {turn: 1}}\n", [("missing_key", "/agent/turns/0/script/0")]),
    (
        SCRIPT + "        - {call: get_order, calls: [{call: get_order}]}\n",
        [("wrong_combination", "/agent/turns/0/script/0/calls")],
    ),
    (
        SCRIPT + "        - {say: a, args: {}, expect_result: 1}\n",
        [
            ("wrong_combination", "/agent/turns/0/script/0/args"),
            ("wrong_combination", "/agent/turns/0/script/0/expect_result"),
        ],
    ),
    (SCRIPT + "        - {say: '{{ resluts.a }}'}\n", [("unknown_name", "/agent/turns/0/script/0/say")]),
    (
        SCRIPT + "        - {say: a, when: {reply: 0}}\n",
        [("never_matches", "/agent/turns/0/script/0/when/reply")],
    ),
    (SCRIPT + "        - {say: a, when: {usr: a}}\n", [("unknown_key", "/agent/turns/0/script/0/when/usr")]),
    (
        SCRIPT + "        - {say: a, when: {user: {$regx: a}}}\n",
        [("unknown_operator", "/agent/turns/0/script/0/when/user/$regx")],
    ),
    (SCRIPT + "        - {call: get_oder}\n", [("unknown_tool", "/agent/turns/0/script/0/call")]),
    (
        AGENT + "  policy: {max_round: 1, max_calls: -1, cooldown: {get_order: 5}}\n",
        [
            ("unknown_key", "/agent/policy/max_round"),
            ("wrong_form", "/agent/policy/cooldown/get_order"),
            ("wrong_value", "/agent/policy/max_calls"),
        ],
    ),
    (AGENT + "  policy: {deny: [get_oder]}\n", [("unknown_tool", "/agent/policy/deny/0")]),
    (AGENT + "  policy: {tool_choice: anything}\n", [("unknown_tool", "/agent/policy/tool_choice")]),
    (AGENT + "  client: {get_order: deny}\n", [("binding_missing", "/agent/client/get_order")]),
    (AGENT + "  client: {get_location: grant}\n", [("binding_missing", "/agent/client/get_location")]),
    (AGENT + "  client: {get_locations: deny}\n", [("unknown_tool", "/agent/client/get_locations")]),
    (AGENT + "  client: {get_location: maybe}\n", [("not_allowed", "/agent/client/get_location")]),
    (AGENT + "  prompt: nobody\n", [("unknown_prompt", "/agent/prompt")]),
    (AGENT + "  variables: {shop: a}\n", [("contradiction", "/agent/variables")]),
    (AGENT + "  assertions: [{type: tools_caled}]\n", [("unknown_assertion", "/agent/assertions/0/type")]),
    (AGENT + "pass_threshold: 2\n", [("wrong_value", "/pass_threshold")]),
    (AGENT + "verify: {final_text: 3}\n", [("never_matches", "/verify/final_text")]),
    (AGENT + "verify: {stop: done}\n", [("not_allowed", "/verify/stop")]),
    (
        "scenario: s\nsteps: [{call: get_order}]\nverify: {final_text: a, stop: answered}\n",
        [("contradiction", "/verify/final_text"), ("contradiction", "/verify/stop")],
    ),
    (
        AGENT + "steps: [{call: get_order, as: results}, {parallel: [{call: get_order, as: user}]}]\n",
        [("duplicate_name", "/steps/0/as"), ("duplicate_name", "/steps/1/parallel/0/as")],
    ),
]


@pytest.mark.parametrize(("text", "expected"), WRONG)
def test_what_is_wrong_is_told_at_its_place(text, expected):
    assert sorted(codes(text)) == sorted(expected)


def test_one_fault_hides_no_other():
    text = """
scenario: s
agent:
  model: []
  turns:
    - usr: hi
      script: [{say: '{{ nobody }}'}]
  script: [{say: a, when: {replies: -1}}]
  client: {get_locatoin: deny}
verify: {final_text: a}
"""
    found = codes(text)
    assert {pointer for _code, pointer in found} == {
        "/agent/model",
        "/agent/turns/0",
        "/agent/turns/0/usr",
        "/agent/script/0/when/replies",
        "/agent/client/get_locatoin",
    }


def test_a_name_of_a_step_may_be_that_of_the_user_where_nobody_speaks():
    assert codes("scenario: s\nsteps: [{call: get_order, as: user}]\n") == []


def test_a_script_may_ask_for_a_tool_that_is_not_there_if_it_says_how_that_ends():
    assert codes(SCRIPT + "        - {call: nobody, expect_result: {outcome: not_found}}\n") == []


NAMES = """
name: pay_order
input_schema: {type: object, additionalProperties: false, properties: {id: {}}}
mock: {result: {status: paid}}
---
scenario: s
state: {cart: [open, closed]}
agent:
  script: [{call: pay_order, optional: true}, {call: nobody, optional: true, expect_result: {outcome: not_found}}]
"""


@pytest.mark.parametrize(
    ("turn", "place", "code"),
    [
        ("{type: tools_called, params: {tool_names: [pay_ordr]}}", "params/tool_names/0", "unknown_tool"),
        ("{type: tool_call_count, params: {tool_name: pay_ordr, max: 2}}", "params/tool", "unknown_tool"),
        ("{type: tool_no_repeat, params: {tools: pay_ordr}}", "params/tools/0", "unknown_tool"),
        (
            "{type: tool_anti_pattern, params: {patterns: [{sequence: [pay_order, pay_ordr]}]}}",
            "params/patterns/0/sequence/1",
            "unknown_tool",
        ),
        (
            "{type: tool_call_chain, params: {steps: [{tool: pay_order, args_match: {ids: x}}]}}",
            "params/steps/0/args_match/ids",
            "unknown_argument",
        ),
        (
            "{type: assertion, params: {eval_type: no_tool_errors, eval_params: {tools: [pay_ordr]}, min_score: 1}}",
            "params/eval_params/tools/0",
            "unknown_tool",
        ),
        (
            "{type: workflow_tool_access, params: {rules: [{state: opn, allowed: []}]}}",
            "params/rules/0/state",
            "never_matches",
        ),
        (
            "{type: workflow_tool_access, params: {rules: [{state: open, allowed: [pay_ordr]}]}}",
            "params/rules/0/allowed/0",
            "unknown_tool",
        ),
        (
            "{type: tool_args_excluded, params: {tool_name: pay_order, excluded_args: {ids: 1}}}",
            "params/excluded_args/ids",
            "unknown_argument",
        ),
        ("{type: no_tool_errors, when: {tool_called: pay_ordr}}", "when/tool_called", "unknown_tool"),
        (
            "{type: no_tool_errors, when: {any_tool_called: [pay_ordr]}}",
            "when/any_tool_called/0",
            "unknown_tool",
        ),
        (
            "{type: no_tool_errors, when: {tool_called_pattern: ^x}}",
            "when/tool_called_pattern",
            "idle_glob",
        ),
    ],
)
def test_an_assertion_names_what_is_there(turn, place, code):
    text = f"{NAMES}  turns: [{{user: hi, script: [{{say: hi}}], assertions: [{turn}]}}]"
    assert codes(text) == [(code, f"/agent/turns/0/assertions/0/{place}")]


def test_names_that_mean_something_are_taken():
    good = "{type: tools_not_called, params: {tool_names: [nobody]}}, {type: tool_args, params: {tool_name: pay_order, ignore_validation: true, expected_args: {ids: 1}}}"
    answers = "answers: {pay_order: {approve: true}, call_2: {approve: true}}"
    script = "{when: {results: {pay_order: {$exists: false}}, last: {tool: nobody}}, say: hi}"
    text = f"{NAMES}  turns: [{{user: hi, script: [{script}], assertions: [{good}]}}, {{{answers}}}]"
    assert codes(text) == []


@pytest.mark.parametrize(
    ("turn", "place", "code"),
    [
        ("user: hi, script: [{when: {last: {tol: x}}, say: a}]", "script/0/when/last/tol", "unknown_key"),
        ("user: hi, script: [{when: {last: {tool: x}}, say: a}]", "script/0/when/last/tool", "unknown_tool"),
        (
            "user: hi, script: [{when: {results: {pay_ordr: 1}}, say: a}]",
            "script/0/when/results/pay_ordr",
            "unknown_tool",
        ),
        ("answers: {pay_ordr: {approve: true}}", "answers/pay_ordr", "unknown_tool"),
    ],
)
def test_a_script_waits_for_what_can_be_there(turn, place, code):
    assert codes(f"{NAMES}  turns: [{{{turn}}}]") == [(code, f"/agent/turns/0/{place}")]


@pytest.mark.parametrize(
    ("entry", "place", "hint"),
    [
        ("provider: antropic", "provider", "did you mean `anthropic`?"),
        (
            "provider: xyzzy",
            "provider",
            "known providers: `anthropic`, `azure_openai`, `direct`, `none`, `openai`",
        ),
        ("judge: {provider: opnai}", "judge/provider", "did you mean `openai`"),
        (
            "judge: {provider: scripted}",
            "judge/provider",
            "known providers: `anthropic`, `azure_openai`, `openai`",
        ),
    ],
)
def test_a_provider_that_nobody_offers_is_told_when_loading(entry, place, hint):
    (problem,) = linked(
        f"scenario: s\nagent: {{{entry}, turns: [{{user: hi, script: [{{say: hi}}]}}]}}"
    ).problems
    assert (problem.code, problem.pointer) == ("unknown_provider", f"/agent/{place}")
    assert hint in problem.hint


def test_the_providers_that_come_along_are_known_without_them():
    assert {*BUILT_IN} == {*installed_providers._BUILT_IN}


def test_nothing_can_be_required_where_nothing_is_allowed():
    policy = "policy: {allow: [], tool_choice: required}"
    text = f"scenario: s\nagent: {{{policy}, turns: [{{user: hi, script: [{{say: hi}}]}}]}}"
    assert codes(text) == [("contradiction", "/agent/policy/tool_choice")]


def test_answers_say_one_thing_of_a_call():
    both = "{get_order: {approve: true, reject: no}}"
    text = (
        f"scenario: s\nagent: {{turns: [{{user: hi, script: [{{call: get_order}}]}}, {{answers: {both}}}]}}"
    )
    (problem,) = [each for each in linked(text).problems if each.pointer.endswith("get_order")]
    assert problem.message.startswith("the answer to a pending call is one of")


def test_a_tool_that_is_not_there_comes_with_how_to_mean_it():
    (problem,) = linked(f"{NAMES}  turns: [{{user: hi, script: [{{call: pay_ordr}}]}}]").problems
    assert "expect_result: {outcome: not_found}" in problem.hint
    assert "`pay_order`" in problem.hint


def test_a_glob_of_the_policy_that_fits_nothing_is_a_warning():
    (problem,) = linked(AGENT + "  policy: {deny: ['refund_*']}\n").problems
    assert (problem.code, problem.severity) == ("idle_glob", "warning")


def test_a_policy_alone_is_read_as_well():
    problems: list[Problem] = []
    policy = parse_policy({"max_rounds": 2, "max_identical": None, "dney": ["a"]}, "/p", problems)
    assert policy == ToolPolicy(max_rounds=2, max_identical=None)
    assert [(problem.code, problem.pointer, problem.hint) for problem in problems] == [
        ("unknown_key", "/p/dney", "did you mean `deny`?")
    ]
    assert parse_policy(3, "", problems) == ToolPolicy()
    assert problems[-1].code == "wrong_type"


def test_the_places_of_a_script():
    agent = scenario_of(
        """
scenario: s
agent:
  script: [{say: x, when: {user: x}}]
  turns:
    - user: a
      script:
        - {call: get_order}
        - {call: get_order, when: {last: {outcome: tool_error}}}
        - {say: maybe, optional: true}
        - {say: thrice, times: 3}
    - answers: {get_order: {approve: true}}
      script: [{say: on, times: 0}, {say: never or later}]
    - user: b
      script: [{say: c}]
"""
    ).agent
    lines = scripted_replies(agent.turns, agent.script)
    assert [(line.turn, line.first, line.last) for line in lines] == [
        (1, 1, 1),
        (1, 0, float("inf")),
        (1, 2, 3),
        (1, 2, 6),
        (1, 3, float("inf")),
        (1, 4, float("inf")),
        (2, 1, 1),
        (0, 0, float("inf")),
    ]
