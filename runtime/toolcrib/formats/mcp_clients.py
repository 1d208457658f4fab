"""The files in which MCP clients name their servers, read as they are: `mcpServers` of Claude, Cursor and others, `servers` of VS Code.

The tables below map the keys, transports and folders of the clients to ours; what is read becomes the language of
`servers` in a project, and `loading.servers` checks it like that. It is somebody else's file: what has no meaning here
is reported once and stops nothing.

`${VAR}`, `${VAR:-default}` and `${env:VAR}` mean the same here. What an editor asks its user for (`${input:id}`) is
looked up in the environment, and what names the workspace is the folder that paths are relative to.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from toolcrib.core.errors import Problem, Severity, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.loading.documents.document import Document, first_bytes, parse_documents, single_document
from toolcrib.loading.documents.json_text import without_comments
from toolcrib.loading.documents.positions import excerpt
from toolcrib.loading.format_contract import ServerFile
from toolcrib.loading.servers import ConfigPosition, ServerBlock, merge_servers, whole_path

SPELLINGS: Final[Mapping[str, str]] = {
    "command": "command",
    "args": "args",
    "env": "env",
    "environment": "env",
    "cwd": "cwd",
    "url": "url",
    "serverUrl": "url",
    "httpUrl": "url",
    "headers": "headers",
    "type": "transport",
    "transport": "transport",
    "transportType": "transport",
    "tools": "only",
    "includeTools": "only",
    "excludeTools": "except",
    "disabledTools": "except",
    "disabled": "disabled",
    "enabled": "enabled",
}
"""Key of a client -> what it says here. `serverUrl` is Windsurf's, `httpUrl`, `includeTools` and `excludeTools` are
Gemini CLI's, `tools` is Copilot's, `disabledTools` is that of several."""

TRANSPORTS: Final[Mapping[str, str]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamablehttp": "http",
    "remote": "http",
    "sse": "sse",
}
"""Name of a transport, in lower case, without `-` and `_` -> the same here."""

_APPROVAL: Final = "which calls need approval is not said here"
_TIME: Final = "clients count it in seconds or in milliseconds; the `timeout` of a tool is its deadline here"
_SHOWN: Final = "it is for people"
_EDITOR: Final = "it is the editor's own"

MEANINGLESS: Final[Mapping[str, str]] = {
    "$schema": _SHOWN,
    "alwaysAllow": _APPROVAL,
    "alwaysLoad": _EDITOR,
    "autoApprove": _APPROVAL,
    "autoStart": "a server is started when it is needed",
    "description": _SHOWN,
    "dev": _EDITOR,
    "extensionName": _EDITOR,
    "fromGalleryId": _EDITOR,
    "gallery": _EDITOR,
    "icon": _SHOWN,
    "iconPath": _SHOWN,
    "initTimeout": _TIME,
    "metadata": _SHOWN,
    "name": _SHOWN,
    "sandbox": _EDITOR,
    "sandboxEnabled": _EDITOR,
    "source": _EDITOR,
    "startupTimeout": _TIME,
    "timeout": _TIME,
    "title": _SHOWN,
    "trust": _APPROVAL,
    "version": _SHOWN,
    "watchPaths": _EDITOR,
}
"""Keys without which a server is the same -> why they have no meaning here."""

MISSED: Final[Mapping[str, str]] = {
    "auth": "write `auth` of this server under `servers` in `toolcrib.yaml`",
    "authProviderType": "write `auth` of this server under `servers` in `toolcrib.yaml`",
    "envFile": "put what the file says into the environment, and name it in `env`: `${NAME}`",
    "headersHelper": "write `auth` of this server under `servers` in `toolcrib.yaml`",
    "oauth": "write `auth` of this server under `servers` in `toolcrib.yaml`",
}
"""Keys that a server may not work without -> what to write instead."""

FOLDERS: Final = frozenset(
    {
        ".amazonq",
        ".claude",
        ".copilot",
        ".cursor",
        ".gemini",
        ".github",
        ".kiro",
        ".roo",
        ".vscode",
        ".windsurf",
        ".zed",
    }
)
"""Folders that a client keeps for itself in a workspace: paths in its files are relative to the folder above."""


_LOOK_UP: Final = re.compile(r"\$\{([^{}]*)\}")
_BARE: Final = re.compile(r"\$([A-Z_][A-Z0-9_]*)")
"""A whole text by which Gemini CLI and Copilot mean a variable."""

_FOLDER: Final = re.compile(r"workspace(?:Folder|Root)(?::.*)?")
_SEPARATORS: Final = frozenset({"pathSeparator", "/"})


class VariableTranslation:
    """Translates the texts of one file, and knows what its user is asked for."""

    def __init__(self, inputs: JSON) -> None:
        """Begin.

        Args:
            inputs: What the file asks for, as VS Code writes it: `[{"id": ..., "default": ...}]`.
        """
        self._inputs = dict(_inputs_of(inputs))
        self._met: dict[str, Problem] = {}

    def ours(self, text: str, spot: ConfigPosition, *, bare: bool = False) -> str:
        """A text as we write it.

        Args:
            text: As the client has it.
            spot: Where it is written.
            bare: Whether `$VAR` as the whole text means a variable.
        """
        match = _BARE.fullmatch(text) if bare else None
        if match is not None:
            message = f"`{text}` is taken for the environment variable `{match[1]}`"
            self._note(text, spot.problem("looked_up", message, f"`${{{match[1]}}}` says so", "notice"))
            return f"${{{match[1]}}}"
        return _LOOK_UP.sub(lambda match: self._one(match, spot), text)

    def _one(self, match: re.Match[str], spot: ConfigPosition) -> str:
        inner = match[1]
        if inner.startswith("input:"):
            return self._input(inner.removeprefix("input:"), spot)
        if _FOLDER.fullmatch(inner):
            return "${workspaceFolder}"
        return "/" if inner in _SEPARATORS else match[0]

    def _input(self, name: str, spot: ConfigPosition) -> str:
        variable = re.sub(r"\W", "_", name.strip(), flags=re.ASCII).upper()
        variable = f"_{variable}" if not variable or variable[0].isdigit() else variable
        default = self._inputs.get(name)
        usable = isinstance(default, str) and default and not {"{", "}"} & {*default}
        message = f"`${{input:{excerpt(name)}}}` is asked of the user by an editor; here it is looked up in the environment as `{variable}`"
        hint = f"set `{variable}`" + (", or leave it to its default" if usable else "")
        self._note(f"input:{name}", spot.problem("looked_up", message, hint, "notice"))
        return f"${{{variable}:-{default}}}" if usable else f"${{{variable}}}"

    def _note(self, what: str, problem: Problem) -> None:
        self._met.setdefault(what, problem)

    def notices(self) -> list[Problem]:
        """The notices on look-ups, each once."""
        return list(self._met.values())


def _inputs_of(inputs: JSON) -> Iterator[tuple[str, JSON]]:
    for entry in inputs if isinstance(inputs, list) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("id"), str):
            yield str(entry["id"]), entry.get("default")


class _KeyWithoutMeaning(NamedTuple):
    """Keys of one name that have no meaning here: where the first of them is, and whose they are."""

    spot: ConfigPosition
    servers: list[str]


_FLAGS: Final = ("disabled", "enabled")
_NONE: Final = object()


class ServerEntries:
    """Reads the servers of one file.

    Attributes:
        left_out: The names of servers that are switched off or can't be used; each is reported.
    """

    def __init__(self, root: str, inputs: JSON) -> None:
        """Begin.

        Args:
            root: The folder that paths in the file are relative to.
            inputs: What the file asks its user for, as VS Code writes it.
        """
        self._root = root
        self._look_ups = VariableTranslation(inputs)
        self._foreign: dict[str, _KeyWithoutMeaning] = {}
        self._problems: list[Problem] = []
        self.left_out: set[str] = set()

    def problems(self) -> list[Problem]:
        """Everything that was wrong, and one notice for each key that has no meaning here."""
        told = [_of_foreign(key, spot, servers) for key, (spot, servers) in self._foreign.items()]
        return [*self._problems, *told, *self._look_ups.notices()]

    def read(self, entries: JSON, spot: ConfigPosition) -> Iterator[tuple[str, ServerBlock]]:
        """The servers under one key, by name, without those that are switched off or can't be used."""
        if isinstance(entries, dict):
            named = [(name, spot.below(name), entry) for name, entry in entries.items()]
        elif isinstance(entries, list):
            named = [(_name_in(entry), spot.below(at), entry) for at, entry in enumerate(entries)]
        else:
            self._unfit(spot, "an object of servers", entries)
            return
        for name, place, entry in named:
            self.left_out.add(name)
            if not name.strip():
                self._complain(place, "missing_key", "a server needs a name", "write it before the server")
            elif not isinstance(entry, dict):
                self._unfit(place, "an object", entry)
            elif entry.get("disabled") is True or entry.get("enabled") is False:
                message = f"`{excerpt(name)}` is switched off in this file, and left out"
                self._complain(place, "server_left_out", message, severity="notice")
            else:
                written = self._server(name, entry, place)
                if written is not None:
                    self.left_out.discard(name)
                    yield name, written

    def _server(self, name: str, entry: Mapping[str, JSON], spot: ConfigPosition) -> ServerBlock | None:
        """One server; None where it can't be used, which is reported."""
        told = len(self._problems)
        said: dict[str, Any] = {}
        spots = {"": spot}
        for key, value in entry.items():
            meaning, place = SPELLINGS.get(key), spot.below(key)
            if meaning is None:
                self._foreign.setdefault(key, _KeyWithoutMeaning(place, [])).servers.append(name)
                continue
            found: Any = self._value(meaning, value, place) if value is not None else _NONE
            if found is _NONE:
                continue
            if said.setdefault(meaning, found) != found:
                other = spots[meaning].pointer.rpartition("/")[2]
                self._complain(
                    place,
                    "contradiction",
                    f"`{key}` says something else than `{other}`",
                    "leave out one of them",
                )
            spots.setdefault(meaning, place)
            if meaning in {"env", "headers"}:
                spots |= {f"{meaning}.{each}": place.below(each) for each in found}
        if len(self._problems) > told:
            return None
        _settle(said, spots)
        self._drop_needless(said, spots)
        return ServerBlock(name, said, spots, self._root)

    def _drop_needless(self, said: dict[str, Any], spots: dict[str, ConfigPosition]) -> None:
        """Leave out what such a server has no use for; clients write it and pass over it."""
        if ("url" in said) == ("command" in said):
            return
        for key in ("args", "env", "cwd") if "url" in said else ("headers",):
            if key not in said:
                continue
            if said.pop(key):
                kind = "with a `url`" if "url" in said else "that is started"
                message = f"`{key}` has no effect on a server {kind}, and is left out"
                self._complain(spots[key], "client_key", message, severity="notice")
            for each in [each for each in spots if each.partition(".")[0] == key]:
                del spots[each]

    def _value(self, meaning: str, value: JSON, spot: ConfigPosition) -> Any:
        """The value of a key as we write it; `_NONE` where it is wrong, which is reported."""
        if meaning in _FLAGS:
            return _NONE if isinstance(value, bool) else self._unfit(spot, "true or false", value)
        if meaning in {"env", "headers"}:
            return self._texts_by_name(value, spot)
        if meaning == "transport":
            return self._transport(value, spot)
        if meaning in {"args", "only", "except"} or (meaning == "command" and isinstance(value, list)):
            return self._texts(value, spot)
        return self._text(value, spot)

    def _texts(self, value: JSON, spot: ConfigPosition) -> Any:
        if not isinstance(value, list):
            return self._unfit(spot, "a list of texts", value)
        texts = [self._text(item, spot.below(at)) for at, item in enumerate(value)]
        return _NONE if _NONE in texts else texts

    def _texts_by_name(self, value: JSON, spot: ConfigPosition) -> Any:
        """Names and texts; what is null is not there."""
        if not isinstance(value, dict):
            return self._unfit(spot, "an object of texts", value)
        texts = {
            name: self._text(item, spot.below(name), bare=True)
            for name, item in value.items()
            if item is not None
        }
        return _NONE if _NONE in texts.values() else texts

    def _text(self, value: JSON, spot: ConfigPosition, *, bare: bool = False) -> Any:
        if isinstance(value, str):
            return self._look_ups.ours(value, spot, bare=bare)
        return (
            json.dumps(value) if isinstance(value, bool | int | float) else self._unfit(spot, "a text", value)
        )

    def _transport(self, value: JSON, spot: ConfigPosition) -> Any:
        if not isinstance(value, str):
            return self._unfit(spot, "a text", value)
        known = TRANSPORTS.get(value.lower().replace("-", "").replace("_", ""))
        if known is not None:
            return known
        message = f"there is no transport `{excerpt(value)}` here, so this server is left out"
        hint = did_you_mean(value, TRANSPORTS) or "the transports are: `stdio`, `http`, `sse`"
        self._complain(spot, "server_left_out", message, hint, severity="warning")
        return _NONE

    def _unfit(self, spot: ConfigPosition, expected: str, value: JSON) -> Any:
        """Tell that a value is of another kind than its key has. What it is may be secret, so it is not shown."""
        self._complain(spot, "wrong_type", f"expected {expected}, got {_kind_of(value)}")
        return _NONE

    def _complain(
        self, spot: ConfigPosition, code: str, message: str, hint: str = "", severity: Severity = "error"
    ) -> None:
        self._problems.append(spot.problem(code, message, hint, severity))


