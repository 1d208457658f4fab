"""The words of names and descriptions, so that `user_id`, `userId` and "The user's IDs." can be compared."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

_NAME_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_TEXT_WORD: Final = re.compile(r"[^\W_]+", re.UNICODE)


def word_set(text: str) -> frozenset[str]:
    """The words of a list in one text."""
    return frozenset(text.split())


STOP_WORDS: Final = word_set(
    "a an and any are as at be by can do does each for from has have if in into is it its of on or our such that the "
    "their them then there these this those to via was we when where which who will with you your "
    "given specified particular certain please simply just"
)
"""Words that say nothing about a tool or a parameter."""

FILLERS: Final = word_set(
    "argument arguments attribute field input param parameter property value values type string str text int "
    "integer float boolean bool object list array required optional unique tool function method api endpoint "
    "operation action call use used uses using provide provided returns return"
)
"""Words with which a description says that something is a parameter or a tool."""

_SAME: Final = {
    "identifier": "id",
    "identification": "id",
    "ids": "id",
    "info": "information",
    "num": "number",
}


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """A word without the ending of a plural or of the third person."""
    word = _SAME.get(word, word)
    if len(word) > 4 and word.endswith("ies"):
        return f"{word[:-3]}y"
    if len(word) > 4 and word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    return (
        word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")) else word
    )


def name_words(name: str) -> list[str]:
    """The words of an identifier, in lower case."""
    return [word.lower() for word in _NAME_WORD.findall(name)]


def text_words(text: str) -> list[str]:
    """The words of a text, in lower case; identifiers in it are divided into theirs."""
    return [
        part.lower()
        for word in _TEXT_WORD.findall(text.replace("'s", ""))
        for part in name_words(word) or [word]
    ]


def stems(words: Iterable[str]) -> frozenset[str]:
    """The stems of the words that say something."""
    return frozenset(stem(word) for word in words if word not in STOP_WORDS)


_EXAMPLE: Final = re.compile(r"[`'\"\d]|\be\.g\b|\bsuch as\b|\bfor example\b|\blike\b", re.IGNORECASE)


def only_repeats(text: str, *names: str) -> bool:
    """Whether a description says nothing that these names do not say; an example says something."""
    if _EXAMPLE.search(text):
        return False
    known = stems(word for name in names for word in name_words(name))
    said = stems(word for word in text_words(text) if word not in FILLERS or stem(word) in known)
    return said <= known
