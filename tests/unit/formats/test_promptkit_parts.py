"""What becomes of the parts of a scenario of PromptKit: its mock responses, prompt, provider, policy and turns."""

from __future__ import annotations

import pytest

from arenas import KINDS, TURNS, agent_of, arena_files, manifest, own, put, read, told
from sampling import sample
from toolcrib.engine.runtime import Runtime
from toolcrib.scenarios import run_scenario, runs_of

ONE = "turns: [{role: user, content: Hi}]"


def agent(tmp_path, spec="", **parts):
    found = read(put(tmp_path, arena_files(spec, **parts)))
    assert [problem for problem in found.problems if problem.severity == "error"] == []
    return agent_of(found)


def messages(found, code):
    return [problem.message for problem in found.problems if problem.code == code]


# Mock responses.

RESPONSES = {
    "Hello": {"say": "Hello"},
    "42": {"say": "42"},
    "{content: Hello}": {"say": "Hello"},
    "{text: Hello}": {"say": "Hello"},
    "{response: Hello}": {"say": "Hello"},
    "{type: text, content: Hello, text: Other}": {"say": "Hello"},
    "{parts: [{type: text, text: Hel}, {type: text, text: lo}]}": {"say": "Hello"},
    "{content: ''}": {"say": ""},
    "{tool_calls: [{name: look_up}]}": {"call": "look_up"},
    "{tool_calls: [{name: look_up, arguments: {}}], content: ''}": {"call": "look_up"},
    "{tool_calls: [{name: look_up, arguments: {q: '{{ x }}'}}], content: Wait}": {
        "say": "Wait",
        "call": "look_up",
        "args": {"q": "{{ '{{' }} x }}"},
    },
    "{tool_calls: [{name: look_up}, {name: look_up, arguments: {n: 2}}]}": {
        "calls": [{"call": "look_up"}, {"call": "look_up", "args": {"n": 2}}]
    },
    "'{{ 1 }} ${HOME}'": {"say": "{{ '{{' }} 1 }} {{ '$' ~ '{' }}HOME}"},
}


@pytest.mark.parametrize("written", RESPONSES)
def test_each_form_of_a_response_is_a_reply(tmp_path, written):
    script = agent(tmp_path, scenario=ONE, answers=f"scenarios: {{one: {{turns: {{1: {written}}}}}}}")[
        "script"
    ]
    assert script[0] == {"when": {"replies": 0}, **RESPONSES[written]}


def test_entries_count_requests_in_whatever_order_they_stand(tmp_path):
    script = agent(tmp_path, answers="scenarios: {one: {turns: {3: C, 1: A, 02: no}}}")["script"]
    assert [reply.get("when") for reply in script] == [{"replies": 0}, {"replies": 1}, {"replies": 2}, None]


DEFAULTS = {
    "defaultResponse: All\nscenarios: {one: {defaultResponse: Mine}}": "Mine",
    "defaultResponse: All\nscenarios: {one: {turns: {1: A}}}": "All",
    "defaultResponse: All\nscenarios: {other: {defaultResponse: Theirs}}": "All",
    "scenarios: {}": "Mock response for provider mock model m",
    "default_response: All": "All",
}


@pytest.mark.parametrize("answers", DEFAULTS)
def test_a_request_without_an_entry_gets_the_nearest_default(tmp_path, answers):
    script = agent(tmp_path, scenario=ONE, answers=answers)["script"]
    assert script[-1] == {"say": DEFAULTS[answers], "times": 0, "optional": True}


def test_a_default_that_promptkit_would_pass_over_is_told(tmp_path):
    found = read(put(tmp_path, arena_files(answers="default_response: All")))
    assert told(found) == [("unknown_key", "mock-responses.yaml", 1)]


def test_requests_without_any_answer_are_told(tmp_path):
    found = read(put(tmp_path, arena_files(answers="scenarios: {one: {turns: {2: B}}}")))
    (message,) = messages(found, "no_response")
    assert message.startswith("the mock responses have neither a reply to request 1 of `one`")


def test_media_in_a_response_are_told(tmp_path):
    answers = "scenarios: {one: {turns: {1: {parts: [{type: image, image_url: {url: x}}, {type: text, text: Hi}]}}}}"
    found = read(put(tmp_path, arena_files(scenario=ONE, answers=answers)))
    assert agent_of(found)["script"][0]["say"] == "Hi"
    assert told(found) == [("no_counterpart", "mock-responses.yaml", 1)]


# Providers.


def test_a_model_answers_where_there_is_no_mock(tmp_path):
    provider = """
    type: claude
    model: haiku
    base_url: https://api.example.com
    defaults: {temperature: 0.2, top_p: 1.0}
    pricing: {input_cost_per_1k: 0.00015, output_cost_per_1k: 0.0006, batch: 1}
    """
    files = arena_files("defaults: {temperature: 0.7, max_tokens: 9}", scenario=ONE, provider=provider)
    del files["mock-responses.yaml"]
    found = read(put(tmp_path, files))
    told_of = agent_of(found)
    assert {key: told_of[key] for key in ("provider", "model", "base_url", "settings", "prices")} == {
        "provider": "anthropic",
        "model": "haiku",
        "base_url": "https://api.example.com",
        "settings": {"temperature": 0.7, "top_p": 1.0, "max_tokens": 9},
        "prices": {"input": 0.15, "output": 0.6},
    }
    assert "script" not in told_of
    assert told(found) == [("no_counterpart", "mock.yaml", 12)]


