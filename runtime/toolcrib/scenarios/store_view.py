"""What the mocks of one run keep, as its expressions, its verification and its report see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from toolcrib.core.model import JSON, Fixture
from toolcrib.engine.session import Session
from toolcrib.loading.scenarios.scenario import Scenario
from toolcrib.loading.scenarios.scenario_state import visible_state
from toolcrib.security.redaction import redact
from toolcrib.simulation.store import Store, states


class StoreView:
    """The store of a run's session. Nothing of it is looked at before somebody asks."""

    __slots__ = ("_fixture", "_scenario", "_session")

    def __init__(self, session: Session, scenario: Scenario) -> None:
        self._session = session
        self._scenario = scenario
        self._fixture: Fixture | None = None

    @property
    def fixture(self) -> Fixture:
        """What the run can see of the collections and machines."""
        if self._fixture is None:
            self._fixture = visible_state(self._scenario, self._session.registry).fixture
        return self._fixture

    def rows(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Collection -> key -> row as it is now, of these collections or of all in sight.

        Where the rows of one can't be had, who looks for them is told, with an ExpressionError.
        """
        from toolcrib.executors.mock.unit_of_work import Work  # noqa: PLC0415 -- most scenarios read no rows

        there = self.fixture.collections
        chosen = there if names is None else {name: there[name] for name in names if name in there}
        return Work(self._session.store, Fixture(chosen)).store()

    def states(self) -> dict[str, JSON]:
        """Machine -> its state now."""
        return states(self.fixture, self._session.store.version)

    def shown(self, rows: dict[str, Any]) -> dict[str, Any]:
        """Rows without what the schemas of their collections, or their own keys, call a secret."""
        return {
            name: {key: redact(row, self.fixture.collections[name].schema) for key, row in inside.items()}
            for name, inside in rows.items()
        }


def changes_of(store: Store) -> dict[str, Any]:
    """What is different from the beginning: the rows of collections, None for a row that was deleted; states.

    What their names call a secret is masked.
    """
    changed: dict[str, Any] = {"rows": store.changed(), "states": dict(store.version.states)}
    return {key: redact(value) for key, value in changed.items()}


class RunScope(dict[str, JSON]):
    """What the expressions of a run read: what it has put in, and `store` and `state` as they are at that moment."""

    __slots__ = ("_kept",)

    def __init__(self, kept: StoreView, names: Mapping[str, JSON]) -> None:
        super().__init__(names)
        self._kept = kept

    def __missing__(self, name: str) -> JSON:
        if name == "store":
            return self._kept.rows()
        if name == "state":
            return self._kept.states()
        raise KeyError(name)

    def copy(self) -> RunScope:
        """What is put in as it is now; the rows and states go on."""
        return RunScope(self._kept, self)
