"""Runs `toolcrib` in a process that writes down what it does outside of itself: `python watched.py LOG WORD...`.

Every line of LOG is one event: a program that is started, a host that is looked up or connected to, a file that is opened, a
variable of the environment that is read. The interpreter tells of them itself (PEP 578), so nothing of toolcrib is changed.
"""

from __future__ import annotations

import os
import sys

LOG = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
STARTS = {"subprocess.Popen", "os.posix_spawn", "os.spawn", "os.exec", "os.system", "os.startfile"}
CONTACTS = {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}


def note(kind: str, what: object) -> None:
    os.write(LOG, f"{kind} {what}\n".encode("utf-8", "backslashreplace"))


def hear(event: str, args: tuple[object, ...]) -> None:
    if event in STARTS:
        note("start", args[:2])
    elif event in CONTACTS:
        note("contact", args[1:] if event == "socket.connect" else args)
    elif event == "open" and isinstance(args[0], str | bytes):
        note("open", os.fsdecode(args[0]))


class Watched(type(os.environ)):
    """The environment; every look at one variable is an event."""

    def __getitem__(self, key: str) -> str:
        note("variable", key)
        return super().__getitem__(key)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.encodekey(key) in self._data  # tells nothing of what it holds

    def get(self, key: str, default=None):
        note("variable", key)
        return super().get(key, default)


def main() -> None:
    os.environ.__class__ = Watched  # the object itself: modules that are already imported may hold it
    sys.addaudithook(hear)
    sys.argv = ["toolcrib", *sys.argv[2:]]
    from toolcrib.cli import main as run  # noqa: PLC0415 -- what it imports is watched as well

    run()


if __name__ == "__main__":
    main()
