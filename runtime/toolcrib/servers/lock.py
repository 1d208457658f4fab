"""Read, write and enforce `toolcrib.lock`, which pins MCP servers with their tool definitions, and installed packs.

A server can change after it was reviewed: a different command behind the same name, or descriptions that give a model
different instructions. A lock stores the endpoint of each server and the accepted definition and hash of each tool; and the
version, the hash and the publisher of each pack, which loading compares with its files.

Equal contents produce equal bytes. Reading is strict: an edited, badly merged or truncated file is reported and ignored
as a whole. Messages also reach models, so the only server text they repeat is tool names.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON, NOTHING
from toolcrib.core.pointers import keys_of, pointer_to
from toolcrib.core.server_config import LOCK_FILE, Catalogue, LockVerdict, Server
from toolcrib.core.text import canonical, decode_json, escape_terminal
from toolcrib.security.hidden_characters import hidden_in
from toolcrib.security.server_display import shown_args, shown_url

HASHED: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
"""Hashed keys of a definition: the text a model reads, the schemas, and the hints on what a call may do."""

KEPT: Final = (*HASHED, "icons")
"""Stored keys of a definition. `_meta` is omitted: it differs from one listing to the next."""

SAID_OF_SERVERS: Final = ("name", "title", "version")
"""Stored keys of the server information. They are not compared: each release changes the version."""

_AUTH: Final = ("type", "scheme", "in", "name", "flow", "token_url", "function")


class LockedTool(NamedTuple):
    """A locked tool.

    Attributes:
        definition: The `KEPT` keys of its definition, without nulls.
        hash: `hash_of(definition)`.
    """

    definition: Mapping[str, Any]
    hash: str


class LockedServer(NamedTuple):
    """A locked server.

    Attributes:
        endpoint: Its `endpoint_of`.
        tools: The server's name for a tool -> the locked tool, sorted by name.
        info: Those of `SAID_OF_SERVERS` that the server sent.
    """

    endpoint: Mapping[str, JSON]
    tools: Mapping[str, LockedTool]
    info: Mapping[str, str]

    @classmethod
    def of(cls, server: Server, catalogue: Catalogue) -> LockedServer:
        """Lock a server and the tools that it lists.

        Tools whose definition cannot be written as JSON are omitted; `unlockable_tools` names them.
        """
        left_out = unlockable_tools(catalogue)
        tools = {
            name: locked_tool(catalogue.tools[name])
            for name in sorted(catalogue.tools)
            if name not in left_out
        }
        info = {key: catalogue.info[key] for key in SAID_OF_SERVERS if key in catalogue.info}
        return cls(endpoint_of(server), tools, info)


class LockedPack(NamedTuple):
    """An installed pack.

    Attributes:
        version: Its version.
        hash: `pack_signatures.hash_of_files` of its files.
        key: The public key of its publisher; empty if it is not signed.
    """

    version: str
    hash: str
    key: str = ""


def locked_tool(said: Mapping[str, Any]) -> LockedTool:
    """Lock the definition of a tool.

    Raises:
        ValueError: A text contains a lone surrogate, a number is not finite, or the nesting is too deep.
    """
    definition = {key: said[key] for key in KEPT if said.get(key) is not None}
    return LockedTool(definition, hash_of(definition))


def unlockable_tools(catalogue: Catalogue) -> dict[str, str]:
    """Name of each tool that cannot be locked -> the reason."""
    found = {}
    for name, said in catalogue.tools.items():
        try:
            locked_tool(said)
        except ValueError as error:
            found[name] = str(error)
    return found


def hash_of(definition: Mapping[str, Any]) -> str:
    """`sha256:` and the digest of the `HASHED` keys of a definition, as canonical JSON.

    Raises:
        ValueError: The definition cannot be written as JSON; see `locked_tool`.
    """
    return digest({key: definition[key] for key in HASHED if definition.get(key) is not None})


def digest(value: JSON) -> str:
    """`sha256:` and the digest of a value as canonical JSON.

    Raises:
        ValueError: The value cannot be written as JSON.
    """
    return f"sha256:{hashlib.sha256(canonical(value).encode()).hexdigest()}"


def endpoint_of(server: Server) -> dict[str, JSON]:
    """The configured command or URL of a server, with variables unresolved.

    Environment variables and headers are listed by name only, and literal secrets become `***`.
    """
    # A lock is committed to repositories to which a client's `mcp.json`, with its secrets, is never added.
    if server.transport == "stdio":
        told: dict[str, JSON] = {"command": server.command, "args": [*shown_args(server.args)]}
        told |= {"env": [*sorted(server.env)], "cwd": server.cwd}
    else:
        headers: list[JSON] = [*sorted({name.lower() for name in server.headers})]
        told = {"url": shown_url(server.url), "headers": headers, "auth": _auth(server.auth)}
        told |= {"hosts": [*server.hosts], "tools": [*server.tools]}
    return {"transport": server.transport, **{key: item for key, item in told.items() if item}}


def _auth(auth: JSON) -> list[JSON]:
    schemes = auth if isinstance(auth, list) else [auth]
    return [
        {key: str(scheme[key]) for key in _AUTH if key in scheme}
        for scheme in schemes
        if isinstance(scheme, dict)
    ]


VERSION: Final = 1
"""Version of the file format."""

LARGEST: Final = 64 * 1024 * 1024
"""Maximum file size in bytes; thousands of large tools take less."""

_BLANKS: Final = " \t\r\n"
_ANEW: Final = "restore it from version control, or run `toolcrib lock --update` to rewrite it from the current tool lists"


def render_lock(servers: Mapping[str, LockedServer], packs: Mapping[str, LockedPack] = NOTHING) -> str:
    """The text of a lock file."""
    told = {
        name: {
            "endpoint": {"hash": digest(dict(server.endpoint)), **server.endpoint},
            "info": dict(server.info),
            "tools": {tool: {"hash": each.hash, **each.definition} for tool, each in server.tools.items()},
        }
        for name, server in servers.items()
    }
    whole: dict[str, Any] = {"version": VERSION, "servers": told}
    if packs:
        whole["packs"] = {
            name: {"version": each.version, "hash": each.hash, **({"key": each.key} if each.key else {})}
            for name, each in packs.items()
        }
    # Sorted and indented, so that a version control system shows and merges a change tool by tool.
    return json.dumps(whole, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


class LockContents(NamedTuple):
    """What a lock file contains.

    Attributes:
        servers: Server name -> locked server.
        packs: Name of a pack -> locked pack.
    """

    servers: Mapping[str, LockedServer] = NOTHING
    packs: Mapping[str, LockedPack] = NOTHING


def load_lock(path: Path, shown: str) -> tuple[LockContents | None, list[Problem]]:
    """The contents of a lock file, and its problems.

    Args:
        path: The lock file.
        shown: Its name in problems.

    Returns:
        The contents, or None if the file is missing or has a problem; and the problems.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        return None, []
    except OSError as error:
        return None, [Problem(code="file_unreadable", message=error.strerror or str(error), source=shown)]
    if len(data) > LARGEST:
        message = f"the lock exceeds {LARGEST:,} bytes"
        return None, [Problem(code="too_large", message=message, hint=_ANEW, source=shown)]
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"byte {error.start + 1} is not valid UTF-8"
        return None, [Problem(code="invalid_utf8", message=message, hint=_ANEW, source=shown)]
    return parse_lock(text, shown)


