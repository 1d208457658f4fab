"""`toolcrib search`."""

from __future__ import annotations

import pytest

TOOLS = """
name: get_forecast
description: Daily forecast for a city. It is good.
tags: [weather]
annotations: {read_only: true}
mock: {result: 1}
---
name: weather.alerts
description: Warnings for a city.
mock: {result: 1}
---
name: book_table
description: Books a table.
"""


@pytest.fixture
def catalogue(write):
    return write({"descriptors/all.yaml": TOOLS})


def names(result):
    return [tool["name"] for tool in result["tools"]]


def test_the_best_tool_stands_first(catalogue, toolcrib):
    assert toolcrib("search", "weather", "city").stdout.splitlines() == [
        "weather.alerts  mock             Warnings for a city.",
        "get_forecast    mock  read-only  Daily forecast for a city.",
        "2 tools",
    ]


def test_json_has_scores_and_how_many_were_found(catalogue, document):
    result = document("search", "city", "-n", "1", "--json")
    assert names(result) == ["weather.alerts"]
    assert result["tools"][0]["score"] > 0
    assert result["tools"][0]["alias"] == "weather_alerts"
    assert result["found"] == 2


def test_what_is_not_shown_is_counted(catalogue, toolcrib):
    assert toolcrib("search", "city", "-n1").stdout.splitlines()[-1] == (
        "2 tools, the best 1 of them shown; use `-n` to see more"
    )


def test_filters_narrow_a_search(catalogue, document):
    assert names(document("search", "city", "--tag", "weather", "--json")) == ["get_forecast"]
    assert names(document("search", "table", "--mode", "mock", "--json")) == []


def test_nothing_found_says_so_and_names_near_values(catalogue, toolcrib):
    result = toolcrib("search", "zebra")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "no tool matches\n", "")
    result = toolcrib("search", "city", "--tag", "wether")
    assert result.stderr == "no tool has the tag `wether`; did you mean `weather`?\n"


def test_an_empty_folder_has_no_tools(write, toolcrib):
    write({})
    assert toolcrib("search", "city").stdout == "no tools\n"


def test_a_search_needs_words(catalogue, toolcrib):
    result = toolcrib("search")
    assert result.exit_code == 2
    assert "WORDS" in result.stderr
    assert toolcrib("search", "city", "-n", "0").exit_code == 2


def test_tools_that_are_not_offered_are_counted_and_shown_when_asked_for(
    catalogue, write, toolcrib, document
):
    write({"toolcrib.yaml": "project: p\ndisable: ['weather.*']\n"})
    assert toolcrib("search", "city").stdout.splitlines()[-1] == "1 tool; 1 not offered, `--all` shows why"
    assert toolcrib("search", "warning").stdout == "no tool matches; 1 not offered, `--all` shows why\n"
    assert toolcrib("search", "warning", "--all").stdout.splitlines() == [
        "weather.alerts  mock  disabled  `weather.alerts` is disabled by `weather.*` in toolcrib.yaml:2",
        "1 tool",
    ]
    assert document("search", "warning", "--json") == {"tools": [], "found": 0}
