"""A server as it is now beside what is locked of it, for somebody who may accept it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from toolcrib.core.model import NOTHING
from toolcrib.core.server_config import Catalogue, Server
from toolcrib.schema.compatibility.schema_subset import EFFORT
from toolcrib.servers.lock.comparison import Change, compare
from toolcrib.servers.lock.diff import Difference, endpoint_differences
from toolcrib.servers.lock.hidden_characters import Hidden, hidden_in, is_ordinary_name
from toolcrib.servers.lock.locked_definitions import LockedServer, endpoint_of, unlockable

_EFFORT: Final = 10 * EFFORT
"""What may be done for all tools of a server together, as far as each gets `_LEAST`."""

_LEAST: Final = 200


class Review(NamedTuple):
    """What was found of one server.

    Attributes:
        name: Of the server.
        before: What is locked; None for nothing.
        now: What there is to lock; None where it was not asked, or could not be.
        endpoint: How it is reached otherwise than is locked.
        added: Its tools that are not locked, in order.
        removed: Locked tools that it no longer has, in order.
        changed: Tools that are not what was locked.
        hidden: Tool -> the characters of its definition that nobody sees; the empty name stands for what the server
            says of itself.
        unlockable: Tool -> why it can't be locked, and so is left out.
        odd: Tools with unusual characters in their names.
    """

    name: str
    before: LockedServer | None = None
    now: LockedServer | None = None
    endpoint: tuple[Difference, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: Mapping[str, Change] = NOTHING
    hidden: Mapping[str, list[Hidden]] = NOTHING
    unlockable: Mapping[str, str] = NOTHING
    odd: tuple[str, ...] = ()

    @property
    def is_new(self) -> bool:
        """Whether nothing of it is locked."""
        return self.before is None

    @property
    def differs(self) -> bool:
        """Whether it is another one than the one that is locked, and somebody has to accept that."""
        return not self.is_new and bool(self.endpoint or self.added or self.removed or self.changed)


def review_endpoint(before: LockedServer | None, server: Server) -> Review:
    """What can be said of a server that is not started: how it is reached."""
    if before is None:
        return Review(server.name)
    return Review(
        server.name, before, endpoint=tuple(endpoint_differences(before.endpoint, endpoint_of(server)))
    )


def review(before: LockedServer | None, server: Server, catalogue: Catalogue) -> Review:
    """What can be said of a server that has listed its tools."""
    now = LockedServer.of(server, catalogue)
    hidden = {name: found for name, said in catalogue.tools.items() if (found := hidden_in(said))}
    of_itself = hidden_in(catalogue.info)
    known = now.tools if before is None else before.tools
    changed = [name for name, tool in now.tools.items() if name in known and known[name].hash != tool.hash]
    effort = min(max(_EFFORT // max(len(changed), 1), _LEAST), EFFORT)
    return review_endpoint(before, server)._replace(
        now=now,
        added=tuple(name for name in now.tools if name not in known),
        removed=tuple(name for name in known if name not in now.tools),
        changed={
            name: compare(known[name].definition, now.tools[name].definition, effort) for name in changed
        },
        hidden={**({"": of_itself} if of_itself else {}), **hidden},
        unlockable=unlockable(catalogue),
        odd=tuple(name for name in catalogue.tools if not is_ordinary_name(name)),
    )
