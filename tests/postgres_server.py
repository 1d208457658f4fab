"""A PostgreSQL server for tests: a new cluster in a scratch folder, on a Unix socket."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_START = 120
"""Seconds that the server may take to start."""


def programs() -> Path | None:
    """The folder of `initdb` and `pg_ctl`; None if PostgreSQL is not installed. Debian keeps it off the path."""
    found = shutil.which("initdb")
    folders = (
        [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    )
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


class PostgresServer:
    """A running server.

    Attributes:
        address: Its address, for an empty database.
    """

    def __init__(self, folder: Path, bin_folder: Path, user: str | None) -> None:
        self._folder = folder
        self._bin = bin_folder
        self._user = user
        self.address = f"postgresql://tester@/postgres?host={folder}"

    def run(self, program: str, *words: str) -> None:
        """Run a program of PostgreSQL as the user that owns the cluster, which must not be root."""
        subprocess.run(
            [self._bin / program, "-D", str(self._folder / "data"), *words],
            user=self._user,
            check=True,
            stdin=subprocess.DEVNULL,
            # A pipe would stay open in the server.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._folder,
            timeout=2 * LONGEST_START,
        )

    def start(self) -> None:
        """Start the server, and wait until it accepts connections."""
        options = f"-k {self._folder} -c listen_addresses=''"
        self.run("pg_ctl", "start", "--wait", f"--timeout={LONGEST_START}", f"--options={options}")

    def stop(self) -> None:
        """End the server at once, as a crash would."""
        self.run("pg_ctl", "stop", "--mode=immediate")


@contextmanager
def postgres_server(bin_folder: Path) -> Iterator[PostgresServer]:
    """Run a server within the block."""
    # Not in pytest's folder, which another user cannot enter; and the path of a socket is at most 107 bytes long.
    with tempfile.TemporaryDirectory(prefix="toolcrib-pg-") as name:
        folder, user = Path(name), None
        if os.geteuid() == 0:
            user = next(each.pw_name for each in pwd.getpwall() if each.pw_name in {"postgres", "nobody"})
            shutil.chown(folder, user)
        server = PostgresServer(folder, bin_folder, user)
        server.run("initdb", "--username=tester", "--auth=trust", "--no-sync", "--encoding=UTF8")
        server.start()
        try:
            yield server
        finally:
            server.stop()
