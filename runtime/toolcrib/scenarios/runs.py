"""Which runs there are: the scenarios chosen by words and tags, each with its matrix, repetitions and call orders.

A call order is a number that gives the place of every call of every parallel step. The written order is 0; the
others are drawn from the seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fnmatch import fnmatchcase
from math import factorial, prod

from toolcrib.core.errors import ConfigurationError
from toolcrib.loading.scenarios.model import AnyStep, CallStep, ParallelStep, Scenario
from toolcrib.loading.scenarios.scenario import combinations, describe_excess_runs


def with_call_orders(scenario: Scenario, further: int) -> Iterator[Scenario]:
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
    from toolcrib.schema.generation import KeyedRandom  # noqa: PLC0415 -- slow to import, and most runs draw no order

    draw, number = KeyedRandom(scenario.seed, scenario.base or scenario.name, "order"), 0
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
"""Words and parentheses of one expression: they may all be nested."""


def select(scenarios: Iterable[Scenario], *, keyword: str = "", tags: Iterable[str] = ()) -> list[Scenario]:
    """The scenarios that a run is about.

    Args:
        scenarios: To choose from; the order is kept.
        keyword: Words joined by `and`, `or`, `not`, with parentheses: each is part of the name or file
            (or a glob over the name), without regard to case. Empty: all.
        tags: One of these tags; empty: all.
    """
    wanted = frozenset(tags)
    test = keyword_test(keyword)
    return [
        scenario for scenario in scenarios if test(scenario) and (not wanted or wanted & set(scenario.tags))
    ]


def keyword_test(expression: str) -> Callable[[Scenario], bool]:
    """Compile the expression of `-k`.

    Raises:
        ValueError: It can't be read; the message says where.
    """
    words = expression.replace("(", " ( ").replace(")", " ) ").split()
    if not words:
        return lambda _scenario: True
    if len(words) > WORDS:
        raise ValueError(f"the expression has {len(words)} words and parentheses; at most {WORDS} are read")
    test, rest = _either(words)
    if rest:
        raise ValueError(f"`{rest[0]}` is not expected in `{expression}`")
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
        raise ValueError(f"a word is missing {'before `' + words[0] + '`' if words else 'at the end'}")
    word, rest = words[0], words[1:]
    if word == "not":
        test, rest = _one(rest)
        return (lambda scenario: not test(scenario)), rest
    if word == "(":
        test, rest = _either(rest)
        if rest[:1] != [")"]:
            raise ValueError("a `)` is missing")
        return test, rest[1:]
    folded = word.casefold()
    return (lambda scenario: _names(scenario, folded)), rest


def _names(scenario: Scenario, word: str) -> bool:
    name = scenario.name.casefold()
    return word in name or word in scenario.origin.source.casefold() or fnmatchcase(name, word)