def _name_in(entry: JSON) -> str:
    """The name of a server in a list."""
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else ""


def _settle(said: dict[str, Any], spots: dict[str, ConfigPosition]) -> None:
    """Join what clients write separately and `servers` has as one key, and the other way round."""
    if isinstance(said.get("command"), list):
        first, *others = said["command"] or [""]
        said["command"], said["args"] = first, [*others, *said.get("args", ())]
    if "url" in said and "transport" not in said and urlsplit(said["url"]).path.endswith("/sse"):
        said["transport"] = "sse"  # so they were called, and clients found out by asking
    for key in ("command", "url", "cwd"):
        if not said.get(key):
            said.pop(key, None)
    if not said.get("args"):
        said.pop("args", None)
    chosen = {key: said.pop(key) for key in ("only", "except") if key in said}
    said["import"] = chosen or True
    if chosen:
        spots["import"] = spots[next(iter(chosen))]


def _kind_of(value: JSON) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    return {bool: "true or false", type(None): "null", str: "a text"}.get(type(value), "a number")


def _of_foreign(key: str, spot: ConfigPosition, servers: list[str]) -> Problem:
    """The problem for a key without a meaning here, reported once for a file."""
    whose = ", ".join(f"`{excerpt(name)}`" for name in servers[:3]) + (" ..." if len(servers) > 3 else "")
    message = f"`{excerpt(key)}` of {whose} has no meaning here"
    if key in MISSED:
        return spot.problem(
            "client_key", f"{message}, and without it the server may refuse", MISSED[key], "warning"
        )
    if key in MEANINGLESS:
        return spot.problem("client_key", f"{message}: {MEANINGLESS[key]}", severity="notice")
    return spot.problem("client_key", message, did_you_mean(key, SPELLINGS), "notice")


