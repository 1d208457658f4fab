"""Pages of `tools/list`, encoded once per registry, MCP revision and toolset.

A page is the same for every client until the registry changes. The SDK would build objects of all its tools,
validate them and encode them again for each request. The result that passes through the SDK therefore
contains one placeholder instead of the tools, and `EncodedPages` replaces it with the page when the bytes are
sent. The SDK still does everything around a result; nothing of it is reimplemented here.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right, insort
from collections.abc import Callable
from copy import copy
from functools import cached_property
from secrets import token_hex
from typing import NamedTuple, TypeAlias

from toolcrib.core.model import JSON, Descriptor
from toolcrib.formats.mcp_tools import definition_of, has_output, schemas_of
from toolcrib.registry.registry import Registry
from toolcrib.serve.mcp.client_sessions import (
    OPEN_SESSION,
    Conflict,
    conflict_of,
    opening_tool,
    with_argument,
)
from toolcrib.serve.mcp.options import PAGE_BYTES, Options


class ToolPage(NamedTuple):
    """A part of the list.

    Attributes:
        data: The definitions as JSON, separated by commas, ASCII only.
        cursor: Where the next page begins; None on the last page.
    """

    data: bytes
    cursor: str | None


KeepsState: TypeAlias = Callable[[Descriptor], bool]
"""Whether calls of a tool depend on earlier calls of their session."""


class ToolListing:
    """The listed tools of a registry or of one of its toolsets, sorted by name.

    Attributes:
        registry: The registry.
        names: Names of the listed tools.
        by_handle: Names of the tools that take the handle of a session as an argument.
        conflicts: Name -> why the tool cannot be served with sessions by handle, and is therefore not listed.
    """

    def __init__(
        self, registry: Registry, toolset: str, options: Options, keeps_state: KeepsState | None = None
    ) -> None:
        """List tools.

        Args:
            registry: The current registry.
            toolset: Name of a toolset; empty for all listed tools.
            options: Page size, whether `$ref`s are inlined, and the age of sessions.
            keeps_state: Tools for which it is true take the handle of a session, which another tool opens; None if no
                tool does.
        """
        self.registry = registry
        self._options = options
        cards = registry.query(toolset=toolset or None)
        self.names = [card.name for card in cards if options.offers(card.name)]
        self.by_handle: frozenset[str] = frozenset()
        self.conflicts: dict[str, Conflict] = {}
        self._added: dict[str, Descriptor] = {}
        if keeps_state is not None:
            self._take_handles(keeps_state)
        self._encoded: dict[tuple[str, str], bytes] = {}
        self._pages: dict[tuple[str, int], ToolPage] = {}
        self._ends: set[tuple[str, int]] = set()
        self._inputs: dict[str, dict[str, JSON]] = {}
        self._outputs: dict[tuple[str, str], bool] = {}

    def of_names(self, names: list[str]) -> ToolListing:
        """The same listing with only some of its tools, sorted by name."""
        part = copy(self)
        # Definitions are shared; pages are not, since they would differ for every selection.
        vars(part).update(names=names, _pages={}, _ends=set())
        return part

    @cached_property
    def named(self) -> dict[str, str]:
        """Each name that clients may use, the tool's own or its provider-safe alias -> its own name."""
        return {self._alias_of(name): name for name in self.names} | {name: name for name in self.names}

    def _take_handles(self, keeps_state: KeepsState) -> None:
        registry = self.registry
        self.by_handle = frozenset(name for name in self.names if keeps_state(registry[name]))
        for name in self.names:
            conflict = conflict_of(
                registry[name], registry.alias_of(name), keeps_state=name in self.by_handle
            )
            if conflict is not None:
                self.conflicts[name] = conflict
        self.by_handle -= self.conflicts.keys()
        self.names = [name for name in self.names if name not in self.conflicts]
        # Without a tool that needs a session, a model would open one for nothing.
        if self.by_handle:
            self._added[OPEN_SESSION] = opening_tool(self._options.session_age)
            insort(self.names, OPEN_SESSION)

    def _alias_of(self, name: str) -> str:
        return name if name in self._added else self.registry.alias_of(name)

    def adds(self, name: str) -> bool:
        """Whether a listed tool is the server's own, and in no registry."""
        return name in self._added

    def near(self, name: str) -> list[str]:
        """Listed names similar to an unknown one."""
        registry = self.registry
        return [registry.alias_of(match) for match in registry.near(name) if match in self.named]

    def input_of(self, name: str) -> dict[str, JSON] | None:
        """The input schema as listed; None for an unknown tool."""
        own = self.named.get(name)
        if own is None:
            return None
        if own not in self._inputs:
            schema = schemas_of(self._tool(own), inline_refs=self._options.inline_refs).input
            self._inputs[own] = with_argument(schema) if own in self.by_handle else schema
        return self._inputs[own]

    def _tool(self, name: str) -> Descriptor:
        return self._added.get(name) or self.registry[name]

    def has_output(self, name: str, revision: str) -> bool:
        """Whether the definition of a tool declares an output schema."""
        key = (name, revision)
        if key not in self._outputs:
            tool = self._added.get(name) or self.registry.get(name)
            self._outputs[key] = tool is not None and has_output(tool, revision)
        return self._outputs[key]

    def page(self, revision: str, cursor: str | None) -> ToolPage:
        """A page of the list for an MCP revision.

        Args:
            revision: The negotiated revision.
            cursor: `nextCursor` of the previous page; None for the first.

        Raises:
            ValueError: Invalid cursor.
        """
        begin = 0 if cursor is None else bisect_right(self.names, _after(cursor))
        key = (revision, begin)
        if key in self._pages:
            return self._pages[key]
        page, end = self._made(revision, begin)
        # Clients can forge a cursor for every tool. Only pages that begin where another ended are cached, or
        # forged cursors would fill the memory.
        if begin == 0 or key in self._ends:
            self._pages[key] = page
            self._ends.add((revision, end))
        return page

    def _made(self, revision: str, begin: int) -> tuple[ToolPage, int]:
        parts: list[bytes] = []
        length = 0
        for name in self.names[begin : begin + self._options.page_tools]:
            part = self._definition(name, revision)
            length += len(part) + 1
            # A tool that is larger than a page gets a page of its own.
            if parts and length > PAGE_BYTES:
                break
            parts.append(part)
        end = begin + len(parts)
        return ToolPage(
            b",".join(parts), _cursor(self.names[end - 1]) if end < len(self.names) else None
        ), end

    def _definition(self, name: str, revision: str) -> bytes:
        key = (name, revision)
        if key not in self._encoded:
            definition = definition_of(
                self._tool(name),
                name=self._alias_of(name),
                inline_refs=self._options.inline_refs,
                revision=revision,
            )
            if name in self.by_handle:
                definition["inputSchema"] = self.input_of(name)
            # ASCII only: some clients end a line of an event stream at U+2028 or U+0085, too.
            self._encoded[key] = json.dumps(definition, separators=(",", ":")).encode()
        return self._encoded[key]


