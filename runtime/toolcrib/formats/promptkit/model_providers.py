"""Choose the provider of an arena that answers for the agent: a mock with its responses, else a model and its service.

A provider is used only if everything that its file says about the service is supported: where requests are
sent, and with whose key. Otherwise it is refused, because the conversation could be sent to a third party or
charged to another account.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final, NamedTuple
from urllib.parse import quote

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.pointers import keys_of
from toolcrib.formats.promptkit.document_schemas import MANIFESTS, PRICES
from toolcrib.formats.promptkit.library import ArenaLibrary
from toolcrib.formats.promptkit.source_nodes import PlacedValue, SourceNode, place_object, place_value
from toolcrib.loading.documents.positions import excerpt
from toolcrib.loading.scenarios.model import NO_PROVIDER
from toolcrib.security.redaction import is_secret_name

MODELS: Final[Mapping[str, str]] = {
    "openai": "openai",
    "claude": "anthropic",
    "anthropic": "anthropic",
    "ollama": "openai",
    "vllm": "openai",
}
"""Type of a provider -> our provider. Services that are compatible with OpenAI are reached by `base_url`."""

_LOCAL: Final[Mapping[str, str]] = {"ollama": "http://localhost:11434", "vllm": "http://localhost:8000"}
"""Types of local servers -> their usual address (of the server, without the path of the API)."""

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
"""Keys of `additional_config` that select a service or an account. Secret names count as well."""

_WAYS: Final = ("base_url", "credential", "platform")
"""Keys that select a service and its API key."""

_ADDRESS: Final = re.compile(r"https?://[^/?#\s]+\S*")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHOLE_PATH: Final = re.compile(r"~?/[^{}:]+")


def unusable_reasons(spec: SourceNode) -> list[Problem]:
    """The reasons why a provider cannot be used as its file says; empty if it can."""
    return [*_platform(spec), *_credential(spec.part("credential")), *_elsewhere(spec)]


def service_of(spec: SourceNode) -> dict[str, PlacedValue | None]:
    """The keys of an agent for a usable provider: `provider, model, base_url, api_key`."""
    type_, model, address = spec.part("type"), spec.part("model"), spec.part("base_url")
    platform, credential = spec.part("platform"), spec.part("credential")
    provider, key = MODELS[type_.text], _key(credential)
    where = address.text.rstrip("/")
    # PromptKit adds the path of the API itself.
    if where and type_.text in _LOCAL and not where.endswith("/v1"):
        where += "/v1"
    if platform.value:
        provider, address, credential = "azure_openai", platform.part("endpoint"), credential or platform
        version, deployment = (
            platform.part("additional_config", name) for name in ("api_version", "deployment")
        )
        where = address.text.rstrip("/")
        if version.text:
            # Azure routes by deployment and requires `api-version` in the query.
            where += f"{'&' if '?' in where else '?'}api-version={quote(version.text)}"
        model, key = (deployment if deployment.text else model), key or _AZURE_KEY
    return {
        "provider": place_value(provider, type_),
        "model": place_value(model.text, model) if model.text else None,
        "base_url": place_value(where, address) if where else None,
        "api_key": place_value(key, credential) if key else None,
    }


def _key(credential: SourceNode) -> str:
    """The key of a credential, in PromptKit's order of precedence; empty for none."""
    key, file, variable = (
        credential.part(name).text for name in ("api_key", "credential_file", "credential_env")
    )
    return key or (f"${{file:{file}}}" if file else "") or (f"${{{variable}}}" if variable else "")