FOUND: Final = "servers_file"
"""Code of the notice for such a file in a folder that is scanned."""

_YAML: Final = (".yaml", ".yml")
_KEYS: Final = (("mcpServers",), ("servers",), ("mcp", "servers"), ("context_servers",))
"""Where servers stand: `mcp.servers` in the settings of VS Code, `context_servers` in those of Zed."""

_OURS: Final = frozenset({"name", "scenario", "function", "kind", "project", "pack"})
"""A document with one of these at the top is something else, whatever it calls `servers`."""


def looks_like_servers_file(value: JSON) -> bool:
    """Whether a document is one that names MCP servers."""
    if not isinstance(value, dict) or not _OURS.isdisjoint(value):
        return False
    if isinstance(value.get("mcpServers"), dict | list):
        return True
    if "servers" in value and not value.keys() <= _BESIDE:
        return False
    return any(_holds_servers(entries) for _steps, entries in _places(value))


_BESIDE: Final = frozenset({"$schema", "inputs", "sandbox", "servers"})
"""What stands beside `servers` in a file of VS Code; many other files have servers of some kind."""


def _holds_servers(entries: JSON) -> bool:
    return isinstance(entries, dict) and all(
        isinstance(entry, dict) and not _TELLING.isdisjoint(entry) for entry in entries.values()
    )


