"""Options of an MCP server. Nothing here needs the SDK."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from toolcrib.security.tool_policy import NO_POLICY, ToolPolicy, allows
from toolcrib.serve.http_common.listen_address import DRAIN

PAGE_TOOLS: Final = 2000
"""Maximum number of tools on a page of `tools/list`."""

PAGE_BYTES: Final = 960 * 1024
"""Maximum JSON size of a page in bytes, unless a single tool is larger: clients refuse events over 1 MiB."""

SessionMode: TypeAlias = Literal["principal", "handle"]
"""How clients of MCP 2026-07-28 get their session: that of their token, or one that they open and name in each call."""

Compat: TypeAlias = Literal["", "andy"]
"""Whose clients are served besides those of MCP: those of Andy.Acp (`andy`), or no others."""

SESSION_AGE: Final = 4 * 3600.0
"""Seconds after which a session that a client opened or named ends."""


class Options(NamedTuple):
    """Which tools are served, and how.

    Attributes:
        toolset: Name of the only toolset that is served; empty for all listed tools.
        inline_refs: Whether `$ref`s in schemas are inlined, for clients that cannot resolve them.
        watch: Whether files are watched and clients notified of changes.
        page_tools: Maximum number of tools on a page of `tools/list`.
        drain: Seconds that calls in flight get when the server stops.
        sessions: How clients of MCP 2026-07-28 get their session.
        session_age: Seconds after which a session that a client opened or named ends.
        open_sessions: Maximum number of such sessions.
        open_sessions_each: Maximum number of such sessions of one token, or of all clients without a token.
        compat: Whose clients are served besides those of MCP; empty for no others.
        policy: `allow` and `deny` of it limit the tools that are served. Its other keys have no effect.
    """

    toolset: str = ""
    inline_refs: bool = False
    watch: bool = True
    page_tools: int = PAGE_TOOLS
    drain: float = DRAIN
    sessions: SessionMode = "principal"
    session_age: float = SESSION_AGE
    open_sessions: int = 10_000
    open_sessions_each: int = 1_000
    compat: Compat = ""
    policy: ToolPolicy = NO_POLICY

    def offers(self, name: str) -> bool:
        """Whether a tool is served."""
        return self.policy is NO_POLICY or allows(self.policy, name)
