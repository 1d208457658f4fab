"""What the context of a call offers to Python code: HTTP, connections and secrets of the runtime.

Every socket is opened by the egress guard, and every secret is masked in results, errors and logs from then on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from toolcrib.core.errors import ConfigurationError, ExpressionError, NetworkRefused
from toolcrib.core.model import Call, Outcome, Result
from toolcrib.executors.python.instances import ResourceTable
from toolcrib.security.access import PATH_NOT_ALLOWED
from toolcrib.security.egress import EgressRefused, UnreachableHost
from toolcrib.security.path_access import PathRefused
from toolcrib.security.secrets import MissingSecret, SecretResolver, split_variables

if TYPE_CHECKING:
    import socket

    import httpx

    from toolcrib.executors.python.http_transport import HTTPConnections
    from toolcrib.servers.environment import NetworkEnvironment

ANY_HOST = ("*",)
"""The hosts that the code of a tool may name: all, because it is trusted. The guard still refuses addresses."""


class RuntimeServices:
    """The services of a runtime for one call; see `ToolServices`.

    Args:
        world: The network environment.
        resources: Keeps the connections.
        call: The call.
        in_thread: Whether the call runs in a thread.
    """

    __slots__ = ("_call", "_in_thread", "_loop", "_resources", "_world")

    def __init__(
        self, world: NetworkEnvironment, resources: ResourceTable, call: Call, *, in_thread: bool
    ) -> None:
        self._world = world
        self._resources = resources
        self._call = call
        self._in_thread = in_thread
        self._loop = asyncio.get_running_loop()

    @property
    def http(self) -> httpx.AsyncClient:
        """A client for asynchronous code."""
        return self._connections.client(self._call)

    @property
    def http_sync(self) -> httpx.Client:
        """A client for synchronous code in a thread.

        Raises:
            ConfigurationError: The call runs in the event loop, which the client would block.
        """
        if not self._in_thread:
            raise ConfigurationError(
                "`context.http_sync` would block the event loop",
                code="blocking_client",
                hint="use `await context.http.get(...)`, or `worker: thread`",
            )
        return self._connections.blocking_client(self._call, self._loop)

    @property
    def _connections(self) -> HTTPConnections:
        self._check_network()
        from toolcrib.executors.python.http_transport import HTTPConnections  # noqa: PLC0415 -- few tools use HTTP

        world = self._world
        # Connections that one guard permitted are not used under another.
        found = self._resources.get(("http", id(world.guard)), "", lambda: HTTPConnections(world))
        assert isinstance(found, HTTPConnections)  # noqa: S101 -- the key is of connections only
        return found

    async def connect(self, host: str, port: int) -> socket.socket:
        """Open a connection through the egress guard.

        Raises:
            EgressRefused: The address is not permitted.
            UnreachableHost: The host cannot be resolved or reached.
        """
        self._check_network()
        with self._call.context.session.clock.outside():
            return await self._world.guard.connect(host, port, ANY_HOST)

    def _check_network(self) -> None:
        tool = self._call.tool
        if tool.offline:
            refused = NetworkRefused(tool.name, tool.mode, tool.offline)
            raise EgressRefused(refused.message, code=refused.code, hint=refused.hint)

    def secret(self, name: str) -> str:
        """Look up a secret; see `read_secret`."""
        return read_secret(self._world.secrets, name)


def read_secret(secrets: SecretResolver, name: str) -> str:
    """Look up a secret, which is masked from then on.

    Args:
        secrets: Looks it up.
        name: A variable, `file:/path` or `keyring:service/user`, as in `${...}`.

    Raises:
        MissingSecret: There is none.
        ConfigurationError: The name is invalid.
    """
    try:
        [variable] = split_variables(f"${{{name}}}")
    except (ExpressionError, ValueError):
        message = f"`context.secret` needs the name of a variable, got `{name}`"
        hint = 'write `context.secret("API_KEY")`, `"file:/path"` or `"keyring:service/user"`'
        raise ConfigurationError(message, code="bad_variable", hint=hint) from None
    assert not isinstance(variable, str)  # noqa: S101 -- the text has no other part
    return secrets.look_up(variable)


def failure_of(error: BaseException) -> Result | None:
    """The result of a call that a service refused; None for any other exception."""
    if isinstance(error, EgressRefused):
        return Result.failure(Outcome.DENIED, f"{error.message}; {error.hint}", code=error.code)
    if isinstance(error, PathRefused):
        return Result.failure(Outcome.DENIED, error.message, code=PATH_NOT_ALLOWED)
    if isinstance(error, MissingSecret):
        return Result.failure(Outcome.UNAVAILABLE, f"{error.message}; {error.hint}", code=error.code)
    if isinstance(error, UnreachableHost):
        return Result.failure(Outcome.TRANSPORT_ERROR, error.message, code=error.code)
    return None
