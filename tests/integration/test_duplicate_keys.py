"""JSON with a key that is there twice is acted upon nowhere: two readers may read two things in it (RFC 8259 section 4)."""

from __future__ import annotations

import json

import pytest

from authentication import failed, fetching, ready
from http_servers import answering, raw_answer, serving
from live_answers import answer, result_of
from mcp_calling import Calling
from mcp_over_http import STREAM, chunk, event, speaking
from mcp_scripts import scripted
from served_models import in_chunks, message, text_of
from served_models import speaking as modelled
from serving_mcp import (
    BASICS,
    answers,
    as_http,
    headers_of,
    json_of,
    process,
    request,
    said_raw,
    serve,
    status_of,
    write,
)
from toolcrib import Outcome
from toolcrib.core.clock import RealClock
from toolcrib.core.model import Content, Result
from toolcrib.core.server_config import Server
from toolcrib.executors.live.dry_run import request_lines
from toolcrib.http import HTTPRequest
from toolcrib.provider import ProviderError
from toolcrib.security.redaction import CallRedactor
from toolcrib.security.secrets import SecretResolver

TWICE = "duplicate key `city` in one object"
BODY = b'{"city": "Oslo", "at": {"city": "Bergen", "city": "Bod\\u00f8"}}'
JSON = {"Content-Type": "application/json"}
ANSWER = '{"jsonrpc": "2.0", "id": @ID@, "result": {"content": [], "structuredContent": @VALUE@}}'.replace(
    "@VALUE@", BODY.decode()
)


# Live


@pytest.mark.parametrize("content_type", ["application/json", "application/problem+json", ""])
def test_a_live_answer_is_no_result(content_type):
    result = result_of({}, answer(BODY, content_type))
    assert (result.outcome, result.error.code) == (Outcome.INVALID_RESULT, "duplicate_key")
    assert TWICE in result.message
    assert "as: text" in result.message


def test_a_live_answer_that_is_read_as_text_is_one():
    assert result_of({"response": {"as": "text"}}, answer(BODY)).value == BODY.decode()


def test_what_redact_hides_is_hidden_in_both_members():
    body = b'{"ssn": "123-45", "ssn": ""}'
    block = {"response": {"as": "text", "redact": ["ssn"]}}
    assert result_of(block, answer(body)).value == "***"


def test_a_body_that_is_shown_hides_the_secret_of_either_member():
    sent = HTTPRequest(
        "POST",
        "https",
        "api.example.com",
        443,
        "/",
        (("Content-Type", "application/json"),),
        b'{"user": {"password": "hunter2"}, "user": "ann"}',
    )
    assert "hunter2" not in "\n".join(request_lines(sent, SecretResolver({})))


@pytest.mark.parametrize("status", [200, 400])
async def test_a_token_is_not_taken_from_such_an_answer(status):
    body = b'{"access_token": "t-1", "access_token": "t-2"}'
    scheme = {"type": "oauth2", "flow": "client_credentials", "client_id": "a", "client_secret": "${SECRET}"}
    async with serving(answering(status, JSON, body)) as server, fetching(server) as fetch:
        auth = ready({**scheme, "token_url": f"{server.origin}/token"}, {"SECRET": "s"})
        error = await failed(auth, RealClock(), fetch)
    assert ("duplicate key `access_token`" in str(error)) is (status == 200)
    assert "t-1" not in str(error)
    assert "t-2" not in str(error)


# Servers of tools


async def outcome_at(server):
    async with Calling(server, "echo") as calling:
        return await calling.call("echo", {})


@pytest.mark.parametrize("batch", ["%s", "[%s]"])
async def test_an_answer_over_stdio_is_no_result(batch):
    result = await outcome_at(scripted(f"instead={batch % ANSWER}"))
    assert (result.outcome, result.error.code) == (Outcome.INVALID_RESULT, "protocol_violation")
    assert TWICE in result.message


def streamed(text):
    async def answered(_reader, writer, head):
        said = text.replace("@ID@", str(head.json["id"]))
        half = len(said) // 2
        whole = f"data: {said}\r\n\r\n".encode()
        writer.write(
            STREAM
            + event(
                {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}
            )
        )
        writer.write(chunk(whole[:half]) + chunk(whole[half:]) + chunk(b""))

    return answered


def whole(text):
    async def answered(_reader, writer, head):
        writer.write(raw_answer(200, JSON, text.replace("@ID@", str(head.json["id"])).encode()))

    return answered


