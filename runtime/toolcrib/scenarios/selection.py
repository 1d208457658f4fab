"""Which scenarios a run is about: by words and by tags."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from toolcrib.loading.scenarios.scenario import Scenario

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