_TELLING: Final = frozenset({"command", "url"})


def is_servers_file(path: str) -> bool:
    """Whether a path is a file that names MCP servers. Nothing but a file is read, and no more of it than need be."""
    if not os.path.isfile(path):
        return False
    try:
        text = first_bytes(path)
    except (OSError, ValueError):
        return False
    if b"ervers" not in text:
        return False
    documents, _problems = _parsed(path, text)
    return any(looks_like_servers_file(document.value) for document in documents)


def read_servers_file(path: str, named: ConfigPosition | None = None) -> ServerFile:
    """Read a client's file.

    Args:
        path: The file.
        named: Where it is named; a file that is not there is a problem of that place.
    """
    try:
        text = first_bytes(path)
    except (OSError, ValueError) as error:
        return ServerFile([_unreadable(path, error, named)], unread=True)
    document, problems = single_document(path, *_parsed(path, text), "servers file", _WAY)
    if document is None:
        return ServerFile(problems, unread=True)
    found = _servers_of(document, path)
    return found._replace(problems=[*problems, *found.problems])


def _first_line(_pointer: str, *, key: bool = False) -> tuple[int, int]:  # noqa: ARG001 -- a `Locate`
    return 1, 1


def _parsed(path: str, text: bytes) -> tuple[list[Document], list[Problem]]:
    """The one document of the file: JSON with comments, or YAML where the file is called so."""
    if path.lower().endswith(_YAML):
        return parse_documents(path, text)
    documents, problems = parse_documents(path, without_comments(text), whole=True, json=True)
    return documents, [_with_our_hint(problem) for problem in problems]