@pytest.mark.parametrize(
    ("price", "code", "message"),
    [
        ("'0.01'", "wrong_type", 'expected null or a number, got "0.01"'),
        ("true", "wrong_type", "expected null or a number, got true"),
        ("-1", "wrong_value", "expected at least 0, got -1"),
    ],
)
def test_a_price_that_is_none_is_reported_as_it_is_written(tmp_path, price, code, message):
    provider = f"type: claude\nmodel: haiku\npricing: {{input_cost_per_1k: {price}, output_cost_per_1k: 1}}"
    files = arena_files(scenario=ONE, provider=provider)
    del files["mock-responses.yaml"]
    found = read(put(tmp_path, files))
    (problem,) = [each for each in found.problems if each.pointer == "/spec/pricing/input_cost_per_1k"]
    assert (problem.code, problem.message, problem.severity) == (code, message, "error")
    assert problem.source.endswith("mock.yaml")


def test_mock_responses_beside_the_arena_answer_for_models(tmp_path):
    found = read(put(tmp_path, arena_files(provider="type: openai\nmodel: gpt")))
    assert agent_of(found)["script"][1]["say"] == "Found it."
    (problem,) = (problem for problem in found.problems if problem.code == "one_provider")
    assert problem.hint == "`toolcrib run --provider openai --model gpt` uses `mock`"


def test_nobody_answers(tmp_path):
    files = arena_files(provider="type: gemini\nmodel: flash")
    del files["mock-responses.yaml"]
    found = read(put(tmp_path, files))
    assert agent_of(found)["provider"] == "none"
    assert told(found) == [("no_provider", "one.scenario.yaml", 6)]


MANY = """
provider_specs:
  real: {type: openai, model: gpt}
  played: {type: mock, additional_config: {mock_config: user.yaml}}
  judge: {type: mock, additional_config: {mock_config: judge.yaml}}
  sound: {type: mock, role: tts, additional_config: {mock_config: tts.yaml}}
  second: {type: mock, additional_config: {mock_config: second.yaml}}
judges: [{name: j, provider: judge}]
self_play: {personas: [], roles: [{id: someone, provider: played}]}
"""


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        (ONE, "mock"),
        (ONE + "\nproviders: [second]", "second"),
        (ONE + "\nproviders: [played]", "user"),
        (ONE + "\nprovider_group: fast", "mock"),
    ],
)
def test_the_first_mock_answers_that_a_scenario_asks_for(tmp_path, scenario, said):
    names = {f"{name}_DOT_yaml": f"defaultResponse: {name}" for name in ("user", "judge", "tts", "second")}
    files = arena_files(MANY, scenario=scenario, answers="defaultResponse: mock", **names)
    files["config.arena.yaml"] = files["config.arena.yaml"].replace(
        "mock.yaml}", 'mock.yaml, group: "default, fast"}'
    )
    found = read(put(tmp_path, files))
    assert agent_of(found)["script"][-1]["say"] == said


def test_a_file_of_mock_responses_may_lie_beside_the_provider(tmp_path):
    files = arena_files()
    files["providers/mock-responses.yaml"] = files.pop("mock-responses.yaml")
    assert agent_of(read(put(tmp_path, files)))["script"][1]["say"] == "Found it."


def test_mock_responses_that_are_not_there_are_an_error(tmp_path):
    files = arena_files()
    del files["mock-responses.yaml"]
    found = read(put(tmp_path, files))
    assert told(found) == [("file_unreadable", "mock.yaml", 9)]
    assert agent_of(found)["provider"] == "none"


@pytest.mark.parametrize("answers", ["scenarios: {one: [", "scenarios: [one]", "defaultResponse: [x]"])
@pytest.mark.parametrize("provider", ["type: openai", "type: mock\nadditional_config: {mock_config: m.yaml}"])
def test_mock_responses_that_can_not_be_read_are_told_once(tmp_path, answers, provider):
    files = arena_files(provider=provider.replace("m.yaml", "mock-responses.yaml"), answers=answers)
    (problem, *more), agent = told(found := read(put(tmp_path, files))), agent_of(found)
    assert (problem[1], more, agent["provider"]) == ("mock-responses.yaml", [], "none")


@pytest.mark.parametrize("entry", ["x: Hello", "2: [Hello]", "2: {tool_calls: [{arguments: {}}]}"])
def test_an_entry_that_can_not_be_read_is_left_out_alone(tmp_path, entry):
    answers = f"scenarios: {{one: {{turns: {{1: Hi, {entry}}}}}}}"
    found = read(put(tmp_path, arena_files(answers=answers)))
    assert [file for _code, file, _line in told(found)] == ["mock-responses.yaml"]
    assert [reply["say"] for reply in agent_of(found)["script"]] == [
        "Hi",
        "Mock response for provider mock model m",
    ]


