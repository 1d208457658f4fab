"""What a registry offers: disabled and enabled tools, toolsets, and the one predicate that lists and searches ask."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib import ConfigurationError, Descriptor, Registry
from toolcrib.core.model import Toolset
from toolcrib.registry.catalog import HiddenReason, Rule, idle_globs, idle_toolset_globs

NAMES = ("book_flight", "get_forecast", "legacy_pay", "legacy_refund", "search_flights")

BOOKING = Toolset(name="booking", tools=("search_*", "book_*"), place="toolcrib.yaml:20")
SMALL = Toolset(name="small", tools=("get_forecast",))


@pytest.fixture
def registry():
    tools = [Descriptor(name=name, description=f"Tool {name}.") for name in NAMES]
    return Registry(tools).with_toolsets([BOOKING, SMALL])


def offered(registry):
    return [card.name for card in registry.query()]


def test_everything_is_offered_unless_somebody_says_otherwise(registry):
    assert offered(registry) == list(NAMES)
    assert [registry.why_hidden(name) for name in NAMES] == [""] * 5


def test_a_disabled_tool_exists_but_is_not_offered(registry):
    without = registry.disabled("legacy_*", place="toolcrib.yaml:12 (profile ci)")
    assert list(without) == list(NAMES)
    assert "legacy_pay" in without
    assert without["legacy_pay"].name == "legacy_pay"
    assert len(without) == 5
    assert offered(without) == ["book_flight", "get_forecast", "search_flights"]
    assert [tool.name for tool in without.select(name="legacy*")] == []
    assert [tool.name for tool in without.select(name="legacy*", hidden=True)] == [
        "legacy_pay",
        "legacy_refund",
    ]
    assert [tool.name for tool in without.select(hidden=True)] == list(NAMES)
    assert [hit.card.name for hit in without.search("pay")] == []
    assert [hit.card.name for hit in without.search("pay", hidden=True)] == ["legacy_pay"]
    assert offered(registry) == list(NAMES)


def test_the_reason_names_the_glob_and_the_place(registry):
    without = registry.disabled("legacy_*", "get_forecast", place="toolcrib.yaml:12 (profile ci)").disabled(
        "book*"
    )
    assert without.hidden("legacy_pay") == HiddenReason(
        "disabled",
        "`legacy_pay` is disabled by `legacy_*` in toolcrib.yaml:12 (profile ci)",
        "toolcrib.yaml:12 (profile ci)",
    )
    assert without.why_hidden("get_forecast") == "`get_forecast` is disabled in toolcrib.yaml:12 (profile ci)"
    assert without.why_hidden("book_flight") == "`book_flight` is disabled by `book*`"


def test_the_last_rule_that_fits_counts(registry):
    rules = [Rule(("legacy_*",), enables=False), Rule(("legacy_pay",), enables=True)]
    assert offered(registry.with_rules(rules)) == offered(registry.disabled("legacy_refund"))
    assert offered(registry.with_rules(reversed(rules))) == offered(registry.disabled("legacy_*"))
    assert offered(registry.disabled("*").enabled("get_*", "book_*")) == ["book_flight", "get_forecast"]


def test_within_a_toolset_nothing_else_is_offered(registry):
    booking = registry.within("booking")
    assert booking.toolset is BOOKING
    assert offered(booking) == ["book_flight", "search_flights"]
    assert booking.hidden("get_forecast") == HiddenReason(
        "not_in_toolset",
        "`get_forecast` is not in the active toolset `booking` (toolcrib.yaml:20)",
        "toolcrib.yaml:20",
    )
    assert offered(booking.within(SMALL)) == ["get_forecast"]
    assert booking.within(SMALL).why_hidden("x") == "`x` is not in the active toolset `small`"
    assert offered(booking.within(None)) == list(NAMES)


def test_a_toolset_brings_nothing_back_that_is_disabled(registry):
    both = registry.within("booking").disabled("book_*", place="a.yaml:1")
    assert offered(both) == ["search_flights"]
    assert both.hidden("book_flight").code == "disabled"
    assert both.hidden("get_forecast").code == "not_in_toolset"


def test_a_toolset_that_nobody_knows_is_answered_with_near_ones(registry):
    with pytest.raises(ConfigurationError) as raised:
        registry.within("bookings")
    assert (raised.value.code, str(raised.value)) == (
        "unknown_toolset",
        "unknown toolset `bookings`\n    hint: did you mean `booking`?",
    )
    with pytest.raises(ConfigurationError, match="known toolsets: `booking`, `small`"):
        registry.within("zzzzzz")
    with pytest.raises(ConfigurationError, match="known toolsets: none"):
        Registry().within("any")


def test_what_is_hidden_stays_so_when_tools_change(registry):
    narrow = registry.within("booking").disabled("book_*")
    new = narrow.with_tools([Descriptor(name="search_hotels"), Descriptor(name="book_hotel")]).without(
        "get_forecast"
    )
    assert offered(new) == ["search_flights", "search_hotels"]
    assert new.toolset is BOOKING
    assert set(new.toolsets) == {"booking", "small"}


def test_every_change_is_a_new_revision(registry):
    first = registry.revision
    changed = registry.disabled("a").enabled("a").within("small").with_toolsets([]).with_rules([])
    assert changed.revision == first + 5
    assert changed.after(registry).revision == first + 1


globs = st.lists(st.sampled_from(["*", "legacy_*", "*_flight*", "get_forecast", "x"]), max_size=2)


@given(
    st.lists(st.tuples(globs, st.booleans()), max_size=4),
    st.sampled_from([None, "booking", "small"]),
    st.sampled_from(["", "flight", "tool", "legacy"]),
)
def test_list_select_and_search_ask_the_same_predicate(rules, toolset, text):
    registry = Registry([Descriptor(name=name, description="A tool.") for name in NAMES])
    registry = registry.with_toolsets([BOOKING, SMALL]).within(toolset)
    for fitting, enables in rules:
        registry = registry.enabled(*fitting) if enables else registry.disabled(*fitting)
    shown = [name for name in NAMES if not registry.why_hidden(name)]
    assert offered(registry) == shown
    assert [tool.name for tool in registry.select()] == shown
    found = {hit.card.name for hit in registry.search(text, hidden=True)}
    assert {hit.card.name for hit in registry.search(text)} == found & set(shown)


# Globs that do nothing.


def test_a_toolset_glob_that_fits_no_tool_is_told():
    misspelt = Toolset(name="t", tools=("get_forecats", "serch_*", "book_*", "*"), place="toolcrib.yaml:7")
    first, second = idle_toolset_globs(NAMES, [misspelt, BOOKING])
    assert str(first) == (
        "toolcrib.yaml:7:1: warning: idle_glob: `get_forecats` of the toolset `t` matches no tool\n"
        "    hint: did you mean `get_forecast`?"
    )
    assert second.message == "`serch_*` of the toolset `t` matches no tool"


def test_any_globs_over_names_can_be_looked_through():
    (problem,) = idle_globs(NAMES, ["zzz*", "legacy_*"], of="`disable`", place="toolcrib.yaml")
    assert (problem.source, problem.line, problem.column) == ("toolcrib.yaml", 0, 0)
    assert problem.hint == "use a tool name, or a glob over tool names"
    assert idle_globs(NAMES, ["*"], of="`disable`") == []
    assert idle_globs([], ["*"], of="`disable`") == []


def test_near_misses_are_tools_that_are_offered(registry):
    assert registry.near("legacy_pya") == ["legacy_pay", "legacy_refund"]
    assert registry.disabled("legacy_pay").near("legacy_pya") == ["legacy_refund"]
    assert registry.disabled("legacy_*").near("legacy_pya") == []


def test_globs_are_given_one_by_one(registry):
    assert offered(registry.disabled("get_*")) == [
        "book_flight",
        "legacy_pay",
        "legacy_refund",
        "search_flights",
    ]
    assert offered(registry.disabled("*").enabled("get_*", "book_*", place="x")) == [
        "book_flight",
        "get_forecast",
    ]
    for wrong in (
        lambda: registry.disabled(["get_*"]),
        lambda: registry.enabled(("get_*",)),
        lambda: registry.with_rules([Rule("get_*", enables=False)]),
    ):
        with pytest.raises(TypeError, match=r"get_\*"):
            wrong()


def test_a_closed_registry_offers_nothing_whatever_enables_it(registry):
    closed = registry.closed("a.yaml:1 has errors", "a.yaml:1").enabled("*")
    assert offered(closed) == []
    assert list(closed) == list(NAMES)
    message = "no tool is offered while a.yaml:1 has errors"
    assert closed.hidden("legacy_pay") == HiddenReason("closed", message, "a.yaml:1")
    assert (closed.why_closed, registry.why_closed) == (message, "")


def test_a_name_without_its_namespace_is_near():
    registry = Registry(Descriptor(name=name) for name in ("ac__wt", "b__wt", "b__weather", "c__weather"))
    assert registry.near("wt") == ["ac__wt", "b__wt"]
    assert sorted(registry.near("weathr")) == ["b__weather", "c__weather"]
    assert registry.near("b__weathr")[0] == "b__weather"
    assert registry.near("zzz") == []
    assert registry.disabled("ac__*").near("wt") == ["b__wt"]
