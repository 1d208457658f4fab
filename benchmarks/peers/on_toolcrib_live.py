"""Live calls with every layer, httpx alone, and hand-written HTTP/1.1, in the same process.

Arguments and answer are checked; httpx checks neither, and its URL is finished.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import httpx
import worker

from toolcrib import Executors, Runtime, parse_registry
from toolcrib.executors.live import LiveExecutor

TARGET = "/v1/forecast?city=Lisbon&days=3"


def tool(name: str, limits: dict[str, Any]) -> dict[str, object]:
    return {
        "name": name,
        "description": "The weather in a city.",
        "input_schema": worker.INPUT,
        "output_schema": worker.OUTPUT,
        "limits": limits,
        "live": {
            "url": f"{worker.origin()}/v1/forecast",
            "query": {"city": "{{ args.city }}", "days": "{{ args.days }}"},
            "headers": worker.HEADERS,
        },
    }


def runtime() -> Runtime:
    kinds = Executors({"live": LiveExecutor})
    documents = [tool("weather", {"concurrency": 100, "queue": 1000}), tool("weather_as_it_is", {})]
    return Runtime(
        parse_registry("live.json", documents, kinds=kinds),
        executors=kinds,
        egress=[urlsplit(worker.origin()).netloc],
    )


async def call(tools: Runtime, name: str) -> None:
    result = await tools.call(name, worker.ARGUMENTS)
    assert result.value["temp"] == 18.5, result


async def get(client: httpx.AsyncClient, url: str) -> None:
    response = await client.get(url)
    assert response.json()["temp"] == 18.5


async def get_in_parts(client: httpx.AsyncClient, url: str) -> None:
    response = await client.get(url, params=worker.ARGUMENTS, headers=worker.HEADERS)
    assert response.json()["temp"] == 18.5


def by_hand(host: str, port: int) -> Callable[[], Awaitable[None]]:
    """The floor: asyncio's streams, a request that is text already, connections kept in a list."""
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    language = worker.HEADERS["Accept-Language"]
    request = f"GET {TARGET} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept-Language: {language}\r\n\r\n".encode()

    async def exchange() -> None:
        reader, writer = idle.pop() if idle else await asyncio.open_connection(host, port)
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        start = head.lower().index(b"content-length:") + len("content-length:")
        body = await reader.readexactly(int(head[start : head.index(b"\r\n", start)]))
        idle.append((reader, writer))
        assert json.loads(body)["temp"] == 18.5

    return exchange


async def prepared() -> None:
    limits = httpx.Limits(max_connections=100, max_keepalive_connections=100)
    host, port = urlsplit(worker.origin()).netloc.split(":")
    async with runtime() as tools, httpx.AsyncClient(limits=limits) as client:
        contenders = {
            "ours": partial(call, tools, "weather"),
            "ours_as_it_is": partial(call, tools, "weather_as_it_is"),
            "httpx": partial(get, client, worker.origin() + TARGET),
            "httpx_in_parts": partial(get_in_parts, client, f"{worker.origin()}/v1/forecast"),
            "by_hand": by_hand(host, int(port)),
        }
        await worker.serve(("toolcrib", "jsonschema-rs", "httpx", "httpcore"), contenders)


worker.main(prepared)
