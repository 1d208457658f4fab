"""Tools of MCP servers and A2A agents: list the servers, and create or complete descriptors from their answers."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from toolcrib.core.errors import NotReady, Problem, did_you_mean
from toolcrib.core.model import NOTHING, Descriptor, Outcome, Schema
from toolcrib.core.pointers import file_and_line
from toolcrib.core.protocols import Kinds, Remote
from toolcrib.core.server_config import (
    AGENT_MODE,
    Catalogue,
    Server,
    descriptor_of,
    kind_of_mode,
    place_of_server,
    tool_names_of,
)
from toolcrib.engine.server_choice import choose_server
from toolcrib.loading.reader import LoadedDocuments
from toolcrib.loading.snapshot import PendingDescriptor
from toolcrib.loading.sources import parse
from toolcrib.servers.lock import Lock, read_lock

if TYPE_CHECKING:
    from toolcrib.core.clock import CrossLoopLock
    from toolcrib.executors import Executors
    from toolcrib.loading.snapshot import LoadedProject
    from toolcrib.registry.registry import Registry
    from toolcrib.servers.environment import LockJudge

INHERITED = ("title", "description", "input_schema", "output_schema", "annotations", "icons")
"""Keys that a descriptor inherits from the server's tool, unless the descriptor or its pack sets them."""


class DiscoveredTools(NamedTuple):
    """Loaded documents with the tools of the servers.

    Attributes:
        loaded: The documents.
        unlisted: Servers whose tools are imported but not known yet.
        waiting: Maps a tool to the server that must be listed before it can be used.
        unbound: Maps a tool whose block names no server to the reason why none could be chosen.
        locked: Servers whose tools are known only from the lock file.
        remembered: Maps servers whose tools are known only from the cache to the time of that answer.
    """

    loaded: LoadedDocuments
    unlisted: tuple[str, ...] = ()
    waiting: Mapping[str, PendingDescriptor] = NOTHING
    unbound: Mapping[str, Problem] = NOTHING
    locked: tuple[str, ...] = ()
    remembered: Mapping[str, str] = NOTHING


def with_servers(
    loaded: LoadedDocuments, servers: Mapping[str, Server], known: Mapping[str, Catalogue], kinds: Kinds
) -> DiscoveredTools:
    """Add the imported tools, and complete the descriptors that refer to a tool of a server.

    A descriptor overrides an imported tool of the same name.

    Args:
        loaded: Documents read from files.
        servers: The servers of the project.
        known: Maps each listed server to what it offers.
        kinds: The block schemas and checks of the modes.
    """
    bound = {tool.name: found for tool in loaded.tools if (found := _remote_of(tool, kinds)) is not None}
    problems = [*_unknown_servers(loaded, bound, servers, known)]
    tools, waiting, unbound = [], {}, {}
    for tool in loaded.tools:
        mode, remote = bound.get(tool.name, ("", None))
        own = {name: server for name, server in servers.items() if server.mode == mode and not server.lists}
        if remote is not None and not remote.server and own:
            choice = choose_server(tool, mode, remote, own, known)
            remote = choice.remote
            if remote is not None:
                tool = _bound_to(tool, mode, remote)  # noqa: PLW2901
            elif choice.problem is not None:
                problems.append(choice.problem)
                unbound[tool.name] = choice.problem
            else:
                first, *others = choice.unlisted
                waiting[tool.name] = PendingDescriptor(first, mode, tuple(others))
        offering = None if remote is None else _offering(remote, own, known)
        if remote is not None and offering is not None:
            tool, faults = _completed(tool, own[offering], remote, known[offering], kinds)  # noqa: PLW2901
            problems += faults
        elif remote is not None:
            complete = "input_schema" in tool.origin.written
            named = [
                _directory_of(name, servers, known) if name not in own else "" if complete else name
                for name in remote.servers
            ]
            pending = [name for name in named if name]
            if pending:
                waiting[tool.name] = PendingDescriptor(pending[0], mode, tuple(pending[1:]))
        tools.append(tool)
    names, refused = {tool.name for tool in tools} | set(loaded.refused), dict(loaded.refused)
    for server in servers.values():
        if server.imports and server.name in known:
            imported = _imported(server, known[server.name], names, kinds)
            tools += imported.tools
            problems += imported.problems
            refused |= imported.refused
    unlisted = tuple(name for name, server in servers.items() if server.imports and name not in known)
    loaded = replace(loaded, tools=tuple(tools), problems=(*loaded.problems, *problems), refused=refused)
    return DiscoveredTools(loaded, unlisted, waiting, unbound)


