"""What a program or a worker process is granted: the sandbox, and the files and the network that it shows."""

from __future__ import annotations

import os
from collections.abc import Iterable

from toolcrib.core.errors import NotReady
from toolcrib.core.sandbox import Sandbox, find_bubblewrap
from toolcrib.security.path_access import PURPOSES, PathAccess
from toolcrib.servers.environment import NetworkEnvironment


def sandbox_of(
    tool: str,
    world: NetworkEnvironment,
    *,
    read: Iterable[str] | None = None,
    write: Iterable[str] | None = None,
    network: bool = False,
    code: Iterable[str] = (),
) -> Sandbox | None:
    """The sandbox of a tool; None if the project chose none.

    Args:
        tool: Name of the tool, for messages.
        world: The sandbox that the project chose, and the folders that it grants.
        read: Files and folders that the tool declares to read, absolute; None for those that the project grants.
        write: Those that it declares to write, likewise.
        network: Whether it declares to use the network.
        code: Files and folders that its program needs, absolute.

    Raises:
        NotReady: Bubblewrap is not installed, or a declared path does not exist or is not granted.
    """
    granted = PathAccess(read=world.read, write=world.write)
    named: list[tuple[str, ...]] = []
    for purpose, declared in zip(PURPOSES, (read, write), strict=True):
        allowed = world.read if purpose == "read" else world.write
        named.append(tuple(allowed or () if declared is None else declared))
        for path in declared or ():
            why = granted.why_refused(path, purpose)
            if why:
                message = f"`{tool}` declares to {purpose} `{path}`: {why}"
                raise NotReady(message, code="path_not_granted", hint=f"add it to `access.paths.{purpose}`")
            if not os.path.exists(path):
                message = f"`{tool}` declares to {purpose} `{path}`, which does not exist"
                raise NotReady(message, code="no_such_path", hint=f"create it, or correct `paths.{purpose}`")
    if world.sandbox == "none":
        return None
    program = find_bubblewrap()
    if not program:
        message = f"`{tool}` runs in a sandbox, and bubblewrap (`bwrap`) is not installed"
        hint = "install the package `bubblewrap`; or write `sandbox: none` in `toolcrib.yaml` to run programs without one"
        raise NotReady(message, code="no_sandbox", hint=hint)
    reads, writes = ((path for path in paths if os.path.exists(path)) for paths in named)
    return Sandbox(program, (*code, *reads), tuple(writes), network)
