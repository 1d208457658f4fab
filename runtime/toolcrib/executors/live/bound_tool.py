"""A live tool, ready to be called: a call, from its arguments to its result."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.core.clock import parse_duration, run_in_thread
from toolcrib.core.model import JSON, Call, Descriptor, Result
from toolcrib.executors.live.dry_run import plan_of
from toolcrib.executors.live.exchange import Exchange, Route
from toolcrib.executors.live.pagination import Pages
from toolcrib.executors.live.request import CompiledRequest
from toolcrib.executors.live.response import Read, Reading
from toolcrib.executors.live.unused_keys import is_repeatable
from toolcrib.http import ExchangeBounds
from toolcrib.http.auth import Auth
from toolcrib.http.messages import RequestDraft, parse_origin
from toolcrib.schema.validation.json_values import DEPTH, is_large
from toolcrib.schema.validation.violations import UnusableArguments
from toolcrib.security.redaction import one_call, redact_result
from toolcrib.servers.environment import NetworkEnvironment

if TYPE_CHECKING:
    from toolcrib.http.client import HTTPClient


class Parts(NamedTuple):
    """A compiled block.

    Attributes:
        request: What is sent.
        auth: What proves who sends it; None for nothing.
        reading: What is made of the answer.
        pages: How one answer leads to the next; None where there is only one.
    """

    request: CompiledRequest
    auth: Auth | None
    reading: Reading
    pages: Pages | None


_IDEMPOTENT = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})


class BoundLive:
    """A live tool.

    Attributes:
        waits: A call waits for the world.
        origin: Where its requests go, `https://api.example.com`; limits and circuits of an origin are shared.
        repeatable: Whether an attempt may follow another one that may have acted.
    """

    waits = True

    def __init__(self, tool: Descriptor, parts: Parts, world: NetworkEnvironment, sender: HTTPClient) -> None:
        block: Any = tool.bindings["live"]
        request, auth = parts.request, parts.auth
        annotations = tool.annotations
        self._tool = tool
        self._parts = parts
        self._world = world
        self._key_header: str = block.get("idempotency_key", "")
        self._namespace = uuid.uuid4()
        self._route = _route_of(block, tool, parts, world)
        self.origin = self._route.origin
        self.repeatable = is_repeatable(tool)
        keeps = annotations.read_only and tool.limits.cache > 0 and request.method in {"GET", "HEAD"}
        self._exchange = Exchange(
            sender, self._route, auth, parts.reading, world.vault, repeatable=self.repeatable, keeps=keeps
        )

    async def execute(self, call: Call) -> Result:
        """One attempt; of a tool with pages, all of them."""
        with one_call():
            return await self._attempt(call)

    async def _attempt(self, call: Call) -> Result:
        try:
            draft = self._draft(call)
        except UnusableArguments as misfit:
            return misfit.refused(call, "live")
        pages = self._parts.pages
        if pages is None:
            return await self._exchange.answer(call, self._keyed(call, draft))

        async def page(following: RequestDraft) -> Read | Result:
            return await self._exchange.read(call, self._keyed(call, following))

        own = self._route.own_origins
        collected = await pages.collect(call, draft, page, self._parts.reading, own=own)
        hide = partial(redact_result, collected, self._world.vault)
        if is_large(collected.value, DEPTH):
            return await run_in_thread(call.context.session.clock, hide)
        return hide()

    def explain(self, call: Call) -> JSON | Result:
        """The exact request, masked, and where each part of it was written. Nothing is sent, no token fetched.

        Of arguments that no request can be made of: the result of the call.
        """
        try:
            draft = self._draft(call)
        except UnusableArguments as misfit:
            return misfit.refused(call, "live")
        pages = self._parts.pages
        first = draft if pages is None else pages.first(draft, call)
        if isinstance(first, Result):
            return first
        if self._parts.auth is not None:
            self._parts.auth.show(first)
        request = self._route.aimed(self._keyed(call, first).finished())
        return plan_of(self._tool, self._parts.request, request, self._world.vault, call.arguments)

    def _draft(self, call: Call) -> RequestDraft:
        draft = self._parts.request.draft(call.arguments)
        if call.context.trace:
            draft.headers.extend(call.context.trace.items())
        return draft

    def _keyed(self, call: Call, draft: RequestDraft) -> RequestDraft:
        """The draft with the key that is the same for every attempt of it, and another one for every page."""
        if self._key_header:
            kept = [each for each in draft.headers if each[0] != self._key_header]
            told = f"{call.id} {draft.path}?{'&'.join(draft.query)}"
            draft.headers = [*kept, (self._key_header, str(uuid.uuid5(self._namespace, told)))]
        return draft


def _route_of(block: dict[str, Any], tool: Descriptor, parts: Parts, world: NetworkEnvironment) -> Route:
    """Where the requests of a tool may go, and what an exchange may take."""
    named = (*parts.request.hosts, *(parts.auth.hosts if parts.auth is not None else ()))
    told = block.get("timeouts", {})
    ordinary = ExchangeBounds()
    bounds = ordinary._replace(
        connect=parse_duration(told["connect"]) if "connect" in told else ordinary.connect,
        read=parse_duration(told["read"]) if "read" in told else ordinary.read,
        body=tool.limits.output_size,
    )
    return Route(
        own=parts.request.origin,
        origin=world.instead_of(parts.request.origin),
        hosts=(*named, *_instead_of(named, world)),
        bounds=bounds,
        redirects=block.get("redirects", 0),
        owner=tool.origin.pack or tool.name,
        world=world,
    )


def _instead_of(hosts: Collection[str], world: NetworkEnvironment) -> Iterator[str]:
    """The hosts that stand for others of these: who puts them there means them to be reached."""
    for written, instead in world.origins.items():
        _scheme, host, port = parse_origin(written)
        if world.guard.is_named(host, port, hosts):
            yield parse_origin(instead)[1]