def server_of(name: str, unlisted: Collection[str]) -> str | None:
    """The server that a tool of this name would be imported from, if any."""
    # The longest prefix wins: `shop` and `shop__eu` may both be servers.
    owners = [server for server in unlisted if name.startswith(_prefix_of(server))]
    return max(owners, key=len, default=None)


def is_of_unlisted(glob: str, unlisted: Collection[str]) -> bool:
    """Whether a name or glob may match a tool that would be imported from one of these servers."""
    start = re.split(r"[*?\[]", glob, maxsplit=1)[0]
    prefixes = map(_prefix_of, unlisted)
    return any(
        start.startswith(prefix) or (start != glob and prefix.startswith(start)) for prefix in prefixes
    )


def _prefix_of(server: str) -> str:
    """Prefix of the names of tools that are imported from a server."""
    (name,) = tool_names_of(Server(server), ["x"])[0].values()
    return name.removesuffix("x")


def _directory_of(name: str, servers: Mapping[str, Server], known: Mapping[str, Catalogue]) -> str:
    """The directory that may list an agent of this name once it is read; empty if there is none."""
    unread = [each for each, server in servers.items() if server.lists and each not in known]
    return server_of(name, unread) or ""


def _offering(remote: Remote, own: Mapping[str, Server], known: Mapping[str, Catalogue]) -> str | None:
    """The first server of a tool that lists it; the first that is listed at all if none does; None if none is listed."""
    listed = [name for name in remote.servers if name in own and name in known]
    return next((name for name in listed if remote.tool in known[name].tools), next(iter(listed), None))


def _remote_of(tool: Descriptor, kinds: Kinds) -> tuple[str, Remote] | None:
    """The first block of a tool that refers to a tool of a server: its mode and that tool."""
    for mode, block in tool.bindings.items():
        remote = kinds.remote_of(mode, tool.name, block)
        if remote is not None:
            return mode, remote
    return None


def _unknown_servers(
    loaded: LoadedDocuments,
    bound: Mapping[str, tuple[str, Remote]],
    servers: Mapping[str, Server],
    known: Mapping[str, Catalogue],
) -> Iterator[Problem]:
    for tool in loaded.tools:
        mode, remote = bound.get(tool.name, ("", None))
        own = [name for name, server in servers.items() if server.mode == mode and not server.lists]
        several = () if remote is None or not servers else remote.servers
        for place, name in enumerate(several):
            # A directory may list it, once it is read.
            if not name or name in own or _directory_of(name, servers, known):
                continue
            kind = kind_of_mode(mode)
            message = f"unknown {kind} `{name}`, so `{tool.name}` cannot be called in mode `{mode}`"
            near = did_you_mean(name, own)
            yield _placed(
                tool,
                Problem(
                    code="unknown_server",
                    message=message,
                    pointer=f"/{mode}/{kind}" if len(several) == 1 else f"/{mode}/prefer/{place}",
                    hint=near or f"add it to `{kind}s` in `toolcrib.yaml`",
                    severity="warning",
                ),
            )


def _imported(server: Server, catalogue: Catalogue, own: Collection[str], kinds: Kinds) -> LoadedDocuments:
    """The tools of a server as descriptors, without names that a descriptor already uses."""
    names, remarks = tool_names_of(server, [*catalogue.tools, *catalogue.refused])
    documents = [
        descriptor_of(server, catalogue.tools[tool], name)
        for tool, name in names.items()
        if tool in catalogue.tools and name not in own
    ]
    source, line = _place_of(server)
    loaded = parse(source, documents, kinds, line=line) if documents else LoadedDocuments()
    tools = tuple(_as_inherited(tool, server) for tool in loaded.tools)
    refused = {name: catalogue.refused[tool] for tool, name in names.items() if tool in catalogue.refused}
    refused |= {name: f"{fault.message} (at {fault.pointer})" for name, fault in loaded.refused.items()}
    whose = {name: f"the tool `{tool}` of the {server.kind} `{server.name}`" for tool, name in names.items()}
    faults = {
        name: _remark(f"{whose[name]} is not offered: {why}", source, line) for name, why in refused.items()
    }
    told = [*(f"the {server.kind} `{server.name}`: {remark}" for remark in catalogue.remarks), *remarks]
    problems = [*faults.values(), *(_remark(text, source, line) for text in told)]
    if server.mode == AGENT_MODE and not (server.lists or catalogue.tools or catalogue.refused):
        text = f"the agent `{server.name}` offers no tools: no skill of its card is one"
        hint = "a skill is a tool if it has the tag `tool`, or if the extension for tool descriptors names it"
        nothing = Problem(code="server_remark", message=text, hint=hint, severity="notice")
        problems.append(nothing.at(source, line, 1))
    return LoadedDocuments(tools=tools, problems=tuple(problems), refused=faults)


