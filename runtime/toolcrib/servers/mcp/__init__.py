"""MCP servers as a client sees them: child processes and HTTP endpoints, sessions, tool lists and restarts."""
