"""Texts and regular expressions that are looked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from toolcrib.core.errors import ConfigurationError, Problem
from toolcrib.expressions.matchers import compile_matcher


@lru_cache(maxsize=256)
def finds(pattern: str) -> Callable[[str], bool]:
    """What tells whether a regular expression is found in a text, in linear time.

    Raises:
        ConfigurationError: It is none; loading refuses it.
    """
    problems: list[Problem] = []
    matcher = compile_matcher({"$regex": pattern}, problems)
    if problems:
        raise ConfigurationError(problems[0].message, code=problems[0].code)
    return matcher.matches


def stands_in(part: str, text: str) -> bool:
    """Whether a text stands in another one, whatever their case."""
    return part.casefold() in text.casefold()


def stands_as_words(part: str, text: str) -> bool:
    """Whether a text stands in another one with no letter or digit before or after it, whatever their case."""
    return re.search(rf"(?<!\w){re.escape(part.casefold())}(?!\w)", text.casefold()) is not None
