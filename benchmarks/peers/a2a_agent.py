"""An agent of the A2A SDK with one tool, `add`. Prints its URL; ends with its standard input."""

import asyncio
import socket
import sys

import uvicorn
from a2a.helpers import new_data_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCard, Task, TaskState, TaskStatus
from google.protobuf.json_format import MessageToDict, ParseDict
from starlette.applications import Starlette

INTEGERS = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}


class Calculator(AgentExecutor):
    async def execute(self, context, queue):
        status = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
        await queue.enqueue_event(Task(id=context.task_id, context_id=context.context_id, status=status))
        updater = TaskUpdater(queue, context.task_id, context.context_id)
        params = MessageToDict(context.message.metadata)["_tool_call"]["params"]
        value = {"sum": int(params["a"] + params["b"])}
        await updater.add_artifact([new_data_part(value)], metadata={"_tool_result": True}, last_chunk=True)
        await updater.complete()

    async def cancel(self, context, queue):
        await TaskUpdater(queue, context.task_id, context.context_id).cancel()


def card_of(url: str) -> AgentCard:
    tools = {"tool-add": {"name": "add", "inputSchema": INTEGERS}}
    return ParseDict(
        {
            "name": "calculator",
            "description": "Adds.",
            "version": "1",
            "defaultInputModes": ["application/json"],
            "defaultOutputModes": ["application/json"],
            "supportedInterfaces": [
                {"url": f"{url}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
            ],
            "capabilities": {
                "streaming": True,
                "extensions": [{"uri": "urn:toolcrib:a2a:tool-descriptors:v1", "params": {"tools": tools}}],
            },
            "skills": [{"id": "tool-add", "name": "add", "description": "Adds.", "tags": ["tool"]}],
        },
        AgentCard(),
    )


async def main() -> None:
    listening = socket.socket(proto=socket.IPPROTO_TCP)  # else asyncio does not set TCP_NODELAY
    listening.bind(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    card = card_of(url)
    handler = DefaultRequestHandler(
        agent_executor=Calculator(), task_store=InMemoryTaskStore(), agent_card=card
    )
    app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc")])
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_keep_alive=3600))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    print(url, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.should_exit = True
    await serving


asyncio.run(main())
