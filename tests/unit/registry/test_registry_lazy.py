"""A registry of cards and a maker: queries make no descriptor, and nobody can tell it from one that holds them."""

from __future__ import annotations

import marshal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib import Annotations, Descriptor, Origin, Registry
from toolcrib.registry.catalog import Card, card_of

TOOLS = [
    Descriptor(
        name="get_map", tags=("geo", "slow"), mode="mock", bindings={"mock": {}}, labels={"team": "geo"}
    ),
    Descriptor(name="get_city", description="Finds a city.", category="maps"),
    Descriptor(name="put.city", mode="live", bindings={"mock": {}, "live": {}}, deprecated="use get_city"),
]


class Maker:
    """Makes the descriptors of `TOOLS`, and remembers which."""

    def __init__(self, tools=TOOLS):
        self.tools = {tool.name: tool for tool in tools}
        self.made = []

    def __call__(self, name):
        self.made.append(name)
        return self.tools[name]


def lazy(tools=TOOLS):
    make = Maker(tools)
    return Registry.lazy([card_of(tool) for tool in tools], make), make


def test_a_card_tells_what_queries_need():
    tool = Descriptor(
        name="a",
        title="A",
        description="Does.",
        version="2",
        category="c",
        tags=("t",),
        labels={"k": "v"},
        mode="mock",
        bindings={"mock": {}, "live": {}},
        annotations=Annotations(idempotent=True),
        deprecated="use b",
        experimental=True,
        input_schema={"properties": {"city": {}, "days": {}}},
        origin=Origin(source="a.yaml", line=3, pack="p", namespace="ns", stale="gone bad"),
    )
    assert card_of(tool) == Card(
        name="a",
        title="A",
        description="Does.",
        version="2",
        category="c",
        tags=("t",),
        labels=(("k", "v"),),
        mode="mock",
        modes=("mock", "live"),
        annotations=("destructive", "idempotent", "open_world"),
        deprecated="use b",
        experimental=True,
        arguments=("city", "days"),
        source="a.yaml",
        line=3,
        pack="p",
        namespace="ns",
        stale="gone bad",
    )
    assert card_of(tool).place() == "a.yaml:3"


@pytest.mark.parametrize("schema", [True, {}, {"properties": True}])
def test_a_schema_without_properties_names_no_arguments(schema):
    assert card_of(Descriptor(name="a", input_schema=schema)).arguments == ()


def test_what_only_reads_does_not_destroy():
    tool = Descriptor(name="a", annotations=Annotations(read_only=True, destructive=True, open_world=False))
    assert card_of(tool).annotations == ("read_only",)


def test_a_card_survives_marshal():
    for tool in TOOLS:
        assert Card(*marshal.loads(marshal.dumps(tuple(card_of(tool))))) == card_of(tool)


def test_queries_make_no_descriptor():
    registry, make = lazy()
    registry = registry.disabled("put*").changed(tool=lambda tool: tool)
    assert list(registry) == ["get_city", "get_map", "put.city"]
    assert len(registry) == 3
    assert "get_map" in registry
    assert "other" not in registry
    assert registry.near("get_mop") == ["get_map"]
    assert [card.name for card in registry.query(tag="geo")] == ["get_map"]
    assert [hit.card.name for hit in registry.search("city")] == ["get_city"]
    assert registry.alias_of("put.city") == "put_city"
    assert registry.why_hidden("put.city")
    assert dict(registry.cards) == {tool.name: card_of(tool) for tool in TOOLS}
    assert make.made == []


def test_a_descriptor_is_made_once_also_for_registries_that_are_derived():
    registry, make = lazy()
    derived = registry.with_tool(Descriptor(name="new")).without("put.city").disabled("x")
    assert derived["get_map"] is registry["get_map"]
    assert derived.get("get_map") is derived["get_map"]
    assert make.made == ["get_map"]


def test_a_registry_may_be_changed_any_number_of_times():
    registry, make = lazy()
    for number in range(3000):
        registry = registry.with_tool(Descriptor(name=f"new_{number % 7}", version=str(number))).without(
            "new_0"
        )
        registry = registry.with_tool(Descriptor(name="new_0"))
    assert registry["get_map"] is TOOLS[0]
    assert len(registry.query()) == len(TOOLS) + 7
    assert (registry.cards["new_6"].version, registry["new_6"].version) == ("2995", "2995")
    assert make.made == ["get_map"]