def parse_lock(text: str, shown: str) -> tuple[LockContents | None, list[Problem]]:
    """The contents of the text of a lock, and its problems; see `load_lock`."""
    try:
        value: Any = decode_json(text)
    except json.JSONDecodeError as error:
        problem = Problem(code="invalid_lock", message=f"not valid JSON: {error.msg}", hint=_ANEW)
        return None, [problem.at(shown, error.lineno, error.colno)]
    except (ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, ValueError) else "nested too deeply"
        return None, [Problem(code="invalid_lock", message=why, hint=_ANEW).at(shown, 1, 1)]
    problems = [
        problem.at(shown, *locate_key(text, keys_of(problem.pointer))) for problem in _problems_of(value)
    ]
    # One bad entry voids the file: skipping it would leave its server unprotected without notice.
    if problems:
        return None, problems
    servers = {name: _server(entry) for name, entry in value["servers"].items()}
    packs = {name: LockedPack(**entry) for name, entry in value.get("packs", {}).items()}
    return LockContents(servers, packs), []


def _server(entry: Mapping[str, Any]) -> LockedServer:
    tools = {}
    for name, each in entry["tools"].items():
        definition = {key: each[key] for key in KEPT if key in each}
        tools[name] = LockedTool(definition, each["hash"])
    endpoint = {key: item for key, item in entry["endpoint"].items() if key != "hash"}
    return LockedServer(endpoint, tools, entry["info"])


