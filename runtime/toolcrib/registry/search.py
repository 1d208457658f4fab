"""Text search over cards, the best match first.

The ranking is a small BM25: a word counts more if fewer tools contain it, and more in a name than in a description.
Its first occurrences count most, and long texts gain nothing from their length. Case and accents are ignored, names
are split into words (`getForecast_v2`), and English plurals are reduced to singulars.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from heapq import nlargest
from itertools import pairwise
from math import log, sqrt

from toolcrib.core.errors import near_misses
from toolcrib.core.server_config import SEPARATOR
from toolcrib.registry.catalog import Card

FIELDS = (
    ("name", 6.0),
    ("title", 4.0),
    ("tags", 3.0),
    ("category", 3.0),
    ("arguments", 1.5),
    ("description", 1.0),
)
"""Fields that are searched, with the weight of a word in each."""

SATURATION = 4.0
"""The weight at which a word has half of its maximum score (k1 of BM25)."""

PREFIX, TYPO = 0.9, 0.5
"""Factors for a word that only starts with the search word, and for a similar word."""

WHOLE_NAME = 1.0
"""Bonus if the search words are exactly those of the name."""

STOP = frozenset(
    "a an and are as at by do for from how i in is it me my of on or that the this to with you".split()  # noqa: SIM905
)
"""Words that are ignored if the search contains others."""

# `difflib` needs quadratic time for each pair of names, which is too slow for thousands of tools.
MANY = 300
"""Maximum number of names that are compared closely with an unknown name."""

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# Chinese and Japanese have no spaces between words, so each character is a word.
_WORD = re.compile(f"[{_CJK}]|[^\\W_{_CJK}]+")
_HUMP = re.compile("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def words_of(text: str) -> list[str]:
    """The words of a text as written, without accents; snake_case is several words."""
    if not text.isascii():
        marked = unicodedata.normalize("NFKD", text)
        bare = "".join(character for character in marked if not unicodedata.combining(character))
        text = unicodedata.normalize("NFC", bare)
    return _WORD.findall(text)


def terms_of(word: str) -> tuple[str, ...]:
    """The index terms of a word: the folded word, then the parts of a camelCase word."""
    parts = _HUMP.split(word)
    return tuple(map(_folded, (word, *parts) if len(parts) > 1 else parts))


def _folded(word: str) -> str:
    """The word in lower case, with an English plural reduced to its singular."""
    # Words in -ss, -us and -is (address, status, analysis) are singulars.
    word = word.casefold()
    if len(word) < 4 or word[-1] != "s" or word[-2] in "sui":
        return word
    return f"{word[:-3]}y" if word.endswith("ies") and len(word) > 4 else word[:-1]


def near_names(name: str, names: Collection[str]) -> list[str]:
    """The names that an unknown name may refer to, the nearest first; at most three.

    A name without a namespace refers to the tools with that name in any namespace, also if it is misspelt.
    """
    within = {full: full.rpartition(SEPARATOR)[2] for full in names if SEPARATOR in full}
    meant = sorted(full for full, short in within.items() if short == name)
    if meant:
        return meant[:3]
    near = _near(name, names)
    if near or SEPARATOR in name:
        return near
    spelt = _near(name, set(within.values()))
    return sorted(
        (full for full in within if within[full] in spelt), key=lambda full: spelt.index(within[full])
    )[:3]


def _near(name: str, names: Collection[str]) -> list[str]:
    if len(names) > MANY:
        pairs = _pairs(name)
        names = nlargest(MANY, sorted(names), key=lambda other: len(pairs & _pairs(other)))
    return near_misses(name, names)


def _pairs(name: str) -> set[str]:
    """The pairs of neighbouring letters of a name, which are faster to compare than sequences."""
    return {*map("".join, pairwise(name.casefold()))}


class _Terms(dict[str, tuple[str, ...]]):
    """Word -> its terms, computed once for each word."""

    def __missing__(self, word: str) -> tuple[str, ...]:
        terms = self[word] = terms_of(word)
        return terms


class SearchIndex:
    """An inverted index over cards. Building it costs far more than a search, so the registry keeps it."""

    def __init__(self, cards: Iterable[Card]) -> None:
        self._names: list[str] = []
        self._found: dict[str, list[tuple[int, float]]] = {}
        terms = _Terms()
        for number, card in enumerate(cards):
            self._names.append(card.name)
            for term, weight in _weights(card, terms).items():
                self._found.setdefault(term, []).append((number, weight / (weight + SATURATION)))
        # Sorted for binary search: all words with a prefix are neighbours.
        self._terms = sorted(self._found)

    def scores(self, text: str) -> list[tuple[str, float]]:
        """The names and scores of tools that contain some of the words, the best first.

        A word also matches longer words that start with it; a word without any match matches similar words. A tool
        with only some of the words is scaled by the square of their share. Equal scores are sorted by name.
        """
        wanted, spelt = self._wanted(text), _spelt(text)
        reached: dict[int, list[float]] = {}
        for word in wanted:
            for number, score in self._of_word(word).items():
                reached.setdefault(number, []).append(score)
        scored = []
        for number, scores in reached.items():
            name, share = self._names[number], len(scores) / len(wanted)
            bonus = WHOLE_NAME if share == 1.0 and _spelt(name) == spelt else 0.0
            # Rounded, so that the order does not depend on the order of floating-point additions.
            scored.append((-round(sum(scores) * share * share + bonus, 4), name))
        return [(name, -score) for score, name in sorted(scored)]

    def _wanted(self, text: str) -> list[str]:
        """The terms to search, each once; a camelCase word is one term only if the index contains it."""
        wanted: dict[str, None] = {}
        for word in words_of(text):
            whole, *parts = terms_of(word)
            wanted.update(dict.fromkeys([whole] if whole in self._found or not parts else parts))
        return [term for term in wanted if term not in STOP] or list(wanted)

    def _of_word(self, word: str) -> dict[int, float]:
        """Number of a tool -> score of a word in it, by the best of the matching terms."""
        best: dict[int, float] = {}
        for term, closeness in self._meant(word):
            found = self._found[term]
            factor = closeness * log(1 + len(self._names) / len(found))
            for number, weight in found:
                if factor * weight > best.get(number, 0.0):
                    best[number] = factor * weight
        return best

    def _meant(self, word: str) -> Iterator[tuple[str, float]]:
        """The terms that a word matches, with the closeness of each: 1 for the word itself."""
        start = bisect_left(self._terms, word)
        end = bisect_left(self._terms, word + "\U0010ffff")
        for term in self._terms[start:end]:
            yield term, 1.0 if term == word else PREFIX * len(word) / len(term)
        if start == end:
            # Typos are rare in the first letters, and comparing all terms would be slow.
            begin = word[:2]
            near = [
                term
                for term in self._terms
                if -3 < len(term) - len(word) < 3 and (term[0] in begin or term[1:2] in begin)
            ]
            for term in difflib.get_close_matches(word, near, n=3, cutoff=0.8):
                yield term, TYPO


def _spelt(text: str) -> list[str]:
    """The folded words of a text: the same for `getCity`, `get_city` and `Get cities`."""
    return [_folded(part) for word in words_of(text) for part in _HUMP.split(word)]


def _weights(card: Card, terms: _Terms) -> dict[str, float]:
    """Term -> its weight in the card."""
    weights: defaultdict[str, float] = defaultdict(float)
    for field, weight in FIELDS:
        value = getattr(card, field)
        words = words_of(value if isinstance(value, str) else " ".join(value))
        if words:
            # Divided by the root of the length: a long description must not win, but it should not lose
            # either.
            counts = weight / sqrt(len(words))
            for word in words:
                for term in terms[word]:
                    weights[term] += counts
    return weights
