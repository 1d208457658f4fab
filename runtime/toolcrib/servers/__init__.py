"""Servers of remote tools: how they are configured, locked, reached."""
