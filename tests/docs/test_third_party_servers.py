"""The file of third-party servers: each entry is pinned, and is called, or says why not."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "conformance" / "servers.toml"
SERVERS = tomllib.loads(FILE.read_text(encoding="utf-8"))
PIN = {
    "pypi": r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*",
    "npm": r"(@[a-z0-9-]+/)?[a-z0-9.-]+@[0-9][A-Za-z0-9.-]*",
}
KEYS = {"registry", "packages", "command", "args", "env", "tool", "good", "contains", "bad", "bad_outcome", "no_call", "skipped", "refused"}  # fmt: skip


@pytest.mark.parametrize("name", SERVERS)
def test_an_entry_is_pinned_and_is_called_or_says_why_not(name):
    server = SERVERS[name]
    assert server.keys() <= KEYS
    for package in server["packages"]:
        assert re.fullmatch(PIN[server["registry"]], package)
    assert ("command" in server) is (server["registry"] == "pypi")
    assert len({"tool", "no_call", "skipped"} & server.keys()) == 1
    assert ("good" in server) is ("tool" in server)
    assert "tool" in server or not {"bad", "contains", "bad_outcome"} & server.keys()


def test_thirty_servers_are_listed_and_most_are_called():
    used = [server for server in SERVERS.values() if "skipped" not in server]
    assert len(used) >= 30
    assert {server["registry"] for server in used} == {"pypi", "npm"}
    assert sum("tool" in server for server in used) >= 25
