"""The tools as a scenario sees them."""

from __future__ import annotations

from dataclasses import replace

from toolcrib.in_force import with_modes
from toolcrib.loading.scenarios import Scenario, furnished, mocked
from toolcrib.loading.sights import inheriting
from toolcrib.model import NO_FIXTURE
from toolcrib.registry import Registry


def registry_for(registry: Registry, scenario: Scenario) -> Registry:
    """The tools as a run of a scenario sees them: its modes, then its store, its faults and its mocks.

    They are derived once for all runs in which they are the same.
    """
    furnishes = bool(scenario.faults) or scenario.fixture is not NO_FIXTURE
    if not (scenario.modes or scenario.mocks or furnishes):
        return registry
    told = _settled(scenario) if scenario.faults else scenario

    def derive() -> Registry:
        run = inheriting(told, registry, [])
        moded = with_modes(registry, run.modes)
        if furnishes:
            moded = moded.changed(tool=lambda tool: furnished(tool, run))
        return moded.with_tools(mocked(moded[name], run) for name in run.mocks)

    return registry.derived_once((told.modes, told.mocks, told.fixture, told.faults, told.origin), derive)


def _settled(scenario: Scenario) -> Scenario:
    """The scenario with the faults of this run of it; the scenario itself where they are those of every run."""
    from toolcrib.loading.faults import settled  # noqa: PLC0415 -- in most scenarios nothing goes wrong

    faults = settled(scenario.faults, {"matrix": dict(scenario.values), "run": scenario.run})
    return scenario if faults == scenario.faults else replace(scenario, faults=faults)
