"""The connection that a request of a handshake revision arrived over: the one private member of the SDK that serving needs.

The SDK hands a request a new `ServerSession`, which has the connection only as `_connection`. The connection lasts, so the
state of a client belongs to it, and it knows when it ends.
"""

from __future__ import annotations

from typing import Any, Final

from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from toolcrib.core.dependencies import UNSUPPORTED_VERSION, MissingMember
from toolcrib.core.errors import ConfigurationError

_NEEDED: Final = ("exit_stack", "initialized", "send_tool_list_changed")
"""What `ToolServer` uses of a connection."""


def connection_of(session: ServerSession) -> Connection:
    """The connection that a request arrived over, if `missing_connection` has found nothing missing."""
    return session._connection  # noqa: SLF001 -- nothing public leads to it


def missing_connection() -> MissingMember | None:
    """What the installed SDK lacks to tell the connections of requests apart; None if it lacks nothing."""
    unused: Any = None
    try:
        connection = Connection.from_envelope(LATEST_HANDSHAKE_VERSION, None, None)
        found = connection_of(ServerSession(unused, connection))
    except AttributeError:
        return MissingMember("mcp", "ServerSession._connection")
    except TypeError:  # a constructor takes something else, so it cannot be tried
        return MissingMember("mcp", "ServerSession(request_outbound, connection)")
    if found is not connection:
        return MissingMember("mcp", "ServerSession._connection")
    missing = (name for name in _NEEDED if not hasattr(connection, name))
    return next((MissingMember("mcp", f"Connection.{name}") for name in missing), None)


def check_connections(lack: MissingMember | None) -> None:
    """Check that clients of handshake revisions can be told apart.

    Args:
        lack: What the installed SDK lacks for it.

    Raises:
        ConfigurationError: They cannot, so one could see the state of another.
    """
    if lack is not None:
        raise ConfigurationError(
            f"cannot keep the sessions of clients apart over HTTP: {lack.message}",
            code=UNSUPPORTED_VERSION,
            hint=lack.hint,
        )
