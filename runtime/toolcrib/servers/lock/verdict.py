"""What a lock has against a server, in words for whoever can act on it.

The words go to models too, so nothing stands in them that the server has written but the names of its tools.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from toolcrib.core.errors import Problem
from toolcrib.core.model import NOTHING
from toolcrib.core.server_config import LOCK_FILE, Catalogue, Server, Verdict
from toolcrib.core.text import escape_terminal
from toolcrib.servers.lock.hidden_characters import hidden_in
from toolcrib.servers.lock.lock_file import read_servers, text_of
from toolcrib.servers.lock.locked_definitions import (
    HASHED,
    LockedServer,
    LockedTool,
    endpoint_of,
    locked_tool,
)

Policy: TypeAlias = Literal["warn", "block"]
"""What is done about what differs from a lock: it is told, or it is refused too."""

Judgement: TypeAlias = Callable[[Server, Catalogue | None], Verdict]

_THOROUGH = 5
"""Of so many tools it is told what their change means: calls wait meanwhile."""

_EFFORT = 1_000

EVERY = "*"
"""Stands for every tool of a server."""


class Lock(NamedTuple):
    """A lock as it was read.

    Attributes:
        source: Its file.
        servers: Name of a server -> how it was when it was locked; empty where there is no file, or a broken one.
        there: Whether there is a file.
        problems: What is wrong with it; then nothing of it counts.
    """

    source: str = LOCK_FILE
    servers: Mapping[str, LockedServer] = NOTHING
    there: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def catalogues(self) -> Mapping[str, Catalogue]:
        """Name of a server -> what it offered when it was locked."""
        return {
            name: Catalogue(
                name,
                MappingProxyType({tool: dict(each.definition) for tool, each in server.tools.items()}),
                info=server.info,
            )
            for name, server in self.servers.items()
        }

    def known(self, servers: Mapping[str, Server]) -> dict[str, Catalogue]:
        """What servers offer, of those that are reached as they were when they were locked."""
        return {
            name: catalogue
            for name, catalogue in self.catalogues.items()
            if name in servers and endpoint_of(servers[name]) == self.servers[name].endpoint
        }

    @property
    def text(self) -> str:
        """The text of its file."""
        return text_of(self.servers)

    def judge(self, policy: Policy) -> Judgement:
        """What says of a server what this lock has against it.

        It is asked before a server is started or connected to, and then judges how that is done; and whenever the
        server has listed its tools. Where there is no lock, `block` refuses everything, and `warn` tells of hidden
        characters alone.
        """
        return lambda server, catalogue: _verdict(self, policy, server, catalogue)


def read_lock(path: str | Path) -> tuple[Lock, list[Problem]]:
    """The lock of a file, and what is wrong with the file; nothing is, where there is none.

    Problems: `file_unreadable`, `too_large` (64 MiB), `invalid_utf8`, `invalid_lock`, `unknown_lock_version`,
    `edited_lock`.
    """
    shown = str(path)
    servers, problems = read_servers(Path(path), shown)
    there = servers is not None or bool(problems)
    return Lock(shown, servers or NOTHING, there, tuple(problems)), problems


def _verdict(lock: Lock, policy: Policy, server: Server, catalogue: Catalogue | None) -> Verdict:
    blocks = policy == "block"
    why = _why_none(lock, server, blocks=blocks) or _why_elsewhere(lock, server)
    warnings = [] if catalogue is None else [*_hidden(server, catalogue)]
    if why and blocks:
        return Verdict({EVERY: why}, tuple(warnings))
    if catalogue is None:
        return Verdict(NOTHING, (why,) if why else ())
    if why:  # it was told before the start; what is locked is another server's
        return Verdict(NOTHING, tuple(warnings))
    against, gone = _against(lock, server, catalogue), [*_gone(lock, server, catalogue)]
    if blocks:
        return Verdict(against, (*gone, *warnings))
    return Verdict(NOTHING, (*_first(server, [*against.values()]), *gone, *warnings))


def _first(server: Server, told: Sequence[str]) -> Iterator[str]:
    """What is told of the first tools that are not what they were, and how many more there are."""
    yield from told[:_THOROUGH]
    if len(told) > _THOROUGH:
        more = len(told) - _THOROUGH
        yield f"{more} more tools of the server `{shown(server.name)}` are not what was locked; {_look(server)}"


def _why_none(lock: Lock, server: Server, *, blocks: bool) -> str:
    """Why nothing is known of a server; empty where it is known, or need not be."""
    name = shown(server.name)
    if lock.problems:
        first = lock.problems[0]
        place = f"{first.source}:{first.line}" if first.line else first.source
        return (
            f"{place}: the lock can't be used ({first.message}), so nothing is known of the server `{name}`; "
            f"{first.hint}"
        )
    if not lock.there and blocks:
        return (
            f"there is no {lock.source}, and `lock: block` lets only locked servers be used; {_run(server)}"
        )
    if lock.there and server.name not in lock.servers:
        return f"the server `{name}` is not in {lock.source}; {_run(server)}"
    return ""


def _why_elsewhere(lock: Lock, server: Server) -> str:
    """Why what is started or connected to is not what was locked; empty where it is."""
    if server.name not in lock.servers:
        return ""
    before, now = lock.servers[server.name].endpoint, endpoint_of(server)
    changed = sorted(key for key in {**before, **now} if before.get(key) != now.get(key))
    if not changed:
        return ""
    place = next((server.places[key] for key in changed if key in server.places), server.place())
    keys = " and ".join(f"`{key}`" for key in changed)
    return (
        f"{f'{place}: ' if place else ''}the server `{shown(server.name)}` is reached otherwise than {lock.source} "
        f"says: {keys} {'is' if len(changed) == 1 else 'are'} not what was locked; {_look(server)}"
    )


def _against(lock: Lock, server: Server, catalogue: Catalogue) -> dict[str, str]:
    """The tools that are new or not what they were, and what is to be told of each."""
    locked = lock.servers[server.name].tools if server.name in lock.servers else None
    if locked is None:
        return {}
    told: dict[str, str] = {}
    for name, said in catalogue.tools.items():
        thorough = len(told) < _THOROUGH
        why = _why_other(locked.get(name), said, thorough=thorough) if server.offers(name) else ""
        if why:
            told[name] = (
                f"the tool `{shown(name)}` of the server `{shown(server.name)}` {why}; {_look(server)}"
            )
    return told


def _why_other(locked: LockedTool | None, said: Mapping[str, Any], *, thorough: bool) -> str:
    if locked is None:
        return "is new since it was locked"
    try:
        now = locked_tool(said)
    except ValueError as error:
        return f"can't be compared with what was locked: {error}"
    if now.hash == locked.hash:
        return ""
    changed = [key for key in HASHED if locked.definition.get(key) != now.definition.get(key)]
    verdicts = f" ({_verdicts(locked, now)})" if thorough else ""
    return f"is not what was locked: {', '.join(changed)} changed{verdicts}"


def _verdicts(locked: LockedTool, now: LockedTool) -> str:
    from toolcrib.servers.lock.comparison import compare  # noqa: PLC0415 -- hardly ever is a tool another one

    return ", ".join(compare(locked.definition, now.definition, _EFFORT).verdicts)


def _gone(lock: Lock, server: Server, catalogue: Catalogue) -> Iterator[str]:
    locked = lock.servers[server.name].tools if server.name in lock.servers else NOTHING
    gone = [name for name in locked if name not in catalogue.tools and server.offers(name)]
    if gone:
        more = f" and {len(gone) - _THOROUGH} more" if len(gone) > _THOROUGH else ""
        names = ", ".join(f"`{shown(name)}`" for name in gone[:_THOROUGH])
        which = "which is" if len(gone) == 1 else "which are"
        yield f"the server `{shown(server.name)}` no longer offers {names}{more}, {which} locked; {_look(server)}"


def _hidden(server: Server, catalogue: Catalogue) -> Iterator[str]:
    for name, said in catalogue.tools.items():
        found = hidden_in(said) if server.offers(name) else []
        if found:
            kinds = ", ".join(dict.fromkeys(each.name for each in found[:10]))
            many = f"{len(found)} hidden character{'s' if len(found) != 1 else ''}"
            yield (
                f"the tool `{shown(name)}` of the server `{shown(server.name)}` says something with {many} ({kinds}), "
                f"which a model reads and a person does not; `toolcrib lock --check {_word(server)}` shows where"
            )


def shown(name: str) -> str:
    """A name that a server or a file gave, on one line, for people and models."""
    flat = escape_terminal(name).replace("\n", "\\n").replace("\t", "\\t").replace("`", "'")
    return flat if len(flat) <= 128 else f"{flat[:127]}…"


def _word(server: Server) -> str:
    return shlex.quote(shown(server.name))


def _run(server: Server) -> str:
    return f"look at what it offers, and lock it: `toolcrib lock {_word(server)}`"


def _look(server: Server) -> str:
    return f"see what changed: `toolcrib lock {_word(server)}`; accept it: `toolcrib lock --update {_word(server)}`"
