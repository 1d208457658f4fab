"""The smallest agent of the ACP SDK: it answers every prompt with one word."""

import asyncio

import acp


class SmallestAgent:
    def on_connect(self, connection):
        self.connection = connection

    async def initialize(self, protocol_version, **_rest):
        return acp.InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd, mcp_servers, **_rest):
        return acp.NewSessionResponse(session_id="session")

    async def prompt(self, session_id, prompt, **_rest):
        await self.connection.session_update(session_id, acp.update_agent_message_text("hello"))
        return acp.PromptResponse(stop_reason="end_turn")


asyncio.run(acp.run_agent(SmallestAgent()))
