"""Where a server is, as people are told: no secret that a file writes out."""

from __future__ import annotations

import pytest

from toolcrib.core.server_config import Server
from toolcrib.security.server_display import display_address, written_secrets


@pytest.mark.parametrize(
    ("args", "shown", "secrets"),
    [
        (("--token", "CANARY1"), "--token ***", ["CANARY1"]),
        (("--api-key=CANARY2", "x y"), "--api-key=*** 'x y'", ["CANARY2"]),
        (("PASSWORD=a b",), "PASSWORD=***", ["a b"]),
        (("--token", "${TOKEN}"), "--token '${TOKEN}'", []),
        (("--token=${TOKEN}",), "'--token=${TOKEN}'", []),
        (("--token", "--verbose"), "--token --verbose", []),
        (("postgres://me:CANARY3@db/x",), "postgres://me:***@db/x", ["CANARY3"]),
        (("--max-token", "4096"), "--max-token ***", []),
        (("--token-file", "/run/token"), "--token-file ***", []),
        (("*.txt",), "'*.txt'", []),
    ],
)
def test_arguments(args, shown, secrets):
    server = Server("s", command="run", args=args)
    assert display_address(server) == f"run {shown}"
    assert written_secrets(server) == secrets


def test_a_url():
    server = Server("s", transport="http", url="https://CANARY1@h.example/mcp?api_key=CANARY%2F2&page=3#x")
    assert display_address(server) == "https://***@h.example/mcp?api_key=***&page=3#x"
    assert written_secrets(server) == ["CANARY1", "CANARY%2F2", "CANARY/2"]
    looked_up = Server("s", transport="http", url="https://${HOST}/mcp?api_key=${KEY}")
    assert display_address(looked_up) == looked_up.url
