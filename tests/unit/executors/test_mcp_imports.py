"""What a call is told where something can't be imported: a package of the extra that is missing, or a bug of ours."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

from sampling import sample

CALL = """
import asyncio, sys

from toolcrib import parse_registry
import toolcrib
from toolcrib.core.server_config import Server

exec(sys.argv[1])
kinds = toolcrib.Executors.installed()
text = "name: buy\\ninput_schema: {type: object}\\nmcp: {server: shop}"
registry = parse_registry("memory", text, kinds=kinds)
servers = {"shop": Server("shop", command=sys.executable)}
runtime = toolcrib.Runtime(registry, executors=kinds, servers=servers)
result = asyncio.run(runtime.call("buy"))
print(result.error.code, result.message, sep="\\n")
"""


def called_without(module):
    return called_after(f"sys.modules[{module!r}] = None  # it can't be imported")


def called_after(change):
    return subprocess.run(
        [sys.executable, "-c", CALL, change], capture_output=True, text=True, check=True, timeout=60
    )


def test_a_missing_package_of_the_extra_is_told_with_what_to_install():
    done = called_without("anyio")
    code, message = done.stdout.split("\n", 1)
    assert code == "missing_extra"
    assert "pip install 'toolcrib[mcp]'" in message


@pytest.mark.exhaustive
def test_an_sdk_without_a_module_that_is_used_is_told_with_its_version():
    done = called_without("mcp.client.session")
    code, message = done.stdout.rstrip().split("\n", 1)
    assert code == "unsupported_version"
    version = importlib.metadata.version("mcp")
    assert message.startswith(
        f"MCP servers cannot be used: mcp {version} has no `client.session`; pip install 'mcp"
    )
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("change", "member"),
    sample(
        [
            (
                "import mcp.shared.inbound as module; del module.x_mcp_header_map",
                "shared.inbound.x_mcp_header_map",
            ),
            (
                "from mcp.client.session import ClientSession; del ClientSession.dispatch_input_request",
                "ClientSession.dispatch_input_request",
            ),
            (
                "from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher; del JSONRPCDispatcher.send_raw_request",
                "JSONRPCDispatcher.send_raw_request",
            ),
            (
                "from mcp.client.session import ClientSession; ClientSession.__init__ = lambda self, read, write: None",
                "ClientSession(dispatcher=...)",
            ),
        ],
        one_in=4,
    ),
)
def test_an_sdk_without_a_member_that_is_used_starts_no_server_and_is_told_with_its_version(change, member):
    done = called_after(change)
    code, message = done.stdout.rstrip().split("\n", 1)
    assert code == "unsupported_version"
    version = importlib.metadata.version("mcp")
    assert f"MCP servers cannot be used: mcp {version} has no `{member}`; pip install 'mcp" in message
    assert done.stderr == ""


@pytest.mark.exhaustive
def test_what_else_can_not_be_imported_is_a_bug_and_no_missing_extra():
    done = called_without("toolcrib.servers.mcp.connection")
    code, message = done.stdout.split("\n", 1)
    assert code == "server_down"
    assert "a bug in toolcrib (ModuleNotFoundError)" in message
    assert "toolcrib[mcp]" not in message
    assert "import of toolcrib.servers.mcp.connection halted" in done.stderr
