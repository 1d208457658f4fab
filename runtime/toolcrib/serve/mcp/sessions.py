"""Sessions of the handshake era: when as many are open as may be, a new one takes the place of the longest idle one."""

from __future__ import annotations

from math import inf

from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager


class Sessions(StreamableHTTPSessionManager):
    """The SDK's sessions. Where they are full it would refuse every new client until a session has been idle for long.

    Who uses a session that is over gets 404 for it, and opens another one (MCP 2025-11-25, transports, session management).
    """

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        if self.max_sessions is not None and len(self._server_instances) >= self.max_sessions:
            self._end_the_longest_idle()
        return super()._admit_session(requestor)

    def _end_the_longest_idle(self) -> None:
        """End a session, if there is one with no request in flight, nor a stream that is open."""
        number = min(self._server_instances, key=lambda number: _over_at(self._server_instances[number]))
        session = self._server_instances[number]
        if session.idle_scope is not None and session.idle_scope.deadline < inf:
            del self._server_instances[number]
            self._session_owners.pop(number, None)
            session.idle_scope.cancel()


def _over_at(session: StreamableHTTPServerTransport) -> float:
    """When a session that nobody uses would be over: the sooner, the longer it is idle."""
    scope = session.idle_scope
    return inf if scope is None or scope.cancel_called else scope.deadline
