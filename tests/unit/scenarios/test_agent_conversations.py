"""A scenario with an agent: its turns are held, judged, verified and reported."""

from __future__ import annotations

import asyncio
import pickle
from dataclasses import replace

import pytest

from in_memory import loaded
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.executors import Executors
from toolcrib.executors.client import ClientExecutor
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.scenarios.scenario_links import with_namespace
from toolcrib.scenarios import run_scenario, runs_of
from toolcrib.scenarios.workers import pack_report, unpack_report

TOOLS = """
name: get_order
input_schema:
  type: object
  required: [id]
  properties: {id: {type: string, pattern: "^ORD-"}, token: {type: string, x-secret: true}}
output_schema: {type: object, properties: {pin: {type: string, x-secret: true}}}
mock: {result: {}}
---
name: refund_order
input_schema: {type: object, properties: {id: {type: string}}}
mock: {result: {}}
---
name: get_location
input_schema: {type: object, properties: {exact: {type: boolean, default: false}}}
output_schema: {type: object, required: [city], properties: {city: {type: string}}}
mode: client
client: {consent: {required: true, message: Where are you?}, timeout: 5s}
mock: {result: {city: "{{ 'Oslo S' if args.exact else 'Oslo' }}"}}
---
"""

HEAD = """
scenario: s
store: {orders: {rows: {ORD-1: {status: paid}}}}
mocks:
  get_order:
    rules:
      - {when: {args: {id: ORD-9}}, reply: {error: {code: gone, message: It is gone.}}}
      - {reply: {result: {status: "{{ store.orders[args.id].status }}", pin: hush-4711}, latency: 2s}}
  refund_order:
    rows: {order: {in: orders, key: "{{ args.id }}", missing: no such order}}
    effects: [{update: order, set: {status: refunded}}]
    result: {refunded: true}
"""

KINDS = Executors({"mock": MockExecutor, "client": ClientExecutor})


def run(text, mocks=""):
    """The report of a scenario, which is the same after a journey from one process to another."""
    runtime = loaded_runtime(loaded(TOOLS + HEAD + mocks + text, executors=KINDS), executors=KINDS)
    assert [str(problem) for problem in runtime.problems if problem.severity == "error"] == []
    (scenario,) = runs_of(runtime.scenarios[0])
    report = asyncio.run(run_scenario(runtime, scenario))
    travelled = unpack_report(pickle.loads(pickle.dumps(pack_report(report))), scenario)
    assert str(travelled) == str(report)
    assert travelled.as_json() == report.as_json()
    return report


def told(report):
    """What failed: kind and place."""
    turns = () if report.agent is None else report.agent.turns
    return [
        *((failure.what, failure.pointer) for turn in turns for failure in turn.all_failures),
        *((failure.what, failure.pointer) for failure in report.failures),
    ]


TALK = """
steps: [{call: get_order, args: {id: ORD-1}, as: first}]
agent:
  system: "The first is {{ first.result.status }}."
  turns:
    - user: "Refund {{ 'ORD-1' }}, please."
      script:
        - {call: get_order, args: {id: ORD-1}, expect_result: {status: "{{ first.result.status }}"}}
        - {say: "It is {{ results.get_order.status }} at {{ now }}. Really?"}
      assertions: [{type: tools_not_called, params: {tool_names: [refund_order]}}]
    - user: Yes.
      script:
        - calls: [{call: refund_order, args: {id: ORD-1}}, {call: get_order, args: {id: ORD-9}}]
        - {say: "{{ store.orders['ORD-1'].status }} in turn {{ turn }}, seed {{ seed }}, run {{ run }}: {{ user }}"}
      assertions: [{type: tools_called, params: {tool_names: [refund_order]}}]
  assertions: [{type: tool_call_count, params: {max: 3}}]
verify:
  calls: [{tool: refund_order, args: {id: ORD-1}, times: 1}, {tool: get_order, outcome: tool_error, times: 1}]
  order: {exact: [get_order, get_order, refund_order, get_order]}
  store: {orders: {ORD-1: {status: refunded}}}
  budget: {calls: 4, attempts: 4, elapsed: 4}
  final_text: "refunded in turn 2, seed 7, run 1: Yes."
  stop: answered
seed: 7
"""


def test_a_conversation_follows_the_steps_and_all_is_verified_as_of_steps():
    report = run(TALK)
    assert (str(report), report.warnings) == ("passed s", ())
    assert [step.step.title for step in report.steps] == [
        "step 1",
        "turn 1, call 1",
        "turn 2, call 1",
        "turn 2, call 2",
    ]
    assert report.duration == 4.0
    said = [entry.text for turn in report.agent.turns for entry in turn.entries if entry.kind == "says"]
    assert said[0] == "It is paid at 2030-01-01T00:00:04Z. Really?"


