"""Connections to A2A agents: their cards, kept fresh, and the SDK's clients of their endpoints.

An agent is contacted when its tools are first needed. Its card is read again when it has expired by its own headers
(RFC 9111), and when a call shows that it is outdated. An agent that cannot be reached keeps the tools that it listed last.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from contextvars import Context
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from toolcrib.core.clock import RealClock, format_duration
from toolcrib.core.dependencies import UNSUPPORTED_VERSION, missing_import
from toolcrib.core.errors import DocumentError, NotReady
from toolcrib.core.model import JSON, Outcome
from toolcrib.core.server_config import Catalogue, LockVerdict, Server
from toolcrib.http import HTTPError, HTTPResponse
from toolcrib.http.freshness import freshness
from toolcrib.http.messages import parse_origin
from toolcrib.security.hosts import host_and_port
from toolcrib.security.secrets import MissingSecret, SecretResolver, missing_variables
from toolcrib.security.trust import Untrusted
from toolcrib.servers.a2a.cards import (
    LARGEST_CARD,
    AgentCard,
    AgentInterface,
    card_without_url,
    decode_card,
    read_card,
    targets_of_card,
)
from toolcrib.servers.endpoint import EndpointClient, ExchangeFailure
from toolcrib.servers.environment import NetworkEnvironment, normal_origin
from toolcrib.servers.mcp.failures import InvalidAnswer, ServerUnavailable
from toolcrib.servers.mcp.transports import LinkTrouble, StartFailure

if TYPE_CHECKING:
    from a2a.client import Client

    from toolcrib.http.auth import TokenCache

_log = logging.getLogger("toolcrib")

Changed = Callable[[str, Catalogue], None]
"""Called in the event loop with the first tool list of an agent, and with each different one."""

MISSING_EXTRA: Final = "pip install 'toolcrib[a2a]'"
"""The hint if the SDK is not installed."""

SOFT_AGE: Final = 300.0
"""Seconds after which a card without `Cache-Control` is read again."""

_SHORTEST: Final = 5.0
"""Minimum number of seconds between two refreshes of a card that nothing asked for."""

HARD_AGE: Final = 86_400.0
"""Seconds after which a card that could not be read again is no longer used."""

_JITTER: Final = 0.1
"""Part of the age by which a refresh is delayed at random: many runtimes must not ask at the same time."""

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 10.0
"""Seconds before an agent that could not be reached is asked again; doubled with each failure."""


def missing_extra() -> ServerUnavailable:
    """The error if the SDK is not installed."""
    message = "A2A agents need the package `a2a-sdk`, which is not installed"
    return ServerUnavailable(message, code="missing_extra", hint=MISSING_EXTRA, retryable=False)


def check_ready(agent: Server, secrets: SecretResolver, *, reads: bool = True) -> None:
    """Check that the extra and the variables of an agent are available, without contacting it.

    Args:
        agent: The agent.
        secrets: Resolves the variables.
        reads: Whether values are looked up, and not only whether they exist.

    Raises:
        NotReady: The extra or a variable is missing.
    """
    if find_spec("a2a") is None:
        raise missing_extra()
    for error in missing_variables(agent.texts(), "", secrets, reads=reads):
        raise _unavailable(agent, error)


def _unavailable(agent: Server, failure: Exception) -> ServerUnavailable:
    """The error of an agent that cannot be used."""
    who = f"the agent `{agent.name}`"
    if isinstance(failure, ServerUnavailable):
        return failure
    if isinstance(failure, MissingSecret):
        message = f"cannot contact {who}: {failure.message}"
        return ServerUnavailable(message, code=failure.code, hint=failure.hint, retryable=False)
    if isinstance(failure, Untrusted):
        details: dict[str, JSON] = {
            "workspace": failure.request.workspace.root,
            "hash": failure.request.hash,
        }
        return ServerUnavailable(
            failure.message,
            code=failure.code,
            hint=failure.hint,
            outcome=Outcome.DENIED,
            details=details,
            retryable=False,
        )
    if isinstance(failure, ExchangeFailure):
        trouble, refusal = failure.trouble, failure.refusal
        message = f"cannot read the card of {who}: {trouble.message}"
        outcome = Outcome.UNAVAILABLE if refusal is None else Outcome.DENIED
        code = "server_down" if refusal is None else trouble.code
        return ServerUnavailable(
            message, code=code, hint=trouble.hint, outcome=outcome, retryable=refusal is None
        )
    if isinstance(failure, InvalidAnswer):
        return ServerUnavailable(f"{who} cannot be used: {failure.message}")
    if isinstance(failure, TimeoutError):
        time = format_duration(agent.start_timeout)
        hint = "raise `timeouts: {start: ...}` of the agent if it needs longer"
        return ServerUnavailable(f"{who} did not send its card within {time}", hint=hint)
    if isinstance(failure, ImportError):
        lack = missing_import(failure)
        if lack is None:
            return missing_extra()
        message = f"A2A agents cannot be used: {lack.message}"
        return ServerUnavailable(message, code=UNSUPPORTED_VERSION, hint=lack.hint, retryable=False)
    if isinstance(failure, NotReady | DocumentError | StartFailure):
        return ServerUnavailable(failure.message, code=failure.code, hint=failure.hint, retryable=False)
    raise failure


class AgentConnection:
    """The connection to one agent in one event loop.

    Attributes:
        agent: The agent.
        verdict: The lock's verdict on its tools.
        catalogue: The tools that it listed last; empty before the first time.
        stale: Whether the last attempt to read its card again failed.
    """

    def __init__(
        self, agent: Server, world: NetworkEnvironment, tokens: TokenCache, changed: Changed
    ) -> None:
        """Create a connection; nothing is contacted before `ready`.

        Args:
            agent: The agent.
            world: The network environment.
            tokens: A cache shared between agents.
            changed: Called with its first tool list, and with each different one.
        """
        self.agent = agent
        self.verdict = LockVerdict()
        self.catalogue = Catalogue(agent.name)
        self.stale = False
        self._world = world
        self._tokens = tokens
        self._changed = changed
        self._card: AgentCard | None = None
        self._client: Client | None = None
        self._of_cards: EndpointClient | None = None
        self._endpoint: EndpointClient | None = None
        self._interface: AgentInterface | None = None
        self._streams = False
        self._validators: Mapping[str, str] = {}
        self._target = ""
        self._read_at = 0.0
        self._expires = 0.0
        self._failures = 0
        self._retry_at = 0.0
        self._why: ServerUnavailable | None = None
        self._reading: asyncio.Task[ServerUnavailable | None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._warned: set[str] = set()
        self._clock = RealClock()

    @property
    def card(self) -> AgentCard:
        """The card; `ready` must have returned."""
        assert self._card is not None  # noqa: S101 -- see above
        return self._card

    @property
    def client(self) -> Client:
        """The SDK's client of the endpoint; `ready` must have returned."""
        assert self._client is not None  # noqa: S101 -- see above
        return self._client

    @property
    def endpoint(self) -> EndpointClient:
        """The HTTP client of the endpoint; `ready` must have returned."""
        assert self._endpoint is not None  # noqa: S101 -- see above
        return self._endpoint

    @property
    def state(self) -> str:
        """`idle`, `starting`, `up` or `down`."""
        if self._card is not None:
            return "down" if self.stale else "up"
        if self._reading is not None:
            return "starting"
        return "idle" if self._why is None else "down"

    async def ready(self) -> None:
        """Read the card if it is not known, or too old to be used.

        Raises:
            ServerUnavailable: The agent cannot be used now.
        """
        now = self._clock.monotonic()
        if self._card is not None and now < self._read_at + HARD_AGE:
            if now >= self._expires and now >= self._retry_at:
                self._refresh()
            return
        if self._why is not None and now < self._retry_at:
            raise self._why.again()
        failure = await self.refresh()
        if failure is not None:
            raise failure.again()

    async def refresh(self) -> ServerUnavailable | None:
        """Read the card again; the error if that failed. Concurrent callers share one reading."""
        # Without the shield, one cancelled call would end the reading for all.
        return await asyncio.shield(self._refresh())

    def _refresh(self) -> asyncio.Task[ServerUnavailable | None]:
        if self._reading is None:
            # An empty context: the trace of the first call must not apply to later ones.
            name = f"a2a {self.agent.name}"
            self._reading = asyncio.create_task(self._read(), name=name, context=Context())
        return self._reading

    async def _read(self) -> ServerUnavailable | None:
        try:
            async with asyncio.timeout(self.agent.start_timeout):
                await self._read_card()
        except (
            *(NotReady, DocumentError, StartFailure, MissingSecret, Untrusted),
            *(ExchangeFailure, InvalidAnswer, ImportError, TimeoutError),
        ) as error:
            self._failures += 1
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (self._failures - 1))
            self._why = _unavailable(self.agent, error)
            self.stale = self._card is not None
            self._retry_at = self._clock.monotonic() + (pause if self._why.retryable else 0.0)
            if self.stale:
                _log.warning("%s; its last known tools stay", self._why.message)
            return self._why
        else:
            self._failures, self._why, self.stale, self._retry_at = 0, None, False, 0.0
            return None
        finally:
            self._reading = None
            self._schedule()

    def _schedule(self) -> None:
        """Refresh the card when it expires, although nothing calls."""
        if self._timer is not None:
            self._timer.cancel()
        if self._closed or self._card is None or self.agent.tools:
            return
        now = self._clock.monotonic()
        wait = max(self._expires - now, self._retry_at - now, _SHORTEST)
        wait += wait * _JITTER * random.random()  # noqa: S311 -- spreads load, keeps no secret
        self._timer = asyncio.get_running_loop().call_later(wait, self._refresh)

    async def _read_card(self) -> None:
        judged = self._judged(None)
        refused = judged.refused.get("*")
        if refused is not None:
            details: dict[str, JSON] = {"server": self.agent.name}
            raise ServerUnavailable(
                refused, code=judged.code, outcome=Outcome.DENIED, details=details, retryable=False
            )
        if self._of_cards is None:
            # Before the client is created, which reads secrets.
            self._world.trust.check_server(self.agent)
            self._of_cards = EndpointClient(self.agent, self._world, self._tokens)
        if self.agent.tools:
            card = card_without_url(self.agent, self._of_cards.endpoint.url)
            await self._connect(card)
            self._publish(card, HARD_AGE)
            return
        answer = await self._fetched(self._of_cards)
        if answer is None:
            self._publish(self.card, SOFT_AGE)
            return
        raw, lifetime, self._validators = answer
        url = f"{self._of_cards.endpoint.written}{self._target}"
        card = await read_card(raw, self.agent, url, self._world.secrets)
        await self._connect(card)
        if card.extended and self._of_cards.proves:
            card = await self._extended(card, url)
        self._publish(card, lifetime)

    async def _fetched(self, client: EndpointClient) -> tuple[dict[str, Any], float, dict[str, str]] | None:
        """The card, the seconds for which it is fresh, and its validators; None if it has not changed."""
        targets = targets_of_card(client.endpoint.target)
        for target in targets:
            headers = [("Accept", "application/json")]
            if self._card is not None and target == self._target:
                headers += self._validators.items()
            request = client.endpoint.request("GET", headers, target=target)
            answer = await client.send(request, silence=None, most=LARGEST_CARD)
            try:
                body = await answer.whole()
            except HTTPError as error:
                raise ExchangeFailure.by(error) from None
            finally:
                await answer.aclose()
            if answer.status == 304 and self._card is not None:
                return None
            if answer.status == 404 and target != targets[-1]:
                continue
            if answer.status != 200:
                raise ExchangeFailure(_trouble(answer.status, proves=client.proves), sent=True)
            self._target = target
            response = HTTPResponse(answer.status, answer.headers, b"")
            fresh = freshness(request, response, self._clock.now()) or {}
            said = fresh.get("lifetime")
            cached = any(name in ("cache-control", "expires") for name, _value in answer.headers)
            lifetime = float(said) if cached and isinstance(said, int | float) else SOFT_AGE
            validators: Any = fresh.get("validators") or {}
            return decode_card(body), min(max(lifetime, _SHORTEST), HARD_AGE), validators
        raise AssertionError("the last target returns or raises")

    def _publish(self, card: AgentCard, lifetime: float) -> None:
        """Use a card from now on, for some seconds."""
        before, self._card = self.catalogue, card
        self.catalogue = card.catalogue
        self._read_at = self._clock.monotonic()
        self._expires = self._read_at + lifetime
        self.verdict = self._judged(card.catalogue)
        if before._replace(info=card.catalogue.info) != card.catalogue:
            self._changed(self.agent.name, card.catalogue)

    async def _extended(self, card: AgentCard, url: str) -> AgentCard:
        """The extended card, which authenticated callers can read; the card itself if that fails."""
        from toolcrib.servers.a2a.messages import extended_card  # noqa: PLC0415 -- needs the extra

        assert self._interface is not None  # noqa: S101 -- it is connected
        try:
            raw = await extended_card(self.endpoint, self._interface)
            extended = await read_card(raw, self.agent, url, self._world.secrets)
            await self._connect(extended)
        except (ExchangeFailure, InvalidAnswer) as error:
            _log.warning("the extended card of the agent `%s` cannot be read: %s", self.agent.name, error)
            return card
        return extended

    def _chosen(self, card: AgentCard) -> AgentInterface:
        """The first endpoint of a card at the host of the card, or at a host that the configuration names."""
        assert self._of_cards is not None  # noqa: S101 -- it read the card
        own = self._of_cards.endpoint.written
        refused = []
        for interface in card.interfaces:
            origin = _origin(interface.url)
            if origin and (origin == own or _is_named(origin, self.agent.hosts)):
                return interface
            refused.append(origin or "an invalid URL")
        if not refused:
            raise InvalidAnswer("its card has no JSON-RPC or HTTP+JSON endpoint")
        places = ", ".join(f"`{place}`" for place in dict.fromkeys(refused))
        raise InvalidAnswer(
            f"its card places the endpoint at {places}, and only `{own}` and the `hosts` of the agent are contacted"
        )

    async def _connect(self, card: AgentCard) -> None:
        """Create the client of the endpoint of a card, if it is another one than before.

        Raises:
            InvalidAnswer: The card has no endpoint that can be used.
        """
        interface = self._chosen(card)
        if interface == self._interface and self._client is not None and self._streams == card.streaming:
            return
        from toolcrib.servers.a2a.messages import open_sdk_client  # noqa: PLC0415 -- needs the extra

        assert self._of_cards is not None  # noqa: S101 -- it read the card
        before, own = self._endpoint, self._of_cards
        if _origin(interface.url) == own.endpoint.written:
            self._endpoint = own
        else:
            self._endpoint = EndpointClient(self.agent._replace(url=interface.url), self._world, self._tokens)
        self._client = open_sdk_client(card, interface, self._endpoint)
        self._interface, self._streams = interface, card.streaming
        if before is not None and before not in (own, self._endpoint):
            await before.aclose()

    def _judged(self, catalogue: Catalogue | None) -> LockVerdict:
        verdict = self._world.judge(self.agent, catalogue)
        for warning in verdict.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                _log.warning("%s", warning)
        return verdict

    def retire(self) -> None:
        """Refresh the card no more: another connection takes the next calls."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    async def aclose(self) -> None:
        """Close every connection; calls in progress fail."""
        self.retire()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        for client in {each for each in (self._of_cards, self._endpoint) if each is not None}:
            await client.aclose()


def _origin(url: str) -> str:
    """The origin of a URL in normal form; empty if it is not valid."""
    scheme, _, rest = url.partition("://")
    try:
        return normal_origin(f"{scheme}://{rest.partition('/')[0].partition('?')[0]}")
    except ValueError:
        return ""


def _is_named(origin: str, hosts: tuple[str, ...]) -> bool:
    """Whether the configuration names the host of an origin, with its port or for any port."""
    _scheme, host, port = parse_origin(origin)
    return host in hosts or host_and_port(host, port) in hosts


def _trouble(status: int, *, proves: bool) -> LinkTrouble:
    if status in (401, 403):
        hint = (
            "check that the credentials in `auth` are still valid"
            if proves
            else "add credentials to `auth` of the agent"
        )
        return LinkTrouble("unauthorized", f"it answered with status {status}", hint)
    hint = (
        "check that `card` is the URL of the agent or of its card"
        if status in (301, 302, 307, 308, 404)
        else ""
    )
    return LinkTrouble("http_status", f"it answered with status {status}", hint)


class AgentPool:
    """The connections to the agents of one network environment, each once per event loop.

    Args:
        world: The network environment.
        tokens: The token cache, which outlives the environment.
        changed: Called with the first tool list of an agent, and with each different one.

    Attributes:
        namespace: Makes the IDs of messages unique.
    """

    def __init__(self, world: NetworkEnvironment, tokens: TokenCache, changed: Changed) -> None:
        self.world = world
        # IDs of calls are unique within a runtime only, and an agent may answer a repeated message from its memory.
        self.namespace = uuid4()
        self._tokens = tokens
        self._changed = changed
        self._connections: dict[tuple[str, int], tuple[asyncio.AbstractEventLoop, AgentConnection]] = {}

    def get(self, name: str) -> AgentConnection:
        """The connection to an agent of the environment in the running loop."""
        loop = asyncio.get_running_loop()
        known = self._connections.get((name, id(loop)))
        # A new loop may have the `id` of a closed one.
        if known is None or known[0] is not loop:
            agent = self.world.servers[name]
            known = loop, AgentConnection(agent, self.world, self._tokens, self._changed)
            self._connections[name, id(loop)] = known
        return known[1]

    def states(self) -> Mapping[str, str]:
        """Name of an agent -> `idle`, `starting`, `up` or `down`. Contacts no agent."""
        return {connection.agent.name: connection.state for _loop, connection in self._connections.values()}

    @property
    def empty(self) -> bool:
        """Whether there is nothing to close."""
        return not self._connections

    def retire(self) -> None:
        """Leave the agents to another pool; calls in progress end normally."""
        for loop, connection in self._connections.values():
            if not loop.is_closed():
                loop.call_soon_threadsafe(connection.retire)

    async def aclose(self) -> None:
        """Close every connection, each in its own loop."""
        connections, self._connections = self._connections, {}
        running = asyncio.get_running_loop()
        for loop, connection in connections.values():
            if loop is running:
                await connection.aclose()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(connection.aclose(), loop))
