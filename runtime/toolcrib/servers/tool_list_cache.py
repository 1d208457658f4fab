"""Cache the tool lists of MCP servers for commands that only list, and start or contact no server.

An entry belongs to one server configuration: a different command, URL or environment is a different entry. Entries are
only displayed; before a call, the server lists its tools itself.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from toolcrib.core.server_config import Catalogue, Server
from toolcrib.core.text import canonical
from toolcrib.core.user_folders import cache_folder, find_work_tree, why_unused

_FORMAT = 2
_LARGEST = 32 << 20
_MOST = 256
"""Maximum number of entries; the oldest are removed."""


class CachedToolLists(NamedTuple):
    """Cached tool lists.

    Attributes:
        offered: Server name -> its cached catalogue.
        when: Server name -> time of the list, ISO 8601 in UTC.
    """

    offered: Mapping[str, Catalogue]
    when: Mapping[str, str]


def save_tool_list(server: Server, catalogue: Catalogue, when: str) -> None:
    """Cache the tool list of a server. A failure to write is only logged.

    Args:
        server: The server.
        catalogue: Its tools, with secrets masked.
        when: Time of the list, ISO 8601 in UTC.
    """
    folder = _folder()
    if not folder:
        return
    told = {"format": _FORMAT, "key": _key(server), "when": when, "catalogue": _plain(catalogue)}
    path = os.path.join(folder, f"{_key(server)}.json")
    draft = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        # A reader never sees a half-written entry, and two processes never write the same draft.
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(handle, "w", encoding="utf-8") as file:
            json.dump(told, file)
        os.replace(draft, path)
        _tidy(folder)
    except (OSError, ValueError, TypeError) as error:
        _log_unkept(error)


def load_tool_lists(servers: Iterable[Server]) -> CachedToolLists:
    """The cached tool lists of servers. Servers without a usable entry are omitted."""
    folder = _folder()
    offered: dict[str, Catalogue] = {}
    when: dict[str, str] = {}
    for server in servers if folder else ():
        try:
            with open(os.path.join(folder, f"{_key(server)}.json"), "rb") as file:
                told = json.loads(file.read(_LARGEST))
            if told["format"] == _FORMAT and told["key"] == _key(server):
                offered[server.name] = _catalogue(server, told["catalogue"])
                when[server.name] = str(told["when"])
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue  # a missing or corrupt entry is a cache miss
    return CachedToolLists(offered, when)


def _folder() -> str:
    """The cache folder; empty if caching is not possible."""
    top = cache_folder()
    if top is None:
        return ""
    folder = os.path.join(top, "catalogues")
    # Inside a work tree, entries could be committed, or a cloned repository could bring forged ones.
    return "" if why_unused(folder) or find_work_tree(folder) else folder


def _key(server: Server) -> str:
    """The cache key: a hash of the whole configuration except the source positions."""
    told: dict[str, Any] = {**server._asdict(), "root": os.path.realpath(server.root), "places": None}
    plain = {key: dict(value) if isinstance(value, Mapping) else value for key, value in told.items()}
    return hashlib.sha256(canonical(json.loads(json.dumps(plain))).encode()).hexdigest()[:40]


def _plain(catalogue: Catalogue) -> dict[str, Any]:
    return {
        key: dict(value) if isinstance(value, Mapping) else value
        for key, value in catalogue._asdict().items()
    }


def _catalogue(server: Server, said: dict[str, Any]) -> Catalogue:
    return Catalogue(
        server.name,
        {str(name): dict(tool) for name, tool in said["tools"].items()},
        {str(name): str(why) for name, why in said["refused"].items()},
        tuple(map(str, said["remarks"])),
        {str(key): str(text) for key, text in said["info"].items()},
        {str(name): str(url) for name, url in said["agents"].items()},
    )


def _tidy(folder: str) -> None:
    """Remove the oldest entries."""
    with os.scandir(folder) as entries:
        files = sorted((entry.stat().st_mtime, entry.path) for entry in entries if entry.is_file())
    for _when, path in files[:-_MOST]:
        os.unlink(path)


def _log_unkept(error: Exception) -> None:
    import logging  # noqa: PLC0415 -- only a failed write needs it

    logging.getLogger("toolcrib").debug("cannot cache the tool list of a server: %s", error)
