"""Providers by name."""

from __future__ import annotations

from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

import pytest

from toolcrib.egress import Guard
from toolcrib.errors import ConfigurationError
from toolcrib.interop.declaring import DIALECTS
from toolcrib.provider.anthropic import Anthropic
from toolcrib.provider.installed import open_provider, provider_names, reaching
from toolcrib.provider.openai_chat import OpenAIChat
from toolcrib.provider.openai_responses import OpenAIResponses
from toolcrib.vault import Vault
from toolcrib.world import World


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
    with pytest.raises(ConfigurationError, match="no provider is called `opnai`") as raised:
        open_provider("opnai", model="m")
    assert (raised.value.code, raised.value.hint) == ("unknown_provider", "did you mean `openai`?")
    with pytest.raises(ConfigurationError) as raised:
        open_provider("xyz")
    assert raised.value.hint == "there are `anthropic`, `openai`, `openai_responses`"


def test_no_model() -> None:
    with pytest.raises(ConfigurationError, match="no model of OpenAI is named") as raised:
        open_provider("openai")
    assert raised.value.code == "missing_model"


def test_options_that_are_not_there() -> None:
    with pytest.raises(ConfigurationError, match="`openai` has no options `hedaers`, `zzz`") as raised:
        open_provider("openai", model="m", hedaers={}, zzz=1, strict=True)
    assert (raised.value.code, raised.value.hint) == ("unknown_option", "did you mean `headers`?")
    with pytest.raises(ConfigurationError, match="`anthropic` has no option `strict`") as raised:
        open_provider("anthropic", model="m", strict=True)
    assert raised.value.hint == "there are `attempts`, `headers`, `timeout`"


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
    assert provider_names() == ["anthropic", "openai", "openai_responses", "parrot"]
    with pytest.raises(ConfigurationError, match="no option `feather`"):
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
    world = World(Guard(), Vault({}))
    assert (reaching(world, url) is not world) == allowed
