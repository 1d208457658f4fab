"""Connections to A2A agents: their cards, kept fresh, and the SDK's clients of their endpoints.

An agent is contacted when its tools are first needed. Its card is read again when it has expired by its own headers
(RFC 9111), and when a call shows that it is outdated. An agent that cannot be reached keeps the tools that it listed last.
"""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from toolcrib.core.clock import RealClock, format_duration
from toolcrib.core.dependencies import UNSUPPORTED_VERSION, missing_import
from toolcrib.core.errors import DocumentError, NotReady
from toolcrib.core.model import JSON, Outcome
from toolcrib.core.protocols import Clock
from toolcrib.core.server_config import SEPARATOR, Catalogue, LockVerdict, Server
from toolcrib.core.text import format_size
from toolcrib.http import HTTPError, HTTPRequest, HTTPResponse
from toolcrib.http.freshness import freshness
from toolcrib.http.messages import parse_origin
from toolcrib.security.egress import is_loopback
from toolcrib.security.secrets import MissingSecret, SecretResolver, missing_variables
from toolcrib.security.trust import Untrusted
from toolcrib.servers.a2a.cards import (
    LARGEST_CARD,
    AgentCard,
    AgentInterface,
    card_without_url,
    decode_card,
    is_permitted,
    origin_of_url,
    read_card,
    targets_of_card,
)
from toolcrib.servers.a2a.directories import read_directory
from toolcrib.servers.endpoint import EndpointClient, ExchangeFailure
from toolcrib.servers.environment import NetworkEnvironment
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

_MOST_ENDING: Final = 100
"""Maximum number of cancellations of one agent that outlast their calls: each keeps up to two connections open."""

_CLOSING: Final = 2.0
"""Seconds that closing waits for them."""


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
    who = f"the {'directory' if agent.lists else 'agent'} `{agent.name}`"
    what = "the list of" if agent.lists else "the card of"
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
        message = f"cannot read {what} {who}: {trouble.message}"
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
        sent = "list" if agent.lists else "card"
        return ServerUnavailable(f"{who} did not send its {sent} within {time}", hint=hint)
    if isinstance(failure, ImportError):
        lack = missing_import(failure)
        if lack is None:
            return missing_extra()
        message = f"A2A agents cannot be used: {lack.message}"
        return ServerUnavailable(message, code=UNSUPPORTED_VERSION, hint=lack.hint, retryable=False)
    if isinstance(failure, NotReady | DocumentError | StartFailure):
        return ServerUnavailable(failure.message, code=failure.code, hint=failure.hint, retryable=False)
    raise failure