def test_a_provider_that_the_arena_does_not_have_is_told(tmp_path):
    found = read(put(tmp_path, arena_files(scenario=ONE + "\nproviders: [mok]")))
    assert [code for code, _file, _line in told(found)] == ["no_provider"]


# Prompts.


def test_variables_are_put_in_by_whoever_says_them_last(tmp_path):
    prompt = """
    task_type: help
    system_template: "{{a}} {{ b }} {{c}} {{.d}} {{ e }} ${HOME} {{user_context}} {{f}}"
    variables: [{name: a, default: 1.10}, {name: b, default: b1}, {name: c, required: true}]
    optional_vars: {d: "{{a}}!"}
    allowed_tools: [look_up]
    """
    files = arena_files(
        prompt=prompt, scenario=ONE + "\nvariables: {c: c3}\ncontext_metadata: {user_role: boss}"
    )
    files["config.arena.yaml"] = files["config.arena.yaml"].replace(
        "help.yaml}", "help.yaml, vars: {b: b2, f: 7}}"
    )
    found = read(put(tmp_path, files))
    assert agent_of(found)["system"] == "1.10 b2 c3 1.10! {{ '{{' }} e }} {{ '$' ~ '{' }}HOME} boss 7"
    assert told(found) == [("unresolved_variable", "help.yaml", 7)]


def test_fragments_come_from_their_files(tmp_path):
    prompt = """
    task_type: help
    system_template: "{{rules}} {{tone}} {{ gone }}"
    fragments: [{name: rules, path: fragments/rules.txt}, {name: tone, path: fragments/tone.yaml}, {name: gone}]
    allowed_tools: [look_up]
    """
    files = {"fragments/rules.txt": "Be good.", "fragments/tone.yaml": "spec: {content: Be kind.}"}
    found = read(put(tmp_path, arena_files(prompt=prompt) | files))
    assert agent_of(found)["system"] == "Be good. Be kind. {{ '{{' }} gone }}"
    assert {code for code, _file, _line in told(found)} == {"no_counterpart", "unresolved_variable"}


def test_fragments_have_a_way_of_their_own_and_what_has_no_value_is_told_once(tmp_path):
    prompt = """
    task_type: help
    system_template: "{{fragments.rules}} {{ fragments.ruls }} {{who}}"
    fragments: [{name: rules, path: rules.txt}]
    """
    files = arena_files(prompt=prompt, rules_DOT_txt="Be good.")
    files["scenarios/one.scenario.yaml"] += "---\n" + files["scenarios/one.scenario.yaml"].replace(
        "one", "two"
    )
    found = read(put(tmp_path, files))
    systems = {value["agent"]["system"] for value in own(found).values()}
    assert systems == {"Be good. {{ '{{' }} fragments.ruls }} {{ '{{' }}who}}"}
    first, second = (problem for problem in found.problems if problem.code == "unresolved_variable")
    assert ("fragments.rules" in first.hint, "`who`" in second.hint) == (True, False)


def test_a_prompt_that_names_no_tools_offers_none(tmp_path):
    assert agent(tmp_path, prompt="task_type: help")["policy"] == {"allow": []}


def test_a_scenario_without_a_prompt_of_its_kind_has_none(tmp_path):
    files = arena_files()
    files["scenarios/one.scenario.yaml"] = files["scenarios/one.scenario.yaml"].replace(
        "task_type: help", "task_type: halp"
    )
    found = read(put(tmp_path, files))
    assert not {"system", "policy"} & agent_of(found).keys()
    assert told(found) == [("no_prompt", "one.scenario.yaml", 6)]


def test_validators_are_guardrails(tmp_path):
    prompt = """
    task_type: help
    validators:
      - {type: banned_words, params: {words: [damn]}, fail_on_violation: true}
      - {type: length, params: {max_characters: 100, direction: output, message: Too long.}}
      - {type: sentiment, params: {}}
      - {type: max_length, params: {max: 3}, enabled: false}
      - {type: max_length, params: {max: 5}, monitor: true}
      - {type: length, params: {max: 5, direction: input}}
      - {type: length, params: {max: 6, direction: both}}
      - {type: length, params: {max: 7, direction: outptu}}
    allowed_tools: [look_up]
    """
    found = read(put(tmp_path, arena_files(prompt=prompt)))
    assert agent_of(found)["guardrails"] == [
        {"type": "banned_words", "params": {"words": ["damn"]}, "rewrite": True},
        {"type": "length", "params": {"max_characters": 100}, "message": "Too long.", "rewrite": True},
        {"type": "sentiment", "unsupported": "unknown assertion type `sentiment`"},
        {"type": "max_length", "params": {"max": 5}},
        {
            "type": "length",
            "unsupported": "it checks what the user says, and guardrails check replies",
        },
        {"type": "length", "params": {"max": 6}, "rewrite": True},
        {"type": "length", "unsupported": "unknown key `direction`"},
    ]
    assert told(found) == [("no_counterpart", "help.yaml", line) for line in (10, 13, 14, 15)]


