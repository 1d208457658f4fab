"""Keys of providers that scenarios name: a document gets none that it does not ask for."""

from __future__ import annotations

import pytest

from http_servers import Server, answering_json, serving
from in_memory import loaded
from toolcrib.cli.run_plan import ModelOverride
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.scenarios import run_scenario, runs_of

KINDS = Executors({"mock": MockExecutor})
CANARY, OWN = "sk-canary-1234567890", "sk-mine-0987654321"
ELSEWHERE = "https://models.example"
NOBODY = ModelOverride()
REFUSED = answering_json({"error": {"message": "Who are you?"}}, 401)


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setenv("MY_KEY", OWN)


async def reported(server: Server, agent: str, speaker: ModelOverride = NOBODY) -> str:
    text = f"scenario: s\nagent: {{provider: openai, model: m, {agent}turns: [{{user: hi}}]}}\n"
    places = {"https://api.openai.com": server.origin, ELSEWHERE: server.origin}
    runtime = loaded_runtime(
        loaded(text, executors=KINDS),
        executors=KINDS,
        egress=[f"127.0.0.1:{server.port}"],
        origins=places,
    )
    async with runtime:
        (scenario,) = runs_of(speaker.of(runtime.scenarios[0]))
        return str(await run_scenario(runtime, scenario))


@pytest.mark.parametrize(
    ("agent", "speaker", "key"),
    [
        ("", NOBODY, CANARY),
        (f"base_url: '{ELSEWHERE}/v1', ", NOBODY, None),
        (f"base_url: '{ELSEWHERE}/v1', api_key: '${{MY_KEY}}', ", NOBODY, OWN),
        (f"base_url: '{ELSEWHERE}/v1', ", ModelOverride(base_url=ELSEWHERE), CANARY),
        ("api_key: '${MY_KEY}', ", ModelOverride(base_url=ELSEWHERE), CANARY),
    ],
)
async def test_which_key_is_sent_where(agent, speaker, key):
    async with serving(REFUSED) as server:
        told = await reported(server, agent, speaker)
    assert server.requests[0].header("authorization") == (None if key is None else f"Bearer {key}")
    assert "answered 401: Who are you?" in told
    assert ("add `api_key: ${MY_KEY}` next to `base_url`" in told) is (key is None)
    assert CANARY not in told
    assert OWN not in told


async def test_the_key_of_a_judge():
    answer = {"choices": [{"message": {"content": "Hi."}}]}
    judged = "assertions: [{type: llm_judge, params: {criteria: kind}}], "
    for judge, key in (("", None), ("api_key: '${MY_KEY}', ", OWN)):
        agent = f"judge: {{provider: openai, model: j, {judge}base_url: '{ELSEWHERE}/v1'}}, {judged}"
        async with serving(answering_json(answer)) as server:
            await reported(server, agent)
        sent = [request.header("authorization") for request in server.requests]
        assert sent == [f"Bearer {CANARY}", key and f"Bearer {key}"]


@pytest.mark.parametrize(
    ("agent", "told"),
    [
        ("api_key: sk-1", ("literal_secret", "/agent/api_key")),
        ("api_key: '${MY KEY}'", ("bad_variable", "/agent/api_key")),
        ("judge: {provider: openai, api_key: sk-1}", ("literal_secret", "/agent/judge/api_key")),
        ("api_key: '${MY_KEY}'", None),
    ],
)
def test_how_a_key_is_written(agent, told):
    text = f"scenario: s\nagent: {{provider: openai, {agent}, turns: [{{user: hi}}]}}\n"
    problems = loaded(text, executors=KINDS).problems
    assert [(problem.code, problem.pointer) for problem in problems] == ([told] if told else [])
