"""The tools as a scenario sees them."""

from __future__ import annotations

from toolcrib.in_force import with_modes
from toolcrib.loading.scenarios import Scenario, furnished, mocked
from toolcrib.model import NO_FIXTURE
from toolcrib.registry import Registry


def registry_for(registry: Registry, scenario: Scenario) -> Registry:
    """The tools as a scenario sees them: its modes, then its store and its mocks."""
    if not (scenario.modes or scenario.mocks or scenario.fixture is not NO_FIXTURE):
        return registry

    def derive() -> Registry:
        moded = with_modes(registry, scenario.modes)
        if scenario.fixture is not NO_FIXTURE:
            moded = moded.changed(tool=lambda tool: furnished(tool, scenario))
        return moded.with_tools(mocked(moded[name], scenario) for name in scenario.mocks)

    why = (scenario.modes, scenario.mocks, scenario.fixture, scenario.origin)
    return registry.derived_once(why, derive)