def _problems_of(value: Any) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem(code="invalid_lock", message="the lock must be a JSON object", hint=_ANEW)
        return
    version = value.get("version")
    # `True == 1` in Python.
    if version != VERSION or isinstance(version, bool):
        known = f"this toolcrib supports version {VERSION}"
        yield Problem(
            code="unknown_lock_version",
            message=f"unsupported lock version {json.dumps(version)[:40]}; {known}",
            pointer="/version" if "version" in value else "",
            hint=f"use the toolcrib version that wrote it, or {_ANEW}",
        )
        return  # another version may have different keys
    # Locks of projects without installed packs have no `packs`.
    more = {"packs": dict} if "packs" in value else {}
    yield from _faults(value, {"version": int, "servers": dict, **more}, ())
    servers, packs = value.get("servers"), value.get("packs")
    for name, pack in packs.items() if isinstance(packs, dict) else ():
        yield from _problems_of_pack(pack, ("packs", name))
    for name, server in servers.items() if isinstance(servers, dict) else ():
        yield from _problems_of_server(server, ("servers", name))


def _problems_of_pack(pack: Any, path: tuple[str, ...]) -> Iterator[Problem]:
    if not isinstance(pack, dict):
        yield _wrong("a pack must be an object", path)
        return
    signed = {"key": str} if "key" in pack else {}
    yield from _faults(pack, {"version": str, "hash": str, **signed}, path)


def _problems_of_server(server: Any, path: tuple[str, ...]) -> Iterator[Problem]:
    if not isinstance(server, dict):
        yield _wrong("a server must be an object", path)
        return
    yield from _faults(server, {"endpoint": dict, "info": dict, "tools": dict}, path)
    endpoint, info, tools = server.get("endpoint"), server.get("info"), server.get("tools")
    if isinstance(endpoint, dict):
        rest = {key: item for key, item in endpoint.items() if key != "hash"}
        yield from _hash_problem(endpoint.get("hash"), rest, digest, (*path, "endpoint"))
    for key, item in info.items() if isinstance(info, dict) else ():
        if key not in SAID_OF_SERVERS or not isinstance(item, str):
            yield _wrong(f"unknown key `{key}`", (*path, "info", key))
    for name, tool in tools.items() if isinstance(tools, dict) else ():
        yield from _problems_of_tool(name, tool, (*path, "tools", name))


def _problems_of_tool(name: str, tool: Any, path: tuple[str, ...]) -> Iterator[Problem]:
    if not isinstance(tool, dict):
        yield _wrong("a tool must be an object", path)
        return
    unknown = [key for key in tool if key not in KEPT and key != "hash"]
    for key in unknown:
        yield _wrong(f"unknown key `{key}`", (*path, key), did_you_mean(key, KEPT))
    if tool.get("name") != name:
        yield _wrong(f"the tool `{name}` has a different `name`", (*path, "name"))
    # With an unknown key, a hash mismatch would only repeat the same problem.
    if not unknown:
        yield from _hash_problem(tool.get("hash"), tool, hash_of, path)


