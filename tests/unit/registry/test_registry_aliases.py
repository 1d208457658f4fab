"""Aliases: safe for every provider, one for each tool, and as lasting as they can be."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib import Descriptor, Registry
from toolcrib.registry.names import aliases_of

SAFE = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)


def registry_of(*names):
    return Registry([Descriptor(name=name) for name in names])


def alias(name, *others):
    return registry_of(name, *others).alias_of(name)


def test_a_safe_name_is_its_own_alias():
    assert [alias(name) for name in ("get_forecast", "Get-2", "a" * 64)] == [
        "get_forecast",
        "Get-2",
        "a" * 64,
    ]


def test_other_characters_become_underscores():
    assert alias("weather.get") == "weather_get"
    assert alias("weather.get", "weather-get", "other.get") == "weather_get"
    assert alias("größe") == "gr__e"


def test_a_long_name_is_cut_and_marked():
    assert re.fullmatch("a{55}_[0-9a-f]{8}", alias("a" * 65))
    assert alias("a" * 65) != alias("a" * 66)
    assert re.fullmatch("_[0-9a-f]{8}", alias(""))


def test_names_that_come_to_the_same_are_all_marked():
    one, other = alias("a.b", "a b"), alias("a b", "a.b")
    assert re.fullmatch("a_b_[0-9a-f]{8}", one)
    assert re.fullmatch("a_b_[0-9a-f]{8}", other)
    assert one != other
    assert re.fullmatch("a_b_[0-9a-f]{8}", alias("a.b", "a_b"))
    assert alias("a_b", "a.b") == "a_b"


def test_an_alias_leads_back_to_its_tool_and_nothing_else_does():
    registry = registry_of("a.b", "a_b", "c.d", "plain")
    for name in registry:
        assert registry.named_by_alias(registry.alias_of(name)) == name
    assert registry.named_by_alias("plain") == "plain"
    for other in ("a.b", "c.d", "zzz", ""):
        assert registry.named_by_alias(other) is None


def test_a_tool_that_is_not_there_has_no_alias():
    with pytest.raises(KeyError):
        registry_of("a").alias_of("b")


def test_a_digest_that_is_taken_is_not_taken_twice():
    marked = alias("a.b", "a_b")
    assert aliases_of(["a.b", "a_b", marked])["a.b"] not in {"a_b", marked}


names = st.lists(
    st.one_of(
        st.text("ab._ -é", max_size=4),
        st.text("ab.", min_size=62, max_size=67),
        st.text(max_size=3),
    ),
    unique=True,
    max_size=12,
)


@given(names)
def test_every_alias_is_safe_and_no_two_tools_share_one(some):
    registry = registry_of(*some)
    aliases = {name: registry.alias_of(name) for name in some}
    assert len(set(aliases.values())) == len(some)
    for name, its in aliases.items():
        assert SAFE.fullmatch(its)
        assert registry.named_by_alias(its) == name
        assert its == name or not SAFE.fullmatch(name)


@given(names, st.randoms(use_true_random=False))
def test_aliases_do_not_depend_on_the_order_of_the_tools(some, chance):
    mixed = list(some)
    chance.shuffle(mixed)
    assert aliases_of(mixed) == aliases_of(some)


@given(names, st.text("ab._", min_size=1, max_size=4))
def test_a_further_tool_changes_only_the_aliases_that_it_would_share(some, new):
    before, after = aliases_of(some), aliases_of({*some, new})
    plain = re.sub("[^A-Za-z0-9_-]", "_", new)
    for name, its in before.items():
        assert after[name] == its or its == plain
