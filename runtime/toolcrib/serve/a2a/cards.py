"""The card of the agent that is served, or of one of its toolsets, encoded once for all peers that may see the same tools."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from a2a.types import AgentCard
from google.protobuf.json_format import ParseDict

from toolcrib import __version__
from toolcrib.core.model import JSON
from toolcrib.formats.a2a_skills import JSON_MODES, skill_of
from toolcrib.registry.registry import Registry
from toolcrib.serve.a2a.agent_options import AgentOptions
from toolcrib.servers.a2a.cards import BINDINGS, EXTENSION

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Runtime

VERSION: Final = "1.0"
"""The protocol version that is served."""

LEGACY_VERSION: Final = "0.3"

_MOST: Final = 256
"""Maximum number of encoded cards that are kept: one for each toolset, group of users and name of the server."""

_BEARER: Final = "bearer"


class EncodedCard(NamedTuple):
    """A card as it is sent.

    Attributes:
        card: The card.
        body: The card as JSON.
        etag: Its entity tag (RFC 9110, 8.8.3).
    """

    card: dict[str, Any]
    body: bytes
    etag: bytes

    def parsed(self) -> AgentCard:
        """The card in the SDK's types."""
        return ParseDict(self.card, AgentCard(), ignore_unknown_fields=True)


class Cards:
    """The cards of the current tools."""

    def __init__(
        self,
        runtime: Runtime,
        options: AgentOptions,
        *,
        authenticated: bool,
        sign: Callable[[AgentCard], list[dict[str, str]]] | None,
    ) -> None:
        """Describe the tools of a runtime.

        Args:
            runtime: The tools.
            options: What is served.
            authenticated: Whether peers must authenticate.
            sign: Returns the signatures of a card; None for cards without them.
        """
        self._runtime = runtime
        self._options = options
        self._authenticated = authenticated
        self._sign = sign
        self._current: Registry | None = None
        self._kept: dict[tuple[int, str, str], tuple[Registry, EncodedCard]] = {}

    def of(self, seen: Registry, toolset: str, url: str) -> EncodedCard:
        """The card of the tools that a peer may see.

        Args:
            seen: These tools.
            toolset: Name of a toolset; empty for all listed tools.
            url: The URL of its endpoint.
        """
        current = self._runtime.registry
        if current is not self._current or len(self._kept) >= _MOST:
            self._current, self._kept = current, {}
        # What is kept keeps its registry alive, so no other one can get the same id.
        key = (id(seen), toolset, url)
        found = self._kept.get(key)
        if found is None:
            names = [card.name for card in seen.query(toolset=toolset or None)]
            tools = [skill_of(seen[name], inline_refs=self._options.inline_refs) for name in names]
            found = self._kept[key] = (seen, self._encoded([*tools], toolset, url))
        return found[1]

    def bare(self, toolset: str, url: str) -> EncodedCard:
        """The card for peers that have not authenticated: how to do so, and no tools."""
        return self._encoded([], toolset, url)

    def _encoded(self, tools: list[Any], toolset: str, url: str) -> EncodedCard:
        card = self._card(tools, toolset, url)
        if self._sign is not None:
            card["signatures"] = self._sign(ParseDict(card, AgentCard(), ignore_unknown_fields=True))
        body = json.dumps(card, separators=(",", ":"), ensure_ascii=False)
        encoded = body.encode(errors="replace")
        return EncodedCard(card, encoded, b'"%s"' % hashlib.sha256(encoded).hexdigest()[:32].encode())

    def _card(self, tools: list[Any], toolset: str, url: str) -> dict[str, Any]:
        project = self._runtime.project
        name = f"{self._runtime.name} {toolset}".strip()
        described = project.description if project is not None else ""
        interfaces = [
            {"url": url, "protocolBinding": binding, "protocolVersion": VERSION} for binding in BINDINGS
        ]
        extension: dict[str, JSON] = {
            "uri": EXTENSION,
            "description": "Skills that can be called as tools.",
            "required": self._options.required,
            "params": {"tools": {str(tool.skill["id"]): tool.descriptor for tool in tools}},
        }
        card: dict[str, Any] = {
            "name": name,
            "description": described or f"The tools of {name}.",
            "version": __version__,
            "supportedInterfaces": interfaces,
            "capabilities": {
                "streaming": True,
                "pushNotifications": False,
                "extendedAgentCard": self._authenticated,
                "extensions": [extension],
            },
            "defaultInputModes": [*JSON_MODES],
            "defaultOutputModes": [*JSON_MODES],
            "skills": [tool.skill for tool in tools],
        }
        if self._authenticated:
            card["securitySchemes"] = {_BEARER: {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
            card["securityRequirements"] = [{"schemes": {_BEARER: {"list": []}}}]
        return self._with_legacy(card, url) if self._options.legacy else card

    def _with_legacy(self, card: dict[str, Any], url: str) -> dict[str, Any]:
        """The card with the members that peers of A2A 0.3 read (0.3, section 5.5)."""
        for binding in BINDINGS:
            entry = {"url": url, "protocolBinding": binding, "protocolVersion": LEGACY_VERSION}
            card["supportedInterfaces"].append(entry)
        if self._authenticated:
            card["securitySchemes"][_BEARER] |= {"type": "http", "scheme": "bearer"}
            card["security"] = [{_BEARER: []}]
        return {
            **card,
            "protocolVersion": "0.3.0",
            "url": url,
            "preferredTransport": BINDINGS[0],
            "additionalInterfaces": [{"url": url, "transport": binding} for binding in BINDINGS],
            "supportsAuthenticatedExtendedCard": self._authenticated,
        }
