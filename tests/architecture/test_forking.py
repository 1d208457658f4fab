"""Commands that are forked from one process (`forking.py`)."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

import commands


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="nothing is forked on this system")
@pytest.mark.usefixtures("forked_servers")
def test_a_command_that_is_killed_while_it_starts_keeps_no_other_from_starting():
    command = Path(commands.TOOLCRIB[0])
    for told in (b"", b'[["toolcrib", "--ver'):
        with socket.socket(socket.AF_UNIX) as killed:
            killed.connect(str(command.parents[1] / "socket"))
            if told:
                socket.send_fds(killed, [told], [0, 1, 2])
        shown = subprocess.check_output([command, "--version"], text=True, timeout=60)
        assert shown.startswith("toolcrib ")
