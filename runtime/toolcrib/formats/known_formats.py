"""The table of third-party formats that loading reads, in the order in which they are tried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolcrib.formats.promptkit import ARENA, FOREIGN_KEYS, FUNCTION, MANIFEST
from toolcrib.formats.promptpack import PROMPTPACK
from toolcrib.loading.format_contract import Format, Formats

if TYPE_CHECKING:
    from toolcrib.loading.format_contract import ServerFiles


def _server_files() -> ServerFiles:
    from toolcrib.formats import mcp_clients  # noqa: PLC0415 -- most projects have no such file

    return mcp_clients


MCP_CLIENTS: Final = Format(
    name="file of an MCP client",
    server_keys=frozenset({"mcpServers", "servers", "mcp", "context_servers"}),
    server_files=_server_files,
)

# The first format that recognises a document wins.
FORMATS: Final = Formats((PROMPTPACK, ARENA, MANIFEST, FUNCTION, FOREIGN_KEYS, MCP_CLIENTS))
