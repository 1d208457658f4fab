"""Loopback servers with the shapes of public APIs, as their documentation describes them.

    async with public_apis() as apis:
        ...  # apis.origins, apis.allowed for a project; apis.requests_of("https://api.github.com")

Each function answers for one origin: paths, parameters, answers and failures are those of its documentation; what is
not asked for as documented is a failure of the test (status 599).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from http_servers import Head, Server, answering_by, raw_answer, serving

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))

TOKENS = {
    "NASA_API_KEY": "nasa-key-5f2c",
    "GITHUB_TOKEN": "ghp_test-token-81c3",
    "SLACK_BOT_TOKEN": "xoxb-test-token-77a0",
    "STRIPE_SECRET_KEY": "sk_test_key-40d9",
    "GOOGLE_CLIENT_ID": "client.apps.example",
    "GOOGLE_CLIENT_SECRET": "google-secret-b1f6",
    "GOOGLE_REFRESH_TOKEN": "google-refresh-9e2d",
}
"""What the descriptors look up in the environment."""

ACCESS_TOKEN = "ya29.test-access-3c7e"


class Apis(NamedTuple):
    """The servers, by the origin that descriptors write."""

    servers: dict[str, Server]

    @property
    def origins(self) -> dict[str, str]:
        return {origin: server.origin for origin, server in self.servers.items()}

    @property
    def allowed(self) -> list[str]:
        return [f"127.0.0.1:{server.port}" for server in self.servers.values()]

    def requests_of(self, origin: str) -> list[Head]:
        return self.servers[origin].requests


@asynccontextmanager
async def public_apis(*origins: str) -> AsyncIterator[Apis]:
    """Servers for these origins, or for all of them."""
    async with AsyncExitStack() as stack:
        servers = {
            origin: await stack.enter_async_context(serving(answering_by(ANSWERS[origin])))
            for origin in origins or ANSWERS
        }
        yield Apis(servers)


def answer(value: Any, status: int = 200, **headers: str) -> bytes:
    told = {"Content-Type": "application/json; charset=utf-8"}
    told |= {name.replace("_", "-"): text for name, text in headers.items()}
    return raw_answer(status, told, json.dumps(value, ensure_ascii=False).encode())


def undocumented(head: Head) -> bytes:
    return answer({"error": f"{head.method} {head.target} is not in the documentation"}, 599)


def query_of(head: Head) -> dict[str, str]:
    """The parameters; one that is given twice is not what any of these APIs takes."""
    given = dict(head.query)
    assert len(given) == len(head.query), head.target
    return given


# https://open-meteo.com/en/docs/geocoding-api

PLACE = {
    "id": 3143244,
    "name": "Oslo",
    "latitude": 59.91273,
    "longitude": 10.74609,
    "elevation": 26.0,
    "feature_code": "PPLC",
    "country_code": "NO",
    "admin1_id": 3143242,
    "timezone": "Europe/Oslo",
    "population": 580000,
    "country_id": 3144096,
    "country": "Norway",
    "admin1": "Oslo",
}


OTHER_PLACES = (
    {
        "id": 2643743,
        "name": "London",
        "latitude": 51.50853,
        "longitude": -0.12574,
        "country_code": "GB",
        "country": "United Kingdom",
    },
    {
        "id": 1850147,
        "name": "Tokyo",
        "latitude": 35.6895,
        "longitude": 139.69171,
        "country_code": "JP",
        "country": "Japan",
    },
)


def open_meteo_geocoding(head: Head) -> bytes:
    query = query_of(head)
    if (head.method, head.path) != ("GET", "/v1/search") or "name" not in query:
        return undocumented(head)
    if not 1 <= int(query.get("count", "10")) <= 100:
        return answer({"error": True, "reason": "Parameter count must be between 1 and 100."}, 400)
    found = [
        place
        for place in (PLACE, *OTHER_PLACES)
        if place["name"].lower() == query["name"].lower()
        and query.get("countryCode", place["country_code"]) == place["country_code"]
    ]
    return answer({**({"results": found} if found else {}), "generationtime_ms": 0.5})


# https://open-meteo.com/en/docs

CURRENT = {"temperature_2m": 2.4, "wind_speed_10m": 12.6, "relative_humidity_2m": 71, "weather_code": 3}


def open_meteo_forecast(head: Head) -> bytes:
    query = query_of(head)
    if (head.method, head.path) != ("GET", "/v1/forecast") or not {"latitude", "longitude"} <= query.keys():
        return undocumented(head)
    if query.get("timezone", "GMT") == "Nowhere":
        return answer({"error": True, "reason": "Invalid timezone"}, 400)
    told: dict[str, Any] = {
        "latitude": float(query["latitude"]),
        "longitude": float(query["longitude"]),
        "generationtime_ms": 0.05,
        "utc_offset_seconds": 0,
        "timezone": query.get("timezone", "GMT"),
        "timezone_abbreviation": "GMT",
        "elevation": 26.0,
    }
    if "current" in query:
        names = query["current"].split(",")
        told["current_units"] = {"time": "iso8601", "interval": "seconds", **dict.fromkeys(names, "unit")}
        told["current"] = {
            "time": "2030-01-01T09:00",
            "interval": 900,
            **{name: CURRENT[name] for name in names},
        }
    if "daily" in query:
        days = int(query.get("forecast_days", "7"))
        names = query["daily"].split(",")
        told["daily_units"] = {"time": "iso8601", **dict.fromkeys(names, "unit")}
        told["daily"] = {"time": [f"2030-01-{day + 1:02}" for day in range(days)]}
        told["daily"] |= {name: [1.5] * days for name in names}
    return answer(told)


# https://frankfurter.dev

RATES = {"EUR": 1.0, "USD": 1.0825, "NOK": 11.5, "GBP": 0.85}


def frankfurter(head: Head) -> bytes:
    query = query_of(head)
    if (head.method, head.path) != ("GET", "/v1/latest"):
        return undocumented(head)
    base, symbols = query.get("base", "EUR"), query["symbols"].split(",")
    if base not in RATES or not set(symbols) <= RATES.keys():
        return answer({"message": "not found"}, 404)
    rates = {code: round(RATES[code] / RATES[base], 5) for code in symbols}
    return answer({"amount": 1.0, "base": base, "date": "2029-12-31", "rates": rates})


# https://docs.github.com/rest


def github(head: Head) -> bytes:
    if head.header("authorization") != f"Bearer {TOKENS['GITHUB_TOKEN']}":
        return answer(
            {"message": "Bad credentials", "documentation_url": "https://docs.github.com/rest"}, 401
        )
    if head.header("x-github-api-version") != "2022-11-28" or "github+json" not in (
        head.header("accept") or ""
    ):
        return undocumented(head)
    if not head.header("user-agent"):
        return raw_answer(403, {}, b"Request forbidden by administrative rules.")
    if (head.method, head.path) == ("GET", "/search/issues"):
        return github_search(head)
    _empty, repos, owner, repo, last = head.path.split("/")
    if (head.method, repos, last) != ("POST", "repos", "issues"):
        return undocumented(head)
    return github_create(owner, repo, head.json)


def github_search(head: Head) -> bytes:
    query = query_of(head)
    page, size, total = int(query["page"]), int(query["per_page"]), 5
    if page * size > 1000:
        return answer({"message": "Only the first 1000 search results are available"}, 422)
    numbers = range((page - 1) * size, min(page * size, total))
    links = {}
    if page * size < total:
        following = f"https://api.github.com/search/issues?{head.target.split('?')[1]}".replace(
            f"&page={page}", f"&page={page + 1}"
        )
        links = {"Link": f'<{following}>; rel="next", <{following}>; rel="last"'}
    items = [github_issue("octocat", "hello-world", number + 1, {"title": "It breaks"}) for number in numbers]
    found = [{**item, "score": 1.0} for item in items]
    return answer({"total_count": total, "incomplete_results": False, "items": found}, **links)


def github_create(owner: str, repo: str, body: dict[str, Any]) -> bytes:
    if owner != "octocat":
        return answer({"message": "Not Found", "documentation_url": "https://docs.github.com/rest"}, 404)
    if not set(body) <= {"title", "body", "labels", "assignees"}:
        return answer({"message": "Invalid request."}, 422)
    if "nobody" in body.get("assignees", []):
        errors = [{"resource": "Issue", "field": "assignees", "value": "nobody", "code": "invalid"}]
        return answer({"message": "Validation Failed", "errors": errors}, 422)
    return answer(github_issue(owner, repo, 1348, body), 201)


def github_issue(owner: str, repo: str, number: int, body: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": 3000000 + number,
        "number": number,
        "title": body["title"],
        "body": body.get("body"),
        "state": "open",
        "html_url": f"https://github.com/{owner}/{repo}/issues/{number}",
        "repository_url": f"https://api.github.com/repos/{owner}/{repo}",
        "user": {"login": "octocat", "id": 583231},
        "labels": [{"name": name, "color": "d73a4a"} for name in body.get("labels", [])],
        "assignees": [{"login": name} for name in body.get("assignees", [])],
        "comments": 0,
        "created_at": "2029-12-20T14:05:11Z",
        "closed_at": None,
    }


# https://nominatim.org/release-docs/latest/api/Search/


def nominatim(head: Head) -> bytes:
    query = query_of(head)
    if (head.method, head.path, query.get("format")) != ("GET", "/search", "jsonv2") or "q" not in query:
        return undocumented(head)
    if not head.header("user-agent"):
        return raw_answer(403, {"Content-Type": "text/html"}, b"<html><h1>Access blocked</h1></html>")
    if "brandenburg" not in query["q"].lower():
        return answer([])
    place = {
        "place_id": 128497332,
        "licence": "Data © OpenStreetMap contributors, ODbL 1.0. http://osm.org/copyright",
        "osm_type": "way",
        "osm_id": 518071791,
        "lat": "52.5162699",
        "lon": "13.3777034",
        "category": "tourism",
        "type": "attraction",
        "place_rank": 30,
        "importance": 0.62,
        "addresstype": "tourism",
        "name": "Brandenburg Gate",
        "display_name": "Brandenburg Gate, Berlin, 10117, Germany",
        "boundingbox": ["52.5161170", "52.5164328", "13.3775798", "13.3778251"],
    }
    if query.get("addressdetails") == "1":
        place["address"] = {"road": "Pariser Platz", "city": "Berlin", "country_code": "de"}
    return answer([place][: int(query.get("limit", "10"))])


# https://openlibrary.org/dev/docs/api/search

WORK = {
    "key": "/works/OL27448W",
    "title": "The Lord of the Rings",
    "author_key": ["OL26320A"],
    "author_name": ["J.R.R. Tolkien"],
    "cover_i": 14625765,
    "edition_count": 286,
    "first_publish_year": 1954,
    "language": ["eng", "nor"],
}


def open_library(head: Head) -> bytes:
    query = query_of(head)
    if (head.method, head.path) != ("GET", "/search.json"):
        return undocumented(head)
    page, limit = int(query.get("page", "1")), int(query.get("limit", "100"))
    told = " ".join(query.get(name, "") for name in ("q", "title", "author")).lower()
    docs = [WORK] if "rings" in told or "tolkien" in told else []
    fields = set(query.get("fields", ",".join(WORK)).split(","))
    return answer(
        {
            "numFound": len(docs),
            "start": (page - 1) * limit,
            "numFoundExact": True,
            "num_found": len(docs),
            "documentation_url": "https://openlibrary.org/dev/docs/api/search",
            "q": query.get("q", ""),
            "offset": None,
            "docs": [{name: value for name, value in doc.items() if name in fields} for doc in docs],
        }
    )


# https://restcountries.com


def rest_countries(head: Head) -> bytes:
    lead, _, code = head.path.rpartition("/")
    if (head.method, lead) != ("GET", "/v3.1/alpha"):
        return undocumented(head)
    if code.lower() not in {"no", "nor", "578"}:
        return answer({"message": "Not Found", "status": 404}, 404)
    norway = {
        "name": {"common": "Norway", "official": "Kingdom of Norway"},
        "tld": [".no"],
        "cca2": "NO",
        "ccn3": "578",
        "cca3": "NOR",
        "capital": ["Oslo"],
        "region": "Europe",
        "currencies": {"NOK": {"name": "krone", "symbol": "kr"}},
        "languages": {"nno": "Norwegian Nynorsk", "nob": "Norwegian Bokmål"},
        "latlng": [62.0, 10.0],
        "flag": "🇳🇴",
        "population": 5379475,
    }
    return answer([norway])


# https://github.com/HackerNews/API

STORY = {
    "by": "dhouston",
    "descendants": 71,
    "id": 8863,
    "kids": [9224, 8917],
    "score": 104,
    "time": 1175714200,
    "title": "My YC app: Dropbox - Throw away your USB drive",
    "type": "story",
    "url": "http://www.getdropbox.com/u/2/screencast.html",
}


def hacker_news(head: Head) -> bytes:
    if head.path == "/v0/topstories.json":
        return answer([9129911, 8863, 8952])
    if head.path == "/v0/item/8863.json":
        return answer(STORY)
    return answer(None) if head.path.startswith("/v0/item/") else undocumented(head)


# https://api.nasa.gov


def nasa(head: Head) -> bytes:
    query = query_of(head)
    if (head.method, head.path) != ("GET", "/planetary/apod"):
        return undocumented(head)
    if query.get("api_key") != TOKENS["NASA_API_KEY"]:
        return answer(
            {"error": {"code": "API_KEY_INVALID", "message": "An invalid api_key was supplied."}}, 403
        )
    if query["date"] < "1995-06-16":
        message = "Date must be between Jun 16, 1995 and Dec 31, 2029."
        return answer({"code": 400, "msg": message, "service_version": "v1"}, 400)
    picture = {
        "date": query["date"],
        "explanation": "A field of stars.",
        "hdurl": "https://apod.nasa.gov/apod/image/200101/StarField_4096.png",
        "media_type": "image",
        "service_version": "v1",
        "title": "Star Field",
        "url": "https://apod.nasa.gov/apod/image/200101/StarField_1024.png",
    }
    return answer(picture)


# https://api.crossref.org/swagger-ui/index.html


def crossref(head: Head) -> bytes:
    query = query_of(head)
    if (head.method, head.path) != ("GET", "/works") or "query" not in query:
        return undocumented(head)
    if query.get("filter", "type:").split(":")[0] not in {"type", "from-pub-date"}:
        name = query["filter"].split(":")[0]
        message = f"Filter {name} specified but there is no such filter for this route"
        fault = {"type": "filter-not-available", "value": name, "message": message}
        failed = {"status": "failed", "message-type": "validation-failure", "message": [fault]}
        return answer(failed, 400)
    work = {
        "DOI": "10.1112/plms00230",
        "type": "journal-article",
        "title": ["On computable numbers"],
        "container-title": ["Proceedings of the London Mathematical Society"],
        "publisher": "Wiley",
        "author": [{"given": "Alan", "family": "Turing", "sequence": "first"}],
        "is-referenced-by-count": 4411,
        "URL": "https://doi.org/10.1112/plms00230",
    }
    message = {
        "facets": {},
        "total-results": 1284,
        "items": [work],
        "items-per-page": int(query.get("rows", "20")),
        "query": {"start-index": int(query.get("offset", "0")), "search-terms": query["query"]},
    }
    return answer(
        {"status": "ok", "message-type": "work-list", "message-version": "1.0.0", "message": message}
    )


# https://en.wikipedia.org/api/rest_v1/


def wikipedia(head: Head) -> bytes:
    lead, _, title = head.path.rpartition("/")
    if (head.method, lead) != ("GET", "/api/rest_v1/page/summary") or not head.header("user-agent"):
        return undocumented(head)
    title = unquote(title)
    if title == "Ada_Byron":
        return raw_answer(302, {"Location": "Ada_Lovelace"})
    if title != "Ada_Lovelace":
        fault = {
            "type": "https://mediawiki.org/wiki/HyperSwitch/errors/not_found",
            "title": "Not found.",
            "method": "get",
            "detail": "Page or revision not found.",
            "uri": f"/en.wikipedia.org/v1/page/summary/{title}",
        }
        return raw_answer(404, {"Content-Type": "application/problem+json"}, json.dumps(fault).encode())
    summary = {
        "type": "standard",
        "title": "Ada Lovelace",
        "displaytitle": '<span class="mw-page-title-main">Ada Lovelace</span>',
        "pageid": 974,
        "wikibase_item": "Q7259",
        "lang": "en",
        "dir": "ltr",
        "timestamp": "2029-12-10T11:36:41Z",
        "description": "English mathematician (1815-1852)",
        "content_urls": {"desktop": {"page": "https://en.wikipedia.org/wiki/Ada_Lovelace"}},
        "extract": "Augusta Ada King, Countess of Lovelace, was an English mathematician and writer.",
    }
    kind = 'application/json; charset=utf-8; profile="https://www.mediawiki.org/wiki/Specs/Summary/1.4.2"'
    return raw_answer(200, {"Content-Type": kind}, json.dumps(summary).encode())


# https://developers.google.com/workspace/calendar/api/v3/reference/events/list


def google_calendar(head: Head) -> bytes:
    if head.header("authorization") != f"Bearer {ACCESS_TOKEN}":
        return google_error(401, "authError", "Invalid Credentials")
    query = query_of(head)
    if (head.method, head.path) != ("GET", "/calendar/v3/calendars/primary/events"):
        return google_error(404, "notFound", "Not Found")
    if query.get("orderBy") == "startTime" and query.get("singleEvents") != "true":
        message = "The requested ordering is not available for the particular query."
        return google_error(400, "badRequest", message)
    second = query.get("pageToken") == "page-two"
    event = {
        "kind": "calendar#event",
        "id": "planning" if second else "standup",
        "status": "confirmed",
        "htmlLink": "https://www.google.com/calendar/event?eid=x",
        "summary": "Planning" if second else "Stand-up",
        "start": {"dateTime": "2030-01-02T09:30:00Z", "timeZone": "Europe/London"},
        "end": {"dateTime": "2030-01-02T09:45:00Z", "timeZone": "Europe/London"},
    }
    told = {
        "kind": "calendar#events",
        "etag": '"p33g9r1"',
        "summary": "ada@example.com",
        "updated": "2030-01-01T00:00:00.000Z",
        "timeZone": "Europe/London",
        "accessRole": "owner",
        "defaultReminders": [],
        "items": [event],
    }
    return answer(told if second else {**told, "nextPageToken": "page-two"})


def google_error(status: int, reason: str, message: str) -> bytes:
    errors = [{"domain": "global", "reason": reason, "message": message}]
    return answer({"error": {"errors": errors, "code": status, "message": message}}, status)


# https://developers.google.com/identity/protocols/oauth2/web-server#offline


def google_tokens(head: Head) -> bytes:
    given = dict(parse_qsl(head.body.decode()))
    if (head.method, head.path, given.get("grant_type")) != ("POST", "/token", "refresh_token"):
        return undocumented(head)
    if given.get("refresh_token") != TOKENS["GOOGLE_REFRESH_TOKEN"]:
        return answer({"error": "invalid_grant", "error_description": "Bad Request"}, 400)
    return answer({"access_token": ACCESS_TOKEN, "expires_in": 3599, "scope": "x", "token_type": "Bearer"})


# https://docs.slack.dev/reference/methods/chat.postMessage


def slack(head: Head) -> bytes:
    if (head.method, head.path) != ("POST", "/api/chat.postMessage"):
        return undocumented(head)
    if head.header("authorization") != f"Bearer {TOKENS['SLACK_BOT_TOKEN']}":
        return answer({"ok": False, "error": "invalid_auth"})
    given = head.json
    if given["channel"] == "#missing":
        return answer({"ok": False, "error": "channel_not_found"})
    if given["channel"] == "#busy":
        return answer({"ok": False, "error": "ratelimited"}, 429, Retry_After="30")
    message = {"type": "message", "subtype": "bot_message", "text": given["text"], "ts": "1893456000.000001"}
    message["bot_id"] = "B0TESTBOT"
    return answer({"ok": True, "channel": given["channel"], "ts": message["ts"], "message": message})


# https://docs.stripe.com/api/payment_intents/create


def stripe(head: Head) -> bytes:
    if (head.method, head.path) != ("POST", "/v1/payment_intents"):
        return undocumented(head)
    if head.header("authorization") != f"Bearer {TOKENS['STRIPE_SECRET_KEY']}":
        fault = {"type": "invalid_request_error", "message": "Invalid API Key provided: sk_test_****"}
        return answer({"error": fault}, 401)
    if head.header("content-type") != "application/x-www-form-urlencoded" or not head.header(
        "idempotency-key"
    ):
        return undocumented(head)
    given = dict(parse_qsl(head.body.decode(), keep_blank_values=True))
    if given.get("payment_method") == "pm_card_chargeDeclined":
        fault = {
            "type": "card_error",
            "code": "card_declined",
            "decline_code": "generic_decline",
            "message": "Your card was declined.",
        }
        return answer({"error": fault}, 402)
    paid = given.get("confirm") == "true"
    intent = {
        "id": "pi_3test",
        "object": "payment_intent",
        "amount": int(given["amount"]),
        "amount_received": int(given["amount"]) if paid else 0,
        "currency": given["currency"],
        "status": "succeeded" if paid else "requires_payment_method",
        "client_secret": "pi_3test_secret_x",
        "created": 1893456000,
        "description": given.get("description"),
        "payment_method": given.get("payment_method"),
        "receipt_email": given.get("receipt_email"),
        "metadata": {name[9:-1]: value for name, value in given.items() if name.startswith("metadata[")},
        "livemode": False,
    }
    return answer(intent)


# https://api.mathjs.org and https://placehold.co, which PromptKit's examples call


def mathjs(head: Head) -> bytes:
    if (head.method, head.path) != ("GET", "/v4/"):
        return undocumented(head)
    values = {"2 * (3 + 4)": b"14", "sqrt(16)": b"4", "sqrt(144) + 3^2": b"21", "35.6895 * 2": b"71.379"}
    value = values.get(query_of(head).get("expr", ""))
    plain = {"Content-Type": "text/html; charset=utf-8"}
    return raw_answer(200, plain, value) if value else raw_answer(400, plain, b"Error: Undefined symbol")


def placehold(head: Head) -> bytes:
    size, dot, kind = head.path[1:].partition(".")
    if (head.method, dot, kind) != ("GET", ".", "png") or not all(
        part.isdecimal() for part in size.split("x")
    ):
        return undocumented(head)
    assert set(query_of(head)) <= {"text"}, head.target
    return raw_answer(200, {"Content-Type": "image/png"}, PNG)


ANSWERS: dict[str, Callable[[Head], bytes]] = {
    "https://api.crossref.org": crossref,
    "https://api.frankfurter.dev": frankfurter,
    "https://api.github.com": github,
    "https://api.mathjs.org": mathjs,
    "https://api.nasa.gov": nasa,
    "https://api.open-meteo.com": open_meteo_forecast,
    "https://api.stripe.com": stripe,
    "https://en.wikipedia.org": wikipedia,
    "https://geocoding-api.open-meteo.com": open_meteo_geocoding,
    "https://hacker-news.firebaseio.com": hacker_news,
    "https://nominatim.openstreetmap.org": nominatim,
    "https://oauth2.googleapis.com": google_tokens,
    "https://openlibrary.org": open_library,
    "https://placehold.co": placehold,
    "https://restcountries.com": rest_countries,
    "https://slack.com": slack,
    "https://www.googleapis.com": google_calendar,
}
