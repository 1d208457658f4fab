"""A short way through many rules: most of them ask for other values of one argument than a call has.

The rules that are left are tried in their order, so the choice is that of trying all of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from heapq import merge
from typing import TypeAlias

from toolcrib.core.model import JSON
from toolcrib.executors.mock.rules import Rule
from toolcrib.expressions.values import frozen

FEWEST = 8
"""Rules below which trying all of them is as quick."""

_MOST_MERGED = 100_000
"""Places in all short lists together that are laid out beforehand."""

Numbered: TypeAlias = "list[tuple[int, Rule]]"


class Choice:
    """Which rules of a mock a call's arguments leave.

    Args:
        rules: In order.
        key: The argument that tells them apart.
    """

    def __init__(self, rules: tuple[Rule, ...], key: str) -> None:
        self._key = key
        self._rest: Numbered = []
        self._listed: dict[Hashable, Numbered] = {}
        for numbered in enumerate(rules):
            wanted = dict(_sure(numbered[1]))
            if key in wanted:
                self._listed.setdefault(frozen(wanted[key]), []).append(numbered)
            else:
                self._rest.append(numbered)
        self._unlisted = tuple(rule for _number, rule in self._rest)
        laid_out = len(self._rest) * len(self._listed) <= _MOST_MERGED
        self._short: dict[Hashable, tuple[Rule, ...]] | None = (
            {value: self._merged(value) for value in self._listed} if laid_out else None
        )

    def left_for(self, arguments: JSON) -> Sequence[Rule]:
        """The rules that may match a call with these arguments, in order: all others surely do not."""
        if not isinstance(arguments, dict) or self._key not in arguments:
            return self._unlisted
        value = arguments[self._key]
        if type(value) is str and self._short is not None:
            return self._short.get(value, self._unlisted)
        if isinstance(value, dict | list):
            return self._unlisted
        key: Hashable = frozen(value)
        if self._short is not None:
            return self._short.get(key, self._unlisted)
        return self._merged(key)

    def _merged(self, value: Hashable) -> tuple[Rule, ...]:
        """The rules that ask for a value and those that ask for none, in order."""
        listed: Numbered = self._listed.get(value, [])
        return tuple(rule for _place, rule in merge(listed, self._rest, key=_number))


def choice_of(rules: tuple[Rule, ...]) -> Choice | None:
    """The short way through the rules of a mock; None where there is none, or none is needed."""
    key = _telling(rules) if len(rules) >= FEWEST else None
    return None if key is None else Choice(rules, key)


def _number(numbered: tuple[int, Rule]) -> int:
    return numbered[0]


def _telling(rules: tuple[Rule, ...]) -> str | None:
    """The argument of which the rules ask for the most different values."""
    values: dict[str, set[Hashable]] = {}
    for rule in rules:
        for key, value in _sure(rule):
            values.setdefault(key, set()).add(frozen(value))
    return max(values, key=lambda key: len(values[key]), default=None)


def _sure(rule: Rule) -> Iterator[tuple[str, JSON]]:
    """The arguments for which a rule wants one plain value, and by which it is judged before anything can fail.

    A text that may hold an expression, and all behind it, is not among them.
    """
    wanted = rule.when.get("args")
    for key, value in wanted.items() if isinstance(wanted, dict) else ():
        plain = value is None or isinstance(value, bool | int | float)
        if key.startswith("$") or not (plain or (isinstance(value, str) and not {"{", "$"} & {*value})):
            return
        yield key, value