def _hash_problem(told: Any, value: dict[str, Any], hashed: Any, path: tuple[str, ...]) -> Iterator[Problem]:
    # The hash detects manual edits and bad merges. It is no signature: anyone can recompute it.
    try:
        right = hashed(value) == told
    except ValueError as error:
        yield _wrong(str(error), path)
        return
    if not right:
        message = "the hash does not match the content next to it; one of them was edited"
        yield Problem(code="edited_lock", message=message, pointer=pointer_to((*path, "hash")), hint=_ANEW)


def _faults(value: dict[str, Any], keys: Mapping[str, type], path: tuple[str, ...]) -> Iterator[Problem]:
    for key in value:
        if key not in keys:
            yield _wrong(f"unknown key `{key}`", (*path, key), did_you_mean(key, keys))
    for key, kind in keys.items():
        if not isinstance(value.get(key), kind):
            there = key in value
            message = f"`{key}` has the wrong type" if there else f"missing `{key}`"
            yield _wrong(message, (*path, key) if there else path)


def _wrong(message: str, path: tuple[str, ...], hint: str = "") -> Problem:
    return Problem(code="invalid_lock", message=message, pointer=pointer_to(path), hint=hint or _ANEW)


def locate_key(text: str, path: list[str]) -> tuple[int, int]:
    """Line and column, from 1, of the key at a path through objects, or of its deepest existing ancestor."""
    # `json` reports no positions of values, so the text is scanned again for the few keys with a problem.
    at = found = _after_blanks(text, 0)
    for name in path:
        keys = _keys(text, at)
        place = next(((start, value) for key, start, value in keys if key == name), None)
        if place is None:
            break
        found, at = place
    return text.count("\n", 0, found) + 1, found - text.rfind("\n", 0, found)


def _keys(text: str, at: int) -> Iterator[tuple[str, int, int]]:
    """The keys of the object at an offset: each with its own offset and that of its value."""
    if not text.startswith("{", at):
        return
    at = _after_blanks(text, at + 1)
    while text.startswith('"', at):
        name, end = _DECODER.raw_decode(text, at)
        value = _after_blanks(text, _after_blanks(text, end) + 1)
        yield name, at, value
        _, end = _DECODER.raw_decode(text, value)
        at = _after_blanks(text, _after_blanks(text, end) + 1)


def _after_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


_DECODER: Final = json.JSONDecoder()


Policy: TypeAlias = Literal["warn", "block"]
"""How to treat a difference from the lock: log a warning, or refuse the call."""

Judgement: TypeAlias = Callable[[Server, Catalogue | None], LockVerdict]

_THOROUGH = 5
"""Number of changed tools whose change is analyzed. Calls wait for the analysis."""

_EFFORT = 1_000

EVERY = "*"
"""Key of a verdict on every tool of a server."""


