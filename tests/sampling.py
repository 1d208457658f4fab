"""How much of an exhaustive test is run: everything by hand, a sample in CI, which has 15 minutes for all there is."""

from __future__ import annotations

import os
from binascii import crc32
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

THOROUGH = os.environ.get("CI") != "true"
"""Whether all of it is run. `CI= make test` does."""


def sample(cases: Iterable[T], one_in: int = 2) -> list[T]:
    """The cases; in CI the first of each so many."""
    return list(cases)[:: 1 if THOROUGH else one_in]


def examples(number: int) -> int:
    """So many examples of a property; in CI a fifth of them."""
    return number if THOROUGH else max(1, number // 5)


def one_of_each(names: str | tuple[str, ...], cases: Sequence[Any]) -> Callable[[T], T]:
    """A test for each of the cases; in CI for one of them, another one for each test, told by its name."""

    def parametrized(test: Any) -> Any:
        chosen = cases if THOROUGH else [cases[crc32(test.__name__.encode()) % len(cases)]]
        return pytest.mark.parametrize(names, chosen)(test)

    return parametrized
