"""What the modes may reach of the world, as the project and its profile put it in force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from toolcrib.egress import Guard
from toolcrib.model import NOTHING
from toolcrib.vault import Vault


class World(NamedTuple):
    """Handed to every mode that reaches out (`Executor.world`), anew at each reload.

    Attributes:
        guard: The one way to a socket.
        vault: The one way to a secret; knows what must be masked.
        origins: Origin as descriptors write it -> the origin that is meant instead: `https://api.example.com`
            -> `http://127.0.0.1:8080`.
    """

    guard: Guard
    vault: Vault
    origins: Mapping[str, str] = NOTHING
