"""`toolcrib chat` with one message, and in a pipe."""

from __future__ import annotations

import json

import pytest

from chatting import install
from http_servers import answered_by
from sampling import sample
from served_models import events
from toolcrib.cli import exit_codes
from toolcrib.provider import Conversation, load_transcript

TOOLS = """
name: get_order
description: One order. And more.
input_schema: {type: object, properties: {id: {type: string}, password: {type: string}}}
mock: {result: {id: "{{ args['id'] }}", note: "\\e[31mred"}}
---
name: refund
description: Pays back.
mock: {result: paid}
live: {url: "https://api.example.com/refund", method: POST}
mode: live
---
name: locate
client: {consent: {required: true, message: May I?}}
mode: client
mock: {result: {lat: 1}}
"""
PACK = """
name: shop
version: 1.0.0
prompts:
  assistant:
    system: "You help {{ shop }}, {{ n }} times."
    variables: {shop: {}, n: {type: integer, default: 1}}
    tools: [get_*]
    policy: {max_rounds: 7}
    settings: {temperature: 0.5, top_p: 1}
    guardrails: [{type: banned_words, params: {words: [damn]}, message: Mind your words.}, {type: max_length, params: {max: 12}}]
"""
SCENARIO = """
scenario: order_talk
mocks: {get_order: {result: {id: scripted}}}
agent:
  policy: {deny: [refund]}
  turns:
    - user: Where is it?
      script:
        - {call: get_order, args: {id: "1"}, expect_result: {id: scripted}}
        - {say: "{{ results.get_order.id }}."}
"""


@pytest.fixture
def shop(write, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(install(tmp_path)))
    return write({"shop/pack.yaml": PACK, "shop/tools.yaml": TOOLS, "shop/talk.scenario.yaml": SCENARIO})


@pytest.fixture
def chat(shop, toolcrib):
    """Run a chat over the shop; lines that are given are piped in."""
    return lambda *words, given=None: toolcrib("chat", "shop", "--provider", "echo", *words, given=given)


def test_one_message_is_one_turn(chat):
    result = chat("hello there")
    assert (result.exit_code, result.stdout, result.stderr) == (exit_codes.OK, "hello there\n", "")


def test_calls_are_shown_as_they_happen(chat):
    result = chat('call get_order {"id":"7"}')
    assert result.stdout.splitlines() == [
        "Let me see.",
        "One moment.",
        '* get_order {"id":"7"}',
        '  get_order: ok {"id":"7","note":"\\u001b[31mred"}',
        'call get_order {"id":"7"}',
    ]


def test_calls_of_one_tool_that_are_made_at_once_are_numbered(chat, write):
    write({"shop/slow.tool.yaml": "name: slow\ninput_schema: {}\nmock: {result: 1, latency: 20ms}\n"})
    lines = chat(given="twice slow\ncall slow\n").stdout.splitlines()
    assert lines[1:3] == ['* slow {"id":"1"}', '* slow #2 {"id":"2"}']
    assert sorted(lines[3:5]) == ["  slow #1: ok 1", "  slow #2: ok 1"]
    assert lines[-3:-1] == ["* slow {}", "  slow: ok 1"]


def test_what_comes_from_elsewhere_steers_no_terminal(chat):
    result = chat("a\x1b[31mb")
    assert result.stdout == "a\\x1b[31mb\n"


def test_secrets_are_not_shown(chat):
    result = chat('call get_order {"id":"hunter2","password":"hunter2"}')
    assert '* get_order {"id":"***","password":"***"}' in result.stdout
    shown = [line for line in result.stdout.splitlines() if line.startswith(("*", " "))]
    assert not any("hunter2" in line for line in shown)


@pytest.mark.parametrize(
    ("message", "code", "told"),
    sample(
        [
            ("cut", 20, "the turn ended: length"),
            ("refuse", 15, "the turn ended: refused"),
            ("fail", 21, "overloaded: the model is\n    not well\n"),
            ("call nothing", 0, ""),
        ],
        one_in=2,
    ),
)
def test_the_exit_code_says_why_it_ended(chat, message, code, told):
    result = chat(message)
    assert result.exit_code == code
    assert told in result.stderr


