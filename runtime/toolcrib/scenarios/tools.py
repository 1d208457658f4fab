"""The tools as a scenario sees them."""

from __future__ import annotations

from toolcrib.in_force import with_modes
from toolcrib.loading.scenarios import Scenario, mocked
from toolcrib.registry import Registry


def registry_for(registry: Registry, scenario: Scenario) -> Registry:
    """The tools as a scenario sees them: its modes, then its mocks."""
    if not scenario.modes and not scenario.mocks:
        return registry

    def derive() -> Registry:
        moded = with_modes(registry, scenario.modes)
        return moded.with_tools(mocked(moded[name], scenario) for name in scenario.mocks)

    return registry.derived_once((scenario.modes, scenario.mocks, scenario.origin), derive)
