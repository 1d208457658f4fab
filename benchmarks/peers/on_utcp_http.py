"""The UTCP client over its HTTP protocol: nothing is checked, and every call opens a connection."""

from __future__ import annotations

import logging

import worker
from utcp.data.tool import Tool
from utcp.data.utcp_manual import UtcpManual
from utcp.utcp_client import UtcpClient
from utcp_http.http_call_template import HttpCallTemplate

logging.disable(logging.INFO)


async def prepared() -> None:
    template = HttpCallTemplate(
        name="m", url=f"{worker.origin()}/v1/forecast", http_method="GET", headers=worker.HEADERS
    )
    tool = Tool(
        name="m.weather",
        description="The weather in a city.",
        inputs=worker.INPUT,
        outputs=worker.OUTPUT,
        tool_call_template=template,
    )
    client = await UtcpClient.create(config={"manual_call_templates": []})
    await client.config.tool_repository.save_manual(template, UtcpManual(tools=[tool]))

    async def call() -> None:
        assert (await client.call_tool("m.weather", worker.ARGUMENTS))["temp"] == 18.5

    await worker.serve(("utcp", "utcp-http", "aiohttp"), {"call": call})


worker.main(prepared)
