"""What servers say of themselves, of their tools and in answers, without the secrets that they were given."""

from __future__ import annotations

import base64
import json
import logging
import sys
from pathlib import Path

import pytest

from echoing_server import HOWS, forms
from http_servers import answering_by, raw_answer, serving
from mcp_calling import Calling
from sampling import sample
from toolcrib import Outcome
from toolcrib.core.errors import NotReady
from toolcrib.core.server_config import Server
from toolcrib.security.secrets import SecretResolver
from toolcrib.servers.mcp.tool_list import list_tools, without_secrets

SCRIPT = str(Path(__file__).parents[2] / "echoing_server.py")
SECRETS = {"KEY": 'CaNarY-key-"7f3a+b&c', "API_TOKEN": "CaNarY-t0ken/5e1f~2d", "PIN_CODE": "84615273"}
CANARIES = {form for secret in SECRETS.values() for form in forms(secret).values()}
CANARIES |= {form.lower() for form in CANARIES} | {json.dumps(form)[1:-1] for form in CANARIES}


def hits(told):
    text = told if isinstance(told, str) else json.dumps(told, ensure_ascii=False) + json.dumps(told)
    return sorted(form for form in CANARIES if form in text or form in text.lower())


def echoing(**fields):
    env = {name: f"${{{name}}}" for name in SECRETS}
    return Server("echoing", command=sys.executable, args=("-S", SCRIPT), env=env, **fields)


def given(result):
    """All that a result holds."""
    parts = [part.as_json() for part in result.content]
    decoded = [base64.b64decode(part.data).decode("latin-1") for part in result.content if part.data]
    return [result.as_json(), result.raw_value, parts, decoded, repr(result)]


async def test_what_a_server_lists_and_says_of_itself_is_masked(caplog):
    with caplog.at_level(logging.DEBUG):
        async with Calling(echoing(), "good", secrets=SecretResolver(SECRETS)) as calling:
            catalogue = await calling.executor.catalogue("echoing")
    assert hits(json.loads(json.dumps(catalogue._replace(**{key: dict(getattr(catalogue, key)) for key in ("tools", "refused", "info", "agents")})))) == []  # fmt: skip
    assert hits(caplog.text) == []
    assert catalogue.info["version"] == "***"
    assert set(catalogue.tools) == {"good", "odd_parts"}
    assert all(why.startswith("its name contains a secret") for label, why in catalogue.refused.items() if label.startswith("#") and int(label[1:]) < 40)  # fmt: skip
    assert catalogue.refused["too_deep"].endswith("`/inputSchema/***/0/0/0/0` is not a finite number")
    assert "it sent the cursor `***` twice; its list ends there" in catalogue.remarks


@pytest.mark.parametrize("rule", sample(["error", "warn", "pass"], one_in=3))
async def test_nothing_that_a_result_holds_shows_a_secret(rule):
    tool = {
        "name": "good",
        "output_schema": {"type": "object", "required": ["none"]},
        "on_invalid_result": rule,
    }
    async with Calling(echoing(), tool, secrets=SecretResolver(SECRETS)) as calling:
        for how in HOWS:
            result = await calling.call("good", {"how": how})
            assert hits(given(result)) == [], how
            assert "CaN" not in str(given(result)), how
            assert result.outcome is not Outcome.INTERNAL
            if result.outcome is not Outcome.OK:
                with pytest.raises(Exception) as raised:
                    result.raise_for_outcome()
                assert hits(str(raised.value)) == []


@pytest.mark.parametrize("how", sample(["garbage", "part", "image", "failed"], one_in=4))
async def test_a_raw_value_is_kept_and_masked(how):
    async with Calling(echoing(), "good", secrets=SecretResolver(SECRETS)) as calling:
        result = await calling.call("good", {"how": how})
    assert "***" in json.dumps(result.raw_value)
    assert hits(result.raw_value) == []


async def test_of_a_secret_where_a_message_is_cut_nothing_is_told():
    async with Calling(echoing(), "good", secrets=SecretResolver(SECRETS)) as calling:
        for how in ("cut", "error"):
            for at in range(4020, 4056, 4):
                result = await calling.call("good", {"how": how, "at": at})
                assert "truncated" in result.message
                assert "CaN" not in result.message


def over_http(head):
    """A server that repeats its headers, whatever it is asked."""
    asked = head.json if head.body else {}
    said = f"{head.header('authorization')} {head.header('x-key')} {head.target}"
    if "id" not in asked:
        return raw_answer(202)
    results = {
        "initialize": {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": said, "version": "1"},
        },
        "tools/list": {
            "tools": [
                {"name": "good", "description": said, "inputSchema": {"default": {"a": said}}},
                {"name": said, "inputSchema": {}},
            ]
        },
        "tools/call": {
            "content": [{"type": "text", "text": said}],
            "structuredContent": {said: said.upper()},
        },
    }
    answer = {"jsonrpc": "2.0", "id": asked["id"], "result": results[asked["method"]]}
    return raw_answer(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())