class ListingCache:
    """The listings of the current registry, of which access lets some clients see a part."""

    def __init__(self, options: Options, keeps_state: KeepsState) -> None:
        self._options = options
        self._keeps_state = keeps_state
        self._current: Registry | None = None
        self._kept: dict[tuple[int, str, bool], ToolListing] = {}

    def of(
        self, registry: Registry, toolset: str, *, by_handle: bool = False, current: Registry | None = None
    ) -> ToolListing:
        """The listing of a toolset, built once per registry.

        Args:
            registry: The tools that a client may see.
            toolset: Name of a toolset; empty for all listed tools.
            by_handle: Whether tools that keep state take the handle of a session.
            current: The current registry (default: `registry`). Another one replaces all listings.
        """
        current = registry if current is None else current
        if current is not self._current:
            self._current, self._kept = current, {}
        # A listing keeps its registry alive, so no other one can get the same id.
        key = (id(registry), toolset, by_handle)
        listing = self._kept.get(key)
        if listing is None:
            keeps_state = self._keeps_state if by_handle else None
            listing = self._kept[key] = ToolListing(registry, toolset, self._options, keeps_state)
        return listing


# A cursor is the name of the last tool on the page before. An offset would skip or repeat tools after a
# reload.


def _cursor(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode("ascii")


def _after(cursor: str) -> str:
    name = urlsafe_b64decode(cursor.encode("ascii")).decode()
    # `urlsafe_b64decode` skips characters outside its alphabet, so many texts decode to one name.
    if not name or _cursor(name) != cursor:
        raise ValueError("a cursor that was not written by `_cursor`")
    return name


PAGES = "toolcrib.pages"
"""Key of the `EncodedPages` in the scope of an HTTP request."""


class EncodedPages:
    """Placeholders for bytes that are inserted when a message is sent. Each is used once."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: dict[bytes, bytes] = {}

    def __bool__(self) -> bool:
        return bool(self._pages)

    def put(self, page: bytes) -> str:
        """Store a page and return its placeholder, to be written as a JSON string."""
        # Random, so that no description and no result can contain it.
        token = f"page-{token_hex(16)}"
        self._pages[f'"{token}"'.encode()] = page
        return token

    def into(self, data: bytes) -> bytes:
        """The encoded message with its placeholders replaced."""
        for token in [token for token in self._pages if token in data]:
            data = data.replace(token, self._pages.pop(token), 1)
        return data
