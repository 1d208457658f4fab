"""The list of tools as clients get it: page by page, kept for a while, and anew when files change."""

from __future__ import annotations

import asyncio
import json

import pytest
from mcp import MCPError

from serving_mcp import (
    BASICS,
    PATIENCE,
    client,
    connected,
    each_era,
    each_way_and_era,
    quiet_sdk,
    serve,
    stdio,
    write,
)

pytestmark = [quiet_sdk]


def tool(name: str, description: str = "One of many.") -> str:
    return f"name: {name}\ndescription: {json.dumps(description)}\nmock: {{result: {{from: {name}}}}}\n"


def many(number: int, description: str = "One of many.") -> str:
    return "---\n".join(tool(f"tool_{index:04}", description) for index in range(number))


async def pages(one) -> list[list[str]]:
    found, cursor = [], None
    while True:
        listed = await one.list_tools(cursor=cursor)
        found.append([tool.name for tool in listed.tools])
        cursor = listed.next_cursor
        if cursor is None:
            return found


@each_way_and_era
async def test_pages_of_a_size(way, era, tmp_path):
    async with connected(way, era, write(tmp_path, many(7)), "--page-size", "3") as one:
        found = await pages(one)
        assert [len(page) for page in found] == [3, 3, 1]
        assert [name for page in found for name in page] == [f"tool_{index:04}" for index in range(7)]
        for cursor in ("nonsense", "", "!!!!", "dG9vbF8wMDAwCg=", "é"):
            with pytest.raises(MCPError) as refused:
                await one.list_tools(cursor=cursor)
            assert refused.value.error.code == -32602
            assert cursor not in refused.value.error.message or not cursor


@each_way_and_era
async def test_long_definitions_make_short_pages(way, era, tmp_path):
    """Clients refuse an event of more than 1 MiB."""
    async with connected(way, era, write(tmp_path, many(21, "é" * 8_000))) as one:
        found = await pages(one)
        assert [name for page in found for name in page] == [f"tool_{index:04}" for index in range(21)]
        assert len(found) > 1
        assert (await one.list_tools()).tools[0].description == "é" * 8_000


async def test_how_long_a_list_is_fresh(tmp_path):
    tools = write(tmp_path, BASICS)
    for words, fresh in (((), 5_000), (("--no-watch",), 60_000)):
        async with client(stdio(tools, *words), "2026-07-28") as one:
            listed = await one.list_tools()
            assert (listed.ttl_ms, listed.cache_scope) == (fresh, "public")


@each_way_and_era
async def test_a_change_of_files_is_told_once(way, era, tmp_path):
    tools = write(tmp_path, tool("first"), "first.tool.yaml")
    heard: asyncio.Queue[str] = asyncio.Queue()

    async def hear(message: object) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            heard.put_nowait("changed")

    async with connected(way, era, tools, message_handler=hear) as one:
        assert [each.name for each in (await one.list_tools()).tools] == ["first"]
        for _ in range(
            3
        ):  # each request has a session object of its own, and counts for one client all the same
            await one.call_tool("first")
        if era == "legacy":
            assert one.server_capabilities.tools.list_changed
            write(tmp_path, "---\n".join(map(tool, ("second", "third"))), "more.tool.yaml")
            async with asyncio.timeout(PATIENCE):
                await heard.get()
        else:
            async with one.listen(tools_list_changed=True) as subscription, asyncio.timeout(PATIENCE):
                write(tmp_path, "---\n".join(map(tool, ("second", "third"))), "more.tool.yaml")
                await anext(aiter(subscription))
        listed = await one.list_tools(cache_mode="refresh")
        assert [each.name for each in listed.tools] == ["first", "second", "third"]
        assert (await one.call_tool("third")).structured_content == {"from": "third"}
        assert heard.qsize() == (era != "legacy"), (
            "what a subscription hears, the client's listener hears too"
        )


@each_way_and_era
async def test_without_watching_nothing_is_promised(way, era, tmp_path):
    async with connected(way, era, write(tmp_path, BASICS), "--no-watch") as one:
        assert [each.name for each in (await one.list_tools()).tools] == ["add", "echo", "slow"]
        if era == "legacy":
            assert not one.server_capabilities.tools.list_changed
        else:
            with pytest.raises(MCPError):
                async with one.listen(tools_list_changed=True):
                    pass


async def test_a_cursor_outlives_a_change(tmp_path):
    tools = write(tmp_path, many(6))
    async with serve(tools, "--page-size", "3") as served, client(served.url, "2026-07-28") as one:
        first = await one.list_tools()
        async with one.listen(tools_list_changed=True) as subscription, asyncio.timeout(PATIENCE):
            write(tmp_path, many(2) + "---\n" + tool("tool_0003") + "---\n" + tool("zebra"))
            await anext(aiter(subscription))
        rest = await one.list_tools(cursor=first.next_cursor)
        assert [each.name for each in rest.tools] == ["tool_0003", "zebra"]


@each_era
async def test_a_file_that_breaks_leaves_its_tools_as_they_were(era, tmp_path):
    tools = write(tmp_path, tool("kept"))
    async with serve(tools) as served, client(served.url, era) as one:
        write(tmp_path, "name: kept\nmock: {resu")
        await served.until_said("reloaded: .*`kept` is unchanged")
        assert (await one.call_tool("kept")).structured_content == {"from": "kept"}
