"""How much of an exhaustive test is run: a sample of it, or everything with `pytest --exhaustive` (`make test-all`)."""

from __future__ import annotations

import os
from binascii import crc32
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def thorough() -> bool:
    """Whether everything is run.

    conftest.py sets the variable before any test module is imported, and a pytest that a test starts inherits it. Other conftest
    modules may be read earlier: they ask when a test runs.
    """
    return "EXHAUSTIVE_TESTS" in os.environ


def __getattr__(name: str) -> bool:
    """`THOROUGH`, for test modules. Looked up anew by each of them, since a conftest may import this module too early."""
    if name == "THOROUGH":
        return thorough()
    raise AttributeError(name)


def sample(cases: Iterable[T], one_in: int = 2) -> list[T]:
    """The first of every `one_in` cases, or all of them."""
    return list(cases)[:: 1 if thorough() else one_in]


FEW = 10
"""The most examples of a property in a sample; one that asks for no number has half of them (conftest.py)."""


def examples(number: int) -> int:
    """A fifth of the examples of a property, but 5 to `FEW`, or all of them."""
    return number if thorough() else min(number, max(5, min(number // 5, FEW)))


def one_for(test: Any, cases: Sequence[T]) -> Sequence[T]:
    """One of the cases, chosen by the name of the test, or all of them."""
    return cases if thorough() else [cases[crc32(test.__name__.encode()) % len(cases)]]


def one_of_each(names: str | tuple[str, ...], cases: Sequence[Any]) -> Callable[[T], T]:
    """Parametrize a test with one of the cases, chosen by the name of the test, or with all of them."""
    return lambda test: pytest.mark.parametrize(names, one_for(test, cases))(test)
