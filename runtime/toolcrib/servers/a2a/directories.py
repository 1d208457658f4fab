"""Directories of agents: JSON lists of the URLs of cards. This module works without the SDK."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urljoin

from toolcrib.core.server_config import LONGEST_SERVER_NAME, SEPARATOR, Catalogue, Server
from toolcrib.core.text import decode_json, escape_terminal
from toolcrib.servers.a2a.cards import WELL_KNOWN, is_permitted, origin_of_url
from toolcrib.servers.mcp.failures import InvalidAnswer

_MOST: Final = 1000
"""Maximum number of agents in a directory."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")


def read_directory(body: bytes, directory: Server, url: str) -> Catalogue:
    """Read the list of a directory. Invalid entries become remarks; the others work.

    Args:
        body: The list: URLs of cards, or objects with `card` and `name`.
        directory: The directory.
        url: Its URL, which relative URLs in it refer to.

    Returns:
        A catalogue without tools, with `agents`.

    Raises:
        InvalidAnswer: The body is not a JSON array, or has too many entries.
    """
    try:
        entries = decode_json(body.decode())
    except (ValueError, RecursionError):
        raise InvalidAnswer("its list is not valid JSON") from None
    if not isinstance(entries, list):
        raise InvalidAnswer("its list is not a JSON array of URLs of cards")
    if len(entries) > _MOST:
        raise InvalidAnswer(f"its list has {len(entries):,} entries; the maximum is {_MOST:,}")
    reader = _ListReader(directory, url)
    return Catalogue(directory.name, agents=dict(reader.agents(entries)), remarks=tuple(reader.remarks))


class _ListReader:
    def __init__(self, directory: Server, url: str) -> None:
        self.remarks: list[str] = []
        self._directory = directory
        self._url = url

    def agents(self, entries: list[Any]) -> Iterator[tuple[str, str]]:
        """Name and URL of each valid entry."""
        own = origin_of_url(self._url)
        seen: set[str] = set()
        for place, entry in enumerate(entries):
            card, name = (entry.get("card"), entry.get("name")) if isinstance(entry, dict) else (entry, None)
            if not isinstance(card, str) or not (name is None or isinstance(name, str)):
                self._remark(place, "is neither a URL nor an object with `card` and `name`")
                continue
            target = urljoin(self._url, card)
            # `${` is not part of any URL, and would be looked up.
            if "${" in target or not origin_of_url(target):
                self._remark(place, f"is not a valid URL: `{card[:200]}`")
            elif not is_permitted(target, own, self._directory.hosts):
                origin = origin_of_url(target)
                self._remark(
                    place,
                    f"is at `{origin}`, and only `{own}` and the `hosts` of the directory are contacted",
                )
            elif name is not None and not _NAME.fullmatch(name):
                self._remark(place, f"has the name `{name[:80]}`; use letters, digits, `_` and `-`")
            else:
                whole = name_in_directory(self._directory.name, name or _name_of_url(target))
                if whole in seen:
                    self._remark(place, f"has the same name as another one, `{whole}`")
                    continue
                seen.add(whole)
                yield whole, target

    def _remark(self, place: int, what: str) -> None:
        self.remarks.append(f"entry {place + 1} of its list {escape_terminal(what)}")


def name_in_directory(directory: str, name: str) -> str:
    """Name of an agent of a directory in the project: `partners__crm`."""
    fit = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")
    return (directory + SEPARATOR + fit)[:LONGEST_SERVER_NAME]


def _name_of_url(url: str) -> str:
    """The host, the port and the path of a card, without its usual end."""
    rest = url.partition("://")[2].partition("?")[0]
    for end in (*WELL_KNOWN, ".json"):
        rest = rest.removesuffix(end)
    return rest
