"""An agent of the official SDK for Python, which tests of the ACP client start.

The text of the prompt selects what the agent does.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from acp import (
    PROTOCOL_VERSION,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PromptResponse,
    RequestError,
    run_agent,
)
from acp.helpers import (
    start_tool_call,
    text_block,
    tool_content,
    tool_terminal_ref,
    update_agent_message_text,
    update_tool_call,
    update_user_message_text,
)
from acp.schema import (
    AgentCapabilities,
    Implementation,
    McpCapabilities,
    PermissionOption,
    ResumeSessionResponse,
    SessionCapabilities,
    SessionResumeCapabilities,
    ToolCallLocation,
    ToolCallUpdate,
)

OPTIONS = (
    ("once", "Allow once", "allow_once"),
    ("always", "Always", "allow_always"),
    ("no", "Reject", "reject_once"),
)


class SdkAgent:
    """An agent of the official SDK. Its model is the prompt: `read PATH`, `write PATH TEXT`, `run LINE`, `hang`, `die`."""

    def __init__(self) -> None:
        self.client: Any = None
        self.cancelled = asyncio.Event()
        self.calls = 0

    def on_connect(self, connection: Any) -> None:
        self.client = connection

    async def initialize(self, protocol_version: int, **_rest: Any) -> InitializeResponse:
        return InitializeResponse(
            protocol_version=PROTOCOL_VERSION,
            agent_capabilities=AgentCapabilities(
                load_session="--load" in sys.argv,
                mcp_capabilities=McpCapabilities(http="--http" in sys.argv),
                session_capabilities=SessionCapabilities(
                    resume=SessionResumeCapabilities() if "--resume" in sys.argv else None
                ),
            ),
            agent_info=Implementation(name="sdk-agent", version="1"),
        )

    async def new_session(self, cwd: str, mcp_servers: list[Any], **_rest: Any) -> NewSessionResponse:
        self.servers, self.cwd = mcp_servers, cwd
        session = f"session-{os.getpid()}"
        self._file(session).touch()
        return NewSessionResponse(session_id=session)

    async def load_session(self, cwd: str, session_id: str, **_rest: Any) -> LoadSessionResponse:
        for line in self._history(cwd, session_id).read_text().splitlines():
            for update in (update_user_message_text(line), update_agent_message_text("On it. ")):
                await self.client.session_update(session_id, update)
        return LoadSessionResponse()

    async def resume_session(self, cwd: str, session_id: str, **_rest: Any) -> ResumeSessionResponse:
        self._history(cwd, session_id).read_text()
        return ResumeSessionResponse()

    def _history(self, cwd: str, session: str) -> Path:
        """The file with the prompts of a session."""
        self.cwd = cwd
        if not self._file(session).exists():
            raise RequestError.resource_not_found(session)
        return self._file(session)

    def _file(self, session: str) -> Path:
        return Path(self.cwd, f"{session}.history")

    async def cancel(self, session_id: str, **_rest: Any) -> None:
        self.cancelled.set()

    async def prompt(self, session_id: str, prompt: list[Any], **_rest: Any) -> PromptResponse:
        self.cancelled.clear()
        with self._history(self.cwd, session_id).open("a") as history:
            history.write(f"{prompt[0].text}\n")
        word, _, rest = prompt[0].text.partition(" ")
        await self.client.session_update(session_id, update_agent_message_text("On it. "))
        stop = await getattr(self, f"do_{word}")(session_id, rest)
        return PromptResponse(stop_reason=stop or "end_turn")

    async def do_say(self, session: str, text: str) -> None:
        await self.client.session_update(session, update_agent_message_text(text))

    async def do_env(self, session: str, name: str) -> None:
        await self.do_say(session, os.environ.get(name, "unset"))

    async def do_read(self, session: str, path: str) -> str | None:
        async def read() -> str:
            return str((await self.client.read_text_file(session_id=session, path=path)).content)

        return await self._permitted(session, f"Read {path}", "read", path, read)

    async def do_write(self, session: str, rest: str) -> str | None:
        path, _, text = rest.partition(" ")

        async def write() -> str:
            await self.client.write_text_file(session_id=session, path=path, content=text)
            return "written"

        return await self._permitted(session, f"Write {path}", "edit", path, write)

    async def do_run(self, session: str, line: str) -> None:
        id_ = self._id()
        made = await self.client.create_terminal(
            session_id=session, command="sh", args=["-c", line], output_byte_limit=1000
        )
        terminal = made.terminal_id
        await self.client.session_update(
            session,
            start_tool_call(
                id_, line, kind="execute", status="in_progress", content=[tool_terminal_ref(terminal)]
            ),
        )
        ended = await self.client.wait_for_terminal_exit(session_id=session, terminal_id=terminal)
        output = await self.client.terminal_output(session_id=session, terminal_id=terminal)
        await self.client.release_terminal(session_id=session, terminal_id=terminal)
        how = f"signal {ended.signal}" if ended.exit_code is None else f"exit {ended.exit_code}"
        status = "completed" if ended.exit_code == 0 else "failed"
        shown = [tool_content(text_block(f"{output.output}{how}"))]
        await self.client.session_update(session, update_tool_call(id_, status=status, content=shown))

    async def do_use(self, session: str, rest: str) -> None:
        """Call a tool of the first MCP server, with the official SDK of MCP."""
        import httpx2  # noqa: PLC0415 -- slow to import, and most prompts do without
        from mcp import ClientSession, MCPError, StdioServerParameters, stdio_client  # noqa: PLC0415 -- as above
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 -- as above

        name, _, arguments = rest.partition(" ")
        id_ = self._id()
        say = self.client.session_update
        await say(session, start_tool_call(id_, name, status="in_progress"))
        async with AsyncExitStack() as stack:
            offered = self.servers[0]
            if hasattr(offered, "url"):
                headers = {each.name: each.value for each in offered.headers}
                http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers))
                opened: Any = streamable_http_client(offered.url, http_client=http)
            else:
                opened = stdio_client(StdioServerParameters(command=offered.command, args=offered.args))
            read, write, *_more = await stack.enter_async_context(opened)
            tools = await stack.enter_async_context(ClientSession(read, write))
            await tools.initialize()
            names = sorted(tool.name for tool in (await tools.list_tools()).tools)
            await say(session, update_agent_message_text(" ".join(names)))
            try:
                result = await tools.call_tool(name, json.loads(arguments or "{}"))
            except MCPError as error:
                text, failed = str(error), True
            else:
                text, failed = result.content[0].text, result.is_error
        status = "failed" if failed else "completed"
        await say(session, update_tool_call(id_, status=status, content=[tool_content(text_block(text))]))

    async def do_hang(self, session: str, _rest: str) -> str:
        id_ = self._id()
        await self.client.session_update(session, start_tool_call(id_, "Hang", status="in_progress"))
        await self.cancelled.wait()
        await self.client.session_update(session, update_tool_call(id_, status="failed"))
        return "cancelled"

    async def do_die(self, session: str, code: str) -> None:
        await self.client.session_update(session, start_tool_call(self._id(), "Die", status="in_progress"))
        sys.stderr.write("the last words\n")
        os._exit(int(code))

    def _id(self) -> str:
        self.calls += 1
        return f"call_{self.calls}"

    async def _permitted(self, session: str, title: str, kind: Any, path: str, work: Any) -> str | None:
        id_ = self._id()
        say = self.client.session_update
        at = [ToolCallLocation(path=path)]
        await say(
            session,
            start_tool_call(id_, title, kind=kind, status="pending", locations=at, raw_input={"path": path}),
        )
        try:
            asked = await self.client.request_permission(
                session_id=session,
                tool_call=ToolCallUpdate(tool_call_id=id_),
                options=[
                    PermissionOption(option_id=id_, name=name, kind=kind) for id_, name, kind in OPTIONS
                ],
            )
        except RequestError as error:
            await say(
                session,
                update_tool_call(id_, status="failed", content=[tool_content(text_block(str(error)))]),
            )
            return None
        if asked.outcome.outcome == "cancelled":
            return "cancelled"
        if asked.outcome.option_id == "no":
            await say(
                session,
                update_tool_call(id_, status="failed", content=[tool_content(text_block("rejected"))]),
            )
            return None
        await say(session, update_tool_call(id_, status="in_progress"))
        try:
            text = await work()
        except RequestError as error:
            await say(
                session,
                update_tool_call(
                    id_, status="failed", content=[tool_content(text_block(f"{error.code} {error}"))]
                ),
            )
        else:
            await say(
                session, update_tool_call(id_, status="completed", content=[tool_content(text_block(text))])
            )
        return None


if __name__ == "__main__":
    asyncio.run(run_agent(SdkAgent(), use_unstable_protocol=True))
