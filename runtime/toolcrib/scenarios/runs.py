"""Expand scenarios to runs (matrix, repetitions, call orders), and select them by keyword and tags.

A call order is a number that encodes the permutation of the calls in every parallel step. The written order is 0; the
others are drawn from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from math import factorial, prod
from typing import Any

from toolcrib.core.errors import ConfigurationError
from toolcrib.loading.scenarios.model import AnyStep, CallStep, ParallelStep, RepeatStep, Scenario
from toolcrib.loading.scenarios.scenario import combinations, describe_excess_runs


def with_call_orders(scenario: Scenario, further: int) -> Iterator[Scenario]:
    """Yield the scenario in its written order, then in `further` others or in all that exist, with a name for each.

    Without further orders, yields the scenario itself.
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
    """Number of orders, including the written one, in which a scenario runs."""
    return min(further + 1, _possible(scenario)) if further else 1


def _possible(scenario: Scenario) -> int:
    return prod(factorial(len(step.calls)) for step in _parallel_steps(scenario.steps))


def _parallel_steps(steps: Iterable[AnyStep]) -> Iterator[ParallelStep]:
    """The parallel steps; all repetitions of one have the same order, so it counts once."""
    for step in steps:
        if isinstance(step, ParallelStep):
            yield step
        elif isinstance(step, RepeatStep):
            yield from _parallel_steps(step.once)


def _orders(scenario: Scenario, many: int) -> list[int]:
    """Draw different orders, the written one first; equal seeds give equal orders."""
    possible = _possible(scenario)
    # Drawing would take ever longer to hit the last missing orders.
    if many == possible:
        return list(range(possible))
    from toolcrib.schema.generation import KeyedRandom  # noqa: PLC0415 -- slow to import, and most runs draw no order

    draw, number = KeyedRandom(scenario.seed, scenario.base or scenario.name, "order"), 0
    orders = [0]
    while len(orders) < many:
        number += 1
        # Draw numbers instead of listing permutations: ten parallel calls have 3.6 million orders.
        order = draw.at(number).integer(1, possible - 1)
        if order not in orders:
            orders.append(order)
    return orders


def _in_order(scenario: Scenario, order: int) -> Scenario:
    orders: dict[str, int] = {}
    for step in _parallel_steps(scenario.steps):
        order, orders[step.pointer] = divmod(order, factorial(len(step.calls)))

    def ordered(step: Any) -> Any:
        if isinstance(step, RepeatStep):
            return replace(step, steps=tuple(map(ordered, step.steps)))
        if isinstance(step, ParallelStep):
            return replace(step, calls=tuple(_permuted(list(step.calls), orders[step.pointer])))
        return step

    return replace(scenario, steps=tuple(map(ordered, scenario.steps)))


def _permuted(calls: list[CallStep], number: int) -> Iterator[CallStep]:
    """The permutation of the calls with a number (factorial number system); 0 keeps their order."""
    while calls:
        place, number = divmod(number, factorial(len(calls) - 1))
        yield calls.pop(place)


def runs_of(
    scenario: Scenario, *, repeat: int | None = None, seed: int | None = None, interleave: int = 0
) -> list[Scenario]:
    """Expand a scenario to its runs, each of which is a scenario; returns the scenario itself for a single run.

    A run of a matrix is named `name[city=Oslo,days=1]`, a repetition `name[2/5]`, a call order `name[order 2/5]`.

    Args:
        scenario: The scenario as it was loaded.
        repeat: Repetitions of each combination; replaces the `repeat` of the scenario.
        seed: Seed of the first repetition; replaces the seed of the scenario. Each repetition adds one.
        interleave: Number of further orders in which the calls of parallel steps begin, each in its own run. If fewer
            orders exist, each of them is used once.

    Raises:
        ConfigurationError: The scenario has more than 1,000 runs.
    """
    times = scenario.repeat if repeat is None else repeat
    # Checked before the expansion, which would fill the memory for a large matrix.
    message = describe_excess_runs(scenario.matrix, times * number_of_orders(scenario, interleave))
    if message:
        raise ConfigurationError(f"scenario `{scenario.name}` ({scenario.origin.place()}): {message}")
    first = scenario.seed if seed is None else seed
    return [
        ordered for run in _repeated(scenario, times, first) for ordered in with_call_orders(run, interleave)
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


WORDS = 150
"""Maximum number of words and parentheses in an expression, which bounds the recursion of the parser."""


def select(scenarios: Iterable[Scenario], *, keyword: str = "", tags: Iterable[str] = ()) -> list[Scenario]:
    """Select scenarios by keyword and tags.

    Args:
        scenarios: The scenarios to select from; their order is kept.
        keyword: Words combined with `and`, `or`, `not` and parentheses. A word matches a part of the name or the file,
            or the name as a glob, ignoring case. Empty selects all.
        tags: Select scenarios with any of these tags; empty selects all.
    """
    wanted = frozenset(tags)
    test = keyword_test(keyword)
    return [
        scenario for scenario in scenarios if test(scenario) and (not wanted or wanted & set(scenario.tags))
    ]


def keyword_test(expression: str) -> Callable[[Scenario], bool]:
    """Compile the expression of `-k`.

    Raises:
        ValueError: The expression is invalid; the message contains the position.
    """
    words = expression.replace("(", " ( ").replace(")", " ) ").split()
    if not words:
        return lambda _scenario: True
    if len(words) > WORDS:
        raise ValueError(f"the expression has {len(words)} words and parentheses; the limit is {WORDS}")
    test, rest = _either(words)
    if rest:
        raise ValueError(f"unexpected `{rest[0]}` in `{expression}`")
    return test


_Test = Callable[[Scenario], bool]


def _either(words: list[str]) -> tuple[_Test, list[str]]:
    left, rest = _both(words)
    while rest and rest[0] == "or":
        right, rest = _both(rest[1:])
        left = _joined(left, right, any)
    return left, rest


def _both(words: list[str]) -> tuple[_Test, list[str]]:
    left, rest = _one(words)
    while rest and rest[0] == "and":
        right, rest = _one(rest[1:])
        left = _joined(left, right, all)
    return left, rest


def _joined(left: _Test, right: _Test, how: Callable[[Iterable[bool]], bool]) -> _Test:
    return lambda scenario: how(test(scenario) for test in (left, right))


def _one(words: list[str]) -> tuple[_Test, list[str]]:
    if not words or words[0] in {"and", "or", ")"}:
        raise ValueError(f"missing word {'before `' + words[0] + '`' if words else 'at the end'}")
    word, rest = words[0], words[1:]
    if word == "not":
        test, rest = _one(rest)
        # `not` binds tighter than `and`, which binds tighter than `or`, as in Python and pytest.
        return (lambda scenario: not test(scenario)), rest
    if word == "(":
        test, rest = _either(rest)
        if rest[:1] != [")"]:
            raise ValueError("missing `)`")
        return test, rest[1:]
    folded = word.casefold()
    return (lambda scenario: _names(scenario, folded)), rest


def _names(scenario: Scenario, word: str) -> bool:
    name = scenario.name.casefold()
    return word in name or word in scenario.origin.source.casefold() or fnmatchcase(name, word)
