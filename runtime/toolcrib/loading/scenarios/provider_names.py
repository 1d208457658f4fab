"""The providers that documents can name, known without importing one of them."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Final

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.loading.scenarios.agents import Agent

GROUP: Final = "toolcrib.providers"
"""The entry-point group in which distributions offer providers: name -> what makes one."""

BUILT_IN: Final = ("anthropic", "azure_openai", "openai", "openai_responses")
"""The providers of models that come along."""

_WITHOUT_MODEL: Final = ("scripted", "direct")


def check_providers(agent: Agent) -> Iterator[Problem]:
    """Who speaks, and who judges, where nobody is called so."""
    yield from _check(agent.provider, f"{agent.pointer}/provider", (*_WITHOUT_MODEL, *BUILT_IN))
    if agent.judge:
        yield from _check(agent.judge["provider"], f"{agent.pointer}/judge/provider", BUILT_IN)


def _check(name: str, pointer: str, known: tuple[str, ...]) -> Iterator[Problem]:
    if name in known:
        return
    installed = {entry.name for entry in entry_points(group=GROUP)}  # slow, so only where it may help
    if name not in installed:
        names = sorted({*known, *installed})
        hint = did_you_mean(name, names) or f"there are {', '.join(f'`{each}`' for each in names)}"
        message = f"no provider is called `{name}`"
        yield Problem(code="unknown_provider", message=message, pointer=pointer, hint=hint)
