"""Read the server files of MCP clients: `mcpServers` of Claude, Cursor and others, `servers` of VS Code.

The tables below map the keys, transports and folders of the clients to ours. The result has the form of
`servers` in a project, and `loading.servers` checks it in the same way. The file belongs to another program,
so a key that has no meaning here is reported once and is not an error.

`${VAR}`, `${VAR:-default}` and `${env:VAR}` mean the same here. Values that an editor asks its user for
(`${input:id}`) are looked up in the environment. Variables for the workspace mean the folder that paths are
relative to.
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
"""Key of a client -> our key. `serverUrl` is from Windsurf; `httpUrl`, `includeTools` and `excludeTools` are from
Gemini CLI; `tools` is from Copilot; several clients have `disabledTools`."""

TRANSPORTS: Final[Mapping[str, str]] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamablehttp": "http",
    "remote": "http",
    "sse": "sse",
}
"""Name of a transport in lower case, without `-` and `_` -> our name."""

_APPROVAL: Final = "approvals are configured elsewhere"
_TIME: Final = "clients disagree on its unit; set `timeout` of a tool instead"
_SHOWN: Final = "it is only displayed"
_EDITOR: Final = "only the editor uses it"

MEANINGLESS: Final[Mapping[str, str]] = {
    "$schema": _SHOWN,
    "alwaysAllow": _APPROVAL,
    "alwaysLoad": _EDITOR,
    "autoApprove": _APPROVAL,
    "autoStart": "servers start when they are needed",
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
"""Keys that do not change a server -> why they are ignored."""

MISSED: Final[Mapping[str, str]] = {
    "auth": "set `auth` of this server under `servers` in `toolcrib.yaml`",
    "authProviderType": "set `auth` of this server under `servers` in `toolcrib.yaml`",
    "envFile": "export its variables, and pass them in `env`: `${NAME}`",
    "headersHelper": "set `auth` of this server under `servers` in `toolcrib.yaml`",
    "oauth": "set `auth` of this server under `servers` in `toolcrib.yaml`",
}
"""Keys that a server may need -> what to configure instead."""

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
"""Folders of clients in a workspace. Paths in their files are relative to the parent folder."""


_LOOK_UP: Final = re.compile(r"\$\{([^{}]*)\}")
_BARE: Final = re.compile(r"\$([A-Z_][A-Z0-9_]*)")
"""A value that is a variable as a whole, in Gemini CLI and Copilot."""

_FOLDER: Final = re.compile(r"workspace(?:Folder|Root)(?::.*)?")
_SEPARATORS: Final = frozenset({"pathSeparator", "/"})


class VariableTranslation:
    """Translates the variables in the texts of one file."""

    def __init__(self, inputs: JSON) -> None:
        """Prepare the translation.

        Args:
            inputs: The file's inputs in the form of VS Code: `[{"id": ..., "default": ...}]`.
        """
        self._inputs = dict(_inputs_of(inputs))
        self._met: dict[str, Problem] = {}

    def ours(self, text: str, spot: ConfigPosition, *, bare: bool = False) -> str:
        """Translate a text.

        Args:
            text: The client's text.
            spot: Its position.
            bare: Whether `$VAR` as the whole text is a variable.
        """
        match = _BARE.fullmatch(text) if bare else None
        if match is not None:
            message = f"`{text}` is read as the environment variable `{match[1]}`"
            self._note(text, spot.problem("looked_up", message, f"use `${{{match[1]}}}`", "notice"))
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
        # A default with braces would end the `${...:-default}` that it is put into.
        usable = isinstance(default, str) and default and not {"{", "}"} & {*default}
        message = f"`${{input:{excerpt(name)}}}` is a prompt of an editor; here, the environment variable `{variable}` is used"
        hint = f"set `{variable}`" + (", or rely on its default" if usable else "")
        self._note(f"input:{name}", spot.problem("looked_up", message, hint, "notice"))
        return f"${{{variable}:-{default}}}" if usable else f"${{{variable}}}"

    def _note(self, what: str, problem: Problem) -> None:
        self._met.setdefault(what, problem)

    def notices(self) -> list[Problem]:
        """The notices on variables, each once."""
        return list(self._met.values())


def _inputs_of(inputs: JSON) -> Iterator[tuple[str, JSON]]:
    for entry in inputs if isinstance(inputs, list) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("id"), str):
            yield str(entry["id"]), entry.get("default")


class _KeyWithoutMeaning(NamedTuple):
    """A key without a meaning here: the position of the first one, and the servers that have it."""

    spot: ConfigPosition
    servers: list[str]


_FLAGS: Final = ("disabled", "enabled")
_NONE: Final = object()


class ServerEntries:
    """Reads the servers of one file.

    Attributes:
        left_out: Names of servers that are disabled or unusable; each is reported.
    """

    def __init__(self, root: str, inputs: JSON) -> None:
        """Prepare to read.

        Args:
            root: The folder that paths in the file are relative to.
            inputs: The file's inputs in the form of VS Code.
        """
        self._root = root
        self._look_ups = VariableTranslation(inputs)
        self._foreign: dict[str, _KeyWithoutMeaning] = {}
        self._problems: list[Problem] = []
        self.left_out: set[str] = set()

    def problems(self) -> list[Problem]:
        """All problems, and one notice per key that has no meaning here."""
        told = [_of_foreign(key, spot, servers) for key, (spot, servers) in self._foreign.items()]
        return [*self._problems, *told, *self._look_ups.notices()]

    def read(self, entries: JSON, spot: ConfigPosition) -> Iterator[tuple[str, ServerBlock]]:
        """The servers under one key by name, except disabled and unusable ones."""
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
                self._complain(place, "missing_key", "a server needs a name", "use the name as its key")
            elif not isinstance(entry, dict):
                self._unfit(place, "an object", entry)
            elif entry.get("disabled") is True or entry.get("enabled") is False:
                message = f"`{excerpt(name)}` is disabled in this file and ignored"
                self._complain(place, "server_left_out", message, severity="notice")
            else:
                written = self._server(name, entry, place)
                if written is not None:
                    self.left_out.discard(name)
                    yield name, written

    def _server(self, name: str, entry: Mapping[str, JSON], spot: ConfigPosition) -> ServerBlock | None:
        """One server; None if it is unusable, which is reported."""
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
            # Several spellings mean the same key; a file with two of them is ambiguous unless they agree.
            if said.setdefault(meaning, found) != found:
                other = spots[meaning].pointer.rpartition("/")[2]
                self._complain(
                    place,
                    "contradiction",
                    f"`{key}` contradicts `{other}`",
                    "remove one of them",
                )
            spots.setdefault(meaning, place)
            if meaning in {"env", "headers"}:
                spots |= {f"{meaning}.{each}": place.below(each) for each in found}
        # A server that is only half understood could be started with the wrong arguments or without its
        # environment.
        if len(self._problems) > told:
            return None
        _settle(said, spots)
        self._drop_needless(said, spots)
        return ServerBlock(name, said, spots, self._root)

    def _drop_needless(self, said: dict[str, Any], spots: dict[str, ConfigPosition]) -> None:
        """Drop keys that have no effect on a server of this kind: clients write them and ignore them."""
        if ("url" in said) == ("command" in said):
            return
        for key in ("args", "env", "cwd") if "url" in said else ("headers",):
            if key not in said:
                continue
            if said.pop(key):
                kind = "with a `url`" if "url" in said else "that is started"
                message = f"`{key}` has no effect on a server {kind} and is ignored"
                self._complain(spots[key], "client_key", message, severity="notice")
            for each in [each for each in spots if each.partition(".")[0] == key]:
                del spots[each]

    def _value(self, meaning: str, value: JSON, spot: ConfigPosition) -> Any:
        """The value of a key in our form; `_NONE` if it is invalid, which is reported."""
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
        """A mapping of names to texts, without nulls."""
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
        message = f"unknown transport `{excerpt(value)}`; the server is ignored"
        hint = did_you_mean(value, TRANSPORTS) or "use `stdio`, `http` or `sse`"
        self._complain(spot, "server_left_out", message, hint, severity="warning")
        return _NONE

    def _unfit(self, spot: ConfigPosition, expected: str, value: JSON) -> Any:
        """Report a value of the wrong type. The value itself may be a secret and is not shown."""
        self._complain(spot, "wrong_type", f"expected {expected}, got {_kind_of(value)}")
        return _NONE

    def _complain(
        self, spot: ConfigPosition, code: str, message: str, hint: str = "", severity: Severity = "error"
    ) -> None:
        self._problems.append(spot.problem(code, message, hint, severity))


def _name_in(entry: JSON) -> str:
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else ""


def _settle(said: dict[str, Any], spots: dict[str, ConfigPosition]) -> None:
    """Convert keys that clients split or join differently from `servers`."""
    if isinstance(said.get("command"), list):
        first, *others = said["command"] or [""]
        said["command"], said["args"] = first, [*others, *said.get("args", ())]
    if "url" in said and "transport" not in said and urlsplit(said["url"]).path.endswith("/sse"):
        said["transport"] = "sse"  # the customary path; clients find out by trying
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
    """The problem for a key without a meaning here."""
    whose = ", ".join(f"`{excerpt(name)}`" for name in servers[:3]) + (" ..." if len(servers) > 3 else "")
    message = f"`{excerpt(key)}` of {whose} is ignored"
    if key in MISSED:
        return spot.problem(
            "client_key", f"{message}, but the server may not work without it", MISSED[key], "warning"
        )
    if key in MEANINGLESS:
        return spot.problem("client_key", f"{message}: {MEANINGLESS[key]}", severity="notice")
    return spot.problem("client_key", message, did_you_mean(key, SPELLINGS), "notice")


FOUND: Final = "servers_file"
"""Code of the notice about a server file in a scanned folder."""

_YAML: Final = (".yaml", ".yml")
_KEYS: Final = (("mcpServers",), ("servers",), ("mcp", "servers"), ("context_servers",))
"""Paths to the servers: `mcp.servers` in the settings of VS Code, `context_servers` in those of Zed."""

_OURS: Final = frozenset({"name", "scenario", "function", "kind", "project", "pack"})
"""A document with one of these top-level keys is never a server file."""


def looks_like_servers_file(value: JSON) -> bool:
    """Whether a document defines MCP servers."""
    if not isinstance(value, dict) or not _OURS.isdisjoint(value):
        return False
    # No other format uses this key, so an empty one counts as well.
    if isinstance(value.get("mcpServers"), dict | list):
        return True
    if "servers" in value and not value.keys() <= _BESIDE:
        return False
    return any(_holds_servers(entries) for _steps, entries in _places(value))


_BESIDE: Final = frozenset({"$schema", "inputs", "sandbox", "servers"})
"""The keys of a VS Code file. Many other files have `servers` of some kind, together with other keys."""


def _holds_servers(entries: JSON) -> bool:
    return isinstance(entries, dict) and all(
        isinstance(entry, dict) and not _TELLING.isdisjoint(entry) for entry in entries.values()
    )


_TELLING: Final = frozenset({"command", "url"})


def is_servers_file(path: str) -> bool:
    """Whether a path is a file that defines MCP servers."""
    if not os.path.isfile(path):
        return False
    try:
        # Scanning must be cheap: only the beginning is read, and most files end at the test for `ervers`,
        # which covers `servers` and `mcpServers`.
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
        named: Where the project refers to it; a missing file is a problem of that position.
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
    """The document of the file: JSON with comments, or YAML according to its suffix."""
    if path.lower().endswith(_YAML):
        return parse_documents(path, text)
    # VS Code and Zed allow comments and trailing commas in their JSON files.
    documents, problems = parse_documents(path, without_comments(text), whole=True, json=True)
    return documents, [_with_our_hint(problem) for problem in problems]


def _with_our_hint(problem: Problem) -> Problem:
    if problem.code != "invalid_json":
        return problem
    hint = "use double quotes; comments and trailing commas are allowed here"
    return problem._replace(hint=hint)


def _unreadable(path: str, error: OSError | ValueError, named: ConfigPosition | None) -> Problem:
    spot = named or ConfigPosition(path, "", _first_line)
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        hint = "the path is relative to the folder of the project" if named is not None else ""
        return spot.problem("path_not_found", f"file `{excerpt(path)}` not found", hint)
    reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    return spot.problem("file_unreadable", f"cannot read `{excerpt(path)}`: {reason}")


def _places(value: Mapping[str, JSON]) -> Iterator[tuple[tuple[str, ...], JSON]]:
    """The existing values in a document that may contain servers."""
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
    # Reversed: the last definition of a server wins, and `mcpServers` is the most specific key.
    several = [dict(entries.read(found, top.below(*steps))) for steps, found in reversed(places)]
    written, faults = merge_servers(several)
    others = _others(value, [steps[0] for steps, _ in places], top)
    problems = [*entries.problems(), *faults, *others]
    return ServerFile(problems, written, frozenset(entries.left_out - written.keys()))


def _others(value: Mapping[str, JSON], known: list[str], top: ConfigPosition) -> Iterator[Problem]:
    """One notice for all other keys of the file."""
    others = [key for key in value if key not in {*known, *_BESIDE}]
    if others:
        names = ", ".join(f"`{excerpt(key)}`" for key in others[:5]) + (" ..." if len(others) > 5 else "")
        message = f"{names} {'is' if len(others) == 1 else 'are'} ignored; the servers are read"
        yield top.below(others[0]).problem("client_key", message, severity="notice")


def _no_servers(spot: ConfigPosition) -> Problem:
    message = "the file defines no MCP servers"
    return spot.problem("no_servers", message, _WAY)


_WAY: Final = 'use `{"mcpServers": {"NAME": {"command": "..."}}}`'


def root_of(path: str) -> str:
    """The folder that paths in the file are relative to: its own, or the workspace above a client's folder."""
    folder = Path(whole_path(os.path.dirname(path) or "."))
    kept = folder.parent if folder.name == "settings" else folder
    return str(kept.parent if kept.name in FOLDERS else folder)


def notice_of(path: str) -> Problem:
    """The notice about a server file in a scanned folder, from which nothing is started."""
    message = "the file defines MCP servers, but none of them is used"
    name = excerpt(os.path.basename(path), 200)
    hint = f"to use them, add `servers_from: {name}` to `toolcrib.yaml` (the path is relative to that file)"
    notice = Problem(code=FOUND, message=message, hint=hint, severity="notice")
    return notice.at(path, 1, 1)
