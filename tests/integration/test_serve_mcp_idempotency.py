"""Idempotency keys of clients, in `_meta` and as an HTTP header."""

from __future__ import annotations

import asyncio

import pytest

from sampling import sample
from served_sessions import TOKENS, notebook, serving
from serving_mcp import client, each_way_and_era, json_of, quiet_sdk, request, serve, stdio

pytestmark = [quiet_sdk]

ADA, BOB = TOKENS
KEY = "dev.toolcrib/idempotency-key"


def journalled(folder):
    """The notebook, whose mocks are recorded, so that clients without a common session share their keys."""
    project = notebook(folder) / "toolcrib.yaml"
    project.write_text(f"{project.read_text(encoding='utf-8')}\njournal: {{mocks: true}}\n", encoding="utf-8")
    return folder


def adding(text="mine", key=None):
    meta = {} if key is None else {"_meta": {KEY: key}}
    return request("tools/call", {"name": "add_note", "arguments": {"text": text}, **meta})


async def test_a_key_in_meta_or_in_a_header_names_a_call_of_a_token(tmp_path):
    async with serving(journalled(tmp_path), tokens=TOKENS) as server:
        answers = [
            await server.raw(adding(key="k"), ADA),
            await server.raw(adding(key="k"), ADA),
            await server.raw(adding(), ADA, **{"idempotency-key": "k"}),
            await server.raw(adding(), ADA, **{"idempotency-key": '"k"'}),
            await server.raw(adding(key="k"), ADA, **{"Idempotency-Key": "k"}),
        ]
        assert {str(json_of(answer)) for answer in answers} == {str(json_of(answers[0]))}
        assert await server.notes(token=ADA) == ["mine"]
        other = json_of(await server.raw(adding("else", key="k"), ADA))["result"]
        assert other["_meta"]["dev.toolcrib/outcome"]["code"] == "idempotency_conflict"
        await server.raw(adding(key="k"), BOB)
        assert await server.notes(token=BOB) == ["mine"]
        assert await server.notes(token=ADA) == ["mine"]


@pytest.mark.parametrize("key", sample(["", "k" * 201, "a\nb", 7, None, ["k"]], one_in=3))
async def test_an_invalid_key_is_a_protocol_error(tmp_path, key):
    async with serving(notebook(tmp_path)) as server:
        params = {"name": "add_note", "arguments": {"text": "mine"}, "_meta": {KEY: key}}
        answer = await server.answer("tools/call", params)
        assert answer["error"]["code"] == -32602
        assert f"{KEY} must be a text of 1 to 200 printable characters" in answer["error"]["message"]
        assert await server.notes() == []


async def test_two_keys_that_differ_are_a_protocol_error(tmp_path):
    async with serving(notebook(tmp_path)) as server:
        answer = json_of(await server.raw(adding(key="k"), **{"idempotency-key": "other"}))
        assert answer["error"]["code"] == -32602
        assert "differ" in answer["error"]["message"]
        assert await server.notes() == []


@each_way_and_era
async def test_the_official_client_repeats_a_call(way, era, tmp_path):
    folder = notebook(tmp_path)

    async def twice(target):
        async with client(target, era) as one:
            for _ in range(2):
                assert not (await one.call_tool("next_step", {}, meta={KEY: "k"})).is_error
            return (await one.call_tool("next_step", {})).content[0].text

    async with asyncio.timeout(60):
        if way == "stdio":
            assert await twice(stdio(folder)) == "second"
        else:
            async with serve(folder) as served:
                assert await twice(served.url) == "second"
