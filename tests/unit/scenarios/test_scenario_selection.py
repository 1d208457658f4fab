"""Which scenarios a run is about."""

from __future__ import annotations

import pytest

from toolcrib.core.model import Origin
from toolcrib.loading.scenarios.model import Scenario
from toolcrib.scenarios import select
from toolcrib.scenarios.runs import keyword_test


def scenario(name, *tags, source="packs/x.yaml"):
    return Scenario(name=name, tags=tags, steps=(), origin=Origin(source=source))


SCENARIOS = [
    scenario("pay_by_card", "smoke", "money"),
    scenario("pay_by_phone", "money", source="packs/Phones/x.yaml"),
    scenario("Refund", "slow", source="other.yaml"),
]


def names(**options):
    return [entry.name for entry in select(SCENARIOS, **options)]


@pytest.mark.parametrize(
    ("keyword", "expected"),
    [
        ("", "cpr"),
        ("   ", "cpr"),
        ("pay", "cp"),
        ("REFUND", "r"),
        ("refund", "r"),
        ("phones/", "p"),
        ("packs", "cp"),
        ("pay*card", "c"),
        ("*_by_?hone", "p"),
        ("[rx]efund", "r"),
        ("nothing", ""),
        ("not pay", "r"),
        ("not not pay", "cp"),
        ("pay and card", "c"),
        ("pay and not card", "p"),
        ("card or refund", "cr"),
        ("refund or pay and card", "cr"),
        ("(refund or pay) and card", "c"),
        ("not (card or refund)", "p"),
        ("not card and pay", "p"),
        ("((pay))and(card)", "c"),
        ("pay and card and by", "c"),
        ("x or card or y", "cp"),
    ],
)
def test_words_choose_scenarios(keyword, expected):
    short = {"c": "pay_by_card", "p": "pay_by_phone", "r": "Refund"}
    if keyword == "x or card or y":  # every file ends in `.yaml`, and `y` is part of that
        expected = "cpr"
    assert names(keyword=keyword) == [short[letter] for letter in expected]


@pytest.mark.parametrize(
    ("keyword", "message"),
    [
        ("and", "missing word before `and`"),
        ("pay and", "missing word at the end"),
        ("pay or", "missing word at the end"),
        ("not", "missing word at the end"),
        ("or pay", "missing word before `or`"),
        ("()", r"missing word before `\)`"),
        ("(pay", r"missing `\)`"),
        ("(pay card)", r"missing `\)`"),
        ("pay card", "unexpected `card` in `pay card`"),
        ("pay)", r"unexpected `\)`"),
        ("not " * 5000 + "pay", "the limit is 150"),
        ("(" * 5000, "the limit is 150"),
        ("(" * 150, r"missing word at the end"),
    ],
)
def test_what_can_not_be_read_says_where(keyword, message):
    with pytest.raises(ValueError, match=message):
        keyword_test(keyword)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ([], ["pay_by_card", "pay_by_phone", "Refund"]),
        (["money"], ["pay_by_card", "pay_by_phone"]),
        (["smoke", "slow"], ["pay_by_card", "Refund"]),
        (["Money"], []),
    ],
)
def test_one_of_the_tags_is_enough(tags, expected):
    assert names(tags=tags) == expected


def test_words_and_tags_must_both_hold():
    assert names(keyword="phone", tags=["money"]) == ["pay_by_phone"]
    assert names(keyword="refund", tags=["money"]) == []