def test_two_runs_have_one_digest_and_another_word_makes_another():
    first, second = run(TALK), run(TALK)
    assert first.digest == second.digest
    assert run(TALK.replace("Really?", "Surely?")).digest != first.digest


def test_without_a_model_the_same_calls_are_made_and_nothing_is_said():
    report = run(TALK.replace("agent:\n", "agent:\n  provider: direct\n"))
    assert str(report) == "passed s"
    assert [step.step.call for step in report.steps] == [
        "get_order",
        "get_order",
        "refund_order",
        "get_order",
    ]
    assert [entry.kind for turn in report.agent.turns for entry in turn.entries].count("says") == 0


def test_a_failing_turn_shows_what_happened_and_what_was_expected():
    report = run(TALK.replace('{status: "{{ first.result.status }}"}', "{status: open}"))
    assert told(report) == [("expect_result", "/agent/turns/0/script/0/expect_result")]
    text = str(report)
    assert "FAILED s › turn 1 “Refund ORD-1, please.” (tools.yaml:40)" in text
    assert (
        'call      get_order {"id":"ORD-1"}\n  told      get_order: ok {"status":"paid","pin":"***"}' in text
    )
    assert 'expected  /status: expected "open", got "paid"' in text
    assert "1 later turn did not run" in text
    json = report.as_json()
    assert [turn["number"] for turn in json["agent"]["turns"]] == [1]
    assert json["agent"]["turns"][0]["failures"][0]["line"] == 40


def test_what_no_script_answers_is_told_like_a_mock_that_has_no_reply():
    report = run(TALK.replace('- {say: "It is', '- {when: {user: nothing}, say: "It is'))
    ((what, _pointer),) = told(report)
    assert what == "unscripted"
    text = str(report)
    assert "script    no reply of the script matches request 2 of turn 1, where `get_order` ended ok" in text
    assert "reply at tools.yaml:40: it is used up after one use" in text
    assert 'reply at tools.yaml:41: user: expected "nothing", got "Refund ORD-1, please."' in text
    assert "- when: {reply: 2}\n              say: what the model says here" in text


@pytest.mark.parametrize(
    ("unused", "passed", "failures", "warnings"),
    [("error", False, 1, 0), ("warn", True, 0, 1), ("ignore", True, 0, 0)],
)
def test_replies_that_nobody_used_are_told(unused, passed, failures, warnings):
    report = run(
        f"agent:\n  unused_turns: {unused}\n  script: [{{when: {{user: x}}, say: a}}, {{when: {{user: x}}, say: a, optional: true}}]\n"
        "  turns: [{user: hi, script: [{say: a}]}]\n"
    )
    warned = [warning for warning in report.warnings if warning.what == "unused_turns"]
    assert (report.passed, len(report.failures), len(warned)) == (passed, failures, warnings)
    for failure in (*report.failures, *warned):
        assert (failure.what, failure.pointer) == ("unused_turns", "/agent/script/0")


def test_an_assertion_that_does_not_hold_ends_nothing():
    report = run(
        """
agent:
  turns:
    - {user: hi, script: [{say: hello}], assertions: [{type: content_includes, params: {patterns: [bye]}, message: it says goodbye}]}
    - {user: bye, script: [{say: bye}]}
  assertions: [{type: tools_called, params: {tool_names: [get_order]}}]
verify: {final_text: hello, stop: max_calls}
"""
    )
    assert sorted(told(report)) == sorted(
        [
            ("assertion", "/agent/turns/0/assertions/0"),
            ("assertion", "/agent/assertions/0"),
            ("final_text", "/verify/final_text"),
            ("stop", "/verify/stop"),
        ]
    )
    assert "assertion content_includes (it says goodbye): " in str(report)


def test_secrets_of_calls_are_shown_nowhere():
    report = run(
        """
agent:
  turns:
    - user: My token is tok-123456.
      script:
        - {call: get_order, args: {id: ORD-1, token: tok-123456}}
        - {say: "Your pin is {{ results.get_order.pin }}, your token tok-123456."}
      assertions: [{type: content_includes, params: {patterns: [nothing]}}]
verify: {final_text: nothing}
"""
    )
    shown = str(report) + str(report.as_json())
    assert not report.passed
    assert "hush-4711" not in shown
    assert "tok-123456" not in shown.replace("/verify", "").split("'pointer': '/agent/turns/0/script")[0]


