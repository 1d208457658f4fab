"""What a program or a worker process is granted: the sandbox, and the files and the network that it shows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from toolcrib.core.errors import NotReady
from toolcrib.core.model import Descriptor
from toolcrib.core.sandbox import Sandbox, find_bubblewrap
from toolcrib.security.path_access import PURPOSES
from toolcrib.security.secrets import MissingSecret, SecretResolver, split_variables, unescape_dollars
from toolcrib.servers.environment import NetworkEnvironment


def folder_of(descriptor: Descriptor, mode: str, base: str) -> str:
    """The folder of the file that contains the block of a mode, absolute.

    Args:
        descriptor: The descriptor.
        mode: The mode.
        base: The folder that the names of sources are relative to; empty for the working directory.
    """
    file = descriptor.origin.file_of(f"/{mode}")
    return os.path.dirname(os.path.realpath(os.path.join(base, file)))


def resolved_path(descriptor: Descriptor, path: str, pointer: str, base: str, secrets: SecretResolver) -> str:
    """A path in a block, absolute, with its variables resolved, whose values are not secrets.

    A path that begins with a variable that is set belongs to the operator, and is relative to the working directory.

    Args:
        descriptor: The descriptor.
        path: The path, relative to the file of the block.
        pointer: Its place in the descriptor: `/exec/cwd`.
        base: As for `folder_of`.
        secrets: Resolves the variables.

    Raises:
        NotReady: A variable is missing.
    """
    folder = folder_of(descriptor, pointer.split("/")[1], base)
    pieces: list[str] = []
    for piece in split_variables(path):
        if isinstance(piece, str):
            pieces.append(unescape_dollars(piece))
            continue
        try:
            value = secrets.look_up(piece, secret=False)
        except MissingSecret as error:
            message = f"{error.message} ({descriptor.origin.place(pointer)})"
            raise NotReady(message, code=error.code, hint=error.hint) from None
        if not pieces and value != piece.default:
            folder = os.getcwd()
        pieces.append(value)
    return os.path.normpath(os.path.join(folder, "".join(pieces)))


def declared_paths(
    descriptor: Descriptor,
    written: Mapping[str, Sequence[str]],
    mode: str,
    base: str,
    secrets: SecretResolver,
) -> dict[str, list[str] | None]:
    """The `paths` of a block by purpose, absolute; None for a purpose that it does not declare.

    Raises:
        NotReady: A variable is missing.
    """
    return {
        purpose: None
        if purpose not in written
        else [
            resolved_path(descriptor, path, f"/{mode}/paths/{purpose}/{index}", base, secrets)
            for index, path in enumerate(written[purpose])
        ]
        for purpose in PURPOSES
    }


def literal_paths(written: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """The `paths` of a block without those that a variable decides."""
    return {purpose: [path for path in paths if "$" not in path] for purpose, paths in written.items()}


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
    named: list[tuple[str, ...]] = []
    for purpose, declared in zip(PURPOSES, (read, write), strict=True):
        allowed = world.paths.granted(purpose)
        named.append(tuple(allowed or () if declared is None else declared))
        for path in declared or ():
            why = "" if allowed is None else world.paths.why_refused(path, purpose)
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
    # A folder that the project grants need not exist, nor does one in which modules are looked up.
    reads, writes = (
        (path for path in paths if os.path.exists(path)) for paths in ([*code, *named[0]], named[1])
    )
    return Sandbox(program, tuple(reads), tuple(writes), network)
