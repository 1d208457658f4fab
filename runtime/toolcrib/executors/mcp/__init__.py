"""Mode `mcp`: tools of MCP servers that the project configures.

This module does not import the MCP SDK, which is the optional extra `mcp` and slow to import. It is imported
when a server is started.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from toolcrib.core.errors import DocumentError, NotReady, Problem, did_you_mean
from toolcrib.core.model import JSON, Descriptor, Schema
from toolcrib.core.protocols import Remote
from toolcrib.core.server_config import MODE, Catalogue, Server
from toolcrib.security.requirements import NO_REQUIREMENTS, Requirements, requirements_of_server
from toolcrib.security.secrets import missing_variables, required_names

if TYPE_CHECKING:
    from toolcrib.executors.mcp.remote_tool import BoundMcp
    from toolcrib.http.auth import TokenCache
    from toolcrib.security.trust import Workspace
    from toolcrib.security.trust_needs import Need
    from toolcrib.servers.environment import NetworkEnvironment
    from toolcrib.servers.mcp.supervisor import ServerPool

__all__ = ["McpExecutor"]


@cache
def _block_schema() -> Schema:
    # Deferred: slow to import, and no call needs the schema.
    from importlib.resources import files  # noqa: PLC0415

    schema: Schema = json.loads(files(__package__).joinpath("schema.json").read_text(encoding="utf-8"))
    return schema


class McpExecutor:
    """Executor that calls tools of MCP servers.

    Attributes:
        world: The network environment with the configured servers; set by the engine before a tool is bound.
        changed: Called in the event loop with the name of a server and its catalogue, after the server has
            listed its tools for the first time and after every change of the list.
    """

    def __init__(self) -> None:
        self.world: NetworkEnvironment | None = None
        self.changed: Callable[[str, Catalogue], None] | None = None
        self._in_use: ServerPool | None = None
        self._retired: list[ServerPool] = []
        self._tokens: TokenCache | None = None

    @property
    def keeps_nothing(self) -> bool:
        """Whether no server has been started."""
        return all(each.empty for each in self._all())

    @property
    def block_schema(self) -> Schema:
        """JSON Schema of the `mcp` block."""
        return _block_schema()

    def remote(self, name: str, block: Mapping[str, JSON]) -> Remote | None:
        """The server tool that a block refers to; None if the block is incomplete."""
        # Deferred, like the imports below: a command that only lists tools must start fast.
        from toolcrib.servers.argument_overlay import fixed_names  # noqa: PLC0415

        server, tool = block.get("server", ""), block.get("tool", name)
        if not isinstance(server, str) or not isinstance(tool, str):
            return None
        return Remote(server, tool, fixed_names(block))

    def needs(self, descriptor: Descriptor, _workspace: Workspace) -> Iterable[Need]:
        """The need of a block without a server: the block as written, also after the server is known.

        Other blocks declare no need of their own, so the whole block must be trusted.
        """
        block: Any = descriptor.bindings[MODE]
        settled = descriptor.origin.settings
        if "server" in block and f"{MODE}.server" not in settled:
            return ()
        from toolcrib.security.trust_needs import needs_of_other_mode  # noqa: PLC0415

        written = {key: item for key, item in block.items() if f"{MODE}.{key}" not in settled}
        place = f"{descriptor.origin.source}:{descriptor.origin.line}"
        # The name decides which tool is called.
        named = {"tool": descriptor.name, **written}
        return needs_of_other_mode(MODE, named, user=f"tool {descriptor.name}", place=place)

    def requirements(self, _descriptor: Descriptor, server: Server | None) -> Requirements:
        """The requirements of the server; nothing is known before the block has one."""
        return NO_REQUIREMENTS if server is None else requirements_of_server(server)

    def check(self, descriptor: Descriptor) -> Sequence[Problem]:
        """Check the expressions of `args`. Whether the server exists is checked with the project."""
        from toolcrib.servers.argument_overlay import compile_overlay  # noqa: PLC0415

        problems: list[Problem] = []
        compile_overlay(descriptor, MODE, problems)
        return problems

    def lacks(self, descriptor: Descriptor, _base: str) -> str:
        """Which variables of the server, or whether the extra `mcp`, is missing; empty if nothing is."""
        world = self.world or _nothing_special()
        block: Any = descriptor.bindings[MODE]
        server = world.servers.get(block.get("server", ""))
        if server is None:
            return ""
        missing = missing_variables(server.texts(), "", world.secrets, known=server.known_variables())
        if not missing and find_spec("mcp") is not None:
            return ""
        from toolcrib.servers.mcp.supervisor import missing_extra, missing_secrets  # noqa: PLC0415 -- as above

        return str(missing_secrets(server, missing) if missing else missing_extra())

    def required_variables(self, _descriptor: Descriptor, server: Server | None) -> tuple[str, ...] | None:
        """The environment variables that the server needs; None if it needs files of secrets, or the extra is missing."""
        if find_spec("mcp") is None:
            return None
        return () if server is None else required_names(server.texts(), known=server.known_variables())

    def bind(self, descriptor: Descriptor) -> BoundMcp:
        """Look the server up and compile the block. No server is started.

        Raises:
            DocumentError: The block has an error, which `check` reports.
            NotReady: The server is unknown, or something it needs is missing: the extra `mcp`, a secret, a
                hook.
            Untrusted: The needs of the server have not been approved.
        """
        from toolcrib.executors.mcp.remote_tool import BoundMcp  # noqa: PLC0415
        from toolcrib.servers.argument_overlay import compile_overlay  # noqa: PLC0415

        block: Any = descriptor.bindings["mcp"]
        problems: list[Problem] = []
        overlay = compile_overlay(descriptor, MODE, problems)
        if any(problem.severity == "error" for problem in problems):
            raise DocumentError(problems)
        connections = self._connections()
        if "server" not in block:
            raise _without_server(descriptor, connections.world.servers)
        server = self._server(block["server"], connections, descriptor.origin.place("/mcp/server"))
        from toolcrib.servers.mcp.supervisor import check_ready  # noqa: PLC0415

        check_ready(server, connections.world.secrets)
        return BoundMcp(descriptor, server, block.get("tool", descriptor.name), overlay, connections)

    async def catalogue(self, server: str) -> Catalogue:
        """The catalogue of a server, which is started if necessary.

        Raises:
            ServerDown: The server cannot be started, or must not be started.
            NotReady: The server is unknown.
        """
        from toolcrib.core.clock import RealClock  # noqa: PLC0415

        connections = self._connections()
        known = self._server(server, connections, "")
        connection = await connections.get(known.name, "", RealClock())
        await connection.trusted()
        # A server per session was started here for no session: nothing else would ever stop it.
        if known.scope == "session":
            connection.leave()
        return connection.catalogue

    def states(self) -> Mapping[str, str]:
        """Name of a server -> `idle`, `starting`, `up`, `down` or `resting`. Does not start any server."""
        return {} if self.world is None else self._connections().states()

    async def release(self, session_id: str) -> None:
        """Stop the servers that were started for one session, after it has ended."""
        for connections in self._all():
            await connections.release(session_id)

    async def aclose(self) -> None:
        """Stop every server."""
        everything = self._all()
        self._in_use, self._retired = None, []
        if everything:
            import asyncio  # noqa: PLC0415 -- few runtimes have servers

            await asyncio.gather(*(connections.aclose() for connections in everything))

    def _all(self) -> list[ServerPool]:
        return [*self._retired, *([] if self._in_use is None else [self._in_use])]

    def _connections(self) -> ServerPool:
        """The server pool of the current network environment."""
        world = self.world or _nothing_special()
        current = self._in_use
        if current is not None and current.world is world:
            return current
        from toolcrib.servers.mcp.supervisor import ServerPool  # noqa: PLC0415

        # The environment changed, for instance by a reload. Servers of the old pool finish their calls first.
        if current is not None:
            current.retire()
            self._retired = [*(each for each in self._retired if not each.empty), current]
        self._in_use = ServerPool(world, self._given_tokens, self._tell)
        return self._in_use

    def _given_tokens(self) -> TokenCache:
        # Deferred: slow to import, and only HTTP servers use tokens.
        from toolcrib.http.auth import TokenCache  # noqa: PLC0415

        self._tokens = self._tokens or TokenCache()
        return self._tokens

    def _tell(self, server: str, catalogue: Catalogue) -> None:
        if self.changed is not None:
            self.changed(server, catalogue)

    def _server(self, name: str, connections: ServerPool, place: str) -> Server:
        servers = connections.world.servers
        if name in servers:
            return servers[name]
        where = f" ({place})" if place else ""
        near = did_you_mean(name, servers)
        hint = "add it under `servers` in toolcrib.yaml"
        raise NotReady(
            f"unknown server `{name}`{where}",
            code="unknown_server",
            hint=f"{near} Or {hint}" if near else hint,
        )


def _without_server(tool: Descriptor, servers: Collection[str]) -> NotReady:
    """The error for a block without a server, for which linking could not choose one."""
    named = ", ".join(f"`{name}`" for name in servers)
    there = f"the servers are {named}" if named else "no server is configured"
    hint = "add `server` to its `mcp` block" if named else "add one under `servers` in toolcrib.yaml"
    return NotReady(f"`{tool.name}` names no server; {there}", code="unknown_server", hint=hint)


@cache
def _nothing_special() -> NetworkEnvironment:
    """The default environment, for an executor that is used without an engine."""
    from toolcrib.servers.environment import NetworkEnvironment  # noqa: PLC0415

    return NetworkEnvironment.ordinary()