def _platform(spec: SourceNode) -> Iterator[Problem]:
    """Problems of the platform: only Azure OpenAI is supported."""
    platform, type_, address = spec.part("platform"), spec.part("type").text, spec.part("base_url")
    if not platform.value:
        if type_ in _LOCAL and not address.text:
            message = f"missing `base_url`: `{type_}` has no default address"
            hint = f"add the address of the server: `base_url: {_LOCAL[type_]}`"
            yield _reason(spec.part("type"), message, hint)
        return
    name, endpoint = platform.part("type"), platform.part("endpoint")
    if name.text.lower() != _AZURE or MODELS[type_] != "openai" or type_ in _LOCAL:
        what = f"`{name.text}`" if name.text else "a platform without `type`"
        message = f"`{type_}` on {what} is not supported; the only supported platform is Azure OpenAI"
        hint = (
            "replace `platform` by the address of a compatible gateway and its key: "
            "`base_url: https://gateway.example/v1` and `credential: {credential_env: GATEWAY_KEY}`"
        )
        yield _reason(name or platform, message, hint)
    elif not endpoint.text:
        message = (
            "missing `endpoint` of the platform `azure`: every Azure OpenAI resource has its own address"
        )
        yield _reason(platform, message, "add `endpoint: https://NAME.openai.azure.com`")
    elif not _ADDRESS.fullmatch(endpoint.text):
        message = f"`{excerpt(endpoint.text)}` is not a valid URL of a resource"
        yield _reason(endpoint, message, "use `endpoint: https://NAME.openai.azure.com`")
    elif address.text:
        message = "`base_url` contradicts `endpoint` of the platform"
        yield _reason(address, message, "remove `base_url` or `platform`")


def _credential(credential: SourceNode) -> Iterator[Problem]:
    """Problems of a credential that cannot be resolved."""
    key, file, variable = (credential.part(name) for name in ("api_key", "credential_file", "credential_env"))
    hint = "store the key in an environment variable, and use `credential_env: MY_KEY`"
    if key.text and "${" not in key.text:
        yield _reason(key, "the key is stored in the file, where every reader can see it", hint)
    elif not key.text and file.text and not _WHOLE_PATH.fullmatch(file.text):
        yield _reason(file, "`credential_file` must be an absolute path without braces and colons", hint)
    elif not (key.text or file.text) and variable.text and not _VARIABLE.fullmatch(variable.text):
        yield _reason(variable, "`credential_env` is not a valid name of a variable", hint)


def _elsewhere(spec: SourceNode) -> Iterator[Problem]:
    """Problems of other keys that select a service or an account, and that are not supported."""
    headers = spec.part("headers")
    if headers.value:
        message = "`headers` are not supported, but may select a service or an account"
        hint = "remove them, or let a gateway add them and use its address as `base_url`"
        yield _reason(headers, message, hint)
    # A misspelt `base_url` would otherwise be ignored, and requests would be sent to the public service.
    for name, node in spec.entries():
        hint = (
            did_you_mean(name, _WAYS)
            if name not in MANIFESTS["Provider"]["properties"]["spec"]["properties"]
            else ""
        )
        if hint:
            message = f"unknown key `{excerpt(name)}` of a provider, which may select a service"
            yield _reason(node, message, hint)
    for name, node in spec.part("additional_config").entries():
        if name in _DIRECTIONS or is_secret_name(name):
            message = f"`{name}` selects a service or an account, and is not supported"
            hint = "use `base_url`, `credential` or `platform` instead"
            yield _reason(node, message, hint)


def _reason(node: SourceNode, message: str, hint: str) -> Problem:
    return node.problem("unsupported_provider", message, hint)


MOCK: Final = "mock"

_OF_ROLES: Final = frozenset({"", "llm", "chat", "text"})
"""Roles of providers that return texts and calls; other roles produce speech, images or embeddings."""

_CONVENTIONAL: Final = (
    "mock-responses.yaml",
    "mock-responses.yml",
    "mock-responses.json",
    "mock-config.yaml",
    "mock-config.yml",
)
"""Usual names of the file for PromptKit's `--mock-config`."""

_DEFAULT: Final = "default"
"""Group of providers and scenarios without a group."""


