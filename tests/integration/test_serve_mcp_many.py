"""Many clients at once, who all number their requests alike: nobody hears what another one asked."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest

from sampling import THOROUGH
from serving_mcp import BASICS, client, each_era, headers_of, quiet_sdk, request, standing, texts, write

pytestmark = [quiet_sdk]

CLIENTS, CALLS = (50, 8) if THOROUGH else (20, 5)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with standing(write(tmp_path_factory.mktemp("tools"), BASICS)) as served:
        yield served


@each_era
async def test_many_clients_with_the_same_numbers(era, served):
    async def converse(number: int) -> None:
        async with client(served.url, era) as one:
            for index in range(CALLS):
                text = f"client {number}, call {index}"
                assert texts(await one.call_tool("echo", {"text": text})) == [text]

    await asyncio.gather(*map(converse, range(CLIENTS)))


@pytest.mark.exhaustive
async def test_many_connections_with_the_same_number(served):
    async def converse(http: httpx.AsyncClient, number: int) -> None:
        for index in range(CALLS):
            text = f"client {number}, call {index} ☃"
            message = request("tools/call", {"name": "echo", "arguments": {"text": text}}, 1)
            answer = await http.post(served.url, content=json.dumps(message), headers=headers_of(message))
            assert answer.status_code == 200
            assert answer.json()["result"]["content"] == [{"type": "text", "text": text}]

    limits = httpx.Limits(max_connections=CLIENTS)
    async with httpx.AsyncClient(limits=limits, timeout=60, trust_env=False) as http:
        await asyncio.gather(*(converse(http, number) for number in range(CLIENTS)))
    async with httpx.AsyncClient(timeout=60, trust_env=False) as http:
        lists = [request("tools/list", number=1)] * 20
        answers = await asyncio.gather(
            *(http.post(served.url, content=json.dumps(each), headers=headers_of(each)) for each in lists)
        )
        assert {answer.text for answer in answers} == {answers[0].text}
        assert len(answers[0].json()["result"]["tools"]) == 3
