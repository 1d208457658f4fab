"""Mode `mcp`: tools of MCP servers, started and called as the project names them."""
