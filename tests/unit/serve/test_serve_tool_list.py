"""Pages of tools: every tool once and in order, however large they are, and while tools come and go."""

from __future__ import annotations

import json
import tracemalloc
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types.methods import serialize_server_result

from toolcrib.core.model import Descriptor, Toolset
from toolcrib.registry.registry import Registry
from toolcrib.serve.mcp.options import Options
from toolcrib.serve.mcp.tool_list import ListingCache, ToolListing

NAMES = st.sets(st.text("abc.é_", min_size=1, max_size=6), max_size=30)


def registry_of(*names: str) -> Registry:
    return Registry(Descriptor(name, description="x") for name in names)


def walked(listing: ToolListing, revision: str = "2026-07-28") -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = listing.page(revision, cursor)
        found += [tool["name"] for tool in json.loads(b"[" + page.data + b"]")]
        cursor = page.cursor
        if cursor is None:
            return found


@given(NAMES, st.integers(1, 7))
def test_all_pages_together_are_all_tools_in_order(names, size):
    registry = registry_of(*names)
    listing = ToolListing(registry, "", Options(page_tools=size))
    assert walked(listing) == [registry.alias_of(name) for name in sorted(names)]


@given(NAMES, NAMES, st.integers(1, 7))
def test_a_cursor_goes_on_where_it_stopped_whatever_came_and_went(before, after, size):
    options = Options(page_tools=size)
    first = ToolListing(registry_of(*before), "", options).page("2026-07-28", None)
    if first.cursor is None:
        return
    last = sorted(before)[size - 1]
    rest, cursor, registry = [], first.cursor, registry_of(*after)
    listing = ToolListing(registry, "", options)
    while cursor is not None:
        page = listing.page("2026-07-28", cursor)
        rest += [tool["name"] for tool in json.loads(b"[" + page.data + b"]")]
        cursor = page.cursor
    assert rest == [registry.alias_of(name) for name in sorted(after) if name > last]


@given(st.text())
def test_a_cursor_of_somebody_else_is_refused_or_names_a_tool(cursor):
    listing = ToolListing(registry_of("a", "b"), "", Options())
    try:
        page = listing.page("2026-07-28", cursor)
    except ValueError:
        return
    assert page.cursor is None


def test_a_page_is_made_once_for_a_registry_and_revision():
    registry = registry_of("a", "b")
    listings = ListingCache(Options(), lambda _tool: False)
    listing = listings.of(registry, "")
    assert listing.page("2026-07-28", None) is listings.of(registry, "").page("2026-07-28", None)
    assert listing.page("2025-11-25", None) is not listing.page("2026-07-28", None)
    other = registry.with_tool(Descriptor("c"))
    assert listings.of(other, "") is not listing
    assert walked(listings.of(other, "")) == ["a", "b", "c"]


def test_pages_that_begin_anywhere_are_given_but_not_kept():
    names = [f"t{index:04}" for index in range(400)]
    listing = ToolListing(registry_of(*names), "", Options(page_tools=100))
    assert len(walked(listing)) == 400  # so that each definition is encoded
    tracemalloc.start()
    try:
        for name in names[:-1]:
            page = listing.page("2026-07-28", urlsafe_b64encode(name.encode()).decode())
            assert json.loads(b"[" + page.data + b"]")[0]["name"] > name
        kept, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 64 * 1024, "four hundred pages take some megabytes"
    first = listing.page("2026-07-28", None)
    assert listing.page("2026-07-28", first.cursor) is listing.page("2026-07-28", first.cursor)


def test_only_what_is_offered_is_listed_and_named():
    toolset = Toolset("few", tools=("a*",))
    registry = registry_of("a1", "a2", "b.b").with_toolsets([toolset]).disabled("a2")
    listings = ListingCache(Options(), lambda _tool: False)
    assert walked(listings.of(registry, "")) == ["a1", "b_b"]
    assert listings.of(registry, "").named == {"a1": "a1", "b_b": "b.b", "b.b": "b.b"}
    assert walked(listings.of(registry, "few")) == ["a1"]
    assert walked(listings.of(registry, "gone")) == []
    assert listings.of(registry, "few").input_of("b_b") is None
    assert listings.of(registry, "").near("a11") == ["a1"]
    assert listings.of(registry, "gone").near("a11") == []


@pytest.mark.parametrize("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"])
def test_every_definition_is_ascii_and_valid(revision):
    listing = ToolListing(
        Registry([Descriptor("a", description="é\u2028x", output_schema={"type": "array"})]), "", Options()
    )
    data = listing.page(revision, None).data
    assert data.isascii()
    tools = json.loads(b"[" + data + b"]")
    whole = {"tools": tools, "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    assert serialize_server_result("tools/list", revision, whole)["tools"][0]["description"] == "é\u2028x"
