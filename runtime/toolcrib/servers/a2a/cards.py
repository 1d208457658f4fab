"""Agent cards (A2A 1.0, section 4.4; 0.3, section 5.5) and the tools that they describe. This module works without the SDK.

A skill is a tool if it has the tag `tool`, or if the extension for tool descriptors names it. An A2A skill has no schema, so the
extension carries the schemas; some agents write them into the skill itself, where the SDK's types drop them, so the card is read
as JSON.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin

from toolcrib.core.model import JSON
from toolcrib.core.server_config import Catalogue, Server
from toolcrib.core.subschemas import REFERENCES, children
from toolcrib.core.text import canonical, decode_json, escape_terminal
from toolcrib.http.messages import parse_origin
from toolcrib.security.hosts import host_and_port
from toolcrib.security.secrets import SecretResolver
from toolcrib.servers.a2a.card_security import missing_auth
from toolcrib.servers.a2a.numbers import whole_numbers
from toolcrib.servers.environment import normal_origin
from toolcrib.servers.mcp.failures import InvalidAnswer
from toolcrib.servers.mcp.tool_list import list_tools

_SPOKEN: Final = re.compile(r"0(\.\d+)*|1(\.0(\.\d+)?)?")
"""The protocol versions that the SDK's client speaks. It would also call an endpoint of another one."""

EXTENSION: Final = "urn:toolcrib:a2a:tool-descriptors:v1"
"""URI of the extension that describes skills as tools."""

LARGEST_CARD: Final = 4 * 1024 * 1024
"""Maximum size of a card in bytes."""

WELL_KNOWN: Final = ("/.well-known/agent-card.json", "/.well-known/agent.json")
"""Paths of a card: the current one (RFC 8615), and the one of A2A before 0.3."""

BINDINGS: Final = ("JSONRPC", "HTTP+JSON")
"""The protocol bindings that toolcrib uses."""

TOOL_TAG: Final = "tool"
"""The tag of a skill that is a tool."""

SKILL_PREFIX: Final = "tool-"
"""The usual beginning of the ID of a skill that is a tool."""

ANY_ARGUMENTS: Final[dict[str, Any]] = {"type": "object"}
"""Input schema of a tool that is registered by its name alone."""

TEXT_ARGUMENT: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "The request, in plain language."}},
    "required": ["text"],
    "additionalProperties": False,
}
"""Input schema of a skill without a schema: it takes a text."""


class AgentInterface(NamedTuple):
    """An endpoint of an agent.

    Attributes:
        url: Its URL.
        binding: `JSONRPC` or `HTTP+JSON`.
        version: The protocol version, such as `1.0`.
    """

    url: str
    binding: str
    version: str


class AgentCard(NamedTuple):
    """A card, as far as calls need it.

    Attributes:
        raw: The card as received.
        catalogue: The tools of the agent.
        interfaces: The endpoints that toolcrib can use, in the order of the card.
        streaming: Whether the agent streams.
        extended: Whether authenticated callers can read an extended card.
        extension: Whether the agent declares the extension for tool descriptors.
        texts: Names of the tools that take a text instead of arguments.
    """

    raw: Mapping[str, Any]
    catalogue: Catalogue
    interfaces: tuple[AgentInterface, ...]
    streaming: bool
    extended: bool
    extension: bool
    texts: frozenset[str]


def targets_of_card(target: str) -> tuple[str, ...]:
    """The paths at which the card of an agent is looked for, in order, each with the query of the URL.

    Args:
        target: Path and query of the URL of the agent, or of the card itself.
    """
    path, mark, query = target.partition("?")
    if path.endswith(".json"):
        return (target,)
    return tuple(path.rstrip("/") + end + mark + query for end in WELL_KNOWN)


def origin_of_url(url: str) -> str:
    """The origin of a URL in normal form; empty if it is not valid."""
    scheme, _, rest = url.partition("://")
    try:
        return normal_origin(f"{scheme}://{rest.partition('/')[0].partition('?')[0]}")
    except ValueError:
        return ""


def is_permitted(url: str, own: str, hosts: tuple[str, ...]) -> bool:
    """Whether a URL that an agent or a directory names may be contacted.

    Args:
        url: The URL.
        own: The origin of the agent or the directory.
        hosts: Further hosts of its configuration, each with its port or for any port.
    """
    origin = origin_of_url(url)
    if not origin or origin == own:
        return bool(origin)
    _scheme, host, port = parse_origin(origin)
    return host in hosts or host_and_port(host, port) in hosts


def decode_card(body: bytes) -> dict[str, Any]:
    """The JSON object of a card.

    Raises:
        InvalidAnswer: The body is not a JSON object.
    """
    try:
        card = decode_json(body.decode())
    except (ValueError, RecursionError):
        raise InvalidAnswer("its card is not valid JSON") from None
    if not isinstance(card, dict):
        raise InvalidAnswer("its card is not a JSON object")
    return card


