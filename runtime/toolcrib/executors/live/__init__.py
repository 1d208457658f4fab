"""Mode `live`: HTTP tools. The descriptor defines the request; arguments only fill its placeholders."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from toolcrib.core.errors import DocumentError, Problem
from toolcrib.core.model import JSON, NOTHING, Descriptor, Schema
from toolcrib.executors.live.bound_tool import BoundLive, CompiledBlock
from toolcrib.executors.live.cross_checks import check_unused_keys
from toolcrib.executors.live.pagination import compile_pages
from toolcrib.executors.live.request import compile_request
from toolcrib.executors.live.response import compile_response
from toolcrib.http import open_client
from toolcrib.http.auth import TokenCache, compile_auth
from toolcrib.http.auth import auth_schema as auth_schema
from toolcrib.security.requirements import Requirements, requirements_of_http
from toolcrib.security.secrets import (
    MissingSecret,
    SecretResolver,
    missing_variables,
    not_ready,
    required_names,
)
from toolcrib.security.trust import Workspace
from toolcrib.security.trust_needs import Need, needs_of_http
from toolcrib.servers.environment import NetworkEnvironment

if TYPE_CHECKING:
    from toolcrib.core.server_config import Server
    from toolcrib.http.client import HTTPClient

__all__ = ["BoundLive", "LiveExecutor"]

_SECTIONS = ("request", "response", "pagination")


@cache
def _block_schema() -> Schema:
    # Deferred: slow to import, and no call needs the schema.
    from importlib.resources import files  # noqa: PLC0415

    folder = files(__package__).joinpath("schema")
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Live",
        "description": "The block `live` defines the HTTP request that a call sends, and how the response becomes the result.",
        "examples": [{"url": "https://api.example.com/v1/cities/{{ args.city }}/days"}],
        "type": "object",
        "required": ["url"],
        "additionalProperties": False,
        "allOf": [],
        "properties": {},
        "$defs": {},
    }
    # One file per section; the schema of `auth` belongs to `http.auth`.
    request, response, pagination = (
        json.loads(folder.joinpath(f"{section}.json").read_text(encoding="utf-8")) for section in _SECTIONS
    )
    for part in (request, _auth_section(), response, pagination):
        schema["allOf"] += part.get("allOf", ())
        schema["properties"] |= part["properties"]
        schema["$defs"] |= part.get("$defs", {})
    return schema


def _auth_section() -> dict[str, Any]:
    auth = auth_schema()
    return {
        "properties": {"auth": {key: value for key, value in auth.items() if key != "$defs"}},
        "$defs": auth["$defs"],
    }


class LiveExecutor:
    """Executor that calls HTTP APIs.

    Attributes:
        world: The network environment; set by the engine before a tool is bound.
    """

    def __init__(self) -> None:
        self.world: NetworkEnvironment | None = None
        self._clients: dict[int, tuple[NetworkEnvironment, HTTPClient]] = {}
        self._tokens = TokenCache()

    @property
    def keeps_nothing(self) -> bool:
        """Whether no HTTP client has been opened."""
        return not self._clients

    @property
    def block_schema(self) -> Schema:
        """JSON Schema of the `live` block."""
        return _block_schema()

    def annotations(self, block: Mapping[str, JSON]) -> Mapping[str, bool]:
        """The annotations implied by the HTTP method (RFC 9110 section 9.2)."""
        return _ANNOTATIONS.get(str(block.get("method", "GET")), NOTHING)

    def needs(self, descriptor: Descriptor, workspace: Workspace) -> Iterable[Need]:
        """The hosts that a tool reaches, and the variables that are resolved for them."""
        block: Any = descriptor.bindings["live"]
        # The start of the document suffices. A precise line would require parsing the document again.
        user, place = f"tool {descriptor.name}", f"{descriptor.origin.source}:{descriptor.origin.line}"
        return needs_of_http(block, user=user, place=place, root=workspace.folder)

    def requirements(self, descriptor: Descriptor, _server: Server | None) -> Requirements:
        """The network, the hosts that a tool reaches, and the variables that are resolved for them."""
        block: Any = descriptor.bindings["live"]
        return requirements_of_http(block)

    def check(self, descriptor: Descriptor) -> Sequence[Problem]:
        """Check expressions, variables, paths and authentication. No secret is resolved."""
        problems: list[Problem] = []
        _compiled(descriptor, problems, None, self._tokens)
        return [*problems, *check_unused_keys(descriptor)]

    def lacks(self, descriptor: Descriptor, _base: str) -> str:
        """Which variables of the request are missing; empty if none is."""
        secrets = (self.world or _nothing_special()).secrets
        missing = missing_variables(_looked_up(descriptor), "/live", secrets)
        return str(not_ready(descriptor, missing)) if missing else ""

    def required_variables(self, descriptor: Descriptor, _server: Server | None) -> tuple[str, ...] | None:
        """The environment variables that the request needs; None if it needs files of secrets, too."""
        return required_names(_looked_up(descriptor))

    def bind(self, descriptor: Descriptor) -> BoundLive:
        """Compile the block and resolve its secrets.

        Raises:
            DocumentError: The block has an error, which `check` reports.
            NotReady: A secret is missing.
        """
        world = self.world or _nothing_special()
        problems: list[Problem] = []
        try:
            folder = world.trust.folder_of(descriptor.origin.source)
            parts = _compiled(descriptor, problems, world.secrets, self._tokens, folder)
        except MissingSecret as error:
            # Reporting one variable at a time would cost the user one run for each.
            others = missing_variables(_looked_up(descriptor), "/live", world.secrets, reads=True)
            raise not_ready(descriptor, [error, *others]) from None
        if any(problem.severity == "error" for problem in problems):
            raise DocumentError(problems)
        return BoundLive(descriptor, parts, world, self._client(world))

    def _client(self, world: NetworkEnvironment) -> HTTPClient:
        # One client per guard: every connection of a client was permitted by its guard. The entry keeps the
        # environment alive, so that the id of its guard is not reused.
        held = self._clients.get(id(world.guard))
        if held is None:
            made = open_client(world.guard)
            # `setdefault`, because another thread may have opened one in the meantime.
            held = self._clients.setdefault(id(world.guard), (world, made))
        return held[1]

    async def aclose(self) -> None:
        """Close every connection."""
        clients, self._clients = self._clients, {}
        for _world, client in clients.values():
            await client.aclose()


_READS: Mapping[str, bool] = {"read_only": True, "destructive": False, "idempotent": True}
_PUTS: Mapping[str, bool] = {"idempotent": True}
_SAFE = ("GET", "HEAD", "OPTIONS", "QUERY")
_ANNOTATIONS = {**dict.fromkeys(_SAFE, _READS), "PUT": _PUTS, "DELETE": _PUTS}


def _compiled(
    tool: Descriptor,
    problems: list[Problem],
    secrets: SecretResolver | None,
    tokens: TokenCache,
    folder: str = "",
) -> CompiledBlock:
    block: Any = tool.bindings["live"]
    return CompiledBlock(
        compile_request(block, tool, problems, secrets),
        compile_auth(block, "/live", tool.origin.place, problems, secrets, tokens=tokens, folder=folder),
        compile_response(block, tool, problems),
        compile_pages(block, tool, problems),
    )


def _looked_up(tool: Descriptor) -> dict[str, JSON]:
    """The parts of a block in which `${...}` is looked up."""
    block: Any = tool.bindings["live"]
    return {key: block[key] for key in _LOOKED_UP if key in block}


_LOOKED_UP = ("url", "path", "query", "headers", "cookies", "body", "auth")

_nothing_special: Callable[[], NetworkEnvironment] = cache(NetworkEnvironment.ordinary)
"""The default environment, for an executor that is used without an engine."""
