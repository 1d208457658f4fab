"""FastMCP's tool of an OpenAPI document: by its client in the same process, and by the server alone."""

from __future__ import annotations

from typing import Any

import httpx2
import worker
from fastmcp import Client, FastMCP

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "weather", "version": "1"},
    "paths": {
        "/v1/forecast": {
            "get": {
                "operationId": "weather",
                "parameters": [
                    {
                        "name": name,
                        "in": "query",
                        "required": name in worker.INPUT["required"],
                        "schema": schema,
                    }
                    for name, schema in worker.INPUT["properties"].items()
                ],
                "responses": {
                    "200": {
                        "description": "The weather.",
                        "content": {"application/json": {"schema": worker.OUTPUT}},
                    }
                },
            }
        }
    },
}


async def prepared() -> None:
    limits = httpx2.Limits(max_connections=100, max_keepalive_connections=100)
    http = httpx2.AsyncClient(base_url=worker.origin(), headers=worker.HEADERS, limits=limits)
    server = FastMCP.from_openapi(DOCUMENT, client=http)
    async with http, Client(server) as client:

        async def call() -> None:
            result = await client.call_tool("weather", worker.ARGUMENTS)
            assert result.structured_content["temp"] == 18.5

        async def by_server() -> None:
            result = await server.call_tool("weather", worker.ARGUMENTS)
            assert result.structured_content["temp"] == 18.5

        await worker.serve(("fastmcp", "mcp", "pydantic", "httpx2"), {"call": call, "server": by_server})


worker.main(prepared)
