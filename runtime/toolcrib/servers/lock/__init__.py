"""What MCP servers may not change unseen: the file `toolcrib.lock`, and what it has against a server.

A server can be another one tomorrow: another command behind its name, or descriptions that tell a model other things.
A lock keeps how each server is reached and what each of its tools said, as somebody accepted it.
"""

from toolcrib.servers.lock.verdict import Lock, read_lock

__all__ = ["Lock", "read_lock"]
