"""One process that has imported what servers need, for the servers that the tests of a worker start."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import serving_mcp
from forking import forked_command
from sampling import THOROUGH


@pytest.fixture(scope="session")
def forked_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let `serving_mcp` start its servers by forking."""
    with (
        forked_command(Path(sys.executable), tmp_path_factory.mktemp("forking")) as place,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(serving_mcp, "COMMAND", [str(place / "toolcrib")])
        yield


@pytest.fixture(scope="module", autouse=True)
def _servers(request: pytest.FixtureRequest) -> None:
    """Fork in the modules that start servers, unless everything is run."""
    starts = any(
        getattr(each, "__module__", "") == serving_mcp.__name__ for each in vars(request.module).values()
    )
    if starts and not THOROUGH and hasattr(os, "pidfd_open"):
        request.getfixturevalue("forked_servers")
