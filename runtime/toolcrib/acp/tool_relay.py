"""The program that an agent starts as its MCP server: it passes the messages on to the process that drives the agent.

The tools run in that process, in its runtime. This file is run by its path and imports nothing of toolcrib, so that it starts
at once.
"""

from __future__ import annotations

import os
import socket
import sys
import threading

_CHUNK = 1 << 16


def _copy(source: int, target: int) -> None:
    try:
        while data := os.read(source, _CHUNK):
            view = memoryview(data)
            while view:
                view = view[os.write(target, view) :]
    except OSError:  # the other side is gone
        pass


def main(path: str) -> None:
    """Connect stdin and stdout with a socket until either side ends.

    Args:
        path: Path of the socket.
    """
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)

        def send() -> None:
            _copy(0, server.fileno())
            server.shutdown(socket.SHUT_WR)

        # A daemon: a read of stdin cannot be interrupted, and must not keep the process alive.
        threading.Thread(target=send, daemon=True).start()
        _copy(server.fileno(), 1)


if __name__ == "__main__":
    main(sys.argv[1])
