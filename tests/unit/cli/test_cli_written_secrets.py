"""Secrets that are written out in a server's arguments or its url are never printed, nor what a server says of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from sampling import sample

SCRIPT = Path(__file__).parents[2] / "mcp_scripts.py"


@pytest.fixture
def project(write):
    args = ["-S", str(SCRIPT), "stderr=10", "--token", "CANARYARG1", "--api-key=CANARYARG2"]
    server = {"command": sys.executable, "args": args, "env": {"ECHO": "CANARYARG1"}, "import": True}
    closed = {"url": "http://127.0.0.1:1/mcp?api_key=CANARYURL1"}
    document = {"project": "p", "servers": {"s": server, "closed": closed}}
    bound = {"name": "far", "description": "Far away.", "input_schema": {}, "mcp": {"server": "closed"}}
    return write({"toolcrib.yaml": json.dumps(document), "descriptors/far.tool.yaml": json.dumps(bound)})


@pytest.mark.parametrize(
    "words",
    sample(
        [
            ["doctor"],
            ["doctor", "--json"],
            ["call", "s__echo", "--explain"],
            ["call", "s__echo", "--dry-run"],
            ["call", "s__environ"],
            ["call", "s__echo", "text=CANARYARG2"],
            ["call", "far", "--explain"],
            ["lock"],
        ],
        one_in=2,
    ),
)
def test_they_are_masked(project, toolcrib, words):
    result = toolcrib(*words)
    told = result.stdout + result.stderr
    assert "***" in told or words == ["lock"]
    assert "CANARY" not in told
    assert "CANARY" not in "".join(path.read_text() for path in project.glob("*.lock"))
