"""The lists of MCP servers: every page, every tool as it came, and what is wrong with the others."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.security.secrets import SecretResolver
from toolcrib.servers.mcp.failures import InvalidAnswer
from toolcrib.servers.mcp.tool_list import MOST_OF_ONE, MOST_PAGES, MOST_TOOLS, list_tools

SCHEMA = {"type": "object"}


def tool(name, **members):
    return {"name": name, "inputSchema": SCHEMA, **members}


async def listed(*pages, check=lambda _schema: None):
    """What is read of pages, of which each is a list of tools; the cursor is the number of the next."""

    async def ask(cursor):
        place = 0 if cursor is None else int(cursor)
        more = {"nextCursor": str(place + 1)} if place + 1 < len(pages) else {}
        return {"tools": pages[place], **more}

    return await list_tools("shop", ask, info={}, secrets=SecretResolver({}), check=check)


async def test_all_pages_are_read_in_order():
    found = await listed([tool("b")], [], [tool("a"), tool("c")])
    assert list(found.tools) == ["b", "a", "c"]
    assert (found.refused, found.remarks) == ({}, ())


async def test_a_definition_is_kept_as_it_came():
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "definitions": {"x": {"const": 1.0}},
        "properties": {"a": {"$ref": "#/definitions/x", "x-own": [None]}},
        "unknownKeyword": {"b": 2**70},
    }
    output = {"anyOf": [{"type": "object"}, {"type": "null"}]}
    written = tool(
        "a", title="A", inputSchema=schema, outputSchema=output, _meta={"k": 1}, icons=[{"src": "data:"}]
    )
    assert (await listed([written])).tools["a"] == written


async def test_a_cursor_that_comes_again_ends_the_list():
    async def ask(_cursor):
        return {"tools": [], "nextCursor": "x"}

    found = await list_tools("shop", ask, info={}, secrets=SecretResolver({}))
    assert found.remarks == ("it sent the cursor `x` twice; its list ends there",)


async def test_a_cursor_that_is_no_text_ends_the_list():
    async def ask(_cursor):
        return {"tools": [tool("a")], "nextCursor": 7}

    found = await list_tools("shop", ask, info={}, secrets=SecretResolver({}))
    assert list(found.tools) == ["a"]
    assert found.remarks == ("it sent a cursor that is not a text; its list ends there",)


async def test_pages_without_end_are_cut_off():
    asked = []

    async def ask(cursor):
        asked.append(cursor)
        return {"tools": [], "nextCursor": str(len(asked))}

    found = await list_tools("shop", ask, info={}, secrets=SecretResolver({}))
    assert len(asked) == MOST_PAGES
    assert found.remarks == ("it has more than 100 pages of tools; the others were not requested",)


async def test_tools_without_end_are_cut_off():
    found = await listed([tool(f"t{n}") for n in range(MOST_TOOLS + 5)], [tool("late")])
    assert len(found.tools) == MOST_TOOLS
    assert found.remarks == ("it has more than 1,000 tools; the others are omitted",)


async def test_definitions_that_take_too_much_are_cut_off():
    large = "x" * (MOST_OF_ONE - 1000)
    found = await listed([tool(f"t{n}", description=large) for n in range(40)])
    assert len(found.tools) == 32
    assert found.remarks == ("its tools exceed 32 MiB; those after #33 are omitted",)


@pytest.mark.parametrize(
    ("bad", "label", "why"),
    [
        ("hi", "#2", "it is not an object"),
        ({"inputSchema": SCHEMA}, "#2", "it has no name"),
        (tool(""), "#2", "it has no name"),
        (tool(7), "#2", "its name is not valid text"),
        (tool("\ud800"), "#2", "its name is not valid text"),
        ({"name": "bad"}, "bad", "it has no `inputSchema`"),
        (tool("bad", inputSchema=True), "bad", "its `inputSchema` is not an object"),
        (
            tool("bad", inputSchema={"type": "array"}),
            "bad",
            "its `inputSchema` is not the schema of an object",
        ),
        (tool("bad", outputSchema=[]), "bad", "its `outputSchema` is not an object"),
        (tool("good"), "#2", "duplicate tool `good`"),
        (tool("bad", description="x" * MOST_OF_ONE), "bad", "its definition is larger than 1 MiB"),
    ],
)
async def test_one_bad_tool_hides_no_other(bad, label, why):
    found = await listed([tool("good"), bad, tool("last")])
    assert list(found.tools) == ["good", "last"]
    assert found.refused == {label: why}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\udfff"])
async def test_what_is_no_json_does_not_get_in(value):
    found = await listed([tool("bad", inputSchema={"type": "object", "default": {"x": value}})])
    assert not found.tools
    assert found.refused["bad"].startswith("its definition cannot be passed on as JSON: ")


async def test_what_may_be_left_out_is_where_it_is_malformed():
    found = await listed([tool("a", title=None, description=7, annotations="x", outputSchema=None)])
    assert found.tools == {"a": tool("a")}
    assert found.remarks == (
        "`a`: its malformed `description` is omitted",
        "`a`: its malformed `annotations` is omitted",
    )


async def test_what_else_speaks_against_a_schema_is_told():
    found = await listed([tool("a")], check=lambda schema: "no" if schema == SCHEMA else None)
    assert found.refused == {"a": "no"}


async def test_a_page_that_is_no_list_is_told():
    async def ask(_cursor):
        return {"tools": None}

    with pytest.raises(InvalidAnswer, match="has no `tools`"):
        await list_tools("shop", ask, info={}, secrets=SecretResolver({}))


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(ANYTHING | st.fixed_dictionaries({"name": ANYTHING, "inputSchema": ANYTHING}), max_size=5))
def test_every_tool_is_taken_or_refused(tools):
    found = asyncio.run(listed(tools))
    assert len(found.tools) + len(found.refused) == len(tools)
