"""How much of an exhaustive test is run: everything by hand, a sample in CI, which has 15 minutes for all there is."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")

THOROUGH = os.environ.get("CI") != "true"
"""Whether all of it is run. `CI= make test` does."""


def sample(cases: Iterable[T], one_in: int = 2) -> list[T]:
    """The cases; in CI the first of each so many."""
    return list(cases)[:: 1 if THOROUGH else one_in]


def examples(number: int) -> int:
    """So many examples of a property; in CI a fifth of them."""
    return number if THOROUGH else max(1, number // 5)
