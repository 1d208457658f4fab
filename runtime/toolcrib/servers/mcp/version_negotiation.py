"""Which protocol is spoken with a server: asked where that is left open (MCP 2026-07-28, versioning)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

import anyio
from mcp.client.session import ClientSession
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.types import CLIENT_CAPABILITIES_META_KEY, UNSUPPORTED_PROTOCOL_VERSION
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

Era = Literal["auto", "handshake", "modern"]

_PROBE_SHARE: Final = 3
"""The part of the time to start in which a server must have answered which protocol it speaks."""


class Wire(JSONRPCDispatcher[Any]):
    """The SDK's dispatcher, which says what this client can do, and when it is over.

    Args:
        read: What comes.
        write: What is sent.
        capabilities: What the server is told that it may ask.
        over: Set when nothing more comes.
        patience: Seconds in which the server must have begun to speak.
    """

    def __init__(
        self, read: Any, write: Any, *, capabilities: dict[str, Any], over: anyio.Event, patience: float
    ) -> None:
        super().__init__(read, write)
        self._capabilities = capabilities
        self._over = over
        self._patience = patience

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Hear until nothing more comes."""
        try:
            await super().run(on_request, on_notify, on_notify_intercept, task_status=task_status)
        finally:
            self._over.set()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **more: Any
    ) -> dict[str, Any]:
        """Ask. The SDK's session claims capabilities by which callbacks there are; ours are always there."""
        if method == "tools/call":
            return await super().send_raw_request(method, params, opts, **more)
        if method == "initialize":
            params = {**(params or {}), "capabilities": self._capabilities}
        else:
            params = self._stamped(params)
        if method != "server/discover":
            return await super().send_raw_request(method, params, opts, **more)
        options: CallOptions = {**(opts or {}), "timeout": self._patience / _PROBE_SHARE}
        answer = await super().send_raw_request(method, params, options, **more)
        answer.setdefault("resultType", "complete")  # as of a result that does not say, 2026-07-28 basic
        return answer

    def _stamped(self, params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        meta = (params or {}).get("_meta")
        if not isinstance(meta, dict) or CLIENT_CAPABILITIES_META_KEY not in meta:
            return params
        return {**(params or {}), "_meta": {**meta, CLIENT_CAPABILITIES_META_KEY: self._capabilities}}


async def agree(session: ClientSession, era: Era, over: anyio.Event) -> None:
    """Come to terms with a server.

    Raises:
        MCPError: It refused; or the connection ended, or it did not answer in time.
        RuntimeError: It speaks no protocol that is known here.
        pydantic.ValidationError: What it answered is no answer.
    """
    if era == "handshake":
        await session.initialize()
        return
    try:
        await session.discover()
    except (MCPError, RuntimeError, ValidationError) as error:
        # Whatever else it says, it may be a server of before; one that is gone is none.
        if era == "modern" or over.is_set() or _speaks_other_modern(error):
            raise
        await _shake_hands(session)


async def _shake_hands(session: ClientSession) -> None:
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()  # it took its time to say that it is a modern one


def _speaks_other_modern(error: Exception) -> bool:
    """Whether a server says that it speaks modern protocols alone, and none that is known here."""
    if not isinstance(error, MCPError) or error.code != UNSUPPORTED_PROTOCOL_VERSION:
        return False
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return isinstance(supported, list) and not any(each in HANDSHAKE_PROTOCOL_VERSIONS for each in supported)
