"""The rule about tools that a model cannot tell apart."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Final, NamedTuple

from toolcrib.lint.rule import LintedTool, LintedTools, LintFinding, LintRule
from toolcrib.lint.words import FILLERS, name_words, stems, text_words, word_set

SAME: Final = 0.8
"""Share of words of two descriptions, and of the names of their parameters, above which they are almost the same."""

RELATED: Final = 0.5
"""The same for two tools whose names mean the same."""

LEAST: Final = 3
"""Words of a description that is compared; shorter ones are the subject of other rules."""

_SYNONYMS: Final = {
    word: words[0]
    for words in (
        (
            "get",
            "fetch",
            "retrieve",
            "read",
            "load",
            "obtain",
            "lookup",
            "find",
            "show",
            "view",
            "describe",
            "search",
            "query",
        ),
        ("create", "add", "insert", "make", "new", "register"),
        ("delete", "remove", "erase", "drop", "destroy"),
        ("update", "modify", "edit", "change", "alter"),
        ("send", "post", "submit"),
        ("information", "detail", "data", "record"),
    )
    for word in words
}
_VERSIONS: Final = word_set("v tool api new old legacy alt copy")


class _Profile(NamedTuple):
    """What is compared of a tool."""

    each: LintedTool
    name: frozenset[str]
    own: frozenset[str]
    words: frozenset[str]
    arguments: frozenset[str]


def _profile(each: LintedTool) -> _Profile:
    own = stems(word for word in name_words(each.name) if not word.isdigit())
    name = frozenset(_SYNONYMS.get(word, word) for word in own - _VERSIONS)
    words = stems(word for word in text_words(each.tool.description) if word not in FILLERS)
    return _Profile(each, name, own, words, frozenset(one.name for one in each.arguments))


def _similar(linted: LintedTools) -> Iterator[LintFinding]:
    profiles = [_profile(each) for each in linted.seen if not each.tool.deprecated]
    groups: dict[int, list[int]] = defaultdict(list)
    for first, second in _pairs(profiles):
        groups[second].append(first)
    for second in sorted(groups):
        first, *others = sorted(groups[second])
        tool, known = profiles[second].each.tool, profiles[first].each.tool
        more = f" and {len(others)} more" if others else ""
        yield LintFinding(
            f"a model cannot tell `{tool.name}` from `{known.name}` ({known.origin.place()}){more}: "
            "their descriptions and parameters are almost the same",
            tool=tool,
            pointer="/description" if tool.description else "",
            hint="say in both when to use which, or make one tool of them",
        )


def _pairs(profiles: Sequence[_Profile]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of tools that are alike, the earlier one first; of a group with equal words, the pairs with its first."""
    equal: dict[frozenset[str], int] = {}
    kept: list[int] = []
    for at, profile in enumerate(profiles):
        if len(profile.words) < LEAST:
            continue
        first = equal.setdefault(profile.words, at)
        if first == at:
            kept.append(at)
        elif _are_alike(profiles[first], profile):
            yield first, at
    seen: set[tuple[int, int]] = set()
    for pair in (*_by_words(profiles, kept), *_by_names(profiles, kept)):
        if pair not in seen and _are_alike(profiles[pair[0]], profiles[pair[1]]):
            seen.add(pair)
            yield pair


def _by_words(profiles: Sequence[_Profile], kept: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the pairs that may share most of their words.

    Two sets with a Jaccard index of at least t share one of the rarest (1 - t) of their words (prefix filtering), so that few
    of all pairs are compared.
    """
    count = Counter(word for at in kept for word in profiles[at].words)
    having: Mapping[str, list[int]] = defaultdict(list)
    for at in kept:
        words = sorted(profiles[at].words, key=lambda word: (count[word], word))
        size = len(words)
        candidates: dict[int, None] = {}
        for word in words[: size - ceil(SAME * size) + 1]:
            candidates.update(dict.fromkeys(having[word]))
            having[word].append(at)
        for other in candidates:
            if SAME * size <= len(profiles[other].words) <= size / SAME:
                yield other, at


def _by_names(profiles: Sequence[_Profile], kept: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the pairs whose names mean the same, each with the first such tool."""
    first: dict[frozenset[str], int] = {}
    for at in kept:
        if len(profiles[at].name) > 1:
            known = first.setdefault(profiles[at].name, at)
            if known != at:
                yield known, at


def _are_alike(one: _Profile, other: _Profile) -> bool:
    same_arguments = _jaccard(one.arguments, other.arguments)
    same_words = _jaccard(one.words, other.words)
    if one.name == other.name and one.own != other.own:
        return same_words >= RELATED and same_arguments >= RELATED
    # `add_label` and `delete_label` differ in the word that matters, which both their names and their descriptions have.
    if (one.words - other.words) & one.own or (other.words - one.words) & other.own:
        return False
    return same_words >= SAME and same_arguments >= SAME


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / len(one | other) if one or other else 1.0


RULES: Final = (
    LintRule(
        "similar-tools",
        "warning",
        "Two tools have almost the same description and the same parameters.",
        "A model calls either of them. What differs between their names does not help if their descriptions do not speak of it.",
        _similar,
        bad="""\
name: search_customers
description: Customers whose name, address or email matches a text.
annotations: {read_only: true}
input_schema: {type: object, properties: {text: {type: string, description: At least three letters.}}}
---
name: find_customers
description: Customers whose name or email matches a text.
annotations: {read_only: true}
input_schema: {type: object, properties: {text: {type: string, description: At least three letters.}}}
""",
        good="""\
name: search_customers
description: Customers whose name, address or email matches a text.
annotations: {read_only: true}
input_schema: {type: object, properties: {text: {type: string, description: At least three letters.}}}
""",
    ),
)
"""The rules."""