def _as_inherited(tool: Descriptor, server: Server) -> Descriptor:
    """An imported tool whose keys are those of the server, and not of the document that configures the server."""
    told = dict.fromkeys((key for key in INHERITED if key in tool.origin.written), place_of_server(server))
    origin = tool.origin._replace(written=tool.origin.written - told.keys(), settings=told)
    return tool._replace(origin=origin)


def _remark(text: str, source: str, line: int) -> Problem:
    return Problem(code="server_remark", message=text, severity="warning").at(source, line, 1)


def _place_of(server: Server) -> tuple[str, int]:
    """The file and line that define a server; `server NAME` for one that a program passed."""
    source, line = file_and_line(server.place())
    return (source, line) if source and line else (place_of_server(server), 1)


def _completed(
    tool: Descriptor, server: Server, remote: Remote, catalogue: Catalogue, kinds: Kinds
) -> tuple[Descriptor, list[Problem]]:
    """Complete a descriptor from the server's tool, and check its binding against the result."""
    mode = server.mode
    definition = catalogue.tools.get(remote.tool)
    if definition is None:
        return tool, [_missing(tool, server, remote, catalogue)]
    theirs = _their_own(server, definition, kinds)
    if theirs is None:
        return tool, []
    taken = {key: getattr(theirs, key) for key in INHERITED if key not in tool.origin.written}
    taken = {key: value for key, value in taken.items() if key not in tool.origin.settings}
    if "input_schema" in taken:
        taken["input_schema"] = _without(theirs.input_schema, remote.fixed)
    told = dict.fromkeys(taken, place_of_server(server))
    digest = hashlib.sha256(f"{tool.origin.digest}{theirs.origin.digest}".encode()).hexdigest()
    origin = tool.origin._replace(digest=digest, settings={**told, **tool.origin.settings})
    tool = tool._replace(**taken, origin=origin)
    return tool, [_placed(tool, problem) for problem in kinds.check_binding(mode, tool)]


def _bound_to(tool: Descriptor, mode: str, remote: Remote) -> Descriptor:
    """A descriptor that names no server, with the server and the tool that were chosen for it."""
    block: Any = tool.bindings[mode]
    chosen = {"server": remote.server, "tool": remote.tool}
    settled = {f"{mode}.{key}": "the server that offers the tool" for key in chosen if key not in block}
    digest = hashlib.sha256(f"{tool.origin.digest}{remote.server}".encode()).hexdigest()
    origin = tool.origin._replace(digest=digest, settings={**tool.origin.settings, **settled})
    return tool._replace(bindings={**tool.bindings, mode: {**block, **chosen}}, origin=origin)


def _their_own(server: Server, definition: Mapping[str, Any], kinds: Kinds) -> Descriptor | None:
    """The server's tool as a descriptor."""
    document = descriptor_of(server, definition, "remote")
    return next(iter(parse(place_of_server(server), [document], kinds).tools), None)


def _missing(tool: Descriptor, server: Server, remote: Remote, catalogue: Catalogue) -> Problem:
    message = f"the {server.kind} `{server.name}` has no tool `{remote.tool}`"
    hint = did_you_mean(remote.tool, catalogue.tools) or (
        f"its tools are: {', '.join(f'`{name}`' for name in catalogue.tools)}"
    )
    return _placed(
        tool,
        Problem(
            code="unknown_remote_tool",
            message=message,
            pointer=f"/{server.mode}/tool",
            hint=hint,
            severity="warning",
        ),
    )


def _without(schema: Schema, names: Collection[str]) -> Schema:
    """Remove arguments with fixed values from a schema, because callers cannot set them."""
    if not isinstance(schema, dict) or not names:
        return schema
    left: dict[str, Any] = dict(schema)
    properties, required = left.get("properties"), left.get("required")
    if isinstance(properties, dict):
        left["properties"] = {name: each for name, each in properties.items() if name not in names}
    if isinstance(required, list):
        left["required"] = [name for name in required if name not in names]
    return left


def _placed(tool: Descriptor, problem: Problem) -> Problem:
    line, column = tool.origin.locate(problem.pointer)
    return problem.at(tool.origin.source, line or tool.origin.line, column or 1)


