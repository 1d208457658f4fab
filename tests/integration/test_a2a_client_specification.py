"""What the specification of A2A 1.0 (1.0.1) demands of a client, as far as it concerns calls of tools; each test names its sections.

Agents of the official SDK on loopback are the foreign side. How cards are verified (8.4.3) is in `test_a2a_sources`, how errors and states
are understood (3.3.2, 5.4) in `test_a2a_calls`, and how cards are cached (8.6.2) in `unit/servers/test_a2a_freshness`. Clients that receive
push notifications (4.3.3, 13.2) do not exist here.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from a2a_agents import EXTENSION, card_of, sdk_agent
from toolcrib import Outcome, Runtime

TOKEN = "token-of-crm-1234567890"


def opened(folder, base, **agent):
    agents = {"crm": {"card": base, "import": True, **agent}}
    text = {"project": "p", "sources": [], "agents": agents}
    (folder / "toolcrib.yaml").write_text(json.dumps(text))
    return Runtime.open(folder, index=False)


def offering(*interfaces):
    """A card with these interfaces: path, binding and version."""

    def make(base):
        offered = [
            {"url": f"{base}{path}", "protocolBinding": binding, "protocolVersion": version}
            for path, binding, version in interfaces
        ]
        return card_of(base, supportedInterfaces=offered)

    return make


def secured(base):
    scheme = {"crm": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
    needed = [{"schemes": {"crm": {"list": []}}}]
    return card_of(base, securitySchemes=scheme, securityRequirements=needed)


def extended(base):
    card = secured(base)
    return {**card, "capabilities": {**card["capabilities"], "extendedAgentCard": True}}


@pytest.mark.parametrize("interface", [("/rpc", "JSONRPC", "1.0"), ("/rest", "HTTP+JSON", "1.0")])
async def test_3_6_1_and_7_3_every_request_has_the_version_and_the_credentials(
    tmp_path, monkeypatch, interface
):
    monkeypatch.setenv("CRM_TOKEN", TOKEN)

    entered = asyncio.Event()

    async def waits(turn):
        entered.set()
        await asyncio.Event().wait()

    def card(base):
        return {**secured(base), "supportedInterfaces": offering(interface)(base)["supportedInterfaces"]}

    auth = {"type": "http", "scheme": "bearer", "token": "${CRM_TOKEN}"}
    async with (
        sdk_agent(waits, card=card, token=TOKEN) as agent,
        opened(tmp_path, agent.base, auth=auth) as tools,
    ):
        assert (await tools.call("crm__add", {"a": 1, "b": 2})).value == {"sum": 3}
        running = asyncio.create_task(tools.call("crm__note", {}))
        await asyncio.wait_for(entered.wait(), 60)
        # Cancelling a call cancels the remote task.
        running.cancel()
        await asyncio.wait_for(agent.cancelled.wait(), 60)
        await asyncio.wait([running])
        # The card is read before a version is chosen.
        operations = [
            headers
            for path, headers in zip(agent.paths, agent.headers, strict=True)
            if "/.well-known/" not in path
        ]
        assert len(operations) >= 3
        for headers in operations:
            assert headers["a2a-version"] == "1.0"
            assert headers["authorization"] == f"Bearer {TOKEN}"
        # 4.6: the extension is declared where it is used.
        assert operations[0]["a2a-extensions"] == EXTENSION


@pytest.mark.parametrize(
    ("interfaces", "used"),
    [
        ([("/rest", "HTTP+JSON", "1.0"), ("/rpc", "JSONRPC", "1.0")], "/rest/message:stream"),
        ([("/rpc", "JSONRPC", "1.0"), ("/rest", "HTTP+JSON", "1.0")], "/rpc"),
        (
            [("/grpc", "GRPC", "1.0"), ("/new", "JSONRPC", "2.0"), ("/rest", "HTTP+JSON", "1.0")],
            "/rest/message:stream",
        ),
    ],
)
async def test_8_3_2_the_first_supported_interface_is_used_at_its_url(tmp_path, interfaces, used):
    async with (
        sdk_agent(card=offering(*interfaces)) as agent,
        opened(tmp_path, agent.base) as tools,
    ):
        result = await tools.call("crm__add", {"a": 1, "b": 2})
        assert (result.outcome, result.value) == (Outcome.OK, {"sum": 3})
        assert agent.paths[-1] == used


async def test_3_1_11_the_extended_card_is_read_with_credentials_and_replaces_the_public_one(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("CRM_TOKEN", TOKEN)

    def public(base):
        return {**extended(base), "skills": card_of(base)["skills"][:1]}

    auth = {"type": "http", "scheme": "bearer", "token": "${CRM_TOKEN}"}
    async with (
        sdk_agent(card=public, extended=extended, token=TOKEN) as agent,
        opened(tmp_path, agent.base, auth=auth) as tools,
    ):
        assert [*tools.registry] == ["crm__add", "crm__ask", "crm__note"]


async def test_5_7_unknown_members_of_a_card_are_ignored(tmp_path):
    def future(base):
        skills = [{**skill, "fromTheFuture": {"a": 1}} for skill in card_of(base)["skills"]]
        return card_of(base, skills=skills, fromTheFuture=[1])

    async with sdk_agent(card=future) as agent, opened(tmp_path, agent.base) as tools:
        assert tools.problems == ()
        assert (await tools.call("crm__add", {"a": 1, "b": 2})).value == {"sum": 3}


async def test_3_6_an_agent_of_another_version_only_is_not_called(tmp_path):
    versions = ("1.1", "2.0", "10.0", "x")
    offered = [(f"/{number}", "JSONRPC", version) for number, version in enumerate(versions)]
    async with sdk_agent(card=offering(*offered)) as agent, opened(tmp_path, agent.base) as tools:
        (problem,) = tools.problems
        assert "no JSON-RPC or HTTP+JSON endpoint of A2A 1.0 or 0.3" in problem.message
        result = await tools.call("crm__add", {"a": 1, "b": 2})
        assert result.outcome is Outcome.UNAVAILABLE
        assert {*agent.paths} == {"/.well-known/agent-card.json"}
