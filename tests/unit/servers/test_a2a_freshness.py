"""When the cards of A2A agents are read again, in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime

import pytest

from a2a_agents import sdk_agent
from toolcrib import VirtualClock
from toolcrib.core.server_config import Server
from toolcrib.http.auth import TokenCache
from toolcrib.servers.a2a.agents import HARD_AGE, AgentPool
from toolcrib.servers.environment import NetworkEnvironment
from toolcrib.servers.mcp.failures import ServerUnavailable


@contextlib.asynccontextmanager
async def connected(url):
    """A clock that only the test moves, and a connection whose card has been read."""
    clock = VirtualClock(datetime.now(UTC))  # the agent dates its answers
    agent = Server("crm", transport="a2a", url=url)
    world = NetworkEnvironment.ordinary()._replace(servers={"crm": agent})
    with clock.working():
        pool = AgentPool(world, TokenCache(), lambda _name, _catalogue: None, clock)
        try:
            connection = pool.get("crm")
            await connection.ready()
            yield clock, connection
        finally:
            await pool.aclose()


async def read(agent):
    """Wait until the card has been asked for."""
    await asyncio.wait_for(agent.reads.get(), 60)


@pytest.mark.parametrize(
    ("cache_control", "soft"),
    [("max-age=60", 60), ("", 300), ("max-age=0", 5), ("no-store", 5), ("max-age=100000", HARD_AGE)],
)
async def test_a_card_is_read_again_when_it_expires_although_nothing_calls(cache_control, soft):
    async with sdk_agent(cache_control=cache_control) as agent, connected(agent.base) as (clock, connection):
        await read(agent)
        # A slow answer is older when it arrives.
        await clock.advance(soft * 0.7)
        assert agent.reads.empty()
        # The time varies by 10 %.
        await clock.advance(soft * 0.4 + 2)
        await read(agent)
        assert await connection.refresh() is None
        assert connection.state == "up"


async def test_the_age_that_a_cache_reports_counts():
    async with (
        sdk_agent(cache_control="max-age=60", card_headers={"Age": "50"}) as agent,
        connected(agent.base) as (clock, _connection),
    ):
        await read(agent)
        await clock.advance(12)
        await read(agent)


async def test_an_unchanged_card_is_fresh_for_the_time_that_its_304_tells():
    async with sdk_agent(cache_control="max-age=60") as agent, connected(agent.base) as (clock, connection):
        await read(agent)
        agent.cache_control = "max-age=1000"
        assert await connection.refresh() is None
        await read(agent)
        assert agent.not_modified == 1
        await clock.advance(900)
        assert agent.reads.empty()


async def test_a_card_that_cannot_be_read_again_is_used_for_a_day():
    async with sdk_agent() as agent, connected(agent.base) as (clock, connection):
        agent.failing = True
        failure = await connection.refresh()
        assert failure is not None
        assert (connection.stale, connection.state) == (True, "down")
        await clock.advance(HARD_AGE - 60)
        await connection.ready()
        await clock.advance(120)
        with pytest.raises(ServerUnavailable, match="status 500"):
            await connection.ready()
        agent.failing = False
        await clock.advance(60)
        await connection.ready()
        assert (connection.stale, connection.state) == (False, "up")


async def test_a_failed_reading_is_repeated():
    async with sdk_agent(cache_control="max-age=0") as agent, connected(agent.base) as (clock, connection):
        agent.failing = True
        await connection.refresh()
        while not agent.reads.empty():
            agent.reads.get_nowait()
        await clock.advance(4)
        assert agent.reads.empty()
        await clock.advance(2)
        await read(agent)
        agent.failing = False
        await connection.refresh()  # the one that has just failed
        assert await connection.refresh() is None
        assert not connection.stale