class ArenaProvider(NamedTuple):
    """A provider of an arena.

    Attributes:
        id: Its name.
        group: The groups by which scenarios select it, separated by commas.
        spec: Its content.
        file: The arena's reference to it.
    """

    id: str
    group: str
    spec: SourceNode
    file: SourceNode

    @property
    def groups(self) -> tuple[str, ...]:
        """Its groups."""
        return tuple(name.strip() for name in self.group.split(","))

    @property
    def type(self) -> str:
        """Its type."""
        return self.spec.part("type").text

    @property
    def responses(self) -> SourceNode:
        """The name of its file of mock responses."""
        return self.spec.part("additional_config", "mock_config")

    @property
    def has_responses(self) -> bool:
        """Whether it is a mock with a file of responses."""
        return self.type == MOCK and bool(self.responses.text)


class AgentProvider(NamedTuple):
    """The provider that answers for the agent; `NOBODY` if none can.

    Attributes:
        provider: The provider; None if there is only a file of mock responses.
        mocks: The mock responses; None for a model, and for a mock without responses.
        readable: Whether the responses could be read; otherwise the replies are unknown.
    """

    provider: ArenaProvider | None = None
    mocks: SourceNode | None = None
    readable: bool = True

    @property
    def scripted(self) -> bool:
        """Whether the replies are scripted."""
        return self.mocks is not None or (self.provider is not None and self.provider.type == MOCK)

    @property
    def fallback(self) -> str:
        """The reply of PromptKit's mock to a request without a response."""
        known = self.provider
        name, model = (MOCK, "") if known is None else (known.id, known.spec.part("model").text)
        return f"Mock response for provider {name} model {model}".rstrip()


NOBODY: Final = AgentProvider(readable=False)
"""Stands for a missing or unsupported provider: the scenario needs one from the command line."""


