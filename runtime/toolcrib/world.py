"""What the modes may reach of the world, as the project and its profile put it in force."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from toolcrib.egress import Guard
from toolcrib.http.messages import origin_of, parse_origin
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

    @classmethod
    def ordinary(cls) -> World:
        """The world outside projects: public addresses, and the environment's secrets."""
        return cls(Guard(), Vault())

    @classmethod
    def of(cls, egress: Iterable[str], origins: Mapping[str, str]) -> World:
        """The world of a project: `host:port` entries, and origins in place of others, each as it was written.

        Raises:
            ValueError: One of them is none.
        """
        return cls(Guard(egress), Vault(), {_normal(key): _normal(value) for key, value in origins.items()})

    def instead_of(self, origin: str) -> str:
        """The origin that is called where a descriptor names this one, which is in its normal form."""
        return self.origins.get(origin, origin)


def _normal(origin: str) -> str:
    return origin_of(*parse_origin(origin))