REFUSAL = "Sorry, we can't provide this response as it would violate our content policy."
REWRITTEN = {
    "{type: length, params: {max_characters: 8}}": "Oh Damn,",
    "{type: max_length, params: {max: 8, max_tokens: 1}}": "Oh Damn,",
    "{type: max_length, params: {max_tokens: 1}}": REFUSAL,
    "{type: length, params: {max: 100}}": "Oh Damn, it broke.",
    "{type: banned_words, params: {words: [damn]}}": REFUSAL,
    "{type: banned_words, params: {words: [damn], case_sensitive: false}}": REFUSAL,
    "{type: banned_words, params: {words: [damn], case_sensitive: true}}": "Oh Damn, it broke.",
    "{type: banned_words, params: {words: [Damn], case_sensitive: true}, message: No.}": "No.",
    "{type: banned_words, params: {words: [damn], message: No.}}": "No.",
    "{type: banned_words, params: {words: [dam]}}": "Oh Damn, it broke.",
    "{type: content_excludes, params: {patterns: [DAM], case_sensitive: true}}": "Oh Damn, it broke.",
    "{type: banned_words, params: {words: [damn]}, monitor: true}": "Oh Damn, it broke.",
    # Only the first guardrail that fires rewrites.
    "{type: length, params: {max: 4}}, {type: banned_words, params: {words: [damn]}}": "Oh D",
    "{type: banned_words, params: {words: [damn]}, message: No.}, {type: length, params: {max: 2}}": "No.",
}


@pytest.mark.parametrize("written", sample(REWRITTEN, one_in=2))
async def test_a_guardrail_rewrites_the_reply_as_promptkit_does(tmp_path, written):
    said = REWRITTEN[written]
    prompt = f"task_type: help\nallowed_tools: [look_up]\nvalidators: [{written}]"
    scenario = "turns: [{role: user, content: Hi}, {role: user, content: Bye}]"
    answers = "scenarios: {one: {turns: {1: 'Oh Damn, it broke.', 2: Bye.}}}"
    files = arena_files(prompt=prompt, scenario=scenario, answers=answers)
    async with Runtime.open(put(tmp_path, files), executors=KINDS) as runtime:
        report = await run_scenario(runtime, runtime.scenarios[0])
    first, _second = report.as_json()["agent"]["turns"]
    assert first["entries"][-1] == {"kind": "says", "text": said}
    assert report.passed, str(report)


async def test_a_rewritten_reply_keeps_its_calls_and_the_guardrail_was_triggered(tmp_path):
    prompt = "task_type: help\nallowed_tools: [look_up]\nvalidators: [{type: length, params: {max: 4}}]"
    scenario = """
    turns:
      - role: user
        content: Hi
        assertions:
          - {type: guardrail_triggered, params: {validator: length}}
          - {type: max_length, params: {max: 4}}
          - {type: tools_called, params: {tool_names: [look_up]}}
      - role: user
        content: Bye
        assertions:
          - {type: guardrail_triggered, params: {validator: length, should_trigger: false}}
    conversation_assertions:
      - {type: guardrail_triggered, params: {validator: length}}
      - {type: content_excludes, params: {patterns: [looking]}}
    """
    call = "{content: 'I am looking', tool_calls: [{name: look_up}]}"
    answers = f"scenarios: {{one: {{turns: {{1: {call}, 2: Yes, 3: Bye}}}}}}"
    files = arena_files(prompt=prompt, scenario=scenario, answers=answers)
    async with Runtime.open(put(tmp_path, files), executors=KINDS) as runtime:
        report = await run_scenario(runtime, runtime.scenarios[0])
    assert report.passed, str(report)
    assert [step.result.outcome for step in report.steps] == ["ok"]


async def test_a_guardrail_is_asked_by_an_assertion(tmp_path):
    prompt = "task_type: help\nvalidators: [{type: banned_words, params: {words: [damn]}}]"
    scenario = """
    turns:
      - role: user
        content: Hi
        assertions:
          - {type: guardrail_triggered, params: {validator: banned_words, should_trigger: true}}
          - {type: guardrail_triggered, params: {validator_type: banned_words, should_trigger: false}}
    """
    files = arena_files(prompt=prompt, scenario=scenario, answers="defaultResponse: Oh damn.")
    async with Runtime.open(put(tmp_path, files), executors=KINDS) as runtime:
        report = await run_scenario(runtime, runtime.scenarios[0])
    (turn,) = report.as_json()["agent"]["turns"]
    assert [assertion["passed"] for assertion in turn["assertions"]] == [True, False]


# Policies.


def test_a_policy_is_that_of_the_scenario_over_that_of_its_prompt(tmp_path):
    prompt = """
    task_type: help
    allowed_tools: [look_up, mcp__files__*, look_up]
    tool_policy: {tool_choice: required, max_rounds: 5, blocklist: [a], stop_on_tool: [look_up]}
    """
    scenario = (
        TURNS
        + """
tool_policy:
  tool_choice: none
  max_tool_calls_per_turn: 2
  max_total_tool_calls: 0
  blocklist: [look_up]
  max_cost_usd: 0.5
  max_identical_tool_calls: 2
"""
    )
    found = read(put(tmp_path, arena_files(prompt=prompt, scenario=scenario)))
    assert agent_of(found)["policy"] == {
        "allow": ["look_up", "mcp__files__*"],
        "max_rounds": 5,
        "max_calls_per_turn": 2,
        "max_identical": 2,
        "max_cost": 0.5,
        "tool_choice": "none",
        "deny": ["look_up"],
        "stop_on_tool": ["look_up"],
    }
    assert messages(found, "enforced_here") == [
        "PromptKit does not enforce `max_tool_calls_per_turn`; toolcrib does: a call beyond it ends the turn"
    ]