class DiscoveryHost(Protocol):
    """The parts of the engine that a discovery uses."""

    closed: bool

    @property
    def registry(self) -> Registry:
        """The active tools."""
        ...

    @property
    def stock(self) -> LoadedProject:
        """The loaded project, with its servers."""
        ...

    @property
    def executors(self) -> Executors:
        """The modes."""
        ...

    @property
    def lock_policy(self) -> Literal["warn", "block"]:
        """Whether a tool that differs from the lock is reported (`warn`) or refused (`block`)."""
        ...

    @property
    def changing(self) -> CrossLoopLock:
        """Lock held while the active tools change."""
        ...

    def catalogue(self, server: str) -> Awaitable[Catalogue]:
        """Return what a server offers, and start it if needed; raises NotReady."""
        ...

    async def read_again(self) -> object:
        """Link everything again with what is known now, and swap it in."""
        ...


class Discovery:
    """The tool lists of the servers of one runtime.

    Attributes:
        offered: Maps the name of a server to what it offers.
        down: Maps the name of a server that could not be listed to the error.
    """

    def __init__(self, owner: DiscoveryHost) -> None:
        self.offered: dict[str, Catalogue] = {}
        self.down: dict[str, NotReady] = {}
        self._owner = owner
        self._taking: set[asyncio.Task[None]] = set()

    async def ask(self, names: Collection[str], *, follow: bool = True) -> tuple[Problem, ...]:
        """List servers concurrently, activate their tools, and return an error for each of them that failed.

        Servers that have answered are skipped, and so are locked servers under the policy `block`.

        Args:
            names: The servers.
            follow: Whether the agents that a directory lists are listed, too, if their tools are wanted.
        """
        asked: set[str] = set()
        async with self._owner.changing:
            while wanted := [name for name in names if name not in asked and self._is_open(name)]:
                asked.update(wanted)
                before = {name: self._known(name) for name in wanted}
                await asyncio.gather(*map(self._ask, wanted))
                # Linking everything again is slow; skip it if the servers offer what the lock already says.
                if any(self._known(name) != said for name, said in before.items()):
                    await self._owner.read_again()
                names = (*names, *(self._listed_by(wanted) if follow else ()))
            return self.problems(names)

    def _is_open(self, name: str) -> bool:
        """Whether a server has not been listed, and may be."""
        return name not in self.offered and not self._is_frozen(name)

    def _listed_by(self, names: Collection[str]) -> list[str]:
        """The agents of some directories that must be asked before all tools are known."""
        stock = self._owner.stock
        urls = {stock.servers[name].url for name in names if stock.servers[name].lists}
        if not urls:
            return []
        wanted = all_awaited(stock, self._owner.registry)
        return [name for name in wanted if stock.servers[name].directory in urls]

    async def _ask(self, name: str) -> None:
        self.down.pop(name, None)
        try:
            self.offered[name] = await self._owner.catalogue(name)
        except NotReady as error:
            self.down[name] = error

    def hear(self, server: str, catalogue: Catalogue) -> None:
        """Receive a changed tool list from a server, and activate it in the background if it differs."""
        known = self._known(server)
        # None: no tool of the server is in use, so there is nothing to replace.
        if server not in self._owner.stock.servers or known is None or _content(catalogue) == known:
            return
        # The event loop holds only a weak reference to a task; the set keeps it alive until it ends.
        task = asyncio.get_running_loop().create_task(self._take(server, catalogue))
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    async def _take(self, server: str, catalogue: Catalogue) -> None:
        async with self._owner.changing:
            # A reload or a close may have come first while this task waited for the lock.
            if self._owner.closed or _content(catalogue) == self._known(server) or self._is_frozen(server):
                return
            self.offered[server] = catalogue
            await self._owner.read_again()
            left = self._owner.stock.servers
            for gone in [name for name in (*self.offered, *self.down) if name not in left]:
                self.offered.pop(gone, None)
                self.down.pop(gone, None)
            appeared = self._listed_by([server])
        if appeared:
            await self.ask(appeared)

    def _known(self, server: str) -> object:
        """What is active of a server's catalogue; None if nothing is known about it."""
        known = self.offered.get(server) or self._locked().get(server)
        return None if known is None else _content(known)

    def _is_frozen(self, server: str) -> bool:
        """Whether the lock file determines the tools, regardless of the server's answer."""
        return self._owner.lock_policy == "block" and server in self._locked()

    def _locked(self) -> Mapping[str, Catalogue]:
        """The locked tools of the servers whose definition has not changed since."""
        return self.lock().known(self._owner.stock.servers)

    def awaited(self, name: str, mode: str | None = None) -> str | None:
        """The server that must be listed before a tool of this name can be called, if any.

        Args:
            name: Name of the tool.
            mode: Its mode in a session, such as `mock` in a scenario with a mock of it; by default that of the registry.
        """
        return next(iter(self.all_awaited(name, mode)), None)

    def all_awaited(self, name: str, mode: str | None = None) -> tuple[str, ...]:
        """The servers that must be listed before a tool of this name can be called."""
        stock, registry = self._owner.stock, self._owner.registry
        return all_awaited_by(stock, registry, name) or self._doubted(name, mode)

    def _doubted(self, name: str, mode: str | None) -> tuple[str, ...]:
        """The servers of a tool that are known only from the lock file, under the policy `warn`."""
        # The lock may be outdated. Under `warn` the server has the last word, so its current schema must
        # check the arguments, unless a mock stands in for the server.
        stock, registry = self._owner.stock, self._owner.registry
        left = [name for name in stock.locked if name not in self.offered and name not in self.down]
        if not left or self._owner.lock_policy == "block":
            return ()
        tool = registry.get(name)
        if tool is None or tool.mode is None:
            server = server_of(name, left)
            return () if server is None else (server,)
        mode = mode or tool.mode
        remote = self._owner.executors.remote_of(mode, name, tool.bindings.get(mode))
        if remote is None:
            return ()
        return tuple(name for name in remote.servers if name in left) if remote.server else tuple(left)

    def lock(self) -> Lock:
        """Read the lock file."""
        file = self._owner.stock.lock_file
        return read_lock(file)[0] if file else Lock()

    def judge(self) -> LockJudge:
        """Compare servers with the lock file, under the policy of the profile."""
        return self.lock().judge(self._owner.lock_policy)

    def forget(self, before: Mapping[str, Server]) -> bool:
        """Drop the answers of changed or removed servers; True if there were any."""
        now = self._owner.stock.servers
        gone = {name for name in {*self.offered, *self.down} if now.get(name) != before.get(name)}
        for name in gone:
            self.offered.pop(name, None)
            self.down.pop(name, None)
        return bool(gone)

    def problems(self, names: Collection[str] | None = None) -> tuple[Problem, ...]:
        """One error for each server that could not be listed; `names` are those of interest (default: all)."""
        servers = self._owner.stock.servers
        told = servers if names is None else set(names).intersection(servers)
        return tuple(_problem(servers[name], error) for name, error in self.down.items() if name in told)

    def why_unheard(self, name: str, server: str) -> tuple[str, str | None, Outcome]:
        """Why a tool whose server is not listed cannot be called: message, error code, outcome."""
        down = self.down.get(server)
        if down is None:
            kind = self._owner.stock.servers[server].kind
            why = f"`{name}` is not available yet: the {kind} `{server}` has not listed its tools"
            return why, None, Outcome.UNAVAILABLE
        tool = self._owner.registry.get(name)
        mode = "" if tool is None or tool.mode is None else tool.mode
        remote = self._owner.executors.remote_of(mode, name, tool.bindings.get(mode)) if tool else None
        said = (
            "" if remote is None or remote.server else f"`{name}` names no server, and not all can be asked: "
        )
        return f"{said}{down}", down.code, Outcome.DENIED if down.denied else Outcome.UNAVAILABLE

    def cancel(self) -> None:
        """Stop applying changed tool lists."""
        for task in self._taking:
            task.cancel()