def _with_our_hint(problem: Problem) -> Problem:
    if problem.code != "invalid_json":
        return problem
    hint = "JSON has double quotes; comments, and a comma before a closing bracket, are taken here"
    return problem._replace(hint=hint)


def _unreadable(path: str, error: OSError | ValueError, named: ConfigPosition | None) -> Problem:
    spot = named or ConfigPosition(path, "", _first_line)
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        hint = "the path is relative to the folder of the project" if named is not None else ""
        return spot.problem("path_not_found", f"no file `{excerpt(path)}`", hint)
    reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return spot.problem("file_unreadable", f"cannot read `{excerpt(path)}`: {reason}")


def _places(value: Mapping[str, JSON]) -> Iterator[tuple[tuple[str, ...], JSON]]:
    """The places in a document that may hold servers, as far as they exist."""
    for steps in _KEYS:
        found: JSON = dict(value)
        for step in steps:
            found = found.get(step) if isinstance(found, dict) else None
        if found is not None:
            yield steps, found


def _servers_of(document: Document, path: str) -> ServerFile:
    top = ConfigPosition(path, "", document.position)
    value = document.value
    places = list(_places(value)) if isinstance(value, dict) else []
    if not isinstance(value, dict) or not places:
        return ServerFile([_no_servers(top)], unread=True)
    entries = ServerEntries(root_of(path), value.get("inputs", []))
    several = [dict(entries.read(found, top.below(*steps))) for steps, found in reversed(places)]
    written, faults = merge_servers(several)
    others = _others(value, [steps[0] for steps, _ in places], top)
    problems = [*entries.problems(), *faults, *others]
    return ServerFile(problems, written, frozenset(entries.left_out - written.keys()))


def _others(value: Mapping[str, JSON], known: list[str], top: ConfigPosition) -> Iterator[Problem]:
    """The one notice for everything else in the file."""
    others = [key for key in value if key not in {*known, *_BESIDE}]
    if others:
        names = ", ".join(f"`{excerpt(key)}`" for key in others[:5]) + (" ..." if len(others) > 5 else "")
        message = f"{names} {'has' if len(others) == 1 else 'have'} no meaning here; the servers are read"
        yield top.below(others[0]).problem("client_key", message, severity="notice")


def _no_servers(spot: ConfigPosition) -> Problem:
    message = "the file names no MCP servers"
    return spot.problem("no_servers", message, _WAY)


_WAY: Final = 'write `{"mcpServers": {"NAME": {"command": "..."}}}`'


def root_of(path: str) -> str:
    """The folder that paths in the file are relative to: its own, or the one above a folder that a client keeps."""
    folder = Path(whole_path(os.path.dirname(path) or "."))
    kept = folder.parent if folder.name == "settings" else folder
    return str(kept.parent if kept.name in FOLDERS else folder)


def notice_of(path: str) -> Problem:
    """The notice for a file that names servers in a scanned folder: nothing in it is started."""
    message = "the file names MCP servers, and none of them is used"
    name = excerpt(os.path.basename(path), 200)
    hint = f"to use them, name the file in `toolcrib.yaml`, relative to that: `servers_from: {name}`"
    notice = Problem(code=FOUND, message=message, hint=hint, severity="notice")
    return notice.at(path, 1, 1)
