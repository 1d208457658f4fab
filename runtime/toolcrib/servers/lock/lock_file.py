"""The file of a lock: `toolcrib.lock`, the same bytes for the same contents.

It is read strictly. What somebody has edited by hand, merged badly or cut off is told, and nothing of it is believed:
a lock that is half right protects nobody.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.pointers import keys_of, pointer_to
from toolcrib.core.text import decode_json
from toolcrib.servers.lock.locked_definitions import (
    KEPT,
    SAID_OF_SERVERS,
    LockedServer,
    LockedTool,
    digest,
    hash_of,
)

VERSION: Final = 1
"""Of the form of the file."""

LARGEST: Final = 64 * 1024 * 1024
"""Bytes of a file that is read; thousands of large tools are less."""

_BLANKS: Final = " \t\r\n"
_ANEW: Final = "take it from version control again, or run `toolcrib lock --update` to write it anew from what the servers say now"


def text_of(servers: Mapping[str, LockedServer]) -> str:
    """The whole text of a lock."""
    told = {
        name: {
            "endpoint": {"hash": digest(dict(server.endpoint)), **server.endpoint},
            "info": dict(server.info),
            "tools": {tool: {"hash": each.hash, **each.definition} for tool, each in server.tools.items()},
        }
        for name, server in servers.items()
    }
    whole = {"version": VERSION, "servers": told}
    return json.dumps(whole, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def read_servers(path: Path, shown: str) -> tuple[dict[str, LockedServer] | None, list[Problem]]:
    """The servers of the file of a lock, and what is wrong with it: nothing is taken of one with a fault.

    Args:
        path: Where it lies.
        shown: What it is called in problems.

    Returns:
        None where there is no file, or it has a fault.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        return None, []
    except OSError as error:
        return None, [Problem(code="file_unreadable", message=error.strerror or str(error), source=shown)]
    if len(data) > LARGEST:
        message = f"a lock has at most {LARGEST:,} bytes"
        return None, [Problem(code="too_large", message=message, hint=_ANEW, source=shown)]
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"byte {error.start + 1} is not UTF-8"
        return None, [Problem(code="invalid_utf8", message=message, hint=_ANEW, source=shown)]
    return parse_servers(text, shown)


def parse_servers(text: str, shown: str) -> tuple[dict[str, LockedServer] | None, list[Problem]]:
    """The servers of the text of a lock, and what is wrong with it, as `read_servers` gives them."""
    try:
        value: Any = decode_json(text)
    except json.JSONDecodeError as error:
        problem = Problem(code="invalid_lock", message=f"it is no JSON: {error.msg}", hint=_ANEW)
        return None, [problem.at(shown, error.lineno, error.colno)]
    except (ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, ValueError) else "it is nested too deeply"
        return None, [Problem(code="invalid_lock", message=why, hint=_ANEW).at(shown, 1, 1)]
    problems = [
        problem.at(shown, *place_of(text, keys_of(problem.pointer))) for problem in _problems_of(value)
    ]
    if problems:
        return None, problems
    return {name: _server(entry) for name, entry in value["servers"].items()}, []


def _server(entry: Mapping[str, Any]) -> LockedServer:
    tools = {}
    for name, each in entry["tools"].items():
        definition = {key: each[key] for key in KEPT if key in each}
        tools[name] = LockedTool(definition, each["hash"])
    endpoint = {key: item for key, item in entry["endpoint"].items() if key != "hash"}
    return LockedServer(endpoint, tools, entry["info"])


def _problems_of(value: Any) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield Problem(code="invalid_lock", message="a lock is a JSON object", hint=_ANEW)
        return
    version = value.get("version")
    if version != VERSION or isinstance(version, bool):
        known = f"this toolcrib knows version {VERSION}"
        yield Problem(
            code="unknown_lock_version",
            message=f"the lock is of version {json.dumps(version)[:40]}; {known}",
            pointer="/version" if "version" in value else "",
            hint=f"use the toolcrib that wrote it, or {_ANEW}",
        )
        return  # another version may have other keys
    yield from _faults(value, {"version": int, "servers": dict}, ())
    servers = value.get("servers")
    for name, server in servers.items() if isinstance(servers, dict) else ():
        yield from _problems_of_server(server, ("servers", name))


def _problems_of_server(server: Any, path: tuple[str, ...]) -> Iterator[Problem]:
    if not isinstance(server, dict):
        yield _wrong("a server is an object", path)
        return
    yield from _faults(server, {"endpoint": dict, "info": dict, "tools": dict}, path)
    endpoint, info, tools = server.get("endpoint"), server.get("info"), server.get("tools")
    if isinstance(endpoint, dict):
        rest = {key: item for key, item in endpoint.items() if key != "hash"}
        yield from _hash_problem(endpoint.get("hash"), rest, digest, (*path, "endpoint"))
    for key, item in info.items() if isinstance(info, dict) else ():
        if key not in SAID_OF_SERVERS or not isinstance(item, str):
            yield _wrong(f"`{key}` is nothing that is kept here", (*path, "info", key))
    for name, tool in tools.items() if isinstance(tools, dict) else ():
        yield from _problems_of_tool(name, tool, (*path, "tools", name))


def _problems_of_tool(name: str, tool: Any, path: tuple[str, ...]) -> Iterator[Problem]:
    if not isinstance(tool, dict):
        yield _wrong("a tool is an object", path)
        return
    unknown = [key for key in tool if key not in KEPT and key != "hash"]
    for key in unknown:
        yield _wrong(f"`{key}` is no key here", (*path, key), did_you_mean(key, KEPT))
    if tool.get("name") != name:
        yield _wrong(f"the tool `{name}` has another `name`", (*path, "name"))
    if not unknown:
        yield from _hash_problem(tool.get("hash"), tool, hash_of, path)


def _hash_problem(told: Any, value: dict[str, Any], hashed: Any, path: tuple[str, ...]) -> Iterator[Problem]:
    """Whether a hash fits what it stands beside."""
    try:
        right = hashed(value) == told
    except ValueError as error:
        yield _wrong(str(error), path)
        return
    if not right:
        message = "the hash does not fit what stands beside it, so one of them was edited"
        yield Problem(code="edited_lock", message=message, pointer=pointer_to((*path, "hash")), hint=_ANEW)


def _faults(value: dict[str, Any], keys: Mapping[str, type], path: tuple[str, ...]) -> Iterator[Problem]:
    for key in value:
        if key not in keys:
            yield _wrong(f"`{key}` is no key here", (*path, key), did_you_mean(key, keys))
    for key, kind in keys.items():
        if not isinstance(value.get(key), kind):
            there = "has the wrong type" if key in value else "is missing"
            yield _wrong(f"`{key}` {there}", (*path, key) if key in value else path)


def _wrong(message: str, path: tuple[str, ...], hint: str = "") -> Problem:
    return Problem(code="invalid_lock", message=message, pointer=pointer_to(path), hint=hint or _ANEW)


def place_of(text: str, path: list[str]) -> tuple[int, int]:
    """Line and column, from 1, of the key that a path through objects leads to, or of the last one that is there."""
    at = found = _after_blanks(text, 0)
    for name in path:
        keys = _keys(text, at)
        place = next(((start, value) for key, start, value in keys if key == name), None)
        if place is None:
            break
        found, at = place
    return text.count("\n", 0, found) + 1, found - text.rfind("\n", 0, found)


def _keys(text: str, at: int) -> Iterator[tuple[str, int, int]]:
    """The keys of the object at a place: each with where it stands, and where its value does."""
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