# Turns.


def test_assertions_of_a_turn_that_look_at_calls_see_the_conversation(tmp_path):
    scenario = """
    turns:
      - role: user
        content: Hi
        assertions:
          - {type: tool_called, params: {tool_name: look_up, message: Looks}, when: {any_tool_called: true, min_tool_calls: 0}}
          - {type: content_includes, params: {patterns: [x]}, message: Says, pass_threshold: 0.5}
          - {type: no_tool_errors}
    conversation_assertions: [{type: tool_call_count, params: {min: 1}}]
    """
    spec = "globals: {conversation_assertions: [{type: no_tool_errors}]}"
    told_of = agent(tmp_path, spec, scenario=scenario)
    assert told_of["turns"][0]["assertions"] == [
        {
            "type": "tool_called",
            "params": {"tool_name": "look_up"},
            "message": "Looks",
            "when": {"any_tool_called": True},
            "scope": "conversation",
        },
        {"type": "content_includes", "params": {"patterns": ["x"]}, "message": "Says", "pass_threshold": 0.5},
        {"type": "no_tool_errors", "scope": "conversation"},
    ]
    assert told_of["assertions"] == [
        {"type": "tool_call_count", "params": {"min": 1}},
        {"type": "no_tool_errors"},
    ]


def test_trials_seed_and_labels_are_those_of_the_scenario(tmp_path):
    files = arena_files(
        "defaults: {seed: 7}",
        scenario=ONE + "\ntrials: 3\npass_threshold: 0.66\ndescription: |\n  Says hi.\n",
    )
    files["scenarios/one.scenario.yaml"] = files["scenarios/one.scenario.yaml"].replace(
        "name: one", "name: one\n  labels: {team: a, x: ''}"
    )
    value = own(read(put(tmp_path, files)))["one"]
    del value["agent"]
    assert value == {
        "scenario": "one",
        "description": "Says hi.",
        "tags": ["team=a", "x"],
        "seed": 7,
        "trials": 3,
        "pass_threshold": 0.66,
    }


async def test_perturbations_are_a_matrix(tmp_path):
    scenario = """
    turns:
      - role: user
        content: "{city} {{x}} {other} ${n}? {{city}}"
        perturbations: {city: [Oslo, Oslo, Rome], n: [1.10], "no name": [x], empty: []}
      - {role: user, content: "{city}"}
    """
    async with Runtime.open(put(tmp_path, arena_files(scenario=scenario)), executors=KINDS) as runtime:
        (written,) = runtime.scenarios
        runs = runs_of(written)
        assert written.matrix == {"city": ("Oslo", "Rome"), "n": ("1.10",)}
        report = await run_scenario(runtime, runs[1])
    said = [
        entry["text"]
        for turn in report.as_json()["agent"]["turns"]
        for entry in turn["entries"]
        if entry["kind"] == "user"
    ]
    assert said == ["Rome {{x}} {other} $1.10? {Rome}", "Rome"]


def test_parts_of_a_turn_are_texts_and_media(tmp_path):
    scenario = """
    turns:
      - role: user
        parts:
          - {type: text, text: "See {{ this }}:"}
          - {type: image, media: {file_path: media/a.png, mime_type: image/png, caption: A, detail: low}}
          - {type: document, media: {url: "https://example.com/a.pdf", mime_type: application/pdf}}
          - {type: audio, media: {data: aGk=, mime_type: audio/wav}}
          - {type: smell, text: x}
    """
    found = read(put(tmp_path, arena_files(scenario=scenario, media__a_DOT_png="png")))
    assert agent_of(found)["turns"] == [
        {
            "user": [
                "See {{ '{{' }} this }}:",
                {"type": "image", "mime_type": "image/png", "title": "A", "data": "cG5n"},
                {"type": "resource", "uri": "https://example.com/a.pdf", "mime_type": "application/pdf"},
                {"type": "audio", "data": "aGk=", "mime_type": "audio/wav"},
            ]
        }
    ]
    assert told(found) == [("no_counterpart", "one.scenario.yaml", 15)]


def test_consents_are_the_clients_part(tmp_path):
    scenario = """
    turns:
      - {role: user, content: Hi, consent_overrides: {where: deny}}
      - {role: user, content: Hi, consent_overrides: {where: maybe}}
    """
    tool = "name: where\ndescription: Where.\nmode: client\nclient: {consent: {required: true}}\nmock: {result: here}\n"
    found = read(put(tmp_path, arena_files(scenario=scenario, tools__where_DOT_yaml=tool)))
    assert [turn.get("client") for turn in agent_of(found)["turns"]] == [{"where": "deny"}, None]
    assert told(found) == [("not_allowed", "one.scenario.yaml", 10)]


