"""Sandboxes of child processes: bubblewrap shows a program the files that it was granted, and nothing else.

A program in a sandbox sees the programs and libraries of the system, read only, and an empty `/tmp` and home folder of its
own. It sees no process outside, and it ends when our process ends, with everything that it started.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

KINDS: Final = ("bubblewrap", "none")
"""The sandboxes that a project can choose."""

_SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/nix/store")

# Not the whole of /etc, which contains keys and passwords of services.
_SETTINGS: Final = tuple(
    f"/etc/{name}"
    for name in (
        "alternatives",
        "crypto-policies",
        "debian_version",
        "fonts",
        "gitconfig",
        "group",
        "hosts",
        "java",
        "ld.so.cache",
        "locale.alias",
        "locale.conf",
        "localtime",
        "mime.types",
        "nsswitch.conf",
        "os-release",
        "passwd",
        "pki",
        "ssl",
        "timezone",
    )
)

_NETWORK_SETTINGS: Final = tuple(
    f"/etc/{name}" for name in ("ca-certificates", "host.conf", "protocols", "resolv.conf", "services")
)

_TEMPORARY: Final = "/tmp"  # noqa: S108 -- the sandbox has one of its own
_SHARED_MEMORY: Final = "/dev/shm"  # noqa: S108 -- where Linux has it

WRAPPERS: Final = 2
"""Number of processes of bubblewrap itself: one outside, and the first one inside."""


class Sandbox(NamedTuple):
    """What a program in a sandbox may use besides the system.

    Attributes:
        program: Path of `bwrap`.
        read: Files and folders that it may read, absolute.
        write: Files and folders that it may read and write, absolute.
        network: Whether it may use the network; otherwise it has a loopback interface of its own.
    """

    program: str
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool = False

    def arguments(self, argv: Sequence[str], *, cwd: str, home: str, status: int) -> list[str]:
        """The arguments of `bwrap` that run a program in the sandbox.

        Args:
            argv: The path of the program, and its arguments.
            cwd: Its working directory, which it may read; empty for the folder of temporary files.
            home: Its home folder, which is empty; empty for none.
            status: Descriptor of a file to which `bwrap` writes what happened to the program; see `has_started`.
        """
        args = ["--unshare-all", "--die-with-parent", "--cap-drop", "ALL", "--json-status-fd", str(status)]
        if self.network:
            args.append("--share-net")
        whole = "/" in self.write or "/" in self.read
        if whole:
            args += ["--bind" if "/" in self.write else "--ro-bind", "/", "/"]
        if not whole:
            settings = (*_SETTINGS, *_NETWORK_SETTINGS) if self.network else _SETTINGS
            for path in (*_SYSTEM, *settings):
                args += _view(path)
        args += ["--proc", "/proc", "--dev", "/dev"]
        if whole:  # `/dev` is the sandbox's own, but the files there that are kept in memory belong to `/`
            args += ["--bind-try" if "/" in self.write else "--ro-bind-try", _SHARED_MEMORY, _SHARED_MEMORY]
        else:
            args += ["--tmpfs", _TEMPORARY]
            if home not in ("", "/") and not _lies_in(home, _SYSTEM):
                args += ["--tmpfs", home]
        read = [*([cwd] if cwd else []), *files_of_program(argv[0]), *self.read]
        args += _mounts((path for path in read if path != "/"), (path for path in self.write if path != "/"))
        return [*args, "--chdir", cwd or _TEMPORARY, "--", *argv]


def _view(path: str) -> list[str]:
    """The arguments that show a file or folder of the system."""
    # A mount takes some 0.3 ms, and a link almost nothing. Where `/bin` is a link to `/usr/bin`, it is one in the sandbox.
    if os.path.islink(path):
        real = os.path.realpath(path)
        if _lies_in(real, (each for each in _SYSTEM if not os.path.islink(each))):
            return ["--symlink", real, path]
    return ["--ro-bind-try", path, path]


def _mounts(read: Iterable[str], write: Iterable[str]) -> list[str]:
    flags: dict[str, str] = {}
    links: dict[str, str] = {}
    for paths, flag in ((read, "--ro-bind"), (write, "--bind")):
        for path in paths:
            real = os.path.realpath(path)
            flags[real] = flag
            links[os.path.normpath(path)] = real
    args: list[str] = []
    mounted: list[str] = []
    # A folder before what it contains, which needs no mount of its own unless it has another flag.
    for real in sorted(flags):
        folder = next((each for each in reversed(mounted) if _lies_in(real, (each,))), None)
        if folder is None or flags[folder] != flags[real]:
            args += [flags[real], real, real]
            mounted.append(real)
    for path, real in sorted(links.items()):
        # The program may know a folder by a path with links, which are not visible unless their folder is.
        if path != real and not _lies_in(path, (*flags, *_SYSTEM)):
            args += ["--symlink", real, path]
    return args


# Not the whole prefix, which may be a home folder.
_PARTS: Final = ("bin", "lib", "lib64", "libexec", "pyvenv.cfg")


def files_of_program(program: str) -> list[str]:
    """What a program outside of the folders of the system needs: the folder of its file, and its libraries.

    A script needs those of its interpreter, too, such as the commands that pip installs in a virtual environment.

    Args:
        program: Its path. Links are followed, as those of virtual environments of Python.
    """
    found: list[str] = []
    named = (program, interpreter) if (interpreter := _interpreter_of(program)) else (program,)
    for path in dict.fromkeys(path for each in named for path in (each, os.path.realpath(each))):
        folder, prefix = os.path.dirname(path), os.path.dirname(os.path.dirname(path))
        if _lies_in(folder, _SYSTEM):
            continue
        found.append(folder)
        if os.path.basename(folder) == "bin":
            found += [part for name in _PARTS if os.path.exists(part := os.path.join(prefix, name))]
    return list(dict.fromkeys(found))


def _interpreter_of(program: str) -> str:
    """The interpreter in the first line of a script; empty for any other file."""
    try:
        with open(program, "rb") as file:
            first = file.read(_FIRST_LINE).partition(b"\n")[0]
    except OSError:
        return ""
    words = os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
    return words[0] if words and os.path.isabs(words[0]) else ""


_FIRST_LINE: Final = 256
"""Bytes of the first line of a script that Linux reads."""


def _lies_in(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def find_bubblewrap() -> str:
    """The path of `bwrap`; empty if it is not installed."""
    return shutil.which("bwrap") or ""


def has_started(status: bytes) -> bool:
    """Whether bubblewrap started the program.

    Args:
        status: What it wrote to its file `status`, after it has ended.
    """
    for line in status.splitlines():
        # It was cut if bubblewrap was killed.
        with suppress(ValueError):
            if "exit-code" in json.loads(line):
                return True
    return False
