"""The service behind a provider of an arena: where its requests go, and with whose key.

A provider is asked only if all that its file says of this is honoured. Whatever is not is a reason to refuse it: the
conversation would go to somebody else, or be charged to somebody else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import quote

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.formats.promptkit.document_schemas import MANIFESTS
from toolcrib.formats.promptkit.source_nodes import Made, Node, made
from toolcrib.loading.documents.positions import clipped
from toolcrib.security.redaction import is_secret_name

MODELS: Final[Mapping[str, str]] = {
    "openai": "openai",
    "claude": "anthropic",
    "anthropic": "anthropic",
    "ollama": "openai",
    "vllm": "openai",
}
"""Type of a provider -> ours. Those that speak as OpenAI does are reached by their address."""

_LOCAL: Final[Mapping[str, str]] = {"ollama": "http://localhost:11434", "vllm": "http://localhost:8000"}
"""Types that have no service of their own -> an address of one. It is that of the server, and not of its API."""

_AZURE: Final = "azure"
_AZURE_KEY: Final = "${AZURE_OPENAI_API_KEY}"

_DIRECTIONS: Final = frozenset(
    {
        "api_base",
        "api_version",
        "base_url",
        "deployment",
        "endpoint",
        "host",
        "location",
        "organization",
        "project",
        "proxy",
        "region",
        "url",
    }
)
"""Keys of `additional_config` that say where or on whose account a service is asked; so do all that are secret."""

_WAYS: Final = ("base_url", "credential", "platform")
"""Keys that say where a service is asked, and with which key."""

_ADDRESS: Final = re.compile(r"https?://[^/?#\s]+\S*")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHOLE_PATH: Final = re.compile(r"~?/[^{}:]+")


def reasons_against(spec: Node) -> list[Problem]:
    """Why a provider of models can't be asked as its file says; nothing if it can."""
    return [*_platform(spec), *_credential(spec.part("credential")), *_elsewhere(spec)]


def service_of(spec: Node) -> dict[str, Made | None]:
    """What an agent says of its provider, against which there is no reason: `provider, model, base_url, api_key`."""
    type_, model, address = spec.part("type"), spec.part("model"), spec.part("base_url")
    platform, credential = spec.part("platform"), spec.part("credential")
    provider, key = MODELS[type_.text], _key(credential)
    where = address.text.rstrip("/")
    if where and type_.text in _LOCAL and not where.endswith("/v1"):
        where += "/v1"
    if platform.value:
        provider, address, credential = "azure_openai", platform.part("endpoint"), credential or platform
        version, deployment = (
            platform.part("additional_config", name) for name in ("api_version", "deployment")
        )
        where = address.text.rstrip("/")
        if version.text:
            where += f"{'&' if '?' in where else '?'}api-version={quote(version.text)}"
        model, key = (deployment if deployment.text else model), key or _AZURE_KEY
    return {
        "provider": made(provider, type_),
        "model": made(model.text, model) if model.text else None,
        "base_url": made(where, address) if where else None,
        "api_key": made(key, credential) if key else None,
    }


def _key(credential: Node) -> str:
    """The first key that a credential names, as PromptKit takes them; empty for none."""
    key, file, variable = (
        credential.part(name).text for name in ("api_key", "credential_file", "credential_env")
    )
    return key or (f"${{file:{file}}}" if file else "") or (f"${{{variable}}}" if variable else "")


def _platform(spec: Node) -> Iterator[Problem]:
    """What of the platform can't be: Azure OpenAI is reached, and no other one."""
    platform, type_, address = spec.part("platform"), spec.part("type").text, spec.part("base_url")
    if not platform.value:
        if type_ in _LOCAL and not address.text:
            message = f"`{type_}` has no address of its own, and there is no `base_url`"
            hint = f"write where the server is: `base_url: {_LOCAL[type_]}`"
            yield _reason(spec.part("type"), message, hint)
        return
    name, endpoint = platform.part("type"), platform.part("endpoint")
    if name.text.lower() != _AZURE or MODELS[type_] != "openai" or type_ in _LOCAL:
        what = f"`{name.text}`" if name.text else "a platform without `type`"
        message = f"`{type_}` on {what} can't be asked: Azure OpenAI is the only supported platform"
        hint = (
            "write the address of a compatible gateway and its own key in place of `platform`: "
            "`base_url: https://gateway.example/v1` and `credential: {credential_env: GATEWAY_KEY}`"
        )
        yield _reason(name or platform, message, hint)
    elif not endpoint.text:
        message = "the platform `azure` has no `endpoint`: Azure OpenAI is reached at the address of one's own resource"
        yield _reason(platform, message, "write `endpoint: https://NAME.openai.azure.com`")
    elif not _ADDRESS.fullmatch(endpoint.text):
        message = f"`{clipped(endpoint.text)}` is not the address of a resource"
        yield _reason(endpoint, message, "write `endpoint: https://NAME.openai.azure.com`")
    elif address.text:
        message = "`base_url` and the `endpoint` of the platform name two addresses"
        yield _reason(address, message, "leave `base_url` out, or `platform`")


def _credential(credential: Node) -> Iterator[Problem]:
    """What of the credential can't be looked up."""
    key, file, variable = (credential.part(name) for name in ("api_key", "credential_file", "credential_env"))
    hint = "put the key into a variable of the environment, and write `credential_env: MY_KEY`"
    if key.text and "${" not in key.text:
        yield _reason(key, "the key is written in the file, where everybody who reads it knows it", hint)
    elif not key.text and file.text and not _WHOLE_PATH.fullmatch(file.text):
        yield _reason(
            file, "the file of the key is not named by its whole path, without braces and colons", hint
        )
    elif not (key.text or file.text) and variable.text and not _VARIABLE.fullmatch(variable.text):
        yield _reason(variable, "`credential_env` is no name of a variable", hint)


def _elsewhere(spec: Node) -> Iterator[Problem]:
    """What else says where requests go, or for whom, and is not sent."""
    headers = spec.part("headers")
    if headers.value:
        message = "`headers` are not sent, and may say where requests go and on whose account"
        hint = "leave them out, or have a gateway add them and write its address as `base_url`"
        yield _reason(headers, message, hint)
    for name, node in spec.entries():
        hint = (
            did_you_mean(name, _WAYS)
            if name not in MANIFESTS["Provider"]["properties"]["spec"]["properties"]
            else ""
        )
        if hint:
            message = f"`{clipped(name)}` is no key of a provider, and may say where requests go"
            yield _reason(node, message, hint)
    for name, node in spec.part("additional_config").entries():
        if name in _DIRECTIONS or is_secret_name(name):
            message = f"`{name}` says where requests go or on whose account, and is not read"
            hint = "write `base_url`, `credential` or `platform` instead"
            yield _reason(node, message, hint)


def _reason(node: Node, message: str, hint: str) -> Problem:
    return node.problem("unsupported_provider", message, hint)