@pytest.mark.parametrize(
    ("reason", "code", "told"),
    [
        (
            "length",
            20,
            "the turn ended: length: the answer was cut off; its calls were not made: `get_order` (c)",
        ),
        ("content_filter", 15, "the turn ended: refused: the answer was refused; its calls were not made: "),
        (None, 21, "answer_cut_off: "),
    ],
)
def test_calls_of_an_answer_that_is_cut_off_are_shown_as_not_made(shop, toolcrib, reason, code, told):
    call = {"index": 0, "id": "c", "function": {"name": "get_order", "arguments": ""}}
    begun = {"choices": [{"delta": {"content": "Let me see.", "tool_calls": [call]}}]}
    end = [{"choices": [{"delta": {}, "finish_reason": reason}]}] if reason else []
    with answered_by(events(begun, *end, "[DONE]")) as server:
        words = ("--provider", "openai", "--model", "m", "--base-url", f"{server.origin}/v1")
        result = toolcrib("chat", "shop", *words, "hello")
    assert (result.exit_code, told in result.stderr) == (code, True)
    said, called, ended = result.stdout.splitlines()
    assert (said, called.strip()) == ("Let me see.", "* get_order {}" if reason else "* get_order")
    assert "not called: the answer that requested it" in ended.replace("`get_order` was ", "")


def test_a_bound_of_the_policy_ends_the_turn(chat, write):
    write({"policy.yaml": "max_rounds: 1\n"})
    result = chat("--policy", "policy.yaml", "call get_order")
    assert (result.exit_code, "the turn ended: max_rounds" in result.stderr) == (20, True)
    write({"policy.yaml": "max_round: 1\nask: x\n"})
    result = chat("--policy", "policy.yaml", "hello")
    assert result.exit_code == exit_codes.USAGE
    assert "policy.yaml:1:1: unknown_key" in result.stderr
    assert "policy.yaml:2:6: wrong_type" in result.stderr


def test_each_line_of_a_pipe_is_a_turn(chat):
    result = chat(given="hello\n\ncount\nfail\nstill here\n")
    assert result.stdout.splitlines() == [
        "> hello",
        "hello",
        "> count",
        "3",
        "> fail",
        "> still here",
        "still here",
    ]
    assert result.exit_code == 21


def test_commands_go_to_nobody(chat):
    result = chat(
        "--price",
        "input=1",
        "--price",
        "output=2",
        given="hello\n/cost\n/toosl\n/help\ncount\n/quit\nnever\n",
    )
    lines = result.stdout.splitlines()
    assert "requests         1" in lines
    assert "cost             0.0000 USD" in lines
    assert "unknown command `/toosl`; did you mean `/tools`?" in lines
    assert {"/tools", "/policy", "/cost", "/help", "/quit"} <= {line.partition(" ")[0] for line in lines}
    assert "3" in lines
    assert lines[-1] == "> /quit"


def test_tools_and_policy_are_listed(chat, write):
    write({"policy.yaml": "deny: [locate]\nask: [refund]\ncooldown: {refund: 5s}\n"})
    lines = chat("--policy", "policy.yaml", given="/tools\n/policy\n").stdout.splitlines()
    assert lines[1:3] == ["get_order  mock        One order.", "refund     live  asks  Pays back."]
    assert '*  deny                  ["locate"]' in lines
    assert '*  cooldown              {"refund":5.0}' in lines
    assert "   max_rounds            50" in lines


def test_a_prompt_gives_text_tools_policy_and_settings(chat):
    words = ("--prompt", "assistant", "--var", "shop=us", "--var", "n=2", "--set", "temperature=0")
    lines = chat(*words, given="system\ntools\nsettings\n/policy\n").stdout.splitlines()
    assert lines[1] == "You help us, 2 times."
    assert lines[3] == "get_order"
    assert lines[5] == "{'temperature': 0, 'top_p': 1}"
    assert "*  max_rounds            7" in lines


def test_a_setting_that_says_two_things_is_refused(chat):
    said = chat("--set", 'metadata={"a": 1, "a": 2}', given="hello\n")
    assert said.exit_code == 2
    assert "duplicate key `a`" in said.stderr


