"""The tools as clients list and name them: encoded once for each registry, revision of MCP and toolset.

A page of `tools/list` is the same for every client until the registry changes. The SDK would make objects of all its
tools, check them, and encode them again for each request. So the result that passes through the SDK has one text in
place of the tools, and when its bytes leave us that text is exchanged for the page (`EncodedPages`). The SDK still does all
that it does around a result, and nothing of it is rebuilt here.
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
        data: The definitions as JSON, with commas between them; ASCII, since some clients take other characters for
            ends of lines in a stream of events.
        cursor: Where the next page begins; None after the last.
    """

    data: bytes
    cursor: str | None


class ToolListing:
    """The offered tools of a registry, within a toolset or all of them, in the order of their names."""

    def __init__(self, registry: Registry, toolset: str, options: Options) -> None:
        """Tell what is offered.

        Args:
            registry: The tools in force.
            toolset: Name of a toolset; empty for everything that is offered.
            options: How pages and schemas are made.
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
        """What a client may call a tool, its own name or the one that every provider takes -> its own name."""
        registry = self.registry
        return {registry.alias_of(name): name for name in self.names} | {name: name for name in self.names}

    def near(self, name: str) -> list[str]:
        """The names, as they are listed, that a name which is not here may have meant."""
        registry = self.registry
        return [registry.alias_of(match) for match in registry.near(name) if match in self.named]

    def input_of(self, name: str) -> dict[str, JSON] | None:
        """The input schema as it is listed; None where there is no such tool."""
        own = self.named.get(name)
        if own is None:
            return None
        if own not in self._inputs:
            tool = self.registry[own]
            self._inputs[own] = schemas_of(tool, inline_refs=self._options.inline_refs).input
        return self._inputs[own]

    def has_output(self, name: str, revision: str) -> bool:
        """Whether the definition of a tool says what its structured content looks like."""
        key = (name, revision)
        if key not in self._outputs:
            tool = self.registry.get(name)
            self._outputs[key] = tool is not None and has_output(tool, revision)
        return self._outputs[key]

    def page(self, revision: str, cursor: str | None) -> ToolPage:
        """A page of the list, as a revision of MCP writes it.

        Args:
            revision: The revision that is spoken.
            cursor: Where it begins: what the page before said; None for the first.

        Raises:
            ValueError: The cursor is none of ours.
        """
        begin = 0 if cursor is None else bisect_right(self.names, _after(cursor))
        key = (revision, begin)
        if key in self._pages:
            return self._pages[key]
        page, end = self._made(revision, begin)
        # Anybody can write a cursor for each tool: what begins where no page ended is not kept, or it would fill memory.
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
            self._encoded[key] = json.dumps(definition, separators=(",", ":")).encode()
        return self._encoded[key]


class ListingCache:
    """The listings of the registry that is in force."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._registry: Registry | None = None
        self._kept: dict[str, ToolListing] = {}

    def of(self, registry: Registry, toolset: str) -> ToolListing:
        """The listing of a toolset, worked out once for each registry."""
        if registry is not self._registry:
            self._registry, self._kept = registry, {}
        listing = self._kept.get(toolset)
        if listing is None:
            listing = self._kept[toolset] = ToolListing(registry, toolset, self._options)
        return listing


# A cursor names the tool that the page before ended with. So it stays good when tools appear and go.


def _cursor(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode("ascii")


def _after(cursor: str) -> str:
    name = urlsafe_b64decode(cursor.encode("ascii")).decode()
    if not name or _cursor(name) != cursor:
        raise ValueError("a cursor that was not written by `_cursor`")
    return name


PAGES = "toolcrib.pages"
"""Where the scope of an HTTP request holds its `EncodedPages`."""


class EncodedPages:
    """Texts that stand for bytes until they leave. Each is used once, and nobody can guess one."""

    __slots__ = ("_pages",)

    def __init__(self) -> None:
        self._pages: dict[bytes, bytes] = {}

    def __bool__(self) -> bool:
        return bool(self._pages)

    def put(self, page: bytes) -> str:
        """A text to write, as a JSON string, where these bytes shall be."""
        token = f"page-{token_hex(16)}"
        self._pages[f'"{token}"'.encode()] = page
        return token

    def into(self, data: bytes) -> bytes:
        """The encoded message, with the bytes where their texts stood."""
        for token in [token for token in self._pages if token in data]:
            data = data.replace(token, self._pages.pop(token), 1)
        return data
