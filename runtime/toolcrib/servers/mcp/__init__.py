"""Connections to MCP servers."""