async def test_what_is_sent_in_headers_and_addresses_is_masked_in_what_is_listed():
    token = "CaNarY-0f-a-token"
    vault = SecretResolver({**SECRETS, "API_TOKEN": token})
    async with serving(answering_by(over_http)) as web:
        server = Server(
            "web",
            "http",
            url=f"{web.origin}/mcp?key=${{PIN_CODE}}",
            headers={"X-Key": "${KEY}"},
            auth={"type": "http", "scheme": "bearer", "token": "${API_TOKEN}"},
            era="handshake",
        )
        async with Calling(server, "good", secrets=vault) as calling:
            catalogue = await calling.executor.catalogue("web")
            result = await calling.call("good")
        sent = "".join(head.header("authorization") or "" for head in web.requests)
    assert token in sent
    for told in (str(catalogue), str(given(result))):
        assert token not in told
        assert hits(told) == []
    assert catalogue.tools["good"] == {
        "name": "good",
        "description": catalogue.info["name"],
        "inputSchema": {},
    }
    assert [*catalogue.refused] == ["#2"]


def refusing(head):
    asked = head.json
    said = f"x {head.header('authorization')}"
    error = {
        "jsonrpc": "2.0",
        "id": asked.get("id"),
        "error": {"code": -32001, "message": said, "data": said},
    }
    return raw_answer(200, {"Content-Type": "application/json"}, json.dumps(error).encode())


async def test_why_a_server_refuses_to_start_is_told_without_secrets():
    async with serving(answering_by(refusing)) as web:
        auth = {"type": "http", "scheme": "bearer", "token": "${KEY}"}
        server = Server("web", "http", url=f"{web.origin}/mcp", auth=auth, era="handshake")
        async with Calling(server, "good", secrets=SecretResolver({"KEY": "CaNarY-0f-a-token"})) as calling:
            with pytest.raises(NotReady) as raised:
                await calling.executor.catalogue("web")
            result = await calling.call("good")
    assert "***" in str(raised.value)
    assert "CaN" not in str(raised.value) + str(given(result))


# One definition.


def masked(schema, *secrets):
    vault = SecretResolver({})
    for secret in secrets:
        vault.register(secret)
    definition = {"name": "a", "inputSchema": schema}
    return without_secrets(definition, vault)["inputSchema"]


def test_a_definition_without_secrets_is_the_same():
    definition = {"name": "a", "inputSchema": {"type": "object", "default": {"a": "none"}}}
    vault = SecretResolver({})
    vault.register("hunter2-and-more")
    assert without_secrets(definition, vault) is definition


def test_words_of_the_protocol_are_no_secrets():
    schema = {
        "type": "object",
        "title": "The default title",
        "properties": {"title": {"type": ["string", "null"], "default": "x"}, "object": {"type": "string"}},
        "required": ["title", "object"],
    }
    assert masked(schema, "title", "default", "string", "object", "properties") == {
        "type": "object",
        "title": "The *** ***",
        "properties": {"title": {"type": ["string", "null"], "default": "x"}, "***": {"type": "string"}},
        "required": ["title", "***"],
    }


def test_what_a_mask_would_make_wrong_is_left_out():
    schema = {
        "properties": {
            "a": {"type": "integer", "default": 8080, "minimum": 8080, "maximum": 9090, "enum": [8080, 1]},
            "b": {
                "pattern": "hunter2",
                "format": "hunter2",
                "const": "hunter2",
                "minLength": 1,
                "default": "b",
            },
            "pattern": {"type": "string", "description": "hunter2"},
        },
        "patternProperties": {"^hunter2": {}, "^x": {"default": {"a": ["hunter2"]}, "examples": ["hunter2"]}},
        "required": ["hunter2", "HUNTER2", "a hunter2", "hunter2"],
    }
    assert masked(schema, "hunter2", "8080", "1") == {
        "properties": {
            "a": {"type": "integer", "maximum": 9090, "enum": ["***", 1]},
            "b": {"minLength": 1, "default": "b"},
            "pattern": {"type": "string", "description": "***"},
        },
        "patternProperties": {"^x": {"examples": ["***"]}},
        "required": ["***", "HUNTER2", "a ***"],
    }


def test_references_to_what_is_masked_still_hold():
    schema = {"$ref": "#/$defs/a~1hunter2", "$defs": {"a/hunter2": {"type": "string"}}, "not": {"not": True}}
    assert masked(schema, "a/hunter2") == {"$ref": "#/$defs/***", "$defs": {"***": {"type": "string"}}, "not": {"not": True}}  # fmt: skip


async def test_a_name_that_holds_a_secret_is_told_nowhere():
    vault = SecretResolver({})
    vault.register("hunter2-and-more")

    async def ask(_cursor):
        names = [*forms("hunter2-and-more").values(), "hunter"]
        return {"tools": [{"name": name, "inputSchema": {}, "description": name} for name in names]}

    found = await list_tools("shop", ask, info={}, secrets=vault)
    assert [*found.tools] == ["hunter"]
    assert [*found.refused] == [f"#{number}" for number in range(1, len(forms("")) + 1)]
    assert len(set(found.refused.values())) == 1