class ProviderChooser:
    """Chooses the provider of each scenario of an arena.

    Args:
        arena: The arena.
        providers: Its providers.
        busy: Ids of providers that simulate users or judge.
        library: Its files.
    """

    def __init__(
        self,
        arena: SourceNode,
        providers: Sequence[ArenaProvider],
        busy: frozenset[str],
        library: ArenaLibrary,
    ) -> None:
        self._arena = arena
        self._providers = providers
        self._busy = busy
        self._library = library
        self._told: set[str] = set()

    def for_scenario(self, scenario: SourceNode) -> AgentProvider:
        """The provider of a scenario; `NOBODY` if there is none that can be used, which is reported."""
        told = len(self._library.problems)
        chosen = self._chosen(scenario)
        self._library.of_providers += self._library.problems[told:]
        return chosen if chosen is not None and chosen.readable else NOBODY

    def _chosen(self, scenario: SourceNode) -> AgentProvider | None:
        candidates = [
            provider for provider in self._asked(scenario) if provider.spec.part("role").text in _OF_ROLES
        ]
        asked = bool(scenario.part("providers").value)
        agents = [provider for provider in candidates if asked or provider.id not in self._busy]
        # The order: mocks with responses, mock responses of the arena, mocks that also have another role,
        # mocks without responses, models.
        chosen = self._mock(agents) or self._conventional() or self._mock(candidates)
        return chosen or self._silent_mock(candidates) or self._model(agents or candidates, scenario)

    def responses_of(self, provider: ArenaProvider) -> SourceNode | None:
        """The mock responses of a provider; None without any, or if they cannot be read, which is reported."""
        if not provider.has_responses:
            return None
        config = provider.responses
        # PromptKit resolves the name relative to the arena; many files are next to the provider instead.
        beside = provider.spec.document.source.rpartition("/")[0]
        folder = self._arena.document.source.rpartition("/")[0]
        own = beside.removeprefix(folder).strip("/") if beside.startswith(folder) else ""
        names = [config.text, f"{own}/{config.text}"] if own else [config.text]
        return self._library.responses(names, config)

    def _asked(self, scenario: SourceNode) -> Iterator[ArenaProvider]:
        """The providers that a scenario selects by id or by group; without either, those of the default group."""
        ids = {node.text: node for node in scenario.part("providers").each()}
        group = scenario.part("provider_group").text or _DEFAULT
        known = {provider.id for provider in self._providers}
        for name, node in ids.items():
            if name not in known:
                message = f"unknown provider `{name}`"
                self._tell(
                    node.problem("no_provider", message, f"use one of {', '.join(sorted(known))}", "warning")
                )
        grouped = [provider for provider in self._providers if group in provider.groups]
        all_of_them = self._providers if group == _DEFAULT and not grouped else grouped
        yield from (provider for provider in self._providers if provider.id in ids) if ids else all_of_them

    def _mock(self, providers: Sequence[ArenaProvider]) -> AgentProvider | None:
        mocks = [provider for provider in providers if provider.type == MOCK]
        with_file = [provider for provider in mocks if provider.has_responses]
        for provider in with_file[:1]:
            found = self.responses_of(provider)
            self._tell_others(provider, providers)
            return AgentProvider(provider, found, readable=found is not None)
        return None

    def _silent_mock(self, providers: Sequence[ArenaProvider]) -> AgentProvider | None:
        """A mock without responses, which always returns the fallback."""
        mocks = [provider for provider in providers if provider.type == MOCK]
        return AgentProvider(mocks[0]) if mocks else None

    def _tell_others(self, taken: ArenaProvider, providers: Sequence[ArenaProvider]) -> None:
        # PromptKit runs a scenario with each of its providers, toolcrib with one of them.
        for provider in providers:
            if provider.id != taken.id:
                message = f"the mock `{taken.id}` answers, not `{provider.id}`"
                self._tell(provider.file.problem("one_provider", message, _way_to(provider), "notice"))

    def _conventional(self) -> AgentProvider | None:
        for name in _CONVENTIONAL:
            if not self._library.has(name):
                continue
            named = self._arena.part("spec", "providers")
            found = self._library.responses([name], named)
            message = f"the mock responses of `{name}` answer instead of the models"
            hint = "; ".join(way for provider in self._providers if (way := _way_to(provider)))
            self._tell(named.problem("one_provider", message, hint, "notice"))
            return AgentProvider(None, found, readable=found is not None)
        return None

    def _model(self, providers: Sequence[ArenaProvider], scenario: SourceNode) -> AgentProvider | None:
        refused: list[Problem] = []
        for provider in providers:
            if provider.type not in MODELS:
                continue
            reasons = unusable_reasons(provider.spec)
            if not reasons:
                for reason in refused:
                    # Only a warning, because this provider answers instead.
                    self._tell(reason._replace(severity="warning"))
                return AgentProvider(provider)
            refused += reasons
        if refused:
            for reason in refused:
                self._tell(reason)
            return None
        types = ", ".join(dict.fromkeys(f"`{provider.type}`" for provider in providers)) or "none"
        message = f"no provider can answer for the agent: the arena has no mock responses, and its providers are {types}"
        hint = "add a provider of `type: mock` with `additional_config.mock_config`, a `mock-responses.yaml` next to the arena, or choose a provider: `toolcrib run --provider NAME --model NAME`"
        self._tell(scenario.problem("no_provider", message, hint))
        return None

    def _tell(self, problem: Problem) -> None:
        # Several scenarios share a provider, but its problem is reported once.
        if str(problem) not in self._told:
            self._told.add(str(problem))
            self._library.problems.append(problem)


def _way_to(provider: ArenaProvider) -> str:
    """The command that uses a model instead; empty if it is unusable, or if its URL contains a password."""
    if (
        provider.type not in MODELS
        or unusable_reasons(provider.spec)
        or "@" in provider.spec.part("base_url").text
    ):
        return ""
    said = {key: part.value for key, part in service_of(provider.spec).items() if part is not None}
    words = ["toolcrib", "run", "--provider", said["provider"]]
    words += ["--model", said["model"]] if "model" in said else []
    if "base_url" in said:
        words += ["--base-url", said["base_url"].partition("?")[0]]  # a query may contain a key
    return f"`{shlex.join(words)}` uses `{provider.id}`"