def test_guardrails_that_are_broken_are_told(chat):
    words = ("--prompt", "shop/assistant", "--var", "shop=us")
    assert chat(*words, "damn it").stderr == "guardrail `banned_words`: Mind your words.\n"
    assert chat(*words, "much too long an answer").stderr.startswith("guardrail `max_length`: ")
    assert chat(*words, "fine").stderr == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--prompt", "asistant"), "did you mean `assistant`"),
        (("--prompt", "assistant"), "missing value for `shop`"),
        (("--prompt", "assistant", "--var", "shop"), "is not KEY=VALUE"),
        (("--var", "a=b"), "add `--prompt`"),
        (("--system", "x", "--prompt", "assistant"), "use only one of them"),
        (("--script", "order_talk"), "use both or neither"),
        (("--price", "input=x"), "not a number"),
        (("--price", "inputs=1"), "the kinds are: input, output, cached, cache_writes"),
        (("--mode", "mokc"), "did you mean `mock`?"),
        (("nowhere", "hello"), "path `nowhere` does not exist"),
    ],
)
def test_what_the_command_line_gets_wrong_is_told(chat, words, told):
    result = chat(*words, *(() if "hello" in words else ("hello",)))
    assert (result.exit_code, told in " ".join(result.stderr.split())) == (exit_codes.USAGE, True)


def test_without_a_provider_they_are_listed(shop, toolcrib):
    result = toolcrib("chat", "shop", "hello")
    told = " ".join(result.stderr.split())
    assert (result.exit_code, "Traceback" in told) == (exit_codes.USAGE, False)
    assert (
        "the providers are: `anthropic`, `azure_openai`, `echo`, `openai`, `openai_responses`, and"
        in told.lower()
    )
    assert "`chat: {provider: NAME, model: NAME}`" in told


@pytest.fixture
def project(shop, write):
    """A project that names a provider and its model."""
    write({"toolcrib.yaml": "project: p\nsources: [shop]\nchat: {provider: echo, model: small}\n"})


def test_a_project_names_the_provider_and_the_model(project, toolcrib):
    assert toolcrib("chat", "system").stdout == "none\n"
    assert '"small"' in toolcrib("chat", "--json", "hello").stdout
    assert '"large"' in toolcrib("chat", "--json", "--model", "large", "hello").stdout


def test_the_model_of_a_project_is_not_for_another_provider(project, toolcrib):
    result = toolcrib("chat", "--provider", "openai", "hello")
    assert (result.exit_code, "small" in result.stdout + result.stderr) == (exit_codes.USAGE, False)
    assert "model" in result.stderr


def test_a_project_that_nobody_trusts_chooses_no_provider(project, toolcrib, monkeypatch):
    monkeypatch.setenv("TOOLCRIB_TRUST", "")
    result = toolcrib("chat", "hello")
    assert (result.exit_code, result.stdout) == (15, "")
    assert "provider echo" in result.stderr
    assert "provider echo" in toolcrib("trust", "--dry-run").stdout
    # The person who types it may choose it.
    assert toolcrib("chat", "--provider", "echo", "system").stdout == "none\n"


@pytest.mark.parametrize(
    ("chat", "code"),
    [
        ("{model: m}", "missing_key"),
        ("{provider: echo, base_url: 'http://x.example'}", "unknown_key"),
        ("echo", "wrong_type"),
    ],
)
def test_a_wrong_default_is_a_problem_of_the_project(chat, code, write, document):
    write({"toolcrib.yaml": f"project: p\nsources: []\nchat: {chat}\n"})
    assert [each["code"] for each in document("validate", "--json")["problems"]] == [code]


@pytest.mark.parametrize(
    ("provider", "told"),
    [("scripted", "`--script` and `--provider scripted` need each other"), ("ehco", "did you mean `echo`?")],
)
def test_a_default_that_can_not_be_used_is_told(provider, told, project, write, toolcrib):
    write({"toolcrib.yaml": f"project: p\nsources: [shop]\nchat: {{provider: {provider}}}\n"})
    result = toolcrib("chat", "hello")
    assert (result.exit_code, told in result.stderr) == (exit_codes.USAGE, True)


def test_a_script_needs_no_provider(shop, toolcrib):
    assert toolcrib("chat", "shop", "--script", "order_talk", "Where is it?").exit_code == 0


def test_an_unknown_provider_is_told_with_near_misses(shop, toolcrib):
    result = toolcrib("chat", "shop", "--provider", "ehco", "hello")
    assert (result.exit_code, "did you mean `echo`?" in result.stderr) == (exit_codes.USAGE, True)