CLIENT = """
agent:
  client: {{get_location: grant}}
  turns:
    - user: Where am I?
      client: {{get_location: {answer}}}
      script:
        - {{call: get_location, args: {{exact: true}}, expect_result: {expected}}}
        - {{say: ok}}
"""


@pytest.mark.parametrize(
    ("answer", "expected", "virtual"),
    [
        ("grant", "{city: Oslo S}", 0),
        ("deny", "{outcome: denied, code: consent_declined}", 0),
        ("timeout", "{outcome: timeout}", 5),
        ("{result: {city: '{{ args.exact }} {{ user }}'}}", "{city: true Where am I?}", 0),
        ("{result: {town: Oslo}}", "{outcome: invalid_result}", 0),
        ("{error: {code: no_signal, message: No signal.}}", "{outcome: tool_error, code: no_signal}", 0),
    ],
)
def test_the_document_stands_in_for_the_caller(answer, expected, virtual):
    report = run(CLIENT.format(answer=answer, expected=expected))
    assert (told(report), report.duration) == ([], virtual)


def test_the_mock_of_a_scenario_says_what_is_granted():
    report = run(
        CLIENT.format(answer="grant", expected="{city: Paris}"),
        mocks="  get_location: {result: {city: Paris}}\n",
    )
    assert told(report) == []


ASKED = """
agent:
  policy: {{ask: [refund_order]}}
  turns:
    - user: Refund it.
      script: [{{calls: [{{call: refund_order, args: {{id: ORD-1}}, expect_result: {expected}}}, {{call: get_order, args: {{id: ORD-1}}}}]}}]
    - {next}
      script: [{{say: Done.}}]
verify: {{calls: [{{tool: refund_order, times: {times}}}]}}
"""


@pytest.mark.parametrize(
    ("answer", "expected", "times"),
    [
        ("{refund_order: {approve: true}}", "{refunded: true}", 1),
        ("{call_1: {approve: {arguments: {id: ORD-1}}}}", "{refunded: true}", 1),
        (
            "{refund_order: {reject: 'not {{ results.get_order.status }}'}}",
            "{outcome: denied, code: rejected, text: {$contains: not paid}}",
            0,
        ),
    ],
)
def test_a_turn_that_waits_goes_on_with_answers(answer, expected, times):
    report = run(ASKED.format(expected=expected, next=f"answers: {answer}", times=times))
    assert told(report) == []
    assert [turn.stop for turn in report.agent.turns] == ["pending", "answered"]


@pytest.mark.parametrize("following", ["user: Well?", "answers: {get_order: {approve: true}}"])
def test_a_turn_that_does_not_answer_what_waits_is_told(following):
    report = run(ASKED.format(expected="{refunded: true}", next=following, times=1))
    assert told(report) == [("answers", "/agent/turns/1")]
    assert "answers: {refund_order: {approve: true}}" in str(report)


@pytest.mark.parametrize(("provider", "warnings"), [("scripted", 1), ("direct", 0)])
def test_a_model_that_calls_nothing_where_it_must_is_a_warning(provider, warnings):
    report = run(
        f"agent: {{provider: {provider}, policy: {{tool_choice: required}}, unused_turns: ignore, "
        "turns: [{user: Hi, script: [{say: Hi}]}]}"
    )
    assert report.passed
    told_of = [warning.lines[0] for warning in report.warnings if warning.what == "stop"]
    assert len(told_of) == warnings
    assert all("the model had to call a tool but called nothing" in line for line in told_of)


UNANSWERED = """
agent:
  policy: {ask: [refund_order]}
  turns:
    - {user: Refund it., script: [{call: refund_order, args: {id: ORD-1}%s}]}
"""


def test_a_last_turn_that_waits_fails_unless_that_is_meant():
    report = run(UNANSWERED % "")
    assert told(report) == [("pending", "/agent/turns/0")]
    assert "add `- answers: {refund_order: {approve: true}}` below, or `verify: {stop: pending}`" in str(
        report
    )
    assert run(UNANSWERED % "" + "verify: {stop: pending}").passed


@pytest.mark.parametrize("verify", ["", "verify: {stop: pending}"])
def test_what_is_expected_of_a_call_and_never_judged_fails_in_its_place(verify):
    report = run(UNANSWERED % ", expect_result: {refunded: no}" + verify)
    assert told(report)[-1] == ("expect_result", "/agent/turns/0/script/0/expect_result")
    assert not report.passed


def test_a_caller_that_leaves_a_call_is_told_how_it_is_fulfilled():
    report = run("agent: {turns: [{user: Where?, script: [{call: get_location}]}]}")
    assert "add `- answers: {get_location: {result: ...}}` below" in str(report)
    assert "`client: {get_location: grant}`" in str(report)


