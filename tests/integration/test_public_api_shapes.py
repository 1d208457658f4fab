"""The example descriptors call the APIs that they stand for: loopback servers with the shapes of their documentation.

Only scheme, host and port are others (`origins`). What comes back passes the output schemas that the mocks pass too.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest

from live_tools import live_executors
from public_apis import ACCESS_TOKEN, PNG, TOKENS, public_apis
from sampling import sample
from toolcrib import Outcome, RealClock, Runtime


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    for name, value in TOKENS.items():
        monkeypatch.setenv(name, value)


@asynccontextmanager
async def live(folder, *origins):
    """The tools of a folder in mode `live`, over servers in place of these origins."""
    async with (
        public_apis(*origins) as apis,
        Runtime.open(
            folder,
            mode="live",
            executors=live_executors(),
            clock=RealClock(),
            egress=apis.allowed,
            origins=apis.origins,
        ) as tools,
    ):
        yield tools, apis


# Tool, arguments, origin, and the parameters that the API is to be sent.
GOOD = {
    "openmeteo_geocoding": (
        {"name": "Oslo", "countryCode": "NO", "count": 1},
        "https://geocoding-api.open-meteo.com",
        {"name": "Oslo", "count": "1", "language": "en", "countryCode": "NO", "format": "json"},
    ),
    "openmeteo_forecast": (
        {
            "latitude": 59.91,
            "longitude": 10,
            "current": ["temperature_2m", "weather_code"],
            "forecast_days": 2,
            "daily": ["precipitation_sum"],
            "timezone": "Europe/Oslo",
        },
        "https://api.open-meteo.com",
        {
            "latitude": "59.91",
            "longitude": "10",
            "current": "temperature_2m,weather_code",
            "daily": "precipitation_sum",
            "temperature_unit": "celsius",
            "timezone": "Europe/Oslo",
            "forecast_days": "2",
        },
    ),
    "frankfurter_latest": (
        {"symbols": ["USD", "NOK"]},
        "https://api.frankfurter.dev",
        {"base": "EUR", "symbols": "USD,NOK"},
    ),
    "nominatim_search": (
        {"q": "Brandenburger Tor, Berlin", "limit": 1, "addressdetails": 1, "countrycodes": "de,at"},
        "https://nominatim.openstreetmap.org",
        {
            "q": "Brandenburger Tor, Berlin",
            "limit": "1",
            "countrycodes": "de,at",
            "addressdetails": "1",
            "accept-language": "en",
            "format": "jsonv2",
        },
    ),
    "restcountries_by_code": ({"code": "NO"}, "https://restcountries.com", {}),
    "openlibrary_search": (
        {"title": "The lord of the rings & co"},
        "https://openlibrary.org",
        {
            "title": "The lord of the rings & co",
            "limit": "100",
            "page": "1",
            "fields": "key,title,author_key,author_name,cover_i,edition_count,first_publish_year,language",
        },
    ),
    "hackernews_item": ({"id": 8863}, "https://hacker-news.firebaseio.com", {}),
    "hackernews_top_stories": ({}, "https://hacker-news.firebaseio.com", {}),
    "nasa_apod": (
        {"date": "2020-01-01"},
        "https://api.nasa.gov",
        {"date": "2020-01-01", "thumbs": "false", "api_key": TOKENS["NASA_API_KEY"]},
    ),
    "crossref_search_works": (
        {"query": "computable numbers", "rows": 3},
        "https://api.crossref.org",
        {"query": "computable numbers", "rows": "3", "offset": "0", "sort": "relevance"},
    ),
    "wikipedia_page_summary": (
        {"title": "Ada Lovelace"},
        "https://en.wikipedia.org",
        {"redirect": "true"},
    ),
    "github_search_issues": (
        {"q": "repo:octocat/hello-world is:issue", "per_page": 2},
        "https://api.github.com",
        {"q": "repo:octocat/hello-world is:issue", "order": "desc", "per_page": "2", "page": "1"},
    ),
    "github_create_issue": (
        {"owner": "octocat", "repo": "hello-world", "title": "It breaks", "labels": ["bug"]},
        "https://api.github.com",
        {},
    ),
    "slack_post_message": ({"channel": "#general", "text": "It's done"}, "https://slack.com", {}),
    "stripe_create_payment_intent": (
        {
            "amount": 1250,
            "currency": "eur",
            "payment_method": "pm_card_visa",
            "confirm": True,
            "metadata": {"order": "7 & 8"},
        },
        "https://api.stripe.com",
        {},
    ),
    "google_calendar_list_events": (
        {"singleEvents": True, "orderBy": "startTime"},
        "https://www.googleapis.com",
        {"maxResults": "250", "singleEvents": "true", "orderBy": "startTime"},
    ),
}


def test_every_example_that_stands_for_an_api_can_call_it(root):
    with Runtime.open(root / "descriptors") as tools:
        live_ones = {tool.name: tool for tool in tools.registry.values() if "live" in tool.bindings}
    assert set(live_ones) == set(GOOD)
    assert all(tool.mode == "mock" for tool in live_ones.values())


@pytest.mark.parametrize("name", sample(GOOD, one_in=4))
async def test_a_tool_sends_what_the_api_documents_and_its_answer_fits(name, root):
    arguments, origin, query = GOOD[name]
    async with live(root / "descriptors") as (tools, apis):
        result = await tools.call(name, arguments)
        assert result.outcome is Outcome.OK, result.message
        assert dict(apis.requests_of(origin)[0].query) == query
        for value in TOKENS.values():
            assert value not in json.dumps(result.as_json())


async def test_values_are_those_of_the_answer(root):
    async with live(root / "descriptors") as (tools, _apis):
        rates = await tools.call("frankfurter_latest", {"base": "GBP", "symbols": ["EUR"]})
        assert rates.value == {"amount": 1.0, "base": "GBP", "date": "2029-12-31", "rates": {"EUR": 1.17647}}
        assert (await tools.call("hackernews_item", {"id": 99999999})).value is None
        charged = await tools.call("stripe_create_payment_intent", GOOD["stripe_create_payment_intent"][0])
        assert charged.value["metadata"] == {"order": "7 & 8"}
        issue = await tools.call("github_create_issue", GOOD["github_create_issue"][0])
        assert [label["name"] for label in issue.value["labels"]] == ["bug"]


async def test_bodies_hold_what_the_url_does_not_take(root):
    async with live(root / "descriptors") as (tools, apis):
        await tools.call("github_create_issue", GOOD["github_create_issue"][0])
        await tools.call("slack_post_message", GOOD["slack_post_message"][0])
        (head,) = apis.requests_of("https://api.github.com")
        assert (head.method, head.path) == ("POST", "/repos/octocat/hello-world/issues")
        assert head.json == {"title": "It breaks", "labels": ["bug"]}
        (head,) = apis.requests_of("https://slack.com")
        told = {"channel": "#general", "text": "It's done", "reply_broadcast": False, "mrkdwn": True}
        assert head.json == told


# Tool, arguments, and the code, message and status of the failure.
FAILING = [
    (
        "openmeteo_forecast",
        {"latitude": 1, "longitude": 1, "timezone": "Nowhere"},
        "bad_request",
        "Invalid timezone",
        400,
    ),
    ("frankfurter_latest", {"symbols": ["XXX"]}, "not_found", "not found", 404),
    ("restcountries_by_code", {"code": "XX"}, "not_found", "Not Found", 404),
    (
        "nasa_apod",
        {"date": "1990-01-01"},
        "bad_request",
        "Date must be between Jun 16, 1995 and Dec 31, 2029.",
        400,
    ),
    (
        "crossref_search_works",
        {"query": "x", "filter": "colour:red"},
        "filter-not-available",
        "Filter colour specified but there is no such filter for this route",
        400,
    ),
    ("wikipedia_page_summary", {"title": "No such page"}, "not_found", "Page or revision not found.", 404),
    ("github_create_issue", {"owner": "nobody", "repo": "x", "title": "x"}, "not_found", "Not Found", 404),
    (
        "github_create_issue",
        {"owner": "octocat", "repo": "x", "title": "x", "assignees": ["nobody"]},
        "validation_failed",
        "Validation Failed",
        422,
    ),
    (
        "github_search_issues",
        {"q": "x", "page": 11, "per_page": 100},
        "validation_failed",
        "Only the first 1000 search results are available",
        422,
    ),
    (
        "stripe_create_payment_intent",
        {"amount": 100, "currency": "eur", "confirm": True, "payment_method": "pm_card_chargeDeclined"},
        "card_declined",
        "Your card was declined.",
        402,
    ),
    (
        "google_calendar_list_events",
        {"orderBy": "startTime"},
        "badRequest",
        "The requested ordering is not available for the particular query.",
        400,
    ),
    ("google_calendar_list_events", {"calendarId": "a/b"}, "notFound", "Not Found", 404),
]


@pytest.mark.parametrize(("name", "arguments", "code", "message", "status"), sample(FAILING, one_in=4))
async def test_failures_are_told_as_the_mocks_tell_them(name, arguments, code, message, status, root):
    async with live(root / "descriptors") as (tools, _apis):
        result = await tools.call(name, arguments)
    assert (result.outcome, result.error.code, result.message) == (Outcome.TOOL_ERROR, code, message)
    assert result.error.details["status"] == status
    assert result.error.retryable is False


async def test_a_busy_api_says_when_to_come_back(root):
    async with live(root / "descriptors") as (tools, _apis):
        result = await tools.call("slack_post_message", {"channel": "#busy", "text": "x"})
    assert (result.error.code, result.error.retryable) == ("ratelimited", True)
    assert result.error.details["retry_after"] == 30


async def test_a_failure_that_is_told_with_status_200_is_no_good_result(root):
    async with live(root / "descriptors", "https://slack.com") as (tools, _apis):
        result = await tools.call("slack_post_message", {"channel": "#missing", "text": "x"})
    assert result.outcome is Outcome.INVALID_RESULT
    assert result.raw_value == {"ok": False, "error": "channel_not_found"}


async def test_pages_of_a_search_are_gone_through_by_their_links(root):
    async with live(root / "descriptors", "https://api.github.com") as (tools, _apis):
        seen, page = [], 1
        while page is not None:
            arguments = {"q": "x", "per_page": 2, "page": int(page)}
            result = await tools.call("github_search_issues", arguments)
            assert result.outcome is Outcome.OK, result.message
            seen += [item["number"] for item in result.value["items"]]
            page = result.value["next_page"]
    assert seen == [1, 2, 3, 4, 5]


async def test_pages_of_a_calendar_are_collected_with_one_token(root):
    async with live(root / "descriptors") as (tools, apis):
        result = await tools.call("google_calendar_list_events", {"singleEvents": True})
        assert [event["id"] for event in result.value["items"]] == ["standup", "planning"]
        assert len(apis.requests_of("https://oauth2.googleapis.com")) == 1
        pages = apis.requests_of("https://www.googleapis.com")
        assert [dict(head.query).get("pageToken") for head in pages] == [None, "page-two"]
        assert ACCESS_TOKEN not in json.dumps(result.as_json())


async def test_a_title_that_stands_for_an_article_is_followed(root):
    async with live(root / "descriptors", "https://en.wikipedia.org") as (tools, apis):
        result = await tools.call("wikipedia_page_summary", {"title": "Ada Byron"})
        assert result.value["title"] == "Ada Lovelace"
        assert len(apis.requests_of("https://en.wikipedia.org")) == 2


@pytest.mark.parametrize("title", sample(["AC/DC", "C#", "What?", "100%", "a\\b", "...", ".. /x"], one_in=3))
async def test_a_title_stays_one_segment_whatever_it_holds(title, root):
    async with live(root / "descriptors", "https://en.wikipedia.org") as (tools, apis):
        result = await tools.call("wikipedia_page_summary", {"title": title})
        assert result.error.code == "not_found"
        (head,) = apis.requests_of("https://en.wikipedia.org")
        assert head.path.count("/") == 5


async def test_a_title_that_would_lead_elsewhere_is_refused(root):
    async with live(root / "descriptors", "https://en.wikipedia.org") as (tools, apis):
        for title in ("..", ".", "../../robots.txt"):
            result = await tools.call("wikipedia_page_summary", {"title": title})
            assert result.outcome is Outcome.INVALID_ARGUMENTS
        assert apis.requests_of("https://en.wikipedia.org") == []


async def test_without_its_secret_a_tool_is_unavailable_and_sends_nothing(root, monkeypatch):
    monkeypatch.delenv("GITHUB_TOKEN")
    async with live(root / "descriptors", "https://api.github.com") as (tools, apis):
        result = await tools.call("github_search_issues", {"q": "x"})
        assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "missing_secret")
        assert "GITHUB_TOKEN" in result.message
        assert apis.requests_of("https://api.github.com") == []


async def test_a_dry_run_of_every_tool_shows_its_request_and_no_secret(root):
    async with live(root / "descriptors") as (tools, apis):
        for name, (arguments, origin, query) in GOOD.items():
            plan = (await tools.dry_run(name, arguments)).value["plan"]
            assert plan["request"]["url"].startswith(apis.origins[origin]), plan
            assert plan["curl"].startswith("curl ")
            assert {part["at"].rpartition(":")[0] for part in plan["from"] if part["part"] == "url"} != {""}
            assert all(f"{key}=" in plan["request"]["url"] for key in query if key != "accept-language")
            told = json.dumps(plan)
            assert not [value for value in TOKENS.values() if value in told]
        assert not [server.requests for server in apis.servers.values() if server.requests]


# PromptKit's examples, as they are published.


@pytest.fixture
def examples(shared_data):
    return shared_data / "promptkit-examples" / "live-http-tools"


FOUR = (
    "https://api.mathjs.org",
    "https://placehold.co",
    "https://api.open-meteo.com",
    "https://geocoding-api.open-meteo.com",
)


async def test_the_live_examples_of_promptkit_do_what_they_say(examples):
    async with live(examples, *FOUR) as (tools, apis):
        sums = await tools.call("calculate", {"expr": "2 * (3 + 4)"})
        assert (sums.outcome, sums.value) == (Outcome.OK, "14")
        places = await tools.call("search_places", {"name": "Oslo"})
        oslo = {"name": "Oslo", "latitude": 59.91273, "longitude": 10.74609, "country": "Norway"}
        assert places.value == [oslo]
        where = {"latitude": oslo["latitude"], "longitude": oslo["longitude"]}
        weather = await tools.call(
            "get_weather", {**where, "current": "temperature_2m,wind_speed_10m,weather_code"}
        )
        assert weather.outcome is Outcome.OK, weather.message
        assert (weather.value["temperature_2m"], weather.value["weather_code"]) == (2.4, 3)
        image = await tools.call("generate_image", {"width": 600, "height": 400, "text": "Hi there"})
        (part,) = image.content
        assert (part.type, part.mime_type, len(part.data)) == ("image", "image/png", 4 * -(-len(PNG) // 3))
        targets = [head.target for origin in FOUR for head in apis.requests_of(origin)]
    assert targets == [
        "/v4/?expr=2%20%2A%20%283%20%2B%204%29",
        "/600x400.png?text=Hi%20there",
        "/v1/forecast?latitude=59.91273&longitude=10.74609&current=temperature_2m%2Cwind_speed_10m%2Cweather_code",
        "/v1/search?name=Oslo&count=1&language=en",
    ]


async def test_what_promptkit_leaves_out_is_left_out_here(examples):
    async with live(examples, *FOUR) as (tools, apis):
        assert (await tools.call("generate_image", {"width": 10, "height": 20})).outcome is Outcome.OK
        (head,) = apis.requests_of("https://placehold.co")
        assert head.target == "/10x20.png"
        assert head.header("accept") == "image/png"
        failed = await tools.call("calculate", {"expr": "nonsense("})
        assert (failed.outcome, failed.error.code) == (Outcome.TOOL_ERROR, "http_400")
        assert "Undefined symbol" in failed.message


async def test_no_argument_leads_an_example_elsewhere(examples):
    async with live(examples, *FOUR) as (tools, apis):
        await tools.call("calculate", {"expr": "1&format=x#y?z=/../.."})
        (head,) = apis.requests_of("https://api.mathjs.org")
        assert head.query == [("expr", "1&format=x#y?z=/../..")]