def provider_keys(chosen: AgentProvider, scenario: SourceNode) -> dict[str, PlacedValue | None]:
    """The keys of the agent that select its provider."""
    provider = chosen.provider
    if chosen is NOBODY:
        return {"provider": place_value(NO_PROVIDER, scenario)}
    return {} if chosen.scripted or provider is None else service_of(provider.spec)


def request_settings(
    chosen: AgentProvider, prompt: SourceNode | None, defaults: SourceNode
) -> PlacedValue | None:
    """The settings of requests: those of the arena override the provider's, which override the prompt's."""
    of_provider = chosen.provider.spec.part("defaults") if chosen.provider is not None else None
    of_arena = {key: defaults.part(key) for key in ("temperature", "max_tokens") if defaults.part(key)}
    entries = dict(prompt.part("parameters").entries()) if prompt is not None else {}
    entries |= dict(of_provider.entries()) if of_provider is not None else {}
    # PromptKit treats zero in the defaults of an arena as "not set" if there is another value.
    entries |= {key: node for key, node in of_arena.items() if node.value or key not in entries}
    parts: dict[str, PlacedValue | None] = {
        key: place_value(node.value, node) for key, node in entries.items()
    }
    return place_object(defaults, parts) if parts else None


def prices(chosen: AgentProvider) -> PlacedValue | None:
    """Prices in US dollars per million tokens; PromptKit's are per thousand."""
    if chosen.provider is None:
        return None
    written = chosen.provider.spec.part("pricing")
    parts: dict[str, PlacedValue | None] = {}
    for theirs, ours in PRICES.items():
        node = written.part(theirs)
        # `Decimal` of the text, because 0.00006 * 1000 is not 0.06 in floating point.
        if isinstance(node.value, int | float) and ours not in parts:
            parts[ours] = place_value(float(Decimal(str(node.value)) * 1000), node)
    return place_object(written, parts) if parts else None


def unknown_prices(provider: ArenaProvider) -> Iterator[Problem]:
    """A warning for each price without a counterpart."""
    for key, node in provider.spec.part("pricing").entries():
        if key not in PRICES:
            message = f"`{key}` has no effect here: prices are per input, output or cached token"
            yield node.problem("no_counterpart", message, severity="warning")


def judge_keys(
    spec: SourceNode, known: Mapping[str, ArenaProvider], problems: list[Problem]
) -> PlacedValue | None:
    """The model that judges: that of the first usable judge; None if there is none."""
    named = [*spec.part("judges").each(), *(node for _, node in spec.part("judge_specs").entries())]
    found: PlacedValue | None = None
    for node in named:
        asked = node.part("provider")
        provider = known.get(asked.text)
        if provider is None or provider.type not in MODELS:
            what = "is not a provider of the arena" if provider is None else f"is of type `{provider.type}`"
            message = f"the judge is not usable: `{asked.text}` {what}"
            problems.append(asked.problem("no_counterpart", message, severity="warning"))
        elif reasons := unusable_reasons(provider.spec):
            problems += [reason._replace(severity="warning") for reason in reasons]
        elif found is not None:
            message = f"only one judge is supported: `{found.places[''].part('provider').text}` is used"
            problems.append(asked.problem("no_counterpart", message, severity="warning"))
        else:
            model = node.part("model")
            own_model = {"model": place_value(model.text, model)} if model.text else {}
            found = place_object(node, {**service_of(provider.spec), **own_model})
    return found


def judge_name(judge: PlacedValue) -> str:
    """The name of a judge in its arena."""
    node = judge.places[""]
    return node.part("name").text or keys_of(node.pointer)[-1]