def test_answers_where_nothing_waits_are_told_so():
    report = run("agent: {turns: [{user: Hi, script: [{say: Hi}]}, {answers: {call_1: {approve: true}}}]}")
    assert told(report) == [("answers", "/agent/turns/1")]
    assert "no call is pending here" in str(report)


def test_a_code_is_shown_once_and_every_line_of_an_answer_in_its_column():
    text = """
agent:
  client: {get_location: %s}
  turns: [{user: Where?, script: [{call: get_location}, {say: There}], assertions: [{type: no_tool_errors}%s]}]
"""
    declined = run(text % ("deny", ", {type: tools_called, params: {tool_names: [get_order]}}"))
    assert "denied (consent_declined) `get_location` was declined" in str(declined)
    wrong = str(run(text % ("{result: {town: Oslo}}", "")))
    assert "\n            /city:" in wrong.partition("assertion no_tool_errors")[2]


def test_a_bound_that_ends_a_turn_is_a_warning_unless_it_is_meant():
    text = """
agent:
  policy: {max_calls: 1}
  unused_turns: ignore
  turns: [{user: hi, script: [{call: get_order, args: {id: ORD-1}, times: 0}]}]
"""
    report = run(text)
    warned = [(warning.what, warning.pointer) for warning in report.warnings]
    assert (report.passed, warned[-1]) == (True, ("stop", "/agent/turns/0"))
    meant = run(text + "verify: {stop: max_calls, unused_rules: ignore}\n")
    assert (meant.passed, meant.warnings) == (True, ())


@pytest.mark.parametrize(
    ("agent", "place"),
    [
        ("provider: openai", "/agent/model"),
        ("provider: openai, model: m, base_url: 'ftp:x'", "/agent/base_url"),
        ("system: '{{ 1 // (run - 1) }}'", "/agent/system"),
    ],
)
def test_an_agent_that_can_not_begin_is_told(agent, place):
    report = run(f"agent: {{{agent}, turns: [{{user: hi, script: [{{say: a}}]}}]}}\n")
    assert told(report) == [("agent", place)]


CUT_OFF = """
agent:
  turns:
    - user: Refund it.
      script: [{say: Well, call: refund_order, args: "", finish: %s, expect_result: {code: %s}}]
"""


@pytest.mark.parametrize(("finish", "code"), [("length", "answer_cut_off"), ("refused", "answer_refused")])
def test_an_answer_that_is_cut_off_fails_the_run_unless_that_is_meant(finish, code):
    text = CUT_OFF % (finish, code)
    report = run(text)
    assert (report.passed, told(report)) == (False, [("stop", "/agent/turns/0")])
    assert f"turn 1 ended with `{finish}`: the answer was " in str(report)
    assert "its calls were not made: `refund_order` (call_1)" in str(report)
    assert run(
        text + f"verify: {{stop: {finish}, calls: [{{tool: refund_order, outcome: ok, times: 0}}]}}\n"
    ).passed


def test_a_text_that_is_cut_off_fails_the_run_and_one_that_is_refused_is_judged():
    text = "agent: {turns: [{user: hi, script: [{say: Once upon, finish: %s}]}]}\n"
    report = run(text % "length")
    assert (report.passed, told(report)) == (False, [("stop", "/agent/turns/0")])
    assert "stop      turn 1 ended with `length`\n" in str(report)
    report = run(text % "refused")
    assert (report.passed, report.warnings[-1].lines) == (True, ("turn 1 ended with `refused`",))


def test_what_a_document_names_is_not_reached_without_permission():
    report = run(
        "agent: {provider: openai, model: m, base_url: 'http://127.0.0.1:9/v1', turns: [{user: hi}]}\n"
    )
    ((what, _pointer),) = told(report)
    assert what == "provider"
    assert "127.0.0.1" in str(report)


def test_a_text_that_can_not_be_worked_out_is_told():
    report = run("agent: {turns: [{user: '{{ results.nobody }}', script: [{say: a}]}]}\n")
    assert told(report) == [("user", "/agent/turns/0/user")]


def test_a_namespace_is_not_seen_by_the_script():
    scenario = loaded_runtime(loaded(TOOLS + HEAD + TALK, executors=KINDS), executors=KINDS).scenarios[0]
    inside = replace(scenario, origin=scenario.origin._replace(namespace="shop"))
    agent = with_namespace(inside, {"shop__get_order", "shop__refund_order"}).agent
    assert [call.tool for call in agent.scripted_calls] == [
        "shop__get_order",
        "shop__refund_order",
        "shop__get_order",
    ]
