"""Tools of A2A agents by the agents' own names: list them, call them, and answer tasks that wait.

A call is made by an ordinary tool: the imported one of the registry, or one that is made for the call. All layers apply.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.core.errors import ConfigurationError, NotReady, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Descriptor, Outcome, Partial, Progress, Result, Schema
from toolcrib.core.server_config import AGENT_MODE, Server, descriptor_of, tool_names_of
from toolcrib.engine.session import ToolTable
from toolcrib.loading.sources import parse
from toolcrib.registry.registry import Registry

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Engine
    from toolcrib.engine.session import Session


def agents_of(servers: Mapping[str, Server]) -> dict[str, Server]:
    """The agents among servers; directories of agents are none."""
    return {
        name: server for name, server in servers.items() if server.mode == AGENT_MODE and not server.lists
    }


class RemoteTool(NamedTuple):
    """A tool of an agent, as its card describes it.

    Attributes:
        name: The agent's name for the tool.
        agent: Name of the agent in the project.
        url: The configured URL of the agent, as written.
        title: Title; empty for none.
        description: Description; empty for none.
        input_schema: JSON Schema of the arguments.
        output_schema: JSON Schema of the result; None for none.
        annotations: Hints such as `readOnlyHint`.
        version: Version of the agent; empty if its card has none.
    """

    name: str
    agent: str
    url: str
    title: str
    description: str
    input_schema: Schema
    output_schema: Schema | None
    annotations: Mapping[str, JSON]
    version: str


async def list_remote_tools(engine: Engine, agent: str) -> tuple[RemoteTool, ...]:
    """The tools of an agent; see `Runtime.list_remote_tools`."""
    server = await _agent(engine, agent)
    catalogue = await engine.catalogue(agent)
    return tuple(
        RemoteTool(
            name,
            agent,
            server.url,
            tool.get("title", ""),
            tool.get("description", ""),
            tool["inputSchema"],
            tool.get("outputSchema"),
            tool.get("annotations", NOTHING),
            catalogue.info.get("version", ""),
        )
        for name, tool in catalogue.tools.items()
        if server.offers(name)
    )


async def execute_remote_tool(
    engine: Engine, session: Session, agent: str, tool: str, params: Mapping[str, JSON] | None, **options: Any
) -> Result:
    """The result of a call; `options` are those of `_session_of`."""
    try:
        acting, name = await _session_of(engine, session, agent, tool, **options)
    except NotReady as error:
        return _result_of_unready(error)
    return await acting.call(name, params)


async def stream_remote_tool(
    engine: Engine, session: Session, agent: str, tool: str, params: Mapping[str, JSON] | None, **options: Any
) -> AsyncGenerator[Progress | Partial | Result]:
    """The events of a call, then its result; `options` are those of `_session_of`."""
    try:
        acting, name = await _session_of(engine, session, agent, tool, **options)
    except NotReady as error:
        yield _result_of_unready(error)
        return
    events: Any = acting.stream(name, params)
    async with aclosing(events):
        async for event in events:
            yield event


async def _session_of(
    engine: Engine,
    session: Session,
    agent: str,
    tool: str,
    *,
    metadata: Mapping[str, JSON] | None = None,
    timeout: float | None = None,
    task: Mapping[str, JSON] = NOTHING,
) -> tuple[Session, str]:
    """A session that can make the call, and the name of its tool.

    Args:
        engine: The engine.
        session: The session of the call.
        agent: Name of the agent.
        tool: The agent's name for the tool.
        metadata: Metadata of the call for the agent.
        timeout: Deadline of the call in seconds; None for that of the tool.
        task: `task_id` and `context_id` of the task that waits for the call; empty for a new task.

    Raises:
        ConfigurationError: The agent is unknown, or the timeout is not positive.
        NotReady: The agent cannot be used.
    """
    server = await _agent(engine, agent)
    if timeout is not None and not timeout > 0:
        raise ConfigurationError(f"`timeout` must be greater than 0, got {timeout:g}")
    found = await _tool(engine, server, tool)
    block: Any = found.bindings[AGENT_MODE]
    given: dict[str, Any] = {"metadata": dict(metadata or {}), **({"task": dict(task)} if task else {})}
    # The caller names one agent, whatever others the tool may fail over to.
    own = {key: value for key, value in block.items() if key != "prefer"}
    given["agent"] = server.name
    found = found._replace(bindings={**found.bindings, AGENT_MODE: {**own, **given}})
    if task:
        # An answer to a question of the agent need not fit the schema of the tool.
        found = found._replace(input_schema=True)
    if timeout is not None:
        found = found._replace(timeout=timeout)
    acting = copy(session)
    acting._table = ToolTable(Registry([found]))  # noqa: SLF001 -- a session with one tool
    acting._context = session._context._replace(session=acting)  # noqa: SLF001 -- as above
    return acting, found.name


async def _tool(engine: Engine, server: Server, tool: str) -> Descriptor:
    """The imported tool of the registry, or one that is made from the card."""
    known = await engine.catalogue(server.name)
    name = tool_names_of(server, [*known.tools, *known.refused])[0].get(tool, "")
    imported = engine.registry.get(name) if name else None
    if imported is not None and imported.mode == AGENT_MODE:
        return imported
    document: dict[str, Any] = (
        descriptor_of(server, known.tools[tool], name)
        if name and tool in known.tools
        # The call itself reports a tool that is unknown or excluded, as for a descriptor that names it.
        else {
            "name": "remote_tool",
            "input_schema": {},
            "mode": AGENT_MODE,
            AGENT_MODE: {"agent": server.name, "tool": tool},
        }
    )
    (made,) = parse(f"agent {server.name}", [document], engine.executors).tools
    return made


async def _agent(engine: Engine, name: str) -> Server:
    agents = agents_of(engine.servers)
    # A directory may list it.
    if name not in agents:
        await engine.read_directories()
        agents = agents_of(engine.servers)
    if name not in agents:
        named = ", ".join(f"`{each}`" for each in agents) or "none"
        hint = did_you_mean(name, agents) or f"the agents are: {named}"
        raise ConfigurationError(f"unknown agent `{name}`", code="unknown_server", hint=hint)
    return agents[name]


async def task_result(engine: Engine, agent: str, task_id: str, *, cancel: bool) -> Result:
    """The result of a task; see `Runtime.remote_task_result` and `Runtime.cancel_remote_task`."""
    await _agent(engine, agent)
    try:
        await engine.catalogue(agent)  # equips the executor, and reads the card
        executor: Any = engine.executors.get(AGENT_MODE)
        result: Result = await executor.task(agent, task_id, cancel=cancel)
    except NotReady as error:
        return _result_of_unready(error)
    return result


def _result_of_unready(error: NotReady) -> Result:
    """The result of a call to an agent that cannot be used."""
    outcome = Outcome.DENIED if error.denied else Outcome.UNAVAILABLE
    message = f"{error.message}; {error.hint}" if error.hint else error.message
    return Result.failure(outcome, message, code=error.code)


def waiting_task(result: Result) -> tuple[str, str, dict[str, JSON]]:
    """The agent, the tool and the task of a call that waits for an answer.

    Raises:
        ConfigurationError: The call does not wait for its agent.
    """
    details = result.error.details if result.error is not None else NOTHING
    agent, tool = details.get("agent"), details.get("tool")
    if (
        result.outcome is not Outcome.NEEDS_APPROVAL
        or not isinstance(agent, str)
        or not isinstance(tool, str)
    ):
        raise ConfigurationError(
            f"the call does not wait for an answer to its agent: its outcome is `{result.outcome}`",
            hint="pass the result of a call that ended `needs_approval` with the code `input_required`",
        )
    task = {key: details[key] for key in ("task_id", "context_id") if key in details}
    return agent, tool, task