def test_of_the_tools_only_those_found_are_made():
    registry, make = lazy()
    assert [tool.name for tool in registry.select(tag="geo")] == ["get_map"]
    assert make.made == ["get_map"]


def test_the_values_of_a_mapping_of_cards_are_looked_up_when_they_are_needed():
    class Cards(dict):
        def __getitem__(self, name):
            looked_up.append(name)
            return super().__getitem__(name)

    looked_up = []
    registry = Registry.lazy(Cards({tool.name: card_of(tool) for tool in TOOLS}), Maker())
    assert registry["get_map"].name in registry
    assert looked_up == []
    assert registry.cards["get_city"].category == "maps"
    assert looked_up == ["get_city"]


def test_two_cards_of_one_name_are_a_mistake():
    with pytest.raises(ValueError, match="duplicate card `a`"):
        Registry.lazy([Card("a"), Card("a", title="again")], Maker())


@pytest.mark.parametrize("error", [KeyError("get_map"), OSError("it is gone")])
def test_what_making_raises_comes_through_and_the_next_look_up_asks_again(error):
    answers = [error, TOOLS[0]]

    def make(_name):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    registry = Registry.lazy([card_of(TOOLS[0])], make)
    with pytest.raises(type(error)):
        registry.get("get_map")
    assert registry.get("get_map") is TOOLS[0]
    assert registry.get("other") is None
    assert registry.get("other", TOOLS[1]) is TOOLS[1]


def test_a_change_is_made_of_each_tool_and_card_when_it_is_asked_for():
    registry, make = lazy()
    moved = registry.changed(
        tool=lambda tool: tool._replace(mode="mock") if tool.mode == "live" else tool,
        card=lambda card: card._replace(mode="mock") if card.mode == "live" else card,
    )
    assert make.made == []
    assert [card.name for card in moved.query(mode="mock")] == ["get_map", "put.city"]
    assert moved["put.city"].mode == "mock"
    assert moved["put.city"] is moved["put.city"]
    assert (moved["get_map"] is registry["get_map"], registry["put.city"].mode) == (True, "live")
    assert make.made == ["put.city", "get_map"]


def test_a_replaced_tool_has_a_card_of_its_own():
    registry, make = lazy()
    newer = registry.with_tool(Descriptor(name="get_map", category="new"))
    assert newer.cards["get_map"].category == "new"
    assert [card.name for card in newer.query(category="new")] == ["get_map"]
    assert registry.cards["get_map"].category == ""
    assert make.made == []


def test_without_its_last_tool_a_registry_is_empty():
    registry, _make = lazy()
    assert len(registry.without(*registry)) == 0
    assert registry.without(*registry).query() == []


names = st.text("abX_.", min_size=1, max_size=3)
cards = st.builds(
    Descriptor,
    name=names,
    tags=st.lists(st.sampled_from("xyz"), unique=True, max_size=2).map(tuple),
    mode=st.sampled_from([None, "mock", "live"]),
    description=st.sampled_from(["", "Finds a city.", "Says bX again."]),
)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("add"), cards),
        st.tuples(st.just("remove"), names),
        st.tuples(st.just("move"), names),
        st.tuples(st.just("disable"), names),
        st.tuples(st.just("look"), names),
    ),
    max_size=6,
)


def after(registry, action, value):
    """The registry after one action that both kinds of registry know."""
    if action == "add":
        return registry.with_tool(value)
    if action == "remove":
        return registry.without(value) if value in registry else registry
    if action == "move":
        return registry.changed(
            tool=lambda tool: tool._replace(mode="tape") if tool.name == value else tool,
            card=lambda card: card._replace(mode="tape") if card.name == value else card,
        )
    if action == "disable":
        return registry.disabled(f"{value}*")
    registry.get(value)
    return registry


@given(st.lists(cards, unique_by=lambda tool: tool.name, max_size=6), actions)
def test_nobody_can_tell_a_lazy_registry_from_one_that_holds_its_tools(tools, steps):
    eager, late = Registry(tools), lazy(tools)[0]
    for action, value in steps:
        eager, late = after(eager, action, value), after(late, action, value)
    assert list(late) == list(eager) == sorted(eager)
    assert late.revision == eager.revision
    assert dict(late.cards) == dict(eager.cards) == {name: card_of(tool) for name, tool in eager.items()}
    assert late.query(tag="x") == eager.query(tag="x")
    assert late.search("bX city") == eager.search("bX city")
    assert late.select() == eager.select()
    assert dict(late) == dict(eager)