class PolledConnection(ABC):
    """A document that is read over HTTP when it is first needed, and again when it has expired.

    Attributes:
        agent: The agent, or the directory of agents.
        verdict: The lock's verdict on its tools.
        catalogue: What it listed last; empty before the first time.
        stale: Whether the last attempt to read it again failed.
    """

    def __init__(
        self, agent: Server, world: NetworkEnvironment, tokens: TokenCache, changed: Changed, clock: Clock
    ) -> None:
        """Create a connection; nothing is contacted before `ready`.

        Args:
            agent: The agent, or the directory.
            world: The network environment.
            tokens: A cache shared between agents.
            changed: Called with its first catalogue, and with each different one.
            clock: Tells when it has expired.
        """
        self.agent = agent
        self.verdict = LockVerdict()
        self.catalogue = Catalogue(agent.name)
        self.stale = False
        self._world = world
        self._tokens = tokens
        self._changed = changed
        self._client_of_document: EndpointClient | None = None
        self._validators: Mapping[str, str] = {}
        self._target = ""
        self._lifetime = SOFT_AGE
        self._read_at: float | None = None
        self._expires = 0.0
        self._failures = 0
        self._retry_at = 0.0
        self._why: ServerUnavailable | None = None
        self._reading: asyncio.Task[ServerUnavailable | None] | None = None
        self._timer: asyncio.Task[None] | None = None
        self._closed = False
        self._warned: set[str] = set()
        self._clock = clock

    @abstractmethod
    async def _read_document(self, client: EndpointClient) -> None:
        """Read the document, and call `_publish`."""

    @property
    def state(self) -> str:
        """`idle`, `starting`, `up` or `down`."""
        if self._read_at is not None:
            return "down" if self.stale else "up"
        if self._reading is not None:
            return "starting"
        return "idle" if self._why is None else "down"

    async def ready(self) -> None:
        """Read the document if it is not known, or too old to be used.

        Raises:
            ServerUnavailable: The agent cannot be used now.
        """
        now = self._clock.monotonic()
        if self._read_at is not None and now < self._read_at + HARD_AGE:
            if now >= self._expires and now >= self._retry_at:
                self._refresh()
            return
        if self._why is not None and now < self._retry_at:
            raise self._why.again()
        failure = await self.refresh()
        if failure is not None:
            raise failure.again()

    async def refresh(self) -> ServerUnavailable | None:
        """Read the document again; the error if that failed. Concurrent callers share one reading."""
        # Without the shield, one cancelled call would end the reading for all.
        return await asyncio.shield(self._refresh())

    def recheck(self) -> None:
        """Read the document again in the background, if it has been read."""
        if self._read_at is not None and not self._closed:
            self._refresh()

    def _refresh(self) -> asyncio.Task[ServerUnavailable | None]:
        if self._reading is None:
            # An empty context: the trace of the first call must not apply to later ones.
            name = f"a2a {self.agent.name}"
            self._reading = asyncio.create_task(self._read(), name=name, context=Context())
        return self._reading

    async def _read(self) -> ServerUnavailable | None:
        try:
            with self._clock.outside():
                async with asyncio.timeout(self.agent.start_timeout):
                    await self._read_document(self._permitted_client())
        except (
            *(NotReady, DocumentError, StartFailure, MissingSecret, Untrusted),
            *(ExchangeFailure, InvalidAnswer, ImportError, TimeoutError),
        ) as error:
            self._failures += 1
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (self._failures - 1))
            self._why = _unavailable(self.agent, error)
            self.stale = self._read_at is not None
            self._retry_at = self._clock.monotonic() + (pause if self._why.retryable else 0.0)
            if self.stale:
                _log.warning("%s; its last known tools stay", self._why.message)
        else:
            self._failures, self._why, self.stale, self._retry_at = 0, None, False, 0.0
        finally:
            self._reading = None
        self._schedule()
        return self._why

    def _permitted_client(self) -> EndpointClient:
        """The client of the document, once the lock and trust permit the agent."""
        judged = self._judged(None)
        refused = judged.refused.get("*")
        if refused is not None:
            details: dict[str, JSON] = {"server": self.agent.name}
            raise ServerUnavailable(
                refused, code=judged.code, outcome=Outcome.DENIED, details=details, retryable=False
            )
        if self._client_of_document is None:
            # Before the client is created, which reads secrets.
            self._world.trust.check_server(self.agent)
            self._client_of_document = EndpointClient(self.agent, self._world, self._tokens)
        return self._client_of_document

    def _schedule(self) -> None:
        """Read the document again when it expires, although nothing calls."""
        if self._timer is not None:
            self._timer.cancel()
        if self._closed or self._read_at is None or self.agent.tools:
            return
        now = self._clock.monotonic()
        wait = max(self._expires - now, self._retry_at - now, _SHORTEST)
        wait += wait * _JITTER * random.random()  # noqa: S311 -- spreads load, keeps no secret
        name = f"a2a {self.agent.name} expires"
        self._timer = asyncio.create_task(self._wake(wait), name=name, context=Context())

    async def _wake(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        # The reading itself replaces this timer, and must not cancel the task that begins it.
        self._timer = None
        self._refresh()

    async def _fetched(self, client: EndpointClient, targets: Sequence[str]) -> bytes | None:
        """The document at the first of the paths that exists; None if it has not changed.

        Raises:
            ExchangeFailure: It cannot be read.
        """
        for target in targets:
            headers = [("Accept", "application/json")]
            known = self._read_at is not None and target == self._target
            if known:
                headers += self._validators.items()
            request = client.endpoint.request("GET", headers, target=target)
            answer = await client.send(request, silence=None, most=LARGEST_CARD)
            try:
                body = await answer.whole()
            except HTTPError as error:
                raise ExchangeFailure.by(error) from None
            finally:
                await answer.aclose()
            if answer.status == 404 and target != targets[-1]:
                continue
            if answer.status != 200 and not (answer.status == 304 and known):
                raise ExchangeFailure(_trouble(answer.status, self.agent, proves=client.proves), sent=True)
            self._target = target
            self._take_freshness(request, HTTPResponse(answer.status, answer.headers, b""))
            return body if answer.status == 200 else None
        raise AssertionError("the last target returns or raises")

    def _take_freshness(self, request: HTTPRequest, response: HTTPResponse) -> None:
        """Take the lifetime and the validators of a response; a 304 may leave either as it is (RFC 9111, section 4.3.4)."""
        told = any(name in ("cache-control", "expires") for name, _value in response.headers)
        unchanged = response.status == 304
        if told or not unchanged:
            fresh: Mapping[str, Any] = freshness(request, response, self._clock.now()) or {}
            left = (fresh.get("lifetime") or 0) - (fresh.get("age") or 0) if told else SOFT_AGE
            self._lifetime = min(max(float(left), _SHORTEST), HARD_AGE)
            self._validators = fresh.get("validators") or (self._validators if unchanged else {})

    def _publish(self, catalogue: Catalogue, lifetime: float) -> None:
        """Use a catalogue from now on, for some seconds."""
        before, self.catalogue = self.catalogue, catalogue
        self._read_at = self._clock.monotonic()
        self._expires = self._read_at + lifetime
        self.verdict = self._judged(catalogue)
        if before._replace(info=catalogue.info) != catalogue:
            self._changed(self.agent.name, catalogue)

    def _judged(self, catalogue: Catalogue | None) -> LockVerdict:
        verdict = self._world.judge(self.agent, catalogue)
        for warning in verdict.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                _log.warning("%s", warning)
        return verdict

    def retire(self) -> None:
        """Read the document no more: another connection takes the next calls."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    async def aclose(self) -> None:
        """Close every connection; calls in progress fail."""
        self.retire()
        ending = [task for task in (self._reading, self._timer) if task is not None]
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)
        if self._client_of_document is not None:
            await self._client_of_document.aclose()


class DirectoryConnection(PolledConnection):
    """The connection to a directory of agents in one event loop. Its catalogue lists the cards."""

    async def _read_document(self, client: EndpointClient) -> None:
        endpoint = client.endpoint
        scheme, host, _port = parse_origin(endpoint.written)
        # Whoever can change the list on its way decides which agents get the credentials.
        if scheme != "https" and not is_loopback(host):
            message = f"the directory `{self.agent.name}` is not read without encryption"
            raise StartFailure(message, hint="use a URL that starts with `https://`")
        body = await self._fetched(client, (endpoint.target,))
        catalogue = self.catalogue
        if body is not None:
            url = f"{endpoint.written}{self._target}"
            catalogue = read_directory(body, self.agent, url)
        self._publish(catalogue, self._lifetime)


class AgentConnection(PolledConnection):
    """The connection to one agent in one event loop. Its document is the card."""

    def __init__(
        self, agent: Server, world: NetworkEnvironment, tokens: TokenCache, changed: Changed, clock: Clock
    ) -> None:
        super().__init__(agent, world, tokens, changed, clock)
        self._card: AgentCard | None = None
        self._client: Client | None = None
        self._endpoint: EndpointClient | None = None
        self._interface: AgentInterface | None = None
        self._streams = False
        self._ending: set[asyncio.Task[str]] = set()

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

    async def _read_document(self, client: EndpointClient) -> None:
        agent = self.agent
        if agent.tools:
            await self._use(card_without_url(agent, client.endpoint.url), client, HARD_AGE)
            return
        if agent.card_file:
            body: bytes | None = _content_of(agent.card_file)
            url = agent.url
        else:
            body = await self._fetched(client, targets_of_card(client.endpoint.target))
            url = f"{client.endpoint.written}{self._target}"
        if body is None:
            self._publish(self.catalogue, self._lifetime)
            return
        card = await self._checked(decode_card(body), url)
        await self._connect(card, client)
        if card.extended and client.proves:
            card = await self._extended(card, client, url)
        await self._use(card, client, self._lifetime)

    async def _checked(self, raw: dict[str, Any], url: str) -> AgentCard:
        """A card, after its signature was verified if the agent has keys."""
        if self.agent.jwks:
            from toolcrib.servers.a2a.signatures import verified_card  # noqa: PLC0415 -- needs the extra

            raw = verified_card(raw, self.agent)
        return await read_card(raw, self.agent, url, self._world.secrets)

    async def _use(self, card: AgentCard, client: EndpointClient, lifetime: float) -> None:
        await self._connect(card, client)
        self._card = card
        self._publish(card.catalogue, lifetime)

    async def _extended(self, card: AgentCard, client: EndpointClient, url: str) -> AgentCard:
        """The extended card, which authenticated callers can read; the card itself if that fails."""
        from toolcrib.servers.a2a.messages import extended_card  # noqa: PLC0415 -- needs the extra

        assert self._interface is not None  # noqa: S101 -- it is connected
        try:
            extended = await self._checked(await extended_card(self.endpoint, self._interface), url)
            await self._connect(extended, client)
        except (ExchangeFailure, InvalidAnswer, ServerUnavailable) as error:
            _log.warning("the extended card of the agent `%s` cannot be read: %s", self.agent.name, error)
            return card
        return extended

    def _chosen(self, card: AgentCard, own: str) -> AgentInterface:
        """The first endpoint of a card at the host of the card, or at a host that the configuration names."""
        refused = []
        for interface in card.interfaces:
            if is_permitted(interface.url, own, self.agent.hosts):
                return interface
            refused.append(origin_of_url(interface.url) or "an invalid URL")
        if not refused:
            raise InvalidAnswer("its card has no JSON-RPC or HTTP+JSON endpoint of A2A 1.0 or 0.3")
        places = ", ".join(f"`{place}`" for place in dict.fromkeys(refused))
        raise InvalidAnswer(
            f"its card places the endpoint at {places}, and only `{own}` and the `hosts` of the agent are contacted"
        )

    async def _connect(self, card: AgentCard, own: EndpointClient) -> None:
        """Create the client of the endpoint of a card, if it is another one than before.

        Raises:
            InvalidAnswer: The card has no endpoint that can be used.
        """
        interface = self._chosen(card, own.endpoint.written)
        if interface == self._interface and self._client is not None and self._streams == card.streaming:
            return
        from toolcrib.servers.a2a.messages import open_sdk_client  # noqa: PLC0415 -- needs the extra

        before = self._endpoint
        if origin_of_url(interface.url) == own.endpoint.written:
            self._endpoint = own
        else:
            self._endpoint = EndpointClient(self.agent._replace(url=interface.url), self._world, self._tokens)
        self._client = open_sdk_client(card, interface, self._endpoint)
        self._interface, self._streams = interface, card.streaming
        if before is not None and before not in (own, self._endpoint):
            await before.aclose()

    def finish_later(self, ending: asyncio.Task[str], task_id: str) -> bool:
        """Let the cancellation of a task outlast its call; whether there is room for it. A failure is logged.

        Args:
            ending: The cancellation. Its result says why it failed, or is empty. Without room, it is ended.
            task_id: The agent's ID for the task; empty if the agent has not named it.
        """
        if len(self._ending) >= _MOST_ENDING:
            ending.cancel()
            return False

        def ended(_ending: asyncio.Task[str]) -> None:
            self._ending.discard(ending)
            why = "the runtime was closed before it answered" if ending.cancelled() else ending.result()
            if why:
                work = f"the task {task_id}" if task_id else "a call"
                text = self._world.secrets.hide_in_text(why)
                _log.warning("the agent `%s` may still work on %s: %s", self.agent.name, work, text)

        self._ending.add(ending)
        ending.add_done_callback(ended)
        return True

    async def aclose(self) -> None:
        """Close every connection; calls in progress fail. Cancellations in progress get 2 seconds."""
        if self._ending:
            _ended, late = await asyncio.wait(self._ending, timeout=_CLOSING)
            for ending in late:
                ending.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await super().aclose()
        if self._endpoint is not None and self._endpoint is not self._client_of_document:
            await self._endpoint.aclose()


def _content_of(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            body = file.read(LARGEST_CARD + 1)
    except OSError as error:
        raise InvalidAnswer(f"its card {path} cannot be read: {error.strerror}") from None
    if len(body) > LARGEST_CARD:
        raise InvalidAnswer(f"its card {path} is larger than {format_size(LARGEST_CARD)}")
    return body


def _trouble(status: int, agent: Server, *, proves: bool) -> LinkTrouble:
    if status in (401, 403):
        hint = (
            "check that the credentials in `auth` are still valid"
            if proves
            else "add credentials to `auth` of the agent"
        )
        return LinkTrouble("unauthorized", f"it answered with status {status}", hint)
    what = (
        "check that `directory` is the URL of the list"
        if agent.lists
        else "check that `card` is the URL of the agent or of its card"
    )
    hint = what if status in (301, 302, 307, 308, 404) else ""
    return LinkTrouble("http_status", f"it answered with status {status}", hint)


class AgentPool:
    """The connections to the agents of one network environment, each once per event loop.

    Args:
        world: The network environment.
        tokens: The token cache, which outlives the environment.
        changed: Called with the first tool list of an agent, and with each different one.
        clock: Tells when cards have expired.

    Attributes:
        namespace: Makes the IDs of messages unique.
    """

    def __init__(
        self, world: NetworkEnvironment, tokens: TokenCache, changed: Changed, clock: Clock | None = None
    ) -> None:
        self.world = world
        self._clock = clock or RealClock()
        # IDs of calls are unique within a runtime only, and an agent may answer a repeated message from its memory.
        self.namespace = uuid4()
        self._tokens = tokens
        self._changed = changed
        self._connections: dict[tuple[str, int], tuple[asyncio.AbstractEventLoop, PolledConnection]] = {}
        self._left: list[tuple[asyncio.AbstractEventLoop, PolledConnection]] = []

    def connection(self, name: str) -> PolledConnection:
        """The connection to an agent or a directory of the environment in the running loop."""
        loop = asyncio.get_running_loop()
        agent = self.world.servers[name]
        known = self._connections.get((name, id(loop)))
        # A new loop may have the `id` of a closed one, and a directory may list another card under a known name.
        if known is None or known[0] is not loop or known[1].agent != agent:
            if known is not None and known[0] is loop:
                known[1].retire()
                self._left.append(known)
            kind = DirectoryConnection if agent.lists else AgentConnection
            known = loop, kind(agent, self.world, self._tokens, self._changed, self._clock)
            self._connections[name, id(loop)] = known
        return known[1]

    def get(self, name: str) -> AgentConnection:
        """The connection to an agent of the environment in the running loop.

        Raises:
            ServerUnavailable: The name is that of a directory.
        """
        found = self.connection(name)
        if isinstance(found, AgentConnection):
            return found
        message = f"`{name}` is a directory of agents, and no agent"
        raise ServerUnavailable(
            message, hint=f"name one of its agents: `{name}{SEPARATOR}NAME`", retryable=False
        )

    def recheck(self, name: str) -> None:
        """Read the card of an agent again soon, in each event loop that uses it. May be called in any thread."""
        for loop, connection in [*self._connections.values()]:
            if connection.agent.name == name and loop.is_running():
                loop.call_soon_threadsafe(connection.recheck)

    def states(self) -> Mapping[str, str]:
        """Name of an agent -> `idle`, `starting`, `up` or `down`. Contacts no agent."""
        return {connection.agent.name: connection.state for _loop, connection in self._connections.values()}

    @property
    def empty(self) -> bool:
        """Whether there is nothing to close."""
        return not self._connections

    def retire(self) -> None:
        """Leave the agents to another pool; calls in progress end normally."""
        for loop, connection in [*self._connections.values(), *self._left]:
            if not loop.is_closed():
                loop.call_soon_threadsafe(connection.retire)

    async def aclose(self) -> None:
        """Close every connection, each in its own loop."""
        connections = [*self._connections.values(), *self._left]
        self._connections, self._left = {}, []
        running = asyncio.get_running_loop()
        for loop, connection in connections:
            if loop is running:
                await connection.aclose()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(connection.aclose(), loop))
