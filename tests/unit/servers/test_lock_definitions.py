"""What a lock holds of a server, and what it must not hold."""

from __future__ import annotations

import pytest

from toolcrib.core.server_config import Catalogue, Server
from toolcrib.servers.lock import (
    HASHED,
    LockedServer,
    endpoint_of,
    hash_of,
    locked_tool,
    unlockable_tools,
)

NOW = {"name": "now", "description": "The time.", "inputSchema": {"type": "object"}}


def args_of(*args):
    return endpoint_of(Server("s", command="run", args=args))["args"]


def test_a_process_is_told_as_it_is_written():
    server = Server(
        "time",
        command="uvx",
        args=("mcp-server-time", "--zone=${TZ:-UTC}"),
        env={"Z": "literal", "A": "${A}"},
        cwd="tools",
        root="/somewhere",
    )
    assert endpoint_of(server) == {
        "transport": "stdio",
        "command": "uvx",
        "args": ["mcp-server-time", "--zone=${TZ:-UTC}"],
        "env": ["A", "Z"],
        "cwd": "tools",
    }


def test_an_address_is_told_with_the_names_of_headers_and_the_kind_of_proof():
    server = Server(
        "crm",
        transport="http",
        url="https://crm.example.com/mcp",
        headers={"X-Team": "blue", "authorization": "Bearer s3cret"},
        auth={
            "type": "oauth2",
            "flow": "client_credentials",
            "token_url": "https://auth.example.com/token",
            "client_id": "me",
            "client_secret": "${SECRET}",
        },
    )
    assert endpoint_of(server) == {
        "transport": "http",
        "url": "https://crm.example.com/mcp",
        "headers": ["authorization", "x-team"],
        "auth": [
            {"type": "oauth2", "flow": "client_credentials", "token_url": "https://auth.example.com/token"}
        ],
    }


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--api-key", "s3cret-value"], ["--api-key", "***"]),
        (["--api-key=s3cret-value"], ["--api-key=***"]),
        (["API_TOKEN=s3cret-value"], ["API_TOKEN=***"]),
        (["--header", "Authorization: Bearer s3cret-value"], ["--header", "Authorization: ***"]),
        (["--token", "${TOKEN}"], ["--token", "${TOKEN}"]),
        (["--token=${TOKEN}"], ["--token=${TOKEN}"]),
        (["--token", "--verbose"], ["--token", "--verbose"]),
        (["--max-tokens", "4096"], ["--max-tokens", "4096"]),
        (["postgres://me:s3cret-value@db/shop"], ["postgres://me:***@db/shop"]),
        (["https://s3cret-value@host/x"], ["https://***@host/x"]),
        (["https://host/x?a=1&api_key=s3cret-value#f"], ["https://host/x?a=1&api_key=***#f"]),
        (["https://me:${PASSWORD}@host/x"], ["https://me:${PASSWORD}@host/x"]),
        (["http://[broken"], ["http://[broken"]),
    ],
)
def test_a_secret_that_is_written_out_is_not_told(args, told):
    assert args_of(*args) == told


def test_a_url_holds_no_secret_that_is_written_out():
    server = Server("s", transport="http", url="https://me:s3cret@host/mcp?key=1&token=abc")
    assert endpoint_of(server)["url"] == "https://me:***@host/mcp?key=1&token=***"


def test_a_definition_is_kept_without_what_changes_by_itself():
    said = {**NOW, "title": None, "_meta": {"seen": 3}, "icons": [{"src": "a.png"}], "execution": {}}
    assert locked_tool(said).definition == {**NOW, "icons": [{"src": "a.png"}]}


@pytest.mark.parametrize("key", HASHED)
def test_everything_that_counts_is_in_the_hash(key):
    assert hash_of({**NOW, key: {"x": 1}}) != hash_of(NOW)


def test_icons_and_the_order_of_keys_do_not_count():
    assert hash_of({**dict(reversed(NOW.items())), "icons": [1]}) == hash_of(NOW)
    assert hash_of(NOW).startswith("sha256:")


def test_what_cant_be_written_is_left_out_and_told():
    catalogue = Catalogue(
        "s", {"a": NOW, "b": {**NOW, "description": "\ud800"}}, info={"version": "1", "x": "y"}
    )
    locked = LockedServer.of(Server("s"), catalogue)
    assert list(locked.tools) == ["a"]
    assert locked.info == {"version": "1"}
    assert "lone surrogate" in unlockable_tools(catalogue)["b"]
