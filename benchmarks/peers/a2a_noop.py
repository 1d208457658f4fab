"""An agent of the A2A SDK that does nothing: each message makes a completed task, in one event. Ends with its standard input."""

import asyncio
import logging
import socket
import sys

import uvicorn
from a2a.helpers import new_data_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import AgentCapabilities, AgentCard, Artifact, Task, TaskState, TaskStatus
from starlette.applications import Starlette


class NoOp(AgentExecutor):
    async def execute(self, context, queue):
        artifact = Artifact(
            artifact_id="result", parts=[new_data_part({"sum": 5})], metadata={"_tool_result": True}
        )
        await queue.enqueue_event(
            Task(
                id=context.task_id,
                context_id=context.context_id,
                status=TaskStatus(state=TaskState.TASK_STATE_COMPLETED),
                artifacts=[artifact],
                history=[context.message],
            )
        )

    async def cancel(self, context, queue):
        raise NotImplementedError


async def main() -> None:
    logging.getLogger("a2a").setLevel(logging.ERROR)  # the card has only what is needed
    card = AgentCard(name="noop", capabilities=AgentCapabilities(streaming=True))
    handler = DefaultRequestHandler(agent_executor=NoOp(), task_store=InMemoryTaskStore(), agent_card=card)
    app = Starlette(routes=create_jsonrpc_routes(handler, "/a2a"))
    listening = socket.socket(proto=socket.IPPROTO_TCP)  # else asyncio does not set TCP_NODELAY
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="error", lifespan="off", http="httptools", timeout_keep_alive=600)
    )
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.should_exit = True
    await serving


asyncio.run(main())