@pytest.mark.parametrize("before", ["", '"n": NaN, '])
@pytest.mark.parametrize("calls", [streamed, whole])
async def test_an_answer_over_http_is_no_result(calls, before):
    async with serving(speaking(calls=calls(ANSWER.replace('"content"', before + '"content"')))) as server:
        result = await outcome_at(Server("sdk", "http", url=f"{server.origin}/mcp"))
    assert (result.outcome, result.error.code) == (Outcome.INVALID_RESULT, "protocol_violation")
    assert TWICE in result.message


@pytest.mark.parametrize("calls", [streamed, whole])
async def test_an_answer_over_http_with_other_keys_is_one(calls):
    async with serving(speaking(calls=calls(ANSWER.replace('"city": "Bergen", ', "")))) as server:
        result = await outcome_at(Server("sdk", "http", url=f"{server.origin}/mcp"))
    assert result.value == {"city": "Oslo", "at": {"city": "Bodø"}}


async def test_a_text_that_the_schema_wants_as_json_is_no_result():
    part = json.dumps({"type": "text", "text": BODY.decode()})
    server = scripted(f'instead={{"jsonrpc": "2.0", "id": @ID@, "result": {{"content": [{part}]}}}}')
    tool = {"name": "echo", "output_schema": {"type": "object"}, "mcp": {"tool": "echo"}}
    async with Calling(server, tool) as calling:
        result = await calling.call("echo", {})
    assert (result.outcome, result.error.code) == (Outcome.INVALID_RESULT, "protocol_violation")
    assert TWICE in result.message


# Clients that we serve

CALL = request("tools/call", {"name": "echo", "arguments": {"text": "hello"}}, number=7)
CALL_TWICE = json.dumps(CALL).replace('"text": "hello"', '"text": "hello", "text": "bye"').encode()


async def test_a_call_over_stdio_is_refused(tmp_path):
    async with process(write(tmp_path, BASICS)) as served:
        assert served.process.stdin is not None
        served.process.stdin.write(CALL_TWICE + b"\n")
        served.process.stdin.close()
        (told,) = await answers(served)
    assert told["id"] == 7
    assert told["error"]["code"] == -32600
    assert "duplicate key `text`" in told["error"]["message"]


async def test_a_call_over_http_is_refused(tmp_path):
    async with serve(write(tmp_path, BASICS)) as served:
        headers = headers_of(CALL) | {"host": f"127.0.0.1:{served.port}"}
        raw = await said_raw(served.port, as_http("POST", "/mcp", headers, CALL_TWICE))
        good = await said_raw(served.port, as_http("POST", "/mcp", headers, json.dumps(CALL).encode()))
    assert status_of(raw) == 400
    assert json_of(raw)["id"] == 7
    assert "duplicate key `text`" in json_of(raw)["error"]["message"]
    assert status_of(good) == 200


async def test_a_call_over_http_is_refused_whatever_else_is_wrong_with_it(tmp_path):
    async with serve(write(tmp_path, BASICS)) as served:
        headers = headers_of(CALL) | {"host": f"127.0.0.1:{served.port}"}
        body = CALL_TWICE.replace(b'"params": {', b'"params": {"n": NaN, ')
        raw = await said_raw(served.port, as_http("POST", "/mcp", headers, body))
    assert (status_of(raw), json_of(raw)["error"]["code"]) == (400, -32700)


# Models


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("openai", '{"choices": [{"index": 0, "delta": {"content": "a", "content": "b"}}]}'),
        ("openai_responses", '{"type": "response.output_text.delta", "delta": "a", "delta": "b"}'),
        (
            "anthropic",
            '{"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "1", "name": "pay", "input": {"to": "a", "to": "b"}}}',
        ),
    ],
)
async def test_an_event_of_a_model_is_no_answer(name, told):
    async with modelled(name, in_chunks([text_of(told)])) as (provider, _server):
        with pytest.raises(ProviderError, match="duplicate key") as error:
            await message(provider)
    assert error.value.code == "bad_answer"


def test_people_see_the_secret_of_neither_member():
    seen = CallRedactor(lambda _name: None)
    text = '{"user": {"password": "hunter2"}, "user": "ann"}'
    shown = seen.result("any", Result.success(text, content=(Content("text", text=text),)))
    assert "hunter2" not in f"{shown}"