class Lock(NamedTuple):
    """A lock file as read.

    Attributes:
        source: The path of the file.
        servers: Server name -> locked server; empty if the file is missing or invalid.
        there: Whether the file exists and locks servers, or nothing.
        problems: Problems of the file. If there are any, the whole file is ignored.
        packs: Name of a pack -> locked pack; empty likewise.
    """

    source: str = LOCK_FILE
    servers: Mapping[str, LockedServer] = NOTHING
    there: bool = False
    problems: tuple[Problem, ...] = ()
    packs: Mapping[str, LockedPack] = NOTHING

    @property
    def catalogues(self) -> Mapping[str, Catalogue]:
        """Server name -> its catalogue when it was locked."""
        return {
            name: Catalogue(
                name,
                MappingProxyType({tool: dict(each.definition) for tool, each in server.tools.items()}),
                info=server.info,
            )
            for name, server in self.servers.items()
        }

    def known(self, servers: Mapping[str, Server]) -> dict[str, Catalogue]:
        """The locked catalogues of the servers whose endpoint is unchanged."""
        return {
            name: catalogue
            for name, catalogue in self.catalogues.items()
            if name in servers and endpoint_of(servers[name]) == self.servers[name].endpoint
        }

    @property
    def text(self) -> str:
        """The text of its file."""
        return render_lock(self.servers, self.packs)

    def judge(self, policy: Policy) -> Judgement:
        """A function that checks servers against this lock.

        It is called before a server starts, to check the endpoint, and each time the server lists its tools. Without a
        lock file, `block` refuses everything and `warn` only reports hidden characters.
        """
        return lambda server, catalogue: _verdict(self, policy, server, catalogue)


def read_lock(path: str | Path) -> tuple[Lock, list[Problem]]:
    """Read a lock file. A missing file is an empty lock without problems.

    Problems: `file_unreadable`, `too_large` (64 MiB), `invalid_utf8`, `invalid_lock`, `unknown_lock_version`,
    `edited_lock`.
    """
    shown = str(path)
    contents, problems = load_lock(Path(path), shown)
    servers, packs = contents or LockContents()
    # A lock that was written for packs does not mean that the servers were to be locked.
    there = bool(problems) or (contents is not None and (bool(servers) or not packs))
    return Lock(shown, servers, there, tuple(problems), packs), problems


def _verdict(lock: Lock, policy: Policy, server: Server, catalogue: Catalogue | None) -> LockVerdict:
    # A directory offers no tools; the agents that it lists are locked.
    if server.lists:
        return LockVerdict()
    blocks = policy == "block"
    why = _why_none(lock, server, blocks=blocks) or _why_elsewhere(lock, server)
    warnings = [] if catalogue is None else [*_hidden(server, catalogue)]
    if why and blocks:
        return LockVerdict({EVERY: why}, tuple(warnings))
    if catalogue is None:
        return LockVerdict(NOTHING, (why,) if why else ())
    # The endpoint was reported before the start. A comparison with the tools of a different endpoint means nothing.
    if why:
        return LockVerdict(NOTHING, tuple(warnings))
    against, gone = _against(lock, server, catalogue), [*_gone(lock, server, catalogue)]
    if blocks:
        return LockVerdict(against, (*gone, *warnings))
    return LockVerdict(NOTHING, (*_first(server, [*against.values()]), *gone, *warnings))


def _first(server: Server, told: Sequence[str]) -> Iterator[str]:
    """The first `_THOROUGH` warnings, and the number of the others."""
    yield from told[:_THOROUGH]
    if len(told) > _THOROUGH:
        more = len(told) - _THOROUGH
        yield f"{more} more tools of the {server.kind} `{display_name(server.name)}` differ from the lock; {_look(server)}"


def _why_none(lock: Lock, server: Server, *, blocks: bool) -> str:
    """Why a server has no usable lock entry; empty if it has one or needs none."""
    name = display_name(server.name)
    if lock.problems:
        first = lock.problems[0]
        place = f"{first.source}:{first.line}" if first.line else first.source
        return (
            f"{place}: cannot use the lock ({first.message}), so the {server.kind} `{name}` cannot be verified; "
            f"{first.hint}"
        )
    if not lock.there and blocks:
        return f"missing {lock.source}: `lock: block` allows only locked servers; {_run(server)}"
    if lock.there and server.name not in lock.servers:
        return f"the {server.kind} `{name}` is not in {lock.source}; {_run(server)}"
    return ""