async def read_card(raw: dict[str, Any], server: Server, url: str, secrets: SecretResolver) -> AgentCard:
    """Read a card. Invalid skills are listed as refused in its catalogue; the others work.

    Args:
        raw: The card.
        server: The agent.
        url: The URL of the card, which relative URLs in it refer to.
        secrets: The secrets that the agent was given, which are masked in definitions.

    Raises:
        InvalidAnswer: The card has no usable list of skills, or no name.
    """
    skills = raw.get("skills", [])
    if not isinstance(skills, list):
        raise InvalidAnswer("`skills` of its card is not a list")
    capabilities = _object(raw.get("capabilities"))
    params = _extension_params(capabilities)
    reader = _SkillReader(server, params or {}, raw.get("defaultOutputModes"))
    tools = [*reader.tools(skills)]

    async def page(_cursor: str | None) -> dict[str, Any]:
        return {"tools": tools}

    info = {key: raw[key] for key in ("name", "version") if isinstance(raw.get(key), str)}
    interfaces = tuple(interfaces_of_card(raw, url))
    if interfaces:
        info["protocol"] = interfaces[0].version
    catalogue = await list_tools(server.name, page, info=info, secrets=secrets, check=check_schema)
    lack = missing_auth(raw, server)
    remarks = (*catalogue.remarks, *reader.remarks, *([lack] if lack else []))
    catalogue = catalogue._replace(refused={**catalogue.refused, **reader.refused}, remarks=remarks)
    extended = capabilities.get("extendedAgentCard", raw.get("supportsAuthenticatedExtendedCard"))
    return AgentCard(
        raw,
        catalogue,
        interfaces,
        capabilities.get("streaming") is True,
        extended is True,
        params is not None,
        frozenset(reader.texts),
    )


def card_without_url(server: Server, url: str) -> AgentCard:
    """The card of an agent that is registered by the names of its tools.

    Args:
        server: The agent.
        url: The resolved URL of its endpoint.
    """
    tools = {name: {"name": name, "inputSchema": ANY_ARGUMENTS} for name in server.tools}
    interface = AgentInterface(url, BINDINGS[0], "1.0")
    raw = {
        "name": server.name,
        "description": "",
        "version": "",
        "capabilities": {"streaming": True},
        "skills": [],
        "supportedInterfaces": [_raw_interface(interface)],
    }
    return AgentCard(raw, Catalogue(server.name, tools), (interface,), True, False, False, frozenset())


def _raw_interface(interface: AgentInterface) -> dict[str, Any]:
    url, binding, version = interface
    return {"url": url, "protocolBinding": binding, "protocolVersion": version}


