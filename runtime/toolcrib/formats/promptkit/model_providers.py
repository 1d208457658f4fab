"""Which of an arena's providers answers for the agent: a mock with its responses, else a model."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.formats.promptkit.library import Library
from toolcrib.formats.promptkit.services import MODELS, reasons_against, service_of
from toolcrib.formats.promptkit.source_nodes import Made, Node, made, made_object

MOCK: Final = "mock"

_OF_ROLES: Final = frozenset({"", "llm", "chat", "text"})
"""Roles of providers that answer texts and calls; others make speech, pictures or vectors."""

_CONVENTIONAL: Final = (
    "mock-responses.yaml",
    "mock-responses.yml",
    "mock-responses.json",
    "mock-config.yaml",
    "mock-config.yml",
)
"""Files that `--mock-config` of PromptKit is usually given."""

_PRICES: Final[Mapping[str, str]] = {
    "input_cost_per_1k": "input",
    "output_cost_per_1k": "output",
    "cached_cost_per_1k": "cached",
    "cache_read_cost_per_1k": "cached",
    "cache_write_cost_per_1k": "cache_writes",
}


_DEFAULT: Final = "default"
"""The group of providers that are in no other one, and of scenarios that ask for none."""


class Provider(NamedTuple):
    """A provider of an arena.

    Attributes:
        id: Its name.
        group: By which scenarios choose several; with commas between them where there are several.
        spec: What it says.
        file: Where the arena names it.
    """

    id: str
    group: str
    spec: Node
    file: Node

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that it is in."""
        return tuple(name.strip() for name in self.group.split(","))

    @property
    def type(self) -> str:
        """Which kind of provider it is."""
        return self.spec.part("type").text

    @property
    def responses(self) -> Node:
        """The name of its file of mock responses."""
        return self.spec.part("additional_config", "mock_config")

    @property
    def has_responses(self) -> bool:
        """Whether it answers as a file of mock responses says."""
        return self.type == MOCK and bool(self.responses.text)


class Chosen(NamedTuple):
    """Who answers for the agent.

    Attributes:
        provider: The provider; None where nobody but a file of mock responses is there.
        mocks: The mock responses; None where a model answers, or a mock that has none.
        readable: Whether they could be read; where not, nobody knows what is answered.
    """

    provider: Provider | None = None
    mocks: Node | None = None
    readable: bool = True

    @property
    def scripted(self) -> bool:
        """Whether the answers are scripted."""
        return self.mocks is not None or (self.provider is not None and self.provider.type == MOCK)

    @property
    def fallback(self) -> str:
        """What PromptKit's mock says where it has nothing to say."""
        known = self.provider
        name, model = (MOCK, "") if known is None else (known.id, known.spec.part("model").text)
        return f"Mock response for provider {name} model {model}".rstrip()


class Choice:
    """Chooses for each scenario of an arena.

    Args:
        arena: The arena.
        providers: Its providers.
        busy: The ids of those that play users, or judge.
        library: Its files.
    """

    def __init__(
        self, arena: Node, providers: Sequence[Provider], busy: frozenset[str], library: Library
    ) -> None:
        self._arena = arena
        self._providers = providers
        self._busy = busy
        self._library = library
        self._told: set[str] = set()

    def for_scenario(self, scenario: Node) -> Chosen | None:
        """Who answers in a scenario; None where nobody can, which is told."""
        candidates = [
            provider for provider in self._asked(scenario) if provider.spec.part("role").text in _OF_ROLES
        ]
        asked = bool(scenario.part("providers").value)
        agents = [provider for provider in candidates if asked or provider.id not in self._busy]
        chosen = self._mock(agents) or self._conventional() or self._mock(candidates)
        return chosen or self._silent_mock(candidates) or self._model(agents or candidates, scenario)

    def responses_of(self, provider: Provider) -> Node | None:
        """The mock responses of a provider; None where it has none, or they can't be read, which is told."""
        if not provider.has_responses:
            return None
        config = provider.responses
        beside = provider.spec.document.source.rpartition("/")[0]
        folder = self._arena.document.source.rpartition("/")[0]
        own = beside.removeprefix(folder).strip("/") if beside.startswith(folder) else ""
        names = [config.text, f"{own}/{config.text}"] if own else [config.text]
        return self._library.responses(names, config)

    def _asked(self, scenario: Node) -> Iterator[Provider]:
        """The providers that a scenario asks for; all but those of other groups where it asks for none."""
        ids = {node.text: node for node in scenario.part("providers").each()}
        group = scenario.part("provider_group").text or _DEFAULT
        known = {provider.id for provider in self._providers}
        for name, node in ids.items():
            if name not in known:
                message = f"the arena has no provider `{name}`"
                self._tell(
                    node.problem("no_provider", message, f"it has: {', '.join(sorted(known))}", "warning")
                )
        grouped = [provider for provider in self._providers if group in provider.groups]
        all_of_them = self._providers if group == _DEFAULT and not grouped else grouped
        yield from (provider for provider in self._providers if provider.id in ids) if ids else all_of_them

    def _mock(self, providers: Sequence[Provider]) -> Chosen | None:
        mocks = [provider for provider in providers if provider.type == MOCK]
        with_file = [provider for provider in mocks if provider.has_responses]
        for provider in with_file[:1]:
            found = self.responses_of(provider)
            self._tell_others(provider, providers)
            return Chosen(provider, found, readable=found is not None)
        return None

    def _silent_mock(self, providers: Sequence[Provider]) -> Chosen | None:
        """A mock without responses, which says the same to everything."""
        mocks = [provider for provider in providers if provider.type == MOCK]
        return Chosen(mocks[0]) if mocks else None

    def _tell_others(self, taken: Provider, providers: Sequence[Provider]) -> None:
        """PromptKit runs a scenario with each of its providers; here one of them answers."""
        for provider in providers:
            if provider.id != taken.id:
                message = f"the mock `{taken.id}` answers here, and `{provider.id}` does not"
                self._tell(provider.file.problem("one_provider", message, _way_to(provider), "notice"))

    def _conventional(self) -> Chosen | None:
        for name in _CONVENTIONAL:
            if not self._library.has(name):
                continue
            named = self._arena.part("spec", "providers")
            found = self._library.responses([name], named)
            message = f"the providers are models; the mock responses of `{name}` answer for them"
            hint = "; ".join(way for provider in self._providers if (way := _way_to(provider)))
            self._tell(named.problem("one_provider", message, hint, "notice"))
            return Chosen(None, found, readable=found is not None)
        return None

    def _model(self, providers: Sequence[Provider], scenario: Node) -> Chosen | None:
        refused: list[Problem] = []
        for provider in providers:
            if provider.type not in MODELS:
                continue
            reasons = reasons_against(provider.spec)
            if not reasons:
                for reason in refused:
                    self._tell(reason._replace(severity="warning"))
                return Chosen(provider)
            refused += reasons
        if refused:
            for reason in refused:
                self._tell(reason)
            return None
        types = ", ".join(dict.fromkeys(f"`{provider.type}`" for provider in providers)) or "none"
        message = (
            f"nothing answers for the agent: the arena has no mock responses, and its providers are {types}"
        )
        hint = "write a provider of `type: mock` with `additional_config.mock_config`, or `mock-responses.yaml` beside the arena"
        self._tell(scenario.problem("no_provider", message, hint))
        return None

    def _tell(self, problem: Problem) -> None:
        if str(problem) not in self._told:
            self._told.add(str(problem))
            self._library.problems.append(problem)


