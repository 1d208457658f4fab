"""The providers of an arena are asked where their files say, with the keys that they name, or not at all."""

from __future__ import annotations

import pytest

from arenas import KINDS, agent_of, arena_files, put, read, told
from http_servers import answering_json, serving
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.engine.workspaces import subjects_of_scenario
from toolcrib.scenarios import run_scenario, runs_of

ONE = "turns: [{role: user, content: Hi}]"
AZURE = "platform: {type: azure, endpoint: 'https://one.openai.azure.com/'"
ENDPOINT = "https://one.openai.azure.com"
HI = answering_json({"choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}]})
KEYS = {
    "OPENAI_API_KEY": "sk-of-openai-123",
    "ANTHROPIC_API_KEY": "sk-of-anthropic-123",
    "AZURE_OPENAI_API_KEY": "of-azure-123456",
    "TEAM_KEY": "of-the-team-123",
}


def asked(tmp_path, provider, spec=""):
    """What is read of an arena whose one provider is a model."""
    files = arena_files(spec, scenario=ONE, provider=provider)
    del files["mock-responses.yaml"]
    return read(put(tmp_path, files))


@pytest.mark.parametrize(
    ("provider", "expected"),
    [
        (
            f"type: openai\nmodel: gpt\n{AZURE}}}",
            ("azure_openai", "gpt", ENDPOINT, "${AZURE_OPENAI_API_KEY}"),
        ),
        (
            f"type: openai\nmodel: gpt\n{AZURE}, additional_config: {{api_version: 2025-01-01, deployment: d}}}}",
            ("azure_openai", "d", f"{ENDPOINT}?api-version=2025-01-01", "${AZURE_OPENAI_API_KEY}"),
        ),
        (
            f"type: openai\nmodel: gpt\n{AZURE.replace('azure,', 'Azure,')}}}\ncredential: {{credential_env: TEAM_KEY}}",
            ("azure_openai", "gpt", ENDPOINT, "${TEAM_KEY}"),
        ),
        (
            "type: claude\nmodel: haiku\ncredential: {credential_env: TEAM_KEY}",
            ("anthropic", "haiku", None, "${TEAM_KEY}"),
        ),
        (
            "type: openai\nmodel: gpt\nbase_url: https://gate.example/v1\ncredential: {credential_file: /run/key}",
            ("openai", "gpt", "https://gate.example/v1", "${file:/run/key}"),
        ),
        (
            "type: openai\nmodel: gpt\ncredential: {api_key: '${TEAM_KEY}', credential_env: OTHER}",
            ("openai", "gpt", None, "${TEAM_KEY}"),
        ),
        (
            "type: ollama\nmodel: llama\nbase_url: http://localhost:11434",
            ("openai", "llama", "http://localhost:11434/v1", None),
        ),
        ("type: openai\nmodel: gpt\nplatform: {}\nheaders: {}", ("openai", "gpt", None, None)),
    ],
)
def test_where_a_provider_is_asked_and_with_which_key(tmp_path, provider, expected):
    found = asked(tmp_path, provider)
    assert told(found) == []
    agent = agent_of(found)
    assert tuple(agent.get(key) for key in ("provider", "model", "base_url", "api_key")) == expected


@pytest.mark.parametrize(
    ("provider", "line", "hint"),
    [
        ("type: claude\nmodel: m\nplatform: {type: bedrock, region: us-west-2}", 9, "base_url: https://"),
        ("type: claude\nmodel: m\nplatform: {type: vertex, project: p}", 9, "credential_env: GATEWAY_KEY"),
        ("type: openai\nmodel: m\nplatform: {type: bedrock}", 9, "base_url: https://"),
        ("type: openai\nmodel: m\nplatform: {type: watson}", 9, "base_url: https://"),
        ("type: openai\nmodel: m\nplatform: {endpoint: 'https://x.example'}", 9, "base_url: https://"),
        (f"type: claude\nmodel: m\n{AZURE}}}", 9, "base_url: https://"),
        (f"type: vllm\nmodel: m\n{AZURE}}}", 9, "base_url: https://"),
        (
            "type: claude\nmodel: m\nbase_url: https://api.anthropic.com\nplatform: {type: bedrock}",
            10,
            "replace `platform` by the address of a compatible gateway",
        ),
        ("type: openai\nmodel: m\nplatform: {type: azure}", 9, "add `endpoint: https://"),
        (
            f"type: openai\nmodel: m\nbase_url: https://x.example\n{AZURE}}}",
            9,
            "remove `base_url` or `platform`",
        ),
        (
            "type: openai\nmodel: m\nplatform: {type: azure, endpoint: x.openai.azure.com}",
            9,
            "use `endpoint: https://",
        ),
        ("type: openai\nmodel: m\nplatfrom: {type: azure}", 9, "did you mean `platform`?"),
        ("type: openai\nmodel: m\nbase_ur: https://x.example", 9, "did you mean `base_url`?"),
        ("type: ollama\nmodel: m", 7, "base_url: http://localhost:11434"),
        ("type: vllm\nmodel: m", 7, "base_url: http://localhost:8000"),
        ("type: openai\nmodel: m\ncredential: {api_key: sk-canary-12345}", 9, "credential_env: MY_KEY"),
        ("type: openai\nmodel: m\ncredential: {credential_file: key.txt}", 9, "credential_env: MY_KEY"),
        ("type: openai\nmodel: m\ncredential: {credential_file: '/run/a}b'}", 9, "credential_env: MY_KEY"),
        ("type: openai\nmodel: m\ncredential: {credential_env: 'MY KEY'}", 9, "credential_env: MY_KEY"),
        (
            "type: openai\nmodel: m\nheaders: {Authorization: Bearer x}",
            9,
            "remove them, or let a gateway add them",
        ),
        (
            "type: openai\nmodel: m\nadditional_config: {endpoint: 'https://x.example'}",
            9,
            "use `base_url`, `credential` or `platform` instead",
        ),
        (
            "type: openai\nmodel: m\nadditional_config: {api_key: sk-canary-12345}",
            9,
            "use `base_url`, `credential` or `platform` instead",
        ),
    ],
)
def test_a_provider_that_can_not_be_asked_as_its_file_says_is_refused(tmp_path, provider, line, hint):
    found = asked(tmp_path, provider)
    assert agent_of(found)["provider"] == "none"
    (problem,) = (each for each in found.problems if each.severity == "error")
    assert told(found, "error") == [("unsupported_provider", "mock.yaml", line)]
    assert hint in problem.hint
    assert "sk-canary" not in "".join(map(str, found.problems))


def test_everything_that_is_against_a_provider_is_told_at_once(tmp_path):
    provider = (
        "type: claude\nmodel: m\nplatform: {type: bedrock}\nheaders: {X-Account: a}\ncredential: {api_key: x}"
    )
    assert told(asked(tmp_path, provider)) == [
        ("unsupported_provider", "mock.yaml", line) for line in (9, 11, 10)
    ]


def test_another_provider_of_the_scenario_answers_and_the_refused_one_is_a_warning(tmp_path):
    spec = "provider_specs: {second: {type: openai, model: gpt}}"
    found = asked(tmp_path, "type: claude\nmodel: m\nplatform: {type: bedrock}", spec)
    assert told(found) == [("unsupported_provider", "mock.yaml", 9)]
    assert told(found, "error") == []
    assert (agent_of(found)["provider"], agent_of(found)["model"]) == ("openai", "gpt")


def test_a_scripted_scenario_does_not_mind_where_its_models_are(tmp_path):
    provider = "type: claude\nmodel: m\nplatform: {type: bedrock}"
    found = read(put(tmp_path, arena_files(scenario=ONE, provider=provider)))
    assert told(found) == []
    assert "script" in agent_of(found)
    (problem,) = (problem for problem in found.problems if problem.code == "one_provider")
    assert problem.hint == ""


@pytest.mark.parametrize(
    ("provider", "way"),
    [
        (
            "type: ollama\nmodel: llama\nbase_url: http://localhost:11434/",
            "--provider openai --model llama --base-url http://localhost:11434/v1",
        ),
        (
            f"type: openai\nmodel: gpt\n{AZURE}}}",
            f"--provider azure_openai --model gpt --base-url {ENDPOINT}",
        ),
    ],
)
def test_the_way_to_a_model_leads_to_its_own_address(tmp_path, provider, way):
    found = read(put(tmp_path, arena_files(scenario=ONE, provider=provider)))
    (problem,) = (problem for problem in found.problems if problem.code == "one_provider")
    assert problem.hint == f"`toolcrib run {way}` uses `mock`"


JUDGED = """
provider_specs:
  strict: {type: openai, model: gpt, %s}
judges: [{name: j, provider: strict, model: judge-1}]
"""


def test_a_judge_is_asked_where_its_provider_is(tmp_path):
    found = read(put(tmp_path, arena_files(JUDGED % f"{AZURE}}}", scenario=ONE)))
    assert agent_of(found)["judge"] == {
        "provider": "azure_openai",
        "model": "judge-1",
        "base_url": ENDPOINT,
        "api_key": "${AZURE_OPENAI_API_KEY}",
    }


def test_a_judge_that_can_not_be_asked_as_its_file_says_is_none(tmp_path):
    found = read(put(tmp_path, arena_files(JUDGED % "platform: {type: bedrock}", scenario=ONE)))
    assert told(found, "warning") == [("unsupported_provider", "config.arena.yaml", 11)]
    assert "judge" not in agent_of(found)


def test_trust_is_asked_for_the_resource_and_its_key(tmp_path):
    found = asked(tmp_path, f"type: openai\nmodel: gpt\n{AZURE}}}")
    needs = [
        (need.kind, need.what, need.to)
        for subject in subjects_of_scenario(found.scenarios[0])
        for need in subject.needs(None)
    ]
    assert needs == [
        ("contact", ENDPOINT, ""),
        ("read", "${AZURE_OPENAI_API_KEY}", ENDPOINT),
    ]


@pytest.mark.parametrize(
    ("more", "key"),
    [("", KEYS["AZURE_OPENAI_API_KEY"]), ("\ncredential: {credential_env: TEAM_KEY}", KEYS["TEAM_KEY"])],
)
async def test_a_conversation_goes_to_the_resource_and_to_nobody_else(tmp_path, monkeypatch, more, key):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    found = asked(tmp_path, f"type: openai\nmodel: gpt\n{AZURE}}}{more}")
    async with serving(HI) as resource, serving(HI) as vendor:
        runtime = loaded_runtime(
            found,
            executors=KINDS,
            egress=[f"127.0.0.1:{resource.port}", f"127.0.0.1:{vendor.port}"],
            origins={ENDPOINT: resource.origin, "https://api.openai.com": vendor.origin},
        )
        async with runtime:
            (scenario,) = runs_of(runtime.scenarios[0])
            report = await run_scenario(runtime, scenario)
    assert (report.passed, str(report)) == (True, "passed one")
    assert vendor.requests == []
    (request,) = resource.requests
    assert request.target == "/openai/deployments/gpt/chat/completions?api-version=2024-10-21"
    assert (request.header("api-key"), request.header("authorization")) == (key, None)
