"""Pages of `tools/list`, encoded once per registry, MCP revision and toolset.

A page is the same for every client until the registry changes. The SDK would build objects of all its tools,
validate them and encode them again for each request. The result that passes through the SDK therefore
contains one placeholder instead of the tools, and `EncodedPages` replaces it with the page when the bytes are
sent. The SDK still does everything around a result; nothing of it is reimplemented here.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from functools import cached_property
from secrets import token_hex
from typing import NamedTuple

from toolcrib.core.model import JSON
from toolcrib.formats.mcp_tools import definition_of, has_output, schemas_of
from toolcrib.registry.registry import Registry
from toolcrib.serve.mcp.options import PAGE_BYTES, Options


class ToolPage(NamedTuple):
    """A part of the list.

    Attributes:
        data: The definitions as JSON, separated by commas, ASCII only.
        cursor: Where the next page begins; None on the last page.
    """

    data: bytes
    cursor: str | None


class ToolListing:
    """The listed tools of a registry or of one of its toolsets, sorted by name."""

    def __init__(self, registry: Registry, toolset: str, options: Options) -> None:
        """List tools.

        Args:
            registry: The current registry.
            toolset: Name of a toolset; empty for all listed tools.
            options: Page size, and whether `$ref`s are inlined.
        """
        self.registry = registry
        self._options = options
        self.names = [card.name for card in registry.query(toolset=toolset or None)]
        self._encoded: dict[tuple[str, str], bytes] = {}
        self._pages: dict[tuple[str, int], ToolPage] = {}
        self._ends: set[tuple[str, int]] = set()
        self._inputs: dict[str, dict[str, JSON]] = {}
        self._outputs: dict[tuple[str, str], bool] = {}

    @cached_property
    def named(self) -> dict[str, str]:
        """Each name that clients may use, the tool's own or its provider-safe alias -> its own name."""
        registry = self.registry
        return {registry.alias_of(name): name for name in self.names} | {name: name for name in self.names}

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
            tool = self.registry[own]
            self._inputs[own] = schemas_of(tool, inline_refs=self._options.inline_refs).input
        return self._inputs[own]

    def has_output(self, name: str, revision: str) -> bool:
        """Whether the definition of a tool declares an output schema."""
        key = (name, revision)
        if key not in self._outputs:
            tool = self.registry.get(name)
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
            registry = self.registry
            definition = definition_of(
                registry[name],
                name=registry.alias_of(name),
                inline_refs=self._options.inline_refs,
                revision=revision,
            )
            # ASCII only: some clients end a line of an event stream at U+2028 or U+0085, too.
            self._encoded[key] = json.dumps(definition, separators=(",", ":")).encode()
        return self._encoded[key]


class ListingCache:
    """The listings of the current registry."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._registry: Registry | None = None
        self._kept: dict[str, ToolListing] = {}

    def of(self, registry: Registry, toolset: str) -> ToolListing:
        """The listing of a toolset, built once per registry."""
        if registry is not self._registry:
            self._registry, self._kept = registry, {}
        listing = self._kept.get(toolset)
        if listing is None:
            listing = self._kept[toolset] = ToolListing(registry, toolset, self._options)
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