def _way_to(provider: Provider) -> str:
    """How a model is asked instead; empty where it can't be, or where its address holds a password."""
    if (
        provider.type not in MODELS
        or reasons_against(provider.spec)
        or "@" in provider.spec.part("base_url").text
    ):
        return ""
    said = {key: part.value for key, part in service_of(provider.spec).items() if part is not None}
    words = ["toolcrib", "run", "--provider", said["provider"]]
    words += ["--model", said["model"]] if "model" in said else []
    if "base_url" in said:
        words += ["--base-url", said["base_url"].partition("?")[0]]  # a query may hold a key
    return f"`{shlex.join(words)}` asks `{provider.id}`"


def of_model(chosen: Chosen) -> dict[str, Made | None]:
    """What the agent says of its provider."""
    provider = chosen.provider
    return {} if chosen.scripted or provider is None else service_of(provider.spec)


def settings(chosen: Chosen, prompt: Node | None, defaults: Node) -> Made | None:
    """What is set in each request: by the arena, else by the provider, else by the prompt."""
    of_provider = chosen.provider.spec.part("defaults") if chosen.provider is not None else None
    of_arena = {key: defaults.part(key) for key in ("temperature", "max_tokens") if defaults.part(key)}
    entries = dict(prompt.part("parameters").entries()) if prompt is not None else {}
    entries |= dict(of_provider.entries()) if of_provider is not None else {}
    entries |= {key: node for key, node in of_arena.items() if node.value or key not in entries}
    parts: dict[str, Made | None] = {key: made(node.value, node) for key, node in entries.items()}
    return made_object(defaults, parts) if parts else None


def prices(chosen: Chosen) -> Made | None:
    """US dollars for a million tokens."""
    if chosen.provider is None:
        return None
    written = chosen.provider.spec.part("pricing")
    parts: dict[str, Made | None] = {}
    for theirs, ours in _PRICES.items():
        node = written.part(theirs)
        if isinstance(node.value, int | float) and ours not in parts:
            parts[ours] = made(float(Decimal(str(node.value)) * 1000), node)
    return made_object(written, parts) if parts else None


def unknown_prices(provider: Provider) -> Iterator[Problem]:
    """A warning for each price that says nothing here."""
    for key, node in provider.spec.part("pricing").entries():
        if key not in _PRICES:
            message = f"`{key}` has no counterpart here: prices are per token that is sent, answered or kept"
            yield node.problem("no_counterpart", message, severity="warning")


def judge(spec: Node, known: Mapping[str, Provider], problems: list[Problem]) -> Made | None:
    """Which model judges: the first judge of the arena; None where there is none."""
    named = [*spec.part("judges").each(), *(node for _, node in spec.part("judge_specs").entries())]
    found: Made | None = None
    for node in named:
        asked = node.part("provider")
        provider = known.get(asked.text)
        if provider is None or provider.type not in MODELS:
            what = "is no provider of the arena" if provider is None else f"is of type `{provider.type}`"
            message = f"the judge can't be asked here: `{asked.text}` {what}"
            problems.append(asked.problem("no_counterpart", message, severity="warning"))
        elif reasons := reasons_against(provider.spec):
            problems += [reason._replace(severity="warning") for reason in reasons]
        elif found is not None:
            message = f"one model judges here: that of `{found.places[''].part('provider').text}`"
            problems.append(asked.problem("no_counterpart", message, severity="warning"))
        else:
            model = node.part("model")
            own_model = {"model": made(model.text, model)} if model.text else {}
            found = made_object(node, {**service_of(provider.spec), **own_model})
    return found