def sdk_card(card: AgentCard, interface: AgentInterface) -> dict[str, Any]:
    """The card for the SDK's client: only what the client reads, with one endpoint."""
    return {
        "name": str(card.raw.get("name", "")),
        "capabilities": {"streaming": card.streaming},
        "supportedInterfaces": [_raw_interface(interface)],
    }


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _extension_params(capabilities: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Skill ID -> descriptor, from the extension; None if the card does not declare it."""
    extensions = capabilities.get("extensions")
    for entry in extensions if isinstance(extensions, list) else ():
        if isinstance(entry, dict) and entry.get("uri") == EXTENSION:
            return _object(whole_numbers(_object(entry.get("params")).get("tools")))
    return None


def interfaces_of_card(raw: Mapping[str, Any], url: str) -> Iterator[AgentInterface]:
    """The endpoints of a card that toolcrib can use.

    Args:
        raw: The card.
        url: The URL of the card, which relative URLs in it refer to.
    """
    listed = raw.get("supportedInterfaces")
    if isinstance(listed, list):
        entries = [_object(entry) for entry in listed]
    else:
        # 0.3: one URL with its transport, and further ones.
        version = raw.get("protocolVersion", "0.3.0")
        more = raw.get("additionalInterfaces")
        first = {"url": raw.get("url"), "transport": raw.get("preferredTransport", BINDINGS[0])}
        entries = [
            {"url": each.get("url"), "protocolBinding": each.get("transport"), "protocolVersion": version}
            for each in (first, *(map(_object, more) if isinstance(more, list) else ()))
        ]
    seen = set()
    for entry in entries:
        target, binding, version = (entry.get(key) for key in ("url", "protocolBinding", "protocolVersion"))
        version = version if isinstance(version, str) else "1.0"
        # `${` is not part of any URL, and would be looked up.
        usable = isinstance(target, str) and target and "${" not in target and _SPOKEN.fullmatch(version)
        if usable and binding in BINDINGS and (target, binding) not in seen:
            seen.add((target, binding))
            yield AgentInterface(urljoin(url, target), binding, version)


class _SkillReader:
    """Turns skills into tool definitions with the key names of MCP."""

    def __init__(self, server: Server, descriptors: Mapping[str, Any], output_modes: Any) -> None:
        self.refused: dict[str, str] = {}
        self.remarks: list[str] = []
        self.texts: set[str] = set()
        self._server = server
        self._descriptors = descriptors
        self._output_modes = output_modes

    def tools(self, skills: list[Any]) -> Iterator[dict[str, Any]]:
        """The definitions of the skills that are tools."""
        seen: set[str] = set()
        for place, skill in enumerate(skills):
            if not isinstance(skill, dict) or not isinstance(skill.get("id"), str) or not skill["id"]:
                self.remarks.append(f"`skills[{place}]` of its card has no `id`")
                continue
            number, listed = skill["id"], _texts(skill.get("tags"))
            descriptor = _object(self._descriptors.get(number))
            if not (descriptor or TOOL_TAG in listed) or not self._is_wanted(skill, listed):
                continue
            name = descriptor.get("name")
            if not isinstance(name, str) or not name:
                name = number.removeprefix(SKILL_PREFIX) or number
            if number in seen:
                self.refused[f"skills[{place}]"] = f"duplicate skill `{escape_terminal(number[:80])}`"
                continue
            seen.add(number)
            fault = _hash_fault(descriptor)
            if fault:
                self.refused[name] = fault
                continue
            yield self._definition(name, skill, descriptor)
        for number in self._descriptors.keys() - seen:
            if number not in {skill.get("id") for skill in skills if isinstance(skill, dict)}:
                self.remarks.append(
                    f"its extension describes the skill `{escape_terminal(str(number)[:80])}`, which the card does not list"
                )

    def _definition(self, name: str, skill: dict[str, Any], descriptor: Mapping[str, Any]) -> dict[str, Any]:
        schema = _first(descriptor, skill, "inputSchema", "input_schema")
        if schema is None:
            schema = TEXT_ARGUMENT
            self.texts.add(name)
        title = skill.get("name")
        told = {
            "name": name,
            "title": title if title != name else None,
            "description": skill.get("description"),
            "inputSchema": schema,
            "outputSchema": _first(descriptor, skill, "outputSchema", "output_schema"),
            "annotations": descriptor.get("annotations"),
        }
        return {key: value for key, value in told.items() if value is not None}

    def _is_wanted(self, skill: dict[str, Any], tags: list[str]) -> bool:
        modes = _texts(skill.get("outputModes")) or _texts(self._output_modes)
        return _matches(tags, self._server.tags) and _matches(modes, self._server.output_modes)


def _texts(value: Any) -> list[str]:
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _matches(texts: list[str], globs: tuple[str, ...]) -> bool:
    return not globs or any(fnmatchcase(text, glob) for text in texts for glob in globs)


def _first(descriptor: Mapping[str, Any], skill: Mapping[str, Any], *keys: str) -> Any:
    return next(
        (each[key] for each in (descriptor, skill) for key in keys if each.get(key) is not None), None
    )


def descriptor_hash(descriptor: Mapping[str, Any]) -> str:
    """The hash of a tool in the extension: SHA-256 of its JSON without `hash`, with sorted keys and without spaces.

    Whole numbers have no fraction in it, since a card may have passed through protobuf.
    """
    rest: JSON = whole_numbers({key: value for key, value in descriptor.items() if key != "hash"})
    return f"sha256:{hashlib.sha256(canonical(rest).encode()).hexdigest()}"


def _hash_fault(descriptor: Mapping[str, Any]) -> str:
    given = descriptor.get("hash")
    if given is None or given == descriptor_hash(descriptor):
        return ""
    return "its `hash` in the extension does not match its definition"


def check_schema(schema: Any) -> str | None:
    """Why the input schema of a skill cannot be used; None if it can."""
    external = next(_external_references(schema), None)
    if external is not None:
        return f"its `inputSchema` refers to `{escape_terminal(external[:200])}`, which is not fetched"
    if schema.get("not") in ({}, True) or schema.get("enum") == []:
        return "its `inputSchema` refuses every value"
    properties, required = _object(schema.get("properties")), schema.get("required")
    for name in _texts(required):
        if properties.get(name, True) in (False, {"not": {}}):
            return f"its `inputSchema` refuses every value: it requires `{escape_terminal(name[:80])}` and refuses it"
    return None


def _external_references(schema: Any) -> Iterator[str]:
    if not isinstance(schema, dict):
        return
    for keyword in REFERENCES:
        target = schema.get(keyword)
        if isinstance(target, str) and not target.startswith("#"):
            yield target
    for _path, inner in children(schema):
        yield from _external_references(inner)
