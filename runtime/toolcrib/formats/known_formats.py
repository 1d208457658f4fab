"""The table of foreign formats that toolcrib reads, in probing order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from toolcrib.formats.promptkit import ARENA, FOREIGN_KEYS, FUNCTION, MANIFEST
from toolcrib.formats.promptpack import PROMPTPACK
from toolcrib.loading.format_contract import Format, Formats

if TYPE_CHECKING:
    from toolcrib.loading.format_contract import ServerFiles


def _server_files() -> ServerFiles:
    from toolcrib.formats import mcp_clients  # noqa: PLC0415 -- few folders have one

    return mcp_clients


MCP_CLIENTS: Final = Format(
    name="file of an MCP client",
    server_keys=frozenset({"mcpServers", "servers", "mcp", "context_servers"}),
    server_files=_server_files,
)

FORMATS: Final = Formats((PROMPTPACK, ARENA, MANIFEST, FUNCTION, FOREIGN_KEYS, MCP_CLIENTS))