def _why_elsewhere(lock: Lock, server: Server) -> str:
    """Why the endpoint differs from the lock; empty if it does not."""
    if server.name not in lock.servers:
        return ""
    before, now = lock.servers[server.name].endpoint, endpoint_of(server)
    changed = sorted(key for key in {**before, **now} if before.get(key) != now.get(key))
    if not changed:
        return ""
    place = next((server.places[key] for key in changed if key in server.places), server.place())
    keys = " and ".join(f"`{key}`" for key in changed)
    return (
        f"{f'{place}: ' if place else ''}the {server.kind} `{display_name(server.name)}` does not match {lock.source}: "
        f"{keys} changed; {_look(server)}"
    )


def _against(lock: Lock, server: Server, catalogue: Catalogue) -> dict[str, str]:
    """The tools that are new or changed, each with its message."""
    locked = lock.servers[server.name].tools if server.name in lock.servers else None
    if locked is None:
        return {}
    told: dict[str, str] = {}
    for name, said in catalogue.tools.items():
        thorough = len(told) < _THOROUGH
        why = _why_other(locked.get(name), said, thorough=thorough) if server.offers(name) else ""
        if why:
            told[name] = (
                f"the tool `{display_name(name)}` of the {server.kind} `{display_name(server.name)}` {why}; {_look(server)}"
            )
    return told


def _why_other(locked: LockedTool | None, said: Mapping[str, Any], *, thorough: bool) -> str:
    if locked is None:
        return "was added after the server was locked"
    try:
        now = locked_tool(said)
    except ValueError as error:
        return f"cannot be compared with the lock: {error}"
    if now.hash == locked.hash:
        return ""
    changed = [key for key in HASHED if locked.definition.get(key) != now.definition.get(key)]
    verdicts = f" ({_verdicts(locked, now)})" if thorough else ""
    return f"differs from the lock: {', '.join(changed)} changed{verdicts}"


def _verdicts(locked: LockedTool, now: LockedTool) -> str:
    from toolcrib.servers.lock_diff import compare  # noqa: PLC0415 -- needed only if a tool changed

    return ", ".join(compare(locked.definition, now.definition, _EFFORT).verdicts)


def _gone(lock: Lock, server: Server, catalogue: Catalogue) -> Iterator[str]:
    locked = lock.servers[server.name].tools if server.name in lock.servers else NOTHING
    gone = [name for name in locked if name not in catalogue.tools and server.offers(name)]
    if gone:
        more = f" and {len(gone) - _THOROUGH} more" if len(gone) > _THOROUGH else ""
        names = ", ".join(f"`{display_name(name)}`" for name in gone[:_THOROUGH])
        which = "which is" if len(gone) == 1 else "which are"
        yield f"the {server.kind} `{display_name(server.name)}` no longer offers {names}{more}, {which} locked; {_look(server)}"


def _hidden(server: Server, catalogue: Catalogue) -> Iterator[str]:
    for name, said in catalogue.tools.items():
        found = hidden_in(said) if server.offers(name) else []
        if found:
            kinds = ", ".join(dict.fromkeys(each.name for each in found[:10]))
            many = f"{len(found)} hidden character{'s' if len(found) != 1 else ''}"
            yield (
                f"the tool `{display_name(name)}` of the {server.kind} `{display_name(server.name)}` contains {many} ({kinds}), "
                f"which models read and people do not see; run `toolcrib lock --check {_word(server)}` to locate them"
            )


def display_name(name: str) -> str:
    """A third-party name, on one line, safe to display."""
    # A server chooses its tool names. Line breaks or backticks in one could fake a message to a terminal or a model.
    flat = escape_terminal(name).replace("\n", "\\n").replace("\t", "\\t").replace("`", "'")
    return flat if len(flat) <= 128 else f"{flat[:127]}…"


def _word(server: Server) -> str:
    return shlex.quote(display_name(server.name))


def _run(server: Server) -> str:
    return f"review and lock it with `toolcrib lock {_word(server)}`"


def _look(server: Server) -> str:
    return f"review the changes with `toolcrib lock {_word(server)}`, accept them with `toolcrib lock --update {_word(server)}`"
