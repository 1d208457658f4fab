"""Mode `live` from a document to a server and back, over both clients."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from http_servers import answering, answering_by, answering_each, answering_json, raw_answer, serving
from live_tools import API, calling, live_runtime, live_tool, open_files, others
from toolcrib import Outcome

CITY = "{type: object, properties: {city: {type: string}, days: {type: integer}}, required: [city]}"
FORECAST = f"""
url: {API}/v1/cities/{{{{ args.city }}}}/days
query: {{count: "{{{{ args.days }}}}", units: metric}}
headers: {{X-Team: crib}}
"""


async def test_a_call_becomes_a_request_and_its_answer_a_value():
    text = live_tool(FORECAST, inputs=CITY, output="{type: object, required: [temp]}")
    async with calling(text, answering_json({"temp": 3})) as (tools, server):
        result = await tools.call("tool", {"city": "Oslo", "days": "2"})
        assert (result.outcome, result.value, result.usage.attempts) == (Outcome.OK, {"temp": 3}, 1)
        assert result.meta["repairs"]
        (head,) = server.requests
        assert (head.method, head.path) == ("GET", "/v1/cities/Oslo/days")
        assert head.query == [("count", "2"), ("units", "metric")]
        assert head.header("x-team") == "crib"
        assert head.header("user-agent").startswith("toolcrib/")
        assert head.header("host") == f"127.0.0.1:{server.port}"


async def test_connections_are_kept_between_calls():
    text = live_tool(FORECAST, inputs=CITY)
    async with calling(text, answering_json({})) as (tools, server):
        for _ in range(5):
            assert (await tools.call("tool", {"city": "Oslo"})).outcome is Outcome.OK
        assert server.accepted == 1


async def test_what_the_output_schema_refuses_is_an_invalid_result():
    text = live_tool(FORECAST, inputs=CITY, output="{type: object, required: [temp]}")
    async with calling(text, answering_json({"heat": 3})) as (tools, _):
        result = await tools.call("tool", {"city": "Oslo"})
    assert result.outcome is Outcome.INVALID_RESULT
    assert result.raw_value == {"heat": 3}


async def test_bad_arguments_reach_no_server():
    async with calling(live_tool(FORECAST, inputs=CITY), answering_json({})) as (
        tools,
        server,
    ):
        assert (await tools.call("tool", {})).outcome is Outcome.INVALID_ARGUMENTS
        refused = await tools.call("tool", {"city": ".."})
        assert refused.outcome is Outcome.INVALID_ARGUMENTS
        assert refused.error.details["violations"][0]["pointer"] == "/city"
        assert server.accepted == 0


async def test_an_origin_that_is_not_allowed_is_refused_before_anything_is_dialled():
    async with serving(answering_json({})) as server:
        text = live_tool(f"url: http://127.0.0.1:{server.port}/x")
        async with live_runtime(text, server, egress=[], origins={}) as tools:
            result = await tools.call("tool")
        assert (result.outcome, server.accepted) == (Outcome.DENIED, 0)
        assert f'allow: ["127.0.0.1:{server.port}"]' in result.message


async def test_a_secret_is_looked_up_at_the_first_call_that_finds_it(monkeypatch):
    monkeypatch.delenv("CRIB_TOKEN", raising=False)
    text = live_tool(f"url: {API}/x\nauth: {{type: http, scheme: bearer, token: '${{CRIB_TOKEN}}'}}")
    async with calling(text, answering_json({})) as (tools, server):
        missing = await tools.call("tool")
        assert (missing.outcome, missing.error.code) == (Outcome.UNAVAILABLE, "missing_secret")
        assert "CRIB_TOKEN" in missing.message
        assert server.accepted == 0
        monkeypatch.setenv("CRIB_TOKEN", "t0psecret-value")
        assert (await tools.call("tool")).outcome is Outcome.OK
        assert server.requests[0].header("authorization") == "Bearer t0psecret-value"


async def test_everything_that_is_missing_is_told_at_once_with_its_place(monkeypatch):
    for name in ("CRIB_TOKEN", "CRIB_TEAM", "CRIB_DAYS"):
        monkeypatch.delenv(name, raising=False)
    block = f"""
        url: {API}/x
        query: {{days: "${{CRIB_DAYS:-3}}"}}
        headers: {{X-Team: "${{CRIB_TEAM}}"}}
        auth: {{type: http, scheme: bearer, token: "${{CRIB_TOKEN}}"}}
    """
    async with calling(live_tool(block), answering_json({})) as (tools, _):
        message = (await tools.call("tool")).message
    assert "`CRIB_TEAM` is not set in the environment (tools.yaml:7)" in message
    assert "`CRIB_TOKEN` is not set in the environment (tools.yaml:8)" in message
    assert "CRIB_DAYS" not in message


async def test_what_the_server_repeats_of_a_secret_is_masked(monkeypatch):
    monkeypatch.setenv("CRIB_TOKEN", "t0psecret-value")
    text = live_tool(f"url: {API}/x\nauth: {{type: http, scheme: bearer, token: '${{CRIB_TOKEN}}'}}")

    def echo(head):
        status = 200 if head.connection else 500
        seen = {"you": head.header("authorization"), "list": ["a", "t0psecret-value!"]}
        return raw_answer(status, {"Content-Type": "application/json"}, json.dumps(seen).encode())

    async with calling(text, answering_by(echo)) as (tools, _):
        result = await tools.call("tool")
    assert result.value == {"you": "Bearer ***", "list": ["a", "***!"]}


async def test_a_refused_token_is_fetched_anew_once(monkeypatch):
    monkeypatch.setenv("CRIB_SECRET", "client-secret")
    text = live_tool(f"""
        url: {API}/x
        auth: {{type: oauth2, flow: client_credentials, token_url: "{API}/token", client_id: crib, client_secret: "${{CRIB_SECRET}}"}}
    """)
    given = iter(["first-token", "second-token", "third-token"])

    def answer(head):
        if head.path == "/token":
            token = {"access_token": next(given), "token_type": "Bearer", "expires_in": 3600}
            return raw_answer(200, {"Content-Type": "application/json"}, json.dumps(token).encode())
        good = head.header("authorization") == "Bearer second-token"
        return raw_answer(200 if good else 401, {"Content-Type": "application/json"}, b"{}")

    async with calling(text, answering_by(answer)) as (tools, server):
        assert (await tools.call("tool")).outcome is Outcome.OK
        assert [head.path for head in server.requests] == ["/token", "/x", "/token", "/x"]
        assert (await tools.call("tool")).outcome is Outcome.OK
        assert len(server.requests) == 5


def hanging_up(*, times=1):
    """Reads a request, counts it as done, and hangs up; later ones are answered."""

    async def hang_up(_reader, writer, _head):
        writer.close()

    return answering_each(*[hang_up] * times, answering_json({}))


async def test_a_post_that_may_have_acted_is_neither_repeated_nor_called_a_failure():
    text = live_tool(f"method: POST\nurl: {API}/orders")
    async with calling(text, hanging_up()) as (tools, server):
        result = await tools.call("tool")
        assert (result.outcome, result.usage.attempts) == (Outcome.UNKNOWN_OUTCOME, 1)
        assert result.error.details["may_have_acted"] is True
        assert not result.error.retryable
        assert len(server.requests) == 1


async def test_an_idempotency_key_lets_a_post_be_repeated_and_stays_the_same():
    text = live_tool(f"method: POST\nurl: {API}/orders\nidempotency_key: Idempotency-Key")
    async with calling(text, hanging_up()) as (tools, server):
        result = await tools.call("tool")
        assert (result.outcome, result.usage.attempts) == (Outcome.OK, 2)
        first, second = (head.header("idempotency-key") for head in server.requests)
        assert first == second
        await tools.call("tool")
        assert server.requests[-1].header("idempotency-key") != first


async def test_a_redirect_is_not_followed_unless_the_descriptor_says_so():
    async with serving(answering_json({"here": True})) as target:
        moved = answering(302, {"Location": f"{target.origin}/secret"})
        async with calling(live_tool(f"url: {API}/x"), moved) as (tools, _):
            result = await tools.call("tool")
        assert (result.outcome, result.error.code, target.accepted) == (Outcome.TOOL_ERROR, "redirected", 0)


async def test_a_followed_redirect_passes_the_guard_and_leaves_credentials_behind(monkeypatch):
    monkeypatch.setenv("CRIB_KEY", "sesame-sesame")
    auth = "{type: apiKey, in: header, name: X-Api-Key, value: '${CRIB_KEY}'}"
    block = f"url: {API}/x\nredirects: 1\nhosts: [api.example.com, '*']\nauth: {auth}"
    async with serving(answering_json({"here": True})) as target:
        moved = answering(302, {"Location": f"{target.origin}/there?q=1"})
        async with calling(live_tool(block), moved) as (tools, server):
            refused = await tools.call("tool")
            assert (refused.outcome, target.accepted) == (Outcome.DENIED, 0)
        async with serving(moved) as server:
            allowed = [f"127.0.0.1:{server.port}", f"127.0.0.1:{target.port}"]
            async with live_runtime(live_tool(block), server, egress=allowed) as tools:
                assert (await tools.call("tool")).value == {"here": True}
            assert server.requests[0].header("x-api-key") == "sesame-sesame"
            assert target.requests[0].header("x-api-key") is None
            assert target.requests[0].target == "/there?q=1"


async def test_an_answer_that_may_be_kept_is_asked_about_when_it_is_old():
    fresh = {"ETag": '"v1"', "Cache-Control": "max-age=0, must-revalidate"}
    answers = answering_each(answering_json({"n": 1}, headers=fresh), answering(304, fresh))
    async with calling(live_tool(f"url: {API}/x"), answers) as (tools, server):
        assert (await tools.call("tool")).value == {"n": 1}
        assert (await tools.call("tool")).value == {"n": 1}
        assert [head.header("if-none-match") for head in server.requests] == [None, '"v1"']


async def test_a_fresh_answer_is_given_without_asking_again():
    answers = answering_json({"n": 1}, headers={"Cache-Control": "max-age=60"})
    async with calling(live_tool(f"url: {API}/x"), answers) as (tools, server):
        first, second = await tools.call("tool"), await tools.call("tool")
        assert first.value == second.value == {"n": 1}
        assert len(server.requests) == 1
        assert "freshness" not in first.meta


async def test_methods_say_what_a_tool_does_unless_its_author_does():
    async with calling(live_tool(f"url: {API}/x"), answering_json({})) as (tools, _):
        assert tools.registry["tool"].annotations.read_only
    text = live_tool(f"url: {API}/x", more="annotations: {read_only: false, idempotent: false}")
    async with calling(text, answering_json({})) as (tools, _):
        assert not tools.registry["tool"].annotations.read_only
    async with calling(live_tool(f"method: DELETE\nurl: {API}/x"), answering_json({})) as (tools, _):
        assert tools.registry["tool"].annotations.idempotent


async def test_the_dry_run_shows_what_is_sent_and_sends_nothing(monkeypatch):
    monkeypatch.setenv("CRIB_TOKEN", "t0psecret-value")
    text = live_tool(FORECAST + "auth: {type: http, scheme: bearer, token: '${CRIB_TOKEN}'}", inputs=CITY)
    async with calling(text, answering_json({})) as (tools, server):
        planned = await tools.dry_run("tool", {"city": "Oslo", "days": 2})
        assert server.accepted == 0
        plan = planned.value["plan"]
        assert plan["request"]["url"] == f"{server.origin}/v1/cities/Oslo/days?count=2&units=metric"
        assert ["Authorization", "Bearer ***"] in plan["request"]["headers"]
        assert "t0psecret" not in json.dumps(planned.as_json())


async def test_the_log_shows_the_exchange_without_secrets(monkeypatch, caplog):
    monkeypatch.setenv("CRIB_TOKEN", "t0psecret-value")
    text = live_tool(f"url: {API}/x\nauth: {{type: http, scheme: bearer, token: '${{CRIB_TOKEN}}'}}")
    with caplog.at_level(logging.DEBUG, logger="toolcrib.http"):
        async with calling(text, answering_json({"a": 1})) as (tools, _):
            await tools.call("tool")
    shown = [record.getMessage() for record in caplog.records if record.name == "toolcrib.http"]
    assert shown[0].startswith("> GET /x")
    assert any(line.startswith("< 200") for line in shown)
    assert "t0psecret" not in "\n".join(shown)


@pytest.mark.exhaustive
async def test_a_thousand_cancelled_calls_leave_nothing():
    async def silent(_reader, _writer, _head):
        await asyncio.Event().wait()

    text = live_tool(
        f"url: {API}/{{{{ args.kind }}}}",
        inputs="{type: object, properties: {kind: {type: string}}, required: [kind]}",
        more="limits: {concurrency: 100, queue: 1000}",
    )

    def answer(head):
        return (
            raw_answer(200, {"Content-Type": "application/json"}, b"{}") if head.path == "/fine" else silent
        )

    async with calling(text, answering_by(answer)) as (tools, server):
        assert (await tools.call("tool", {"kind": "fine"})).outcome is Outcome.OK
        files, tasks = open_files(), others()
        calls = [asyncio.create_task(tools.call("tool", {"kind": "silent"})) for _ in range(1000)]
        while len(server.requests) < 50:
            await asyncio.wait(calls, timeout=0.01)
        for call in calls:
            call.cancel()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(each, asyncio.CancelledError) for each in ended)
        assert (await tools.call("tool", {"kind": "fine"})).outcome is Outcome.OK
        again = await asyncio.gather(*(tools.call("tool", {"kind": "fine"}) for _ in range(100)))
        assert {each.outcome for each in again} == {Outcome.OK}
    async with serving(answering_json({})):
        pass
    assert others() <= tasks
    assert open_files() <= files


OAUTH = f"auth: {{type: oauth2, flow: client_credentials, token_url: '{API}/token', client_id: a, client_secret: b}}\n"


async def test_a_refusal_behind_a_redirect_repeats_no_request():
    def answer(head):
        if head.path == "/token":
            token = {"access_token": "t1-token", "token_type": "Bearer"}
            return raw_answer(200, {"Content-Type": "application/json"}, json.dumps(token).encode())
        if head.path == "/pay":
            return raw_answer(303, {"Location": "/receipt"})
        return raw_answer(401, {"Content-Type": "application/json"}, b"{}")

    text = live_tool(f"method: POST\nurl: {API}/pay\nredirects: 1\n" + OAUTH)
    async with calling(text, answering_by(answer)) as (tools, server):
        result = await tools.call("tool")
        assert (result.outcome, result.error.code) == (Outcome.TOOL_ERROR, "http_401")
        assert [head.path for head in server.requests] == ["/token", "/pay", "/receipt"]


@pytest.mark.parametrize(
    ("target", "outcome"),
    [("http://127.0.0.1:1/x", Outcome.UNKNOWN_OUTCOME), ("http://169.254.169.254/", Outcome.DENIED)],
)
async def test_a_post_that_was_redirected_has_been_sent_whatever_came_then(target, outcome):
    text = live_tool(f"method: POST\nurl: {API}/pay\nredirects: 1\nhosts: ['*']")
    async with serving(answering(303, {"Location": target})) as server:
        allowed = [f"127.0.0.1:{server.port}", "127.0.0.1:1"]
        async with live_runtime(text, server, egress=allowed) as tools:
            result = await tools.call("tool")
    assert (result.outcome, result.usage.attempts) == (outcome, 1)
    assert result.error.details["may_have_acted"] is True
    assert not result.error.retryable


@pytest.mark.parametrize(("method", "retryable"), [("POST", False), ("PUT", True)])
async def test_a_gateway_that_gives_up_on_a_post_leaves_open_whether_it_acted(method, retryable):
    text = live_tool(f"method: {method}\nurl: {API}/pay", more="limits: {attempts: 1}")
    async with calling(text, answering(504)) as (tools, _):
        error = (await tools.call("tool")).error
    assert (error.retryable, error.details.get("may_have_acted", False)) == (retryable, not retryable)


@pytest.mark.parametrize(
    ("method", "status", "then"),
    [("POST", 301, "GET"), ("POST", 302, "GET"), ("DELETE", 302, "DELETE"), ("PUT", 303, "GET"),
     ("POST", 307, "POST"), ("HEAD", 303, "HEAD"), ("GET", 308, "GET")],
)  # fmt: skip
async def test_a_redirect_keeps_the_method_unless_its_status_says_otherwise(method, status, then):
    text = live_tool(f"method: {method}\nurl: {API}/x\nredirects: 1")
    answers = answering_each(answering(status, {"Location": "/y"}), answering(204))
    async with calling(text, answers) as (tools, server):
        await tools.call("tool")
        assert [(head.method, head.path) for head in server.requests] == [(method, "/x"), (then, "/y")]


async def test_only_harmless_headers_cross_to_another_origin():
    inputs = "{type: object, properties: {token: {type: string, x-secret: true}}}"
    headers = "{X-Session: '{{ args.token }}', X-Plain: literal, Accept-Language: nb}"
    block = f"url: {API}/x\nredirects: 1\nhosts: ['*']\nheaders: {headers}"
    async with serving(answering_json({})) as target:
        moved = answering(302, {"Location": f"{target.origin}/there"})
        async with serving(moved) as server:
            allowed = [f"127.0.0.1:{server.port}", f"127.0.0.1:{target.port}"]
            text = live_tool(block, inputs=inputs)
            async with live_runtime(text, server, egress=allowed) as tools:
                assert (await tools.call("tool", {"token": "s3cret-s3cret"})).outcome is Outcome.OK
        (head,) = target.requests
        sent = {name.lower() for name, _value in head.headers}
        assert sent - {"host", "accept-encoding", "connection"} == {"accept", "accept-language", "user-agent"}


async def test_a_redirect_to_the_origin_that_the_descriptor_names_is_no_other_origin():
    block = f"url: {API}/x\nredirects: 1\nheaders: {{X-Key: k}}"
    answers = answering_each(answering(302, {"Location": f"{API}/y"}), answering_json({"n": 1}))
    async with calling(live_tool(block), answers) as (tools, server):
        assert (await tools.call("tool")).value == {"n": 1}
        assert [head.header("x-key") for head in server.requests] == ["k", "k"]


async def test_every_page_has_an_idempotency_key_of_its_own():
    block = f"""
        method: POST
        url: {API}/x
        idempotency_key: Idempotency-Key
        pagination: {{style: page, param: page, items: body, max_pages: 3}}
    """

    def page(head):
        rows = json.dumps([head.query]).encode()
        return raw_answer(200, {"Content-Type": "application/json"}, rows)

    async with calling(live_tool(block), answering_by(page)) as (tools, server):
        assert (await tools.call("tool")).outcome is Outcome.OK
        assert len({head.header("idempotency-key") for head in server.requests}) == len(server.requests) == 3


async def test_a_call_carries_the_trace_of_its_caller():
    async with calling(live_tool(f"url: {API}/x"), answering_json({})) as (tools, server):
        session = tools.session()
        context = session._context._replace(
            trace={"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        )
        await session._call("tool", {}, context)
        assert server.requests[0].header("traceparent").startswith("00-0af7")


def _called_twice(text, server):
    with live_runtime(text, server) as tools:
        return [tools.call_sync("tool") for _ in range(2)]


def test_a_live_tool_can_be_called_without_an_event_loop_again_and_again():
    async def scenario():
        async with serving(answering_json({"n": 1})) as server:
            return await asyncio.to_thread(_called_twice, live_tool(f"url: {API}/x"), server)

    assert [result.value for result in asyncio.run(scenario())] == [{"n": 1}, {"n": 1}]