CHAOS = """
turns:
  - {role: user, content: One}
  - role: user
    content: Two
    chaos:
      tool_failures:
        - {tool: look_up, mode: error, message: Down}
        - {tool: look_up, mode: timeout, probability: 0.5}
        - {tool: look_up, mode: slow, probability: 1.0}
        - {tool: other, mode: error}
        - {tool: look_up, mode: sulk}
"""
TWICE = """
scenarios:
  one:
    turns:
      1: {tool_calls: [{name: look_up}]}
      2: Once.
      3: {tool_calls: [{name: look_up, arguments: {n: 1}}, {name: look_up, arguments: {n: 2}}]}
      4: Twice.
"""


def test_failures_of_a_turn_are_faults_of_the_calls_in_it(tmp_path):
    found = read(put(tmp_path, arena_files(scenario=CHAOS, answers=TWICE)))
    due = {"$gte": 2, "$lte": 3}
    assert own(found)["one"]["faults"] == [
        {
            "tool": "look_up",
            "inject": {"error": {"code": "chaos", "message": "Down"}},
            "must_fire": False,
            "when": {"call": due},
        },
        {
            "tool": "look_up",
            "inject": "timeout",
            "must_fire": False,
            "when": {"call": due, "probability": 0.5},
        },
        {"tool": "look_up", "inject": {"slow": "2s"}, "must_fire": False, "when": {"call": due}},
    ]
    warnings = [("no_counterpart", "one.scenario.yaml", 17), ("not_allowed", "one.scenario.yaml", 18)]
    assert told(found) == warnings
    assert [line for _code, _file, line in told(found, "notice")] == [14, 15, 16]


async def test_a_failure_hits_its_turn_alone(tmp_path):
    scenario = CHAOS[: CHAOS.index("        - {tool: look_up, mode: timeout")]
    files = arena_files(scenario=scenario, answers=TWICE)
    async with Runtime.open(put(tmp_path, files), executors=KINDS) as runtime:
        report = await run_scenario(runtime, runtime.scenarios[0])
    assert [step.result.outcome for step in report.steps] == ["ok", "tool_error", "tool_error"]
    assert report.steps[1].result.message == "Down"


def test_failures_of_a_turn_can_not_be_told_where_a_model_calls(tmp_path):
    scenario = "turns: [{role: user, content: Hi, chaos: {tool_failures: [{tool: look_up, mode: error}]}}]"
    files = arena_files(scenario=scenario, provider="type: openai")
    del files["mock-responses.yaml"]
    found = read(put(tmp_path, files))
    (fault,) = own(found)["one"]["faults"]
    assert "when" not in fault
    assert told(found) == [("no_counterpart", "one.scenario.yaml", 7)]


NO_TOOLS = {
    "task_type: help": ("no", 6),
    "task_type: help\nallowed_tools: []": ("an empty", 7),
    "task_type: help\nallowed_tools: null": ("no", 6),
}


@pytest.mark.parametrize("prompt", NO_TOOLS)
async def test_a_prompt_without_allowed_tools_has_none_and_says_so(tmp_path, prompt):
    missing, line = NO_TOOLS[prompt]
    files = arena_files(prompt=prompt)
    async with Runtime.open(put(tmp_path, files), executors=KINDS) as runtime:
        (problem,) = runtime.problems
        report = await run_scenario(runtime, runtime.scenarios[0])
    assert (problem.code, problem.severity) == ("no_tools_allowed", "warning")
    assert (problem.source.rpartition("/")[2], problem.line) == ("help.yaml", line)
    assert problem.message == (
        f"the prompt `help` has {missing} `allowed_tools`, so as in PromptKit the model is offered no tools; "
        "every call is denied"
    )
    (turn, _other) = report.as_json()["agent"]["turns"]
    assert [entry["outcome"] for entry in turn["entries"] if "outcome" in entry] == ["denied"]


@pytest.mark.parametrize(
    ("prompt", "spec", "warned"),
    [
        ("task_type: help", "", False),
        ("task_type: help\nallowed_tools: []", "tools: [{file: tools/look_up.tool.yaml}]", False),
        ("task_type: help", "tools: [{file: tools/look_up.tool.yaml}]", True),
        ("task_type: help", "mcp_servers: [{name: fs, command: serve}]", True),
        ("task_type: help\ntools: [look_up]", "", False),
    ],
)
def test_a_prompt_without_tools_is_told_where_there_are_any(tmp_path, prompt, spec, warned):
    found = read(put(tmp_path, arena_files(spec, prompt=prompt, answers="defaultResponse: Hi")))
    assert [problem.code for problem in found.problems if problem.code == "no_tools_allowed"] == (
        ["no_tools_allowed"] if warned else []
    )


# Users who are played.

PLAYED = """
turns:
  - {role: user, content: Hi}
  - {role: someone, persona: curious, turns: 2, assertions: [{type: min_length, params: {min: 1}}]}
"""
CAST = """
provider_specs: {users: {type: mock, additional_config: {mock_config: users.yaml}}}
self_play:
  personas: [{file: personas/curious.yaml}]
  roles: [{id: someone, provider: users}]
"""
CURIOUS = manifest("Persona", "curious", "system_prompt: Ask.")


