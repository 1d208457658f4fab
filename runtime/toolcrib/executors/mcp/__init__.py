"""Mode `mcp`: tools of MCP servers, started and called as the project names them.

Nothing here imports the SDK: it is the extra `mcp`, and slow to import. It is needed when a server is started.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from toolcrib.core.errors import DocumentError, NotReady, Problem, did_you_mean
from toolcrib.core.model import JSON, Descriptor, Schema
from toolcrib.core.protocols import Remote
from toolcrib.core.server_config import Catalogue, Server

if TYPE_CHECKING:
    from toolcrib.executors.mcp.remote_tool import BoundMcp
    from toolcrib.http.auth import TokenCache
    from toolcrib.servers.environment import NetworkEnvironment
    from toolcrib.servers.mcp.supervisor import ServerPool

__all__ = ["McpExecutor"]


@cache
def _block_schema() -> Schema:
    from importlib.resources import files  # noqa: PLC0415 -- slow to import; no call needs the schema

    schema: Schema = json.loads(files(__package__).joinpath("schema.json").read_text(encoding="utf-8"))
    return schema


class McpExecutor:
    """Calls tools of MCP servers.

    Attributes:
        world: What may be reached, the servers among it; given anew before a tool is bound.
        changed: Called in the event loop with the name of a server and what it offers, when it has listed that
            first, and whenever it is different from before.
    """

    def __init__(self) -> None:
        self.world: NetworkEnvironment | None = None
        self.changed: Callable[[str, Catalogue], None] | None = None
        self._in_use: ServerPool | None = None
        self._retired: list[ServerPool] = []
        self._tokens: TokenCache | None = None

    @property
    def keeps_nothing(self) -> bool:
        """Whether no server was ever started."""
        return all(each.empty for each in self._all())

    @property
    def block_schema(self) -> Schema:
        """JSON Schema of the `mcp` block."""
        return _block_schema()

    def remote(self, name: str, block: Mapping[str, JSON]) -> Remote | None:
        """The tool of a server that a block stands for; None for a block that names none."""
        from toolcrib.executors.mcp.argument_overlay import fixed_names  # noqa: PLC0415 -- a command that lists needs none of it

        server, tool = block.get("server"), block.get("tool", name)
        if not isinstance(server, str) or not isinstance(tool, str):
            return None
        return Remote(server, tool, fixed_names(block))

    def check(self, descriptor: Descriptor) -> Sequence[Problem]:
        """Expressions compile, and read arguments that there are. Whether there is such a server is the project's."""
        from toolcrib.executors.mcp.argument_overlay import compile_overlay  # noqa: PLC0415 -- as above

        problems: list[Problem] = []
        compile_overlay(descriptor, problems)
        return problems

    def bind(self, descriptor: Descriptor) -> BoundMcp:
        """Find the server, and compile the block. Nothing is started.

        Raises:
            DocumentError: There is an error in the block, which `check` would have told.
            NotReady: There is no such server, or what it needs is not there: the extra, a secret, a hook.
            Untrusted: Nobody has agreed to what it needs.
        """
        from toolcrib.executors.mcp.argument_overlay import compile_overlay  # noqa: PLC0415 -- as above
        from toolcrib.executors.mcp.remote_tool import BoundMcp  # noqa: PLC0415 -- as above

        block: Any = descriptor.bindings["mcp"]
        problems: list[Problem] = []
        overlay = compile_overlay(descriptor, problems)
        if any(problem.severity == "error" for problem in problems):
            raise DocumentError(problems)
        connections = self._connections()
        server = self._server(block["server"], connections, descriptor.origin.place("/mcp/server"))
        from toolcrib.servers.mcp.supervisor import check_ready  # noqa: PLC0415 -- as above

        check_ready(server, connections.world.secrets)
        return BoundMcp(descriptor, server, block.get("tool", descriptor.name), overlay, connections)

    async def catalogue(self, server: str) -> Catalogue:
        """Everything that a server offers; it is started if need be.

        Raises:
            ServerDown: It can't be started now, or may not be.
            NotReady: There is no such server.
        """
        from toolcrib.core.clock import RealClock  # noqa: PLC0415 -- as above

        connections = self._connections()
        known = self._server(server, connections, "")
        connection = await connections.get(known.name, "", RealClock())
        await connection.trusted()
        if known.scope == "session":  # this one belongs to nobody
            connection.leave()
        return connection.catalogue

    def states(self) -> Mapping[str, str]:
        """Name of a server -> `idle`, `starting`, `up`, `down` or `resting`. Nothing is started to find out."""
        return {} if self.world is None else self._connections().states()

    async def release(self, session_id: str) -> None:
        """A session is over: the servers end that it had for itself."""
        for connections in self._all():
            await connections.release(session_id)

    async def aclose(self) -> None:
        """End every server."""
        everything = self._all()
        self._in_use, self._retired = None, []
        for connections in everything:
            await connections.aclose()

    def _all(self) -> list[ServerPool]:
        return [*self._retired, *([] if self._in_use is None else [self._in_use])]

    def _connections(self) -> ServerPool:
        """Those of the current network environment; the servers of an earlier one end once their calls are over."""
        world = self.world or _nothing_special()
        current = self._in_use
        if current is not None and current.world is world:
            return current
        from toolcrib.servers.mcp.supervisor import ServerPool  # noqa: PLC0415 -- as above

        if current is not None:
            current.retire()
            self._retired = [*(each for each in self._retired if not each.empty), current]
        self._in_use = ServerPool(world, self._given_tokens, self._tell)
        return self._in_use

    def _given_tokens(self) -> TokenCache:
        from toolcrib.http.auth import TokenCache  # noqa: PLC0415 -- slow to import, and processes are given none

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


@cache
def _nothing_special() -> NetworkEnvironment:
    """The environment of an executor that nobody gave one."""
    from toolcrib.servers.environment import NetworkEnvironment  # noqa: PLC0415 -- as above

    return NetworkEnvironment.ordinary()
