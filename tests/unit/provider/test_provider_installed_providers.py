"""Providers by name."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from http_servers import answering_json, serving
from served_models import said, speaking
from toolcrib.core.errors import ConfigurationError
from toolcrib.formats.providers import DIALECTS
from toolcrib.provider import ProviderError
from toolcrib.provider.models.anthropic import Anthropic
from toolcrib.provider.models.installed_providers import allow_base_url, open_provider, provider_names
from toolcrib.provider.models.openai import OpenAIChat, OpenAIResponses
from toolcrib.security.egress import EgressGuard
from toolcrib.security.secrets import SecretResolver
from toolcrib.servers.environment import NetworkEnvironment


@pytest.mark.parametrize(
    ("name", "options", "kind", "dialect"),
    [
        ("openai", {}, OpenAIChat, "openai"),
        ("openai", {"strict": True}, OpenAIChat, "openai_strict"),
        ("openai_responses", {}, OpenAIResponses, "openai_responses"),
        ("openai_responses", {"strict": True}, OpenAIResponses, "openai_responses_strict"),
        ("anthropic", {}, Anthropic, "anthropic"),
    ],
)
def test_what_comes_along(name: str, options: dict[str, Any], kind: type, dialect: str) -> None:
    provider: Any = open_provider(name, model="m", **options)
    assert type(provider) is kind
    assert provider.dialect == dialect
    assert dialect in DIALECTS


def test_names_that_are_not_there() -> None:
    with pytest.raises(ConfigurationError, match="unknown provider `opnai`") as raised:
        open_provider("opnai", model="m")
    assert (raised.value.code, raised.value.hint) == ("unknown_provider", "did you mean `openai`?")
    with pytest.raises(ConfigurationError) as raised:
        open_provider("xyz")
    assert raised.value.hint == "known providers: `anthropic`, `azure_openai`, `openai`, `openai_responses`"


def test_no_model() -> None:
    with pytest.raises(ConfigurationError, match="missing `model` for OpenAI") as raised:
        open_provider("openai")
    assert raised.value.code == "missing_model"


def test_options_that_are_not_there() -> None:
    with pytest.raises(
        ConfigurationError, match="unknown options `hedaers`, `zzz` for the provider `openai`"
    ) as raised:
        open_provider("openai", model="m", hedaers={}, zzz=1, strict=True)
    assert (raised.value.code, raised.value.hint) == ("unknown_option", "did you mean `headers`?")
    with pytest.raises(
        ConfigurationError, match="unknown option `strict` for the provider `anthropic`"
    ) as raised:
        open_provider("anthropic", model="m", strict=True)
    assert raised.value.hint == "known options: `attempts`, `headers`, `timeout`"


class Parrot:
    """What a distribution may offer."""

    def __init__(
        self, *, model: str, base_url: str, api_key: str | None, world: Any, clock: Any, feathers: int = 0
    ):
        self.given = (model, base_url, api_key, world, clock, feathers)


def test_what_distributions_offer(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("parrot", f"{__name__}:Parrot", "toolcrib.providers")
    monkeypatch.setattr(EntryPoint, "load", lambda _self: Parrot)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: EntryPoints([point]))
    provider: Any = open_provider("parrot", model="m", feathers=3)
    assert provider.given == ("m", "", None, None, None, 3)
    assert provider_names() == ["anthropic", "azure_openai", "openai", "openai_responses", "parrot"]
    with pytest.raises(ConfigurationError, match="unknown option `feather`"):
        open_provider("parrot", feather=3)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("http://127.0.0.1:4010/v1", True),
        ("http://localhost:4010/v1", True),
        ("http://[::1]:4010", True),
        ("http://10.0.0.7:4010/v1", True),
        ("http://169.254.169.254/v1", False),
        ("https://models.internal/v1", False),
        ("nonsense", False),
    ],
)
def test_what_an_operator_names_may_be_reached(url: str, allowed: bool) -> None:
    world = NetworkEnvironment(EgressGuard(), SecretResolver({}))
    assert (allow_base_url(world, url) is not world) == allowed


KEY = "sk-canary-1234567890"


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("", True),
        ("https://api.openai.com/v1", True),
        ("HTTPS://API.OPENAI.COM:443", True),
        ("http://api.openai.com/v1", False),
        ("https://api.openai.com.evil.example/v1", False),
        ("https://evil.example/https://api.openai.com/v1", False),
    ],
)
async def test_the_key_of_the_environment_is_not_for_addresses_of_documents(url: str, sent: bool) -> None:
    async with serving(answering_json({"error": {"message": "no"}}, 401)) as server:
        names = ("https://api.openai.com", "http://api.openai.com", "https://evil.example")
        meant = dict.fromkeys([*names, "https://api.openai.com.evil.example"], server.origin)
        world = NetworkEnvironment(
            EgressGuard([f"127.0.0.1:{server.port}"]),
            SecretResolver({"OPENAI_API_KEY": KEY, "MINE": "m" * 20}),
            meant,
        )
        hints = []
        for options in ({"trusted": False}, {"trusted": True}, {"trusted": False, "api_key": "${MINE}"}):
            provider: Any = open_provider(
                "openai", model="m", base_url=url, world=world, attempts=1, **options
            )
            with pytest.raises(ProviderError) as raised:
                await said(provider)
            hints.append(raised.value.hint)
            await provider.aclose()
    untrusted, trusted, given = [request.header("authorization") for request in server.requests]
    assert (untrusted, trusted, given) == (
        f"Bearer {KEY}" if sent else None,
        f"Bearer {KEY}",
        "Bearer " + "m" * 20,
    )
    assert ("add `api_key: ${MY_KEY}` next to `base_url`" in hints[0]) is not sent
    assert hints[1:] == ["check the key in `OPENAI_API_KEY`", "check its `api_key`"]


async def test_a_document_may_have_this_machine_asked_with_the_key_of_the_environment() -> None:
    hi = {"choices": [{"message": {"content": "Hi."}}]}
    async with speaking("openai", answering_json(hi), environment={"OPENAI_API_KEY": KEY}, trusted=False) as (
        provider,
        server,
    ):
        await said(provider)
        assert server.requests[0].header("authorization") == f"Bearer {KEY}"
