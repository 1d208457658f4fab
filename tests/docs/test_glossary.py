"""Every noun of the product is defined once."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text(encoding="utf-8")

NOUNS = """
    tool descriptor mode binding executor registry pack toolset call attempt result outcome content middleware provider
    policy profile scenario step mock rule reply store fault tape face problem
"""


def test_every_noun_is_defined_once():
    defined = re.findall(r"^\| \*\*(\w+)\*\* \| \S", PAGE, re.MULTILINE)
    assert len(defined) == len(set(defined))
    assert set(NOUNS.split()) <= set(defined)


def test_words_stand_in_alphabetical_order():
    for part in PAGE.split("## Reserved"):
        words = re.findall(r"^\| \*\*(\w+)\*\*", part, re.MULTILINE)
        assert words == sorted(words)
