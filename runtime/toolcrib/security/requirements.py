"""What blocks and servers use outside the program: capabilities, hosts, programs and environment variables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from toolcrib.core.server_config import Server


class Requirements(NamedTuple):
    """What calls of a tool in one mode use outside the program.

    Attributes:
        capabilities: The capabilities that the descriptor must declare, if it declares any.
        hosts: Origins or host patterns that are contacted, as written: `https://api.example.com`, `*.example.com`.
        commands: Programs that are started, as written.
        environment: Environment variables that are looked up.
        opens: Whether its code may open files and connections with the context of the call.
    """

    capabilities: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    opens: bool = False

    def joined(self, others: Iterable[Requirements]) -> Requirements:
        """What this and others use, each entry once."""
        several = (self, *others)
        return Requirements(
            _unique(one.capabilities for one in several),
            _unique(one.hosts for one in several),
            _unique(one.commands for one in several),
            _unique(one.environment for one in several),
            any(one.opens for one in several),
        )


def _unique(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for entries in lists for each in entries))


NO_REQUIREMENTS = Requirements()
"""The requirements of a mode whose calls stay within the program."""


def requirements_of_http(block: Mapping[str, Any]) -> Requirements:
    """The requirements of requests that a block describes, in mode `live` or of a server."""
    # Deferred: loading needs the capabilities alone, and this module imports how programs are followed.
    from toolcrib.security.trust_needs import contacted, look_ups  # noqa: PLC0415

    names = [each.name for each in look_ups({**block}) if each.source == "env"]
    return Requirements(("network",), tuple(contacted(block)), (), tuple(dict.fromkeys(names)))


def requirements_of_server(server: Server) -> Requirements:
    """The requirements of starting or contacting an MCP server."""
    from toolcrib.security.trust_needs import look_ups  # noqa: PLC0415 -- as above

    if server.transport != "stdio":
        block = {
            "url": server.url,
            "hosts": server.hosts,
            "headers": dict(server.headers),
            "auth": server.auth,
        }
        return requirements_of_http(block)
    known = server.known_variables()
    written: Any = [server.command, *server.args, dict(server.env), server.cwd]
    names = [each.name for each in look_ups(written) if each.source == "env" and each.name not in known]
    return Requirements(("process",), (), (server.command,), tuple(dict.fromkeys(names)))