def test_a_system_text_instructs_the_model(chat):
    assert chat("system").stdout == "none\n"
    assert chat("--system", "Be brief.", "system").stdout == "Be brief.\n"


def test_a_mode_is_put_in_force(chat):
    assert "refund: ok paid" in chat("--mode", "mock", "call refund").stdout


# Calls that wait.


def test_where_nobody_can_be_asked_calls_that_wait_are_refused(chat, write):
    write({"policy.yaml": "ask: [get_*]\n"})
    result = chat("--policy", "policy.yaml", "call get_order")
    assert result.exit_code == exit_codes.OK
    assert "get_order: denied" in result.stdout
    assert "no user was available to ask" in result.stdout
    assert "locate: denied" in chat("call locate").stdout


def test_some_calls_are_approved_without_asking(chat, write):
    write({"policy.yaml": "ask: [get_*]\n"})
    result = chat(
        "--policy",
        "policy.yaml",
        "--approve",
        "get_*",
        "--approve",
        "locate",
        given="call get_order\ncall locate\n",
    )
    assert "get_order: ok" in result.stdout
    assert 'locate: ok {"lat":1}' in result.stdout


# What is written down.


def test_messages_are_written_down_as_they_come(chat, shop):
    chat("--transcript", "talk.jsonl", given="hello\nfail\n")
    messages = load_transcript(shop / "talk.jsonl")
    assert [(message.role, message.text) for message in messages] == [
        ("user", "hello"),
        ("assistant", "hello"),
        ("user", "fail"),
    ]
    result = chat("--transcript", "no/such/folder/talk.jsonl", "hello")
    assert (result.exit_code, "cannot write the conversation" in result.stderr) == (1, True)


def test_as_json_each_line_is_an_event_and_the_last_the_conversation(chat):
    result = chat("--json", 'call get_order {"password":"hunter2"}')
    *events, last = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert {"user", "reasoning", "text", "call", "call_updated", "turn_ended"} <= {
        event["type"] for event in events
    }
    assert last.pop("type") == "conversation"
    conversation = Conversation.parse(last)
    assert (conversation.text, conversation.calls[0].tool) == (
        'call get_order {"password":"***"}',
        "get_order",
    )
    assert '"hunter2"' not in result.stdout


# Scripts.


def test_a_script_is_played_with_the_mocks_of_its_scenario(shop, toolcrib):
    result = toolcrib("chat", "shop", "--provider", "scripted", "--script", "order_talk", "Where is it?")
    assert result.exit_code == exit_codes.OK
    assert result.stdout.splitlines() == [
        '* get_order {"id":"1"}',
        '  get_order: ok {"id":"scripted"}',
        "scripted.",
    ]
    by_file = toolcrib(
        "chat",
        "shop",
        "--provider",
        "scripted",
        "--script",
        "shop/talk.scenario.yaml",
        given="x\ny\n/tools\n",
    )
    assert "> x" in by_file.stdout
    assert by_file.exit_code == 21
    assert "unscripted" in by_file.stderr
    assert "\n    2 replies belong to other turns\n" in by_file.stderr
    assert all(line.startswith(("unscripted: ", "    ")) for line in by_file.stderr.splitlines())
    assert "refund" not in by_file.stdout.partition("/tools")[2]
    unknown = toolcrib("chat", "shop", "--provider", "scripted", "--script", "order_tlak", "x")
    assert (unknown.exit_code, "did you mean `order_talk`?" in unknown.stderr) == (exit_codes.USAGE, True)


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_what_a_tool_prints_goes_to_stderr(chat, write, form, monkeypatch, tmp_path):
    monkeypatch.setenv("TOOLCRIB_TRUST", "all")
    write(
        {
            "shop/loud.tool.yaml": "name: loud\nmode: python\ninput_schema: {}\npython: {call: 'loud_shop:loud'}\n",
            "modules/loud_shop.py": "def loud() -> int:\n    print('printed in a call')\n    return 1\n",
        }
    )
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    result = chat("call loud", *form)
    assert ("printed in a call" in result.stdout, "printed in a call" in result.stderr) == (False, True)
    lines = result.stdout.splitlines()
    if form:
        assert json.loads(lines[-1])["type"] == "conversation"
    else:
        assert lines[2:] == ["* loud {}", "  loud: ok 1", "call loud"]
