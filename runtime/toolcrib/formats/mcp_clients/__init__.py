"""The files in which MCP clients write their servers."""
