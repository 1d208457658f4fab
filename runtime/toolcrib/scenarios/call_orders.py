"""Orders in which the calls of parallel steps begin: the written one, then others drawn from the seed.

An order is a number: the written one is 0, and a number tells the place of every call of every parallel step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import factorial, prod

from toolcrib.loading.scenarios.scenario import Scenario
from toolcrib.loading.scenarios.steps import AnyStep, CallStep, ParallelStep


def in_call_orders(scenario: Scenario, further: int) -> Iterator[Scenario]:
    """The scenario in its written order, then in so many others, or in all that there are; each name tells which.

    Without other orders it is the scenario itself.
    """
    many = number_of_orders(scenario, further)
    if many == 1:
        yield scenario
        return
    for place, order in enumerate(_orders(scenario, many), start=1):
        yield replace(
            _in_order(scenario, order),
            name=f"{scenario.name}[order {place}/{many}]",
            base=scenario.base or scenario.name,
            order=place,
        )


def number_of_orders(scenario: Scenario, further: int) -> int:
    """In how many orders a scenario runs that is to run in so many besides the written one."""
    return min(further + 1, _possible(scenario)) if further else 1


def _possible(scenario: Scenario) -> int:
    return prod(factorial(len(step.calls)) for step in scenario.steps if isinstance(step, ParallelStep))


def _orders(scenario: Scenario, many: int) -> list[int]:
    """So many different orders, the written one first; the same ones for the same seed."""
    possible = _possible(scenario)
    if many == possible:
        return list(range(possible))
    from toolcrib.schema.generation import Draw  # noqa: PLC0415 -- slow to import, and most runs draw no order

    draw, number = Draw(scenario.seed, scenario.base or scenario.name, "order"), 0
    orders = [0]
    while len(orders) < many:
        number += 1
        order = draw.at(number).integer(1, possible - 1)
        if order not in orders:
            orders.append(order)
    return orders


def _in_order(scenario: Scenario, order: int) -> Scenario:
    steps: list[AnyStep] = []
    for step in scenario.steps:
        if isinstance(step, ParallelStep):
            order, own = divmod(order, factorial(len(step.calls)))
            step = replace(step, calls=tuple(_permuted(list(step.calls), own)))  # noqa: PLW2901
        steps.append(step)
    return replace(scenario, steps=tuple(steps))


def _permuted(calls: list[CallStep], number: int) -> Iterator[CallStep]:
    """The permutation of the calls that has a number: 0 leaves them as they are."""
    while calls:
        place, number = divmod(number, factorial(len(calls) - 1))
        yield calls.pop(place)
