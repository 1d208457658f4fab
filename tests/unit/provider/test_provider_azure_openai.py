"""Azure OpenAI: OpenAI's chat completions at the endpoint of a resource, with a header of its own for the key."""

from __future__ import annotations

from typing import Any

import pytest

from http_servers import answering_json, serving
from served_models import ASKED, events, message, said
from toolcrib.core.errors import ConfigurationError
from toolcrib.provider import ProviderError, open_provider
from toolcrib.security.egress import EgressGuard
from toolcrib.security.secrets import SecretResolver
from toolcrib.servers.environment import NetworkEnvironment

KEY = "azure-0123456789"
HI = {"choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}]}
ENVIRONMENT = {"AZURE_OPENAI_API_KEY": KEY, "OPENAI_API_KEY": "sk-of-openai"}
ELSEWHERE = "https://one.openai.azure.com"


def opened(server: Any, base_url: str, **options: Any) -> Any:
    """A provider whose requests to a resource arrive at the server."""
    world = NetworkEnvironment(
        EgressGuard([f"127.0.0.1:{server.port}"]), SecretResolver(ENVIRONMENT), {ELSEWHERE: server.origin}
    )
    given = {"model": "my gpt", "base_url": base_url, "world": world, "attempts": 1, **options}
    return open_provider("azure_openai", **given)


@pytest.mark.parametrize(
    ("base_url", "target"),
    [
        (ELSEWHERE, "/openai/deployments/my%20gpt/chat/completions?api-version=2024-10-21"),
        (ELSEWHERE + "/", "/openai/deployments/my%20gpt/chat/completions?api-version=2024-10-21"),
        (
            ELSEWHERE + "/gate?api-version=2025-01-01-preview&x=1",
            "/gate/openai/deployments/my%20gpt/chat/completions?api-version=2025-01-01-preview&x=1",
        ),
        (ELSEWHERE + "?x=1", "/openai/deployments/my%20gpt/chat/completions?x=1&api-version=2024-10-21"),
    ],
)
async def test_where_a_deployment_is(base_url, target):
    async with serving(answering_json(HI)) as server:
        provider = opened(server, base_url)
        assert (await message(provider)).text == "Hi."
        await provider.aclose()
    (request,) = server.requests
    assert (request.method, request.target) == ("POST", target)
    assert (request.header("api-key"), request.header("authorization")) == (KEY, None)
    assert request.json["messages"] == [{"role": "user", "content": "hello"}]


async def test_its_answers_stream():
    begun = {"choices": [{"delta": {"content": "Hi."}}]}
    end = {"choices": [{"delta": {}, "finish_reason": "stop"}]}
    async with serving(events(begun, end, "[DONE]")) as server:
        provider = opened(server, ELSEWHERE)
        assert [delta.text for delta in (await said(provider, ASKED))[:1]] == ["Hi."]
        await provider.aclose()
    assert server.requests[0].json["stream"] is True


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"trusted": False}, None),
        ({"trusted": False, "api_key": "${AZURE_OPENAI_API_KEY}"}, KEY),
        ({"api_key": "mine-987654321"}, "mine-987654321"),
    ],
)
async def test_an_address_of_a_document_gets_the_key_that_stands_beside_it(options, key):
    async with serving(answering_json({"error": {"message": f"who are you, {key}?"}}, 401)) as server:
        provider = opened(server, ELSEWHERE, **options)
        with pytest.raises(ProviderError) as raised:
            await said(provider)
        await provider.aclose()
    assert server.requests[0].header("api-key") == key
    assert raised.value.message.startswith(f"Azure OpenAI ({ELSEWHERE}): answered 401")
    assert (key is None) or (key not in raised.value.message)


async def test_the_key_of_openai_is_not_its_own():
    world = NetworkEnvironment(EgressGuard(), SecretResolver({"OPENAI_API_KEY": "sk-of-openai"}))
    provider: Any = open_provider("azure_openai", model="gpt", base_url=ELSEWHERE, world=world)
    with pytest.raises(ProviderError) as raised:
        await said(provider)
    assert raised.value.code == "missing_key"
    assert raised.value.hint == "set `AZURE_OPENAI_API_KEY` to your Azure OpenAI API key"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"model": "gpt"}, "invalid_base_url"),
        ({"model": "gpt", "base_url": "one.openai.azure.com"}, "invalid_base_url"),
        ({"base_url": ELSEWHERE}, "missing_model"),
    ],
)
def test_what_must_be_said(given, code):
    with pytest.raises(ConfigurationError) as raised:
        open_provider("azure_openai", **given)
    assert raised.value.code == code
