"""From a scenario to its runs: every combination of its matrix, so often as it repeats, in several orders."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from toolcrib.core.errors import ConfigurationError
from toolcrib.loading.scenarios.matrices import combinations, too_many
from toolcrib.loading.scenarios.scenario import Scenario
from toolcrib.scenarios.call_orders import in_call_orders, number_of_orders


def runs_of(
    scenario: Scenario, *, repeat: int | None = None, seed: int | None = None, interleave: int = 0
) -> list[Scenario]:
    """The runs of a scenario, each a scenario of its own; the scenario itself where it is one run.

    A run of a matrix is called `name[city=Oslo,days=1]`, one of several repetitions `name[2/5]`, one of
    several orders `name[order 2/5]`.

    Args:
        scenario: As it was read.
        repeat: How often each combination runs, in place of the scenario's own `repeat`.
        seed: Of the first repetition, in place of the scenario's own; each next one has the next seed.
        interleave: In how many further orders the calls of parallel steps begin, each in a run of its own.
            Where there are fewer orders, each of them is taken once.

    Raises:
        ConfigurationError: There would be more than 1,000 runs.
    """
    times = scenario.repeat if repeat is None else repeat
    message = too_many(scenario.matrix, times * number_of_orders(scenario, interleave))
    if message:
        raise ConfigurationError(f"scenario `{scenario.name}` ({scenario.origin.place()}): {message}")
    first = scenario.seed if seed is None else seed
    return [
        ordered for run in _repeated(scenario, times, first) for ordered in in_call_orders(run, interleave)
    ]


def _repeated(scenario: Scenario, times: int, first: int) -> Iterator[Scenario]:
    if not scenario.matrix and times == 1:
        yield scenario if first == scenario.seed else replace(scenario, seed=first)
        return
    for combination, values in combinations(scenario.matrix):
        for number in range(1, times + 1):
            yield replace(
                scenario,
                name=_name(scenario.name, combination, number, times),
                seed=first + number - 1,
                values=values,
                run=number,
                base=scenario.name,
            )


def _name(name: str, combination: str, number: int, times: int) -> str:
    of_matrix = f"[{combination}]" if combination else ""
    of_repetition = f"[{number}/{times}]" if times > 1 else ""
    return f"{name}{of_matrix}{of_repetition}"
