"""Mode `a2a`: tools of A2A agents that the project configures.

This module does not import the A2A SDK, which is the optional extra `a2a` and slow to import. It is imported when an agent is
contacted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from toolcrib.core.errors import DocumentError, NotReady, Problem, did_you_mean
from toolcrib.core.model import JSON, Descriptor, Result, Schema
from toolcrib.core.protocols import Remote
from toolcrib.core.server_config import AGENT_MODE, Catalogue, Server
from toolcrib.security.redaction import redact_result
from toolcrib.security.requirements import NO_REQUIREMENTS, Requirements, requirements_of_server
from toolcrib.security.secrets import missing_variables, required_names

if TYPE_CHECKING:
    from toolcrib.executors.a2a.remote_skill import BoundSkill
    from toolcrib.http.auth import TokenCache
    from toolcrib.security.trust import Workspace
    from toolcrib.security.trust_needs import Need
    from toolcrib.servers.a2a.agents import AgentPool
    from toolcrib.servers.argument_overlay import ArgumentOverlay
    from toolcrib.servers.environment import NetworkEnvironment

__all__ = ["A2aExecutor"]


@cache
def _block_schema() -> Schema:
    # Deferred: slow to import, and no call needs the schema.
    from importlib.resources import files  # noqa: PLC0415

    schema: Schema = json.loads(files(__package__).joinpath("schema.json").read_text(encoding="utf-8"))
    return schema


class A2aExecutor:
    """Executor that calls tools of A2A agents.

    Attributes:
        world: The network environment with the configured agents; set by the engine before a tool is bound.
        changed: Called in the event loop with the name of an agent and its catalogue, after its card has been
            read for the first time and after every change of its tools.
    """

    def __init__(self) -> None:
        self.world: NetworkEnvironment | None = None
        self.changed: Callable[[str, Catalogue], None] | None = None
        self._in_use: AgentPool | None = None
        self._retired: list[AgentPool] = []
        self._tokens: TokenCache | None = None

    @property
    def keeps_nothing(self) -> bool:
        """Whether no agent has been contacted."""
        return all(pool.empty for pool in self._all())

    @property
    def block_schema(self) -> Schema:
        """JSON Schema of the `a2a` block."""
        return _block_schema()

    def remote(self, name: str, block: Mapping[str, JSON]) -> Remote | None:
        """The tool of an agent that a block refers to; None if the block is incomplete."""
        agents, tool = _named_agents(block), block.get("tool", name)
        if not agents or not isinstance(tool, str):
            return None
        fixed: frozenset[str] = frozenset()
        if "args" in block:
            from toolcrib.servers.argument_overlay import fixed_names  # noqa: PLC0415 -- few blocks have any

            fixed = fixed_names(block)
        return Remote(agents[0], tool, fixed, agents[1:])

    def needs(self, _descriptor: Descriptor, _workspace: Workspace) -> Iterable[Need]:
        """No need of its own: the agent is what must be trusted."""
        return ()

    def requirements(self, _descriptor: Descriptor, server: Server | None) -> Requirements:
        """The requirements of the agent; none if it is not known."""
        return NO_REQUIREMENTS if server is None else requirements_of_server(server)

    def check(self, descriptor: Descriptor) -> Sequence[Problem]:
        """Check the expressions of `args`. Whether the agent exists is checked with the project."""
        problems: list[Problem] = []
        _overlay(descriptor, problems)
        return problems

    def lacks(self, descriptor: Descriptor, _base: str) -> str:
        """Which variables of the agents, or whether the extra `a2a`, is missing; empty if nothing is."""
        world, block = self.world, descriptor.bindings[AGENT_MODE]
        if world is None or not isinstance(block, dict):
            return ""
        for name in _named_agents(block):
            agent = world.servers.get(name)
            if agent is None:
                continue
            missing = missing_variables(agent.texts(), "", world.secrets)
            if not missing and find_spec("a2a") is not None:
                continue
            from toolcrib.servers.a2a.agents import check_ready  # noqa: PLC0415 -- listing tools must start fast

            try:
                check_ready(agent, world.secrets, reads=False)
            except NotReady as error:
                return str(error)
        return ""

    def required_variables(self, _descriptor: Descriptor, server: Server | None) -> tuple[str, ...] | None:
        """The environment variables that the agent needs; None if it needs files of secrets, or the extra is missing."""
        if find_spec("a2a") is None:
            return None
        return () if server is None else required_names(server.texts())

    def bind(self, descriptor: Descriptor) -> BoundSkill:
        """Look the agents up, and compile the block. Nothing is contacted.

        Raises:
            DocumentError: The block has an error, which `check` reports.
            NotReady: An agent is unknown, or something it needs is missing: the extra `a2a`, a secret.
        """
        from toolcrib.servers.a2a.agents import check_ready  # noqa: PLC0415 -- listing tools must start fast

        block: Any = descriptor.bindings[AGENT_MODE]
        problems: list[Problem] = []
        overlay = _overlay(descriptor, problems)
        if any(problem.severity == "error" for problem in problems):
            raise DocumentError(problems)
        pool = self._pool()
        key = "agent" if "agent" in block else "prefer"
        agents = [
            _agent(name, pool.world.servers, descriptor.origin.place(f"/a2a/{key}"))
            for name in _named_agents(block)
        ]
        for agent in agents:
            check_ready(agent, pool.world.secrets)
        from toolcrib.executors.a2a.remote_skill import BoundSkill  # noqa: PLC0415 -- needs the extra

        return BoundSkill(descriptor, agents, block.get("tool", descriptor.name), overlay, pool)

    async def catalogue(self, server: str) -> Catalogue:
        """The tools of an agent, from its card.

        Raises:
            ServerDown: The agent cannot be used.
            NotReady: The agent is unknown.
        """
        from toolcrib.servers.a2a.agents import check_ready  # noqa: PLC0415 -- as above

        pool = self._pool()
        agent = _agent(server, pool.world.servers, "")
        check_ready(agent, pool.world.secrets)
        connection = pool.connection(agent.name)
        await connection.ready()
        return connection.catalogue

    async def task(self, agent: str, task_id: str, *, cancel: bool = False) -> Result:
        """The result of a task of an agent, or that it has not ended.

        Args:
            agent: Name of the agent.
            task_id: The agent's ID for the task.
            cancel: Whether the task is cancelled first.

        Raises:
            ServerDown: The agent cannot be used.
            NotReady: The agent is unknown.
        """
        from toolcrib.servers.a2a.agents import check_ready  # noqa: PLC0415 -- as above

        pool = self._pool()
        known = _agent(agent, pool.world.servers, "")
        check_ready(known, pool.world.secrets)
        connection = pool.get(known.name)
        await connection.ready()
        from toolcrib.executors.a2a.remote_skill import result_of_known_task  # noqa: PLC0415 -- needs the extra

        result = await result_of_known_task(connection, task_id, cancel=cancel)
        return redact_result(result, pool.world.secrets)

    def states(self) -> Mapping[str, str]:
        """Name of an agent -> `idle`, `starting`, `up` or `down`. Contacts no agent."""
        return {} if self._in_use is None else self._in_use.states()

    async def aclose(self) -> None:
        """Close the connections to every agent."""
        pools = self._all()
        self._in_use, self._retired = None, []
        for pool in pools:
            await pool.aclose()

    def _all(self) -> list[AgentPool]:
        return [*self._retired, *([] if self._in_use is None else [self._in_use])]

    def _pool(self) -> AgentPool:
        """The connections of the current network environment."""
        from toolcrib.servers.environment import NetworkEnvironment  # noqa: PLC0415 -- as above

        world = self.world or NetworkEnvironment.ordinary()
        current = self._in_use
        if current is not None and (current.world is world or self.world is None):
            return current
        from toolcrib.http.auth import TokenCache  # noqa: PLC0415 -- as above
        from toolcrib.servers.a2a.agents import AgentPool  # noqa: PLC0415 -- as above

        # The environment changed, for instance by a reload. Calls in progress end with the old pool.
        if current is not None:
            current.retire()
            self._retired = [*(each for each in self._retired if not each.empty), current]
        self._tokens = self._tokens or TokenCache()
        self._in_use = AgentPool(world, self._tokens, self._tell)
        return self._in_use

    def _tell(self, agent: str, catalogue: Catalogue) -> None:
        if self.changed is not None:
            self.changed(agent, catalogue)


def _named_agents(block: Mapping[str, Any]) -> tuple[str, ...]:
    """The agents of a block, the first one first; none if the block is incomplete."""
    named = block.get("prefer", [block.get("agent")])
    whole = isinstance(named, list) and all(isinstance(name, str) for name in named)
    return tuple(named) if whole else ()


def _overlay(descriptor: Descriptor, problems: list[Problem]) -> ArgumentOverlay | None:
    """The compiled `args` of a descriptor; None for none, so that importing the tools of an agent compiles nothing."""
    block: Any = descriptor.bindings[AGENT_MODE]
    if "args" not in block:
        return None
    from toolcrib.servers.argument_overlay import compile_overlay  # noqa: PLC0415 -- as above

    return compile_overlay(descriptor, AGENT_MODE, problems)


def _agent(name: str, servers: Mapping[str, Server], place: str) -> Server:
    agents: Collection[str] = [each for each, server in servers.items() if server.mode == AGENT_MODE]
    if name in agents:
        return servers[name]
    where = f" ({place})" if place else ""
    hint = "add it under `agents` in toolcrib.yaml"
    near = did_you_mean(name, agents)
    raise NotReady(
        f"unknown agent `{name}`{where}", code="unknown_server", hint=f"{near} Or {hint}" if near else hint
    )