def users(tmp_path, said, *, scenario=PLAYED, cast=CAST, answers="defaultResponse: Yes."):
    files = arena_files(cast, scenario=scenario, answers=answers)
    files |= {"users.yaml": said, "personas/curious.yaml": CURIOUS}
    return read(put(tmp_path, files))


@pytest.mark.parametrize(
    "said",
    [
        "scenarios: {one: {turns: {1: First?, 2: Second?}}}",
        "selfplay: {curious: {turns: {1: First?, 2: Second?}}}",
        "selfplay: {curious: {turns: {1: First?}, defaultResponse: Second?}}\nscenarios: {one: {turns: {1: no}}}",
    ],
)
def test_a_persona_says_what_its_mock_says(tmp_path, said):
    found = users(tmp_path, said)
    assert told(found) == []
    turns = agent_of(found)["turns"]
    assert [turn["user"] for turn in turns] == ["Hi", "First?", "Second?"]
    assert [len(turn.get("assertions", ())) for turn in turns] == [0, 1, 1]


def test_turns_of_a_persona_that_nobody_wrote_are_left_out(tmp_path):
    found = users(tmp_path, "scenarios: {one: {turns: {1: First?}}}")
    assert [turn["user"] for turn in agent_of(found)["turns"]] == ["Hi", "First?"]
    (message,) = messages(found, "no_counterpart")
    assert message.endswith("1 of its 2 turns are dropped")


def test_a_persona_speaks_on_where_it_left_off_and_as_long_as_it_may(tmp_path):
    said = "selfplay: {curious: {turns: {1: A, 2: B, 3: C, 4: D}}}"
    more = (
        PLAYED
        + "  - {role: user, content: Wait}\n  - {role: someone, persona: curious, turns: 1, max_turns: 9}\n"
    )
    turns = agent_of(users(tmp_path, said, scenario=more))["turns"]
    assert [turn["user"] for turn in turns] == ["Hi", "A", "B", "Wait", "C", "D"]


def test_a_model_plays_no_user_but_the_mock_of_the_agent_may(tmp_path):
    cast = CAST.replace(
        "users: {type: mock, additional_config: {mock_config: users.yaml}}", "users: {type: openai}"
    )
    answers = "defaultResponse: Yes.\nselfplay: {curious: {defaultResponse: Why?}}"
    turns = agent_of(users(tmp_path, "x: 1", cast=cast, answers=answers))["turns"]
    assert [turn["user"] for turn in turns] == ["Hi", "Why?", "Why?"]


def test_a_scenario_in_which_nobody_speaks_is_an_error(tmp_path):
    found = users(tmp_path, "scenarios: {}", scenario="turns: [{role: someone, persona: curios, turns: 1}]")
    assert own(found) == {}
    codes = {code for code, _file, _line in told(found)}
    assert codes == {"no_turns", "no_counterpart", "missing_manifest"}


def test_a_role_that_there_is_not_is_told(tmp_path):
    found = read(
        put(
            tmp_path,
            arena_files(
                CAST.replace("users.yaml", "mock-responses.yaml"),
                personas__curious_DOT_yaml=CURIOUS,
                scenario=TURNS + "  - {role: wizard, content: x}\n  - {role: someone}\n",
            ),
        )
    )
    assert messages(found, "not_allowed") == [
        "unknown role `wizard`; the turn is dropped",
        "this turn of the role `someone` has no message: add a `persona`",
    ]
    assert len(told(found)) == 2


def test_turns_of_other_roles_are_left_out(tmp_path):
    scenario = TURNS + "  - {role: assistant, content: No.}\n  - {role: user}\n"
    found = read(put(tmp_path, arena_files(scenario=scenario)))
    assert len(agent_of(found)["turns"]) == 2
    assert [code for code, _file, _line in told(found)] == ["no_counterpart", "missing_key"]


def test_assertions_that_promptkit_alone_has_are_never_judged(tmp_path):
    scenario = """
    turns:
      - role: user
        content: Hi
        assertions:
          - {type: agent_invoked, params: {agent: x}}
          - {type: content_includes, params: {patterns: [x], weight: 3}}
          - {type: content_includes, params: {patterns: [x], min_score: null}}
          - {type: toxicity}
    """
    found = read(put(tmp_path, arena_files(scenario=scenario)))
    assert agent_of(found)["turns"][0]["assertions"] == [
        {
            "type": "agent_invoked",
            "unsupported": "use `tools_called` and `tool_result_includes` with the tools of the agent",
        },
        {"type": "content_includes", "unsupported": "unknown key `weight`"},
        {"type": "content_includes", "params": {"patterns": ["x"]}},
        {"type": "toxicity", "unsupported": "use `llm_judge`"},
    ]
    assert told(found) == [
        ("no_counterpart", "one.scenario.yaml", 12),
        ("unknown_key", "one.scenario.yaml", 13),
        ("no_counterpart", "one.scenario.yaml", 15),
    ]


