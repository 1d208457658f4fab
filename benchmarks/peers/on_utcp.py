"""The UTCP client over a protocol that only calls a function: nothing is checked."""

from __future__ import annotations

from typing import Any

import worker
from utcp.data.call_template import CallTemplate
from utcp.data.register_manual_response import RegisterManualResult
from utcp.data.tool import Tool
from utcp.data.utcp_manual import UtcpManual
from utcp.interfaces.communication_protocol import CommunicationProtocol
from utcp.interfaces.serializer import Serializer
from utcp.plugins.discovery import register_call_template, register_communication_protocol
from utcp.utcp_client import UtcpClient


class Template(CallTemplate):
    call_template_type: str = "function"


class Templates(Serializer[Template]):
    def to_dict(self, obj: Template) -> dict[str, Any]:
        return obj.model_dump()

    def validate_dict(self, data: dict[str, Any]) -> Template:
        return Template.model_validate(data)


class Protocol(CommunicationProtocol):
    async def register_manual(self, caller: Any, manual_call_template: Any) -> RegisterManualResult:
        tool = Tool(
            name="weather",
            description="The weather in a city.",
            inputs=worker.INPUT,
            outputs=worker.OUTPUT,
            tool_call_template=manual_call_template,
        )
        return RegisterManualResult(
            success=True,
            manual_call_template=manual_call_template,
            errors=[],
            manual=UtcpManual(tools=[tool]),
        )

    async def deregister_manual(self, caller: Any, manual_call_template: Any) -> None:
        pass

    async def call_tool(self, caller: Any, tool_name: str, tool_args: Any, tool_call_template: Any) -> Any:
        return worker.body(**tool_args)

    async def call_tool_streaming(
        self, caller: Any, tool_name: str, tool_args: Any, tool_call_template: Any
    ) -> Any:
        yield worker.body(**tool_args)


async def prepared() -> None:
    register_call_template("function", Templates())
    register_communication_protocol("function", Protocol())
    client = await UtcpClient.create(config={"manual_call_templates": []})
    await client.register_manual(Template(name="m"))

    async def call() -> None:
        assert (await client.call_tool("m.weather", worker.ARGUMENTS))["temp"] == 18.5

    await worker.serve(("utcp", "pydantic"), {"call": call})


worker.main(prepared)
