"""Who fulfils the tools of mode `client` in a scenario: the document, in the caller's place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from toolcrib.core.model import JSON, Outcome, Result
from toolcrib.core.protocols import BoundTool
from toolcrib.engine.runtime import Runtime
from toolcrib.executors.client.client_call import ClientCall
from toolcrib.loading.scenarios.agents import Agent, Turn

Way: TypeAlias = Callable[["Fulfilling", ClientCall], Awaitable[Result]]
"""How the caller fulfils a call."""


class Fulfilling:
    """The client of a conversation.

    Attributes:
        turn: Whose answers count before those of the agent.

    Args:
        runtime: Binds the mocks of tools that are granted.
        agent: Whose tools are fulfilled.
        names: What expressions read.
    """

    def __init__(self, runtime: Runtime, agent: Agent, names: Callable[[], dict[str, JSON]]) -> None:
        self.turn: Turn | None = None
        self._runtime = runtime
        self._agent = agent
        self._names = names
        self._mocks: dict[str, BoundTool] = {}

    async def __call__(self, call: ClientCall) -> JSON | Result:
        """Fulfil a call as the document says; one of which it says nothing waits."""
        said = self.turn.client.get(call.tool) if self.turn is not None else None
        rendering = said or self._agent.client.get(call.tool)
        if rendering is None:
            return call.defer()
        names = self._names()
        names["args"] = call.arguments
        answer: Any = rendering.render(names)
        if isinstance(answer, str):
            return await _WAYS[answer](self, call)
        if "result" in answer:
            value: JSON = answer["result"]
            return value
        error = answer["error"]
        return Result.failed(Outcome.TOOL_ERROR, error.get("message") or error["code"], code=error["code"])

    async def granted(self, call: ClientCall) -> Result:
        """What the tool's mock answers."""
        if call.tool not in self._mocks:
            self._mocks[call.tool] = self._runtime.engine.in_mode(call.call.tool, "mock")
        made = call.call._replace(tool=call.call.tool._replace(mode="mock"))
        return await self._mocks[call.tool].execute(made)


async def _denied(_who: Fulfilling, call: ClientCall) -> Result:
    return call.decline("the user said no")


async def _late(_who: Fulfilling, call: ClientCall) -> Result:
    await call.context.session.clock.sleep(call.timeout + 1)
    return call.defer()


async def _deferred(_who: Fulfilling, call: ClientCall) -> Result:
    return call.defer()


_WAYS: Mapping[str, Way] = {
    "grant": Fulfilling.granted,
    "deny": _denied,
    "timeout": _late,
    "defer": _deferred,
}