UNCHECKED = {
    "{type: state_is, params: {state: done}}": "no_counterpart",
    "{type: transitioned_to, params: {state: done}}": "no_counterpart",
    "{type: spoke_in_state, params: {state: done}}": "no_counterpart",
    "{type: pii_leakage}": "no_counterpart",
    "{type: audio_emotion, params: {labels: [calm]}}": "no_counterpart",
    "{type: faithfulness, params: {context: x}}": "no_counterpart",
    "{type: llm_judge, params: {criteria: Good?}}": "no_counterpart",
    "{type: llm_judge, params: {criteria: Good?, judge: strict}}": "no_counterpart",
    "{type: assertion, params: {eval_type: llm_judge, eval_params: {criteria: Good?}, min_score: 1}}": "no_counterpart",
    "{type: assertion, params: {eval_type: pii_leakage, min_score: 1}}": "unknown_assertion",
    "{type: my_own_eval, params: {anything: [1]}}": "unknown_assertion",
    "{type: ''}": "unknown_assertion",
    "{type: tools_called, params: {names: [look_up]}}": "missing_key",
    "{type: tools_called, params: {tool_names: [look_up], min_calls: many}}": "wrong_type",
    "{type: content_includes, params: {patterns: [x], match_mode: most}}": "not_allowed",
    "{type: content_matches, params: {pattern: '(?<=a)b'}}": "invalid_pattern",
    "{type: guardrail_triggered, params: {validator: toxicity}}": "unknown_assertion",
    "{type: content_includes, params: {patterns: [x]}, pass_threshold: 3}": "wrong_value",
    "{type: content_includes, params: {patterns: [x]}, when: {tool_called_pattern: '('}}": "invalid_pattern",
    "{type: workflow_tool_access, params: {rules: [{state: done, allowed: [look_up]}]}}": "",
}
BESIDE = """
turns:
  - role: user
    content: Hi
    assertions:
      - {type: content_includes, params: {patterns: [found]}}
      - %s
"""


@pytest.mark.parametrize("written", sample(UNCHECKED, one_in=2))
async def test_an_assertion_that_can_not_be_checked_is_skipped_and_the_others_are_judged(tmp_path, written):
    files = arena_files(scenario=BESIDE % written)
    async with Runtime.open(put(tmp_path, files), executors=KINDS) as runtime:
        found = [problem for problem in runtime.problems if problem.severity != "notice"]
        (scenario,) = runtime.scenarios
        report = await run_scenario(runtime, scenario)
    assert {problem.severity for problem in found} <= {"warning"}
    if UNCHECKED[written]:
        assert found[0].code == UNCHECKED[written]
        assert (found[0].source.rpartition("/")[2], found[0].line) == ("one.scenario.yaml", 13)
    assert report.verdict == "passed", str(report)
    assert len(report.skipped) == 1
    assert report.skipped[0].found


JUDGED = {
    "{type: llm_judge, params: {criteria: Good?}}": "",
    "{type: llm_judge, params: {criteria: Good?, judge: j}}": "",
    "{type: llm_judge_conversation, params: {criteria: Good?, judge: j, min_score: 0.8}}": "",
    "{type: llm_judge, params: {criteria: Good?, judge: other}}": "unknown key `judge`",
    "{type: llm_judge, params: {criteria: Good?, prompt: strict}}": "unknown key `prompt`",
    "{type: tools_called, params: {tools: [look_up], judge: j}}": "unknown key `judge`",
}


@pytest.mark.parametrize("written", JUDGED)
@pytest.mark.parametrize(
    "judges", ["judges: [{name: j, provider: gpt}]", "judge_specs: {j: {provider: gpt}}"], ids=["list", "map"]
)
def test_the_only_judge_may_be_named(tmp_path, judges, written):
    spec = f"provider_specs: {{gpt: {{id: gpt, type: openai, model: m}}}}\n{judges}"
    (_first, second) = agent(tmp_path, spec, scenario=BESIDE % written)["turns"][0]["assertions"]
    assert second.get("unsupported", "") == JUDGED[written]
    assert "judge" not in second.get("params", {})


async def test_a_run_whose_assertions_are_all_skipped_is_not_judged(tmp_path):
    files = arena_files(scenario=BESIDE.replace("content_includes", "spoke_in_state") % "{type: pii_leakage}")
    async with Runtime.open(put(tmp_path, files), executors=KINDS) as runtime:
        report = await run_scenario(runtime, runtime.scenarios[0])
    assert report.verdict == "not judged"
    assert not report.failed
    assert [each.type for each in report.skipped] == ["spoke_in_state", "pii_leakage"]


@pytest.mark.parametrize(("mode", "verdict"), [("any", "passed"), ("all", "failed")], ids=["any", "all"])
async def test_match_mode_of_content_includes_is_honoured(tmp_path, mode, verdict):
    written = "{type: content_includes, params: {patterns: [nowhere, found], match_mode: MODE}}".replace(
        "MODE", mode
    )
    files = arena_files(scenario=BESIDE % written)
    async with Runtime.open(put(tmp_path, files), executors=KINDS) as runtime:
        report = await run_scenario(runtime, runtime.scenarios[0])
    assert report.verdict == verdict, str(report)


def test_a_local_server_is_reached_as_openai_is(tmp_path):
    files = arena_files(provider="type: ollama\nmodel: llama\nbase_url: http://localhost:11434/")
    del files["mock-responses.yaml"]
    told_of = agent_of(read(put(tmp_path, files)))
    assert (told_of["provider"], told_of["base_url"]) == ("openai", "http://localhost:11434/v1")
