"""Text search: what it finds, and in which order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib import Descriptor, Registry
from toolcrib.registry.catalog import Card, Hit
from toolcrib.registry.search import SearchIndex, terms_of, words_of


def tool(name, description="", **keys):
    return Descriptor(name=name, description=description, **keys)


REGISTRY = Registry(
    [
        tool("get_forecast", "Daily forecast for a city.", tags=("weather",)),
        tool("getAlerts", "Warnings of storms and floods.", title="Weather alerts", category="safety"),
        tool(
            "book_table",
            "Réserve une table.",
            input_schema={"properties": {"guests": {}, "restaurantId": {}}},
        ),
        tool("list_cities", "Cities of a country, without the weather."),
        tool("ask.tenki", "東京の天気を調べる。"),
    ]
)


def found(text, **filters):
    return [hit.card.name for hit in REGISTRY.search(text, **filters)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("forecast", ["get_forecast"]),
        ("FORECASTS", ["get_forecast"]),
        ("fore", ["get_forecast"]),
        ("storm", ["getAlerts"]),
        ("getalerts", ["getAlerts"]),
        ("get_alerts", ["getAlerts", "get_forecast"]),
        ("alert", ["getAlerts"]),
        ("safety", ["getAlerts"]),
        ("reserve", ["book_table"]),
        ("RÉSERVE", ["book_table"]),
        ("guest", ["book_table"]),
        ("restaurant", ["book_table"]),
        ("city", ["list_cities", "get_forecast"]),
        ("weather", ["get_forecast", "getAlerts", "list_cities"]),
        ("天気", ["ask.tenki"]),
        ("tenki", ["ask.tenki"]),
        ("the weather of a city", ["list_cities", "get_forecast", "getAlerts"]),
        ("zebra", []),
        ("", []),
        ("?!", []),
    ],
)
def test_words_find_tools_the_best_first(text, expected):
    assert found(text) == expected


def test_a_word_of_every_sentence_is_looked_for_only_alone():
    assert found("a forecast") == ["get_forecast"]
    assert found("a") != []


@pytest.mark.parametrize("text", ["forcast", "foreacst", "weathr forcast", "Forecazt"])
def test_a_word_that_fits_nothing_finds_its_near_misses(text):
    assert found(text)[0] == "get_forecast"


def test_a_near_miss_is_not_looked_for_where_the_word_itself_is_there():
    registry = Registry([tool("one", "book"), tool("two", "look"), tool("three", "books of looks")])
    assert [hit.card.name for hit in registry.search("book")] == ["one", "three"]


def test_the_words_of_the_name_alone_come_before_longer_names():
    registry = Registry([tool("get_city_map", "City map of a city."), tool("getCity"), tool("a_city")])
    for text in ("get_city", "getCity", "get cities"):
        assert registry.search(text)[0].card.name == "getCity"


def test_a_rare_word_counts_more_than_a_frequent_one():
    registry = Registry([*(tool(f"get_{name}") for name in "abcdefgh"), tool("put_rain")])
    assert registry.search("get rain")[0].card.name == "put_rain"


def test_more_of_the_words_count_more():
    registry = Registry([tool("transfer"), tool("other", "Pays a bill by transfer.")])
    assert [hit.card.name for hit in registry.search("transfer")] == ["transfer", "other"]
    assert [hit.card.name for hit in registry.search("pay bill transfer")] == ["other", "transfer"]


def test_scores_are_shown_and_equal_ones_stand_in_the_order_of_names():
    hits = Registry([tool("b_x"), tool("a_x"), tool("c_x")]).search("x")
    assert [hit.card.name for hit in hits] == ["a_x", "b_x", "c_x"]
    assert len({hit.score for hit in hits}) == 1
    assert hits[0].score > 0
    assert hits[0] == Hit(
        Card("a_x", annotations=("destructive", "open_world"), source="<memory>", line=1), hits[0].score
    )


def test_a_word_that_every_tool_uses_still_finds_them():
    registry = Registry([tool(f"tool_{number}", "A tool.") for number in range(50)])
    assert len(registry.search("tool")) == 50


def test_filters_and_a_limit_narrow_a_search():
    assert found("weather", tag="weather") == ["get_forecast"]
    assert found("weather", name="get*") == ["get_forecast", "getAlerts"]
    assert found("weather", limit=2) == ["get_forecast", "getAlerts"]
    assert found("weather", limit=1, name="list*") == ["list_cities"]
    assert found("weather", limit=0) == []


def test_a_changed_registry_is_searched_anew():
    assert REGISTRY.search("submarine") == []
    newer = REGISTRY.with_tool(tool("dive", "Steers a submarine."))
    assert [hit.card.name for hit in newer.search("submarine")] == ["dive"]
    assert newer.without("dive").search("submarine") == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("get_forecast-v2.now", ["get", "forecast", "v2", "now"]),
        ("Ünïcode ﬁle", ["Unicode", "file"]),
        ("東京 tower", ["東", "京", "tower"]),
        ("서울", ["서울"]),
        ("", []),
    ],
)
def test_texts_are_taken_apart_into_words(text, words):
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("word", "terms"),
    [
        ("cities", ("city",)),
        ("Forecasts", ("forecast",)),
        ("address", ("address",)),
        ("status", ("status",)),
        ("analysis", ("analysis",)),
        ("bus", ("bus",)),
        ("ties", ("tie",)),
        ("getForecast", ("getforecast", "get", "forecast")),
        ("parseHTTPHeaders", ("parsehttpheader", "parse", "http", "header")),
        ("MCP", ("mcp",)),
    ],
)
def test_a_word_is_found_by_its_folded_parts(word, terms):
    assert terms_of(word) == terms


texts = st.lists(st.sampled_from(["get", "put", "city", "cities", "weatherMap", "Réserve", "天気", "a"])).map(
    " ".join
)
cards = st.lists(
    st.builds(
        Card, name=st.text("abcXY_.", min_size=1, max_size=4), description=texts, tags=st.tuples(texts)
    ),
    unique_by=lambda card: card.name,
    max_size=6,
)


@given(cards, texts, st.randoms(use_true_random=False))
def test_the_order_of_hits_depends_on_nothing_but_what_the_tools_say(some, text, chance):
    mixed = list(some)
    chance.shuffle(mixed)
    scores = SearchIndex(some).scores(text)
    assert SearchIndex(mixed).scores(text) == scores
    assert scores == sorted(scores, key=lambda pair: (-pair[1], pair[0]))
    assert all(score > 0 for _name, score in scores)
    assert SearchIndex(some).scores(text.upper().replace("WEATHERMAP", "WeatherMap")) == scores


@given(cards.filter(bool), st.data())
def test_every_tool_is_found_by_its_name(some, data):
    card = data.draw(st.sampled_from(some).filter(lambda card: words_of(card.name)))
    names = [name for name, _score in SearchIndex(some).scores(card.name)]
    assert card.name in names


@given(st.text(), st.text())
def test_no_text_breaks_a_search(name, text):
    assert isinstance(SearchIndex([Card(name, description=text)]).scores(text), list)
