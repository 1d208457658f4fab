"""Filters over tools: what each asks, and how several go together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib import Annotations, Descriptor, Origin, Registry
from toolcrib.core.model import Toolset
from toolcrib.registry.catalog import Card, matches_filters, why_unable

HERE, THERE = Origin(source="tools/a.tool.yaml", pack="maps"), Origin(source="other/b.yaml")

REGISTRY = Registry(
    [
        Descriptor(
            name="get_map",
            tags=("geo", "slow"),
            labels={"team": "geo", "tier": "1"},
            category="maps",
            mode="mock",
            annotations=Annotations(read_only=True),
            origin=HERE,
        ),
        Descriptor(
            name="get_city", tags=("geo",), labels={"team": "web"}, category="maps", mode="live", origin=THERE
        ),
        Descriptor(
            name="put_city",
            mode="mock",
            category="edits",
            origin=THERE,
            deprecated="use get_map",
            annotations=Annotations(idempotent=True, open_world=False),
        ),
        Descriptor(name="later", experimental=True),
    ]
).with_toolsets([Toolset(name="cities", tools=("*_city",)), Toolset(name="reading", tools=("get_*",))])


def found(**filters):
    return [card.name for card in REGISTRY.query(**filters)]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, ["get_city", "get_map", "later", "put_city"]),
        ({"name": "get_*"}, ["get_city", "get_map"]),
        ({"name": "GET_*"}, []),
        ({"name": ["get_*", "later"]}, ["get_city", "get_map", "later"]),
        ({"tag": "geo"}, ["get_city", "get_map"]),
        ({"tag": ["geo", "slow"]}, ["get_map"]),
        ({"tag": ["geo", "slow"], "match": "any"}, ["get_city", "get_map"]),
        ({"tag": ["geo", "!slow"]}, ["get_city"]),
        ({"label": "team"}, ["get_city", "get_map"]),
        ({"label": "team=web"}, ["get_city"]),
        ({"label": "team="}, []),
        ({"label": ["team", "tier=1"]}, ["get_map"]),
        ({"label": "!team"}, ["later", "put_city"]),
        ({"label": "!team=web"}, ["get_map", "later", "put_city"]),
        ({"category": "maps"}, ["get_city", "get_map"]),
        ({"category": ["maps", "edits"]}, ["get_city", "get_map", "put_city"]),
        ({"mode": "mock"}, ["get_map", "put_city"]),
        ({"mode": ["mock", "live"]}, ["get_city", "get_map", "put_city"]),
        ({"mode": ["!mock", "!live"]}, ["later"]),
        ({"source": "tools/*"}, ["get_map"]),
        ({"source": ["tools/*", "other/*"]}, ["get_city", "get_map", "put_city"]),
        ({"pack": "maps"}, ["get_map"]),
        ({"annotation": "read_only"}, ["get_map"]),
        ({"annotation": "!destructive"}, ["get_map"]),
        ({"annotation": ["idempotent", "!open_world"]}, ["put_city"]),
        ({"toolset": "cities"}, ["get_city", "put_city"]),
        ({"toolset": ["cities", "reading"]}, ["get_city"]),
        ({"toolset": "!cities"}, ["get_map", "later"]),
        ({"toolset": "unheard_of"}, []),
        ({"deprecated": True}, ["put_city"]),
        ({"deprecated": False}, ["get_city", "get_map", "later"]),
        ({"experimental": True}, ["later"]),
        ({"name": "*city", "tag": "geo", "mode": "live"}, ["get_city"]),
        (
            {"tag": "slow", "mode": "live", "experimental": True, "match": "any"},
            ["get_city", "get_map", "later"],
        ),
        (
            {"name": ["get_map", "later"], "category": "edits", "match": "any"},
            ["get_map", "later", "put_city"],
        ),
        ({"tag": [], "mode": None, "match": "any"}, ["get_city", "get_map", "later", "put_city"]),
    ],
)
def test_filters_choose_tools(filters, expected):
    assert found(**filters) == expected
    assert [tool.name for tool in REGISTRY.select(**filters)] == expected


def test_a_filter_that_does_not_exist_is_a_mistake():
    with pytest.raises(TypeError, match="colour"):
        REGISTRY.query(colour="red")
    with pytest.raises(TypeError, match="colour"):
        REGISTRY.select(colour="red")


def test_values_may_come_from_anything_that_can_be_walked_through_once():
    assert found(tag=iter(["geo", "slow"])) == ["get_map"]
    assert found(mode=iter(["mock", "!live"])) == ["get_map", "put_city"]


def test_asking_nothing_is_no_test_at_all():
    assert matches_filters() is None
    assert matches_filters(tag=(), match="any") is None


values = st.lists(st.sampled_from(["a", "b", "!a", "!b"]), max_size=3)
cards = st.builds(
    Card,
    name=st.sampled_from("abc"),
    tags=st.lists(st.sampled_from("abc"), unique=True).map(tuple),
    mode=st.sampled_from([None, "a", "b", "c"]),
)


def holds(card, **one):
    return matches_filters(**one)(card)


@given(cards, values, values)
def test_all_and_any_are_what_the_single_conditions_say(card, tags, modes):
    plain = [mode for mode in modes if not mode.startswith("!")]
    single = [
        *(holds(card, tag=tag) for tag in tags),
        *([any(holds(card, mode=mode) for mode in plain)] if plain else []),
        *(holds(card, mode=mode) for mode in modes if mode.startswith("!")),
    ]
    for match, together in (("all", all), ("any", any)):
        test = matches_filters(tag=tags, mode=modes, match=match)
        assert (test is None) is (not single)
        assert test is None or test(card) is together(single)


@given(cards, st.sampled_from(["a", "b"]), st.sampled_from(["name", "tag", "mode"]))
def test_an_exclamation_mark_turns_a_condition_around(card, value, key):
    assert holds(card, **{key: f"!{value}"}) is not holds(card, **{key: value})


# Whether a tool can run.


def test_a_card_is_enough_to_say_why_a_tool_can_not_run():
    def missing(mode):
        return "" if mode == "mock" else "is not installed"

    def why(**keys):
        return why_unable(Card("a", source="a.yaml", line=2, **keys), ("live", "mock"), missing)

    assert why(mode="mock", modes=("mock",)) == ""
    assert why() == "`a` is unbound: add a `live:` or `mock:` block to a.yaml:2"
    assert why(mode="mock", modes=("tape",)) == "`a` has no `mock:` block (a.yaml:2); its modes are: `tape`"
    assert why(mode="mock") == "`a` has no `mock:` block (a.yaml:2); its modes are: none"
    assert why(mode="live", modes=("live",)) == "mode `live` of `a` is not installed"
