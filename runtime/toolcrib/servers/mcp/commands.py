"""What is started for a server: its command, looked up and found, and the environment that it is given."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from toolcrib.core.errors import did_you_mean
from toolcrib.core.server_config import Server
from toolcrib.security.secrets import Vault
from toolcrib.servers.mcp.server_env import Texts, never
from toolcrib.servers.mcp.transports import StartFailed

KEPT = ("PATH", "HOME", "LOGNAME", "SHELL", "TERM", "USER", "LANG", "LC_ALL", "TMPDIR")
"""What a server has of our environment, where we have it; all else is named in its `env`."""

_KEPT_ON_WINDOWS = (
    "APPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATHEXT",
    "PROGRAMDATA",
    "PROGRAMFILES",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "TMP",
    "USERNAME",
    "USERPROFILE",
)
"""Without these most programs do not begin there."""


class Command(NamedTuple):
    """What is started. Its `repr` holds no argument and no value of a variable.

    Attributes:
        name: The server's, for messages.
        argv: The program as it was written, and its arguments.
        env: The whole environment, but for the mark.
        cwd: The working directory, absolute.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str

    def __repr__(self) -> str:
        return f"Command({self.name}: {self.argv[0]} with {len(self.argv) - 1} arguments)"


def command_of(server: Server, vault: Vault) -> Command:
    """The command of a server, with everything looked up.

    Raises:
        MissingSecret: Something is not there; the message tells of all of it, the pointer of the first.
    """
    texts = Texts(server, vault)
    argv = [texts.filled(server.command, "/command", secret=never)]
    argv += [texts.filled(arg, f"/args/{index}") for index, arg in enumerate(server.args)]
    cwd = texts.filled(server.cwd, "/cwd", secret=never)
    named = {name: texts.named(name, value, f"/env/{name}") for name, value in server.env.items()}
    texts.check()
    folder = Path(server.root, cwd).absolute()
    return Command(server.name, tuple(argv), {**kept(os.environ), **named}, str(folder))


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """What every server has of an environment. Functions of shells (`() {`) are no values."""
    names = (*KEPT, *_KEPT_ON_WINDOWS) if os.name == "nt" else KEPT
    found = {name: environment.get(name) for name in names}
    return {name: value for name, value in found.items() if value is not None and not value.startswith("()")}


def find_program(command: Command) -> str:
    """The program that a command names, as the child would find it.

    Raises:
        StartFailed: There is none, or no such working directory.
    """
    name = command.argv[0]
    if not Path(command.cwd).is_dir():
        message = f"the working directory of the server `{command.name}`, `{command.cwd}`, does not exist"
        hint = "make it, or correct `cwd`; a relative one begins at the file that names the server"
        raise StartFailed(message, hint=hint)
    if any(mark in name for mark in (os.sep, os.altsep) if mark):
        found = Path(command.cwd, name)
        if found.is_file() and os.access(found, os.X_OK):
            return str(found)
        raise _no_program(command, found)
    places = command.env.get("PATH", os.defpath)
    program = shutil.which(name, path=places) if name else None
    if program is None:
        raise _nowhere(command, places)
    return str(Path(program).absolute())


def not_started(command: Command, program: str, error: OSError | ValueError) -> StartFailed:
    """The error of a program that the system did not start."""
    what = f"the server `{command.name}` could not be started: "
    number = getattr(error, "errno", None)
    if isinstance(error, ValueError):
        fault, hint = "a NUL character stands in `command`, `args`, `env` or `cwd`", "take it out"
    elif number == errno.ENOEXEC:
        fault, hint = f"`{program}` is no program", "a script begins with `#!` and its interpreter"
    elif number == errno.ENOENT:
        fault = f"what should run `{program}` does not exist"
        hint = "see to the first line of the script, behind `#!`"
    elif number == errno.E2BIG:
        fault, hint = "`args` and `env` are longer than the system takes", "shorten them"
    else:
        reason = os.strerror(number) if isinstance(number, int) else type(error).__name__
        fault, hint = f"`{program}`: {reason}", "try it in a shell"
    return StartFailed(what + fault, hint=hint)


def _no_program(command: Command, path: Path) -> StartFailed:
    what = f"the command of the server `{command.name}`, `{command.argv[0]}`,"
    if path.is_file():
        return StartFailed(f"{what} may not be run", hint=f"chmod +x {path}")
    home = command.argv[0].startswith("~")
    hint = "no shell reads it: write `${HOME}` for `~`" if home else "correct `command`"
    return StartFailed(f"{what} does not exist: looked for `{path}`", hint=hint)


def _nowhere(command: Command, places: str) -> StartFailed:
    name = command.argv[0]
    message = f"the command of the server `{command.name}`, `{name}`, was not found in PATH ({places})"
    if " " in name.strip():
        hint = "no shell reads `command`: what follows the program belongs in `args`"
    elif name in _MAKERS:
        hint = f"install {_MAKERS[name]}, or write where it lies"
    else:
        near = did_you_mean(name, {each for place in places.split(os.pathsep) for each in _names_in(place)})
        hint = near or "install it, or write where it lies"
    return StartFailed(message, hint=hint)


_MAKERS = {
    "docker": "Docker (https://docs.docker.com/get-docker/)",
    "node": "Node.js (https://nodejs.org/)",
    "npx": "Node.js (https://nodejs.org/)",
    "uv": "uv (https://docs.astral.sh/uv/)",
    "uvx": "uv (https://docs.astral.sh/uv/)",
}


def _names_in(folder: str) -> list[str]:
    try:
        return [path.name for path in Path(folder).iterdir()]
    except OSError:
        return []