def _content(catalogue: Catalogue) -> object:
    """The part of a catalogue that changes the registry."""
    return catalogue.says(), catalogue.agents


def all_awaited_by(stock: LoadedProject, registry: Registry, name: str) -> tuple[str, ...]:
    """The servers that must be listed before a tool of this name can be called."""
    waiting = stock.waiting.get(name)
    if waiting is not None:
        card = registry.cards.get(name)
        waits = card is not None and card.mode == waiting.mode
        return (waiting.server, *waiting.others) if waits else ()
    server = None if name in registry else server_of(name, stock.unlisted)
    return () if server is None else (server,)


def all_awaited(stock: LoadedProject, registry: Registry) -> tuple[str, ...]:
    """The servers that must be listed before all tools and their schemas are known; sorted."""
    named = (all_awaited_by(stock, registry, name) for name in stock.waiting)
    return tuple(sorted({*stock.unlisted, *(server for servers in named for server in servers)}))


def unknown_server(name: str, servers: Mapping[str, Server]) -> tuple[str, str]:
    """Message and hint for an unknown server."""
    known = ", ".join(f"`{each}`" for each in servers) or "none"
    return f"unknown server `{name}`", did_you_mean(name, servers) or f"known servers: {known}"


def _problem(server: Server, error: NotReady) -> Problem:
    source, line = file_and_line(server.place())
    problem = Problem(code=error.code, message=error.message, hint=error.hint)
    return problem.at(source, line or 1, 1)
