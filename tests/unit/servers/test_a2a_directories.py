"""Lists of the cards of agents: what they name, and what is wrong with the other entries."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.server_config import Catalogue, Server, listed_agents
from toolcrib.servers.a2a.directories import read_directory
from toolcrib.servers.mcp.failures import InvalidAnswer

URL = "https://agents.example.com/cards.json"
DIRECTORY = Server(
    "partners", transport="a2a", url=URL, lists=True, hosts=("crm.example.com", "10.0.0.1:8443")
)


def read(entries):
    return read_directory(json.dumps(entries).encode(), DIRECTORY, URL)


@pytest.mark.parametrize(
    ("entry", "name", "url"),
    [
        ("https://crm.example.com", "partners__crm_example_com", "https://crm.example.com"),
        (
            "https://crm.example.com/.well-known/agent-card.json",
            "partners__crm_example_com",
            "https://crm.example.com/.well-known/agent-card.json",
        ),
        ("https://10.0.0.1:8443/a/b", "partners__10_0_0_1_8443_a_b", "https://10.0.0.1:8443/a/b"),
        ("sales.json", "partners__agents_example_com_sales", "https://agents.example.com/sales.json"),
        ({"name": "crm", "card": "/crm"}, "partners__crm", "https://agents.example.com/crm"),
        (
            {"card": "https://crm.example.com", "more": 1},
            "partners__crm_example_com",
            "https://crm.example.com",
        ),
    ],
)
def test_an_entry_names_an_agent_and_its_card(entry, name, url):
    catalogue = read([entry])
    assert (catalogue.agents, catalogue.remarks) == ({name: url}, ())


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        (7, "is neither a URL nor an object"),
        ({"name": "crm"}, "is neither a URL nor an object"),
        ({"name": 7, "card": "https://crm.example.com"}, "is neither a URL nor an object"),
        ({"name": "a b", "card": "https://crm.example.com"}, "has the name `a b`; use letters"),
        ("https://evil.example", "is at `https://evil.example`, and only `https://agents.example.com` and"),
        ("https://crm.example.com.evil.example", "is at `https://crm.example.com.evil.example`"),
        ("https://10.0.0.1:8444", "is at `https://10.0.0.1:8444`"),
        ("ftp://crm.example.com", "is not a valid URL"),
        ("https://crm.example.com/${SECRET}", "is not a valid URL"),
        ("https://good.example.com@evil.example", "is not a valid URL"),
    ],
)
def test_an_invalid_entry_is_a_remark_and_the_others_work(entry, text):
    catalogue = read([entry, "https://crm.example.com"])
    assert [*catalogue.agents] == ["partners__crm_example_com"]
    (remark,) = catalogue.remarks
    assert remark.startswith("entry 1 of its list ")
    assert text in remark


def test_a_second_agent_with_the_same_name_is_a_remark():
    catalogue = read([{"name": "crm", "card": "/a"}, {"name": "crm", "card": "/b"}])
    assert catalogue.agents == {"partners__crm": "https://agents.example.com/a"}
    assert catalogue.remarks == ("entry 2 of its list has the same name as another one, `partners__crm`",)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"<html>", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"agents": []}', "not a JSON array"),
        (json.dumps(["/a"] * 1001).encode(), "1,001 entries"),
    ],
)
def test_what_is_no_list_is_refused(body, text):
    with pytest.raises(InvalidAnswer, match=text):
        read_directory(body, DIRECTORY, URL)


JUNK = st.recursive(
    st.none() | st.integers() | st.text(max_size=8) | st.just("/crm"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "card"]), inner, max_size=2)
    ),
    max_leaves=6,
)


@given(entries=st.lists(JUNK, max_size=5))
def test_each_entry_is_an_agent_or_a_remark(entries):
    catalogue = read(entries)
    assert len(catalogue.agents) + len(catalogue.remarks) == len(entries)
    assert all(name.startswith("partners__") and len(name) <= 64 for name in catalogue.agents)


def test_agents_have_the_settings_of_their_directory_and_no_other_agents():
    servers = {"partners": DIRECTORY._replace(imports=True), "partners__own": Server("partners__own")}
    known = {
        "partners": Catalogue("partners", agents={"partners__a": "https://a", "partners__own": "https://b"})
    }
    (agent,) = listed_agents(servers, known).values()
    assert (agent.name, agent.url, agent.directory, agent.lists) == ("partners__a", "https://a", URL, False)
    assert (agent.imports, agent.hosts, agent.transport) == (True, DIRECTORY.hosts, "a2a")
    assert listed_agents(servers, {}) == {}
